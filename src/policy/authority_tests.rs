//! The grammar against cases N01 to N04 of the case list, and its properties.
use super::*;
use proptest::prelude::*;

fn connect(text: &str) -> Result<String, BadAuthority> {
    Authority::parse_connect(text.as_bytes()).map(|a| a.to_string())
}

#[test]
fn what_is_accepted_has_one_spelling() {
    for (text, canonical) in [
        ("allowed.test:443", "allowed.test:443"),
        ("ALLOWED.Test:80", "allowed.test:80"),
        ("allowed.test.:443", "allowed.test:443"),
        ("localhost:1", "localhost:1"),
        ("my_bucket.s3.test:65535", "my_bucket.s3.test:65535"),
        ("xn--bcher-kva.test:443", "xn--bcher-kva.test:443"),
        ("1.2.3.test:443", "1.2.3.test:443"),
        ("0x7f.test:443", "0x7f.test:443"),
        ("0xfg:443", "0xfg:443"),
        ("127.0.0.1:443", "127.0.0.1:443"),
        ("0.0.0.0:443", "0.0.0.0:443"),
        ("[2A00:1:2:3:0:0:0:1]:443", "[2a00:1:2:3::1]:443"),
        ("[::ffff:10.0.0.5]:443", "[::ffff:10.0.0.5]:443"),
    ] {
        assert_eq!(connect(text).as_deref(), Ok(canonical), "{text}");
    }
}

#[test]
fn dots_brackets_and_ports_n02() {
    use BadAuthority::*;
    for (text, fault) in [
        ("allowed.test..:443", EmptyLabel),
        ("[allowed.test]:443", BadIpv6),
        ("[[allowed.test]]:443", Brackets),
        ("[[::1]]:443", Brackets),
        ("[::1]]:443", Brackets),
        ("[::1:443", Brackets),
        ("a[::1]:443", Brackets),
        ("[::1]443", Brackets),
        ("[]:443", BadIpv6),
        ("[::1%eth0]:443", Percent),
        ("[127.0.0.1]:443", BadIpv6),
        ("[::ffff:010.0.0.5]:443", BadIpv6),
        ("[1.]:443", BadIpv6),
        ("::1:443", Colon),
        ("allowed.test", MissingPort),
        ("[::1]", MissingPort),
        ("allowed.test:", BadPort),
        (":443", EmptyHost),
        (".:443", EmptyLabel),
        (":", EmptyHost),
        ("", EmptyHost),
        ("allowed.test:443:443", Colon),
        ("allowed.test:443/", Delimiter),
        ("http://allowed.test:443", Delimiter),
        ("allowed.test:0", BadPort),
        ("allowed.test:0443", BadPort),
        ("allowed.test:+443", BadPort),
        ("allowed.test:-1", BadPort),
        ("allowed.test:65536", BadPort),
        ("allowed.test:99999", BadPort),
        ("allowed.test:4x", BadPort),
    ] {
        assert_eq!(connect(text), Err(fault), "{text}");
    }
    assert_eq!(Authority::parse_with_default(b"allowed.test:", 80), Err(BadPort));
    assert_eq!(Authority::parse_with_default(b"allowed.test", 0), Err(BadPort));
    assert_eq!(Authority::parse_with_default(b"allowed.test", 80).unwrap().to_string(), "allowed.test:80");
    assert_eq!(Authority::parse_with_default(b"[::1]", 80).unwrap().to_string(), "[::1]:80");
    assert_eq!(Host::parse(b"allowed.test:443"), Err(Colon));
}

#[test]
fn labels_n01() {
    use BadAuthority::*;
    for (text, fault) in [
        (".wild.test:443", EmptyLabel),
        ("a..wild.test:443", EmptyLabel),
        ("*.wild.test:443", BadByte),
        ("-a.test:443", HyphenAtEdge),
        ("a-.test:443", HyphenAtEdge),
        ("a.test,b.test:443", BadByte),
        ("a'b.test:443", BadByte),
    ] {
        assert_eq!(connect(text), Err(fault), "{text}");
    }
}

#[test]
fn bytes_that_split_parsers_n03() {
    use BadAuthority::*;
    for (text, fault) in [
        (&b"evil.test\0.wild.test:443"[..], ControlByte),
        (b"evil.test%00.wild.test:443", Percent),
        (b"evil.test\t.wild.test:443", ControlByte),
        (b"evil.test\r\nX: y:443", ControlByte),
        (b"evil.test\x7f.wild.test:443", ControlByte),
        (b"evil.test .wild.test:443", Space),
        (b"user@evil.test:443", UserInfo),
        (b"a.wild.test@evil.test:443", UserInfo),
        (b"a.wild.test:80@evil.test:80", UserInfo),
        (b"evil.test\\@a.wild.test:443", Backslash),
        (b"evil.test#.wild.test:443", Delimiter),
        (b"evil.test?.wild.test:443", Delimiter),
        (b"\xff.wild.test:443", NonAscii),
        ("evil。wild。test:443".as_bytes(), NonAscii),
    ] {
        assert_eq!(Authority::parse_connect(text), Err(fault), "{}", text.escape_ascii());
        assert_eq!(Authority::parse_with_default(text, 80), Err(fault), "{}", text.escape_ascii());
    }
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    assert!(Host::parse(longest.as_bytes()).is_ok());
    assert!(Host::parse(format!("{longest}.").as_bytes()).is_ok());
    assert_eq!(Host::parse(format!("{longest}a").as_bytes()), Err(NameTooLong));
    assert_eq!(Host::parse(format!("{label}a.test").as_bytes()), Err(LabelTooLong));
}

