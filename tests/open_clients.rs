//! Those who ask a session: many at once, at a terminal, killed, and those who may not.

mod common;
mod console;
mod living;
mod open;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, RINGFENCE};
use console::Console;
use living::{children, send, stage_of, until};
use nix::sys::signal::Signal;
use open::{Place, Session};
use rung::{RUNGS, Rung};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

/// Commands one after the other; a leak of a hundred bytes by each of them would show.
const ONE_AFTER_ANOTHER: usize = 10_000;

/// Our processes, by their ids: the descriptors of each, its threads, and its children that nobody has waited for.
fn held(session: &Session<'_>) -> BTreeMap<i32, (usize, usize, usize)> {
    let supervisor = session.supervisor();
    let mut ours = vec![supervisor, stage_of(supervisor)];
    ours.extend(children(supervisor));
    let entries = |path: String| std::fs::read_dir(path).map_or(0, Iterator::count);
    let held = |pid: i32| {
        let zombies = children(pid).into_iter().filter(|child| living::state(*child).as_deref() == Some("Z")).count();
        (entries(format!("/proc/{pid}/fd")), entries(format!("/proc/{pid}/task")), zombies)
    };
    ours.into_iter().map(|pid| (pid, held(pid))).collect()
}

/// Whether the supervisor has what it asks for only once a run lasts: notices of its ledger's directory.
fn watches(session: &Session<'_>) -> bool {
    let all = std::fs::read_dir(format!("/proc/{}/fd", session.supervisor())).expect("its descriptors");
    all.flatten().any(|one| std::fs::read_link(one.path()).is_ok_and(|to| to.ends_with("anon_inode:inotify")))
}

/// Resident memory of each in KiB (proc_pid_status(5), VmRSS).
fn memory(session: &Session<'_>) -> BTreeMap<i32, u64> {
    let rss = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a living process");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    };
    held(session).keys().map(|pid| (*pid, rss(*pid))).collect()
}

fn waited(mut child: Child) -> (Option<i32>, String, String) {
    drop(child.stdin.take());
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
    (child.wait().expect("wait").code(), out, err)
}

#[test]
fn a_hundred_at_once_have_their_own_stdio_and_status_and_leave_nothing() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    assert_eq!(session.bash("exit 3").code, Some(3));
    until("the watch to have begun", || watches(&session));
    let before = held(&session);
    let script = "read -r line; echo out $line; echo err $line >&2; exit $1";
    let mut started: Vec<Child> = (0..100)
        .map(|n: i32| session.start(session.command(&[], &["bash", "-c", script, "bash", &n.to_string()])))
        .collect();
    // All of them wait at once.
    until("all to run", || session.status()["commands"].as_array().is_some_and(|all| all.len() == 100));
    for (n, child) in started.iter_mut().enumerate() {
        writeln!(child.stdin.as_mut().expect("piped"), "{n}").expect("its input");
    }
    for (n, child) in started.into_iter().enumerate() {
        assert_eq!(waited(child), (Some(n as i32), format!("out {n}\n"), format!("err {n}\n")));
    }
    until("nothing to be held any more", || held(&session) == before);
    assert_eq!(session.status()["started"], 101);
    assert!(session.down().seal().complete);
}

#[test]
fn memory_stays_flat_over_many() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let many = |count: usize| {
        let mut bash = place.fence.world.command("bash");
        let script = "for ((n = 0; n < $1; n++)); do \"${@:2}\" || { echo failed; exit 1; }; done";
        bash.args(["-c", script, "bash", &count.to_string(), RINGFENCE, "exec", "--", "true"]);
        let said = place.output(bash);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{said}");
    };
    // Allocators and caches have had their first share by then.
    many(200);
    let (before, of_memory) = (held(&session), memory(&session));
    many(ONE_AFTER_ANOTHER);
    until("nothing to be held any more", || held(&session) == before);
    for (pid, now) in memory(&session) {
        let grown = now.saturating_sub(of_memory[&pid]);
        assert!(grown < 1024, "process {pid} has grown by {grown} KiB in {ONE_AFTER_ANOTHER} commands");
    }
    assert!(session.down().seal().complete);
}

