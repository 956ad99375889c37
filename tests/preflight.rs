//! Pre-flight on hosts that lack something, or that say they did what they did not (case E09): the command never starts,
//! the status is 125, the cause is named, and nothing is left. On a sound host the probes leave no trace.

mod common;

use common::{Ended, Fence, RINGFENCE, assert_left_nothing, survey};
use ringfence::ledger::record::Body;
use ringfence::observe::nflog::NfLog;
use std::process::Command;
use world::Said;

const MARKER: &str = "/dev/shm/started";
/// On the rung of these tests: where it is not demanded another one may hold (tests/taken_away.rs).
const POLICY: [&str; 4] = ["--policy", "nist-high", "--rung", "full"];

/// Loads a seccomp filter that answers certain calls itself, then executes the rest of its arguments. A rule is
/// `NUMBER[:ARGUMENT=VALUE…]=ERRNO`; with errno 0 the call says that it succeeded, and nothing has been done.
const FILTERED: &str = r"
import ctypes, os, struct, sys
at = sys.argv.index('--')
LOAD, EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000
program = []
for rule in sys.argv[1:at]:
    what, errno = rule.rsplit('=', 1)
    number, *arguments = what.split(':')
    tests = [(0, int(number))] + [(16 + 8 * int(a.split('=')[0]), int(a.split('=')[1])) for a in arguments]
    for place, (offset, value) in enumerate(tests):
        program.append((LOAD, 0, 0, offset))
        program.append((EQUAL, 0, 2 * (len(tests) - place - 1) + 1, value))
    program.append((RETURN, 0, 0, ERRNO | int(errno)))
program.append((RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in program))
header = struct.pack('HxxxxxxP', len(program), ctypes.addressof(code))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, header, 0, 0) != 0:
    sys.exit('prctl: ' + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
";

fn filtered(rules: &[String]) -> Vec<String> {
    let python = ["python3", "-c", FILTERED].map(str::to_owned);
    python.into_iter().chain(rules.iter().cloned()).chain(["--".to_owned()]).collect()
}

fn rule(call: i64, arguments: &[(u32, i64)], errno: i32) -> String {
    let arguments: String = arguments.iter().map(|(number, value)| format!(":{number}={value}")).collect();
    format!("{call}{arguments}={errno}")
}

/// Runs `touch MARKER` under ringfence that is itself started by `before`.
fn run(fence: &Fence, before: &[String], flags: &[&str]) -> Ended {
    let (inner, ledger) = fence.command(flags, &["touch", MARKER]);
    let whole: Vec<String> = before
        .iter()
        .cloned()
        .chain(std::iter::once(inner.get_program()).chain(inner.get_args()).map(|a| a.to_string_lossy().into_owned()))
        .collect();
    let mut command: Command = fence.world.command(&whole[0]);
    command.args(&whole[1..]);
    fence.ended(Said::from(fence.world.output(command)), ledger)
}

/// The run ended with 125 before the command, and names `cause`.
fn assert_refused(fence: &Fence, ended: &Ended, what: &str, cause: &str) {
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{what}: {ended}");
    assert!(ended.said.err.contains(cause), "{what}: {cause} is not named: {ended}");
    assert_eq!(fence.world.read(MARKER), None, "{what}: the command was started");
    if !ended.records.is_empty() {
        assert!(!ended.seal().started, "{what}: {ended}");
        assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{what}: {ended}");
    }
}

fn assert_started(fence: &Fence, ended: &Ended, what: &str) {
    assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(0), ""), "{what}: {ended}");
    assert!(fence.world.read(MARKER).is_some(), "{what}: no marker");
    assert_eq!(fence.as_root(&format!("rm {MARKER}")).code, Some(0));
}

/// Tries each case in a box of its own making and reports all that went wrong.
fn each<T>(cases: &[T], mut tried: impl FnMut(&T)) {
    let failed = cases
        .iter()
        .filter(|case| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tried(case))).is_err())
        .count();
    assert_eq!(failed, 0, "of {} cases", cases.len());
}

#[test]
fn a_call_that_the_host_refuses_stops_the_run() {
    let fence = Fence::new();
    assert_started(&fence, &run(&fence, &filtered(&[]), &POLICY), "a filter without rules");
    let before = survey(&fence);
    let cases = [
        ("mount", rule(libc::SYS_mount, &[], libc::EPERM), "mounts cannot be changed"),
        ("mount_setattr", rule(libc::SYS_mount_setattr, &[], libc::ENOSYS), "mounts cannot be changed"),
        ("open_tree", rule(libc::SYS_open_tree, &[], libc::ENOSYS), "mounts cannot be changed"),
        ("move_mount", rule(libc::SYS_move_mount, &[], libc::ENOSYS), "move_mount"),
        ("fsopen", rule(libc::SYS_fsopen, &[], libc::ENOSYS), "fsmount"),
        ("unshare", rule(libc::SYS_unshare, &[(0, libc::CLONE_NEWNS.into())], libc::EPERM), "mounts cannot be changed"),
        ("seccomp", rule(libc::SYS_seccomp, &[], libc::EINVAL), "seccomp"),
        ("setgroups", rule(libc::SYS_setgroups, &[], libc::EPERM), "setgroups"),
        ("capset", rule(libc::SYS_capset, &[], libc::EPERM), "capset"),
        ("close_range", rule(libc::SYS_close_range, &[], libc::ENOSYS), "close_range"),
        ("nftables", rule(libc::SYS_socket, &[(0, 16), (2, 12)], libc::EPROTONOSUPPORT), "netfilter socket"),
    ];
    each(&cases, |(what, rule, cause)| {
        assert_refused(&fence, &run(&fence, &filtered(std::slice::from_ref(rule)), &POLICY), what, cause);
        assert_left_nothing(&fence, &before, what);
    });
}

