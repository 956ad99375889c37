//! Rung `rootless`: an ordinary user on a dev box keeps identity, home and git, reaches admitted names by the proxy and
//! nothing else, and does not reach the user's other processes.

mod common;
mod dev_box;

use common::value;
use dev_box::Dev;
use ringfence::ledger::record::{Denial, Mechanism};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use world::address::{PUBLIC4, PUBLIC6, RESOLVER4};
use world::internet::{STRANGER, everywhere};

#[test]
fn identity_home_and_git_are_the_users_own_and_no_privilege_is_to_be_had() {
    let dev = Dev::new();
    let script = r#"
        echo "uid=$(id -u)"; echo "gid=$(id -g)"; echo "user=$USER"; echo "home=$HOME"; echo "pwd=$PWD"
        echo "email=$(git config user.email)"
        grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status | tr -d '\t' | tr : =
        echo two >> file; git add --all; git commit -qm two; git branch other; git status --short
        echo "status=$?"; touch made"#;
    let ended = dev.run(&[], script);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    for (key, expected) in [
        ("uid", "1000"),
        ("gid", "1000"),
        ("user", "dev"),
        ("home", "/home/dev"),
        ("pwd", "/home/dev/project"),
        ("email", "dev@box.test"),
        ("status", "0"),
        ("NoNewPrivs", "1"),
    ] {
        assert_eq!(ended.value(key), expected, "{key}: {ended}");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(ended.value(set), "0000000000000000", "{set}: {ended}");
    }
    let seen = "git log --format='%s by %an <%ae>' --stat; git branch --list other; stat -c '%u:%g %n' made file";
    let expected = "two by Dev <dev@box.test>\n\n file | 1 +\n 1 file changed, 1 insertion(+)\none by Dev <dev@box.test>\n\n \
                    file | 1 +\n 1 file changed, 1 insertion(+)\n  other\n1000:1000 made\n1000:1000 file\n";
    assert_eq!(dev.must(seen), expected, "the placeholders are in no commit");
    let start = ended.start();
    assert_eq!((start.rung.as_str(), start.uid, start.gid), ("rootless", 1000, 1000), "{ended}");
    assert_eq!(dev.fence.verify(&ended.ledger).code, Some(0), "{ended}");
    let mode = dev.must(&format!("stat -c %a:%u {} /home/dev/.local/state/ringfence", ended.ledger));
    assert_eq!(mode, "600:1000\n700:1000\n");
}

/// TCP and UDP to everywhere, a name by UDP and TCP, and families that no firewall sees; the error of each.
const DIRECT: &str = r#"
python3 - <<'END'
import errno, socket
def tried(name, family, kind, act, protocol=0):
    try:
        s = socket.socket(family, kind, protocol)
        s.settimeout(10)
        act(s)
        said = "ok"
    except OSError as cause:
        said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{name}={said}")
tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
for name, family, host in ("4", socket.AF_INET, "11.22.33.44"), ("6", socket.AF_INET6, "PUBLIC6"):
    tried("tcp" + name, family, tcp, lambda s: s.connect((host, 4444)))
    tried("udp" + name, family, udp, lambda s: s.sendto(b"x", (host, 4444)))
    tried("quic" + name, family, udp, lambda s: (s.connect((host, 443)), s.send(b"x")))
tried("dns-udp", socket.AF_INET, udp, lambda s: s.sendto(b"x", ("RESOLVER", 53)))
tried("dns-tcp", socket.AF_INET, tcp, lambda s: s.connect(("RESOLVER", 53)))
tried("metadata", socket.AF_INET, tcp, lambda s: s.connect(("169.254.169.254", 80)))
tried("private", socket.AF_INET, tcp, lambda s: s.connect(("10.9.8.7", 80)))
tried("vsock", 40, tcp, lambda s: None)
tried("packet", 17, socket.SOCK_RAW, lambda s: None)
tried("own", socket.AF_INET, tcp, lambda s: (s.bind(("127.0.0.1", 0)), s.listen(), socket.create_connection(s.getsockname())))
END"#;

