//! Slow and many clients (case N11).

use crate::rig::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

fn count(world: &World, rule: &str) -> u64 {
    let denials = world.records.denials();
    denials.iter().filter(|d| d.rule == rule).map(|d| d.count).sum()
}

/// Bytes that keep coming do not move the deadline.
#[test]
fn n11_a_slow_head_has_an_absolute_deadline_and_is_counted() {
    let mut limits = limits();
    limits.head = Duration::from_millis(500);
    let world = world_with(&[], limits, |_, _, _| empty());
    let start = Instant::now();
    let mut clients: Vec<TcpStream> = (0..50).map(|_| world.connect()).collect();
    let silent = world.connect();
    let mut sent = 0;
    while sent < 50 {
        sent = 0;
        for client in &mut clients {
            sent += usize::from(client.write_all(b"G").is_err());
        }
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() >= Duration::from_millis(400));
    // One that never sent a byte is closed, and no refusal of anything.
    assert_eq!((&silent).read(&mut [0]).unwrap(), 0);
    world.records.wait(|denials| denials.iter().map(|d| d.count).sum::<u64>() >= 50);
    assert_eq!(count(&world, "head-deadline"), 50);
}

/// The wait for the first byte counts: who keeps it back gains nothing.
#[test]
fn n11_a_first_byte_that_comes_late_has_what_is_left() {
    let mut limits = limits();
    limits.head = Duration::from_secs(2);
    let world = world_with(&[], limits, |_, _, _| empty());
    for first in [b"G", b"\x05"] {
        let start = Instant::now();
        let mut client = world.connect();
        std::thread::sleep(Duration::from_millis(1700));
        client.write_all(first).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert!(start.elapsed() < Duration::from_millis(3500), "{:?}", start.elapsed());
    }
    world.records.wait(|denials| denials.iter().map(|d| d.count).sum::<u64>() >= 2);
    assert_eq!(count(&world, "head-deadline"), 2);
}

#[test]
fn n11_a_later_head_has_its_time_from_its_own_first_byte() {
    let mut limits = limits();
    (limits.keep_alive, limits.head) = (Duration::from_millis(1500), Duration::from_millis(1400));
    let world = world_with(&[], limits, |_, _, _| empty());
    let mut client = world.connect();
    let request = b"GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request).unwrap();
    assert!(crate::origin::read_head(&mut client).starts_with(b"HTTP/1.1 403 "));
    std::thread::sleep(Duration::from_millis(1200));
    client.write_all(&request[..9]).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    client.write_all(&request[9..]).unwrap();
    assert!(crate::origin::read_head(&mut client).starts_with(b"HTTP/1.1 403 "));
    assert_eq!(world.records.denials().len(), 2);
}

#[test]
fn n11_a_kept_connection_may_be_silent_only_so_long() {
    let mut limits = limits();
    limits.keep_alive = Duration::from_millis(200);
    let world = world_with(&[], limits, |_, _, _| empty());
    let mut client = world.connect();
    client.write_all(b"GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn n11_over_the_cap_connections_are_closed_and_counted_and_service_returns() {
    let origin = Origin::plain();
    let port = origin.port;
    let mut limits = limits();
    limits.connections = 10;
    limits.head = PATIENCE;
    let entries = [format!("allowed.test:{port}")];
    let world = world_with(&entries, limits, |_, _, _| addrs(&["127.0.0.1"]));
    let held: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut client = world.connect();
            client.write_all(b"GET ").unwrap();
            client
        })
        .collect();
    for _ in 0..25 {
        let mut client = world.connect();
        assert!(!matches!(client.read(&mut [0]), Ok(1..)));
    }
    world.records.wait(|denials| denials.iter().map(|d| d.count).sum::<u64>() >= 25);
    assert_eq!(count(&world, "connection-limit"), 25);
    for client in &held {
        client.shutdown(Shutdown::Both).unwrap();
    }
    drop(held);
    let deadline = Instant::now() + PATIENCE;
    let url = format!("http://allowed.test:{port}/");
    loop {
        let mut client = world.connect();
        write!(client, "GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).ok();
        if status(&String::from_utf8_lossy(&answer)) == 200 {
            break;
        }
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn n11_connect_and_reset_in_a_loop_does_no_harm() {
    let origin = Origin::plain();
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    for _ in 0..1000 {
        let client = world.connect();
        reset_at_close(&client);
    }
    assert_eq!(status(&world.get(&format!("http://allowed.test:{port}/"))), 200);
    assert!(world.records.denials().is_empty());
}
