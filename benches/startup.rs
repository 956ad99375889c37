//! What ringfence adds to the start of a program: `true` by plain exec, under others of its kind and under
//! `ringfence run`, turn by turn in the same rounds, so that whatever else the machine does meets all of them alike. Then the
//! same by rung.
//!
//! `make bench` runs it over the stripped binary in a closed world. `startup PATH [ROUNDS]`. With `RINGFENCE_BENCH_UNPROBED`, which
//! names a build with the feature `mutation`, a start is measured too of which the pre-flight probes alone are left out.
#![allow(missing_docs, reason = "a program")]

mod peers;
#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use nix::time::{ClockId, clock_gettime};
use ringfence::mutation::PROBING;
use rounds::line::By;
use rounds::sample::Measured;
use rounds::{Bench, table};
use serde_json::Value;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use world::{Less, World};

const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LEDGER: &str = "/var/log/startup.jsonl";

/// What is measured.
struct Candidate {
    name: &'static str,
    command: Vec<&'static str>,
}

const TRUE: &[&str] = &["true"];

impl Candidate {
    fn ours(name: &'static str, policy: &'static str) -> Candidate {
        Candidate { name, command: vec![RINGFENCE, "run", "--policy", policy, "--ledger", LEDGER, "--", "true"] }
    }
}

/// Plain exec, the peers, and ours; with `unprobed` that too.
fn candidates(bench: &mut Bench, unprobed: bool) -> Vec<Candidate> {
    let mut all = vec![Candidate { name: "plain exec", command: TRUE.to_vec() }];
    let peers = peers::here(bench).into_iter();
    all.extend(peers.map(|peer| Candidate { name: peer.name, command: peer.around(TRUE) }));
    all.push(Candidate::ours("ringfence, control", "control"));
    all.push(Candidate::ours("ringfence, non-root", "non-root"));
    let probe = vec![RINGFENCE, "probe", "--policy", "nist-high", "--ledger", LEDGER];
    all.push(Candidate { name: "ringfence probe, nist-high", command: probe });
    all.push(Candidate::ours(FULL, "nist-high"));
    if unprobed {
        // The same build with the probes and without them: what is left out is what the feature leaves out, nothing else.
        let command = [&[UNPROBED_BINARY][..], &Candidate::ours(FULL, "nist-high").command[1..]].concat();
        all.push(Candidate { name: UNPROBED, command });
    }
    all
}

const FULL: &str = "ringfence, nist-high";
const UNPROBED: &str = "ringfence, nist-high, probes left out";
const UNPROBED_BINARY: &str = "/usr/local/bin/ringfence-unprobed";

/// The spans between the records of a run, by the record that ends each.
const SPANS: [&str; 4] = [
    "load and plan, until the first record",
    "install and probe, until the last probe's record",
    "launch, the command, taking down, until the seal",
    "until the status is there",
];

/// Of a run without probes, whose records are the first and the last.
const SPANS_UNPROBED: [&str; 3] = [
    "probes left out: load and plan, until the first record",
    "probes left out: install, launch, the command, taking down",
    "probes left out: until the status is there",
];

fn main() {
    let mut bench = Bench::new(30);
    let world = World::new().expect("a closed world");
    world.install(&bench.binary, RINGFENCE);
    let unprobed = std::env::var_os("RINGFENCE_BENCH_UNPROBED").map(PathBuf::from);
    if let Some(unprobed) = &unprobed {
        world.install(unprobed, UNPROBED_BINARY);
    }
    let here = candidates(&mut bench, unprobed.is_some());
    let mut starts = Measured::new(
        table("startup", "Start to end of `true`, rung `full`", "ms", &["plain exec", "bwrap"])
            .note("In a closed network world. No peer tries its policy before the command starts, or keeps a record of what it refuses.")
            .goal("start-up, probes left out for the measurement only", UNPROBED, &["bwrap"], By::RatioAtMost, 1.5)
            .goal("start-up with the pre-flight probes", FULL, &["bwrap"], By::RatioAtMost, 5.0)
            .goal("the same, below others", FULL, &["nono", "codex", "firejail"], By::RatioAtMost, 1.0),
    );
    let mut spans = Measured::new(table("spans", "Where a start under nist-high spends its time", "ms", &[]));
    world.inside().run(move || {
        bench.interleave(3, &here, |candidate, round| {
            let (taken, marks) = start(candidate);
            let Some(round) = round else { return };
            starts.add(round, candidate.name, milliseconds(taken));
            let (names, ends): (&[&str], &[&str]) = match candidate.name {
                FULL => (&SPANS, &["start", "probe", "seal"]),
                UNPROBED => (&SPANS_UNPROBED, &["start", "seal"]),
                _ => return,
            };
            for (name, pair) in names.iter().zip(marks(ends).windows(2)) {
                spans.add(round, name, milliseconds(pair[1].saturating_sub(pair[0])));
            }
        });
        bench.done(&starts);
        bench.done(&spans);
        by_rung(&mut bench);
    });
}

