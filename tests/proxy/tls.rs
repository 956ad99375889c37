//! TLS in a tunnel: deadlines, ends and answers around the look at its first messages. Which names pass is shown in
//! `tests/egress_tunnels.rs`.

use crate::rig::*;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use world::hello::{client_hello, record, records};

fn hello(name: &[u8]) -> Vec<u8> {
    records(&client_hello(&[name]), 50)
}

/// A server that logs all that it gets, and the proxy in front of it.
fn recording(limits: ringfence::proxy::Limits) -> (Origin, World) {
    let origin = Origin::start("127.0.0.1:0", |stream, log| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        log(&format!("{} bytes", all.len()));
    });
    let world = world_with(&[format!("allowed.test:{}", origin.port)], limits, |_, _, _| addrs(&["127.0.0.1"]));
    (origin, world)
}

fn tunnel(world: &World, port: u16) -> TcpStream {
    let mut stream = world.connect();
    write!(stream, "CONNECT allowed.test:{port} HTTP/1.1\r\nHost: allowed.test:{port}\r\n\r\n").unwrap();
    assert!(crate::origin::read_head(&mut stream).starts_with(b"HTTP/1.1 200 "));
    stream
}

fn seen(origin: &Origin, count: usize) -> Vec<String> {
    let deadline = std::time::Instant::now() + PATIENCE;
    while origin.seen().len() < count && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    origin.seen()
}

#[test]
fn a_hello_that_does_not_end_has_an_absolute_deadline_and_is_recorded() {
    let mut limits = limits();
    limits.hello = Duration::from_millis(300);
    let (origin, world) = recording(limits);
    let mut stream = tunnel(&world, origin.port);
    // A tunnel that says nothing is none of it.
    let mut silent = tunnel(&world, origin.port);
    let mut refused = false;
    for byte in hello(b"allowed.test").iter().cycle().take(400) {
        refused = stream.write_all(&[*byte]).is_err();
        if refused {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(refused);
    let [denial] = &world.records.denials()[..] else { panic!("{:?}", world.records.denials()) };
    assert_eq!((denial.rule.as_str(), denial.reason.as_str()), ("hello-deadline", "incomplete_client_hello"));
    assert_eq!((denial.operation.as_str(), denial.object.port), ("TLS", Some(origin.port)));
    silent.write_all(&hello(b"allowed.test")).unwrap();
    silent.shutdown(Shutdown::Write).unwrap();
    let whole = format!("{} bytes", hello(b"allowed.test").len());
    let mut all = seen(&origin, 2);
    all.sort();
    assert_eq!(all, ["0 bytes".to_owned(), whole]);
}

#[test]
fn a_client_that_ends_within_its_hello_sends_nothing_on() {
    let (origin, world) = recording(limits());
    let sent = hello(b"allowed.test");
    for length in [1, 4, 5, 6, 54, sent.len() - 1] {
        let mut stream = tunnel(&world, origin.port);
        stream.write_all(&sent[..length]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(seen(&origin, 6), vec!["0 bytes"; 6]);
    assert!(world.records.denials().is_empty());
}

#[test]
fn the_record_stands_before_the_alert() {
    let (origin, world) = recording(limits());
    world.records.hold(true);
    let mut stream = tunnel(&world, origin.port);
    stream.write_all(&hello(b"evil.test")).unwrap();
    world.records.wait(|denials| denials.len() == 1);
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "no answer yet");
    world.records.hold(false);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 112]);
    assert_eq!(seen(&origin, 1), ["0 bytes"]);
}

#[test]
fn bytes_pass_both_ways_once_the_handshake_is_over() {
    let server_hello: Vec<u8> = [record(22, &[2; 90]), record(20, &[1]), record(23, &[8; 50])].concat();
    let answer = server_hello.clone();
    let origin = Origin::start("127.0.0.1:0", move |stream, log| {
        let mut first = vec![0; hello(b"allowed.test").len()];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(&answer).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        log(&all.len().to_string());
    });
    let world = world_with(&[format!("allowed.test:{}", origin.port)], limits(), |_, _, _| addrs(&["127.0.0.1"]));
    let mut stream = tunnel(&world, origin.port);
    stream.write_all(&hello(b"allowed.test")).unwrap();
    let mut first = vec![0; server_hello.len()];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, server_hello);
    let data: Vec<u8> = (0..400).flat_map(|piece| record(23, &[piece as u8; 16_000])).collect();
    stream.write_all(&data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), data.len());
    assert!(back == data);
    assert_eq!(seen(&origin, 1), [data.len().to_string()]);
}

#[test]
fn the_hello_that_a_server_asks_for_is_for_the_tunnels_host_too() {
    let random = Sha256::digest(b"HelloRetryRequest");
    let message = [&[2, 0, 0, 44, 3, 3], random.as_slice(), &[0, 0x13, 1, 0, 0, 4, 0, 44, 0, 0]].concat();
    let retry = record(22, &message);
    let answer = retry.clone();
    let origin = Origin::start("127.0.0.1:0", move |stream, log| {
        let mut first = vec![0; hello(b"allowed.test").len()];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(&answer).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        log(&rest.len().to_string());
    });
    let world = world_with(&[format!("allowed.test:{}", origin.port)], limits(), |_, _, _| addrs(&["127.0.0.1"]));
    // OpenSSL looks at the version of neither.
    let second = |name: &[u8]| {
        let mut message = client_hello(&[name]);
        message[4..6].copy_from_slice(&[4, 4]);
        [record(20, &[1]), records(&message, 90)].concat()
    };
    for (count, name) in [b"allowed.test".as_slice(), b"evil.test"].into_iter().enumerate() {
        let mut stream = tunnel(&world, origin.port);
        stream.write_all(&hello(b"allowed.test")).unwrap();
        let mut got = vec![0; retry.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, retry);
        stream.write_all(&second(name)).unwrap();
        // The reset may be there already.
        stream.shutdown(Shutdown::Write).ok();
        let ended = stream.read(&mut [0]);
        assert_eq!(ended.is_err(), name == b"evil.test", "{ended:?}");
        seen(&origin, count + 1);
    }
    assert_eq!(origin.seen(), [second(b"allowed.test").len().to_string(), "0".to_owned()]);
    let [denial] = &world.records.denials()[..] else { panic!("{:?}", world.records.denials()) };
    assert_eq!((denial.rule.as_str(), denial.reason.as_str()), ("sni", "sni_mismatch"));
}
