//! Names and their spellings (cases N01, N03 and N04) through a whole run, and the invariant of case N13 itself.
//!
//! Where the rows of the cases N01 to N17 are shown; the names are those of test files and of the tests in them:
//!
//! | Case | Matcher, parser or proxy alone | Through a whole run |
//! | --- | --- | --- |
//! | N01 | `allowlist_tests`, `proxy/names` | `egress_table`; entries at load: here, `bad_input` |
//! | N02 | `authority_tests` (and its property), `proxy/names` | `egress_table` |
//! | N03 | `authority_tests`, `proxy/names` | `egress_table`, here |
//! | N04 | `authority_tests`, `proxy/names` | here |
//! | N06, N07 | `proxy/addresses` | `cases_answers`, `egress_view` |
//! | N09 | `proxy/framing`, the seeds of `fuzz/seeds/head` | `cases_framing` |
//! | N10 | `proxy/names` | `egress_table` |
//! | N11 | `proxy/limits`, `proxy_descriptors` | `cases_clients`, `egress_proxy`, `flood` |
//! | N13 | `proxy/rig` at the end of each test | `dns`, `cases_resolvers`, `sockets_unix`; `common` at the end of each test |
//! | N15 | | `egress_protocols`, `firewall`, `sockets_refused` |
//! | N16 | | `unix_sockets`, `sockets_unix`, `cases_resolvers`, `preflight` |
//! | N17 | | `egress_clients`, `real_clients`, `registries`, `who` |

mod common;

use common::Fence;
use ringfence::ledger::record::Denial;
use std::net::{IpAddr, Ipv4Addr};
use world::address::{PUBLIC4, PUBLIC4_B};
use world::{Origin, origin};

/// Sends each line's bytes to the proxy on a connection of its own and prints the status.
const CLIENT: &str = r#"
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").rstrip("/").split(":")
for line in open("/tmp/rows"):
    with socket.create_connection((host, int(port)), 20) as proxy:
        proxy.sendall(bytes.fromhex(line))
        answer = b""
        while not (answer.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" in answer):
            piece = proxy.recv(65536)
            if not piece:
                break
            answer += piece
    print(answer[9:12].decode(), flush=True)
"#;

/// What is asked for by a tunnel and by a plain request; the port is the way's own unless the target has one.
fn requests(host: &[u8]) -> [Vec<u8>; 2] {
    let end = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".as_slice();
    [[b"CONNECT ", host, b":80", end].concat(), [b"GET http://", host, b"/", end].concat()]
}

/// Puts the client and its requests into the box; the script that sends them.
fn client(fence: &Fence, rows: &[Vec<u8>]) -> &'static str {
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    fence.world.write("/tmp/rows", rows.iter().map(hex).collect::<String>(), 0o644);
    fence.world.write("/tmp/client.py", CLIENT, 0o644);
    "/usr/bin/python3 /tmp/client.py"
}

/// A pattern that is none is refused when it is loaded, from a flag and from a file alike: nothing runs.
#[test]
fn n01_an_entry_that_is_no_pattern_is_refused_at_load() {
    let fence = Fence::new();
    for entry in ["*", "*.", "*.*.x", "x.*", "a*b.x", "*.test."] {
        let (command, ledger) = fence.command(&["--allow-host", entry], &["touch", "/tmp/ran"]);
        let by_flag = fence.output(command);
        let file = format!("extends = \"nist-high\"\nallow-host = [\"{entry}\"]\n");
        fence.world.write("/data/policy.toml", file, 0o644);
        let (command, _) = fence.command(&["--policy", "/data/policy.toml"], &["touch", "/tmp/ran"]);
        let by_file = fence.output(command);
        for (said, place) in [(&by_flag, "--allow-host"), (&by_file, "/data/policy.toml:2")] {
            assert_eq!(said.code, Some(125), "{entry}: {said}");
            let text = &said.err;
            assert!(text.contains(place) && text.contains(entry) && text.contains("accepted: "), "{entry}: {said}");
            assert_eq!(text.trim_end().lines().count(), 1, "one error: {said}");
        }
        assert_eq!((fence.world.read("/tmp/ran"), fence.world.read(&ledger)), (None, None), "{entry}");
    }
    // The nearest entries that are patterns run.
    let ended = fence.run(&["--allow-host", "*.x", "--allow-host", "test"], "touch /tmp/ran");
    assert!(ended.said.code == Some(0) && fence.world.read("/tmp/ran").is_some(), "{ended}");
}

