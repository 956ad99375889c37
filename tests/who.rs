//! Who: a denial of the network names the process that made it, or nobody; never another one.
//!
//! What a connect or an addressed send was noted for is named by its note. A datagram of a closed socket that several have
//! sent to the same place is nobody's.

mod common;
#[path = "common/live.rs"]
mod live;

use common::{Ended, Fence};
use live::{Live, PRELUDE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringfence::ledger::record::{Body, Denial, Record, Subject};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use world::address::PUBLIC4;
use world::internet::STRANGER;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A port where nothing listens, so that only ringfence refuses.
const PORT: u16 = 4444;
const PATIENCE: Duration = Duration::from_secs(30);

/// What the scripts add to the common beginning: datagrams to the refused address.
const DATAGRAMS: &str = r#"
def refused(s, port):
    try:
        s.sendto(b"x", ("ADDRESS", port))
        say("sent")
    except PermissionError:
        pass
def datagram():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def ask(target):
    s = proxy()
    s.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = s.recv(4096)
    assert answer.startswith(b"HTTP/1.1 403"), answer
    return s
"#;

fn script(text: &str) -> String {
    PRELUDE.to_owned() + &DATAGRAMS.replace("ADDRESS", &PUBLIC4.to_string()) + text
}

/// Waits until the run's ledger holds so many denials.
fn await_denials(fence: &Fence, ledger: &str, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fence.world.read(ledger).unwrap_or_default();
        // A line may be half written.
        let whole = text.rsplitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default();
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let records: Vec<Record> = lines.map(|line| serde_json::from_slice(line).expect("a record")).collect();
        let found = records.iter().filter(|record| matches!(record.body, Body::Denial(_))).count();
        if found >= count {
            assert_eq!(found, count);
            return;
        }
        assert!(Instant::now() < deadline, "{found} of {count} denials");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many denials of a port name which process.
fn by_pid(ended: &Ended, port: u16) -> BTreeMap<Option<u32>, usize> {
    let mut counts = BTreeMap::new();
    for denial in ended.denials().into_iter().filter(|denial| denial.object.port == Some(port)) {
        *counts.entry(denial.subject.pid).or_default() += 1;
    }
    counts
}

fn pids(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

/// The arguments and the ancestors.
fn texts(subject: &Subject) -> (Vec<&str>, Vec<&str>) {
    fn list(texts: &Option<Vec<String>>) -> Vec<&str> {
        texts.iter().flatten().map(String::as_str).collect()
    }
    (list(&subject.argv), list(&subject.ancestors))
}

#[test]
fn a_refused_request_names_the_client_its_arguments_and_its_ancestors() {
    let fence = Fence::new();
    let tries = format!(
        "curl -s -o /dev/null https://{STRANGER}/a & echo tunnel=$!; wait; \
        curl -s -o /dev/null http://{STRANGER}/b & echo plain=$!; wait; curl -s -o /dev/null https://pypi.org/ && echo admitted=1"
    );
    let ended = fence.run(&FLAGS, &format!("sh -c '{tries}'; true"));
    assert_eq!(ended.value("admitted"), "1", "{ended}");
    let refused = ended.denials_of(STRANGER);
    assert_eq!(refused.len(), 2, "{ended}");
    for (denial, (way, url)) in refused.iter().zip([("tunnel", "https://S/a"), ("plain", "http://S/b")]) {
        let subject = &denial.subject;
        assert_eq!(subject.pid.map(|pid| pid.to_string()).as_deref(), Some(ended.value(way)), "{ended}");
        assert_eq!(subject.uid, Some(ended.start().uid), "{ended}");
        assert_eq!(subject.comm.as_deref(), Some("curl"), "{ended}");
        assert!(subject.exe.as_deref().is_some_and(|exe| exe.starts_with('/') && exe.ends_with("/curl")), "{ended}");
        let url = url.replace('S', STRANGER);
        let (argv, ancestors) = texts(subject);
        assert_eq!(argv, ["curl", "-s", "-o", "/dev/null", url.as_str()], "{ended}");
        assert_eq!(ancestors, ["sh", "bash"], "the nearest first, up to the command: {ended}");
    }
}

#[test]
fn bytes_that_are_no_request_name_who_sent_them_and_its_text_is_escaped() {
    let fence = Fence::new();
    let text = script(
        r#"
import ctypes
ctypes.CDLL(None).prctl(15, b"x) S 1 1\n\x1b[31m")
s = proxy()
s.sendall(b"\x16\x03\x01\n\n")
answer = s.recv(4096)
assert answer.startswith(b"HTTP/1.1 400"), answer
say(f"pid={os.getpid()}")
"#,
    );
    fence.world.write("/tmp/script.py", text, 0o644);
    let ended = fence.run(&FLAGS, r#"/usr/bin/python3 /tmp/script.py $'a\nb\e[0m' 'c\d'; true"#);
    let [denial] = ended.denials()[..] else { panic!("{ended}") };
    let subject = &denial.subject;
    assert_eq!(
        (denial.rule.as_str(), subject.pid.map(|pid| pid.to_string()).as_deref()),
        ("malformed", Some(ended.value("pid")))
    );
    assert_eq!(subject.comm.as_deref(), Some(r"x) S 1 1\x0a\x1b[31m"), "{ended}");
    let (argv, _) = texts(subject);
    assert_eq!(argv[1..], ["/tmp/script.py", r"a\x0ab\x1b[0m", r"c\\d"], "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0));
}

#[test]
fn refused_datagrams_of_two_processes_name_each_its_own() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
child = os.fork()
s = datagram()
for _ in range(3 if child else 5):
    refused(s, {PORT})
if not child:
    # What this one sent is told apart as long as it holds its socket.
    os.read(0, 1)
    os._exit(0)
say(f"{{os.getpid()}} {{child}}")
point("sent")
os.kill(child, 9)
os.waitpid(child, 0)
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    let [parent, child] = pids(&live.line())[..] else { panic!("two") };
    assert_eq!(live.line(), "sent");
    await_denials(&fence, &live.ledger, 8);
    live.go_on();
    let (_, ended) = live.end(&fence);
    assert_eq!(by_pid(&ended, PORT), BTreeMap::from([(Some(parent), 3), (Some(child), 5)]), "{ended}");
    for denial in ended.denials() {
        assert_eq!((denial.operation.as_str(), denial.errno.as_deref()), ("udp", Some("EPERM")), "{ended}");
        let (argv, ancestors) = texts(&denial.subject);
        assert_eq!(argv[1..], ["/tmp/script.py"], "{ended}");
        let forked = denial.subject.pid == Some(child);
        assert_eq!(ancestors.len(), usize::from(forked), "{ended}");
    }
}

#[test]
fn a_message_that_was_not_noted_names_who_holds_its_socket_alone() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
def message(s, port):
    try:
        s.sendmsg([b"x"], [], 0, ("{PUBLIC4}", port))
        say("sent")
    except PermissionError:
        pass
alone, shared = datagram(), datagram()
closed, close = os.pipe()
child = os.fork()
if not child:
    alone.close()
    os.write(close, b"x")
    os.read(0, 1)
    os._exit(0)
os.read(closed, 1)
message(alone, {PORT})
message(shared, {PORT} + 1)
say(f"{{os.getpid()}}")
point("sent")
os.kill(child, 9)
os.waitpid(child, 0)
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    let [sender] = pids(&live.line())[..] else { panic!("one") };
    assert_eq!(live.line(), "sent");
    await_denials(&fence, &live.ledger, 2);
    live.go_on();
    let (_, ended) = live.end(&fence);
    assert_eq!(by_pid(&ended, PORT), BTreeMap::from([(Some(sender), 1)]), "{ended}");
    assert_eq!(by_pid(&ended, PORT + 1), BTreeMap::from([(None, 1)]), "two hold it: {ended}");
}

#[test]
fn a_refused_connection_names_its_own_process() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
children = []
for n in range(2):
    child = os.fork()
    if not child:
        for _ in range(n + 1):
            s = socket.socket()
            assert s.connect_ex(("{PUBLIC4}", {PORT} + n)) == 111
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
say(f"{{children[0]}} {{children[1]}}")
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    let children = pids(&live.line());
    let (_, ended) = live.end(&fence);
    for (n, child) in children.into_iter().enumerate() {
        let named = by_pid(&ended, PORT + n as u16);
        assert_eq!(named.values().sum::<usize>(), n + 1, "{ended}");
        assert!(named.keys().all(|pid| *pid == Some(child)), "{child}: {ended}");
    }
    let uid = ended.start().uid;
    assert!(ended.denials().iter().all(|denial| denial.subject.uid == Some(uid)), "the opener's uid is known: {ended}");
}

#[test]
fn two_clients_at_once_are_not_mixed_up() {
    let fence = Fence::new();
    // As many for one host as for the other, from two processes of the same program with the same ancestors.
    let tries = format!(
        "for n in $(seq 20); do curl -s -o /dev/null http://one.{STRANGER}/ & echo one=$!; \
         curl -s -o /dev/null http://two.{STRANGER}/ & echo two=$!; wait; done"
    );
    let ended = fence.run(&FLAGS, &tries);
    for name in ["one", "two"] {
        let lines = ended.said.out.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let mut own: Vec<Option<u32>> = lines.map(|pid| pid.parse().ok()).collect();
        let denials = ended.denials_of(&format!("{name}.{STRANGER}"));
        let mut named: Vec<Option<u32>> = denials.iter().map(|denial| denial.subject.pid).collect();
        own.sort_unstable();
        named.sort_unstable();
        assert_eq!((named.len(), named), (20, own), "{ended}");
        for denial in denials {
            let (argv, _) = texts(&denial.subject);
            assert_eq!(argv.last().copied(), Some(format!("http://{name}.{STRANGER}/").as_str()), "{ended}");
        }
    }
}

#[test]
fn who_is_gone_is_not_named_by_who_is_left() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
# One that has sent to the same place and stays.
s = datagram()
refused(s, {PORT})
point("stays")
port = s.getsockname()[1]
child = os.fork()
if not child:
    s.close()
    mine = datagram()
    refused(mine, {PORT} + 1)
    refused(mine, {PORT})
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say(f"{{os.getpid()}} {{child}}")
point("gone")
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    assert_eq!(live.line(), "stays");
    await_denials(&fence, &live.ledger, 1);
    // The supervisor reads the log when the sender has gone.
    let supervisor = Pid::from_raw(live.child.id() as i32);
    kill(supervisor, Signal::SIGSTOP).expect("it lives");
    live.go_on();
    let [stays, gone] = pids(&live.line())[..] else { panic!("two") };
    assert_eq!(live.line(), "gone");
    kill(supervisor, Signal::SIGCONT).expect("it lives");
    await_denials(&fence, &live.ledger, 3);
    live.go_on();
    let (_, ended) = live.end(&fence);
    let of_place: Vec<Option<u32>> =
        ended.denials().iter().filter(|d| d.object.port == Some(PORT)).map(|d| d.subject.pid).collect();
    assert_eq!(of_place[0], Some(stays), "{ended}");
    // Two have sent there, and the socket that could tell is closed.
    assert!(of_place[1].is_none_or(|pid| pid == gone), "{gone}: {ended}");
    let elsewhere = by_pid(&ended, PORT + 1);
    assert!(elsewhere.keys().all(|pid| *pid == Some(gone)), "{gone}: {ended}");
}

#[test]
fn threads_are_their_process_and_are_not_given_each_others_names() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
import ctypes, threading
prctl = ctypes.CDLL(None).prctl
held = []
def work(n):
    prctl(15, f"worker-{{n}}".encode())
    held.append(ask(f"{{n}}.{STRANGER}"))
    s = datagram()
    refused(s, {PORT} + n)
    held.append(s)
    done.wait()
done = threading.Barrier(5)
for n in range(4):
    threading.Thread(target=work, args=(n,)).start()
while len(held) < 8:
    time.sleep(0.001)
say(f"{{os.getpid()}}")
point("asked")
done.wait()
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    let [process] = pids(&live.line())[..] else { panic!("one") };
    assert_eq!(live.line(), "asked");
    await_denials(&fence, &live.ledger, 8);
    live.go_on();
    let (_, ended) = live.end(&fence);
    for n in 0..4 {
        let of_proxy = ended.denials_of(&format!("{n}.{STRANGER}"));
        let of_wall = ended.denials().into_iter().filter(|denial| denial.object.port == Some(PORT + n));
        let both: Vec<&Denial> = of_proxy.into_iter().chain(of_wall).collect();
        assert_eq!(both.len(), 2, "{ended}");
        for denial in both {
            let subject = &denial.subject;
            assert_eq!(subject.pid, Some(process), "{ended}");
            assert_eq!(subject.comm.as_deref(), Some(format!("worker-{n}").as_str()), "{ended}");
            assert!(subject.exe.as_deref().is_some_and(|exe| exe.contains("python")), "{ended}");
        }
    }
}

