//! Ten thousand ledgers read back: by `ringfence report` as a whole, by `ringfence verify` one by one, and by tools that
//! read the same bytes and know nothing of them.

use crate::children_cpu;
use crate::cohort::{self, DENIALS, Sample};
use crate::rounds::line::By;
use crate::rounds::sample::Measured;
use crate::rounds::{Bench, table};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REPORT: &str = "ringfence report";
const VERIFY: &str = "ringfence verify";

/// A program, how it tells its version, and its arguments before the files.
struct Candidate {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
}

/// A peer's name in the table, its program and its arguments; each reads every byte.
const PEERS: [(&str, &str, &[&str]); 5] = [
    ("cat", "cat", &[]),
    ("wc -l", "wc", &["-l"]),
    ("sha256sum", "sha256sum", &[]),
    ("ripgrep, count of denials", "rg", &["--no-config", "-j1", "-c", "\"kind\":\"denial\""]),
    ("jq, denials by axis", "jq", &["-r", "select(.kind == \"denial\") | .axis"]),
];

/// Bytes of ledgers for each second of CPU time, and ledgers a second.
pub fn measure(bench: &mut Bench, sample: &Sample) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let count = bench.size(10_000, 20);
    let paths: Vec<PathBuf> =
        (0..count).map(|number| directory.path().join(format!("{:02}/{number:05}.jsonl", number % 64))).collect();
    for number in 0..64 {
        std::fs::create_dir(directory.path().join(format!("{number:02}"))).expect("a directory");
    }
    let size: u64 = paths.iter().enumerate().map(|(number, path)| cohort::write(path, sample, number)).sum();
    let megabytes = size as f64 / 1e6;
    println!("{count} ledgers, {megabytes:.1} MB");
    report(bench, directory.path(), &paths, megabytes);
    verify(bench, &paths);
}

fn report(bench: &mut Bench, directory: &Path, paths: &[PathBuf], megabytes: f64) {
    let mut candidates =
        vec![Candidate { name: REPORT, program: bench.binary.clone(), arguments: &["report", "--json"] }];
    for (name, program, arguments) in PEERS {
        // ripgrep may lie where RG says.
        let program = std::env::var("RG").ok().filter(|_| program == "rg").unwrap_or_else(|| program.to_owned());
        if bench.peer(&program, &["--version"]) {
            candidates.push(Candidate { name, program: program.into(), arguments });
        }
    }
    let note = format!(
        "{} ledgers of a run under nist-high ({} denials each, {megabytes:.0} MB together) in the page cache. ringfence checks \
         each line's form, the chain and the seal, and counts. Every peer reads the same bytes and checks nothing. jq is left \
         one ledger in ten.",
        paths.len(),
        DENIALS
    );
    let mut measured = Measured::new(
        table("report", "Ledgers through a report", "MB for each second of one core", &["cat", "sha256sum"])
            .note(&note)
            .goal("report", REPORT, &[], By::AtLeast, 500.0),
    );
    let mut elapsed = Measured::new(table("report-wall", "The same by the clock", "s", &[]));
    bench.interleave(1, &candidates, |candidate, round| {
        let share = if candidate.name.starts_with("jq") { 10 } else { 1 };
        let mut command = Command::new(&candidate.program);
        command.args(candidate.arguments);
        match candidate.name {
            REPORT => command.arg(directory),
            _ => command.args(paths.iter().step_by(share)),
        };
        let (before, begun) = (children_cpu(), std::time::Instant::now());
        let output = run(&mut command, candidate.name == REPORT);
        let (cpu, wall) = (children_cpu() - before, begun.elapsed().as_secs_f64());
        if candidate.name == REPORT {
            check(&output, paths.len() as u64);
        }
        if let Some(round) = round {
            measured.add(round, candidate.name, megabytes / share as f64 / cpu);
            if share == 1 {
                elapsed.add(round, candidate.name, wall);
            }
        }
    });
    bench.done(&measured);
    bench.done(&elapsed);
}

/// Its output where it is wanted: none of them waits for a reader that is slow.
fn run(command: &mut Command, wanted: bool) -> Vec<u8> {
    command.stdin(Stdio::null());
    if !wanted {
        assert!(command.stdout(Stdio::null()).status().expect("it runs").success(), "{command:?}");
        return Vec::new();
    }
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The totals are what was written.
fn check(report: &[u8], ledgers: u64) {
    let report: Value = serde_json::from_slice(report).expect("JSON");
    let total = &report["total"];
    assert_eq!((total["runs"].as_u64(), total["excluded"].as_u64()), (Some(ledgers), Some(0)), "{total}");
    let any = total["axes"].as_array().and_then(|axes| axes.iter().find(|row| row["axis"] == "any")).expect("axes");
    assert_eq!(any["denials"].as_u64(), Some(ledgers * DENIALS as u64), "{total}");
}

fn verify(bench: &mut Bench, paths: &[PathBuf]) {
    let candidates = [
        Candidate { name: VERIFY, program: bench.binary.clone(), arguments: &["verify"] },
        Candidate { name: "sha256sum", program: "sha256sum".into(), arguments: &[] },
        Candidate { name: "cat", program: "cat".into(), arguments: &[] },
    ];
    let mut measured =
        Measured::new(table("verify", "Ledgers verified, a process for each", "CPU ms", &["cat", "sha256sum"]).note(
            "ringfence says of each that it is complete. The peers are as many processes that read the same bytes.",
        ));
    // A round takes a share of the ledgers; all of them have had their turn in the end.
    let rounds = bench.rounds;
    bench.interleave(0, &candidates, |candidate, round| {
        let Some(round) = round else { return };
        let (before, mut done) = (children_cpu(), 0);
        for path in paths.iter().skip(round).step_by(rounds) {
            let output = run(Command::new(&candidate.program).args(candidate.arguments).arg(path), true);
            assert!(
                candidate.name != VERIFY || output.starts_with(b"complete: "),
                "{}",
                String::from_utf8_lossy(&output)
            );
            done += 1;
        }
        measured.add(round, candidate.name, (children_cpu() - before) * 1e3 / f64::from(done));
    });
    bench.done(&measured);
}
