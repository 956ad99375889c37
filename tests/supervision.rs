//! How a run ends: the status is the command's, as a shell would give it, and `--json-status-fd` tells it in one line.

mod common;
mod living;

use common::{Fence, RINGFENCE};
use living::{Run, send};
use nix::sys::signal::Signal;
use serde_json::Value;
use world::Said;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

#[test]
fn the_status_is_the_commands() {
    let fence = Fence::new();
    for (script, status) in
        [("exit 0", 0), ("exit 125", 125), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        let ended = fence.run(&FLAGS, script);
        assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(status), ""), "{script}: {ended}");
        assert_eq!(ended.seal().exit_code, Some(status), "{script}: {ended}");
    }
}

/// Runs a command by its own words, not by a shell's.
fn run(fence: &Fence, words: &[&str]) -> Said {
    let (command, _) = fence.command(&[&FLAGS[..], &["--workdir", "/srv/at"]].concat(), words);
    Said::from(fence.world.output(command))
}

#[test]
fn what_cannot_be_executed_is_named_as_a_shell_does() {
    let fence = Fence::new();
    let prepare = "
        mkdir /srv/at && cd /srv/at
        printf 'echo plain text as $0, $1\\n' > plain && chmod 755 plain
        printf '#!/no/such/interpreter -x\\n' > lost && chmod 755 lost
        printf 'no bit' > unset && chmod 644 unset
        head -c 64 /dev/zero | tr '\\0' '\\1' > binary; printf '\\0\\0\\n' >> binary; chmod 755 binary
        mkdir -m 700 closed && cp /bin/true closed/true && mkdir closed/in && cp /bin/true closed/in/true
        printf '#!/srv/at/closed/true\\n' > reaches && chmod 755 reaches
        mkdir directory; ln -s /srv/at/closed/true link";
    assert_eq!(fence.as_root(prepare).code, Some(0));
    for (words, status, says) in [
        (&["no-such-command"][..], 127, "no-such-command: command not found"),
        (&["/no/such/command"][..], 127, "/no/such/command: command not found"),
        (&[""][..], 127, ": command not found"),
        (&["./unset"][..], 126, "cannot execute ./unset: ./unset: EACCES"),
        (&["./directory"][..], 126, "cannot execute ./directory: ./directory: EACCES"),
        (&["/srv/at/closed/in/true"][..], 126, "/srv/at/closed: EACCES"),
        (&["./link"][..], 126, "cannot execute ./link: ./link: EACCES"),
        (&["./lost"][..], 126, "its interpreter /no/such/interpreter: /no: ENOENT"),
        (&["./reaches"][..], 126, "its interpreter /srv/at/closed/true: /srv/at/closed: EACCES"),
        (&["./binary"][..], 126, "cannot execute ./binary: ./binary: ENOEXEC"),
    ] {
        let said = run(&fence, words);
        assert_eq!((said.code, said.out.as_str()), (Some(status), ""), "{words:?}: {said}");
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {said}");
        assert!(said.err.starts_with("ringfence: ") && said.err.contains(says), "{words:?}: {said}");
    }
    let said = run(&fence, &["./plain", "argument"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "plain text as ./plain, argument\n"), "{said}");
}

#[test]
fn a_search_goes_on_past_what_may_not_be_executed() {
    let fence = Fence::new();
    let prepare = "mkdir /srv/path && cd /srv/path && mkdir one two && printf 'no bit' > one/tool && printf '#!/bin/sh\necho two' > two/tool \
                   && chmod 755 two/tool && mkdir -m 700 shut && cp two/tool shut/only";
    assert_eq!(fence.as_root(prepare).code, Some(0));
    let with_path = |tool: &str| {
        let (mut command, _) = fence.command(&FLAGS, &[tool]);
        command.env("PATH", "/srv/path/one:/srv/path/shut:/srv/path/two:/usr/bin:/bin");
        Said::from(fence.world.output(command))
    };
    assert_eq!(with_path("tool").out, "two\n");
    let said = with_path("only");
    assert_eq!(said.code, Some(126), "{said}");
    assert!(said.err.contains("cannot execute /srv/path/shut/only: /srv/path/shut: EACCES"), "{said}");
}

/// A run with its status line: descriptor 9 is a file of the box.
fn told(fence: &Fence, flags: &str, command: &str) -> (Said, Vec<Value>, String) {
    let ledger = format!("/var/log/ringfence/told-{}.jsonl", fence.world.changes().len());
    let script =
        format!("exec 9>/root/status; {RINGFENCE} run --json-status-fd 9 --ledger {ledger} {flags} -- {command}");
    let said = fence.as_root(&script);
    let text = String::from_utf8(fence.world.read("/root/status").expect("the status file")).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
    (said, lines, ledger)
}