#[test]
fn n03_what_splits_parsers_is_refused_before_any_question_and_escaped_in_the_record() {
    let fence = Fence::new();
    let labels = [b'a', b'b', b'c'].map(|byte| vec![byte; 63]);
    let long = [&labels[..], &[vec![b'd'; 45], b"wild.example.org".to_vec()]].concat().join(&b'.');
    assert_eq!(long.len(), 254);
    let label = [&[b'a'; 64], b".wild.example.org".as_slice()].concat();
    // Each with what the record shows of it: printable text as it is, every other byte escaped.
    let hosts: [(&[u8], &str); 15] = [
        (b"evil.example.net\0.wild.example.org", r"evil.example.net\x00.wild"),
        (b"evil.example.net%00.wild.example.org", "evil.example.net%00.wild"),
        (b"evil.example.net\t.wild.example.org", r"evil.example.net\x09.wild"),
        (b"evil.example.net\r\nX: y", r"evil.example.net\x0d\x0aX: y"),
        (b"user@evil.example.net", "user@evil"),
        (b"a.wild.example.org@evil.example.net", "a.wild.example.org@evil"),
        (b"a.wild.example.org:80@evil.example.net", "a.wild.example.org:80@evil"),
        (b"evil.example.net\\@a.wild.example.org", r"evil.example.net\\@a.wild"),
        (b"evil.example.net#.wild.example.org", "evil.example.net#.wild"),
        (b"evil\xff.wild.example.org", r"evil\xff.wild"),
        ("evil\u{ff0e}wild.example.org".as_bytes(), "evil\u{ff0e}wild"),
        ("evil\u{3002}wild.example.org".as_bytes(), "evil\u{3002}wild"),
        (b"evil.example.net\x1b[2J.wild.example.org", r"evil.example.net\x1b[2J.wild"),
        (&long, "aaaa"),
        (&label, "aaaa"),
    ];
    fence.internet.resolver.host("evil.example.net", &[PUBLIC4_B.into()]);
    fence.internet.resolver.host("a.wild.example.org", &[PUBLIC4.into()]);
    // The name that is to be smuggled in can be looked up and reached from the box.
    let said = fence.as_nobody("curl -sS -m 5 http://evil.example.net/");
    assert_eq!(said.out, "hello from evil.example.net\n", "live: {said}");
    let (asked, reached) = (fence.internet.resolver.questions().len(), fence.internet.stranger.requests().len());

    let mut rows: Vec<Vec<u8>> = hosts.iter().flat_map(|(host, _)| requests(host)).collect();
    // A query cuts the authority of a URL off: what is judged is the name before it.
    rows.extend(requests(b"evil.example.net?.wild.example.org"));
    rows.extend(requests(b"a.wild.example.org"));
    let script = client(&fence, &rows);
    let ended = fence.run(&["--policy", "nist-high", "--allow-host", "*.wild.example.org"], script);
    let codes: Vec<&str> = ended.said.out.lines().collect();
    let expected = [vec!["400"; 2 * hosts.len()], vec!["400", "403", "200", "200"]].concat();
    assert_eq!(codes, expected, "{ended}");

    let denials = ended.denials();
    assert_eq!(denials.iter().map(|one| one.count).sum::<u64>(), 2 * hosts.len() as u64 + 2, "{ended}");
    assert_eq!(ended.denials_of("evil.example.net").len(), 1, "{ended}");
    let texts: Vec<&str> = denials.iter().filter_map(|one| one.object.text.as_deref()).collect();
    for (host, shown) in hosts {
        for method in ["CONNECT", "GET"] {
            let told = |text: &&&str| text.starts_with(method) && text.contains(shown);
            assert!(texts.iter().any(|text| told(&text)), "{method} {}: {texts:#?}", host.escape_ascii());
        }
    }
    // One record a line, and none that the bytes made.
    let bytes = fence.world.read(&ended.ledger).expect("a ledger");
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), ended.records.len());
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert!(text.lines().all(|line| !line.chars().any(ringfence::ledger::escape::is_hidden)), "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{ended}");

    let questions = fence.internet.resolver.questions().split_off(asked);
    assert!(questions.iter().all(|one| one.name == "a.wild.example.org"), "{questions:?}");
    assert_eq!(questions.len(), 4, "two attempts: {questions:?}");
    assert_eq!(fence.internet.stranger.requests().len(), reached, "{ended}");
}

/// 127.0.0.1, 10.0.0.1 and 0.0.0.0 as inet_aton(3) reads them, and what is no address to anyone.
const SPELLINGS: [(&str, Option<&str>); 24] = [
    ("127.1", Some("127.0.0.1")),
    ("0177.0.0.1", Some("127.0.0.1")),
    ("0x7f.0.0.1", Some("127.0.0.1")),
    ("0x7f000001", Some("127.0.0.1")),
    ("2130706433", Some("127.0.0.1")),
    ("017700000001", Some("127.0.0.1")),
    ("127.0.0.01", Some("127.0.0.1")),
    ("127.0.1", Some("127.0.0.1")),
    ("012.0.0.1", Some("10.0.0.1")),
    ("10.1", Some("10.0.0.1")),
    ("0xa.0.0.1", Some("10.0.0.1")),
    ("167772161", Some("10.0.0.1")),
    ("0", Some("127.0.0.1")),
    ("0x0", Some("127.0.0.1")),
    ("013.026.041.054", Some("11.22.33.44")),
    ("185999660", Some("11.22.33.44")),
    ("11.22.8492", Some("11.22.33.44")),
    ("127.0.0.1.", None),
    ("1.2.3", None),
    ("256.1.1.1", None),
    ("1.2.3.4.5", None),
    ("4294967296", None),
    ("0x7f.1.wild.0x1", None),
    ("1.2.3.4.0x", None),
];

