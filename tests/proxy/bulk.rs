//! Bulk, which passes through pipes of the kernel's: both ways at once, with every kind of end, and no pipe left when it
//! is over.

use crate::rig::*;
use crate::tunnels::{one, tunnel};
use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const BULK: usize = 8_000_000;

/// Pipes of this process, and with it of the proxy: each has two ends, and both have its number.
fn pipes() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let mut ends: Vec<_> = targets.filter(|target| target.to_string_lossy().starts_with("pipe:")).collect();
    ends.sort();
    ends.chunk_by(|a, b| a == b).filter(|ends| ends.len() == 2).count()
}

fn wait_for_pipes(count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while pipes() != count {
        assert!(Instant::now() < deadline, "{} pipes instead of {count}", pipes());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A step of a sequence without pattern (xorshift).
fn step(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

/// Sends `length` bytes that `seed` tells, in pieces of all sizes with pauses; gives their digest.
fn send(stream: &mut TcpStream, mut seed: u64, length: usize) -> u64 {
    let (mut digest, mut left) = (DefaultHasher::new(), length);
    while left > 0 {
        let size = [1, 700, 32_768, 65_537, 1_000_000][step(&mut seed) % 5].min(left);
        let piece: Vec<u8> = (0..size).map(|at| (seed as usize ^ at.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect();
        stream.write_all(&piece).unwrap();
        piece.iter().for_each(|byte| digest.write_u8(*byte));
        if step(&mut seed).is_multiple_of(4) {
            std::thread::sleep(Duration::from_millis(2));
        }
        left -= size;
    }
    digest.finish()
}

/// Takes everything up to the end, in pieces of all sizes with pauses; gives its length and its digest.
fn take(stream: &mut TcpStream, mut seed: u64) -> (usize, u64) {
    let (mut digest, mut taken, mut piece) = (DefaultHasher::new(), 0, vec![0; 200_000]);
    loop {
        let size = [3, 4096, 65_536, 200_000][step(&mut seed) % 4];
        let count = stream.read(&mut piece[..size]).unwrap();
        if count == 0 {
            return (taken, digest.finish());
        }
        piece[..count].iter().for_each(|byte| digest.write_u8(*byte));
        taken += count;
        if step(&mut seed).is_multiple_of(32) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn both_ways_at_once_every_byte_arrives_in_its_place() {
    for (length, back) in [(0, 1), (65_535, 65_536), (65_537, 0), (BULK, BULK + 1)] {
        let origin = Origin::start("127.0.0.1:0", move |stream, log| {
            let mut sender = stream.try_clone().unwrap();
            let sending = std::thread::spawn(move || {
                let digest = send(&mut sender, 5, back);
                sender.shutdown(Shutdown::Write).unwrap();
                digest
            });
            let (count, digest) = take(stream, 9);
            log(&format!("took {count} {digest:x}, sent {:x}", sending.join().unwrap()));
        });
        let world = one(&origin, limits());
        let mut stream = tunnel(&world, origin.port);
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let digest = send(&mut sender, 3, length);
            sender.shutdown(Shutdown::Write).unwrap();
            digest
        });
        let (count, digest) = take(&mut stream, 7);
        let sent = sending.join().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while origin.seen().is_empty() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(count, back);
        assert_eq!(origin.seen(), [format!("took {length} {sent:x}, sent {digest:x}")]);
    }
}

#[test]
fn an_idle_tunnel_holds_no_pipe_whatever_it_has_passed() {
    let origin = Origin::echo();
    let world = one(&origin, limits());
    let before = pipes();
    let mut tunnels: Vec<TcpStream> = (0..3).map(|_| tunnel(&world, origin.port)).collect();
    for stream in &mut tunnels {
        let mut sender = stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&vec![1; BULK]).unwrap());
        let mut got = vec![0; BULK];
        stream.read_exact(&mut got[..BULK / 2]).unwrap();
        assert!(pipes() > before, "bulk passes through pipes");
        stream.read_exact(&mut got[BULK / 2..]).unwrap();
        sending.join().unwrap();
    }
    wait_for_pipes(before);
    for stream in &mut tunnels {
        stream.write_all(b"still there").unwrap();
        stream.read_exact(&mut [0; 11]).unwrap();
    }
    assert_eq!(pipes(), before);
}

#[test]
fn pipes_have_a_cap_and_who_has_none_is_served_all_the_same() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| while stream.write_all(&[7; 65_536]).is_ok() {});
    let world = one(&origin, ringfence::proxy::Limits { pipes: 2, ..limits() });
    let before = pipes();
    let mut tunnels: Vec<TcpStream> = (0..6).map(|_| tunnel(&world, origin.port)).collect();
    let mut piece = vec![0; 1_000_000];
    let mut most = 0;
    for _ in 0..5 {
        for stream in &mut tunnels {
            stream.read_exact(&mut piece).unwrap();
            most = most.max(pipes() - before);
        }
    }
    assert_eq!(most, 2);
    drop(tunnels);
    wait_for_pipes(before);
}

#[test]
fn a_response_of_known_length_is_passed_to_the_byte_and_the_connection_kept() {
    let origin = Origin::start("127.0.0.1:0", |stream, log| {
        let head = String::from_utf8(read_head(stream)).unwrap();
        log(head.lines().next().unwrap());
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BULK}\r\n\r\n").unwrap();
        // What comes behind the body is nobody's.
        stream.write_all(&vec![7; BULK + 100_000]).ok();
    });
    let world = one(&origin, limits());
    let mut client = world.connect();
    for at in 0..3 {
        let request = format!("GET http://allowed.test:{}/{at} HTTP/1.1\r\nHost: x\r\n\r\n", origin.port);
        client.write_all(request.as_bytes()).unwrap();
        assert!(read_head(&mut client).starts_with(b"HTTP/1.1 200 OK\r\n"));
        let mut body = vec![0; BULK];
        client.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|byte| *byte == 7));
    }
    assert_eq!(origin.seen(), ["GET /0 HTTP/1.1", "GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]);
}

#[test]
fn a_response_that_ends_early_is_cut_off_by_a_reset() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| {
        read_head(stream);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BULK + 1).unwrap();
        stream.write_all(&vec![7; BULK]).unwrap();
    });
    let world = one(&origin, limits());
    let mut client = world.connect();
    let request = format!("GET http://allowed.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.port);
    client.write_all(request.as_bytes()).unwrap();
    let ended = client.read_to_end(&mut Vec::new());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_reset_within_bulk_is_passed_on_as_a_reset() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| {
        stream.write_all(&vec![7; BULK]).unwrap();
        reset_at_close(stream);
    });
    let world = one(&origin, limits());
    let mut stream = tunnel(&world, origin.port);
    let ended = stream.read_to_end(&mut Vec::new());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn bulk_that_nobody_takes_is_idle_and_one_byte_in_time_is_not() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| while stream.write_all(&[7; 65_536]).is_ok() {});
    let before = pipes();
    let world = one(&origin, ringfence::proxy::Limits { idle: Duration::from_secs(2), ..limits() });
    let mut stream = tunnel(&world, origin.port);
    let mut piece = vec![0; 1_000_000];
    let start = Instant::now();
    // Whoever takes a little now and then is waited for.
    while start.elapsed() < Duration::from_secs(5) {
        stream.read_exact(&mut piece).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(pipes(), before + 1);
    wait_for_pipes(before);
    let ended = stream.read_to_end(&mut Vec::new());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