#[test]
fn one_status_line_in_every_outcome() {
    let fence = Fence::new();
    for (flags, command, started, outcome, status, sealed) in [
        ("", "true", true, "exited", Some(0), true),
        ("", "bash -c 'exit 125'", true, "exited", Some(125), true),
        ("", "bash -c 'kill -HUP $$'", true, "signaled", Some(129), true),
        ("", "no-such-command", false, "not_started", Some(127), true),
        ("", "/etc/passwd", false, "not_started", Some(126), true),
        ("--workdir /no/such/place", "true", false, "not_started", Some(125), true),
        // Bad input of every kind, the command line's own included.
        ("--policy nist-higher", "true", false, "not_started", Some(125), false),
        ("--no-such-flag", "true", false, "not_started", Some(125), false),
        ("--allow-host '*'", "true", false, "not_started", Some(125), false),
        ("--user nobody-there", "true", false, "not_started", Some(125), false),
        ("--writable /no/such/place", "true", false, "not_started", Some(125), false),
        ("--privilege open", "true", false, "not_started", Some(125), false),
    ] {
        let (said, lines, ledger) = told(&fence, flags, command);
        let context = format!("{flags} -- {command}: {said}{lines:?}");
        assert_eq!((lines.len(), said.code), (1, status), "{context}");
        let line = &lines[0];
        assert_eq!((&line["started"], &line["outcome"]), (&started.into(), &outcome.into()), "{context}");
        assert_eq!(line["exit_code"], Value::from(status), "{context}");
        assert_eq!(line["complete"], if sealed { Value::from(true) } else { Value::Null }, "{context}");
        match line["head"].as_str() {
            Some(head) => {
                let said = fence.as_root(&format!("{RINGFENCE} verify {ledger} --head {head}"));
                assert_eq!(said.code, Some(0), "{context}{said}");
                let other = head.replace(|c: char| c.is_ascii_digit(), "f");
                assert_eq!(fence.as_root(&format!("{RINGFENCE} verify {ledger} --head {other}")).code, Some(2));
            }
            None => {
                assert!(!sealed, "{context}");
                assert_eq!(fence.world.read(&ledger), None, "{context}");
            }
        }
    }
}

#[test]
fn a_failed_probe_and_an_abort_are_told() {
    let fence = Fence::new();
    // The wall of the run is altered before the probes: what the probes see is not what was planned.
    let (said, lines, ledger) = told(
        &fence,
        "",
        "bash -c 'sleep 30.125'& run=$!
        until table=$(nft list tables | grep -o 'ringfence-.*') && pgrep -fx 'sleep 30.125' >/dev/null; do sleep 0.01; done
        nft delete table inet $table; wait $run; exit $?",
    );
    assert_eq!((lines.len(), said.code), (1, Some(125)), "{said}{lines:?}");
    let line = &lines[0];
    assert_eq!(
        (&line["outcome"], &line["exit_code"], &line["started"]),
        (&"aborted".into(), &Value::Null, &true.into())
    );
    let head = line["head"].as_str().expect("a head");
    let verified = fence.as_root(&format!("{RINGFENCE} verify {ledger} --head {head}"));
    assert_ne!(verified.code, Some(2), "{verified}");
    assert!(said.err.contains("the firewall's rules were changed in mid-run"), "{said}");
}

#[test]
fn the_status_descriptor_is_the_callers_alone() {
    let fence = Fence::new();
    let (said, lines, _) = told(&fence, "", "bash -c 'ls /proc/self/fd | tr \"\\n\" \" \"; exec 2>&-; echo x >&9'");
    // ls has one of its own for the listing.
    assert_eq!((said.out.as_str(), lines.len(), said.code), ("0 1 2 3 ", 1, Some(1)), "{said}{lines:?}");
    for closed in ["--json-status-fd 8", "--json-status-fd 2", "--json-status-fd 0"] {
        let said = fence.as_root(&format!("{RINGFENCE} run {closed} -- true 8>&-"));
        assert_eq!((said.code, said.err.lines().count()), (Some(125), 1), "{closed}: {said}");
        assert!(said.err.contains("--json-status-fd"), "{closed}: {said}");
    }
}

#[test]
fn a_reader_that_is_gone_changes_no_status() {
    let fence = Fence::new();
    let said = fence.as_root(&format!(
        "set -o pipefail; ({RINGFENCE} run --json-status-fd 9 -- bash -c 'exec 1>&-; sleep 0.2; exit 7' 9>&1; echo $? >&2) | true"
    ));
    assert_eq!(said.err.lines().last(), Some("7"), "{said}");
}