/// What of a denial must be the same on every rung with a firewall.
fn kind(denial: &Denial) -> String {
    let object = &denial.object;
    format!("{} {} {:?} {:?} {:?}", denial.operation, denial.rule, object.addrs, object.port, denial.errno)
}

#[test]
fn direct_egress_meets_the_errors_and_leaves_the_records_of_rung_full() {
    let dev = Dev::new();
    let (tcp, udp) = everywhere(&dev.fence.world, 4444).expect("sinks");
    let direct = DIRECT.replace("RESOLVER", &RESOLVER4.to_string()).replace("PUBLIC6", &PUBLIC6.to_string());
    let live = dev.said(&direct);
    for name in ["tcp4", "tcp6", "udp4", "udp6", "own"] {
        assert_eq!(value(&live, name), "ok", "live: {live}");
    }
    dev.await_true("the sinks are live", || tcp.arrivals().len() == 2 && udp.arrivals().len() == 2);
    let before = dev.fence.world.packets().len();

    let ended = dev.run(&[], &direct);
    let firewall = |denials: Vec<&Denial>| -> BTreeSet<String> {
        denials.into_iter().filter(|d| d.mechanism == Mechanism::Firewall).map(kind).collect()
    };
    let full = dev.fence.run(&["--policy", "nist-high"], &direct);
    assert_eq!((full.start().rung.as_str(), ended.start().rung.as_str()), ("full", "rootless"));
    assert_eq!(ended.said.out, full.said.out, "{ended}{full}");
    assert_eq!(ended.value("own"), "ok", "{ended}");
    assert_eq!((ended.value("tcp4"), ended.value("udp6")), ("ECONNREFUSED", "EPERM"), "{ended}");
    assert_eq!(firewall(ended.denials()), firewall(full.denials()), "{ended}{full}");
    assert!(ended.seal().complete, "{ended}");
    let of_python = ended
        .denials()
        .into_iter()
        .filter(|denial| denial.subject.comm.as_deref() == Some("python3") && denial.mechanism == Mechanism::Firewall);
    assert_eq!(of_python.count(), firewall(ended.denials()).len(), "each has its subject: {ended}");
    assert_eq!((tcp.arrivals().len(), udp.arrivals().len()), (2, 2), "{ended}");
    let sent: Vec<_> = dev.fence.world.packets().into_iter().skip(before).collect();
    assert!(sent.is_empty(), "{sent:?}");
    assert!(dev.fence.world.packets_to(PUBLIC4).len() + dev.fence.world.packets_to(PUBLIC6).len() > 0, "live");
}

#[test]
fn an_admitted_name_is_fetched_and_another_is_refused_by_the_proxy_outside() {
    let dev = Dev::new();
    let script = format!(
        "curl -sS http://pypi.org/ && curl -sS https://pypi.org/; curl -s -o /dev/null -w 'refused=%{{http_connect}}\\n' https://{STRANGER}/"
    );
    let ended = dev.run(&[], &script);
    assert!(ended.said.out.starts_with(&"hello from pypi.org\n".repeat(2)), "{ended}");
    assert_eq!(ended.value("refused"), "403", "{ended}");
    let internet = &dev.fence.internet;
    let reached = |one: &world::Origin, other: &world::Origin| one.requests().len() + other.requests().len();
    assert_eq!((reached(&internet.http, &internet.http6), reached(&internet.https, &internet.https6)), (1, 1));
    assert_eq!(internet.stranger_https.requests().len(), 0);
    let denials = ended.denials_of(STRANGER);
    assert_eq!(denials.len(), 1, "{ended}");
    assert_eq!(denials[0].subject.comm.as_deref(), Some("curl"), "the socket is found in its own namespace: {ended}");
}

