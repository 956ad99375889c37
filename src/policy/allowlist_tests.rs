//! The matcher against case N01, the port rule, and a plain model of what an entry admits.
use super::*;
use proptest::prelude::*;

fn list(entries: &[&str]) -> Allowlist {
    Allowlist::from_entries(entries.iter().map(|text| Entry::parse(text).unwrap()))
}

fn authority(text: &str) -> Authority {
    Authority::parse_connect(text.as_bytes()).unwrap()
}

fn verdict(list: &Allowlist, text: &str) -> String {
    match list.judge(&authority(text)) {
        Verdict::Admitted { entry } => entry,
        Verdict::Refused { rule, reason } => format!("!{rule} {reason}"),
    }
}

const DENY: &str = "!default-deny not_allowed";
const PORT: &str = "!port port_not_allowed";

#[test]
fn labels_are_the_boundary_and_the_apex_is_outside_n01() {
    let list = list(&["allowed.test", "*.wild.test"]);
    for (target, expected) in [
        ("allowed.test:443", "allowed.test"),
        ("allowed.test.:443", "allowed.test"),
        ("ALLOWED.TEST:80", "allowed.test"),
        ("a.wild.test:443", "*.wild.test"),
        ("a.b.c.wild.test:443", "*.wild.test"),
        ("a.allowed.test:443", DENY),
        ("notallowed.test:443", DENY),
        ("allowed.test.evil.test:443", DENY),
        ("wild.test:443", DENY),
        ("notwild.test:443", DENY),
        ("test:443", DENY),
        ("a.wild.test.evil.test:443", DENY),
    ] {
        assert_eq!(verdict(&list, target), expected, "{target}");
    }
}

#[test]
fn ports_are_80_and_443_unless_named() {
    let list = list(&[
        "plain.test",
        "one.test:8443",
        "*.wild.test:22",
        "both.test",
        "both.test:9000",
        "*.both.test",
    ]);
    for (target, expected) in [
        ("plain.test:80", "plain.test"),
        ("plain.test:22", PORT),
        ("one.test:8443", "one.test:8443"),
        ("one.test:443", PORT),
        ("a.wild.test:22", "*.wild.test:22"),
        ("a.wild.test:443", PORT),
        ("both.test:9000", "both.test:9000"),
        ("both.test:443", "both.test"),
        ("both.test:25", PORT),
        ("other.test:22", DENY),
    ] {
        assert_eq!(verdict(&list, target), expected, "{target}");
    }
}

#[test]
fn a_farther_entry_still_admits_its_port() {
    let list = list(&["a.b.test:22", "*.b.test"]);
    assert_eq!(verdict(&list, "a.b.test:443"), "*.b.test");
}

#[test]
fn literals_are_exact_hosts() {
    let list = list(&["11.22.33.44", "[2a00:1:2:3::1]:8080"]);
    assert_eq!(verdict(&list, "11.22.33.44:443"), "11.22.33.44");
    assert_eq!(
        verdict(&list, "[2a00:1:2:3:0::1]:8080"),
        "[2a00:1:2:3::1]:8080"
    );
    assert_eq!(verdict(&list, "11.22.33.45:443"), DENY);
    assert_eq!(verdict(&list, "[::ffff:11.22.33.44]:443"), DENY);
}

#[test]
fn an_empty_list_admits_nothing() {
    let empty = Allowlist::default();
    assert!(empty.is_empty());
    for target in ["localhost:80", "a.test:443", "127.0.0.1:80", "[::1]:443"] {
        assert_eq!(verdict(&empty, target), DENY);
    }
}

#[test]
fn what_is_no_entry_is_refused_when_loaded() {
    for text in [
        "",
        "*",
        "*.",
        "*.*.x",
        "x.*",
        "a*b.x",
        "*.test.",
        "test.",
        "**.test",
        "*test",
        "*:443",
        "*.:443",
        "*.1.2.3.4",
        "*.[::1]",
        "a.test:0",
        "a.test:",
        "a.test:443:1",
        "::1",
        "[::1]:",
        "a b.test",
        "http://a.test",
        "a.test/x",
        "a.test..",
        ".",
        ".test",
        "*..test",
        "1.2.3",
        "0x7f.1",
        "u@a.test",
        "[::1].",
    ] {
        assert!(Entry::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_file_form_has_comments_and_names_its_bad_line() {
    let good = Allowlist::from_file_text("x.txt", "# head\n\n a.test # why\n*.b.test:22\na.test\n")
        .unwrap();
    assert_eq!(
        good.entries()
            .iter()
            .map(|e| e.to_string())
            .collect::<Vec<_>>(),
        ["a.test", "*.b.test:22"]
    );
    assert_eq!(good.len(), 2);
    let bad = Allowlist::from_file_text("x.txt", "a.test\nb*.test\n").unwrap_err();
    assert_eq!(
        bad.to_string(),
        "x.txt:2: \"b*.test\" is no allowlist entry: '*' may only stand as the whole first label, as in \
         *.example.org; accepted: host, *.host, either with :port"
    );
}

#[test]
fn the_compiled_list_holds_205_entries_that_parse() {
    let list = list(&NIST_HIGH);
    assert_eq!(list.len(), 205);
    assert_eq!(
        verdict(&list, "s3.eu-west-1.amazonaws.com:443"),
        "*.amazonaws.com"
    );
    assert_eq!(verdict(&list, "amazonaws.com:443"), DENY);
    assert_eq!(verdict(&list, "pypi.org:22"), PORT);
}

proptest! {
    /// The look-up by label against a plain scan of every entry.
    #[test]
    fn the_look_up_agrees_with_a_scan(
        entries in proptest::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,2}(:(22|443))?", 0..8),
        host in "[ab](\\.[ab]){0,3}",
        port in prop_oneof![Just(22u16), Just(80), Just(443)],
    ) {
        let parsed: Vec<Entry> = entries.iter().map(|text| Entry::parse(text).unwrap()).collect();
        let names = |text: &str| match text.split(':').next().unwrap().strip_prefix("*.") {
            Some(apex) => host.ends_with(&format!(".{apex}")),
            None => text.split(':').next().unwrap() == host,
        };
        let ports = |text: &str| match text.split_once(':') {
            Some((_, one)) => one.parse() == Ok(port),
            None => port == 80 || port == 443,
        };
        let expected = (
            entries.iter().any(|text| names(text) && ports(text)),
            entries.iter().any(|text| names(text)),
        );
        let seen = match Allowlist::from_entries(parsed).judge(&authority(&format!("{host}:{port}"))) {
            Verdict::Admitted { entry } => {
                prop_assert!(entries.contains(&entry) && names(&entry) && ports(&entry));
                (true, true)
            }
            Verdict::Refused { rule: "port", .. } => (false, true),
            Verdict::Refused { .. } => (false, false),
        };
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn an_entry_has_one_text(text in "(\\*\\.)?([a-zA-Z0-9_-]{1,5}\\.){0,3}[a-zA-Z]{1,4}(:[0-9]{1,5})?|[*.a:0-9\\[\\]]{0,12}") {
        if let Ok(entry) = Entry::parse(&text) {
            prop_assert_eq!(Entry::parse(&entry.to_string()), Ok(entry));
        }
    }
}
