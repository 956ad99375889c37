//! Names, spellings, paths in and ports (cases N01 to N04, N10).

use crate::rig::*;

/// Every refused or malformed row is one record, and the resolver is asked for admitted names only.
#[test]
fn n01_names_match_by_labels() {
    let origin = Origin::plain();
    let port = origin.port;
    let entries = [format!("allowed.test:{port}"), format!("*.wild.test:{port}")];
    let world = world(&entries, |_, _, _| addrs(&["127.0.0.1"]));
    let rows = [
        ("allowed.test", 200, ""),
        ("a.allowed.test", 403, "default-deny"),
        ("notallowed.test", 403, "default-deny"),
        ("allowed.test.evil.test", 403, "default-deny"),
        ("wild.test", 403, "default-deny"),
        ("a.wild.test", 200, ""),
        ("a.b.c.wild.test", 200, ""),
        ("notwild.test", 403, "default-deny"),
        (".wild.test", 400, "malformed"),
        ("a..wild.test", 400, "malformed"),
        ("ALLOWED.TEST", 200, ""),
        ("*.wild.test", 400, "malformed"),
    ];
    let mut expected = Vec::new();
    for (host, code, rule) in rows {
        assert_eq!(status(&world.get(&format!("http://{host}:{port}/"))), code, "GET {host}");
        assert_eq!(status(&world.connect_to(&format!("{host}:{port}"))), code, "CONNECT {host}");
        expected.extend((code != 200).then_some([rule, rule]).into_iter().flatten());
    }
    let rules: Vec<String> = world.records.rules().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(rules, expected);
    assert_eq!(world.resolver.names(), ["a.b.c.wild.test", "a.wild.test", "allowed.test"]);
    // A tunnel opened and closed is a connection with an empty request.
    let seen = origin.seen();
    assert_eq!(seen.iter().filter(|text| text.starts_with("GET / ")).count(), 4);
    assert_eq!(seen.len(), 8);
}

#[test]
fn n02_one_spelling_is_judged_asked_and_dialled() {
    let origin = Origin::plain();
    let port = origin.port;
    let entries = [format!("allowed.test:{port}"), "allowed.test:443".to_owned()];
    let world = world(&entries, |_, _, _| addrs(&["127.0.0.1"]));
    let malformed = [
        format!("allowed.test..:{port}"),
        format!("[allowed.test]:{port}"),
        format!("[[allowed.test]]:{port}"),
        "allowed.test".to_owned(),
        "allowed.test:".to_owned(),
        format!(":{port}"),
        format!("allowed.test:{port}:{port}"),
        format!("allowed.test:{port}/"),
        format!("http://allowed.test:{port}"),
    ];
    for target in &malformed {
        let answer = world.connect_to(target);
        assert_eq!(answer, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "{target}");
    }
    assert_eq!(world.records.denials().len(), malformed.len());
    assert!(world.records.denials().iter().all(|d| d.rule == "malformed" && d.operation == "CONNECT"));
    assert!(world.resolver.questions().is_empty());

    assert_eq!(status(&world.get(&format!("http://Allowed.Test.:{port}/"))), 200);
    assert_eq!(world.resolver.names(), ["allowed.test"]);
    assert!(origin.seen()[0].contains(&format!("\r\nHost: allowed.test:{port}\r\n")));
}

#[test]
fn n03_bytes_that_split_parsers_are_refused_before_any_question() {
    let world = world(&["*.wild.test".to_owned()], |_, _, _| addrs(&["127.0.0.1"]));
    let hosts: [&[u8]; 14] = [
        b"evil.test\0.wild.test",
        b"evil.test%00.wild.test",
        b"evil.test\t.wild.test",
        b"evil.test\r\nX: y",
        b"user@evil.test",
        b"a.wild.test@evil.test",
        b"a.wild.test:80@evil.test:80",
        b"evil.test\\@a.wild.test",
        b"evil.test\\.wild.test",
        b"evil.test#.wild.test",
        b"evil\xff.wild.test",
        "evil\u{ff0e}wild.test".as_bytes(),
        &[&[b'a'; 250], b".wild.test".as_slice()].concat(),
        &[&[b'a'; 64], b".wild.test".as_slice()].concat(),
    ];
    for host in hosts {
        let connect = [b"CONNECT ", host, b":443 HTTP/1.1\r\nHost: x\r\n\r\n"].concat();
        let get = [b"GET http://", host, b"/ HTTP/1.1\r\nHost: x\r\n\r\n"].concat();
        for request in [connect, get] {
            let before = world.records.denials().len();
            let shown = String::from_utf8_lossy(&request).into_owned();
            assert_eq!(status(&world.send(&request)), 400, "{shown:?}");
            assert_eq!(world.records.denials().len(), before + 1, "{shown:?}");
        }
    }
    // A query cuts the authority off: what is judged is `evil.test`.
    assert_eq!(status(&world.get("http://evil.test?.wild.test/")), 403);
    assert!(world.resolver.questions().is_empty());
    for denial in world.records.denials() {
        let text = denial.object.text.or(denial.object.host).unwrap();
        assert!(!text.chars().any(ringfence::ledger::escape::is_hidden), "{text:?}");
    }
}

