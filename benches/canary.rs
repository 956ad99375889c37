//! How long `canary scan` takes over plain text beside ripgrep, which looks for the token's text alone: one large file, and
//! many small ones, both held in the page cache, turn by turn.
//!
//! `make bench` runs it. `canary BINARY [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use rounds::sample::Measured;
use rounds::{Bench, table};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

const TOKEN: &str = "CANARY_bench0_abcdefghijklmnopqrstuvwxyz_YRANAC";
const WORDS: [&str; 16] = [
    "error", "expected", "\n", "the", "0x7f", "return", "self.", "{\"a\": ", "Canal", "=", "41.5", "def", "\n    ",
    "https://", "QUFB", "1024,",
];

/// So many bytes of words, by a linear congruence.
fn text(mut state: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 60) as usize]);
        text.push(if state >> 59 & 1 == 0 { ' ' } else { '_' });
    }
    text
}

/// How long it took, in milliseconds.
fn timed(command: &mut Command) -> f64 {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("it starts");
    let took = start.elapsed();
    assert!(status.code().is_some_and(|code| code < 2), "{command:?}: {status}");
    took.as_secs_f64() * 1e3
}

const OURS: &str = "ringfence canary scan";
const THEIRS: &str = "rg";

fn main() {
    let mut bench = Bench::new(15);
    let binary = bench.binary.clone();
    let mut here = vec![OURS];
    here.extend(bench.peer(THEIRS, &["--version"]).then_some(THEIRS));
    let dir = tempfile::tempdir().expect("a directory");
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    let (length, files) = bench.size((256 << 20, 4096), (1 << 20, 64));
    fs::create_dir(&large).expect("mkdir");
    // One token at its end, so that what is found shows that all was looked at.
    fs::write(large.join("a.txt"), text(1, length) + TOKEN + "\n").expect("write");
    for number in 0..files {
        let part = small.join(format!("{}", number % 64));
        fs::create_dir_all(&part).expect("mkdir");
        fs::write(part.join(format!("{number}.txt")), text(number, 32 << 10)).expect("write");
    }
    let found =
        Command::new(&binary).args(["canary", "scan", "--token", TOKEN]).arg(&large).output().expect("it starts");
    assert!(String::from_utf8_lossy(&found.stdout).contains("a.txt"), "{found:?}");
    for (name, title, path) in [
        ("canary-large", "A search for a canary in one file", &large),
        ("canary-small", "A search for a canary in many files", &small),
    ] {
        let what = table(name, title, "ms", &[THEIRS]).note(
            "256 MiB of text, in one file or in 4,096, held in the page cache. rg looks for the token's text alone, \
             ringfence for its packed and encoded forms too.",
        );
        let mut measured = Measured::new(what);
        bench.interleave(1, &here, |candidate, round| {
            let taken = match *candidate {
                OURS => timed(Command::new(&binary).args(["canary", "scan", "--token", TOKEN]).arg(path)),
                _ => timed(Command::new(THEIRS).args(["-uuu", "-a", "-F", "-c", TOKEN]).arg(path)),
            };
            round.iter().for_each(|round| measured.add(*round, candidate, taken));
        });
        bench.done(&measured);
    }
}
