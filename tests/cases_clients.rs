//! Clients that wear the proxy out (case N11), with 256 descriptors for everything that ringfence starts: it stays alive
//! and quiet, counts what it refuses exactly, and serves again. And the proxy as its own destination, which it never is.

mod common;
mod living;

use common::{Ended, Fence};
use living::Run;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use world::address::{BOX4, BOX6, PUBLIC4};
use world::{Origin, origin};

/// How many connections a flood opens, in processes that have 256 descriptors as well.
const SOCKETS: u64 = 2000;
/// Clients that the proxy serves at once where it has 256 descriptors: two each, less the 32 that it keeps and both ends of 8 pipes.
const SERVED: u64 = (256 - 32 - 16) / 2;
/// How long the proxy's load is looked at.
const WATCHED: Duration = Duration::from_secs(10);
/// Most processor time in that while, over the supervisor and the proxy: a busy loop takes all ten seconds of one. An
/// unoptimised build takes a second for some thousand connections.
const CPU: Duration = Duration::from_secs(5);
/// Most that either of them grows by, in KiB.
const GROWTH: u64 = 16 << 10;

/// Ten processes with 200 connections each, one kind of flood. Prints `early=N` and `late=N`: the connections that were
/// closed at once, and those that were closed after they had been served for a while.
const FLOOD: &str = r#"
import os, select, socket, struct, sys, time
kind = sys.argv[1]
host, port = os.environ["http_proxy"].removeprefix("http://").rstrip("/").split(":")
def connect():
    s = socket.create_connection((host, int(port)), 60)
    s.setblocking(False)
    return s
def resets():
    end = time.monotonic() + 11
    while time.monotonic() < end:
        s = connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        time.sleep(0.01)
def held(slow):
    poll, open_ = select.poll(), {}
    def send(s):
        try:
            s.send(b"G")
        except OSError:
            pass
    for _ in range(200):
        s = connect()
        open_[s.fileno()] = (s, time.monotonic())
        poll.register(s, select.POLLIN)
        if slow:
            send(s)
    early = late = 0
    beat = time.monotonic() + 5
    while open_:
        assert time.monotonic() < beat + 30
        for fd, _ in poll.poll(200):
            s, since = open_[fd]
            try:
                assert s.recv(100) == b""
            except ConnectionResetError:
                pass
            if time.monotonic() - since < 5:
                early += 1
            else:
                late += 1
            poll.unregister(fd)
            del open_[fd]
            s.close()
        if slow and time.monotonic() > beat:
            beat += 5
            for s, _ in open_.values():
                send(s)
    return early, late
print("ready", flush=True)
sys.stdin.readline()
children = []
for _ in range(10):
    get, put = os.pipe()
    if os.fork() == 0:
        early, late = (resets(), 0) if kind == "resets" else held(kind == "slow")
        os.write(put, f"{early or 0} {late}".encode())
        os._exit(0)
    os.close(put)
    children.append(get)
counts = [os.read(get, 100).split() for get in children]
for _ in children:
    assert os.wait()[1] == 0
print(f"early={sum(int(early) for early, _ in counts)}")
print(f"late={sum(int(late) for _, late in counts)}")
"#;

/// Processor time that a process has used.
fn cpu(pid: i32) -> Duration {
    let fields = living::stat(pid).expect("it lives");
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).expect("sysconf").expect("a number");
    Duration::from_millis(ticks * 1000 / second as u64)
}

/// The most memory that a process had resident so far, in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

fn counted(ended: &Ended, rule: &str) -> u64 {
    ended.denials().iter().filter(|one| one.rule == rule).map(|one| one.count).sum()
}