/// A rung's name, and what a process there has.
type Rung = (&'static str, fn() -> Less);

/// `true` by itself, then under ringfence, with no more at hand than each rung takes.
fn by_rung(bench: &mut Bench) {
    prepare_user();
    let rungs: [Rung; 4] = [
        ("full", Less::new),
        ("rootless", || Less::new().uid(USER, USER)),
        ("container", || Less::new().container()),
        ("bare", || Less::new().uid(USER, USER).no_userns()),
    ];
    let mut starts = Measured::new(
        table("startup-rungs", "From exec to the end of `true` under nist-high, by rung", "ms", &["plain exec, full"])
            .note("With the pre-flight probes. `rootless` and `bare` are an ordinary user's."),
    );
    let both: Vec<(bool, &Rung)> = rungs.iter().flat_map(|rung| [(false, rung), (true, rung)]).collect();
    bench.interleave(1, &both, |(ours, (name, less)), round| {
        let taken = start_on(*ours, name, &less());
        let Some(round) = round else { return };
        let what = if *ours { "ringfence" } else { "plain exec" };
        starts.add(round, &format!("{what}, {name}"), milliseconds(taken));
    });
    bench.done(&starts);
}

/// An ordinary user, and what is his.
const USER: u32 = 1000;
const HOME: &str = "/home/dev";
const OWN_LEDGERS: &str = "/var/log/dev";

fn prepare_user() {
    for (path, line) in
        [("/etc/passwd", format!("dev:x:{USER}:{USER}::{HOME}:/bin/sh\n")), ("/etc/group", format!("dev:x:{USER}:\n"))]
    {
        let text = std::fs::read_to_string(path).unwrap_or_default() + &line;
        std::fs::write(path, text).expect(path);
    }
    for path in [HOME, OWN_LEDGERS, "/workspace"] {
        std::fs::create_dir_all(path).expect(path);
        chown(path, Some(USER), Some(USER)).expect(path);
    }
}

fn start_on(ours: bool, rung: &str, less: &Less) -> Duration {
    let user = less.user().is_some();
    let ledger = if user { format!("{OWN_LEDGERS}/{rung}.jsonl") } else { format!("/var/log/{rung}.jsonl") };
    remove(&ledger);
    let mut command = Command::new(if ours { RINGFENCE } else { "true" });
    if ours {
        command.args(["run", "--policy", "nist-high", "--rung", rung, "--workspace", "/workspace"]);
        // On `bare` nothing within the workspace can be kept read-only, which is refused by name.
        command.args(user.then_some("--protect")).args(["--leftovers", "kill", "--ledger", &ledger, "--", "true"]);
    }
    command.current_dir("/workspace").env("HOME", if user { HOME } else { "/root" });
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = less.spawn(command).unwrap_or_else(|cause| panic!("{rung}: {cause}"));
    let begun = Instant::now();
    let output = child.wait_with_output().expect("wait");
    let taken = begun.elapsed();
    assert!(output.status.success(), "{rung}: {}", String::from_utf8_lossy(&output.stderr));
    taken
}

/// The last candidate's record: each run makes its own and fails where there is one.
fn remove(ledger: &str) {
    match std::fs::remove_file(ledger) {
        Ok(()) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
        Err(cause) => panic!("{ledger}: {cause}"),
    }
}

/// How long it took, and the marks of its record.
fn start(candidate: &Candidate) -> (Duration, impl FnOnce(&[&str]) -> Vec<Duration>) {
    remove(LEDGER);
    let Candidate { name, command, .. } = candidate;
    let mut process = Command::new(command[0]);
    // Some have their own defaults for it.
    process.args(&command[1..]).current_dir("/tmp").stdin(Stdio::null());
    if *name == UNPROBED {
        process.env("RINGFENCE_MUTATION_LEAVES_OUT", PROBING);
    }
    let (from, begun) = (monotonic(), Instant::now());
    let output = process.output();
    let (taken, to) = (begun.elapsed(), monotonic());
    let output = output.unwrap_or_else(|cause| panic!("{name}: {cause}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    (taken, move |ends| marks(from, ends, to))
}

/// The moments that bound the spans, by CLOCK_MONOTONIC, which the records carry too: the last record of each of these kinds
/// between start and end.
fn marks(from: Duration, ends: &[&str], to: Duration) -> Vec<Duration> {
    let text = std::fs::read_to_string(LEDGER).expect("the record");
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = |kind: &str| {
        let record = records.iter().rev().find(|record| record["kind"] == kind).expect(kind);
        Duration::from_nanos(record["mono_ns"].as_u64().expect("mono_ns"))
    };
    [from].into_iter().chain(ends.iter().map(|kind| last(kind))).chain([to]).collect()
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("clock_gettime").into()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
