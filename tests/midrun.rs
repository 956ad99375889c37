//! What is done to a run from outside while its command runs: each is noticed, named in the record, and the run ends closed
//! within a second, on every rung where it can be done.

#[path = "midrun/cases.rs"]
mod cases;
mod common;
mod living;
#[path = "rungs/rung.rs"]
mod rung;

use cases::{Case, Event, LEDGER, Left, MOUNTS, PROCESSES, WALL};
use common::{Fence, as_root, own_user};
use living::{Run, companion, send, stage_below};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use ringfence::ledger::record::{Body, Gap, Outcome, Record};
use rung::Rung;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use world::Sink;
use world::address::PUBLIC4;

/// A directory where everyone may write, in a tree that the policy makes read-only.
const TREE: &str = "/opt/tree";
/// A port of the outside where only a sink listens.
const PORT: u16 = 4466;
/// Connections to the sink that show that it is there.
const LIVE: usize = 1;

struct Scene {
    fence: Fence,
    sink: Sink,
    rung: Rung,
    user: u32,
    home: String,
    /// Of what has reached the sink, how much is accounted for.
    meanwhile: Cell<usize>,
}

impl Scene {
    fn new(rung: Rung) -> Scene {
        let fence = Fence::new();
        let user = own_user();
        let home = format!("/home/dev{user}");
        rung::prepare(&fence, user, &home);
        as_root(&fence, &format!("mkdir -m 777 {TREE}"));
        let (sink, _) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
        let live =
            format!("exec 3<>/dev/tcp/{PUBLIC4}/{PORT}; echo out >&3; touch {TREE}/live && rm {TREE}/live; echo $?");
        let live = fence.as_nobody(&live);
        assert_eq!(live.out, "0\n", "the vectors are live: {live}");
        sink.wait_for(LIVE);
        Scene { fence, sink, rung, user, home, meanwhile: Cell::new(0) }
    }

