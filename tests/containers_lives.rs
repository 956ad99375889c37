//! How a run in a container begins and ends: as the first process, as a process among others, on the engine's signals.

mod attempts;
mod common;
mod engine;
mod living;

use common::RINGFENCE;
use engine::cell::{Brief, Cell, outcomes, session};
use engine::images::{SESSION, Tree};
use living::{Run, until};
use ringfence::ledger::record::Outcome;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::Stdio;
use world::Said;

/// The ways of running a container that differ in what ringfence may use there.
const RUNGS: [(&str, &[&str]); 3] = [
    ("full", &["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "apparmor=unconfined"]),
    ("container", &[]),
    ("bare", &["--user", "1000", "--cap-drop", "all", "--security-opt", "no-new-privileges"]),
];

/// `docker run` of a cell, of which the test reads what it says line by line.
fn attached(cell: &Cell<'_>, command: &[&str]) -> Run {
    let arguments = cell.arguments(&[], command);
    let docker = cell.engine.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    Run::of(&cell.engine.fence, docker, cell.outside("ledger", "run.jsonl"))
}

/// Into a container that lives, by exec, as harnesses do: the run ends, and the container lives on.
#[test]
fn by_exec_into_a_living_container() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Debian, name: rung, docker, flags: &[] };
        let said = cell.docker(&["--detach"], &[SESSION, "wait"]);
        assert_eq!(said.code, Some(0), "{said}");
        let before = engine.reached();
        let ended = cell.ended(engine.docker(&[&["exec", rung], cell.fenced(&session()).as_slice()].concat()));
        cell.is_protected(rung, &ended, before);
        assert_eq!(engine.programs(rung), ["session"], "{rung}: what is left is the container's first process");
    }
}

/// Harnesses enter a container many times, at the same time too: no run reaches into another, of the same user either.
#[test]
fn runs_at_the_same_time_are_apart() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Scratch, name: rung, docker, flags: &[] };
        assert_eq!(cell.docker(&["--detach"], &[SESSION, "wait"]).code, Some(0));
        let waiting = cell.fenced(&[SESSION, "mark", "/app/started", "await", "/app/end", "end", "5"]);
        let docker = engine.command(&[&["exec", rung], waiting.as_slice()].concat());
        let mut one = Run::of(&engine.fence, docker, cell.outside("ledger", "run.jsonl"));
        assert_eq!(one.line(), "mark ok");
        // It signals whatever it can, and then lets the other one go on.
        let acts = [SESSION, "privilege", "mark", "/app/end"];
        let second = [&[RINGFENCE, "run", "--ledger", "/ledger/second.jsonl", "--"], &acts[..]].concat();
        let second = engine.docker(&[&["exec", rung], second.as_slice()].concat());
        assert_eq!(second.code, Some(0), "{rung}: {second}");
        assert_eq!(one.status().code(), Some(5), "{rung}: {second}");
        let one = cell.ended(Said { code: Some(5), out: String::new(), err: String::new() });
        let second = engine.fence.ended(second, cell.outside("ledger", "second.jsonl"));
        for ended in [one, second] {
            assert_eq!(ended.start().rung, rung);
            assert!(ended.seal().complete, "{rung}: {}", Brief(&ended));
        }
    }
}

/// `docker stop` sends SIGTERM to the first process: the command hears it, what it left behind is ended, the ledger is sealed.
#[test]
fn stopped_by_the_engine() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Scratch, name: rung, docker, flags: &[] };
        let mut run = attached(&cell, &cell.fenced(&[SESSION, "mark", "/app/started", "leave", "/app/left", "wait"]));
        assert_eq!((run.line(), run.line()), ("mark ok".into(), "await ok".into()));
        assert!(engine.programs(rung).iter().filter(|name| *name == "session").count() == 2, "{rung}");
        engine.done(&["stop", "--time", "20", rung]);
        let status = run.status();
        let ended = cell.ended(Said { code: status.code(), out: String::new(), err: String::new() });
        let shown = Brief(&ended);
        // 128 and 15; a container that has to be killed says 137.
        assert_eq!(engine.done(&["inspect", "--format", "{{.State.ExitCode}}", rung]), "143", "{rung}: {shown}");
        let seal = ended.seal();
        assert_eq!(
            (seal.outcome, seal.exit_code, seal.complete),
            (Outcome::Signaled, Some(143), true),
            "{rung}: {shown}"
        );
        let verified = engine.fence.verify(&ended.ledger);
        assert_eq!(verified.code, Some(0), "{rung}: {verified}");
    }
}

