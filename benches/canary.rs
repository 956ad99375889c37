//! How long `canary scan` takes over plain text beside ripgrep, which looks for the token's text alone: one large file, and
//! many small ones, both held in the page cache, turn by turn.
//!
//! `make bench` runs it. `canary BINARY [ROUNDS]`; without an `rg` on the path (or named by `RG`) there is nothing to
//! compare with.
#![allow(missing_docs, reason = "a program")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("it starts");
    let took = start.elapsed();
    assert!(status.code().is_some_and(|code| code < 2), "{command:?}: {status}");
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).filter(|argument| argument != "--bench");
    let binary = arguments.next().expect("canary BINARY [ROUNDS]");
    let rounds: usize =
        arguments.next().map_or(15, |text| text.to_str().and_then(|text| text.parse().ok()).expect("a number"));
    let rg = std::env::var_os("RG").unwrap_or_else(|| OsString::from("rg"));
    let has_rg = Command::new(&rg).arg("--version").stdout(Stdio::null()).status().is_ok();
    let dir = tempfile::tempdir().expect("a directory");
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    fs::create_dir(&large).expect("mkdir");
    fs::write(large.join("a.txt"), text(1, 256 << 20)).expect("write");
    for number in 0..4096_u64 {
        let part = small.join(format!("{}", number % 64));
        fs::create_dir_all(&part).expect("mkdir");
        fs::write(part.join(format!("{number}.txt")), text(number, 32 << 10)).expect("write");
    }
    let ours = |path: &Path| timed(Command::new(&binary).args(["canary", "scan", "--token", TOKEN]).arg(path));
    let theirs = |path: &Path| timed(Command::new(&rg).args(["-uuu", "-a", "-F", "-c", TOKEN]).arg(path));
    for (name, path) in [("one file of 256 MiB", &large), ("4096 files of 32 KiB", &small)] {
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(ours(path));
            if has_rg {
                other.push(theirs(path));
            }
        }
        let own = median(own);
        match has_rg {
            true => {
                let other = median(other);
                let ratio = own.as_secs_f64() / other.as_secs_f64();
                println!("{name}: ringfence {own:.1?}, rg {other:.1?}, {ratio:.2} times");
            }
            false => println!("{name}: ringfence {own:.1?}, no rg"),
        }
    }
}
