//! Each encoding, as tools print it, wherever in a stream it stands.
use super::super::{Token, found_in};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use proptest::prelude::*;

fn wrapped(text: &str, width: usize, end: &str) -> String {
    let pieces: Vec<&str> = text.as_bytes().chunks(width).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    pieces.join(end)
}

fn each(text: &str, write: impl Fn(u8) -> String, between: &str) -> String {
    text.bytes().map(write).collect::<Vec<_>>().join(between)
}

fn dump(bytes: &[u8], pair: usize, colon: &str) -> String {
    let mut dump = String::new();
    for (row, sixteen) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = sixteen.chunks(pair).map(|pair| HEXLOWER.encode(pair)).collect();
        let shown: String =
            sixteen.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        dump += &format!("{:08x}{colon} {:<40}  {shown}\n", row * 16, hex.join(" "));
    }
    dump
}

/// Every way in which a token is looked for, what it is called, and how it looks with `around` characters before it.
fn written(token: &str, around: usize) -> Vec<(&'static str, Vec<u8>)> {
    let before: String = "the quick brown fox jumps over a lazy dog, ".chars().cycle().take(around).collect();
    let whole = format!("{before}{token} and so on");
    let wide = |text: &str, little: bool| -> Vec<u8> {
        text.encode_utf16().flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    };
    let texts: Vec<(&'static str, String)> = vec![
        ("literal", whole.clone()),
        ("reversed", whole.chars().rev().collect()),
        ("base64", BASE64.encode(whole.as_bytes())),
        ("base64", wrapped(&BASE64.encode(whole.as_bytes()), 76, "\r\n")),
        ("base64", wrapped(&BASE64.encode(whole.as_bytes()), 64, "\\n")),
        ("base64", wrapped(&BASE64.encode(whole.as_bytes()), 76, "\n+")),
        ("base64", format!("x_{}", BASE64URL_NOPAD.encode(whole.as_bytes()))),
        ("hex", HEXLOWER.encode(whole.as_bytes())),
        ("hex", HEXUPPER.encode(whole.as_bytes())),
        ("hex", wrapped(&HEXLOWER.encode(whole.as_bytes()), 60, "\n")),
        ("hex", each(&whole, |byte| format!("{byte:02X}"), " ")),
        ("hex", each(&whole, |byte| format!("{byte:02x}"), ":")),
        ("hex", each(&whole, |byte| format!("0x{byte:02x}"), ", ")),
        ("hex", dump(whole.as_bytes(), 2, ":")),
        ("hex", dump(whole.as_bytes(), 1, " ")),
        ("percent", each(&whole, |byte| format!("%{byte:02X}"), "")),
        ("percent", each(&whole, |byte| format!("%{byte:02x}"), "")),
        ("unicode-escape", each(&whole, |byte| format!("\\u{byte:04x}"), "")),
        ("unicode-escape", each(&whole, |byte| format!("\\u{byte:04X}"), "")),
        ("hex-escape", each(&whole, |byte| format!("\\x{byte:02x}"), "")),
        ("octal-escape", each(&whole, |byte| format!("\\{byte:03o}"), "")),
        ("octal-escape", each(&whole, |byte| format!("\\0{byte:03o}"), "")),
        ("html", each(&whole, |byte| format!("&#{byte};"), "")),
        ("html", each(&whole, |byte| format!("&#x{byte:x};"), "")),
        ("percent", whole.replace("_", "%5F")),
        ("backslash", whole.replace("_", "\\_")),
        ("decimal", each(&whole, |byte| byte.to_string(), ",")),
        ("decimal", each(&whole, |byte| byte.to_string(), ", ")),
        ("rot13", whole.bytes().map(|byte| char::from(super::rot13(byte))).collect()),
        ("split", format!("{before}{}", wrapped(token, 10, "\n"))),
        ("split", format!("{before}{}", wrapped(token, 15, "\\\n"))),
        ("split", format!("{before}{}", wrapped(token, 20, "\" +\n    \""))),
        ("split", format!("{before}{}", wrapped(token, 20, "\\\\n"))),
        ("split", format!("{before}{}", wrapped(token, 20, "\r\n> "))),
        ("split", format!("{before}{}", wrapped(token, 20, "\n   12\u{2192}"))),
        ("split", format!("{before}{}", wrapped(token, 20, "\n 7 \u{2502} "))),
        ("split", format!("{before}{}", wrapped(token, 20, "\u{1b}[0m\n\u{1b}[38;5;2m"))),
        ("split", format!("{before}{}", wrapped(token, 20, "\\u001b[0m\\r\\n\\u001b[31m"))),
        ("split", format!("{before}{}", wrapped(token, 20, "\"]\n[12.345, \"o\", \""))),
        ("split", format!("{before}{}", wrapped(token, 20, "<wbr class=\"a1\">"))),
    ];
    let mut all: Vec<(&'static str, Vec<u8>)> =
        texts.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    all.push(("utf-16", wide(&whole, true)));
    all.push(("utf-16", wide(&whole, false)));
    all
}

fn found(tokens: &[Token], bytes: &[u8]) -> Vec<String> {
    let (hits, unread) = found_in(tokens, "x.txt", bytes, 1 << 20);
    assert_eq!(unread, Vec::<String>::new());
    hits.into_iter().map(|(encoding, _)| encoding).collect()
}

#[test]
fn every_encoding_is_found_once_and_called_by_its_name() {
    let token = Token::make("reference.py").unwrap();
    let other = Token::make("other.py").unwrap();
    for around in 0..8 {
        for (name, bytes) in written(token.text(), around) {
            let shown = String::from_utf8_lossy(&bytes);
            assert_eq!(found(&[other.clone(), token.clone()], &bytes), [name], "{shown}");
            assert!(found(std::slice::from_ref(&other), &bytes).is_empty(), "{shown}");
        }
    }
}

#[test]
fn given_tokens_are_found_as_well() {
    for text in ["26b5c67b-86e4-4c8a-9f33-0123456789ab", "CANARY_REFERENCE_LEAK_7f3a91c4", "~?>tricky/+one"] {
        let token = Token::given(text).unwrap();
        for (name, bytes) in written(text, 5) {
            // What has no underscore has none to escape.
            let found = found(std::slice::from_ref(&token), &bytes);
            let plain = name == "percent" || name == "backslash";
            // Of a text that is mostly marks too little is left to be put together again.
            let scattered = name == "split" && text.starts_with('~');
            let shown = String::from_utf8_lossy(&bytes);
            assert!(scattered || found == [name] || plain && found == ["literal"], "{name} {found:?} {shown}");
        }
    }
}

#[test]
fn its_own_pattern_is_no_hit_in_any_encoding() {
    let token = Token::make("reference.py").unwrap();
    for (name, bytes) in written(&token.pattern(), 3) {
        assert!(found(std::slice::from_ref(&token), &bytes).is_empty(), "{name} {}", String::from_utf8_lossy(&bytes));
    }
    let given = Token::of_pattern("CANARY_REFERENCE_LEAK_7f3a91c[0-9]").unwrap();
    for (name, bytes) in written("CANARY_REFERENCE_LEAK_7f3a91c[0-9]", 3) {
        assert!(found(&given, &bytes).is_empty(), "{name}");
    }
    assert_eq!(found(&given, b"x CANARY_REFERENCE_LEAK_7f3a91c7"), ["literal"]);
}

#[test]
fn repeated_tokens_are_counted() {
    let token = Token::make("a").unwrap();
    let text = format!("{} ", token.text()).repeat(50_000);
    let needles = super::Needles::of(std::slice::from_ref(&token));
    let budget = super::super::budget::Budget::of(0);
    let found = super::super::unpack::Reader::of(&needles, &budget, 0).file("x", &mut text.as_bytes(), &[]);
    assert_eq!(found.hits.len(), 1);
    assert_eq!((found.hits[0].find.count, found.hits[0].find.offset), (50_000, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the token, the way it is written and its place, across the borders of what is read at once too.
    #[test]
    fn a_token_is_found_wherever_it_stands(stem in "[a-z]{1,8}", way in any::<prop::sample::Index>(), around in 0_usize..70, place in 0_usize..540_000) {
        let token = Token::make(&stem).unwrap();
        let mut ways = written(token.text(), around);
        let (name, bytes) = ways.swap_remove(way.index(ways.len()));
        let mut stream = vec![b'.'; place];
        stream.push(b'\n');
        stream.extend_from_slice(&bytes);
        stream.extend_from_slice(&b"\n...".repeat(3000));
        let (hits, _) = found_in(std::slice::from_ref(&token), "x.txt", &stream, 0);
        prop_assert_eq!(hits, vec![(name.to_owned(), String::new())]);
    }

    /// Containers with faults harm nothing, and hide nothing that stands behind them in plain.
    #[test]
    fn a_damaged_container_is_read_to_its_end(
        seed in any::<prop::sample::Index>(),
        faults in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/canary")).unwrap();
        let mut seeds: Vec<_> = seeds.map(|seed| seed.unwrap().path()).collect();
        seeds.sort();
        let mut bytes = std::fs::read(&seeds[seed.index(seeds.len())]).unwrap();
        let whole = bytes.len();
        for (at, byte) in faults {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for header in bytes.chunks_exact_mut(512) {
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(1));
        let token = Token::make("a").unwrap();
        // Behind what a member that was cut may still take for its own: a token of which a part is in a member and the rest
        // is not is whole nowhere.
        bytes.extend_from_slice(&b"\n".repeat(whole));
        bytes.extend_from_slice(token.text().as_bytes());
        let (hits, _) = found_in(std::slice::from_ref(&token), "x", &bytes, 1 << 20);
        prop_assert!(!hits.is_empty());
    }
}