#[test]
fn the_users_other_processes_and_ours_are_out_of_reach() {
    let dev = Dev::new();
    let mut other = dev.fence.world.command("sleep");
    other.uid(dev_box::UID).gid(dev_box::UID).arg("600");
    let mut other = dev.fence.world.spawn(other).expect("sleep starts");
    let act = r#"
python3 - "$@" <<'END'
import ctypes, errno, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_DETACH, PTRACE_INTERRUPT = 0x4206, 17, 0x4207
def raw(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def seize(pid):
    raw(libc.ptrace(PTRACE_SEIZE, pid, 0, 0))
    raw(libc.ptrace(PTRACE_INTERRUPT, pid, 0, 0))
    os.waitpid(pid, 0x40000000)
    raw(libc.ptrace(PTRACE_DETACH, pid, 0, 0))
def tried(name, act):
    try:
        act()
        said = "ok"
    except OSError as cause:
        said = errno.errorcode[cause.errno]
    print(f"{name}={said}")
for name, pid in (pair.split(":") for pair in sys.argv[1:]):
    pid = int(pid)
    tried(name + "-signal", lambda: os.kill(pid, signal.SIGCONT))
    tried(name + "-trace", lambda: seize(pid))
    tried(name + "-memory", lambda: open(f"/proc/{pid}/mem", "rb").close())
    tried(name + "-environment", lambda: open(f"/proc/{pid}/environ", "rb").read())
    tried(name + "-descriptors", lambda: os.readlink(f"/proc/{pid}/fd/0"))
    tried(name + "-limits", lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)))
END"#;
    let outside = format!("set -- other:{}; {act}", other.id());
    let live = dev.said(&outside);
    for what in ["signal", "trace", "memory", "environment", "descriptors", "limits"] {
        assert_eq!(value(&live, &format!("other-{what}")), "ok", "live: {live}");
    }
    // Every process of ours that this user has, seen from the host: the supervisor, the stage, the observer, the proxy.
    let mut run = dev.live(&["--publish", "3000"], &format!("echo ready; read -r pids; set -- $pids; {act}"));
    assert_eq!(run.line(), "ready");
    let ours = dev.ours(&run);
    assert_eq!(ours.len(), 5, "{ours:?}");
    let pids: Vec<String> = ours.iter().enumerate().map(|(n, pid)| format!("ours{n}:{pid}")).collect();
    run.tell(&format!("other:{} {}", other.id(), pids.join(" ")));
    let said = run.end();
    let names = (0..ours.len()).map(|n| format!("ours{n}")).chain(["other".to_owned()]);
    for name in names {
        for (what, errno) in [
            ("signal", "EPERM"),
            ("trace", "EPERM"),
            ("memory", "EACCES"),
            ("environment", "EACCES"),
            ("descriptors", "EACCES"),
            ("limits", "EPERM"),
        ] {
            assert_eq!(value(&said, &format!("{name}-{what}")), errno, "{name}-{what}: {said}");
        }
    }
    other.kill().and_then(|()| other.wait()).expect("it still lives");
}

#[test]
fn the_root_and_the_whole_home_are_no_workspace() {
    let dev = Dev::new();
    let marker = "touch /tmp/started";
    for (before, flags) in [
        ("cd /;", &[][..]),
        ("cd /home;", &[]),
        ("cd /home/dev;", &[]),
        ("", &["--workspace", "/home/dev"]),
        ("", &["--workspace", "~"]),
        ("", &["--workspace", "/home"]),
    ] {
        let ended = dev.run_after(before, flags, marker);
        assert_eq!(ended.said.code, Some(125), "{before} {flags:?}: {ended}");
        assert!(ended.said.err.contains("holds the whole home"), "{before} {flags:?}: {ended}");
    }
    assert!(dev.fence.world.read("/tmp/started").is_none());
    let elsewhere = dev.run_after("cd /usr/share;", &[], "pwd; touch /usr/share/x 2>&1");
    assert_eq!(elsewhere.said.code, Some(1), "{elsewhere}");
    assert!(elsewhere.said.out.starts_with("/usr/share\n"), "what the user may not write is no workspace: {elsewhere}");
    let ended = dev.run_after("cd /;", &["--workspace", "~/project"], marker);
    assert_eq!((ended.said.code, dev.fence.world.read("/tmp/started")), (Some(0), Some(Vec::new())), "live: {ended}");
}

