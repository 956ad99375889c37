//! What ringfence adds to the start of a program: `true` by plain exec, under setpriv, under bwrap and under
//! `ringfence run`, turn by turn in the same rounds, so that whatever else the machine does meets all of them alike.
//!
//! `make bench` runs it over the stripped binary in a closed world. `startup PATH [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use world::World;

const ROUNDS: usize = 30;
const WARM_UP: usize = 3;
const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LEDGER: &str = "/var/log/startup.jsonl";

/// What is measured: its name and its command. The peers do less; what each does stands in the README.
const CANDIDATES: [(&str, &[&str]); 7] = [
    ("true, by plain exec", &["true"]),
    (
        "setpriv: ids, groups, capabilities, no_new_privs",
        &[
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
    ),
    (
        "bwrap: every namespace, read-only root",
        &[
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
    ),
    ("ringfence --policy control", &[RINGFENCE, "run", "--policy", "control", "--ledger", LEDGER, "--", "true"]),
    ("ringfence --policy non-root", &[RINGFENCE, "run", "--policy", "non-root", "--ledger", LEDGER, "--", "true"]),
    ("ringfence probe --policy nist-high", &[RINGFENCE, "probe", "--policy", "nist-high", "--ledger", LEDGER]),
    ("ringfence --policy nist-high", &[RINGFENCE, "run", "--policy", "nist-high", "--ledger", LEDGER, "--", "true"]),
];
const BWRAP: usize = 2;
const FULL: usize = CANDIDATES.len() - 1;

/// The spans between the records of a run, by the record that ends each.
const SPANS: [&str; 4] = [
    "load and plan, until the first record",
    "install and probe, until the last probe's record",
    "launch, the command, taking down, until the seal",
    "until the status is there",
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let binary = PathBuf::from(arguments.next().unwrap_or_else(|| "dist/ringfence".to_owned()));
    let rounds = arguments.next().map_or(ROUNDS, |text| text.parse().expect("ROUNDS is a number"));
    let world = World::new().expect("a closed world");
    world.install(&binary, RINGFENCE);
    let (times, spans) = world.inside().run(move || measure(rounds));

    println!("{:<50} {:>10} {:>10} {:>10} {:>9}", "start to end", "median", "90th", "to exec", "to bwrap");
    let medians = times.each_ref().map(|sample| percentile(sample, 50));
    for (number, (name, _)) in CANDIDATES.iter().enumerate() {
        let ratio = |peer: usize| medians[number].as_secs_f64() / medians[peer].as_secs_f64();
        let (median, slow) = (milliseconds(medians[number]), milliseconds(percentile(&times[number], 90)));
        println!("{name:<50} {median:>10} {slow:>10} {:>9.1}x {:>8.1}x", ratio(0), ratio(BWRAP));
    }
    println!("\n{:<50} {:>10} {:>10}", "of nist-high", "median", "90th");
    for (name, sample) in SPANS.iter().zip(&spans) {
        println!(
            "{name:<50} {:>10} {:>10}",
            milliseconds(percentile(sample, 50)),
            milliseconds(percentile(sample, 90))
        );
    }
    println!("\n{rounds} rounds, each candidate once a round, in a closed network world");
}

/// Every candidate's times, and the spans of the last one's.
fn measure(rounds: usize) -> ([Vec<Duration>; CANDIDATES.len()], [Vec<Duration>; SPANS.len()]) {
    let (mut times, mut spans) = (CANDIDATES.map(|_| Vec::new()), SPANS.map(|_| Vec::new()));
    for round in 0..WARM_UP + rounds {
        for (number, (name, command)) in CANDIDATES.iter().enumerate() {
            // The last candidate's record; each run makes its own and fails where there is one.
            match std::fs::remove_file(LEDGER) {
                Ok(()) => {}
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
                Err(cause) => panic!("{LEDGER}: {cause}"),
            }
            let (from, begun) = (monotonic(), Instant::now());
            let output = Command::new(command[0]).args(&command[1..]).output();
            let (taken, to) = (begun.elapsed(), monotonic());
            let output = output.unwrap_or_else(|cause| panic!("{name}: {cause}"));
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            if round >= WARM_UP {
                times[number].push(taken);
                if number == FULL {
                    let marks = marks(from, to);
                    for (sample, pair) in spans.iter_mut().zip(marks.windows(2)) {
                        sample.push(pair[1].saturating_sub(pair[0]));
                    }
                }
            }
        }
    }
    (times, spans)
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

fn percentile(sample: &[Duration], percent: usize) -> Duration {
    let mut sorted = sample.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
