//! A hostile command, and what it leaves for the runs after it. Each attack is shown to work where nothing holds it.

mod common;

use common::{Fence, own_user, value};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringfence::ledger::record::Body;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use world::World;
use world::internet::STRANGER;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
const ATTEMPTS: &str = "/usr/bin/python3 /usr/local/lib/escape.py";

fn fence() -> Fence {
    let fence = Fence::new();
    let attempts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/escape.py");
    fence.world.install(&attempts, "/usr/local/lib/escape.py");
    // Mounts with exchanged ids, so that runs side by side share the workspaces.
    for place in ["/app", "/workspace"] {
        fence.world.mount_memory(place).expect("a file system in memory");
    }
    fence
}

/// A process of the box that has said its first line.
struct Talking {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    first: String,
}

fn talking(world: &World, mut command: Command) -> Talking {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = world.spawn(command).expect("start");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    Talking { child, out, first: first.trim().to_owned() }
}

impl Talking {
    /// Closes its input, upon which it ends.
    fn end(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        self.out.read_to_string(&mut String::new()).expect("the rest");
        self.child.wait().expect("wait").code()
    }
}

#[test]
fn a_proxy_serves_its_own_run_alone() {
    let fence = fence();
    let flags = [&FLAGS[..], &["--allow-host", STRANGER]].concat();
    let (command, ledger) = fence.command(&flags, &["bash", "-c", "echo $HTTP_PROXY; read end"]);
    let other = talking(&fence.world, command);
    let fetch = |name: &str, flags: &str| {
        format!("echo \"{name}=$(curl -sS -m 5 -o /dev/null -w '%{{http_code}}' {flags} http://{STRANGER}/ 2>&-)\"")
    };
    let by_other = fetch("by_other", &format!("-x {}", other.first));
    assert_eq!(value(&fence.as_root(&by_other), "by_other"), "200", "the proxy serves");

    let ended = fence.run(&FLAGS, &[by_other.as_str(), &fetch("by_own", "")].join("\n"));
    assert_eq!((ended.value("by_other"), ended.value("by_own")), ("000", "403"), "{ended}");
    let port: u16 = other.first.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let refused: Vec<_> = ended.denials().into_iter().filter(|denial| denial.object.port == Some(port)).collect();
    assert_eq!(refused.len(), 1, "the attempt is on the record of who made it: {ended}");
    assert_eq!(ended.denials().len(), 2, "{ended}");

    // Nor does a user whom no wall holds stand in the other run's record.
    let said = fence.as_nobody(&by_other.replace(STRANGER, "never.example.org"));
    assert_eq!(value(&said, "by_other"), "000", "{said}");
    let said = world::Said { code: other.end(), out: String::new(), err: String::new() };
    let ended = fence.ended(said, ledger);
    assert!(ended.denials().is_empty() && ended.seal().complete, "{ended}");
}

#[test]
fn names_that_a_command_squats_hinder_no_other_run() {
    let fence = fence();
    let (command, _) = fence.command(&FLAGS, &["bash", "-c", &format!("exec {ATTEMPTS} squat")]);
    let squatter = talking(&fence.world, command);
    let held: usize = squatter.first.strip_prefix("held=").and_then(|held| held.parse().ok()).expect("a count");
    assert!(held > 1900, "the names are there to be had: {held}");
    let ended = fence.run(&FLAGS, "echo ran=$(id -u)");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(ended.value("ran"), ended.start().uid.to_string(), "{ended}");
    assert_eq!(squatter.end(), Some(0));
}

#[test]
fn one_user_has_one_run() {
    let fence = fence();
    let user = format!("{0}:{0}", own_user());
    let flags = [&FLAGS[..], &["--user", &user]].concat();
    let (command, _) = fence.command(&flags, &["bash", "-c", "echo runs; read end; true"]);
    let first = talking(&fence.world, command);
    let second = fence.run(&flags, "echo ran");
    assert_eq!((second.said.code, second.said.out.as_str()), (Some(125), ""), "{second}");
    assert_eq!(first.end(), Some(0));
    let third = fence.run(&flags, "echo ran");
    assert_eq!((third.said.code, third.said.out.as_str()), (Some(0), "ran\n"), "{third}");
}

#[test]
fn what_holds_a_read_only_path_cannot_be_moved_away() {
    let fence = fence();
    let user = format!("{0}:{0}", own_user());
    let prepare = format!("mkdir -p /app/a/b/kept && echo own > /app/a/b/kept/file && chown -R {user} /app");
    assert_eq!(fence.as_root(&prepare).code, Some(0));
    let exchange = "for d in /app/a /app/a/b /app/a/b/kept; do mv $d $d.away && mkdir -p /app/a/b/kept && \
                    echo other > /app/a/b/kept/file; done 2>&1; cat /app/a/b/kept/file";
    let said = fence.as_nobody(&format!("cp -r /app /tmp/live && {}", exchange.replace("/app", "/tmp/live")));
    assert_eq!(said.out.lines().last(), Some("other"), "it is live without ringfence: {said}");
    let flags = [&FLAGS[..], &["--user", &user, "--read-only", "/app/a/b/kept"]].concat();
    let ended = fence.run(&flags, &format!("{exchange}; echo new > /app/a/b/new && cat /app/a/b/new"));
    let lines: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(lines[3..], ["own", "new"], "{ended}");
    assert!(lines[..3].iter().all(|line| line.ends_with("Device or resource busy")), "{ended}");
    assert_eq!(fence.world.read("/app/a/b/kept/file"), Some(b"own\n".to_vec()));
}

