//! The proxy as a process: what it is, what it holds, and what becomes of it under load (case N11).

mod common;
#[path = "common/live.rs"]
mod live;

use common::Fence;
use live::{Live, PRELUDE};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};
use world::address::{PUBLIC4, PUBLIC6};
use world::dns::{A, AAAA};
use world::{Answer, Origin, Transport, World, origin};

const FLAGS: [&str; 6] =
    ["--policy", "nist-high", "--allow-host", "load.example.org:7000", "--allow-host", "tcp.example.org:7000"];

/// The proxy's id and its lines of /proc/PID/status: the one process of the box with no uid but of the proxies' range.
fn proxy(world: &World) -> (u32, BTreeMap<String, String>) {
    let found: Vec<(u32, BTreeMap<String, String>)> = world
        .processes()
        .into_iter()
        .filter_map(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let pairs = text.lines().filter_map(|line| line.split_once(':'));
            Some((pid, pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()))
        })
        .filter(|(_, status): &(u32, BTreeMap<String, String>)| {
            // The observer's real uid is of the range as well; its effective one is the command's.
            let mut uids = status["Uid"].split_whitespace().map(|uid| uid.parse::<u32>());
            uids.all(|uid| uid.is_ok_and(|uid| (11001..=11999).contains(&uid)))
        })
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("one")
}

/// Descriptors of a process that are ends of pipes.
fn ends_of_pipes(pid: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("pipe:")).count()
}

#[test]
fn it_has_its_own_uid_no_capability_no_file_and_is_out_of_the_commands_reach() {
    let fence = Fence::new();
    let reach = r#"
import ctypes
mine = int(sys.stdin.readline())
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, work):
    try:
        work()
        say(f"{name}=done")
    except OSError as cause:
        say(f"{name}={os.strerror(cause.errno)}")
def trace(request):
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(mine), None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
for number in 0, 9, 15, 19:
    tried(f"kill-{number}", lambda: os.kill(mine, number))
tried("group", lambda: os.killpg(mine, 9))
tried("attach", lambda: trace(16))
tried("seize", lambda: trace(0x4206))
tried("mem", lambda: open(f"/proc/{mine}/mem", "rb+"))
tried("environ", lambda: open(f"/proc/{mine}/environ").read(1))
tried("fd", lambda: os.listdir(f"/proc/{mine}/fd"))
tried("root", lambda: os.listdir(f"/proc/{mine}/root/"))
tried("pidfd", lambda: [os.pidfd_open(mine), trace(16)])
tried("limits", lambda: __import__("resource").prlimit(mine, 7, (3, 3)))
tried("nice", lambda: os.setpriority(os.PRIO_PROCESS, mine, 19))
tried("affinity", lambda: os.sched_setaffinity(mine, [0]))
point("tried")
"#;
    let mut live = Live::start(&fence, &[], &FLAGS, &(PRELUDE.to_owned() + "point('here')\n" + reach));
    assert_eq!(live.line(), "here");
    let (pid, status) = proxy(&fence.world);
    let ids = |line: &str| status[line].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let uid = ids("Uid")[0].clone();
    assert_eq!((ids("Uid"), ids("Gid")), (vec![uid.clone(); 4], vec![uid; 4]), "{status:?}");
    assert_eq!(status["Groups"], "", "{status:?}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status[set].trim_start_matches('0'), "", "{set}: {status:?}");
    }
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"), "{status:?}");
    assert_eq!(status["Threads"], "1", "{status:?}");
    let mut open: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its descriptors")
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
            Some(target.split('[').next().unwrap_or_default().to_owned())
        })
        .collect();
    open.sort();
    open.dedup();
    // Its stdio is nothing; beside it sockets and what the runtime waits with.
    let allowed = ["/dev/null", "anon_inode:", "socket:"];
    assert!(open.iter().all(|kind| allowed.contains(&kind.as_str())), "{open:?}");
    let stdio: Vec<_> = (0..3).map(|fd| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()).collect();
    assert!(stdio.iter().all(|target| target.as_deref() == Some("/dev/null".as_ref())), "{stdio:?}");

    live.input.write_all(format!("\n{pid}\n").as_bytes()).expect("the command reads");
    let mut tries = 0;
    loop {
        let line = live.line();
        if line == "tried" {
            break;
        }
        let (what, answer) = line.split_once('=').expect("a try");
        assert!(["Operation not permitted", "Permission denied"].contains(&answer), "{what}: {answer}");
        tries += 1;
    }
    assert_eq!(tries, 15);
    assert_eq!(proxy(&fence.world).0, pid, "the proxy lives");
    live.go_on();
    live.end(&fence);
}

