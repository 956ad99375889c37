//! What Landlock's scopes refuse is on record where the kernel's audit can be read, and the first record says so where
//! it can't. Needs root of the initial namespaces.
//!
//! Audit is the machine's: each test switches it for its time, and has the machine to itself (.config/nextest.toml).

mod audit_switch;
mod common;
mod living;

use audit_switch::Switch;
use common::{Ended, Fence};
use living::Run;
use ringfence::ledger::record::{Body, Denial, Gap, Mechanism};
use ringfence::policy::Axis;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

const UNOBSERVED: &str = "signals and abstract unix sockets to the outside, which Landlock's scopes refuse";
/// Room for what a test's refusals make at once.
const AMPLE: u32 = 8192;
const NAME: &str = "of the\u{7}outside";

#[test]
#[ignore = "no test but the process that holds the switch for the others, which start it"]
fn hold_the_switch() {
    audit_switch::hold();
}

/// What the command does: acts, one a line, for as long as it is given any.
const ACTS: &str = r#"
import ctypes, errno, os, signal, socket, struct, sys
def connect(name):
    s = socket.socket(socket.AF_UNIX); s.connect("\0" + name); s.close()
def own(name):
    l = socket.socket(socket.AF_UNIX); l.bind("\0" + name); l.listen()
    connect(name)
def child():
    pid = os.fork()
    if pid == 0: signal.pause()
    os.kill(pid, signal.SIGTERM)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM
def flood(name, tries):
    refused = 0
    for _ in range(int(tries)):
        s = socket.socket(socket.AF_UNIX)
        try: s.connect("\0" + name)
        except PermissionError: refused += 1
        s.close()
    assert refused == int(tries), refused
def nest():
    libc = ctypes.CDLL(None, use_errno=True)
    scopes = struct.pack("QQQ", 0, 0, 3)
    ruleset = libc.syscall(444, scopes, len(scopes), 0)
    assert ruleset >= 0 and libc.syscall(446, ruleset, 2) == 0, ctypes.get_errno()
acts = {"nest": nest, "connect": connect, "own": own, "child": child, "flood": flood, "kill": lambda pid: os.kill(int(pid), 0)}
print("pid", os.getpid(), flush=True)
for line in sys.stdin:
    act, *words = line.rstrip("\n").split("|")
    try:
        acts[act](*words)
        print("done", flush=True)
    except OSError as cause:
        print(errno.errorcode[cause.errno], flush=True)
"#;

/// A listener at an abstract name in the box, outside the sandbox.
fn listen(fence: &Fence) {
    let (ready, made) = mpsc::channel();
    fence.world.inside().run(move || {
        let address = SocketAddr::from_abstract_name(NAME).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("bind");
        std::thread::spawn(move || listener.incoming().for_each(drop));
        ready.send(()).expect("the test waits");
    });
    made.recv().expect("it listens");
}

/// A sandbox that does what it is told.
struct Puppet {
    run: Run,
    pid: u32,
}

impl Puppet {
    fn start(fence: &Fence, uid: u32) -> Puppet {
        fence.world.write("/usr/local/lib/acts.py", ACTS, 0o644);
        let user = format!("audited:x:{uid}:{uid}::/tmp:/bin/false\n");
        let mut passwd = fence.world.read("/etc/passwd").unwrap_or_default();
        passwd.extend(user.into_bytes());
        fence.world.write("/etc/passwd", passwd, 0o644);
        let flags = ["--policy", "nist-high", "--user", "audited"];
        let mut run = Run::start(fence, &flags, "exec python3 /usr/local/lib/acts.py");
        let said = run.line();
        let pid = said.strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        Puppet { run, pid: pid.unwrap_or_else(|| panic!("no pid but {said}")) }
    }

    fn act(&mut self, act: &str) -> String {
        use std::io::Write;
        writeln!(self.run.stdin.as_mut().expect("open"), "{act}").expect("the command reads");
        self.run.line()
    }

    fn end(self, fence: &Fence) -> Ended {
        self.run.finish(fence)
    }
}

fn of_landlock(ended: &Ended) -> Vec<&Denial> {
    ended.denials().into_iter().filter(|denial| denial.mechanism == Mechanism::Landlock).collect()
}

fn gaps(ended: &Ended) -> Vec<&Gap> {
    ended.records.iter().filter_map(|record| if let Body::Gap(gap) = &record.body { Some(gap) } else { None }).collect()
}

/// Each gap's source and count.
fn lost(ended: &Ended) -> Vec<(&str, u64)> {
    gaps(ended).into_iter().map(|gap| (gap.source.as_str(), gap.lost)).collect()
}

fn says_unobserved(ended: &Ended) -> bool {
    ended.start().unobserved.iter().any(|sentence| sentence == UNOBSERVED)
}