#[test]
fn n04_only_four_decimal_parts_are_an_ipv4_address() {
    let sink = Origin::sink("127.0.0.1:0");
    let port = sink.port;
    let entries = [format!("*.wild.test:{port}"), format!("11.22.33.44:{port}")];
    let world = world(&entries, |_, _, _| addrs(&["0.0.0.0"]));
    let spellings = [
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
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
    ];
    for host in spellings {
        assert_eq!(status(&world.connect_to(&format!("{host}:{port}"))), 400, "{host}");
        assert_eq!(status(&world.get(&format!("http://{host}:{port}/"))), 400, "{host}");
    }
    for host in ["127.0.0.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"] {
        assert_eq!(status(&world.connect_to(&format!("{host}:{port}"))), 403, "{host}");
    }
    assert!(world.resolver.questions().is_empty());

    assert_eq!(status(&world.connect_to(&format!("a.wild.test:{port}"))), 403);
    assert_eq!(world.records.rules().last().unwrap().0, "private-range");
    assert!(sink.seen().is_empty());
}

/// Path in by host by port: one verdict for the name whatever the path is.
#[test]
fn n10_every_path_in_gives_the_same_verdict() {
    let origin = Origin::plain();
    let port = origin.port;
    let entries = ["allowed.test".to_owned(), format!("allowed.test:{port}")];
    let world = world(&entries, |_, _, _| addrs(&["127.0.0.1"]));
    let request = |path: &str, authority: &str| match path {
        "GET" => format!("GET http://{authority}/ HTTP/1.1\r\nHost: x\r\n\r\n"),
        "POST" => format!("POST http://{authority}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"),
        "UPGRADE" => {
            format!("GET http://{authority}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        }
        _ => format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"),
    };
    let canonical = [(port.to_string(), true), ("22".to_owned(), false), ("25".to_owned(), false)];
    let broken = ["0", "65536", "99999", "+443", "0443", " 443", "443x"];
    for path in ["GET", "POST", "UPGRADE", "CONNECT"] {
        for (host, named) in [("allowed.test", true), ("evil.test", false)] {
            for (port, listed) in &canonical {
                let (code, rule) = match (named, listed) {
                    (true, true) => (200, None),
                    (true, false) => (403, Some("port")),
                    (false, _) => (403, Some("default-deny")),
                };
                let before = world.records.denials().len();
                let answer = world.send(request(path, &format!("{host}:{port}")));
                assert_eq!(status(&answer), code, "{path} {host}:{port}: {answer}");
                let new: Vec<_> = world.records.denials().split_off(before);
                let rules: Vec<&str> = new.iter().map(|d| d.rule.as_str()).collect();
                assert_eq!(rules, Vec::from_iter(rule), "{path} {host}:{port}");
                if let Some(denial) = new.first() {
                    assert_eq!(denial.object.host.as_deref(), Some(host));
                    assert_eq!(denial.object.port.map(|p| p.to_string()).as_ref(), Some(port));
                    assert_eq!(denial.http_status, Some(403));
                }
            }
            for port in broken {
                let before = world.records.denials().len();
                assert_eq!(status(&world.send(request(path, &format!("{host}:{port}")))), 400);
                assert_eq!(world.records.denials().len(), before + 1, "{path} {host}:{port}");
            }
        }
    }
    for target in ["ftp://allowed.test/", "https://allowed.test/", "/", "*", "allowed.test"] {
        assert_eq!(status(&world.get(target)), 400, "{target}");
        assert_eq!(world.records.denials().last().unwrap().rule, "malformed");
    }
    assert_eq!(world.resolver.names(), ["allowed.test"]);
}
