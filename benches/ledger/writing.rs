//! The writer as a session has it, and beside it what the same bytes cost when nothing but writing or hashing is done.

use crate::cohort::{EXITED, Sample, varied};
use crate::rounds::line::By;
use crate::rounds::sample::Measured;
use crate::rounds::{Bench, table};
use nix::time::{ClockId, clock_gettime};
use ringfence::ledger::record::{Body, Denial};
use ringfence::ledger::{Appended, Ledger, LedgerTarget, RunId, Verification, verify_path};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

const DISTINCT: &str = "the ledger, each on another object";
const FOLDING: &str = "the ledger, few kinds over and over";
const CANDIDATES: [&str; 5] =
    [DISTINCT, FOLDING, "the same lines, write(2) each", "the same lines, buffered", "SHA-256 of the same lines"];

/// Denials a second.
pub fn measure(bench: &mut Bench, sample: &Sample) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("run.jsonl");
    let count = bench.size(200_000, 5_000);
    let mut measured = Measured::new(
        table("ledger-writing", "Denials through the writer of the ledger", "denials for each second of one core", &[CANDIDATES[2]])
            .note(
                "By the CPU time of the one thread, into a file: each denial is numbered, compared with the last ones, chained and written before \
                 it counts as recorded. The peers do nothing but write, or hash, the lines that the first one wrote.",
            )
            .goal("denials through the ledger", DISTINCT, &[], By::AtLeast, 100_000.0)
            .goal("denials through the ledger, alike", FOLDING, &[], By::AtLeast, 100_000.0),
    );
    let distinct: Vec<Denial> = (0..count).map(|number| varied(&sample.denials, number)).collect();
    write(&path, sample, distinct.clone());
    let bytes = std::fs::read(&path).expect("the ledger");
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').rev().skip(1).take(count).collect();
    bench.interleave(1, &CANDIDATES, |candidate, round| {
        let _gone = std::fs::remove_file(&path);
        let denials = match *candidate {
            DISTINCT => distinct.clone(),
            FOLDING => (0..count).map(|number| sample.denials[number % sample.denials.len()].clone()).collect(),
            _ => Vec::new(),
        };
        let seconds = match CANDIDATES.iter().position(|one| one == candidate) {
            Some(0 | 1) => write(&path, sample, denials),
            Some(2) => plainly(&path, &lines),
            Some(3) => buffered(&path, &lines),
            _ => hashed(&lines),
        };
        if let Some(round) = round {
            measured.add(round, candidate, count as f64 / seconds);
        }
    });
    bench.done(&measured);
}

/// Writes a ledger of these; the seconds that the denials took. All of them are there afterwards.
fn write(path: &Path, sample: &Sample, denials: Vec<Denial>) -> f64 {
    let _gone = std::fs::remove_file(path);
    let count = denials.len() as u64;
    let id = RunId::random().expect("random bytes");
    let mut ledger = Ledger::open(LedgerTarget::Path(path.to_owned()), &id, "nist-high").expect("a new file");
    ledger.append(sample.start.clone()).expect("a start");
    let begun = cpu();
    for denial in denials {
        let appended = ledger.append(Body::Denial(denial)).expect("a denial");
        assert_ne!(appended, Appended::NotStored);
    }
    let seconds = (cpu() - begun).as_secs_f64();
    ledger.seal(EXITED).expect("a seal");
    match verify_path(path, None).expect("the ledger") {
        Verification::Complete { denials, .. } => assert_eq!(denials, count),
        other => panic!("{other}"),
    }
    seconds
}

fn plainly(path: &Path, lines: &[&[u8]]) -> f64 {
    let mut file = File::create(path).expect("a file");
    let begun = cpu();
    for line in lines {
        file.write_all(line).expect("room");
    }
    (cpu() - begun).as_secs_f64()
}

fn buffered(path: &Path, lines: &[&[u8]]) -> f64 {
    let mut file = BufWriter::with_capacity(1 << 16, File::create(path).expect("a file"));
    let begun = cpu();
    for line in lines {
        file.write_all(line).expect("room");
    }
    file.flush().expect("room");
    (cpu() - begun).as_secs_f64()
}

fn hashed(lines: &[&[u8]]) -> f64 {
    let begun = cpu();
    for line in lines {
        black_box(Sha256::digest(line));
    }
    (cpu() - begun).as_secs_f64()
}

/// CPU time of this thread: a machine that is shared takes a share of the clock, and writes go to the page cache.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("clock_gettime").into()
}
