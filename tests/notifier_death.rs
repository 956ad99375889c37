//! Death and silence around the notifier: whoever of ours is killed, stopped, or cannot write, no call is allowed that should
//! have been refused, none hangs, and the record is never taken for a whole one when it is not.

mod callers;
mod common;
mod living;

use common::{Ended, Fence, as_root};
use living::{PATIENCE, Run, send, state, until};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use ringfence::ledger::record::{Body, Outcome};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use world::Sink;
use world::address::PUBLIC4;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A directory of the image where everyone may do everything, in a tree that the policy makes read-only.
const TREE: &str = "/opt/tree";
/// A port of the outside where only a sink listens.
const PORT: u16 = 4477;

/// Connections to the sink that are made to show that it is there.
const LIVE: usize = 1;

struct Scene {
    fence: Fence,
    sink: Sink,
    before: String,
}

/// The box, and the proof that what will be refused is there to be had.
fn scene() -> Scene {
    let fence = callers::fence(&["crowds"]);
    // Mounts with exchanged ids, so that runs side by side share the workspaces.
    for place in ["/app", "/workspace"] {
        fence.world.mount_memory(place).expect("a file system in memory");
    }
    let (sink, _) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    as_root(
        &fence,
        &format!("mkdir -m 777 {TREE} {TREE}.live && echo kept > {TREE}/file && cp -a {TREE}/. {TREE}.live"),
    );
    as_root(&fence, &format!("chmod 666 {TREE}/file {TREE}.live/file"));
    let (live_sink, _) = world::internet::everywhere(&fence.world, PORT + 1).expect("sinks");
    let live = fence.as_nobody(&format!("crowds acts {TREE}.live {PUBLIC4} {} 1", PORT + 1));
    for act in ["mkdir", "open", "connect"] {
        assert!(live.out.lines().any(|line| line == format!("{act} ok")), "{act}: {live}");
    }
    live_sink.wait_for(1);
    let live = fence.as_nobody(&format!("exec 3<>/dev/tcp/{PUBLIC4}/{PORT}; echo $?"));
    assert_eq!(live.out, "0\n", "{live}");
    sink.wait_for(LIVE);
    let before = tree(&fence);
    Scene { fence, sink, before }
}

fn tree(fence: &Fence) -> String {
    as_root(fence, &format!("find {TREE} -printf '%p %y %m %U %n %s %T@\\n' | sort; cat {TREE}/file"))
}

fn acts(seconds: u32) -> [String; 6] {
    ["crowds", "acts", TREE, &PUBLIC4.to_string(), &PORT.to_string(), &seconds.to_string()].map(str::to_owned)
}

impl Scene {
    fn start(&self, flags: &[&str], seconds: u32) -> Run {
        let arguments = acts(seconds);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (command, ledger) = self.fence.command(&[&FLAGS[..], flags].concat(), &arguments);
        Run::of(&self.fence, command, ledger)
    }

    /// Nothing was done that should have been refused.
    fn assert_held(&self) {
        assert_eq!(tree(&self.fence), self.before);
        assert_eq!(self.sink.arrivals().len(), LIVE);
    }
}

/// What the acts met, of which none that is refused went through.
fn assert_refused(out: &str) -> BTreeSet<&str> {
    let met: BTreeSet<&str> = out.lines().collect();
    for act in ["mkdir ok", "open ok", "connect ok"] {
        assert!(!met.contains(act), "{out}");
    }
    let known = [
        "mkdir EROFS",
        "mkdir ENOSYS",
        "open EROFS",
        "open ENOSYS",
        "connect ECONNREFUSED",
        "connect ENOSYS",
        "allowed ok",
        "allowed ENOSYS",
        "acts",
    ];
    let strange: Vec<&&str> =
        met.iter().filter(|line| !known.contains(line) && !line.starts_with("worst-ms")).collect();
    assert!(strange.is_empty(), "{strange:?} in {out}");
    met
}

/// Numbers that look random, the same for one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What became of the runs whose supervisor was killed.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    /// Ended by themselves before they were to be killed, and started nothing.
    not_started: usize,
    with_record: usize,
    with_denials: usize,
    acted: usize,
    slowest: Duration,
}