#[test]
fn policy_program_and_record_may_lie_in_home_and_project_and_are_covered() {
    let dev = Dev::new();
    let policy = "extends = \"nist-high\"\nallow-host = [\"stranger.example.org:80\"]\n";
    dev.fence.world.write("/home/dev/project/conf/policy.toml", policy, 0o644);
    dev.fence.world.install(&common::tested::binary(), "/home/dev/.local/bin/ringfence");
    common::as_root(&dev.fence, "chown -R 1000:1000 /home/dev; chmod -R g+w /home/dev/project");
    let files = "conf/policy.toml conf/record.jsonl /home/dev/.local/bin/ringfence";
    let script = format!(
        "for file in {files}; do cat $file; echo evil > $file; rm -f $file; mv $file x; chmod 777 $file; done
         mv conf y; mv ~/.local/bin ~/.local/z; mv ~/.local/state ~/.local/z; ls ~/.local/state/ringfence; echo end"
    );
    let flags = ["--policy", "conf/policy.toml", "--ledger", "conf/record.jsonl"];
    let mut command = dev.ringfence("cp /home/dev/.local/bin/ringfence /tmp/before;", &flags, &script);
    let arguments: Vec<_> = command.get_args().map(|a| a.to_owned()).collect();
    let replaced = arguments
        .iter()
        .map(|a| if a == common::RINGFENCE { "/home/dev/.local/bin/ringfence".into() } else { a.clone() });
    let replaced: Vec<std::ffi::OsString> = replaced.collect();
    let mut own = dev.fence.world.command("bash");
    own.uid(dev_box::UID).gid(dev_box::UID).env("HOME", "/home/dev").args(replaced);
    std::mem::swap(&mut command, &mut own);
    let said = world::Said::from(dev.fence.world.output(command));
    assert_eq!((said.code, said.out.as_str()), (Some(0), "end\n"), "{said}");
    assert_eq!(dev.must("cat conf/policy.toml"), policy);
    assert_eq!(dev.must("cmp /tmp/before ~/.local/bin/ringfence && echo same"), "same\n");
    assert_eq!(dev.fence.verify("/home/dev/project/conf/record.jsonl").code, Some(0));
}

#[test]
fn what_only_this_rung_has_is_refused_elsewhere_by_name() {
    let dev = Dev::new();
    for (flags, named) in [
        (&["--publish", "3000"][..], "publish 127.0.0.1:3000"),
        (&["--socket", "/run/x"], "socket /run/x"),
        (&["--protect", "x"], "protect x"),
    ] {
        let ended =
            dev.fence.run(&[&["--policy", "nist-high", "--rung", "full"], flags].concat(), "touch /tmp/started");
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains(named), "{ended}");
    }
    let ended = dev.run(&["--rung", "full"], "touch /tmp/started");
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains("full: it needs root"), "{ended}");
    assert!(dev.fence.world.read("/tmp/started").is_none());
}

#[test]
fn the_supervisors_death_ends_every_process_of_the_sandbox() {
    let dev = Dev::new();
    // A number of this test's own, for tests share the machine's processes.
    let own = std::process::id();
    let script = format!("(setsid sleep 1{own} & exec setsid sleep 2{own}) & sleep 3{own} & echo ready; wait");
    let mut run = dev.live(&["--publish", "3000"], &script);
    assert_eq!(run.line(), "ready");
    let ours = dev.ours(&run);
    let living = || dev.fence.as_root(&format!("pgrep -u 1000 -f '^sleep [123]{own}$'")).out.lines().count();
    let ours_living = || ours.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).count();
    dev.await_true("live", || living() == 3 && ours_living() == 5);
    run.child.kill().expect("the supervisor lives");
    run.child.wait().expect("it has ended");
    dev.await_true("all are ended", || living() == 0 && ours_living() == 0);
}
