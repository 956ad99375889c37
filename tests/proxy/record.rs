//! The record comes before the answer, and the supervisor's end is the proxy's end.

use crate::rig::*;
use ringfence::ledger::record::Mechanism;
use ringfence::proxy::channel::{self, Report, Reported};
use ringfence::proxy::record::Connection;
use ringfence::proxy::{ProxyError, Unrecorded, run};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

#[test]
fn nothing_is_answered_before_its_record_is_safe() {
    let origin = Origin::plain();
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    for request in [
        "CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "nonsense\r\n",
    ] {
        world.records.hold(true);
        let before = world.records.denials().len();
        let mut stream = world.connect();
        stream.write_all(request.as_bytes()).unwrap();
        world.records.wait(|denials| denials.len() == before + 1);
        // A whole exchange on another connection: the proxy has had its turn.
        assert_eq!(status(&world.get(&format!("http://allowed.test:{port}/"))), 200);
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{request}");
        stream.set_nonblocking(false).unwrap();
        world.records.hold(false);
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);
    }
}

#[test]
fn what_cannot_be_recorded_is_not_answered_and_ends_all_egress() {
    let origin = Origin::echo();
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    let mut tunnel = world.connect();
    write!(tunnel, "CONNECT allowed.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 39];
    tunnel.read_exact(&mut answer).unwrap();

    world.records.fail();
    let mut refused = world.connect();
    refused.write_all(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut got = Vec::new();
    refused.read_to_end(&mut got).ok();
    assert!(got.is_empty(), "{:?}", String::from_utf8_lossy(&got));
    assert!(matches!(world.ended.join().unwrap(), Err(ProxyError::Unrecorded(Unrecorded::Closed))));
    // The open tunnel has gone with it, and so has the listener.
    assert!(!matches!(tunnel.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(world.proxy).is_err());
}

/// The real channel, the test in the supervisor's place.
#[test]
fn the_supervisor_gets_each_denial_once_and_its_end_ends_the_proxy() {
    let (recorder, mut receiver) = channel::pair().unwrap();
    let resolver = Resolver::start(|_, _, _| addrs(&["127.0.0.1"]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let spec = spec(&["missing.test".to_owned()], &resolver, limits());
    let ended = std::thread::spawn(move || run(listener, spec, recorder));

    let mut clients = Vec::new();
    for turn in 0..20 {
        let mut client = TcpStream::connect(proxy).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(client, "CONNECT evil{turn}.test:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        clients.push(client);
    }
    let mut seen = Vec::new();
    while seen.len() < clients.len() {
        let mut waiting = [nix::poll::PollFd::new(receiver.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut waiting, 20_000_u16).unwrap(), 1);
        let received = receiver.drain().unwrap();
        assert_eq!((received.rejected, received.closed), (0, false));
        seen.extend(received.reports);
    }
    // All are under way at once; they are acknowledged in another order than they came in.
    for reported in seen.iter().rev() {
        receiver.acknowledge(reported.id).unwrap();
    }
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), 403);
    }
    let of_client =
        |client: &TcpStream| Some(Connection { client: client.local_addr().unwrap(), proxy, datagram: false });
    let mut expected: Vec<_> =
        clients.iter().enumerate().map(|(turn, client)| (format!("evil{turn}.test"), of_client(client))).collect();
    let mut hosts: Vec<_> = seen
        .into_iter()
        .map(|reported| match reported.report {
            Report::Denial(d) if d.mechanism == Mechanism::Proxy => (d.object.host.unwrap(), reported.on),
            other => panic!("{other:?}"),
        })
        .collect();
    hosts.sort_by(|one, other| one.0.cmp(&other.0));
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(hosts, expected);

    drop(receiver);
    assert!(matches!(ended.join().unwrap(), Err(ProxyError::Unrecorded(Unrecorded::Closed))));
    assert!(TcpStream::connect(proxy).is_err());
}

/// What is folded for 100 ms is not lost with a proxy that is ended before.
#[test]
fn a_proxy_that_is_asked_to_end_reports_what_it_has_folded_and_ends_well() {
    let (recorder, mut receiver) = channel::pair().unwrap();
    let resolver = Resolver::start(|_, _, _| empty());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let mut limits = limits();
    limits.connections = 1;
    let spec = spec(&[], &resolver, limits);
    let ended = std::thread::spawn(move || run(listener, spec, recorder));

    let _held = TcpStream::connect(proxy).unwrap();
    // One after the other, each closed by the proxy: all are counted, and the first no 100 ms ago.
    for _ in 0..7 {
        let mut over = TcpStream::connect(proxy).unwrap();
        over.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(!matches!(over.read(&mut [0]), Ok(1..)));
    }
    receiver.ask_to_end().unwrap();
    let mut counted = 0;
    loop {
        let mut waiting = [nix::poll::PollFd::new(receiver.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut waiting, 20_000_u16).unwrap(), 1);
        let received = receiver.drain().unwrap();
        for Reported { id, report, .. } in received.reports {
            match report {
                Report::Denial(denial) if denial.rule == "connection-limit" => counted += denial.count,
                other => panic!("{other:?}"),
            }
            receiver.acknowledge(id).unwrap();
        }
        if received.closed {
            break;
        }
    }
    assert_eq!(counted, 7);
    assert!(matches!(ended.join().unwrap(), Ok(())));
}

/// While the ledger can't be written, what is refused is refused, and what is admitted waits.
#[test]
fn nothing_new_is_admitted_while_it_is_held() {
    let origin = Origin::plain();
    let (recorder, mut receiver) = channel::pair().unwrap();
    let resolver = Resolver::start(|_, _, _| addrs(&["127.0.0.1"]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let spec = spec(&[format!("allowed.test:{}", origin.port)], &resolver, limits());
    let _ended = std::thread::spawn(move || run(listener, spec, recorder));

    receiver.hold(true).unwrap();
    let ask = |url: String| {
        let mut client = TcpStream::connect(proxy).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(client, "GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let mut admitted = ask(format!("http://allowed.test:{}/", origin.port));
    // A refusal that comes later is answered first.
    let mut refused = ask("http://evil.test/".to_owned());
    let mut waiting = [nix::poll::PollFd::new(receiver.as_fd(), nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut waiting, 20_000_u16).unwrap(), 1);
    let reported = receiver.drain().unwrap().reports.pop().unwrap();
    receiver.acknowledge(reported.id).unwrap();
    let mut answer = String::new();
    refused.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 403);
    admitted.set_nonblocking(true).unwrap();
    assert_eq!(admitted.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(origin.seen().is_empty());

    receiver.hold(false).unwrap();
    admitted.set_nonblocking(false).unwrap();
    answer.clear();
    admitted.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 200);
}

#[test]
fn only_a_loopback_listener_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let resolver = Resolver::start(|_, _, _| empty());
    let ended = run(listener, spec(&[], &resolver, limits()), Records::default());
    assert!(matches!(ended, Err(ProxyError::NotLoopback(_))));
}