impl Tally {
    /// Whether the kills have met runs before their record, and those that were refused something already.
    fn is_strewn(&self, wanted: usize) -> bool {
        self.with_record > wanted / 4 && self.with_denials > wanted / 10
    }

    /// How long a run takes until it acts is measured once, and may be more or less when it counts: then there are more runs.
    fn goes_on(&self, wanted: usize) -> bool {
        self.runs < wanted || (!self.is_strewn(wanted) && self.runs < 3 * wanted)
    }
}

// 200 runs in all.

#[test]
fn of_the_supervisor_at_any_moment_of_50_runs() {
    at_any_moment(50);
}

#[test]
fn of_the_supervisor_at_any_moment_of_50_more() {
    at_any_moment(50);
}

#[test]
fn of_the_supervisor_at_any_moment_of_another_50() {
    at_any_moment(50);
}

#[test]
fn of_the_supervisor_at_any_moment_of_the_last_50() {
    at_any_moment(50);
}

/// Kills the supervisors of so many runs, some of which are under way at once, each at a moment of its own.
fn at_any_moment(wanted: usize) {
    const AT_ONCE: usize = 6;
    let scene = scene();
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    println!("seed {seed}");
    // How long it takes until the command acts decides over which time the kills are strewn.
    let since = Instant::now();
    let mut first: Vec<Run> = (0..AT_ONCE).map(|_| scene.start(&[], 0)).collect();
    first.iter_mut().for_each(|run| assert_eq!(run.line(), "acts"));
    let whole = since.elapsed();
    let tally = Mutex::new(Tally::default());
    let numbers = Mutex::new(Numbers(seed));
    std::thread::scope(|scope| {
        for run in first {
            scope.spawn(|| {
                let mut run = Some(run);
                while tally.lock().expect("no panic").goes_on(wanted) {
                    let after = whole.mul_f64(2.0) * numbers.lock().expect("no panic").below(1000) as u32 / 1000;
                    let run = run.take().unwrap_or_else(|| {
                        let run = scene.start(&[], 0);
                        std::thread::sleep(after);
                        run
                    });
                    let one = cut_off(&scene.fence, run);
                    let mut all = tally.lock().expect("no panic");
                    all.runs += one.runs;
                    all.not_started += one.not_started;
                    all.with_record += one.with_record;
                    all.with_denials += one.with_denials;
                    all.acted += one.acted;
                    all.slowest = all.slowest.max(one.slowest);
                }
            });
        }
    });
    living::empty_within(&scene.fence, Duration::from_secs(5));
    scene.assert_held();
    let tally = tally.into_inner().expect("no panic");
    println!("{tally:?}");
    assert!(tally.is_strewn(wanted), "strewn over all of a run: {tally:?}");
    // The walls of others come and go while one's own is read back, and a reading that does not settle starts nothing.
    assert!(tally.not_started <= wanted / 5, "{tally:?}");
    assert!(tally.slowest < Duration::from_secs(5), "{tally:?}");
}

/// Kills the supervisor of a run; what is left of it ends, and its record says what it is.
fn cut_off(fence: &Fence, run: Run) -> Tally {
    send(run.pid(), Signal::SIGKILL);
    let since = Instant::now();
    // Its output ends with the last process that has it.
    let ended = run.finish(fence);
    let slowest = since.elapsed();
    if ended.said.code == Some(125) && ended.said.out.is_empty() && ended.said.err.starts_with("ringfence: ") {
        return Tally { not_started: 1, ..Tally::default() };
    }
    assert_eq!(ended.said.code, Some(-9), "{ended}");
    assert_refused(&ended.said.out);
    let said = fence.verify(&ended.ledger);
    if ended.records.is_empty() {
        assert_ne!(said.code, Some(0), "{said}");
    } else {
        assert_eq!(said.code, Some(1), "incomplete and not altered: {said}");
        assert!(said.out.contains("no seal"), "{said}");
    }
    Tally {
        runs: 1,
        not_started: 0,
        with_record: usize::from(!ended.records.is_empty()),
        with_denials: usize::from(!ended.denials().is_empty()),
        acted: usize::from(!ended.said.out.is_empty()),
        slowest,
    }
}