#[test]
fn each_refusal_is_on_record_with_who_and_on_what_and_what_is_allowed_is_not() {
    let _on = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let uid = common::own_user();
    let mut sandbox = Puppet::start(&fence, uid);
    // A process of the same user whom no permission but Landlock's keeps its signals from.
    let mut sleeper = fence.world.command("setpriv");
    let id = uid.to_string();
    sleeper.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sleep", "60"]);
    let mut sleeper = fence.world.spawn(sleeper).expect("setpriv");
    living::until("the outsider is the user's", || living::owner(sleeper.id() as i32) == Some(uid));
    living::until("the outsider sleeps", || {
        std::fs::read(format!("/proc/{}/comm", sleeper.id())).is_ok_and(|comm| comm == b"sleep\n")
    });

    for allowed in ["own|ours", "child"] {
        assert_eq!(sandbox.act(allowed), "done", "{allowed}");
    }
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    assert_eq!(sandbox.act(&format!("kill|{}", sleeper.id())), "EPERM");
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    let pid = sandbox.pid;
    let ended = sandbox.end(&fence);
    sleeper.kill().expect("the outsider lives");
    sleeper.wait().expect("a child");

    let expected_objects = ["of the\\x07outside".to_owned(), format!("pid {} (sleep)", sleeper.id())];
    let expected = [("connect", 0, 1), ("signal", 1, 1), ("connect", 0, 2)];
    let denials = of_landlock(&ended);
    assert_eq!(denials.len(), expected.len(), "{ended}");
    for (denial, (operation, object, attempt)) in denials.into_iter().zip(expected) {
        assert_eq!(denial.operation, operation, "{ended}");
        assert_eq!(denial.object.text.as_ref(), Some(&expected_objects[object]));
        assert_eq!((denial.attempt, denial.count), (attempt, 1));
        assert_eq!((denial.axis, denial.nist.as_slice()), (Axis::Privilege, &["AC-6".to_owned()][..]));
        assert_eq!((denial.rule.as_str(), denial.reason.as_str()), ("scope", "outside_domain"));
        assert_eq!((denial.errno.as_deref(), denial.http_status), (Some("EPERM"), None));
        // On a machine whose rules keep all tasks out of the log (`task,never`) nobody would be named.
        assert_eq!((denial.subject.pid, denial.subject.uid), (Some(pid), Some(uid)), "{ended}");
        assert!(denial.subject.comm.as_deref().is_some_and(|comm| comm.starts_with("python3")), "{ended}");
        assert!(denial.subject.exe.as_deref().is_some_and(|exe| exe.contains("python3")), "{ended}");
    }
    assert!(ended.seal().complete && gaps(&ended).is_empty(), "{ended}");
    assert!(!says_unobserved(&ended), "{ended}");
    assert_eq!(ended.start().host["landlock_audit"], true);
    assert_eq!(fence.verify(&ended.ledger).code, Some(0));
}

#[test]
fn a_foreign_domain_that_is_refused_at_the_same_time_is_not_ours() {
    let _on = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let mut sandbox = Puppet::start(&fence, common::own_user());
    let over = AtomicBool::new(false);
    let (refused, ours) = std::thread::scope(|scope| {
        // In a thread of this process, outside the sandbox: it makes a domain of its own and tries without end.
        let (began, begun) = mpsc::channel();
        let over = &over;
        let foreign = scope.spawn(move || {
            let address = SocketAddr::from_abstract_name("foreign\u{7}bait").expect("a name");
            let _bait = UnixListener::bind_addr(&address).expect("bind");
            nix::sys::prctl::set_no_new_privs().expect("prctl");
            ringfence::confine::landlock::restrict_scopes(true, false).expect("Landlock");
            let mut refused = 0;
            while !over.load(Ordering::SeqCst) {
                let outcome = UnixStream::connect_addr(&address).map(drop);
                assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EPERM));
                refused += 1;
                if refused == 10 {
                    began.send(()).expect("the test waits");
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            refused
        });
        begun.recv().expect("the foreign domain is refused");
        let said: Vec<String> = (0..5).map(|_| sandbox.act(&format!("connect|{NAME}"))).collect();
        // What it forbids itself, in a domain that the same process makes, is not refused by ringfence.
        assert_eq!(sandbox.act("nest"), "done");
        assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
        let ended = sandbox.end(&fence);
        over.store(true, Ordering::SeqCst);
        assert_eq!(said, ["EPERM"; 5]);
        (foreign.join().expect("the foreign thread"), ended)
    });
    assert!(refused > 10);
    let texts: Vec<_> = of_landlock(&ours).into_iter().map(|denial| denial.object.text.as_deref()).collect();
    assert_eq!(texts, [Some("of the\\x07outside"); 5], "{ours}");
    assert!(ours.seal().complete, "{ours}");
}

