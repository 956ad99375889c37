//! The death of each of our processes, and of the wall: egress stays closed, what can be ended is ended, and the record of
//! it is never taken for a complete one.

mod common;
mod living;

use common::{Ended, Fence, as_root, value};
use living::{Run, send, until};
use nix::sys::signal::Signal;
use ringfence::ledger::record::Body;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use world::Sink;
use world::address::PUBLIC4;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A port of the outside where only a sink listens.
const PORT: u16 = 4455;

/// A command with descendants everywhere, each of which tries to get out for as long as it lives: directly, and by the port
/// where the proxy was. The marks show that they live.
fn hydra() -> String {
    format!(
        "try() {{ while :; do (exec 3<>/dev/tcp/{PUBLIC4}/{PORT} && echo out >&3) 2>/dev/null
             curl -s -m 1 -o /dev/null --noproxy '' --proxy \"$https_proxy\" http://{PUBLIC4}:{PORT}/; sleep 0.01; done; }}
         try & (setsid bash -c \"$(declare -f try); try\" &) ; (trap '' TERM HUP INT; try) & sleep 0.3; echo ready; wait"
    )
}

struct Scene {
    fence: Fence,
    sink: Sink,
    run: Run,
}

/// The hydra at large, and the proof that its way out is live.
fn scene() -> Scene {
    let fence = Fence::new();
    let (sink, _) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    let live = fence.as_nobody(&format!("exec 3<>/dev/tcp/{PUBLIC4}/{PORT}; echo out >&3; echo $?"));
    assert_eq!(live.out, "0\n", "the vector is live: {live}");
    sink.wait_for(1);
    let mut run = Run::start(&fence, &FLAGS, &hydra());
    assert_eq!(run.line(), "ready");
    Scene { fence, sink, run }
}

impl Scene {
    /// Nothing is left within two seconds, and nothing has got out.
    fn over(&mut self) {
        living::empty_within(&self.fence, Duration::from_secs(2));
        self.nothing_got_out();
    }

    fn nothing_got_out(&self) {
        let before = 1;
        self.fence.world.packets();
        assert_eq!(self.sink.arrivals().len(), before, "{:?}", self.sink.arrivals());
    }

    /// The run's own account of an end that it could still write down.
    fn aborted(self, says: &str) -> Ended {
        let Scene { fence, run, .. } = self;
        let ended = run.finish(&fence);
        // A shell that outlives a part of its job by a moment says so on the same stderr.
        let ours = ended.said.err.lines().filter(|line| line.starts_with("ringfence: ")).count();
        assert_eq!((ended.said.code, ours), (Some(125), 1), "{ended}");
        assert!(ended.said.err.contains(says), "{ended}");
        assert!(ended.records.iter().any(|r| matches!(&r.body, Body::Abort(a) if a.cause.contains(says))), "{ended}");
        assert_eq!(ended.seal().outcome, ringfence::ledger::record::Outcome::Aborted, "{ended}");
        assert_ne!(fence.verify(&ended.ledger).code, Some(2), "{ended}");
        assert_eq!(fence.as_root("nft list tables").out, "");
        ended
    }

    /// The record of a run whose supervisor was killed, and what the next run finds and clears.
    fn cut_off(self) {
        let Scene { fence, run, .. } = self;
        let ended = run.finish(&fence);
        assert_eq!(ended.said.code, Some(-9), "{ended}");
        let said = fence.verify(&ended.ledger);
        assert_eq!(said.code, Some(1), "incomplete and not altered: {said}");
        let uid = ended.start().uid;
        let stays = fence.as_root("nft list tables").out;
        assert!(stays.contains(&format!("inet ringfence-{uid}-")), "the wall outlives us: {stays}");
        // A process of the uid without us is still held; the next run leaves that wall, and takes another uid.
        let (sink, _) = world::internet::everywhere(&fence.world, PORT + 1).expect("sinks");
        let orphan = format!(
            "setpriv --reuid {uid} --regid {uid} --clear-groups bash -c \
             'exec 3<>/dev/tcp/{PUBLIC4}/{}; echo got=$?; read wait' 2>&1",
            PORT + 1
        );
        let next = fence.as_root(&format!(
            "coproc {{ {orphan}; }}; read -r line <&${{COPROC[0]}}; echo \"held=$line\"
             {} run -- id -u; nft list tables; echo >&${{COPROC[1]}}; wait",
            common::RINGFENCE
        ));
        assert!(value(&next, "held").contains("Connection refused"), "{next}");
        assert!(next.out.contains(&format!("inet ringfence-{uid}-")), "a wall with someone behind it stays: {next}");
        assert!(!next.out.lines().any(|line| line == uid.to_string()), "another uid: {next}");
        assert_eq!(sink.arrivals(), []);
        let last = fence.run(&FLAGS, "id -u");
        assert_eq!((last.said.code, last.said.out.trim()), (Some(0), uid.to_string().as_str()), "{last}");
        assert_eq!(fence.as_root("nft list tables").out, "", "the stale wall is cleared");
    }
}

/// What a shadow's command leaves behind is root's, with sockets of the account that it would have been.
#[test]
fn a_wall_stays_while_a_socket_of_its_uid_does() {
    let fence = Fence::new();
    let first = fence.run(&FLAGS, "id -u");
    let uid = first.start().uid;
    let table = format!("inet ringfence-{uid}-0123456789abcdef");
    as_root(&fence, &format!("nft add table {table}"));
    let script =
        "import os, socket, sys; os.seteuid(int(sys.argv[1])); s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0)); os.seteuid(0); print('bound', flush=True); sys.stdin.read()";
    let mut python = fence.world.command("python3");
    python.args(["-c", script, &uid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = fence.world.spawn(python).expect("python3");
    let mut bound = String::new();
    BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut bound).expect("its line");
    assert_eq!(bound, "bound\n");
    let next = fence.run(&FLAGS, "id -u");
    assert_eq!(next.said.code, Some(0), "{next}");
    assert_ne!(next.start().uid, uid, "another uid: {next}");
    assert_eq!(fence.as_root("nft list tables").out, format!("table {table}\n"));
    drop(holder.stdin.take());
    assert!(holder.wait().expect("wait").success());
    let last = fence.run(&FLAGS, "id -u");
    assert_eq!(last.said.code, Some(0), "{last}");
    assert_eq!(fence.as_root("nft list tables").out, "", "the stale wall is cleared");
}

#[test]
fn of_the_supervisor() {
    let mut scene = scene();
    send(scene.run.pid(), Signal::SIGKILL);
    scene.over();
    scene.cut_off();
}

#[test]
fn of_the_supervisor_during_the_set_up() {
    let fence = Fence::new();
    for after in [0, 10, 25, 50, 75, 100, 125, 150, 175, 200, 250] {
        let run = Run::start(&fence, &FLAGS, "touch /workspace/started; sleep 600");
        std::thread::sleep(Duration::from_millis(after));
        send(run.pid(), Signal::SIGKILL);
        living::empty_within(&fence, Duration::from_secs(2));
        let ended = run.finish(&fence);
        assert_eq!(ended.said.code, Some(-9), "after {after} ms: {ended}");
    }
    let last = fence.run(&FLAGS, "echo whole");
    assert_eq!(last.said.out, "whole\n", "{last}");
    assert_eq!(fence.as_root("nft list tables").out, "", "stale walls are cleared");
}

#[test]
fn of_the_callers_whole_process_group() {
    let fence = Fence::new();
    let (sink, _) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    let (command, ledger) = fence.command(&FLAGS, &["bash", "-c", &hydra()]);
    let mut group = fence.world.command("setsid");
    group.arg(command.get_program()).args(command.get_args());
    let mut run = Run::of(&fence, group, ledger);
    assert_eq!(run.line(), "ready");
    send(-run.pid(), Signal::SIGKILL);
    living::empty_within(&fence, Duration::from_secs(2));
    fence.world.packets();
    assert_eq!(sink.arrivals(), []);
    let ended = run.finish(&fence);
    assert_eq!((ended.said.code, fence.verify(&ended.ledger).code), (Some(-9), Some(1)), "{ended}");
}

#[test]
fn of_the_stage() {
    let mut scene = scene();
    send(scene.run.stage(), Signal::SIGKILL);
    scene.over();
    scene.aborted("stage: the other process has ended");
}

#[test]
fn of_the_proxy() {
    let mut scene = scene();
    send(scene.run.proxy(), Signal::SIGKILL);
    scene.over();
    scene.aborted("the proxy has ended");
}

#[test]
fn of_a_stage_that_hangs() {
    let mut scene = scene();
    let stage = scene.run.stage();
    send(stage, Signal::SIGSTOP);
    until("the stop", || living::state(stage).as_deref() == Some("T"));
    // The run has to end for another reason, and the stage does not obey.
    send(scene.run.proxy(), Signal::SIGKILL);
    assert_eq!(scene.run.status().code(), Some(125));
    living::empty_within(&scene.fence, Duration::ZERO);
    scene.nothing_got_out();
    scene.aborted("the proxy has ended");
}

#[test]
fn of_the_wall() {
    for change in ["delete table", "flush table", "flush ruleset", "add rule"] {
        let mut scene = scene();
        let table = scene.fence.as_root("nft list tables | grep -o 'ringfence-.*'").out;
        let table = table.trim();
        let command = match change {
            "flush ruleset" => change.to_owned(),
            "add rule" => {
                let chain =
                    scene.fence.as_root(&format!("nft list table inet {table} | awk '/chain/ {{ print $2; exit }}'"));
                format!("insert rule inet {table} {} accept", chain.out.trim())
            }
            other => format!("{other} inet {table}"),
        };
        let said = scene.fence.as_root(&format!("nft '{command}'"));
        assert_eq!(said.code, Some(0), "{said}");
        let since = Instant::now();
        assert_eq!(scene.run.status().code(), Some(125), "{change}");
        let took = since.elapsed();
        living::empty_within(&scene.fence, Duration::ZERO);
        // Between the change and the end there is a moment that no watch can take away; then nothing moves any more.
        let (meanwhile, during) = (scene.sink.arrivals().len() - 1, scene.fence.world.packets_to(PUBLIC4).len());
        println!("{change}: ended after {took:?}, {meanwhile} got out meanwhile");
        assert!(took < Duration::from_secs(1), "{change}: {took:?}");
        assert!(meanwhile <= 3, "{change}: one try of each of the three at most, not {meanwhile}");
        assert_eq!(scene.fence.world.packets_to(PUBLIC4).len(), during);
        let ended = scene.aborted("the firewall's rules were changed in mid-run");
        // Where the counters have gone with the rules, the record does not claim to be whole.
        assert_eq!(ended.seal().complete, change == "add rule", "{ended}");
    }
}

#[test]
fn is_not_to_be_had_from_within() {
    let fence = Fence::new();
    // All that the command can send and see, at all our processes, over and over; by number, by group, and to all.
    let hammer = r#"
        my %seen; my $limits = pack("QQ", 3, 3); my $until = time + 4; my $me = $$; $SIG{TERM} = $SIG{HUP} = q(IGNORE); $| = 1;
        my @ours = grep { my $n = $_; open my $f, "<", "/proc/$n/comm"; my $c = <$f> // ""; $c eq "ringfence\n" } map { m{/proc/(\d+)$} } glob("/proc/[0-9]*");
        print "targets=", scalar(@ours), "\n";
        while (time < $until) {
            for my $pid (@ours) {
                for my $signal (0, 19, 15, 9, 18) { $seen{kill $signal, $pid}++; $seen{"group " . kill -$signal, $pid}++ if $signal }
                $seen{"trace " . (syscall(101, 0x4206, $pid, 0, 0) + 0)}++;
                $seen{"memory " . (open(my $m, "+<", "/proc/$pid/mem") ? 1 : 0)}++;
                $seen{"pidfd " . (syscall(438, syscall(434, $pid, 0), 0, 0) >= 0 ? 1 : 0)}++;
                $seen{"limit " . (syscall(302, $pid, 7, $limits, 0) + 0)}++;
            }
            kill 15, -1;
            if (!fork) { exec "/bin/true" }
        }
        print join(", ", sort keys %seen), "\n";"#;
    let (command, ledger) = fence.command(&[&FLAGS[..], &["--leftovers", "kill"]].concat(), &["perl", "-e", hammer]);
    let mut run = Run::of(&fence, command, ledger);
    let targets = run.line();
    assert!(targets != "targets=0" && targets.starts_with("targets="), "{targets}");
    let ours = [run.pid(), run.stage(), run.proxy()];
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        for pid in ours {
            let state = living::state(pid).expect("it lives");
            assert!(!["T", "t", "Z"].contains(&state.as_str()), "{pid} is {state}");
        }
    }
    let ended = run.finish(&fence);
    assert_eq!(ended.said.out.trim(), "0, group 0, limit -1, memory 0, pidfd 0, trace -1", "{ended}");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert!(ended.seal().complete, "{ended}");
}