#[test]
fn nobody_inside_reaches_the_supervisor() {
    for rung in RUNGS {
        let fence = Fence::new();
        let place = Place::new(&fence, rung);
        let session = place.up(&[]);
        let socket = format!("{}/default.sock", place.sockets());
        let ask = format!(
            "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('{socket}'); \
             s.send(b'\"Down\"'); print('answer', s.recv(4096)[:9])"
        );
        let refused = session.exec(&[], &["python3", "-c", &ask]);
        assert_ne!(refused.code, Some(0), "{rung:?}: {refused}");
        assert!(!refused.out.contains("answer"), "{rung:?}: {refused}");
        let gone = session.bash(&format!("rm -rf {0} 2>/dev/null; mv {0} /tmp/x 2>/dev/null; echo", place.sockets()));
        assert_eq!(gone.code, Some(0), "{gone}");
        // Nobody else either: the directory is its owner's alone.
        let other = fence.as_nobody(&format!("python3 -c \"{}\"", ask.replace('"', "\\\"")));
        assert!(other.err.contains("Permission denied"), "{rung:?}: {other}");
        // Another user who is let in to the socket by its modes is not answered.
        common::as_root(&fence, &format!("chmod 711 {}; chmod 666 {socket}", place.sockets()));
        let other = fence.as_nobody(&format!("python3 -c \"{}\"", ask.replace('"', "\\\"")));
        assert!(!other.out.contains("answer b'{"), "{rung:?}: {other}");
        common::as_root(&fence, &format!("chmod 700 {}; chmod 600 {socket}", place.sockets()));
        assert_eq!(session.bash("echo up").out, "up\n", "{rung:?}: it is still there");
        // The positive control: the very same question of the owner is answered.
        let mut python = fence.world.command("python3");
        python.args(["-c", &ask.replace("\\\"Down\\\"", "\\\"Status\\\"").replace("\"Down\"", "\"Status\"")]);
        let own = place.output(python);
        assert_eq!(own.out, "answer b'\"Status\"'\n", "{rung:?}: {own}");
        assert!(session.down().seal().complete);
    }
}

#[test]
fn where_nothing_else_keeps_a_command_from_it_it_is_not_answered() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let ledger = "/var/log/rungs/control.jsonl".to_owned();
    let said = place.said(&["up", "--policy", "control", "--ledger", &ledger]);
    let run = said.out.trim().strip_prefix("default ").unwrap_or_else(|| panic!("{said}")).to_owned();
    let session = Session { place: &place, name: "default".into(), run, ledger };
    let ask = "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect('/run/ringfence/default.sock'); print('connected')
s.send(b'\"Down\"'); print('answer', s.recv(4096))";
    let inside = session.exec(&[], &["python3", "-c", ask]);
    assert!(
        inside.out.starts_with("connected\n") && !inside.out.contains("answer b'{"),
        "the vector is live: {inside}"
    );
    // Nor is what it has left behind with another parent.
    let script = "(setsid python3 -c \"$1\" >/tmp/said 2>&1 &); sleep 1; cat /tmp/said; rm /tmp/said";
    let orphan = session.exec(&[], &["bash", "-c", script, "bash", ask]);
    assert!(orphan.out.contains("connected\n") && !orphan.out.contains("answer b'{"), "{orphan}");
    assert!(session.down().seal().complete);
}

#[test]
fn a_directory_of_others_is_refused_by_name() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Rootless);
    for (prepare, fault) in [
        (format!("install -d -m 0755 -o {} {}", place.user, place.sockets()), "its mode is 0755"),
        (format!("install -d -m 0700 -o {} {}", place.user + 1, place.sockets()), "it belongs to uid"),
        (format!("ln -s /tmp {}", place.sockets()), "it is no directory"),
    ] {
        common::as_root(&fence, &prepare);
        let said = place.output(place.up_command(&[]).0);
        assert_eq!((said.code, said.err.lines().count()), (Some(125), 1), "{said}");
        assert!(said.err.contains(fault) && said.err.contains("with mode 0700"), "{said}");
        common::as_root(&fence, &format!("rm -rf {}", place.sockets()));
    }
    let mut command = place.ringfence(&["status"]);
    command.env_remove("XDG_RUNTIME_DIR");
    let said = place.output(command);
    assert!(said.code == Some(125) && said.err.contains("XDG_RUNTIME_DIR is not set; accepted: "), "{said}");
}

