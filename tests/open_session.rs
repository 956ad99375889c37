//! Sessions that stay open: `up` proves the policy once, each `exec` is a command of its own in it, `down` seals.

mod common;
mod living;
mod open;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, value};
use nix::sys::signal::Signal;
use open::Place;
use ringfence::ledger::record::Outcome;
use rung::{RUNGS, Rung};
use std::process::Stdio;
use world::Said;

#[test]
fn on_every_rung_commands_come_and_go() {
    for rung in RUNGS {
        let fence = Fence::new();
        let place = Place::new(&fence, rung);
        let look = "grep -E '^(Uid|Gid|Groups|Cap.*|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/self/status; compgen -e; ls -l /proc/self/fd | wc -l; umask; pwd";
        let of_run = rung.run(&fence, place.user, &place.home, &[], &["bash", "-c", look]);
        assert_eq!(of_run.said.code, Some(0), "{of_run}");
        common::as_root(&fence, &format!("rm {}", of_run.ledger));
        let before = common::survey(&fence);
        let session = place.up(&[]);
        assert_eq!(session.name, "default");
        let as_in_run = session.bash(look);
        assert_eq!(as_in_run.out, of_run.said.out, "confined and equipped as the command of a run is");
        let first = session.bash(&format!("{look}; echo text; echo other >&2; exit 7"));
        assert_eq!((first.code, first.err.as_str()), (Some(7), "other\n"), "{first}");
        assert!(first.out.contains("\nSeccomp:\t2\n") && first.out.ends_with("/workspace\ntext\n"), "{first}");
        assert!(first.out.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}\n", place.user)), "{first}");
        assert_eq!(session.exec(&[], &["sh", "-c", "kill -9 $$"]).code, Some(137));
        assert_eq!(session.exec(&[], &["/etc/passwd"]).code, Some(126));
        let none = session.exec(&[], &["no-such-command"]);
        assert_eq!((none.code, none.err.as_str()), (Some(127), "ringfence: no-such-command: command not found\n"));
        let written = session.bash("touch /usr/made");
        assert!(written.err.contains("Read-only file system"), "{written}");
        assert_eq!(session.status()["started"], 4, "{}", session.status());
        assert_eq!(session.status()["commands"], serde_json::json!([]), "{}", session.status());
        let run = session.run.clone();
        let ended = session.down();
        assert_eq!(ended.start().session.as_deref(), Some("default"), "{ended}");
        assert_eq!((ended.start().rung.as_str(), ended.records[0].run.as_str()), (rung.name(), run.as_str()));
        assert_eq!((ended.seal().started, ended.seal().outcome, ended.seal().exit_code), (true, Outcome::Exited, None));
        assert!(ended.seal().complete, "{ended}");
        let denied: Vec<_> = ended.denials().iter().filter_map(|denial| denial.object.path.as_deref()).collect();
        // Who may not write there anyway is denied nothing.
        let expected: &[&str] = if rung.is_ordinary_user() { &[] } else { &["/usr/made"] };
        assert_eq!(denied, expected, "{ended}");
        assert_eq!(fence.verify(&ended.ledger).code, Some(0));
        let gone = place.said(&["exec", "--", "true"]);
        assert_eq!(gone.code, Some(125), "{gone}");
        assert!(gone.err.contains("there is no session default; accepted: `ringfence up` before"), "{gone}");
        common::assert_left_nothing(&fence, &before, rung.name());
    }
}

#[test]
fn a_command_is_asked_for_as_the_policy_lets() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&["--name", "one"]);
    let flags = ["--env", "MADE=here", "--env", "LD_PRELOAD=/tmp/x.so", "--env", "https_proxy=http://192.0.2.1:1"];
    let said = session.exec(&[&flags[..], &["--cwd", "/tmp"]].concat(), &["bash", "-c", "pwd; env"]);
    assert_eq!((said.out.lines().next(), value(&said, "MADE")), (Some("/tmp"), "here"), "{said}");
    assert!(!said.out.contains("LD_PRELOAD") && value(&said, "https_proxy").contains("127."), "{said}");
    let said = session.exec(&["--user", "root"], &["id"]);
    assert_eq!(said.code, Some(125), "{said}");
    assert!(said.err.starts_with("ringfence: --user root is refused"), "{said}");
    let said = session.exec(&["--cwd", "/no/such"], &["true"]);
    assert!(said.code == Some(125) && said.err.contains("working directory /no/such"), "{said}");
    for (flags, names) in [
        (&["exec", "--env", "=x", "--", "true"][..], "NAME=VALUE"),
        (&["exec", "--name", "../x", "--", "true"], "1 to 48 letters"),
        (&["down", "--name", "two"], "there is no session two; accepted: one"),
        (&["up", "--leftovers", "kill"], "accepted: keep"),
        (&["up", "--name", "one", "--policy", "nist-high"], "session one is up already"),
    ] {
        let said = place.said(flags);
        assert_eq!((said.code, said.err.lines().count()), (Some(125), 1), "{said}");
        assert!(said.err.contains(names), "{said}");
    }
    let large = "x".repeat(100_000);
    let said = session.exec(&[], &["bash", "-c", "echo ${#1}", "bash", &large]);
    assert_eq!(said.out, "100000\n", "{said}");
    assert!(session.down().seal().complete);
}