#[test]
fn a_grandchild_in_a_session_of_its_own_is_named_and_so_are_its_real_ancestors() {
    let fence = Fence::new();
    // It asks when its parent has ended, and belongs to nobody but the run.
    let orphan = format!(
        r#"parent=$1; while read -r _ _ _ now _ </proc/$$/stat && [ "$now" = "$parent" ]; do :; done
        curl -s -o /dev/null https://{STRANGER}/ & echo pid=$!; wait"#
    );
    fence.world.write("/tmp/orphan.sh", orphan, 0o755);
    let ended =
        fence.run(&FLAGS, "mkfifo /tmp/end; sh -c 'setsid sh /tmp/orphan.sh $$ >/tmp/end & exit'; cat /tmp/end");
    let [denial] = ended.denials()[..] else { panic!("{ended}") };
    assert_eq!(denial.subject.pid.map(|pid| pid.to_string()).as_deref(), Some(ended.value("pid")), "{ended}");
    assert_eq!(texts(&denial.subject).1, ["sh"], "bash is none of its ancestors any more: {ended}");
}

#[test]
fn a_socket_that_two_processes_hold_is_its_connectors() {
    let fence = Fence::new();
    let text = script(&format!(
        r#"
s = proxy()
child = os.fork()
if child:
    say(f"{{os.getpid()}}")
    assert os.waitpid(child, 0)[1] == 0
    # One holder is left, and asks.
    s.sendall(b"GET http://alone.{STRANGER}/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 403")
else:
    s.sendall(b"GET http://shared.{STRANGER}/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 403")
    os._exit(0)
point("asked")
"#
    ));
    let mut live = Live::start(&fence, &[], &FLAGS, &text);
    let [connector] = pids(&live.line())[..] else { panic!("one") };
    assert_eq!(live.line(), "asked");
    live.go_on();
    let (_, ended) = live.end(&fence);
    let named = |host: &str| match ended.denials_of(&format!("{host}.{STRANGER}"))[..] {
        [denial] => denial.subject.pid,
        _ => panic!("{ended}"),
    };
    assert!(named("shared") == Some(connector), "{ended}");
    assert!(named("alone") == Some(connector), "{ended}");
}
