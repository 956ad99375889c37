//! Signals to ringfence: none lost from before the fork on, each forwarded to the command once; the caller's own signal
//! state is the command's.

mod common;
mod living;

use common::{Fence, RINGFENCE};
use living::{Run, send, until};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use world::Said;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

/// Tells of each signal it gets, until its input ends. What was blocked stays pending until it is ready for it.
const TELLER: &str = r#"
use POSIX ":signal_h"; $| = 1;
# By sigaction handlers run at once; by %SIG one that comes just before a read would wait for its end.
for my $signal (SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, 28) {
    sigaction($signal, POSIX::SigAction->new(sub { print "$_[0]\n" }));
}
sigprocmask(SIG_SETMASK, POSIX::SigSet->new());
print "ready\n";
while (1) { my $n = sysread(STDIN, my $byte, 1); last if defined $n && $n == 0 }
print "end\n";"#;

/// Starts what follows with all those signals blocked, so that the command has them pending until it has its handlers.
const BLOCKING: &str = r#"
use POSIX ":signal_h";
sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGTSTP, 28));
exec @ARGV;"#;

/// Without SIGTSTP: while one of them is pending, SIGCONT and the signals that stop take each other back (signal(7)).
const SENT: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGTERM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// A cheap source of offsets; the seed is printed when a test fails.
struct Offsets(u64);

impl Offsets {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn seed() -> u64 {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    seed
}

#[test]
fn at_any_moment_after_the_start_each_reaches_the_command_once() {
    let fence = Fence::new();
    let mut offsets = Offsets(seed());
    let started = Instant::now();
    let mut runs = 0;
    // Set-up, launch and the first moments of the command, all at random.
    while runs < 20 || (runs < 300 && started.elapsed() < Duration::from_secs(40)) {
        let (command, ledger) = fence.command(&FLAGS, &["perl", "-e", TELLER]);
        let mut blocking = fence.world.command("perl");
        blocking.args(["-e", BLOCKING, "--"]).arg(command.get_program()).args(command.get_args());
        let mut run = Run::of(&fence, blocking, ledger);
        // Before its exec the launcher is perl, which has not blocked anything yet.
        let blocked = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap_or_default();
            status.contains("SigBlk:") && !status.contains("SigBlk:\t0000000000000000")
        };
        until("the launcher's mask", blocked);
        let mut expected = BTreeMap::new();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_micros(offsets.next(if runs % 2 == 0 { 50_000 } else { 150_000 })));
            let signal = SENT[offsets.next(SENT.len() as u64) as usize];
            // Two of one kind may become one while they are pending, as with any process (signal(7)).
            if expected.insert(signal.as_str()[3..].to_owned(), 1).is_none() {
                send(run.pid(), signal);
            }
        }
        let (mut got, mut ready) = (BTreeMap::new(), false);
        while got.values().sum::<i32>() < expected.len() as i32 || !ready {
            match run.line().as_str() {
                "ready" => ready = true,
                signal => *got.entry(signal.to_owned()).or_default() += 1,
            }
        }
        // What comes after these would come before this one.
        send(run.pid(), Signal::SIGUSR2);
        loop {
            match run.line().as_str() {
                "USR2" => break,
                other => *got.entry(other.to_owned()).or_default() += 1,
            }
        }
        assert_eq!(got, expected, "run {runs}");
        let ended = run.finish(&fence);
        assert_eq!((ended.said.out.as_str(), ended.said.code), ("end\n", Some(0)), "run {runs}: {ended}");
        runs += 1;
    }
    println!("{runs} runs");
}

