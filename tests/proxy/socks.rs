//! SOCKS version 5 on the proxy's port: by name only, its messages read strictly, its answers those of RFC 1928.

use crate::rig::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const GREETING: &[u8] = &[5, 1, 0];

fn by_name(host: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, host.len() as u8], host, &port.to_be_bytes()].concat()
}

/// The reply's code, after a greeting that is taken.
fn reply(world: &World, request: &[u8]) -> Option<u8> {
    let mut stream = world.connect();
    stream.write_all(&[GREETING, request].concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.get(..2), Some([5, 0].as_slice()), "{answer:?}");
    match answer[2..] {
        [] => None,
        [5, code, 0, 1, 0, 0, 0, 0, 0, 0] => Some(code),
        _ => panic!("{answer:?}"),
    }
}

fn exchange(stream: &mut TcpStream, sent: &[u8], expected: &[u8]) {
    stream.write_all(sent).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, expected);
}

#[test]
fn a_name_is_connected_byte_by_byte_or_at_once_and_credentials_mean_nothing() {
    let origin = Origin::echo();
    let world = world(&[format!("allowed.test:{}", origin.port)], |_, _, _| addrs(&["127.0.0.1"]));
    let request = by_name(b"Allowed.Test.", origin.port);
    let succeeded = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

    // All that the client has to say, and the tunnel's first bytes, in one piece.
    let mut stream = world.connect();
    exchange(
        &mut stream,
        &[GREETING, &request, b"early"].concat(),
        &[&[5, 0], succeeded.as_slice(), b"early"].concat(),
    );

    for (methods, taken) in [(vec![0], 0), (vec![2], 2), (vec![1, 2], 2), (vec![2, 0], 0), ((0..=254).collect(), 0)] {
        let mut stream = world.connect();
        let greeting = [&[5, methods.len() as u8], methods.as_slice()].concat();
        exchange(&mut stream, &greeting, &[5, taken]);
        if taken == 2 {
            exchange(&mut stream, b"\x01\x04user\x06secret", &[1, 0]);
        }
        for byte in &request[..request.len() - 1] {
            stream.write_all(&[*byte]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        exchange(&mut stream, &request[request.len() - 1..], &succeeded);
        exchange(&mut stream, b"hello", b"hello");
    }
    assert_eq!(origin.seen().len(), 6);
    assert!(world.records.denials().is_empty());
}

#[test]
fn every_refusal_has_its_reply_and_its_record_and_asks_no_resolver() {
    let origin = Origin::echo();
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}"), format!("127.0.0.1:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    let literal = |kind: u8, addr: &[u8]| [&[5, 1, 0, kind], addr, &port.to_be_bytes()].concat();
    let six = [0x2a, 0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0x44];
    let long = [b'a'; 255];
    let rows: [(Vec<u8>, u8, &str, &str); 14] = [
        (by_name(b"evil.test", port), 2, "default-deny", "not_allowed"),
        (by_name(b"allowed.test", port - 1), 2, "port", "port_not_allowed"),
        // What an entry admits as a literal too: by its name alone.
        (literal(1, &[127, 0, 0, 1]), 2, "socks-address", "address_for_name"),
        (literal(4, &six), 2, "socks-address", "address_for_name"),
        ([&[5, 2, 0, 3, 4], b"a.te".as_slice(), &[0, 80]].concat(), 7, "socks-command", "command_not_served"),
        ([&[5, 3, 0, 3, 4], b"a.te".as_slice(), &[0, 80]].concat(), 7, "socks-command", "command_not_served"),
        ([&[5, 9, 0, 3, 4], b"a.te".as_slice(), &[0, 80]].concat(), 7, "malformed", "socks_command"),
        ([&[5, 1, 0, 2, 4], b"a.te".as_slice(), &[0, 80]].concat(), 8, "malformed", "socks_address_type"),
        ([&[5, 1, 1, 3, 4], b"a.te".as_slice(), &[0, 80]].concat(), 1, "malformed", "socks_reserved"),
        ([&[4, 1, 0, 3, 4], b"a.te".as_slice(), &[0, 80]].concat(), 1, "malformed", "socks_version"),
        (by_name(b"allowed.test", 0), 1, "malformed", "bad_port"),
        (by_name(b"evil.test\0.allowed.test", port), 1, "malformed", "control_byte"),
        (by_name(b"allowed.test:443", port), 1, "malformed", "bad_port"),
        (by_name(&long, port), 1, "malformed", "label_too_long"),
    ];
    for (request, code, rule, reason) in &rows {
        assert_eq!(reply(&world, request), Some(*code), "{reason} {request:?}");
        let denials = world.records.denials();
        let denial = denials.last().expect("a record");
        assert_eq!((denial.rule.as_str(), denial.reason.as_str()), (*rule, *reason), "{request:?}");
        assert_eq!((denial.operation.as_str(), denial.http_status), ("SOCKS5", None));
    }
    assert_eq!(world.records.denials().len(), rows.len());
    assert!(world.resolver.questions().is_empty(), "{:?}", world.resolver.questions());
    assert!(origin.seen().is_empty());
    // What the literal means is admitted where a name may stand: the same judgement as CONNECT's.
    assert_eq!(reply(&world, &by_name(b"127.0.0.1", port)), Some(0));
    assert_eq!(reply(&world, &by_name(b"allowed.test", port)), Some(0));
}

#[test]
fn a_greeting_without_a_method_that_is_served_is_refused() {
    let world = world(&[], |_, _, _| empty());
    for greeting in [vec![5, 0], vec![5, 2, 1, 3]] {
        let mut stream = world.connect();
        stream.write_all(&greeting).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, [5, 0xff]);
    }
    let rules = world.records.rules();
    assert_eq!(rules, vec![("malformed".to_owned(), "socks_method".to_owned()); 2]);
}

#[test]
fn failures_outside_the_policy_have_replies_of_their_own() {
    // Bound and not listening: a connect is refused.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let world = world(&[format!("*.allowed.test:{closed}")], |name, _, _| match name {
        "dead.allowed.test" => addrs(&["127.0.0.1"]),
        _ => empty(),
    });
    assert_eq!(reply(&world, &by_name(b"none.allowed.test", closed)), Some(4));
    assert_eq!(reply(&world, &by_name(b"dead.allowed.test", closed)), Some(4));
    let operations: Vec<String> = world.records.failures().into_iter().map(|failure| failure.operation).collect();
    assert_eq!(operations, ["resolve", "connect"]);
    assert!(world.records.denials().is_empty());
}

#[test]
fn a_request_that_does_not_end_is_counted_and_one_that_is_given_up_is_not() {
    let mut limits = limits();
    limits.head = Duration::from_millis(300);
    let world = world_with(&[], limits, |_, _, _| empty());
    let mut slow: Vec<TcpStream> = (0..20).map(|_| world.connect()).collect();
    for (index, stream) in slow.iter_mut().enumerate() {
        stream.write_all(&[GREETING, &by_name(b"evil.test", 443)[..index % 5]].concat()).unwrap();
    }
    assert_eq!(reply(&world, &[5, 1]), None);
    world.records.wait(|denials| denials.iter().map(|denial| denial.count).sum::<u64>() >= 20);
    let rules = world.records.rules();
    assert!(rules.iter().all(|(rule, _)| rule == "head-deadline"), "{rules:?}");
    assert_eq!(world.records.denials().iter().map(|denial| denial.count).sum::<u64>(), 20);
}
