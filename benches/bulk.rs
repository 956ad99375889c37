//! What bulk costs the proxy: gigabytes over loopback through a tunnel and as a plain response, spliced through pipes and
//! copied, turn by turn. CPU seconds are those of the proxy's own thread.
//!
//! `make bench` runs it. `bulk [GIB] [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[path = "../tests/proxy/origin.rs"]
#[allow(dead_code, reason = "each user has its own part")]
mod origin;
#[path = "../tests/proxy/resolver.rs"]
#[allow(dead_code, reason = "each user has its own part")]
mod resolver;
#[path = "../tests/proxy/rig.rs"]
#[allow(dead_code, unused_imports, reason = "each user has its own part")]
mod rig;

use rig::*;
use ringfence::proxy::Limits;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// CPU time of the proxies' threads so far (proc_pid_schedstat: nanoseconds first).
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").map(|task| task.expect("a task").path());
    let proxies = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "proxy\n"));
    let nanoseconds = proxies.map(|task| {
        let text = std::fs::read_to_string(task.join("schedstat")).expect("schedstat");
        text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).expect("a number")
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn download(world: &World, connect: &str, request: &str, size: u64) -> (Duration, Duration) {
    let mut client = world.connect();
    if !connect.is_empty() {
        client.write_all(connect.as_bytes()).expect("the proxy takes it");
        assert!(read_head(&mut client).starts_with(b"HTTP/1.1 200 "));
    }
    let (start, before) = (Instant::now(), cpu());
    client.write_all(request.as_bytes()).expect("the proxy takes it");
    let mut piece = vec![0; 1 << 20];
    let mut got = 0;
    while got < size {
        match client.read(&mut piece).expect("the proxy gives") {
            0 => panic!("an end after {got} bytes"),
            count => got += count as u64,
        }
    }
    (start.elapsed(), cpu() - before)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (size, rounds) = (number(4) * GIB, number(3));
    let origin = Origin::start("127.0.0.1:0", move |stream, _| {
        read_head(stream);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").expect("the proxy takes it");
        let piece = vec![7; 1 << 20];
        for _ in 0..size >> 20 {
            if stream.write_all(&piece).is_err() {
                return;
            }
        }
    });
    let authority = format!("127.0.0.1:{}", origin.port);
    let worlds = [("spliced", Limits::default().pipes), ("copied", 0)].map(|(name, pipes)| {
        let limits = Limits { pipes, ..limits() };
        (name, world_with(std::slice::from_ref(&authority), limits, |_, _, _| empty()))
    });
    let get = format!("GET http://{authority}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let tunnel = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n");
    for _ in 0..rounds {
        for (way, connect) in [("tunnel", tunnel.as_str()), ("response", "")] {
            for (name, world) in &worlds {
                let (took, cpu) = download(world, connect, &get, size);
                let gib = size as f64 / GIB as f64;
                println!(
                    "{way:8} {name:7} {:5.2} GiB/s {:5.3} CPU s/GiB",
                    gib / took.as_secs_f64(),
                    cpu.as_secs_f64() / gib
                );
            }
        }
    }
}
