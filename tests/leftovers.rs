//! What the command leaves behind: ended before the exit, or kept, confined and on record until it ends by itself.

mod common;
mod living;

use common::Fence;
use living::{PATIENCE, Run, send, until};
use nix::sys::signal::Signal;
use ringfence::ledger::record::Outcome;
use std::time::{Duration, Instant};
use world::Said;
use world::address::PUBLIC4;

const KILL: [&str; 4] = ["--policy", "nist-high", "--leftovers", "kill"];
const KEEP: [&str; 4] = ["--policy", "nist-high", "--leftovers", "keep"];
/// A port of the outside where only a sink listens.
const PORT: u16 = 4455;

#[test]
fn under_kill_nothing_outlives_the_command() {
    let fence = Fence::new();
    for (what, script) in [
        ("a daemon in a session of its own", "setsid sleep 600 & exit 3"),
        (
            "one forked twice, with its streams closed",
            "(setsid bash -c 'exec <&- >&- 2>&-; sleep 600 & exec sleep 600' &) ; exit 3",
        ),
        (
            "one that ignores what it can",
            "bash -c 'trap \"\" TERM HUP INT; echo up >&3; while :; do sleep 600; done' 3>&1 & read -r up < <(sleep 0.3; echo); exit 3",
        ),
        ("one that is stopped", "sleep 600 & kill -STOP $!; exit 3"),
        (
            "one that is traced by another",
            "perl -e 'my $c = fork // die; if (!$c) { sleep 600 } syscall(101, 16, $c, 0, 0); sleep 600' & sleep 0.1; exit 3",
        ),
    ] {
        let since = Instant::now();
        let ended = fence.run(&KILL, script);
        living::empty_within(&fence, Duration::ZERO);
        assert_eq!(ended.said.code, Some(3), "{what}: {ended}");
        assert!(since.elapsed() < Duration::from_secs(6), "{what}: {:?}", since.elapsed());
        assert_eq!((ended.seal().outcome, ended.seal().exit_code), (Outcome::Exited, Some(3)), "{what}: {ended}");
    }
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn what_obeys_term_is_not_killed() {
    let fence = Fence::new();
    let script = "bash -c 'trap \"echo obeyed; exit\" TERM; echo up; while :; do sleep 0.05; done' & read -t 1 < /dev/null; \
                  until [ -e /workspace/go ]; do sleep 0.02; done; exit 0";
    let mut run = Run::start(&fence, &KILL, script);
    assert_eq!(run.line(), "up");
    fence.world.write("/workspace/go", "", 0o644);
    let ended = run.finish(&fence);
    assert_eq!((ended.said.out.as_str(), ended.said.code), ("obeyed\n", Some(0)), "{ended}");
}

#[test]
fn a_fork_bomb_is_outrun() {
    let fence = Fence::new();
    // Each process forks as fast as it can and ignores what it can; the limit keeps the machine usable.
    let bomb = "ulimit -u 150; trap '' TERM HUP INT; perl -e '$SIG{TERM} = q(IGNORE); while (1) { fork; fork; select undef, undef, undef, 0.001 }' \
                2>/dev/null & sleep 0.5; exit 3";
    let since = Instant::now();
    let ended = fence.run(&KILL, bomb);
    living::empty_within(&fence, Duration::ZERO);
    assert_eq!(ended.said.code, Some(3), "{ended}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn a_pid_1_ends_what_is_left_by_default_and_stays_with_it_under_keep() {
    let fence = Fence::new();
    let as_init = |flags: &[&str], script: &str| {
        let (command, ledger) = fence.command(flags, &["bash", "-c", script]);
        let mut outer = fence.world.command("unshare");
        outer.args(["--pid", "--fork", "--mount-proc"]).arg(command.get_program()).args(command.get_args());
        let since = Instant::now();
        let ended = fence.ended(Said::from(fence.world.output(outer)), ledger);
        (ended, since.elapsed())
    };
    let (ended, _) = as_init(&["--policy", "nist-high"], "setsid sleep 600 & exit 3");
    assert_eq!((ended.said.code, ended.seal().exit_code), (Some(3), Some(3)), "{ended}");
    let (ended, took) = as_init(&KEEP, "setsid sleep 1.5 & exit 3");
    assert_eq!((ended.said.code, ended.seal().exit_code), (Some(3), Some(3)), "{ended}");
    assert!(took >= Duration::from_millis(1500), "its end would be theirs: {took:?}");
    living::empty_within(&fence, Duration::ZERO);
}

/// A server that answers each line: with what root sent, or with what became of an attempt of its own.
const SERVER: &str = r#"
use IO::Socket::INET; $| = 1;
my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", ReuseAddr => 1) or die; print $s->sockport, "\n";
if (fork) { exit 6 }
use POSIX; POSIX::setsid(); open STDIN, "</dev/null"; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null";
while (my $c = $s->accept) {
    my $line = <$c>; chomp $line;
    if ($line eq "write") { print $c (open(my $f, ">", "/usr/made") ? "written" : "$!") }
    elsif ($line =~ /^connect (\S+)$/) { print $c (IO::Socket::INET->new(PeerAddr => $1, Timeout => 5) ? "connected" : "$!") }
    elsif ($line eq "end") { print $c "ending"; exit 0 }
    else { print $c "heard $line" }
    close $c;
}"#;

/// Asks the server as root does from outside the sandbox.
fn ask(fence: &Fence, port: &str, line: &str) -> String {
    let said = fence.as_root(&format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo '{line}' >&3; cat <&3"));
    assert_eq!(said.code, Some(0), "{said}");
    said.out
}

/// A run under `keep` whose command has left the server behind: its port, and the run after its end.
fn served(fence: &Fence) -> (String, String) {
    let (command, ledger) = fence.command(&KEEP, &["perl", "-e", SERVER]);
    let mut run = Run::of(fence, command, ledger);
    let port = run.line();
    assert_eq!(run.status().code(), Some(6));
    (port, run.ledger.clone())
}

fn wait_for_seal(fence: &Fence, ledger: &str) {
    until("the seal", || {
        fence.world.read(ledger).is_some_and(|text| String::from_utf8_lossy(&text).contains("\"kind\":\"seal\""))
    });
    until("the end of all", || fence.world.processes().is_empty());
}

#[test]
fn a_kept_server_answers_stays_confined_and_is_recorded() {
    let fence = Fence::new();
    let sink = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    let live = fence.as_root(&format!("exec 3<>/dev/tcp/{PUBLIC4}/{PORT}; echo $?"));
    assert_eq!(live.out, "0\n", "the vector is live: {live}");
    sink.0.wait_for(1);
    let (port, ledger) = served(&fence);
    assert_eq!(ask(&fence, &port, "text"), "heard text");
    assert_eq!(ask(&fence, &port, "write"), "Read-only file system");
    assert_eq!(ask(&fence, &port, &format!("connect {PUBLIC4}:{PORT}")), "Connection refused");
    let text = || String::from_utf8_lossy(&fence.world.read(&ledger).expect("the ledger")).into_owned();
    until("the record of it", || text().contains(&PUBLIC4.to_string()));
    assert!(!text().contains("\"kind\":\"seal\""), "the run is not over");
    assert_eq!(sink.0.arrivals().len(), 1, "nothing but the live vector arrived");
    assert_eq!(ask(&fence, &port, "end"), "ending");
    wait_for_seal(&fence, &ledger);
    let ended = fence.ended(Said { code: Some(6), out: String::new(), err: String::new() }, ledger);
    assert_eq!((ended.seal().outcome, ended.seal().exit_code, ended.seal().complete), (Outcome::Exited, Some(6), true));
    let denied: Vec<_> = ended.denials().iter().filter_map(|d| d.object.port).collect();
    assert_eq!(denied, [PORT], "{ended}");
    let said = fence.verify(&ended.ledger);
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn a_request_to_the_supervisor_that_stays_ends_and_seals() {
    let fence = Fence::new();
    let (port, ledger) = served(&fence);
    assert_eq!(ask(&fence, &port, "text"), "heard text");
    let supervisor = fence.as_root("pgrep -x -o ringfence").out;
    // The stage and the proxy have the same name; the one that stays is the leader of its session.
    let of_box: Vec<i32> = fence.world.processes().iter().map(|pid| *pid as i32).collect();
    let leader = of_box.iter().copied().find(|pid| {
        let fields = living::stat(*pid).unwrap_or_default();
        fields.get(3) == Some(&pid.to_string()) && living::owner(*pid) == Some(0)
    });
    let leader = leader.unwrap_or_else(|| panic!("no session leader among {of_box:?} ({supervisor})"));
    send(leader, Signal::SIGTERM);
    wait_for_seal(&fence, &ledger);
    let ended = fence.ended(Said { code: Some(6), out: String::new(), err: String::new() }, ledger);
    assert_eq!((ended.seal().outcome, ended.seal().exit_code, ended.seal().complete), (Outcome::Exited, Some(6), true));
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn a_pipeline_ends_with_the_commands_own_output() {
    let fence = Fence::new();
    let since = Instant::now();
    let (command, ledger) = fence.command(&KEEP, &["bash", "-c", "setsid sleep 600 >/dev/null 2>&1 <&1 & echo out"]);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    let mut shell = fence.world.command("bash");
    // A pipe of the caller's that the command never had is let go of as well.
    shell.args(["-c", "exec 7> >(cat >/dev/null; echo 'the other pipe ended'); (\"$@\") | cat; exec 7>&-; wait $!; echo status=$?", "bash"]).args(&words);
    let said = Said::from(fence.world.output(shell));
    assert_eq!((said.out.as_str(), said.code), ("out\nthe other pipe ended\nstatus=0\n", Some(0)), "{said}");
    assert!(since.elapsed() < PATIENCE / 4, "{:?}", since.elapsed());
    assert!(!fence.world.processes().is_empty(), "it was kept");
    let sleeps = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    // The command may have ended before what it left has executed its program.
    until("what was kept to be what it will be", || fence.world.processes().iter().any(sleeps));
    for pid in fence.world.processes().into_iter().filter(sleeps) {
        send(pid as i32, Signal::SIGKILL);
    }
    wait_for_seal(&fence, &ledger);
}