/// Beside other processes of the container, SIGTERM to ringfence ends the whole tree and nothing else.
#[test]
fn ended_by_a_signal_beside_other_processes() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Debian, name: rung, docker, flags: &["--leftovers", "kill"] };
        assert_eq!(cell.docker(&["--detach"], &[SESSION, "wait"]).code, Some(0));
        let command = [SESSION, "mark", "/app/started", "leave", "/app/left", "wait"];
        // The shell says its number and becomes ringfence.
        let script = ["bash", "-c", "echo $$; exec \"$@\"", "bash"];
        let docker = engine.command(&[&["exec", rung], &script[..], cell.fenced(&command).as_slice()].concat());
        let mut run = Run::of(&engine.fence, docker, cell.outside("ledger", "run.jsonl"));
        let pid = run.line();
        assert_eq!((run.line(), run.line()), ("mark ok".into(), "await ok".into()), "{rung}");
        engine.done(&["exec", rung, "bash", "-c", &format!("kill -TERM {pid}")]);
        let status = run.status();
        assert_eq!(status.code(), Some(143), "{rung}");
        let ended = cell.ended(Said { code: status.code(), out: String::new(), err: String::new() });
        assert!(ended.seal().complete, "{rung}: {}", Brief(&ended));
        assert_eq!(engine.programs(rung), ["session"], "{rung}: what is left is the container's first process");
    }
}

/// Killed beside other processes, ringfence leaves no egress and no way to write behind, whoever lives on.
#[test]
fn killed_it_leaves_nothing_open() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Debian, name: rung, docker, flags: &[] };
        assert_eq!(cell.docker(&["--detach"], &[SESSION, "wait"]).code, Some(0));
        let later = [&[SESSION, "mark", "/app/started", "await", "/app/go"], &session()[3..]].concat();
        let script = ["bash", "-c", "echo $$; exec \"$@\"", "bash"];
        let docker = engine.command(&[&["exec", rung], &script[..], cell.fenced(&later).as_slice()].concat());
        let mut run = Run::of(&engine.fence, docker, cell.outside("ledger", "run.jsonl"));
        let pid = run.line();
        assert_eq!(run.line(), "mark ok", "{rung}");
        let before = engine.reached();
        engine.done(&["exec", rung, "bash", "-c", &format!("kill -KILL {pid}")]);
        assert_eq!(run.status().code(), Some(137), "{rung}");
        engine.fence.world.write(&cell.outside("app", "go"), "", 0o644);
        until("whatever lived on has ended", || engine.programs(rung) == ["session"]);
        assert_eq!(engine.reached(), before, "{rung}");
        let changes = cell.changes();
        assert!(!changes.iter().any(|change| change.contains("/usr")), "{rung}: {changes:?}");
        let verified = engine.fence.verify(&cell.outside("ledger", "run.jsonl"));
        assert_eq!(verified.code, Some(1), "{rung}: an end that is missing is found: {verified}");
    }
}

/// A server of the command's answers on the container's loopback, as a grader's exec asks for it. From elsewhere it is reached
/// where the firewall holds the command, and not where its sockets live on loopback (docs/rungs.md).
#[test]
fn servers_of_the_commands_answer_on_loopback() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Debian, name: rung, docker, flags: &[] };
        let mut run = attached(&cell, &cell.fenced(&[SESSION, "serve", "8000"]));
        assert_eq!(run.line(), "serve ok", "{rung}");
        let ask = ["exec", rung, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8000; cat <&3"];
        let said = engine.docker(&ask);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "served\n"), "{rung}: {said}");
        let address = engine.done(&["inspect", "--format", "{{.NetworkSettings.IPAddress}}", rung]);
        let from_the_bridge = engine
            .fence
            .world
            .inside()
            .run(move || TcpStream::connect((address.as_str(), 8000)).map(drop).map_err(|cause| cause.kind()));
        let expected = if rung == "full" { Ok(()) } else { Err(ErrorKind::ConnectionRefused) };
        assert_eq!(from_the_bridge, expected, "{rung}");
        engine.done(&["stop", "--time", "20", rung]);
        run.status();
    }
}

/// The first process of a container inherits every orphan; a command's are reaped while it runs.
#[test]
fn the_first_process_reaps_orphans() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Scratch);
    let live = Cell { engine: &engine, tree: Tree::Scratch, name: "live", docker: &[], flags: &[] };
    let said = live.docker(&[], &[SESSION, "orphans", "20", "zombies", "20"]);
    assert_eq!(said.out, "orphans ok\nzombies 20 alive 0\n", "a first process that does not reap: {said}");
    for (rung, docker) in RUNGS {
        let cell = Cell { engine: &engine, tree: Tree::Scratch, name: rung, docker, flags: &[] };
        let ended = cell.run(&[SESSION, "orphans", "20", "zombies", "0"]);
        assert_eq!(ended.said.out, "orphans ok\nzombies 0 alive 0\n", "{rung}: {}", Brief(&ended));
        assert_eq!(ended.start().host["pid_1"], true, "{rung}");
    }
}

