//! Each value's text form: what is accepted, what is refused with what words, and that it reads back.
use super::*;
use proptest::prelude::*;
use std::path::{Component, Path};

fn refused<T: FromStr<Err = BadValue> + fmt::Debug>(texts: &[&str]) {
    for text in texts {
        let bad = text.parse::<T>().expect_err(text);
        assert!(bad.to_string().contains("accepted: "), "{bad}");
        assert!(!bad.to_string().contains('\n'), "{bad}");
    }
}

fn reads_as<T: FromStr<Err = BadValue> + fmt::Display>(pairs: &[(&str, &str)]) {
    for (text, canonical) in pairs {
        match text.parse::<T>() {
            Ok(value) => assert_eq!(value.to_string(), *canonical),
            Err(bad) => panic!("{bad}"),
        }
    }
}

#[test]
fn paths() {
    reads_as::<PolicyPath>(&[
        ("/", "/"),
        ("/a", "/a"),
        ("//a///b/", "/a/b"),
        ("/a/./b", "/a/b"),
        ("~", "~"),
        ("~/", "~"),
        ("~//x/", "~/x"),
        ("/a b", "/a b"),
        ("/~", "/~"),
        ("/a/~", "/a/~"),
    ]);
    refused::<PolicyPath>(&[
        "", "a", "./a", "../a", "/a/..", "/..", "~/..", "~root", "~root/x", "/a\0b", " /a",
    ]);
    let home = Path::new("/home/agent");
    let resolved = |text: &str| text.parse::<PolicyPath>().unwrap().resolve(home);
    assert_eq!(resolved("~"), home);
    assert_eq!(resolved("~/.x/y"), home.join(".x/y"));
    assert_eq!(resolved("/a"), Path::new("/a"));
}

#[test]
fn users() {
    reads_as::<User>(&[
        ("agent", "agent"),
        ("_apt", "_apt"),
        ("a.b-c_1", "a.b-c_1"),
        ("0", "0"),
        ("4294967294", "4294967294"),
        ("1000:1001", "1000:1001"),
        ("007", "7"),
    ]);
    refused::<User>(&[
        "",
        "-1",
        "+1",
        "4294967295",
        "1:4294967295",
        "1:",
        ":1",
        "1:-1",
        "1:2:3",
        "a:b",
        "agent:1",
        "a b",
        "-agent",
        ".a",
        "1agent",
        "a\nb",
        "a/b",
        "ab$",
        "abcdefghijabcdefghijabcdefghijabc",
    ]);
}

#[test]
fn ranges() {
    reads_as::<TrustRange>(&[
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("FD12::/16", "fd12::/16"),
        ("1.2.3.4/32", "1.2.3.4/32"),
        ("::1/128", "::1/128"),
    ]);
    refused::<TrustRange>(&[
        "10.0.0.1/8",
        "fd12::1/16",
        "10.0.0.0",
        "10.0.0.0/33",
        "10.0/8",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "010.0.0.0/8",
        "a.test/8",
        "",
        "::ffff:10.0.0.0/104",
    ]);
    let bad = "10.1.2.3/8".parse::<TrustRange>().unwrap_err();
    assert_eq!(
        bad.to_string(),
        "\"10.1.2.3/8\" is no trusted range (it has host bits; the network is 10.0.0.0/8); accepted: a network in CIDR form, such as 10.1.0.0/16 or fd12::/16"
    );
}

#[test]
fn words_loopback_names_and_the_policy_argument() {
    assert_eq!(
        "443,80,443".parse(),
        Ok(Loopback::Ports(
            [80, 443].map(|port| NonZeroU16::new(port).unwrap()).into()
        ))
    );
    assert_eq!("all".parse(), Ok(Loopback::All));
    assert_eq!("proxy".parse(), Ok(Loopback::Proxy));
    refused::<Loopback>(&["", "none", "0", "80,", "80-90", "65536", "All"]);
    reads_as::<Leftovers>(&[("kill", "kill"), ("keep", "keep")]);
    refused::<Leftovers>(&["", "KILL"]);
    refused::<OnLedgerFailure>(&["/var/log/x", ""]);
    refused::<EnvName>(&["", "A=B", "A\n", "=", "A\0"]);
    assert_eq!("nist-high".parse(), Ok(PolicyArg::Level(Level::NistHigh)));
    assert_eq!(
        "locked.toml".parse(),
        Ok(PolicyArg::File("locked.toml".into()))
    );
    assert_eq!("./locked".parse(), Ok(PolicyArg::File("./locked".into())));
    refused::<PolicyArg>(&["", "Locked", "toml", "nist_high"]);
}

#[test]
fn a_hostile_value_is_escaped_in_its_message() {
    let bad = "x\n\u{1b}[2J".parse::<Level>().unwrap_err();
    assert!(
        bad.to_string()
            .starts_with("\"x\\n\\u{1b}[2J\" is no level"),
        "{bad}"
    );
}

proptest! {
    #[test]
    fn a_path_reads_back_and_stays_below_its_start(text in "(~|/)?[a-c./~]{0,12}") {
        if let Ok(path) = text.parse::<PolicyPath>() {
            prop_assert_eq!(path.to_string().parse(), Ok(path.clone()));
            let home = Path::new("/home/agent");
            let resolved = path.resolve(home);
            prop_assert!(resolved.is_absolute());
            prop_assert!(resolved.components().all(|part| part != Component::ParentDir));
            prop_assert!(!text.starts_with('~') || resolved.starts_with(home));
        }
    }

    #[test]
    fn a_user_reads_back(text in "[a-z0-9:_.-]{0,12}") {
        if let Ok(user) = text.parse::<User>() {
            prop_assert_eq!(user.to_string().parse(), Ok(user));
        }
    }

    #[test]
    fn a_range_without_host_bits_is_taken_and_one_with_them_is_not(bits in any::<u32>(), length in 0u8..=32) {
        let net = ipnet::Ipv4Net::new(bits.into(), length).unwrap();
        prop_assert!(net.trunc().to_string().parse::<TrustRange>().is_ok());
        prop_assert_eq!(net.to_string().parse::<TrustRange>().is_ok(), net == net.trunc());
    }
}
