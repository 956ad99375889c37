//! What a name resolves to (cases N06, N07): every address is judged, once, and no other is dialled.

use crate::rig::*;

/// A sink on 127.0.0.2, which no range opens, and the same port on 127.0.0.1 closed.
fn private() -> (Origin, u16) {
    let sink = Origin::sink("127.0.0.2:0");
    let port = sink.port;
    (sink, port)
}

fn entry(host: &str, port: u16) -> [String; 1] {
    [format!("{host}:{port}")]
}

#[test]
fn n06_one_denied_address_refuses_the_whole_answer() {
    for answer in [
        vec!["127.0.0.1", "127.0.0.2"],
        vec!["127.0.0.2", "127.0.0.1"],
        vec!["127.0.0.1", "::1"],
        vec!["127.0.0.1", "::ffff:127.0.0.2"],
        vec!["11.22.33.44", "10.0.0.5"],
        vec!["64:ff9b::a00:5", "11.22.33.44"],
    ] {
        let (sink, port) = private();
        let shown = format!("{answer:?}");
        let world = world(&entry("mixed.test", port), move |_, _, _| addrs(&answer));
        assert_eq!(status(&world.connect_to(&format!("mixed.test:{port}"))), 403, "{shown}");
        assert_eq!(status(&world.get(&format!("http://mixed.test:{port}/"))), 403, "{shown}");
        let denials = world.records.denials();
        assert_eq!(denials.len(), 2, "{shown}");
        assert_eq!((denials[0].rule.as_str(), denials[0].reason.as_str()), ("private-range", "denied_address"));
        assert_eq!(denials[0].object.addrs.len(), 2, "{shown}");
        assert!(sink.seen().is_empty());
        assert!(world.records.failures().is_empty());
    }
}

#[test]
fn n06_metadata_addresses_have_their_own_rule() {
    let world = world(&entry("meta.test", 80), |_, _, _| addrs(&["169.254.169.254"]));
    let answer = world.get("http://meta.test/latest/meta-data/");
    assert_eq!(answer, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(world.records.rules(), [("metadata".to_owned(), "denied_address".to_owned())]);
}

#[test]
fn n06_a_chain_is_judged_by_the_name_asked_for_and_the_addresses_at_its_end() {
    let origin = Origin::plain();
    let port = origin.port;
    let entries = ["good.test", "bad.test", "cut.test", "loop.test", "stranger.test"].map(|h| format!("{h}:{port}"));
    let world = world(&entries, |name, _, _| {
        Answer::Records(match name {
            "good.test" => {
                vec![("good.test", "CNAME", "not-listed.test".into()), ("not-listed.test", "A", "127.0.0.1".into())]
            }
            "bad.test" => {
                vec![("bad.test", "CNAME", "internal.test".into()), ("internal.test", "A", "10.0.0.5".into())]
            }
            "cut.test" => vec![("cut.test", "CNAME", "internal.test".into())],
            "loop.test" => {
                vec![("loop.test", "CNAME", "loop2.test".into()), ("loop2.test", "CNAME", "loop.test".into())]
            }
            _ => vec![("another.test", "A", "127.0.0.1".into())],
        })
    });
    let get = |host: &str| status(&world.get(&format!("http://{host}:{port}/")));
    assert_eq!(get("good.test"), 200);
    assert_eq!(get("bad.test"), 403);
    assert_eq!(get("cut.test"), 502);
    assert_eq!(get("loop.test"), 502);
    assert_eq!(get("stranger.test"), 502);
    assert_eq!(world.records.rules(), [("private-range".to_owned(), "denied_address".to_owned())]);
    assert_eq!(world.records.failures().len(), 3);
    // No name of a chain is ever asked for.
    assert_eq!(world.resolver.names(), ["bad.test", "cut.test", "good.test", "loop.test", "stranger.test"]);
    assert_eq!(world.resolver.questions().len(), 10);
}

#[test]
fn n06_four_thousand_addresses_are_refused_in_bounds() {
    let world = world(&entry("many.test", 443), |_, kind, _| {
        let owned = (0..4000).map(|i| ("", "A", format!("11.{}.{}.1", i / 250, i % 250)));
        match kind {
            "A" => Answer::Records(owned.collect()),
            _ => empty(),
        }
    });
    assert_eq!(status(&world.connect_to("many.test:443")), 403);
    let denials = world.records.denials();
    assert_eq!((denials[0].rule.as_str(), denials[0].reason.as_str()), ("address-count", "too_many_addresses"));
    assert_eq!(denials[0].object.addrs.len(), 64);
}

#[test]
fn n06_a_closed_public_port_is_an_upstream_failure() {
    let (sink, port) = private();
    let world = world(&entry("closed.test", port), |_, _, _| addrs(&["127.0.0.1"]));
    let answer = world.connect_to(&format!("closed.test:{port}"));
    assert_eq!(answer, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(world.records.denials().is_empty());
    let failures = world.records.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].operation.as_str(), failures[0].http_status), ("connect", Some(502)));
    assert!(failures[0].cause.contains("refused"), "{}", failures[0].cause);
    assert!(sink.seen().is_empty());
}