/// Runs one kind of flood, watches ringfence meanwhile, and asks for an admitted name once it is over.
fn flood(kind: &str) -> (Fence, Ended) {
    let fence = Fence::new();
    fence.world.write("/tmp/flood.py", FLOOD, 0o644);
    let script = format!(
        "/usr/bin/python3 /tmp/flood.py {kind}; begin=$(date +%s%N)\n\
         curl -sS -m 20 -o /dev/null -w 'after=%{{http_code}}' https://pypi.org/; echo\n\
         echo took=$(( ($(date +%s%N) - begin) / 1000000 ))"
    );
    let (inner, ledger) = fence.command(&["--policy", "nist-high", "--leftovers", "kill"], &["bash", "-c", &script]);
    let mut command = fence.world.command("prlimit");
    command.arg("--nofile=256:256").arg(inner.get_program()).args(inner.get_args());
    let mut run = Run::of(&fence, command, ledger);
    assert_eq!(run.line(), "ready");
    let watched = [run.pid(), run.proxy()];
    let limit = std::fs::read_to_string(format!("/proc/{}/limits", watched[1])).expect("its limits");
    let files = limit.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["256", "256"], "{files}");
    let before = watched.map(|pid| (cpu(pid), peak(pid)));
    run.stdin.as_mut().expect("piped").write_all(b"\n").expect("the command reads");
    let since = Instant::now();
    std::thread::sleep(WATCHED);
    assert_eq!([run.pid(), run.proxy()], watched, "the same processes live after {:?}", since.elapsed());
    let used: Duration = watched.iter().zip(&before).map(|(pid, (cpu_before, _))| cpu(*pid) - *cpu_before).sum();
    // A process that has given back what its start needed may have had more then (VmHWM is told by an estimate).
    let more = |(pid, (_, kib)): (&i32, &(Duration, u64))| peak(*pid).saturating_sub(*kib);
    let grown: Vec<u64> = watched.iter().zip(&before).map(more).collect();
    eprintln!("{kind}: {used:?} of processor time in {WATCHED:?}, {grown:?} KiB more");
    assert!(used < CPU, "{used:?} in {WATCHED:?}");
    assert!(grown.iter().all(|kib| *kib < GROWTH), "{grown:?}");
    let ended = run.finish(&fence);
    assert_eq!(ended.value("after"), "200", "{ended}");
    let took: u64 = ended.value("took").parse().expect("milliseconds");
    assert!(took < 5000, "served again after {took} ms: {ended}");
    assert_eq!(fence.internet.https.requests().len() + fence.internet.https6.requests().len(), 1, "{ended}");
    assert!(ended.seal().complete, "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{ended}");
    (fence, ended)
}

fn number(ended: &Ended, key: &str) -> u64 {
    ended.value(key).parse().expect("a number")
}

#[test]
fn n11_two_thousand_slow_heads_are_closed_and_counted_exactly() {
    let (_fence, ended) = flood("slow");
    let (early, late) = (number(&ended, "early"), number(&ended, "late"));
    assert_eq!(early + late, SOCKETS, "{ended}");
    assert_eq!(late, SERVED, "those that the cap lets in have until the deadline, whatever they send: {ended}");
    assert_eq!((counted(&ended, "connection-limit"), counted(&ended, "head-deadline")), (early, late), "{ended}");
    assert_eq!(ended.seal().denials["network"], SOCKETS, "{ended}");
    assert!(ended.denials().len() < 200, "they are folded: {ended}");
}

#[test]
fn n11_two_thousand_silent_connections_are_closed_and_those_over_the_cap_counted_exactly() {
    let (_fence, ended) = flood("silent");
    let (early, late) = (number(&ended, "early"), number(&ended, "late"));
    assert_eq!((early + late, late), (SOCKETS, SERVED), "{ended}");
    // Who has asked for nothing has been refused nothing.
    assert_eq!((counted(&ended, "connection-limit"), ended.seal().denials["network"]), (early, early), "{ended}");
}

#[test]
fn n11_connections_that_are_reset_at_once_do_no_harm() {
    let (_fence, ended) = flood("resets");
    assert_eq!(ended.seal().denials["network"], counted(&ended, "connection-limit"), "{ended}");
}