#[test]
fn a_call_that_only_says_it_succeeded_stops_the_run() {
    const PR_SET_NO_NEW_PRIVS: i64 = 38;
    const PR_CAPBSET_DROP: i64 = 24;
    let fence = Fence::new();
    assert_eq!(fence.as_root("mount --make-rshared /").code, Some(0));
    let before = survey(&fence);
    let said = |call, arguments: &[(u32, i64)]| rule(call, arguments, 0);
    let cases = [
        ("mount", said(libc::SYS_mount, &[])),
        ("mount_setattr", said(libc::SYS_mount_setattr, &[])),
        ("move_mount", said(libc::SYS_move_mount, &[])),
        ("unshare", said(libc::SYS_unshare, &[(0, libc::CLONE_NEWNS.into())])),
        ("setgroups", said(libc::SYS_setgroups, &[])),
        ("setresgid", said(libc::SYS_setresgid, &[])),
        ("setresuid", said(libc::SYS_setresuid, &[])),
        ("capset", said(libc::SYS_capset, &[])),
        ("no_new_privs", said(libc::SYS_prctl, &[(0, PR_SET_NO_NEW_PRIVS)])),
        ("bounding set", said(libc::SYS_prctl, &[(0, PR_CAPBSET_DROP)])),
        ("seccomp", said(libc::SYS_seccomp, &[])),
        ("close_range", said(libc::SYS_close_range, &[])),
        ("keyctl", said(libc::SYS_keyctl, &[])),
        ("landlock_restrict_self", said(libc::SYS_landlock_restrict_self, &[])),
        ("fchownat", said(libc::SYS_fchownat, &[])),
        ("mkdirat", said(libc::SYS_mkdirat, &[])),
    ];
    each(&cases, |(what, rule)| {
        // In a mount namespace of its own: what is wrongly done to the caller's mounts must not spoil the next case. It
        // takes part in propagation, and the caller has groups and inheritable capabilities, so that each call matters.
        let prefix = "unshare --mount --propagation slave setpriv --groups 4,27 --inh-caps +net_raw --";
        let before_run: Vec<String> =
            prefix.split(' ').map(str::to_owned).chain(filtered(std::slice::from_ref(rule))).collect();
        let ended = run(&fence, &before_run, &POLICY);
        println!("{what}: {}", ended.said.err.trim_end());
        assert_refused(&fence, &ended, what, "ringfence: ");
        assert_left_nothing(&fence, &before, what);
    });
}

#[test]
fn a_missing_capability_stops_the_run_by_its_name() {
    let fence = Fence::new();
    let before = survey(&fence);
    let without = |name: &str| ["setpriv", "--bounding-set", &format!("-{name}"), "--"].map(str::to_owned);
    let cases = [
        ("net_admin", "CAP_NET_ADMIN is missing"),
        ("sys_admin", "CAP_SYS_ADMIN is missing"),
        ("setpcap", "CAP_SETPCAP is missing"),
        ("setuid", "CAP_SETUID is missing"),
        ("setgid", "CAP_SETGID is missing"),
        ("chown", "CAP_CHOWN is missing"),
        ("kill", "CAP_KILL is missing"),
    ];
    each(&cases, |(name, cause)| {
        assert_refused(&fence, &run(&fence, &without(name), &POLICY), name, cause);
        assert_left_nothing(&fence, &before, name);
    });
}

