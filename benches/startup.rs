//! What ringfence adds to the start of a program: `true` by plain exec, under setpriv, under bwrap and under
//! `ringfence run`, turn by turn in the same rounds, so that whatever else the machine does meets all of them alike.
//!
//! `make bench` runs it over the stripped binary in a closed world. `startup PATH [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use nix::time::{ClockId, clock_gettime};
use rounds::line::By;
use rounds::sample::Measured;
use rounds::{Bench, table};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use world::World;

const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LEDGER: &str = "/var/log/startup.jsonl";

/// What is measured.
struct Candidate {
    name: &'static str,
    /// The program that must be here, if it is none of ours, and how it tells its version.
    peer: Option<(&'static str, &'static [&'static str])>,
    command: &'static [&'static str],
}

const VERSION: &[&str] = &["--version"];

/// The peers do less; what each does stands in the README.
const CANDIDATES: &[Candidate] = &[
    Candidate { name: "plain exec", peer: None, command: &["true"] },
    Candidate {
        name: "setpriv",
        peer: Some(("setpriv", VERSION)),
        command: &[
            "setpriv",
            "--reuid",
            "10500",
            "--regid",
            "10500",
            "--clear-groups",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "--no-new-privs",
            "true",
        ],
    },
    Candidate {
        name: "bwrap",
        peer: Some(("bwrap", VERSION)),
        command: &[
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "true",
        ],
    },
    Candidate {
        name: "ringfence, control",
        peer: None,
        command: &[RINGFENCE, "run", "--policy", "control", "--ledger", LEDGER, "--", "true"],
    },
    Candidate {
        name: "ringfence, non-root",
        peer: None,
        command: &[RINGFENCE, "run", "--policy", "non-root", "--ledger", LEDGER, "--", "true"],
    },
    Candidate {
        name: "ringfence probe, nist-high",
        peer: None,
        command: &[RINGFENCE, "probe", "--policy", "nist-high", "--ledger", LEDGER],
    },
    Candidate {
        name: FULL,
        peer: None,
        command: &[RINGFENCE, "run", "--policy", "nist-high", "--ledger", LEDGER, "--", "true"],
    },
];
const FULL: &str = "ringfence, nist-high";

/// The spans between the records of a run, by the record that ends each.
const SPANS: [&str; 4] = [
    "load and plan, until the first record",
    "install and probe, until the last probe's record",
    "launch, the command, taking down, until the seal",
    "until the status is there",
];

fn main() {
    let mut bench = Bench::new(30);
    let world = World::new().expect("a closed world");
    world.install(&bench.binary, RINGFENCE);
    let here: Vec<&Candidate> = CANDIDATES
        .iter()
        .filter(|one| one.peer.is_none_or(|(program, version)| bench.peer(program, version)))
        .collect();
    let mut starts = Measured::new(
        table("startup", "Start to end of `true`, rung `full`", "ms", &["plain exec", "bwrap"])
            .note("In a closed network world. The peers have neither a proxy nor a firewall, neither probes nor a record.")
            .goal("start-up with the pre-flight probes", FULL, &["bwrap"], By::RatioAtMost, 5.0),
    );
    let mut spans = Measured::new(table("spans", "Where a start under nist-high spends its time", "ms", &[]));
    world.inside().run(move || {
        bench.interleave(3, &here, |candidate, round| {
            let (taken, marks) = start(candidate);
            let Some(round) = round else { return };
            starts.add(round, candidate.name, milliseconds(taken));
            if candidate.name == FULL {
                for (name, pair) in SPANS.iter().zip(marks().windows(2)) {
                    spans.add(round, name, milliseconds(pair[1].saturating_sub(pair[0])));
                }
            }
        });
        bench.done(&starts);
        bench.done(&spans);
    });
}

/// How long it took, and the marks of its record.
fn start(candidate: &Candidate) -> (Duration, impl FnOnce() -> [Duration; SPANS.len() + 1]) {
    // The last candidate's record; each run makes its own and fails where there is one.
    match std::fs::remove_file(LEDGER) {
        Ok(()) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
        Err(cause) => panic!("{LEDGER}: {cause}"),
    }
    let Candidate { name, command, .. } = candidate;
    let (from, begun) = (monotonic(), Instant::now());
    let output = Command::new(command[0]).args(&command[1..]).output();
    let (taken, to) = (begun.elapsed(), monotonic());
    let output = output.unwrap_or_else(|cause| panic!("{name}: {cause}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    (taken, move || marks(from, to))
}

/// The moments that bound the spans, by CLOCK_MONOTONIC, which the records carry too.
fn marks(from: Duration, to: Duration) -> [Duration; SPANS.len() + 1] {
    let text = std::fs::read_to_string(LEDGER).expect("the record");
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = |kind: &str| {
        let record = records.iter().rev().find(|record| record["kind"] == kind).expect(kind);
        Duration::from_nanos(record["mono_ns"].as_u64().expect("mono_ns"))
    };
    [from, last("start"), last("probe"), last("seal"), to]
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("clock_gettime").into()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