#[test]
fn the_client_stands_for_the_command() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let traps = "trap 'echo term; exit 4' TERM; trap 'echo hup; exit 5' HUP; trap 'echo usr' USR1; echo ready; \
                 while :; do sleep 0.05; done";
    let begin = || {
        let mut child = session.start(session.command(&[], &["bash", "-c", traps]));
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        assert_eq!(line, "ready\n");
        (child, out)
    };
    for (signal, word, status) in [(Signal::SIGTERM, "term", 4), (Signal::SIGHUP, "hup", 5)] {
        let (mut child, mut out) = begin();
        send(child.id() as i32, Signal::SIGUSR1);
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        assert_eq!(line, "usr\n");
        send(child.id() as i32, signal);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("text");
        assert_eq!((rest.trim(), child.wait().expect("wait").code()), (word, Some(status)));
    }
    // Its death is a terminal's that is hung up.
    let (mut child, mut out) = begin();
    send(child.id() as i32, Signal::SIGKILL);
    child.wait().expect("wait");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "hup\n");
    until("its end", || session.status()["commands"] == serde_json::json!([]));
    // What has left its group has detached.
    let mut child = session.start(session.command(&[], &["bash", "-c", "setsid sleep 600 & echo $!; wait"]));
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut pid = String::new();
    out.read_line(&mut pid).expect("text");
    until("its own session", || living::stat(pid.trim().parse().expect("a pid")).is_some_and(|f| f[3] == pid.trim()));
    send(child.id() as i32, Signal::SIGKILL);
    child.wait().expect("wait");
    until("its end", || session.status()["commands"] == serde_json::json!([]));
    assert!(session.bash(&format!("kill -0 {} && echo lives", pid.trim())).out.contains("lives"));
    assert!(session.down().seal().complete);
    until("the end of all", || fence.world.processes().is_empty());
}

#[test]
fn an_inet_socket_as_stdio_is_refused() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let listens = "import socket, subprocess, sys; l = socket.create_server(('127.0.0.1', 0)); \
                   c = socket.create_connection(l.getsockname()); \
                   sys.exit(subprocess.run(sys.argv[1:], stdin=c).returncode)";
    let mut python = fence.world.command("python3");
    python.args(["-c", listens, RINGFENCE, "exec", "--", "true"]);
    let said = place.output(python);
    assert_eq!(said.code, Some(125), "{said}");
    assert!(said.err.contains("inherited descriptor 0 is an inet socket"), "{said}");
    assert!(session.down().seal().complete);
}

#[test]
fn a_terminal_is_the_commands_own() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let mut console = Console::shell(&fence);
    console.type_in("stty rows 33 cols 101\n");
    let script = "test -t 0 && tty && stty size && echo $TERM. && ps -o tpgid= -o pgid= -p $$ && exec bash --norc --noediting -i";
    console.type_in(&format!("TERM=vt220 {RINGFENCE} exec -t -- bash -c '{script}'; echo status=$?.\n"));
    console.see("/dev/pts/");
    console.see("33 101");
    console.see("vt220.");
    console.type_in("stty -echo; PS1=; echo in''side\n");
    console.see("inside");
    // Job control is the command's: the key interrupts its foreground job and nothing else.
    console.type_in("sleep 600; echo slept=$?.\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    console.type_in("\x03");
    console.type_in("echo after=$?.\n");
    console.see("after=130.");
    console.type_in("exit 9\n");
    console.see("status=9.");
    // The caller's terminal is as it was.
    console.type_in("stty -a | grep -o ' icanon'\n");
    console.see("icanon");
    console.end();
    // Without one at the caller's it is there all the same.
    let mut child = session.start(session.command(&["-t"], &["sh", "-c", "test -t 0 && cat"]));
    child.stdin.as_mut().expect("piped").write_all(b"typed\n").expect("its input");
    let (code, out, err) = waited(child);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("typed\r\n"), "{out}");
    assert!(session.down().seal().complete);
}
