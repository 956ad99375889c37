//! What lives on in a session between its commands: servers, a terminal multiplexer, and the session's own processes.

mod common;
mod living;
mod open;
#[path = "rungs/rung.rs"]
mod rung;

use common::Fence;
use living::{companion, send, stage_below, until};
use nix::sys::signal::Signal;
use open::{Place, Session};
use ringfence::ledger::record::{Body, Outcome};
use rung::{RUNGS, Rung};
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use world::Sink;
use world::address::PUBLIC4;

/// A port of the outside where only a sink listens.
const PORT: u16 = 4466;

/// A server on the loopback that answers each line: with it, or with what became of an attempt to get out.
const SERVER: &str = r#"
use IO::Socket::INET; $| = 1; $SIG{CHLD} = "IGNORE";
my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", ReuseAddr => 1) or die "$!"; print $s->sockport, "\n";
if (fork) { exit 6 }
use POSIX; POSIX::setsid(); open STDIN, "</dev/null"; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null";
while (my $c = $s->accept) {
    my $line = <$c>; chomp $line;
    if ($line =~ /^connect (\S+)$/) { print $c (IO::Socket::INET->new(PeerAddr => $1, Timeout => 5) ? "connected" : "$!") }
    else { print $c "heard $line" }
    close $c;
}"#;

fn ask(port: &str, line: &str) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo '{line}' >&3; cat <&3")
}

/// The server, left behind by a command of the session; its port.
fn served(session: &Session<'_>) -> String {
    let said = session.exec(&[], &["perl", "-e", SERVER]);
    assert_eq!(said.code, Some(6), "{said}");
    said.out.trim().to_owned()
}

/// A sink outside, whose vector is live.
fn sink(fence: &Fence) -> Sink {
    let (sink, _) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    let live = fence.as_nobody(&format!("exec 3<>/dev/tcp/{PUBLIC4}/{PORT}; echo $?"));
    assert_eq!(live.out, "0\n", "the vector is live: {live}");
    sink.wait_for(1);
    sink
}

#[test]
fn a_server_answers_from_the_next_command_and_from_outside_and_stays_confined() {
    let fence = Fence::new();
    let sink = sink(&fence);
    for rung in RUNGS {
        let place = Place::new(&fence, rung);
        let session = place.up(&[]);
        let port = served(&session);
        let said = session.bash(&ask(&port, "inside"));
        assert_eq!(said.out, "heard inside", "{rung:?}: {said}");
        // A network namespace of its own is reached by --publish only.
        if rung != Rung::Rootless {
            let said = fence.as_root(&ask(&port, "outside"));
            assert_eq!(said.out, "heard outside", "{rung:?}: {said}");
        }
        let said = session.bash(&ask(&port, &format!("connect {PUBLIC4}:{PORT}")));
        assert_eq!(said.out, "Connection refused", "{rung:?}: {said}");
        let ended = session.down();
        assert_eq!(sink.arrivals().len(), 1, "{rung:?}: nothing but the live vector arrived");
        let denied: Vec<_> = ended.denials().iter().map(|denial| denial.object.port).collect();
        assert_eq!(denied, [Some(PORT)], "{ended}");
        until("the end of all", || fence.world.processes().is_empty());
    }
}

#[test]
fn a_process_of_one_command_is_the_next_ones_to_signal() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let said = session.bash("setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!");
    let said_pid = said.out.trim().to_owned();
    // Of the same user, and outside: what Landlock keeps the session from.
    let user = place.user.to_string();
    let mut outside = fence.world.command("setpriv");
    outside.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sleep", "600"]);
    let mut outside = fence.world.spawn(outside).expect("a process outside");
    until("its user", || living::owner(outside.id() as i32) == Some(place.user));
    let said = session.bash(&format!("kill {said_pid} && echo sent; kill -0 {}", outside.id()));
    assert!(said.out.starts_with("sent\n"), "{said}");
    assert!(said.err.contains("Operation not permitted"), "and nobody else is: {said}");
    let pid: i32 = said_pid.parse().expect("a number");
    until("its end", || living::state(pid).is_none());
    assert!(outside.try_wait().expect("wait").is_none(), "it lives");
    outside.kill().and_then(|()| outside.wait()).expect("the end of what the test has started");
    assert!(session.down().seal().complete);
}

