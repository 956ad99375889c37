//! A session's supervisor waits for no single client, and loses nothing that one of them says: else the watch over all of them
//! would wait too.

mod common;
mod living;
mod open;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, as_root, value};
use living::{send, until};
use nix::sys::signal::Signal;
use open::{Place, Session};
use rung::Rung;
use std::process::Child;

/// The process of a command of the session, and its client.
fn started(session: &Session<'_>, seconds: &str) -> (Child, i32) {
    let client = session.start(session.command(&[], &["sleep", seconds]));
    let mut command = None;
    until("the command", || {
        let status = session.status();
        let all = status["commands"].as_array().cloned().unwrap_or_default();
        command = all.iter().find(|one| one["argv"][1] == seconds).and_then(|one| one["pid"].as_i64());
        command.is_some()
    });
    (client, command.expect("it was found") as i32)
}

#[test]
fn a_client_that_speaks_while_its_command_ends_holds_up_nobody() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let (mut one, command) = started(&session, "1001");
    let (mut other, _) = started(&session, "1002");
    let supervisor = session.supervisor();
    // Both are there at once for the supervisor: what the client says, and the end of its command.
    send(supervisor, Signal::SIGSTOP);
    as_root(&fence, &format!("kill -KILL {command}"));
    send(one.id() as i32, Signal::SIGWINCH);
    until("the command's end", || living::state(command).is_none());
    std::thread::sleep(std::time::Duration::from_millis(100));
    send(supervisor, Signal::SIGCONT);
    assert_eq!(one.wait().expect("wait").code(), Some(137));
    assert_eq!(session.status()["commands"].as_array().map(Vec::len), Some(1), "it answers");
    send(other.id() as i32, Signal::SIGTERM);
    assert_eq!(other.wait().expect("wait").code(), Some(143));
    assert!(session.down().seal().complete);
}

#[test]
fn a_signal_before_the_command_runs_is_the_commands() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let mut script = String::new();
    for milliseconds in (0..40).map(|n| n * 2) {
        script += &format!(
            "ringfence exec -- sleep 1000 & sleep 0.{milliseconds:03}; kill -TERM $!; wait $!; echo t{milliseconds}=$?\n"
        );
    }
    let mut bash = fence.world.command("bash");
    bash.args(["-c", &script.replace("ringfence exec", &format!("{} exec", common::RINGFENCE))]);
    let said = place.output(bash);
    for milliseconds in (0..40).map(|n| n * 2) {
        assert_eq!(value(&said, &format!("t{milliseconds}")), "143", "{said}");
    }
    // A client that ended before it could wait has told nobody: its command ends with its connection.
    until("none of them to live on", || session.status()["commands"] == serde_json::json!([]));
    assert!(session.down().seal().complete);
}

#[test]
fn hundreds_of_clients_that_go_at_once_are_survived() {
    const MANY: usize = 600;
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let script = format!(
        "for ((n = 0; n < {MANY}; n++)); do {} exec -- sleep 1000 & done; echo started >&2; wait",
        common::RINGFENCE
    );
    let mut bash = fence.world.command("bash");
    bash.args(["-c", &script]);
    let mut clients = session.start(bash);
    until("all to run", || session.status()["commands"].as_array().is_some_and(|all| all.len() == MANY));
    as_root(&fence, "pkill -KILL -f 'exec -- sleep 1000'");
    until("all of them to have ended", || session.status()["commands"] == serde_json::json!([]));
    clients.kill().expect("kill");
    clients.wait().expect("wait");
    let ended = session.down();
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn what_many_long_commands_are_stands_in_the_status() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let long = "x".repeat(20_000);
    let mut clients: Vec<Child> =
        (0..80).map(|_| session.start(session.command(&[], &["sh", "-c", "read -r line", "sh", &long]))).collect();
    until("all to run", || session.status()["commands"].as_array().is_some_and(|all| all.len() == 80));
    clients.iter_mut().for_each(|client| drop(client.stdin.take()));
    assert!(clients.iter_mut().all(|client| client.wait().expect("wait").code() == Some(1)));
    assert!(session.down().seal().complete);
}

#[test]
fn what_is_asked_for_by_name_is_there_with_a_cleared_environment() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&["--clear-env"]);
    let flags = ["--env", "MADE=first", "--env", "MADE=last", "--env", "LD_PRELOAD=/tmp/x.so"];
    let said = session.exec(&flags, &["env"]);
    assert_eq!(value(&said, "MADE"), "last", "{said}");
    assert!(!said.out.contains("LD_PRELOAD"), "{said}");
    assert!(session.down().seal().complete);
}

#[test]
fn more_clients_than_there_are_descriptors_for_wait_for_room() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let (up, ledger) = place.up_command(&[]);
    let mut limited = fence.world.command("prlimit");
    limited.arg("--nofile=96:96").arg(up.get_program()).args(up.get_args()).current_dir(rung::WORKSPACE);
    limited.env("HOME", &place.home);
    let said = place.output(limited);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said}");
    let run = said.out.trim().strip_prefix("default ").expect("a name and a run").to_owned();
    let session = Session { place: &place, name: "default".into(), run, ledger };
    let clients: Vec<Child> = (0..80).map(|_| session.start(session.command(&[], &["sleep", "0.5"]))).collect();
    for mut client in clients {
        assert_eq!(client.wait().expect("wait").code(), Some(0));
    }
    assert_eq!(session.status()["started"], 80);
    assert!(session.down().seal().complete);
}