#[test]
fn n07_one_resolution_an_attempt_and_its_answer_is_what_counts() {
    let second = |before: usize, first: Answer| match before {
        0 => first,
        _ => addrs(&["127.0.0.2", "169.254.169.254"]),
    };
    type First = fn() -> Answer;
    let flips: [(First, u16); 4] =
        [(empty, 502), (|| Answer::Code(2), 502), (|| Answer::Code(3), 502), (|| addrs(&["127.0.0.1"]), 200)];
    for (first, code) in flips {
        for path in ["GET", "CONNECT"] {
            let origin = Origin::plain();
            let sink = Origin::sink(&format!("127.0.0.2:{}", origin.port));
            let port = origin.port;
            let world = world(&entry("flip.test", port), move |_, _, before| second(before, first()));
            let attempt = || match path {
                "GET" => status(&world.get(&format!("http://flip.test:{port}/"))),
                _ => status(&world.connect_to(&format!("flip.test:{port}"))),
            };
            assert_eq!(attempt(), code, "{path}");
            let mut questions = world.resolver.questions();
            questions.sort();
            let pair = [("flip.test".to_owned(), "A".to_owned()), ("flip.test".to_owned(), "AAAA".to_owned())];
            assert_eq!(questions, pair, "{path}");
            // The next attempt is judged by the next answer.
            assert_eq!(attempt(), 403, "{path}");
            assert_eq!(world.resolver.questions().len(), 4);
            assert_eq!(world.records.denials().len(), 1);
            assert!(sink.seen().is_empty());
        }
    }
}

#[test]
fn n07_no_name_switches_the_address_check_off() {
    let entries = ["localhost".to_owned(), "*.localhost".to_owned()];
    let world = world(&entries, |_, _, _| addrs(&["10.0.0.5"]));
    for host in ["localhost", "k7.localhost"] {
        assert_eq!(status(&world.connect_to(&format!("{host}:443"))), 403);
    }
    assert!(world.records.rules().iter().all(|(rule, _)| rule == "private-range"));
}

#[test]
fn a_silent_resolver_is_a_timeout_and_no_denial() {
    let mut limits = limits();
    limits.resolve = std::time::Duration::from_millis(300);
    let world = world_with(&entry("silent.test", 443), limits, |_, _, _| Answer::Silence);
    assert_eq!(status(&world.connect_to("silent.test:443")), 504);
    let failures = world.records.failures();
    assert_eq!((failures[0].operation.as_str(), failures[0].http_status), ("resolve", Some(504)));
    assert!(world.records.denials().is_empty());
}

#[test]
fn the_hosts_file_answers_without_a_question_and_is_judged_too() {
    let origin = Origin::plain();
    let world = world(&entry("hosts-file.test", origin.port), |_, _, _| addrs(&["10.0.0.5"]));
    assert_eq!(status(&world.get(&format!("http://hosts-file.test:{}/", origin.port))), 200);
    assert!(world.resolver.questions().is_empty());
}

#[test]
fn a_listed_literal_opens_itself_but_never_the_proxy() {
    let origin = Origin::start("127.0.0.2:0", |stream, log| {
        log(&read_request(stream));
        std::io::Write::write_all(stream, b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let resolver = Resolver::start(move |_, _, _| addrs(&["127.0.0.1"]));
    let entries = [
        format!("127.0.0.2:{}", origin.port),
        own.to_string(),
        format!("[::ffff:127.0.0.1]:{}", own.port()),
        format!("self.test:{}", own.port()),
    ];
    let records = Records::default();
    let spec = spec(&entries, &resolver, limits());
    let (recorder, asked) = (records.clone(), Asked::new(&resolver, &spec.allowlist));
    let ended = std::thread::spawn(move || ringfence::proxy::run(listener, spec, recorder));
    let world = World { proxy: own, resolver, records, ended, _asked: asked };
    assert_eq!(status(&world.get(&format!("http://127.0.0.2:{}/", origin.port))), 204);
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "self.test"] {
        assert_eq!(status(&world.connect_to(&format!("{host}:{}", own.port()))), 403, "{host}");
        assert_eq!(world.records.rules().last().unwrap().0, "own-address");
    }
}