/// The proxy's port is one of these, because the box has no other ephemeral ones.
const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_031;
/// Where the proxies listen.
const PROXIES: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 82, 70, 1));

#[test]
fn n11_the_proxy_never_connects_to_itself() {
    let fence = Fence::new();
    fence.world.inside().run(|| {
        let range = format!("{} {}", PORTS.start(), PORTS.end());
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("write the range");
    });
    // Names for each of its addresses, all admitted at its port, as are its own address and the box's as such.
    let names: [(&str, IpAddr); 8] = [
        ("self.example.org", PROXIES),
        ("lo4.example.org", Ipv4Addr::LOCALHOST.into()),
        ("lo6.example.org", Ipv6Addr::LOCALHOST.into()),
        ("zero4.example.org", Ipv4Addr::UNSPECIFIED.into()),
        ("zero6.example.org", Ipv6Addr::UNSPECIFIED.into()),
        ("mapped.example.org", Ipv4Addr::new(127, 82, 70, 1).to_ipv6_mapped().into()),
        ("box4.example.org", BOX4.into()),
        ("box6.example.org", BOX6.into()),
    ];
    let listed = ["127.82.70.1", "[::ffff:127.82.70.1]"];
    let unlisted = ["127.0.0.1", "[::1]", "0.0.0.0", "[::]", "11.22.33.2", "[2a00:1:2:3::2]", "localhost"];
    let mut entries = Vec::new();
    for (name, address) in names {
        fence.internet.resolver.host(name, &[address]);
        entries.extend(PORTS.map(|port| format!("{name}:{port}")));
    }
    for literal in listed {
        entries.extend(PORTS.map(|port| format!("{literal}:{port}")));
    }
    let outside = Origin::http(fence.world.outside(), PUBLIC4, 7000, origin::standard()).expect("an origin");
    fence.internet.resolver.host("public.example.org", &[PUBLIC4.into()]);
    entries.push("public.example.org:7000".to_owned());
    fence.world.write("/data/policy.toml", format!("extends = \"nist-high\"\nallow-host = {entries:?}\n"), 0o644);
    fence.admits(&entries.iter().map(String::as_str).collect::<Vec<_>>());

    let mut script = "port=${http_proxy##*:}; port=${port%/}; echo port=$port\n\
        ask() { curl -s -m 20 -o /dev/null -w \"plain-$1=%{http_code}\\n\" http://$1:$port/; \
        curl -s -m 20 -p -o /dev/null -w \"tunnel-$1=%{http_connect}\\n\" http://$1:$port/; }\n"
        .to_owned();
    let hosts: Vec<&str> = names.iter().map(|(name, _)| *name).chain(listed).chain(unlisted).collect();
    for host in &hosts {
        script += &format!("ask '{host}'\n");
    }
    script += "curl -sS -m 20 -o /dev/null -w 'control=%{http_code}\\n' http://public.example.org:7000/\n";
    let script = script.replace("curl ", "curl -g --noproxy '' -x $http_proxy ");
    let ended = fence.run(&["--policy", "/data/policy.toml"], &script);
    assert!(PORTS.contains(&(number(&ended, "port") as u16)), "{ended}");
    for host in &hosts {
        let answers = (ended.value(&format!("plain-{host}")), ended.value(&format!("tunnel-{host}")));
        assert_eq!(answers, ("403", "403"), "{host}: {ended}");
        let recorded = ended.denials_of(host);
        assert_eq!(recorded.iter().map(|one| one.count).sum::<u64>(), 2, "{host}: {ended}");
        let rules: BTreeSet<&str> = recorded.iter().map(|one| one.rule.as_str()).collect();
        let wanted: &[&str] =
            if unlisted.contains(host) { &["default-deny"] } else { &["own-address", "private-range"] };
        assert!(rules.iter().all(|rule| wanted.contains(rule)), "{host} {rules:?}: {ended}");
    }
    assert_eq!((ended.value("control"), outside.requests().len()), ("200", 1), "{ended}");
    assert!(ended.seal().complete, "{ended}");
}