#[test]
fn a_tree_of_any_depth_is_put_back() {
    // The overlay's own ownership is changed, that of the file system in memory is mapped.
    let fence = Fence::new();
    let attempts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/escape.py");
    fence.world.install(&attempts, "/usr/local/lib/escape.py");
    fence.world.mount_memory("/app").expect("a file system in memory");
    for (place, how) in [("/workspace", "changed"), ("/app", "idmapped")] {
        let ledger = format!("/var/log/ringfence/deep-{how}.jsonl");
        let run = format!(
            "ulimit -n 256; exec {} run --policy nist-high --ledger {ledger} -- {ATTEMPTS} deep {place} 1500",
            common::RINGFENCE
        );
        let ended = fence.ended(fence.as_root(&run), ledger);
        assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "made\n"), "{ended}");
        assert_eq!(ended.start().workspaces[place], how, "{ended}");
        let said = fence.as_root(&format!("{ATTEMPTS} bottom {place}"));
        assert_eq!((value(&said, "owners"), value(&said, "program")), ("[0]", "0 755"), "{said}");
        let next = fence.run(&FLAGS, "echo ran");
        assert_eq!((next.said.code, next.said.out.as_str()), (Some(0), "ran\n"), "{next}");
    }
}

#[test]
fn what_a_command_puts_in_the_way_in_its_home_hinders_no_later_run() {
    let fence = fence();
    let user = format!("{0}:{0}", own_user());
    let flags = [&FLAGS[..], &["--user", &user]].concat();
    let home = fence
        .run(&flags, "cd && rm -r .local/bin .local/share && ln -s /etc .local/bin && echo x > .local/share && pwd");
    assert_eq!(home.said.code, Some(0), "{home}");
    let before = fence.as_root("stat -c '%u %g %a' /etc").out;
    let ended = fence.run(&flags, "cd && readlink .local/bin && cat .local/share");
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "/etc\nx\n"), "{ended}");
    assert_eq!(fence.as_root("stat -c '%u %g %a' /etc").out, before, "the link was not followed");
}

#[test]
fn keys_are_neither_shared_nor_asked_for() {
    let fence = fence();
    let said = fence.as_nobody(&format!("{ATTEMPTS} keys"));
    assert_eq!((value(&said, "add_key"), value(&said, "keyctl")), ("ok", "ok"), "live without ringfence: {said}");
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} keys"));
    for name in ["add_key", "request_key", "keyctl"] {
        assert_eq!(ended.value(name), "ENOSYS", "{name}: {ended}");
    }
}

#[test]
fn no_daemon_on_a_socket_resolves_names_for_the_command() {
    const SOCKETS: &str =
        "/run/systemd/resolve/io.systemd.Resolve /run/dbus/system_bus_socket /run/nscd/socket /run/avahi-daemon/socket";
    let fence = fence();
    let mut command = fence.world.command("bash");
    command.args(["-c", &format!("exec {ATTEMPTS} broker {SOCKETS}")]);
    let mut brokers = talking(&fence.world, command);
    assert_eq!(brokers.first, "ready");
    let said = fence.as_nobody(&format!("{ATTEMPTS} ask asked-live.example.org {SOCKETS}"));
    for path in SOCKETS.split(' ') {
        assert_eq!(value(&said, path), "ok", "live without ringfence: {said}");
    }
    assert!(!fence.internet.resolver.questions_about("asked-live.example.org").is_empty());
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} ask secret.example.org {SOCKETS}"));
    for path in SOCKETS.split(' ') {
        assert_eq!(ended.value(path), "EACCES", "{path}: {ended}");
    }
    assert!(fence.internet.resolver.questions_about("secret.example.org").is_empty(), "{ended}");
    brokers.child.kill().and_then(|()| brokers.child.wait()).expect("end the brokers");
}

#[test]
fn a_flood_of_refusals_keeps_the_supervisor_from_nothing() {
    let fence = fence();
    let flags = [&FLAGS[..], &["--leftovers", "kill"]].concat();
    let (command, ledger) = fence.command(&flags, &["bash", "-c", &format!("exec {ATTEMPTS} flood")]);
    let mut flood = talking(&fence.world, command);
    assert_eq!(flood.first, "flooding");
    // Records are written while it lasts.
    let size = || fence.world.read(&ledger).map_or(0, |bytes| bytes.len());
    let begun = size();
    let deadline = Instant::now() + Duration::from_secs(20);
    while size() < begun + 100_000 {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::yield_now();
    }
    kill(Pid::from_raw(flood.child.id() as i32), Signal::SIGTERM).expect("TERM to the supervisor");
    let deadline = Instant::now() + Duration::from_secs(40);
    let status = loop {
        match flood.child.try_wait().expect("wait") {
            Some(status) => break status,
            None => assert!(Instant::now() < deadline, "the signal is not passed on"),
        }
        std::thread::yield_now();
    };
    let said = world::Said { code: status.code(), out: String::new(), err: String::new() };
    let ended = fence.ended(said, ledger);
    assert_eq!((ended.said.code, ended.seal().exit_code), (Some(0), Some(0)), "the command has taken the signal");
    // What the log could not hold is counted: the firewall's own counters are held against it.
    let gaps = ended.records.iter().any(|record| matches!(record.body, Body::Gap(_)));
    assert_eq!(ended.seal().complete, !gaps);
    assert!(!ended.denials().is_empty());
}