#[test]
fn a_terminal_multiplexer_is_reached_by_the_next_command() {
    let fence = Fence::new();
    for rung in RUNGS {
        let place = Place::new(&fence, rung);
        let session = place.up(&[]);
        // In /tmp a user's own servers are kept from the command (docs/rungs.md).
        let tmux =
            |arguments: &[&str]| session.exec(&["--env", "TMUX_TMPDIR=/workspace"], &[&["tmux"], arguments].concat());
        let said = tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "work", "bash --norc"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{rung:?}: {said}");
        let said = tmux(&["send-keys", "-t", "work", "echo $((6 * 7)) > /tmp/answer; tmux wait-for -S done", "Enter"]);
        assert_eq!(said.code, Some(0), "{rung:?}: {said}");
        let said = tmux(&["wait-for", "done"]);
        assert_eq!(said.code, Some(0), "{rung:?}: {said}");
        let said = session.bash("cat /tmp/answer");
        assert_eq!(said.out, "42\n", "{rung:?}: {said}");
        let said = tmux(&["kill-server"]);
        assert_eq!(said.code, Some(0), "{rung:?}: {said}");
        assert!(session.down().seal().complete);
        common::as_root(&fence, "rm -rf /tmp/answer /workspace/tmux-*");
    }
}

/// Attempts to get out for as long as it lives, directly and by the port where the proxy was.
fn hydra() -> String {
    format!(
        "while :; do (exec 3<>/dev/tcp/{PUBLIC4}/{PORT} && echo out >&3) 2>/dev/null
         curl -s -m 1 -o /dev/null --noproxy '' --proxy \"$https_proxy\" http://{PUBLIC4}:{PORT}/; sleep 0.01; done"
    )
}

/// What is killed, and what the record must say.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Supervisor,
    Proxy,
    Observer,
    Stage,
}

#[test]
fn the_death_of_any_of_our_processes_leaves_no_way_out_and_an_honest_record_on_full() {
    each_of_ours_dies(Rung::Full);
}

#[test]
fn the_death_of_any_of_our_processes_leaves_no_way_out_and_an_honest_record_on_rootless() {
    each_of_ours_dies(Rung::Rootless);
}

#[test]
fn the_death_of_any_of_our_processes_leaves_no_way_out_and_an_honest_record_on_container() {
    each_of_ours_dies(Rung::Container);
}

#[test]
fn the_death_of_any_of_our_processes_leaves_no_way_out_and_an_honest_record_on_bare() {
    each_of_ours_dies(Rung::Bare);
}

fn each_of_ours_dies(rung: Rung) {
    for victim in [Victim::Supervisor, Victim::Proxy, Victim::Observer, Victim::Stage] {
        let fence = Fence::new();
        let sink = sink(&fence);
        let place = Place::new(&fence, rung);
        let session = place.up(&[]);
        // One in the foreground of its client, one left behind.
        let said =
            session.bash(&format!("setsid bash -c '{}' >/dev/null 2>&1 </dev/null &", hydra().replace('\'', "'\\''")));
        assert_eq!(said.code, Some(0), "{said}");
        let mut attached = session.start(session.command(&[], &["bash", "-c", &format!("echo ready; {}", hydra())]));
        let mut out = BufReader::new(attached.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        assert_eq!(line, "ready\n");
        let supervisor = session.supervisor();
        let pid = match victim {
            Victim::Supervisor => supervisor,
            Victim::Proxy => companion(supervisor, false),
            Victim::Observer => companion(supervisor, true),
            Victim::Stage => stage_below(supervisor),
        };
        send(pid, Signal::SIGKILL);
        living::empty_within(&fence, Duration::from_secs(4));
        fence.world.packets();
        assert_eq!(sink.arrivals().len(), 1, "{rung:?}, {victim:?}: {:?}", sink.arrivals());
        let mut err = String::new();
        attached.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        let status = attached.wait().expect("wait");
        let record = session.record(place.said(&["status"]));
        assert_eq!(record.said.code, Some(1), "{rung:?}, {victim:?}: {record}");
        if let Victim::Supervisor = victim {
            assert_eq!(status.code(), Some(125), "{err}");
            assert!(
                record.said.err.contains("its supervisor, process") && record.said.err.contains(&session.run),
                "{record}"
            );
            assert_eq!(fence.verify(&record.ledger).code, Some(1), "incomplete and not altered: {record}");
            assert_eq!(fence.as_root("nft list tables").out, "", "status has cleared the wall");
        } else {
            assert_eq!(status.code(), Some(125), "{rung:?}, {victim:?}: {err}");
            assert!(err.contains("the run was ended"), "{rung:?}, {victim:?}: {err}");
            assert!(record.said.err.contains("there is no session default"), "{rung:?}, {victim:?}: {record}");
            assert!(record.records.iter().any(|r| matches!(r.body, Body::Abort(_))), "{rung:?}, {victim:?}: {record}");
            assert_eq!(record.seal().outcome, Outcome::Aborted, "{record}");
        }
        assert!(!fence.as_root(&format!("ls {}", place.sockets())).err.is_empty(), "nothing is left of it");
        let session = place.up(&["--ledger", &format!("{}.next", session.ledger)]);
        assert_eq!(session.bash("echo again").out, "again\n");
        assert_eq!(place.said(&["down"]).code, Some(0));
    }
}