#[test]
fn legacy_ipv4_n04() {
    for text in [
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0X7F000001",
        "2130706433",
        "017700000001",
        "127.0.0.01",
        "012.0.0.1",
        "0",
        "127.0.0.1.",
        "1.2.3",
        "256.1.1.1",
        "1.2.3.4.5",
        "4294967296",
        "0x",
        "a.0x1",
        "a.1",
    ] {
        assert_eq!(Host::parse(text.as_bytes()), Err(BadAuthority::NumericName), "{text}");
    }
}

#[test]
fn parents_are_whole_labels() {
    let name = Name::parse(b"a.b.wild.test").unwrap();
    assert_eq!(name.parents().collect::<Vec<_>>(), ["b.wild.test", "wild.test", "test"]);
    assert_eq!(Name::parse(b"test").unwrap().parents().count(), 0);
    assert_eq!(Name::parse(b"1.2.3.4"), Err(BadAuthority::NumericName));
    assert_eq!(Name::parse(b"[::1]"), Err(BadAuthority::Brackets));
}

/// Whether inet_aton(3) takes a text for an address: one to four numbers, each decimal, octal after a 0 or hexadecimal after
/// 0x; the last one fills what the others leave. What the C library takes so it never asks a resolver for.
fn is_legacy_ipv4(text: &str) -> bool {
    let number = |part: &str| match part.strip_prefix("0x").or(part.strip_prefix("0X")) {
        Some("") => Some(0),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u64::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<Option<u64>> = text.split('.').map(number).collect();
    let (Some(last), before) = (parts.last().copied().flatten(), &parts[..parts.len() - 1]) else { return false };
    let small = before.iter().all(|part| part.is_some_and(|part| part < 256));
    parts.len() <= 4 && small && last < 1 << (8 * (4 - before.len() as u32))
}

#[test]
fn the_model_of_legacy_ipv4_reads_the_spellings_of_n04() {
    for text in
        ["127.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.01", "0", "0x"]
    {
        assert!(is_legacy_ipv4(text), "{text}");
    }
    for text in ["4294967296", "256.1.1.1", "1.2.3.4.5", "08", "a.1", "127.0.0.1.", ""] {
        assert!(!is_legacy_ipv4(text), "{text}");
    }
}

proptest! {
    /// No text that is handed to a resolver is an address to the C library.
    #[test]
    fn a_name_is_never_an_address_to_inet_aton(text in "(0[xX]?)?[0-9a-fA-F]{0,10}(\\.(0[xX]?)?[0-9a-fA-F]{0,3}){0,4}") {
        if let Ok(Host::Name(name)) = Host::parse(text.as_bytes()) {
            prop_assert!(!is_legacy_ipv4(name.as_str()), "{}", name);
        }
        if is_legacy_ipv4(&text) {
            prop_assert!(matches!(Host::parse(text.as_bytes()), Ok(Host::V4(_)) | Err(_)), "{}", text);
        }
    }

    #[test]
    fn canonicalising_twice_equals_once(text in "[a-zA-Z0-9.:_\\[\\]-]{0,40}|([a-zA-Z0-9_-]{1,8}\\.){0,4}[a-z]{1,4}\\.?:[0-9]{1,5}") {
        if let Ok(once) = Authority::parse_connect(text.as_bytes()) {
            let twice = Authority::parse_connect(once.to_string().as_bytes());
            prop_assert_eq!(twice, Ok(once.clone()));
            let host = Host::parse(once.host.to_string().as_bytes());
            prop_assert_eq!(host, Ok(once.host));
        }
    }

    #[test]
    fn no_byte_string_panics_and_what_passes_is_clean(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(host) = Host::parse(&text) {
            let shown = host.to_string();
            prop_assert!(shown.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:[]".contains(&b)));
        }
    }

    #[test]
    fn one_foreign_byte_refuses_the_whole(name in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}", at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        prop_assume!(!(byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)));
        let mut bytes = name.into_bytes();
        bytes.insert(at.index(bytes.len() + 1), byte);
        bytes.extend_from_slice(b":443");
        prop_assert!(Authority::parse_connect(&bytes).is_err());
    }

    #[test]
    fn a_name_is_never_an_address_to_the_standard_parser(text in "[0-9a-fxX.]{1,20}") {
        if let Ok(Host::Name(name)) = Host::parse(text.as_bytes()) {
            prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            prop_assert!(!name.as_str().ends_with(|c: char| c.is_ascii_digit()) || name.as_str().rsplit('.').next().unwrap().contains(|c: char| c.is_ascii_alphabetic()));
        }
    }
}