/// Kills one of ours in mid-run; the run ends by itself and says why.
fn killed(which: fn(&Run) -> i32, says: &str) -> (Ended, Duration) {
    let scene = scene();
    let mut run = scene.start(&[], 0);
    assert_eq!(run.line(), "acts");
    let (victim, observer) = (which(&run), run.observer());
    until("a refusal", || run.ledger_of(&scene.fence).contains("\"denial\""));
    send(victim, Signal::SIGKILL);
    let since = Instant::now();
    living::empty_within(&scene.fence, Duration::from_secs(4));
    let took = since.elapsed();
    assert!(state(observer).is_none(), "the observer is gone");
    let ended = run.finish(&scene.fence);
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains(says), "{says}: {}", ended.said.err);
    assert!(
        ended.records.iter().any(|r| matches!(&r.body, Body::Abort(a) if a.cause.contains(says))),
        "{}",
        ended.said
    );
    assert_eq!(ended.seal().outcome, Outcome::Aborted);
    assert_ne!(scene.fence.verify(&ended.ledger).code, Some(2));
    assert_refused(&ended.said.out);
    scene.assert_held();
    (ended, took)
}

#[test]
fn of_the_observer() {
    // Who lives on for a moment meets a kernel without the calls. That moment may be too short for anyone to act in.
    let lived_on = |_| {
        let (ended, _) = killed(Run::observer, "observer: it has ended");
        assert!(!ended.seal().complete, "what it had seen and not told is not known: {:?}", ended.seal());
        let met = assert_refused(&ended.said.out);
        met.iter().any(|line| line.ends_with(" ENOSYS"))
    };
    assert!((0..10).any(lived_on), "nobody has lived on in ten runs");
}

#[test]
fn of_the_stage() {
    killed(Run::stage, "stage: the other process has ended");
}

#[test]
fn of_the_proxy() {
    killed(Run::proxy, "the proxy has ended");
}

#[test]
fn a_supervisor_that_stands_still_holds_calls_up_and_loses_none() {
    let scene = scene();
    let mut run = scene.start(&[], 3);
    assert_eq!(run.line(), "acts");
    let still = Duration::from_millis(800);
    send(run.pid(), Signal::SIGSTOP);
    until("the stop", || state(run.pid()).as_deref() == Some("T"));
    std::thread::sleep(still);
    send(run.pid(), Signal::SIGCONT);
    let ended = run.finish(&scene.fence);
    assert_eq!(ended.said.code, Some(0), "{}", ended.said);
    let met = assert_refused(&ended.said.out);
    let worst = met.iter().find_map(|line| line.strip_prefix("worst-ms ")?.parse::<u64>().ok()).expect("a number");
    assert!(worst >= 500, "it waited: {worst}");
    assert!(worst < still.as_millis() as u64 + 1000, "and no longer than it had to: {worst}");
    assert!(!met.iter().any(|line| line.contains("ENOSYS")), "{}", ended.said);
    assert!(ended.seal().complete, "{:?}", ended.seal());
    scene.assert_held();
}

#[test]
fn an_outcome_that_is_not_known_is_a_gap() {
    let scene = scene();
    let ended = scene.fence.run(&FLAGS, "crowds unknown; crowds unknown; mkdir /usr/known");
    assert_eq!(ended.said.out, "open EACCES\nopen EACCES\n", "{ended}");
    let gaps: Vec<_> =
        ended.records.iter().filter_map(|r| if let Body::Gap(gap) = &r.body { Some(gap) } else { None }).collect();
    assert!(gaps.iter().all(|gap| gap.source == "notifier"), "{ended}");
    assert_eq!(gaps.iter().map(|gap| gap.lost).sum::<u64>(), 2, "{ended}");
    assert!(!ended.seal().complete && ended.denials().len() == 1, "{ended}");
    assert_eq!(scene.fence.verify(&ended.ledger).code, Some(1));
}

/// A small file system of its own for the ledger, which is filled and freed.
const DISK: &str = "/srv/small";

fn mount_disk(fence: &Fence) {
    fence.world.inside().run(|| {
        std::fs::create_dir_all(DISK).expect("mkdir");
        mount(Some("tmpfs"), DISK, Some("tmpfs"), MsFlags::empty(), Some("size=256k,mode=0700")).expect("mount");
    });
}