    /// A command that is let out where the policy says so, and from then on tries, every 10 ms, to get out elsewhere and to
    /// write where it may not.
    fn start(&self, flags: &[&str]) -> Run {
        let script = format!(
            "curl -s -o /dev/null -w 'allowed=%{{http_code}}\\n' https://pypi.org/
             try() {{ while :; do (exec 3<>/dev/tcp/{PUBLIC4}/{PORT} && echo out >&3) 2>/dev/null
                 curl -s -m 1 -o /dev/null --noproxy '' --proxy \"$https_proxy\" http://{PUBLIC4}:{PORT}/
                 : 2>/dev/null >{TREE}/$1; sleep 0.01; done; }}
             try a & (trap '' TERM HUP INT; try b) & sleep 0.1; echo ready; wait"
        );
        let arguments = ["bash", "-c", &script];
        let (mut command, ledger) = self.rung.command(&self.fence, self.user, &self.home, flags, &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = self.spawn(command, ledger);
        assert_eq!(run.line(), "allowed=200", "{}", self.rung.name());
        assert_eq!(run.line(), "ready");
        run
    }

    fn spawn(&self, command: Command, ledger: String) -> Run {
        let mut child = self.fence.world.spawn_with(&self.rung.less(self.user), command).expect("ringfence starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Run { stdin: child.stdin.take(), err: child.stderr.take(), out, child, ledger }
    }

    fn happen(&self, event: Event, run: &Run) {
        match event {
            Event::Proxy => send(companion(run.pid(), false), Signal::SIGKILL),
            Event::Observer => send(companion(run.pid(), true), Signal::SIGKILL),
            Event::Script(script) => {
                let (stage, mut script) = (stage_below(run.pid()).to_string(), script.to_owned());
                if script.contains("TABLE") {
                    let list = format!("nsenter -t {stage} -n nft list tables | grep -o 'ringfence-.*'");
                    script = script.replace("TABLE", as_root(&self.fence, &list).trim());
                }
                let script = script.replace("LEDGER", &run.ledger).replace("STAGE", &stage).replace("TREE", TREE);
                as_root(&self.fence, &script);
            }
        }
    }

    /// Lets it happen, and holds what follows against the case.
    fn check(&self, (event, says, left): Case) {
        let name = format!("{event:?} on {}", self.rung.name());
        let mut run = self.start(&[]);
        let mut kept = self.open(&run.ledger);
        self.happen(event, &run);
        let at = monotonic();
        assert_eq!(run.status().code(), Some(125), "{name}");
        let took = monotonic() - at;
        living::empty_within(&self.fence, Duration::from_secs(2));
        let packets = self.fence.world.packets().len();
        let mut err = String::new();
        run.err.take().expect("read once").read_to_string(&mut err).expect("UTF-8");
        let ours: Vec<&str> = err.lines().filter(|line| line.starts_with("ringfence: ")).collect();
        assert!(ours.len() == 1 && ours[0].contains(says), "{name}: {err}");
        let mut text = String::new();
        kept.read_to_string(&mut text).expect("UTF-8");
        let text = text.trim_start_matches('\0');
        // Of a line that was cut there is a part, to which the next one was added.
        let records: Vec<Record> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(left == Left::Broken || records.len() == text.lines().count(), "{name}: {text}");
        let abort = records.iter().find(|r| matches!(&r.body, Body::Abort(a) if a.cause.contains(says)));
        let abort = abort.unwrap_or_else(|| panic!("{name}: no abort in {text}"));
        let noticed = Duration::from_nanos(abort.mono_ns).saturating_sub(at);
        println!("{name}: on record after {noticed:?}, over after {took:?}");
        assert!(noticed < Duration::from_secs(1), "{name}: {noticed:?}");
        let Some(Body::Seal(seal)) = records.last().map(|r| &r.body) else { panic!("{name}: no seal in {text}") };
        assert_eq!(seal.outcome, Outcome::Aborted, "{name}");
        self.fence.world.write("/tmp/copy.jsonl", text, 0o600);
        let said = self.fence.verify("/tmp/copy.jsonl");
        let expected: &[i32] = match left {
            Left::Incomplete => &[1],
            Left::Either => &[0, 1],
            Left::Broken => &[2],
        };
        assert!(said.code.is_some_and(|code| expected.contains(&code)), "{name}: {said}");
        assert!(seal.complete == (said.code == Some(0)) || left == Left::Broken, "{name}: {said}");
        assert!(left != Left::Broken || !seal.complete, "{name}");
        self.assert_held(
            &name,
            matches!(event, Event::Script(script) if script.contains("nft") || script.contains("/opt")),
        );
        assert_eq!(self.fence.world.packets().len(), packets, "{name}");
        as_root(&self.fence, "rm -rf /var/log/rungs* /opt/tree/*");
        rung::prepare(&self.fence, self.user, &self.home);
    }

    /// Nothing got out and nothing was written; where the barrier itself is what was taken away, in the moment before the end
    /// each of the two may have had its try.
    fn assert_held(&self, name: &str, in_the_moment: bool) {
        let out = self.sink.settled().len() - LIVE - self.meanwhile.get();
        let written = as_root(&self.fence, &format!("ls {TREE} | wc -l"));
        let most = if in_the_moment { 2 } else { 0 };
        assert!(out <= most, "{name}: {out} got out");
        self.meanwhile.set(self.meanwhile.get() + out);
        assert!(written.trim().parse::<usize>().is_ok_and(|files| files <= most), "{name}: {written}");
    }

    fn open(&self, path: &str) -> File {
        let path = path.to_owned();
        self.fence.world.inside().run(move || File::open(path).expect("the ledger"))
    }
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock").into()
}

fn check_all(rung: Rung, cases: &[&[Case]]) {
    let scene = Scene::new(rung);
    cases.iter().flat_map(|cases| cases.iter()).for_each(|case| scene.check(*case));
}

#[test]
fn full_ends_closed() {
    check_all(Rung::Full, &[&WALL, &MOUNTS, &PROCESSES, &LEDGER]);
}

#[test]
fn rootless_ends_closed() {
    check_all(Rung::Rootless, &[&WALL, &MOUNTS, &PROCESSES, &LEDGER]);
}

#[test]
fn container_ends_closed() {
    check_all(Rung::Container, &[&PROCESSES, &LEDGER]);
}

#[test]
fn bare_ends_closed() {
    check_all(Rung::Bare, &[&PROCESSES, &LEDGER]);
}

#[test]
fn mounts_that_go_with_what_they_were_on_outside_end_nothing() {
    let scene = Scene::new(Rung::Full);
    let fence = &scene.fence;
    // As when another container of the host's ends: its mounts were copied with the tree, and go with their directory.
    fence.world.inside().run(|| {
        std::fs::create_dir_all("/opt/other").expect("mkdir");
        nix::mount::mount(Some("other"), "/opt/other", Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>)
            .expect("mount");
    });
    let mut run = scene.start(&[]);
    let table =
        |run: &Run| std::fs::read_to_string(format!("/proc/{}/mountinfo", stage_below(run.pid()))).expect("a table");
    assert!(table(&run).contains(" /opt/other "), "the copy");
    fence.world.inside().run(|| {
        nix::mount::umount("/opt/other").expect("umount");
        std::fs::remove_dir("/opt/other").expect("rmdir");
    });
    living::until("the copy to go", || !table(&run).contains(" /opt/other "));
    std::thread::sleep(Duration::from_millis(300));
    assert!(run.child.try_wait().expect("wait").is_none(), "it goes on");
    send(run.pid(), Signal::SIGTERM);
    let ended = run.finish(fence);
    assert!(ended.seal().complete && ended.seal().outcome != Outcome::Aborted, "{ended}");
}

#[test]
fn a_ledger_that_is_removed_holds_new_egress_where_it_may_degrade() {
    let scene = Scene::new(Rung::Full);
    let script = "fetch() { curl -s -m 1 -o /dev/null -w \"$1=%{http_code}\\n\" https://pypi.org/; }
        fetch before; read go; fetch without; read go; for n in 1 2 3 4 5; do fetch after; sleep 0.3; done; exit 7";
    for back in [true, false] {
        let flags = ["--ledger", "degrade"];
        let (mut command, ledger) =
            scene.rung.command(&scene.fence, scene.user, &scene.home, &flags, &["bash", "-c", script]);
        command.stdin(Stdio::piped());
        let mut run = Run::of(&scene.fence, command, ledger);
        assert_eq!(run.line(), "before=200");
        let mut kept = scene.open(&run.ledger);
        let go =
            |run: &mut Run| std::io::Write::write_all(run.stdin.as_mut().expect("piped"), b"\n").expect("it reads");
        as_root(&scene.fence, &format!("mv {0} {0}.old", run.ledger));
        std::thread::sleep(Duration::from_secs(1));
        go(&mut run);
        assert_ne!(run.line(), "without=200");
        if back {
            as_root(&scene.fence, &format!("mv {0}.old {0}", run.ledger));
        }
        go(&mut run);
        let mut out = String::new();
        run.out.read_to_string(&mut out).expect("UTF-8");
        assert_eq!(out.contains("after=200"), back, "{out}");
        // A record that nobody can find is not passed off as one.
        assert_eq!(run.status().code(), Some(if back { 7 } else { 125 }));
        let mut text = String::new();
        kept.read_to_string(&mut text).expect("UTF-8");
        let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
        let gap =
            |r: &Record| matches!(&r.body, Body::Gap(Gap { source, lost, .. }) if source == "ledger" && *lost > 0);
        assert_eq!(records.iter().filter(|r| gap(r)).count(), 1, "{text}");
        assert!(matches!(records.last().map(|r| &r.body), Some(Body::Seal(seal)) if !seal.complete), "{text}");
        as_root(&scene.fence, "rm -rf /var/log/rungs*");
        rung::prepare(&scene.fence, scene.user, &scene.home);
    }
}

#[test]
fn any_of_ours_is_killed_at_any_time() {
    let scene = Scene::new(Rung::Full);
    let until = Instant::now() + Duration::from_secs(30);
    let mut tries = 0;
    while tries < 20 && Instant::now() < until {
        let mut run = scene.start(&[]);
        // Spread over the loop's round and over what it has under way.
        std::thread::sleep(Duration::from_micros(u64::from(
            (std::process::id() ^ tries).wrapping_mul(2_654_435_761) % 40_000,
        )));
        let victim = match tries % 4 {
            0 => run.pid(),
            1 => companion(run.pid(), false),
            2 => companion(run.pid(), true),
            _ => stage_below(run.pid()),
        };
        send(victim, Signal::SIGKILL);
        let code = run.status().code();
        assert_eq!(code, if tries % 4 == 0 { None } else { Some(125) });
        living::empty_within(&scene.fence, Duration::from_secs(2));
        let packets = scene.fence.world.packets().len();
        scene.assert_held(&format!("try {tries}"), false);
        let said = scene.fence.verify(&run.ledger);
        assert!(matches!(said.code, Some(0 | 1)), "never altered: {said}");
        assert!(code.is_some() || said.code == Some(1), "without a seal it is not whole: {said}");
        assert_eq!(scene.fence.world.packets().len(), packets);
        as_root(&scene.fence, "rm -rf /var/log/rungs*");
        rung::prepare(&scene.fence, scene.user, &scene.home);
        tries += 1;
    }
    println!("{tries} tries");
    assert!(tries >= 8, "each of the four twice: {tries}");
    let last = scene.rung.run(&scene.fence, scene.user, &scene.home, &[], &["true"]);
    assert_eq!(last.said.code, Some(0), "{last}");
    assert_eq!(scene.fence.as_root("nft list tables").out, "", "the stale walls are cleared");
}

#[test]
fn the_watch_wakes_nobody_while_nothing_happens() {
    // Twice a second where there are no notices of the ledger's file.
    for (rung, most) in [(Rung::Full, 0), (Rung::Bare, 8)] {
        let scene = Scene::new(rung);
        let (mut command, ledger) =
            rung.command(&scene.fence, scene.user, &scene.home, &[], &["bash", "-c", "echo ready; read go"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = scene.spawn(command, ledger);
        assert_eq!(run.line(), "ready");
        std::thread::sleep(Duration::from_secs(1));
        let woken = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", run.pid())).expect("it lives");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number")
        };
        let before = woken();
        std::thread::sleep(Duration::from_secs(3));
        let times = woken() - before;
        println!("{}: woken {times} times in 3 s", rung.name());
        assert!(times <= most, "{}: {times}", rung.name());
        assert_eq!(run.finish(&scene.fence).said.code, Some(1));
    }
}
