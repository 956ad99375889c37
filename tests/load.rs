//! Everything at once (case N11): ten thousand idle tunnels, or as many as descriptors allow, two thousand heads that never end, connections that are reset
//! as soon as they are made; and requests all the while, which are served, refused and counted as ever.

mod common;
mod living;

use common::Fence;
use living::Run;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use world::address::GATEWAY4;

/// As many as are wanted.
const TUNNELS: u64 = 10_000;
/// Connections that may be under way beside the tunnels and the slow heads: of the loop, and the requests.
const OTHERS: u64 = 500;
const SLOW: u64 = 2_000;
const REFUSED: u64 = 500;
const RESETS: u64 = 5_000;
/// The most memory that the proxy may have had (VmHWM), in MiB.
const MEMORY: u64 = 192;
/// The longest that an allowed request may have taken, in milliseconds.
const SERVED_WITHIN: u64 = 5_000;

/// As many tunnels as descriptors allow: each takes two of the proxy's, so do other connections at most, and where the hard
/// limit is low and root may not raise it there are fewer than are wanted.
fn tunnels(hard: u64) -> u64 {
    TUNNELS.min((hard - 256) / 2 - SLOW - OTHERS)
}

/// Sends back what it gets, on any number of connections, in one thread that ends with the process.
fn echo(listener: TcpListener) {
    listener.set_nonblocking(true).expect("fcntl");
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll_create1");
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).expect("epoll_ctl");
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let mut events = vec![EpollEvent::empty(); 1024];
    let mut piece = [0; 4096];
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        for key in events[..count].iter().map(EpollEvent::data) {
            if key == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    let key = stream.as_raw_fd() as u64;
                    epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, key)).expect("epoll_ctl");
                    streams.insert(key, stream);
                }
            } else if let Some(mut stream) = streams.get(&key) {
                match stream.read(&mut piece) {
                    Ok(count @ 1..) => stream.write_all(&piece[..count]).expect("a short answer fits"),
                    _ => drop(streams.remove(&key)),
                }
            }
        }
    }
}

/// A field of /proc/PID/status in KiB.
fn memory(pid: i32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the proxy lives");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
}

/// What the proxy has run for, in clock ticks.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the proxy lives");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn idle_tunnels_two_thousand_slow_heads_and_resets_at_once() {
    // Each tunnel is a connection of this process too.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
    let tunnels = tunnels(hard);
    println!("{tunnels} tunnels, by a hard limit of {hard} descriptors");
    assert!(tunnels >= TUNNELS / 2, "the hard limit on descriptors is {hard}; at least 15,256 are needed");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("setrlimit");
    let fence = Fence::new();
    fence.internet.resolver.host("load.example.org", &[GATEWAY4.into()]);
    let listener = fence.world.outside().run(|| TcpListener::bind((GATEWAY4, 8080))).expect("bind");
    std::thread::spawn(move || echo(listener));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/load.py");
    fence.world.install(&script, "/usr/local/lib/load.py");

    let flags = ["--policy", "nist-high", "--leftovers", "kill", "--allow-host", "load.example.org:8080"];
    let line = format!("exec /usr/bin/python3 /usr/local/lib/load.py {tunnels} {SLOW} {REFUSED} {RESETS}");
    let mut run = Run::start(&fence, &flags, &line);
    assert_eq!(run.line(), format!("tunnels={tunnels}"));
    let proxy = run.proxy();
    let idle = memory(proxy, "VmRSS:");
    // Tunnels that are idle take no time.
    let (before, begin) = (ticks(proxy), Instant::now());
    let mut said = HashMap::new();
    loop {
        let line = run.line();
        let Some((key, value)) = line.split_once('=') else { break };
        said.insert(key.to_owned(), value.parse::<u64>().expect("a number"));
    }
    let (took, spent) = (begin.elapsed(), ticks(proxy) - before);
    let most = memory(proxy, "VmHWM:");
    println!(
        "{said:?} in {took:?}: {spent} ticks; {} MiB with the tunnels alone, {} MiB at most",
        idle / 1024,
        most / 1024
    );
    assert_eq!(said["alive"], tunnels);
    assert_eq!((said["slow"], said["refused"]), (SLOW, REFUSED));
    assert!(said["longest"] < SERVED_WITHIN, "{said:?}");
    assert!(said["served"] >= REFUSED && said["resets"] >= RESETS, "{said:?}");
    assert!(most < MEMORY * 1024, "{most} KiB");

    // With the load gone, but for the tunnels, nothing goes round and round.
    let before = ticks(proxy);
    std::thread::sleep(Duration::from_secs(2));
    assert!(ticks(proxy) - before < 20, "of 200 ticks {}", ticks(proxy) - before);

    let ended = run.finish(&fence);
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    for denial in ended.denials() {
        *rules.entry(&denial.rule).or_default() += denial.count;
    }
    assert_eq!(rules, BTreeMap::from([("head-deadline", SLOW), ("default-deny", REFUSED)]), "{}", ended.said);
    assert!(ended.seal().complete, "{:?}", ended.seal());
}