#[test]
fn n04_only_four_decimal_parts_are_an_address_and_no_other_spelling_reaches_one() {
    let fence = Fence::new();
    let private = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    fence.world.assign(private).expect("an address of the outside");
    let serve = |space, address: IpAddr| Origin::http(space, address, 80, origin::standard()).expect("an origin");
    let own = serve(fence.world.inside(), Ipv4Addr::LOCALHOST.into());
    let outside = serve(fence.world.outside(), private);
    let resolver = &fence.internet.resolver;
    resolver.host("zero.wild.example.org", &[Ipv4Addr::UNSPECIFIED.into()]);
    resolver.host("a.wild.example.org", &[PUBLIC4.into()]);
    let reached = || [&own, &outside, &fence.internet.http].map(|one| one.requests().len());
    let live = r#"
import socket, sys
for name in sys.argv[1:]:
    with socket.create_connection((name, 80), 5) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        print(f"{name}={s.getpeername()[0]}", flush=True)
        while s.recv(4096):
            pass
"#;
    fence.world.write("/tmp/live.py", live, 0o644);
    let names: Vec<&str> = SPELLINGS.iter().filter(|row| row.1.is_some()).map(|row| row.0).collect();
    let said = fence.as_nobody(&format!("/usr/bin/python3 /tmp/live.py {} zero.wild.example.org", names.join(" ")));
    for (text, address) in SPELLINGS {
        if let Some(address) = address {
            assert_eq!(common::value(&said, text), address, "the spelling is live: {said}");
        }
    }
    assert_eq!(common::value(&said, "zero.wild.example.org"), "127.0.0.1", "{said}");
    let before = reached();
    assert_eq!(before.iter().sum::<usize>(), names.len() + 1, "{said}");
    let asked = resolver.questions().len();
    let packets = fence.world.settled_packets();

    let mut rows: Vec<Vec<u8>> = SPELLINGS.iter().flat_map(|(text, _)| requests(text.as_bytes())).collect();
    let (malformed, literals) = (rows.len(), [b"0.0.0.0".as_slice(), b"127.0.0.1", b"10.0.0.1"]);
    rows.extend(literals.iter().flat_map(|host| requests(host)));
    rows.extend(requests(b"zero.wild.example.org"));
    for (entry, allowed) in
        [("another.example.org", b"a.wild.example.org".as_slice()), ("11.22.33.44", b"11.22.33.44".as_slice())]
    {
        let served = fence.internet.http.requests().len();
        let [_, control] = requests(allowed);
        let script = client(&fence, &[&rows[..], &[control]].concat());
        let flags = ["--policy", "nist-high", "--allow-host", "*.wild.example.org", "--allow-host", entry];
        let ended = fence.run(&flags, script);
        let codes: Vec<&str> = ended.said.out.lines().collect();
        let expected = [vec!["400"; malformed], vec!["403"; 2 * literals.len() + 2], vec!["200"]].concat();
        assert_eq!(codes, expected, "{entry}: {ended}");
        let denials = ended.denials();
        let of =
            |what: &dyn Fn(&Denial) -> bool| denials.iter().filter(|one| what(one)).map(|one| one.count).sum::<u64>();
        assert_eq!(of(&|one| one.rule == "malformed"), malformed as u64, "{ended}");
        assert_eq!(of(&|one| one.rule == "default-deny"), 2 * literals.len() as u64, "{ended}");
        let zero = ended.denials_of("zero.wild.example.org");
        assert!(zero.len() == 2 && zero.iter().all(|one| one.rule == "private-range"), "{ended}");
        assert_eq!(fence.internet.http.requests().len(), served + 1, "{ended}");
    }
    let after = reached();
    assert_eq!((after[0], after[1]), (before[0], before[1]), "no sink was reached");
    let questions = resolver.questions().split_off(asked);
    let named = |name: &str| name.ends_with(".wild.example.org");
    assert!(questions.iter().all(|one| named(&one.name)), "{questions:?}");
    let left = fence.world.packets().split_off(packets);
    assert!(left.iter().all(|one| one.destination != private), "{left:?}");
}

/// The invariant that each world is held to can fail: a question that no script without ringfence explains.
#[test]
#[should_panic(expected = "names that no policy admits were asked for: [\"secret.example.org\"")]
fn n13_a_world_whose_resolver_was_asked_for_another_name_fails() {
    let fence = Fence::new();
    fence.as_nobody("getent hosts stranger.example.org");
    fence.run(&["--policy", "nist-high"], "curl -s -o /dev/null https://pypi.org/");
    let mut command = fence.world.command("getent");
    command.args(["hosts", "secret.example.org"]);
    fence.world.output(command);
}