#[test]
fn five_hundred_tunnels_large_bodies_and_names_over_tcp_are_served_in_bounded_memory() {
    let fence = Fence::new();
    let outside = fence.world.outside();
    let origins = [
        Origin::http(outside, PUBLIC4, 7000, origin::standard()).expect("an origin"),
        Origin::http(outside, PUBLIC6, 7000, origin::standard()).expect("an origin"),
    ];
    let resolver = &fence.internet.resolver;
    resolver.host("load.example.org", &[PUBLIC4.into(), PUBLIC6.into()]);
    resolver.answers("tcp.example.org", A, [Answer::OverTcp(vec![PUBLIC4.into()])]);
    resolver.answers("tcp.example.org", AAAA, [Answer::Empty]);
    let load = r#"
request = b"GET /bytes/100000 HTTP/1.1\r\nHost: load.example.org:7000\r\nConnection: close\r\n\r\n"
tunnels = [tunnel("load.example.org:7000") for _ in range(500)]
point("open")
for s in tunnels:
    s.sendall(request)
whole = 0
for s in tunnels:
    length = 0
    while piece := s.recv(1 << 16):
        length += len(piece)
    whole += length > 100000
    s.close()
say(f"whole={whole}")
size = 48 << 20
for way in "tunnel", "plain":
    if way == "tunnel":
        s, target = tunnel("load.example.org:7000"), "/echo"
    else:
        s, target = proxy(), "http://load.example.org:7000/echo"
    s.sendall(f"POST {target} HTTP/1.1\r\nHost: load.example.org:7000\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
    chunk = bytes(1 << 20)
    for _ in range(size >> 20):
        s.sendall(chunk)
    length = 0
    while piece := s.recv(1 << 20):
        length += len(piece)
    say(f"{way}={length >= size}")
s = proxy()
s.sendall(request.replace(b"/bytes/100000", b"http://load.example.org:7000/bytes/50000000"))
s.recv(1 << 20, socket.MSG_WAITALL)
point("bulk")
# What has not been read makes the end a reset, in the middle of the proxy's writing.
s.close()
s = proxy()
s.sendall(b"GET http://tcp.example.org:7000/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
say("name=" + s.recv(100)[9:12].decode())
point("done")
"#;
    let mut live = Live::start(&fence, &[], &FLAGS, &(PRELUDE.to_owned() + load));
    assert_eq!(live.line(), "open");
    let (pid, _) = proxy(&fence.world);
    live.go_on();
    assert_eq!([live.line(), live.line(), live.line()], ["whole=500", "tunnel=True", "plain=True"]);
    assert_eq!(live.line(), "bulk");
    let deadline = Instant::now() + Duration::from_secs(20);
    while ends_of_pipes(pid) != 2 {
        assert!(Instant::now() < deadline, "bulk passes through a pipe, the proxy's filter notwithstanding");
        std::thread::sleep(Duration::from_millis(10));
    }
    live.go_on();
    assert_eq!([live.line(), live.line()], ["name=200", "done"]);
    let (same, status) = proxy(&fence.world);
    assert_eq!((same, ends_of_pipes(pid)), (pid, 0));
    let peak: u64 = status["VmHWM"].split_whitespace().next().and_then(|text| text.parse().ok()).expect("kibibytes");
    eprintln!("the proxy's peak: {peak} KiB");
    assert!(peak < 64 << 10, "{peak} KiB");
    live.go_on();
    let (_, ended) = live.end(&fence);
    assert!(ended.denials().is_empty(), "{ended}");
    assert!(ended.seal().complete, "{ended}");
    assert_eq!(origins.iter().map(|origin| origin.requests().len()).sum::<usize>(), 504);
    assert!(resolver.questions_about("tcp.example.org").iter().any(|one| one.transport == Transport::Tcp));
}

/// The capability's number (linux/capability.h).
const SYS_RESOURCE: u32 = 24;

/// Without the capability that raises a hard limit, for it and for all that it starts.
const WITHOUT_RAISING: [&str; 3] = ["setpriv", "--inh-caps=-sys_resource", "--bounding-set=-sys_resource"];

/// Two descriptors for each connection and for each pipe, and 32 more.
const NEEDED: u64 = 2 * (16384 + 64) + 32;

#[test]
fn its_limit_on_descriptors_is_raised_to_what_it_needs_where_the_caller_may() {
    let limit = |before: &[&str]| {
        let fence = Fence::new();
        let mut live = Live::start(&fence, before, &FLAGS, &(PRELUDE.to_owned() + "point('here')\n"));
        assert_eq!(live.line(), "here");
        let (pid, _) = proxy(&fence.world);
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the line").to_owned();
        live.go_on();
        live.end(&fence);
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    };
    // Root of a machine may be without the capability from the start.
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("the line").trim();
    let may = u64::from_str_radix(effective, 16).expect("a set") >> SYS_RESOURCE & 1 == 1;
    let expected = if may { NEEDED } else { 700 };
    assert_eq!(limit(&["prlimit", "--nofile=300:700"]), (expected, expected));
    assert_eq!(limit(&[&["prlimit", "--nofile=300:700"][..], &WITHOUT_RAISING[..]].concat()), (700, 700));
}

/// Descriptors run out; every connection over the cap is counted, those of the last moment too.
#[test]
fn where_descriptors_run_out_refusals_are_counted_exactly_and_service_returns() {
    let fence = Fence::new();
    // Who was let in gets an answer to what is no request, and who was turned away gets none.
    let flood = r#"
def turned_away(s):
    try:
        s.sendall(b"X\r\n\r\n")
        answer = s.recv(100)
    except (BrokenPipeError, ConnectionResetError):
        return True
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400"), answer
    return answer == b""
def flood():
    several = [proxy() for _ in range(40)]
    away = sum(turned_away(s) for s in several)
    for s in several:
        s.close()
    return away
away = sum(flood() for _ in range(10))
tries = 0
deadline = time.monotonic() + 20
while True:
    with proxy() as s:
        try:
            s.sendall(b"GET http://pypi.org/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if s.recv(100).startswith(b"HTTP/1.1 200"):
                break
        except OSError:
            pass
    tries += 1
    assert time.monotonic() < deadline
print(away + flood(), tries, flush=True)
os._exit(0)
"#;
    let limited = [&["prlimit", "--nofile=64:64"][..], &WITHOUT_RAISING[..]].concat();
    let mut live = Live::start(&fence, &limited, &FLAGS, &(PRELUDE.to_owned() + flood));
    let said = live.line();
    let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().expect("a count")).collect();
    let [away, tries] = numbers[..] else { panic!("{said}") };
    let (_, ended) = live.end(&fence);
    let denials = ended.denials();
    let counted = |rule: &str| denials.iter().filter(|one| one.rule == rule).map(|one| one.count).sum::<u64>();
    assert!(away > 40 - 16, "the cap is reached: {said}");
    assert_eq!((counted("connection-limit"), counted("malformed")), (away + tries, 11 * 40 - away), "{said}: {ended}");
    let folded = denials.iter().filter(|one| one.rule == "connection-limit").count() as u64;
    assert!(folded < away / 4, "they are folded: {ended}");
    assert!(ended.seal().complete, "{ended}");
}

/// A proxy that is killed closes egress and ends the run, and the record says that its last refusals may be missing.
#[test]
fn its_end_is_the_runs_end_and_no_egress_is_left() {
    let fence = Fence::new();
    let script = r#"
signal = __import__("signal")
for number in signal.SIGTERM, signal.SIGHUP:
    signal.signal(number, signal.SIG_IGN)
point("here")
point("again")
"#;
    let mut live = Live::start(&fence, &[], &FLAGS, &(PRELUDE.to_owned() + script));
    assert_eq!(live.line(), "here");
    let (pid, _) = proxy(&fence.world);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::Signal::SIGKILL).expect("kill");
    let status = live.child.wait().expect("ringfence ends");
    assert_eq!(status.code(), Some(125));
    let said = world::Said { code: status.code(), out: String::new(), err: String::new() };
    let ended = fence.ended(said, live.ledger);
    assert!(!ended.seal().complete && !ended.seal().complete_by_axis["network"], "{ended}");
    assert!(ended.seal().complete_by_axis["filesystem"], "{ended}");
    assert!(fence.world.processes().is_empty(), "the command has ended with it");
    assert_eq!(fence.verify(&ended.ledger).code, Some(1), "{ended}");
}