/// The container's status is the command's, and the status line tells whose it is.
#[test]
fn statuses_are_passed_on() {
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    for (rung, docker) in RUNGS {
        for (name, command, code, outcome) in [
            ("exits", &[SESSION, "end", "7"][..], 7, "exited"),
            ("fails-as-we-do", &[SESSION, "end", "125"], 125, "exited"),
            ("is-killed", &[SESSION, "kill", "9"], 137, "signaled"),
            ("is-no-program", &["/etc/passwd"], 126, "not_started"),
            ("is-missing", &["/no/such/program"], 127, "not_started"),
        ] {
            let name = format!("{rung}-{name}");
            let flags = ["--json-status-fd", "3"];
            let cell = Cell { engine: &engine, tree: Tree::Debian, name: &name, docker, flags: &flags };
            let script = ["bash", "-c", "exec \"$@\" 3>/ledger/status", "bash"];
            let said = cell.docker(&[], &[&script[..], cell.fenced(command).as_slice()].concat());
            assert_eq!(said.code, Some(code), "{name}: {said}");
            let line = engine.fence.world.read(&cell.outside("ledger", "status")).expect("a status line");
            let line: serde_json::Value = serde_json::from_slice(&line).expect("one line of JSON");
            assert_eq!(
                (line["outcome"].as_str(), line["exit_code"].as_i64()),
                (Some(outcome), Some(code.into())),
                "{name}"
            );
            assert_eq!(line["complete"], true, "{name}: {line}");
            let mut verify = engine.fence.world.command(RINGFENCE);
            let head = line["head"].as_str().expect("a head");
            verify.args(["verify", "--head", head, &cell.outside("ledger", "run.jsonl")]).stdin(Stdio::null());
            let verified = Said::from(engine.fence.world.output(verify));
            assert_eq!(verified.code, Some(0), "{name}: {verified}");
        }
    }
}

/// What a user may do to every process of the same uid, and root to any, is refused for those outside of the run.
#[test]
fn other_processes_are_neither_read_nor_steered() {
    const WAYS: [&str; 13] = [
        "kill-1",
        "mem",
        "environ",
        "fd/0",
        "cwd/.",
        "root/.",
        "affinity-1",
        "priority-1",
        "scheduler-1",
        "limits-1",
        "io-priority-1",
        "pidfd-1",
        "trace-1",
    ];
    // Every descriptor of one's own can be opened again by its name in /proc, which is where /dev leads.
    const AGAIN: &str =
        "(echo 1 >/dev/stdout; echo 2 >/proc/self/fd/1) | cat; exec 3>/app/file; echo 3 >/dev/fd/3; cat /app/file";
    let Some(engine) = engine::start() else { return };
    engine.import(Tree::Debian);
    let rootless = ["--user", "1000", "--security-opt", "seccomp=unconfined", "--workdir", "/app"];
    let home = ["--env", "HOME=/home/me", "--tmpfs", "/home/me:uid=1000,mode=0700"];
    let rootless = ("rootless", &[&rootless[..], &home].concat()[..]);
    for (rung, docker) in RUNGS.into_iter().chain([rootless]) {
        let cell = Cell { engine: &engine, tree: Tree::Debian, name: rung, docker, flags: &[] };
        assert_eq!(cell.docker(&["--detach"], &[SESSION, "wait"]).code, Some(0));
        let enter = |command: &[&str]| engine.docker(&[&["exec", rung], command].concat());
        let live = enter(&[SESSION, "privilege"]);
        let ended = cell.ended(enter(&cell.fenced(&[SESSION, "privilege"])));
        let (before, seen) = (outcomes(&live.out), outcomes(&ended.said.out));
        for way in WAYS {
            let act = format!("privilege {way}");
            assert_eq!(before.get(act.as_str()), Some(&"ok"), "{rung}: the attempt is live: {live}");
            assert!(seen.get(act.as_str()).is_some_and(|outcome| *outcome != "ok"), "{rung}: {way}: {}", Brief(&ended));
        }
        assert_eq!(ended.start().rung, rung);
        // Where the uid is one, files in /proc are the other processes' user's: SECURITY.md says so.
        let steered = seen.get("steer oom_score_adj");
        let one_uid = ["rootless", "bare"].contains(&rung);
        assert!(one_uid || steered.is_some_and(|outcome| *outcome == "EACCES"), "{rung}: {}", Brief(&ended));
        let again = [RINGFENCE, "run", "--ledger", "/ledger/again.jsonl", "--", "bash", "-c", AGAIN];
        let said = enter(&again);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "1\n2\n3\n"), "{rung}: {said}");
    }
}