#[test]
fn of_a_flood_what_is_not_on_record_is_in_a_gap_to_the_last_one() {
    // What the kernel's own queue cannot hold it drops, and counts.
    let _on = Switch::turn(true, 4);
    let fence = Fence::new();
    listen(&fence);
    let mut sandbox = Puppet::start(&fence, common::own_user());
    assert_eq!(sandbox.act(&format!("flood|{NAME}|20000")), "done");
    let ended = sandbox.end(&fence);
    let told: u64 = of_landlock(&ended).into_iter().map(|denial| denial.count).sum();
    let gaps = gaps(&ended);
    let lost: u64 = gaps.iter().map(|gap| gap.lost).sum();
    assert_eq!(told + lost, 20_000, "{ended}");
    assert!(told > 0 && lost > 0, "told of {told}, lost {lost}: a queue of four holds no flood");
    assert_eq!((gaps[0].axis, gaps[0].source.as_str()), (Some(Axis::Privilege), "landlock-audit"));
    assert!(!ended.seal().complete && !ended.seal().complete_by_axis["privilege"], "{ended}");
    assert!(ended.seal().complete_by_axis["network"], "{ended}");
}

#[test]
fn without_audit_the_first_record_says_that_they_are_not_seen() {
    let _off = Switch::turn(false, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let mut sandbox = Puppet::start(&fence, common::own_user());
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    let ended = sandbox.end(&fence);
    assert!(says_unobserved(&ended), "{ended}");
    assert_eq!(ended.start().host["landlock_audit"], "audit: it is switched off");
    assert!(of_landlock(&ended).is_empty() && ended.seal().complete, "{ended}");
}

#[test]
fn audit_that_is_switched_off_in_mid_run_is_a_gap() {
    let mut switch = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let mut sandbox = Puppet::start(&fence, common::own_user());
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    switch.again(false);
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    let ended = sandbox.end(&fence);
    assert_eq!(of_landlock(&ended).len(), 1, "{ended}");
    assert_eq!(lost(&ended), [("landlock-audit", 0)]);
    assert!(!ended.seal().complete_by_axis["privilege"], "{ended}");
}

#[test]
fn audit_that_is_switched_off_and_on_again_is_a_gap_of_what_was_refused_meanwhile() {
    let mut switch = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let mut sandbox = Puppet::start(&fence, common::own_user());
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    switch.again(false);
    assert_eq!(sandbox.act(&format!("flood|{NAME}|3")), "done");
    switch.again(true);
    assert_eq!(sandbox.act(&format!("connect|{NAME}")), "EPERM");
    let ended = sandbox.end(&fence);
    assert_eq!(of_landlock(&ended).len(), 2, "{ended}");
    assert_eq!(lost(&ended), [("landlock-audit", 3)]);
}

#[test]
fn the_first_and_the_last_thing_that_a_command_does_is_on_record() {
    let _on = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let script = format!(
        r#"exec python3 -c 'import os, socket; os._exit(socket.socket(socket.AF_UNIX).connect_ex("\0{NAME}"))'"#
    );
    for _ in 0..10 {
        let ended = fence.run(&["--policy", "nist-high"], &script);
        assert_eq!(ended.said.code, Some(libc::EPERM), "{ended}");
        assert_eq!(of_landlock(&ended).len(), 1, "{ended}");
        assert!(ended.seal().complete, "{ended}");
    }
}

#[test]
fn what_each_command_of_a_session_is_refused_is_on_record() {
    let _on = Switch::turn(true, AMPLE);
    let fence = Fence::new();
    listen(&fence);
    let ledger = "/var/log/ringfence/session.jsonl";
    let up = fence.output(fence.ringfence(&["up", "--policy", "nist-high", "--ledger", ledger]));
    assert_eq!(up.code, Some(0), "{up}");
    let connect = format!("import socket; print(socket.socket(socket.AF_UNIX).connect_ex('\\0' + {NAME:?}))");
    let connect = connect.replace("\\u{7}", "\\x07");
    for _ in 0..2 {
        let said = fence.output(fence.ringfence(&["exec", "--", "python3", "-c", &connect]));
        assert_eq!(said.out, "1\n", "EPERM: {said}");
    }
    let ended = fence.ended(fence.output(fence.ringfence(&["down"])), ledger.into());
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let pids: Vec<Option<u32>> = of_landlock(&ended).iter().map(|denial| denial.subject.pid).collect();
    assert!(pids.len() == 2 && pids[0].is_some() && pids[0] != pids[1], "{ended}");
    assert!(gaps(&ended).is_empty() && ended.seal().complete, "{ended}");
}