#[test]
fn what_a_killed_supervisor_leaves_is_found_and_cleaned_by_whoever_asks() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let before = common::survey(&fence);
    for (n, asks) in ["down", "status", "exec", "up"].into_iter().enumerate() {
        let session = place.up(&["--ledger", &format!("/var/log/rungs/{n}.jsonl")]);
        let supervisor = session.supervisor();
        living::send(supervisor, Signal::SIGKILL);
        living::until("the end of all", || fence.world.processes().is_empty());
        let said = match asks {
            "exec" => place.said(&["exec", "--", "true"]),
            "up" => place.output(place.up_command(&["--ledger", "/var/log/rungs/again.jsonl"]).0),
            asks => place.said(&[asks]),
        };
        let code = match asks {
            "status" => 1,
            "up" => 0,
            _ => 125,
        };
        assert_eq!((said.code, said.err.lines().count()), (Some(code), 1), "{said}");
        let told = [
            format!("process {supervisor}, has died"),
            format!("run {}", session.run),
            format!("{n}.jsonl has no seal"),
        ];
        assert!(told.iter().all(|part| said.err.contains(part)), "{asks}: {said}");
        if asks == "up" {
            assert_eq!(place.said(&["down"]).code, Some(0));
        }
        let again = place.said(&["down"]);
        assert!(again.err.contains("there is no session default"), "it is said once: {again}");
        common::assert_left_nothing(&fence, &before, asks);
    }
}

#[test]
fn a_set_up_that_fails_or_is_asked_to_end_leaves_no_session() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let before = common::survey(&fence);
    let said = place.output(place.up_command(&["--writable", "/no/such"]).0);
    assert_eq!((said.code, said.out.as_str(), said.err.lines().count()), (Some(125), "", 1), "{said}");
    common::assert_left_nothing(&fence, &before, "refused");
    let mut command = place.up_command(&[]).0;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = fence.world.spawn(command).expect("ringfence starts");
    // Asked before its probes are through, it ends without a session, or with one that ends at once.
    std::thread::sleep(std::time::Duration::from_millis(25));
    living::send(child.id() as i32, Signal::SIGTERM);
    let said = Said::from(child.wait_with_output().expect("wait"));
    assert!(matches!(said.code, Some(0 | 125)), "{said}");
    if said.code == Some(0) {
        // Or it was through before it was asked, and the session is whoever's to end.
        place.said(&["down"]);
    }
    living::until("the end of all", || fence.world.processes().is_empty());
    common::assert_left_nothing(&fence, &before, "asked to end");
}

#[test]
fn the_status_descriptor_tells_of_the_seal() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let (command, ledger) = place.up_command(&["--json-status-fd", "3"]);
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut shell = fence.world.command("bash");
    let script = "\"$@\" 3> >(cat >/tmp/status) >/tmp/line; [ ! -s /tmp/status ] && echo open; \"$1\" down; wait; sleep 0.2; cat /tmp/status";
    shell.args(["-c", script, "bash", common::RINGFENCE]).args(&words);
    let said = place.output(shell);
    let (open, line) = said.out.split_once('\n').unwrap_or_else(|| panic!("{said}"));
    let status: ringfence::ledger::Status =
        serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {said}"));
    assert_eq!((open, status.started, status.exit_code, status.complete), ("open", true, None, Some(true)), "{said}");
    let record = fence.ended(said, ledger);
    assert_eq!(record.seal().outcome, Outcome::Exited, "{record}");
}