fn fill(fence: &Fence) {
    fence.world.inside().run(|| {
        let mut filler = std::fs::File::create(format!("{DISK}/filler")).expect("create");
        while filler.write_all(&[0; 512]).is_ok() {}
    });
}

/// A command that makes so many refused acts, each on another object, when it is told to.
fn on_full_disk(fence: &Fence, flags: &[&str], count: usize) -> Run {
    let ledger = format!("{DISK}/run.jsonl");
    let script =
        format!("echo ready; read go; crowds distinct {TREE} {count}; echo through; read go; mkdir {TREE}/last");
    let mut command = fence.world.command(common::RINGFENCE);
    command.arg("run").args(FLAGS).args(flags).args(["--ledger", &ledger, "--", "bash", "-c", &script]);
    let mut run = Run::of(fence, command, ledger);
    assert_eq!(run.line(), "ready");
    run
}

fn go(run: &mut Run) {
    run.stdin.as_mut().expect("piped").write_all(b"\n").expect("the command reads");
}

#[test]
fn a_full_disk_ends_the_run_where_the_ledger_is_required() {
    let scene = scene();
    mount_disk(&scene.fence);
    let mut run = on_full_disk(&scene.fence, &[], 500);
    fill(&scene.fence);
    go(&mut run);
    assert_eq!(run.status().code(), Some(125));
    living::empty_within(&scene.fence, Duration::from_secs(2));
    let mut rest = String::new();
    run.out.read_to_string(&mut rest).expect("UTF-8");
    assert!(!rest.contains("ok") && !rest.contains("through"), "{rest}");
    // The last record is torn where the disk ended.
    let said = scene.fence.verify(&run.ledger);
    assert_eq!(said.code, Some(1), "{said}");
    assert_eq!(tree(&scene.fence), scene.before);
}

#[test]
fn a_full_disk_is_counted_to_the_last_refusal_where_the_ledger_may_degrade() {
    const COUNT: usize = 500;
    let scene = scene();
    mount_disk(&scene.fence);
    let mut run = on_full_disk(&scene.fence, &["--ledger", "degrade"], COUNT);
    let before = run.ledger_of(&scene.fence).lines().filter(|line| line.contains("\"kind\":\"denial\"")).count();
    assert_eq!(before, 0);
    fill(&scene.fence);
    go(&mut run);
    let mut lines = vec![run.line(), run.line()];
    while lines.last().is_some_and(|line| line != "through") {
        lines.push(run.line());
    }
    // No refusal waits for the disk.
    let took = lines.iter().find_map(|line| line.strip_prefix("distinct-ms ")?.parse::<u64>().ok()).expect("a number");
    assert!(took < 20_000, "{took} ms for {COUNT}");
    scene.fence.world.inside().run(|| std::fs::remove_file(format!("{DISK}/filler")).expect("remove"));
    go(&mut run);
    let ended = run.finish(&scene.fence);
    let lost: u64 = ended.records.iter().map(|r| if let Body::Gap(gap) = &r.body { gap.lost } else { 0 }).sum();
    let stored: u64 = ended.denials().iter().map(|denial| denial.count).sum();
    assert_eq!(lost + stored, COUNT as u64 + 1, "{lost} lost, {stored} stored");
    assert!(lost > COUNT as u64 / 2, "{lost}");
    assert!(!ended.seal().complete, "{:?}", ended.seal());
    assert_eq!(scene.fence.verify(&ended.ledger).code, Some(1));
    assert_eq!(tree(&scene.fence), scene.before);
}

#[test]
fn a_flood_of_connections_does_not_keep_the_supervisor_from_its_signals() {
    let scene = scene();
    let mut run = scene.start(&["--leftovers", "kill"], 0);
    assert_eq!(run.line(), "acts");
    std::thread::sleep(Duration::from_millis(500));
    // The first is passed on to the command, which dies of it; its child does not, and is ended.
    send(run.pid(), Signal::SIGTERM);
    let since = Instant::now();
    let status = run.status();
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    assert_eq!(status.code(), Some(143));
    living::empty_within(&scene.fence, PATIENCE);
    let mut rest = String::new();
    run.out.read_to_string(&mut rest).expect("UTF-8");
    assert_refused(&rest);
}