#[test]
fn resources_that_do_not_suffice_are_named() {
    let fence = Fence::new();
    // The limit is on the command's uid, which root's own processes do not meet.
    let said = fence.as_root(&format!("ulimit -u 1; {RINGFENCE} run -- true; echo status=$?"));
    assert_eq!(common::value(&said, "status"), "125", "{said}");
    assert!(said.err.contains("EAGAIN"), "{said}");
    assert_eq!(fence.as_root("nft list tables").out, "", "nothing is left");
    // The whole of ringfence in a group with too few places: each number is either a clean refusal or a whole run.
    let group = PidsGroup::new(&fence);
    let mut outcomes = Vec::new();
    for places in 1..16 {
        let place = &group.path;
        let said = fence.as_root(&format!(
            "echo {places} > {place}/pids.max || exit 99
             (echo $BASHPID > {place}/cgroup.procs && exec {RINGFENCE} run -- true); echo status=$?"
        ));
        let status = common::value(&said, "status").to_owned();
        assert!(!said.err.contains("panicked"), "{places}: {said}");
        if status != "0" {
            assert_eq!((status.as_str(), said.err.lines().count()), ("125", 1), "{places}: {said}");
            assert!(said.err.contains("fork") && said.err.contains("EAGAIN"), "{places}: {said}");
        }
        assert_eq!(fence.as_root("nft list tables").out, "", "{places}: nothing is left");
        outcomes.push(status);
    }
    assert_eq!((outcomes.first().unwrap().as_str(), outcomes.last().unwrap().as_str()), ("125", "0"), "{outcomes:?}");
}

/// A control group with a limit of its own on processes (cgroups(7), version 1 or 2), gone with the value.
struct PidsGroup<'a> {
    fence: &'a Fence,
    path: String,
}

impl PidsGroup<'_> {
    fn new(fence: &Fence) -> PidsGroup<'_> {
        let name = format!("ringfence-test-{}", std::process::id());
        let made = fence.as_root(&format!(
            "cd /sys/fs/cgroup/pids 2>/dev/null || {{ cd /sys/fs/cgroup && echo +pids > cgroup.subtree_control; }}
             mkdir {name} && test -e {name}/pids.max && echo $PWD/{name}"
        ));
        assert_eq!(made.code, Some(0), "a writable pids controller: {made}");
        PidsGroup { fence, path: made.out.trim().to_owned() }
    }
}

impl Drop for PidsGroup<'_> {
    fn drop(&mut self) {
        let said = self.fence.as_root(&format!("rmdir {}", self.path));
        if said.code != Some(0) {
            eprintln!("{said}");
        }
    }
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let fence = Fence::new();
    let storm = "for i in $(seq 500); do (sleep 0.1 &) ; done; echo out; read line; exit 3";
    let zombies = |parents: &[i32]| -> usize {
        let children = parents.iter().flat_map(|parent| living::children(*parent));
        children.filter(|child| living::state(*child).as_deref() == Some("Z")).count()
    };
    for prefix in [&[][..], &["unshare", "--pid", "--fork", "--mount-proc"][..]] {
        let (command, ledger) = fence.command(&FLAGS, &["bash", "-c", storm]);
        let command = match prefix {
            [] => command,
            [program, rest @ ..] => {
                let mut outer = fence.world.command(program);
                outer.args(rest).arg(command.get_program()).args(command.get_args());
                outer
            }
        };
        let mut run = Run::of(&fence, command, ledger);
        assert_eq!(run.line(), "out");
        let supervisor = if prefix.is_empty() { run.pid() } else { living::children(run.pid())[0] };
        let stage = living::stage_of(supervisor);
        // All sleepers end within the next moments, and the command alone is left; from then on there is no zombie, whoever was
        // to reap it.
        living::until("the orphans' end", || living::children(stage).len() == 1);
        assert_eq!(zombies(&[supervisor, stage]), 0);
        drop(run.stdin.take());
        let ended = run.finish(&fence);
        assert_eq!(ended.said.code, Some(3), "{ended}");
        assert_eq!(ended.seal().exit_code, Some(3), "{ended}");
    }
}

#[test]
fn a_stopped_supervisor_goes_on() {
    let fence = Fence::new();
    let mut run = Run::start(&fence, &FLAGS, "echo ready; read line; echo got $line; exit 4");
    assert_eq!(run.line(), "ready");
    let pid = run.pid();
    send(pid, Signal::SIGSTOP);
    living::until("the stop", || living::state(pid).as_deref() == Some("T"));
    send(pid, Signal::SIGCONT);
    use std::io::Write;
    run.stdin.as_mut().expect("piped").write_all(b"text\n").expect("the command reads");
    let ended = run.finish(&fence);
    assert_eq!((ended.said.out.as_str(), ended.said.code), ("got text\n", Some(4)), "{ended}");
}