#[test]
fn a_request_to_end_at_any_moment_ends_everything() {
    let fence = Fence::new();
    let mut offsets = Offsets(seed());
    let mut outcomes: BTreeMap<Option<i32>, u32> = BTreeMap::new();
    for run in 0..40 {
        let started =
            Run::start(&fence, &[&FLAGS[..], &["--leftovers", "kill"]].concat(), "setsid sleep 600 & sleep 600");
        std::thread::sleep(Duration::from_micros(offsets.next(50_000)));
        send(started.pid(), Signal::SIGTERM);
        let ended = started.finish(&fence);
        living::empty_within(&fence, Duration::ZERO);
        // By the signal itself, before ringfence was ringfence, nothing has begun; else the command has ended by it.
        match ended.said.code {
            Some(143) => assert_eq!(ended.seal().exit_code, Some(143), "run {run}: {ended}"),
            Some(-15) => assert!(ended.records.is_empty(), "run {run}: {ended}"),
            _ => panic!("run {run}: {ended}"),
        }
        *outcomes.entry(ended.said.code).or_default() += 1;
    }
    assert!(outcomes.get(&Some(143)).is_some_and(|count| *count > 20), "{outcomes:?}");
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn a_set_up_that_hangs_is_ended_on_request() {
    let fence = Fence::new();
    let started = Run::start(&fence, &FLAGS, "touch /workspace/started");
    let stage = started.stage();
    send(stage, Signal::SIGSTOP);
    until("the stage's stop", || living::state(stage).as_deref() == Some("T"));
    send(started.pid(), Signal::SIGTERM);
    let since = Instant::now();
    let ended = started.finish(&fence);
    assert!(since.elapsed() < Duration::from_secs(10), "as long as `docker stop` waits: {:?}", since.elapsed());
    assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{ended}");
    assert!(ended.said.err.contains("a signal asked for the end"), "{ended}");
    assert_eq!(fence.world.read("/workspace/started"), None);
    assert_eq!(ended.seal().outcome, ringfence::ledger::record::Outcome::NotStarted, "{ended}");
    living::empty_within(&fence, Duration::ZERO);
    assert_eq!(fence.as_root("nft list tables").out, "");
}

#[test]
fn a_real_time_signal_reaches_the_command() {
    let fence = Fence::new();
    let script = r#"use POSIX; $| = 1; $SIG{NUM40} = sub { print "forty\n" }; print "ready\n"; <STDIN>; print "end\n""#;
    let (command, ledger) = fence.command(&FLAGS, &["perl", "-e", script]);
    let mut run = Run::of(&fence, command, ledger);
    assert_eq!(run.line(), "ready");
    let said = fence.as_root(&format!("kill -40 {0}; kill -40 {0}", run.pid()));
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!((run.line().as_str(), run.line().as_str()), ("forty", "forty"), "these queue");
    let ended = run.finish(&fence);
    assert_eq!(ended.said.out, "end\n", "{ended}");
}

/// What a process has of its caller: masks and dispositions, umask, limits, niceness and the like.
const STATE: &str = r#"awk '/^(Sig(Blk|Ign|Cgt)|Umask|THP_enabled):/' /proc/self/status; umask; ulimit -a; nice;
    cat /proc/self/oom_score_adj; cat /proc/self/timerslack_ns 2>/dev/null; chrt -p $$ | sed 's/.*: //'; taskset -p $$ | sed 's/.*: //'"#;

#[test]
fn the_callers_state_is_the_commands() {
    let fence = Fence::new();
    for prefix in [
        "",
        "trap '' PIPE;",
        "trap '' CHLD HUP INT;",
        "umask 027; ulimit -n 512; ulimit -c 0; ulimit -s 4096; renice -n 5 $$ >/dev/null;",
        // The mask is inherited from here on; bash itself would put SIGCHLD's back.
        "exec perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM, SIGUSR1)); exec @ARGV' ",
        "exec perl -MPOSIX -e '$SIG{PIPE} = q(IGNORE); $SIG{CHLD} = q(IGNORE); \
            sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGPIPE, SIGCHLD, SIGINT, 40)); exec @ARGV' ",
    ] {
        let states = ["sh -c \"$1\"".to_owned(), format!("{RINGFENCE} run -- sh -c \"$1\"")].map(|words| {
            let mut command = fence.world.command("bash");
            command.args(["-c", &format!("{prefix} {words}"), "bash", STATE]);
            Said::from(fence.world.output(command))
        });
        let [direct, fenced] = states;
        assert_eq!((direct.code, fenced.code), (Some(0), Some(0)), "{prefix}: {direct}{fenced}");
        assert!(direct.out.contains("SigBlk"), "{direct}");
        assert_eq!(fenced.out, direct.out, "{prefix}");
    }
}

#[test]
fn what_is_sent_to_the_group_does_not_reach_the_command_past_us() {
    let fence = Fence::new();
    let (command, ledger) = fence.command(&FLAGS, &["perl", "-e", TELLER]);
    let mut group = fence.world.command("setsid");
    group.arg(command.get_program()).args(command.get_args());
    let mut run = Run::of(&fence, group, ledger);
    assert_eq!(run.line(), "ready");
    // As a shell's `kill %1` and timeout(1) do.
    send(-run.pid(), Signal::SIGTERM);
    assert_eq!(run.line(), "TERM");
    send(run.pid(), Signal::SIGUSR2);
    assert_eq!(run.line(), "USR2", "once only");
    let ended = run.finish(&fence);
    assert_eq!(ended.said.out, "end\n", "{ended}");
}
