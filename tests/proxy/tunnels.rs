//! CONNECT: bytes both ways, ends and resets passed on.

use crate::rig::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

pub fn tunnel(world: &World, port: u16) -> TcpStream {
    let mut stream = world.connect();
    write!(stream, "CONNECT allowed.test:{port} HTTP/1.1\r\nHost: allowed.test:{port}\r\n\r\n").unwrap();
    let mut answer = [0; CONNECTED.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, CONNECTED);
    stream
}

pub fn one(origin: &Origin, limits: ringfence::proxy::Limits) -> World {
    world_with(&[format!("allowed.test:{}", origin.port)], limits, |_, _, _| addrs(&["127.0.0.1"]))
}

#[test]
fn bytes_pass_both_ways_and_each_end_is_passed_on_alone() {
    let origin = Origin::start("127.0.0.1:0", |stream, log| {
        stream.write_all(b"first").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        log(&all.len().to_string());
    });
    let world = one(&origin, limits());
    let mut stream = tunnel(&world, origin.port);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"first");
    // The server's direction is over; ours goes on.
    stream.write_all(&vec![7; 2_000_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while origin.seen().is_empty() && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(origin.seen(), ["2000000"]);
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    let origin = Origin::echo();
    let world = one(&origin, limits());
    let mut stream = tunnel(&world, origin.port);
    let mut sender = stream.try_clone().unwrap();
    let size = 20_000_000;
    let sending = std::thread::spawn(move || sender.write_all(&vec![1; size]).unwrap());
    let mut piece = vec![0; 65536];
    let mut got = 0;
    while got < size {
        got += stream.read(&mut piece).unwrap();
    }
    sending.join().unwrap();
    assert_eq!(got, size);
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        reset_at_close(stream);
    });
    let world = one(&origin, limits());
    let mut stream = tunnel(&world, origin.port);
    stream.write_all(b"x").unwrap();
    let ended = stream.read(&mut [0]);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_idle_tunnel_is_reset() {
    let mut limits = limits();
    limits.idle = Duration::from_millis(200);
    let origin = Origin::echo();
    let world = one(&origin, limits);
    let mut stream = tunnel(&world, origin.port);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let ended = stream.read(&mut [0]);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_refused_connect_is_bare_and_closed() {
    let world = world(&[], |_, _, _| addrs(&["127.0.0.1"]));
    let mut stream = world.connect();
    stream.write_all(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let denial = &world.records.denials()[0];
    assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("CONNECT", "default-deny"));
    assert_eq!(denial.object.host.as_deref(), Some("evil.test"));
    assert_eq!(denial.object.port, Some(443));
}