#[test]
fn what_the_host_does_not_grant_the_command_is_noticed() {
    let fence = Fence::new();
    let probe = |ended: &Ended, id: &str| {
        let failed = ended.records.iter().any(|record| match &record.body {
            Body::Probe(probe) => probe.id == id && !probe.passed,
            _ => false,
        });
        assert!(failed, "{id}: {ended}");
    };
    // Where privilege is locked nobody is asked for keys.
    let milder = ["--policy", "non-root", "--rung", "full"];
    let refusals = [
        ("network.enablement.known-families", rule(libc::SYS_socket, &[(0, 2), (1, 2), (2, 0)], libc::EACCES), POLICY),
        ("privilege.enablement.own-keyring", rule(libc::SYS_keyctl, &[(0, 6)], libc::EINVAL), milder),
        ("privilege.enablement.ordinary-request", rule(libc::SYS_ioctl, &[(1, 0x5451)], libc::EACCES), POLICY),
    ];
    let before = survey(&fence);
    each(&refusals, |(id, rule, flags)| {
        let ended = run(&fence, &filtered(std::slice::from_ref(rule)), flags);
        assert_refused(&fence, &ended, id, "ringfence: probe ");
        probe(&ended, id);
        assert_left_nothing(&fence, &before, id);
    });
    let limited = run(&fence, &["prlimit", "--nproc=1:1"].map(str::to_owned), &POLICY);
    assert_refused(&fence, &limited, "nproc", "ringfence: probe ");
    probe(&limited, "privilege.enablement.fork");
    assert_left_nothing(&fence, &before, "nproc");

    assert_eq!(fence.as_root("chmod 0700 /").code, Some(0));
    let closed = run(&fence, &["env".to_owned()], &POLICY);
    assert_refused(&fence, &closed, "a closed root", "ringfence: probe ");
    probe(&closed, "filesystem.enablement.read");
    assert_eq!(fence.as_root("chmod 0755 /").code, Some(0));
}

#[test]
fn a_firewall_log_that_others_have_taken_stops_the_run() {
    let fence = Fence::new();
    let held = fence.world.inside().run(|| (0..128).map(|_| NfLog::bind("0123456789abcdef")).collect::<Vec<_>>());
    assert!(held.iter().all(Result::is_ok), "every group is taken");
    let before = survey(&fence);
    assert_refused(&fence, &run(&fence, &["env".to_owned()], &POLICY), "NFLOG", "no free NFLOG group");
    assert_left_nothing(&fence, &before, "NFLOG");
    drop(held);
    assert_started(&fence, &run(&fence, &["env".to_owned()], &POLICY), "the groups are free again");
}

#[test]
fn a_user_with_processes_is_refused() {
    let fence = Fence::new();
    let mut sleeper = fence.world.command("setpriv");
    let user = "echo tester:x:4321:4321::/home/tester:/bin/sh >> /etc/passwd; echo tester:x:4321: >> /etc/group";
    assert_eq!(fence.as_root(user).code, Some(0));
    sleeper.args(["--reuid", "4321", "--clear-groups", "sleep", "60"]);
    let mut child = fence.world.spawn(sleeper).expect("sleep starts");
    // setpriv has become the user by the time it has become sleep.
    let name = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&name).is_ok_and(|comm| comm.trim() != "sleep") {
        std::thread::yield_now();
    }
    let flags = ["--policy", "nist-high", "--user", "tester"];
    assert_refused(&fence, &run(&fence, &["env".to_owned()], &flags), "busy", "already has a process");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_started(&fence, &run(&fence, &["env".to_owned()], &flags), "the user is free");
}

#[test]
fn probes_leave_no_trace() {
    let fence = Fence::new();
    // The writable set as root outside sees it; times of the directories aside, in which the probes had files.
    let look = "find /app /workspace /tmp /dev/shm /root/.cache -printf '%p %y %m %U %G\n' | sort; \
                find /app /workspace /tmp /dev/shm -type f -printf '%T@ ' -exec sha256sum {} ';' | sort";
    let prepare = "mkdir -p /app/src && echo kept > /app/src/file && echo kept > /tmp/file && touch /workspace/file";
    assert_eq!(fence.as_root(prepare).code, Some(0));
    let before = fence.as_root(look);
    let inside = "ls -A /proc/fs; find /app /workspace /tmp /dev /run /var -name '*preflight*' 2>/dev/null; grep -c preflight /proc/net/unix; \
                  grep -c preflight /proc/keys; ls -A /app /workspace /tmp /dev/shm";
    let plain = fence.as_root(inside);
    let ended = fence.run(&POLICY, inside);
    assert_eq!(ended.said.out, plain.out, "{ended}");
    let after = fence.as_root(look);
    assert_eq!(before.out, after.out);
    assert!(before.out.contains("/app/src/file"), "live vector: {before}");
}

#[test]
fn the_ordinary_binary_leaves_no_step_out() {
    const VARIABLE: &str = "RINGFENCE_MUTATION";
    let binary = std::fs::read(common::tested::binary()).expect("the binary");
    let holds = |text: &str| binary.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("json-status-fd"), "live vector: the binary's own words are found");
    assert!(!holds(VARIABLE), "the binary is built with the feature `mutation`");

    let fence = Fence::new();
    let all = ringfence::mutation::STEPS.join(",");
    let (inner, ledger) = fence.command(&POLICY, &["sh", "-c", "id -u; id -G; echo x > /usr/x || echo refused"]);
    let mut command = fence.world.command(RINGFENCE);
    command.args(inner.get_args()).env(format!("{VARIABLE}_LEAVES_OUT"), all);
    let ended = fence.ended(Said::from(fence.world.output(command)), ledger);
    assert!(ended.said.out.ends_with("refused\n") && !ended.said.out.starts_with("0\n"), "{ended}");
    let probes = ended.records.iter().filter(|r| matches!(&r.body, Body::Probe(probe) if probe.passed)).count();
    assert!(probes > 40, "{ended}");
}
