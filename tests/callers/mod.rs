//! Callers of notified calls: static programs of the suite's own, compiled once a process.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::Fence;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A closed world whose box has ringfence and these programs of `tests/callers`, in /usr/local/bin.
pub fn fence(programs: &[&str]) -> Fence {
    let fence = Fence::new();
    for program in programs {
        fence.world.write(&format!("/usr/local/bin/{program}"), compiled(program), 0o755);
    }
    fence
}

fn compiled(program: &str) -> Vec<u8> {
    static COMPILED: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = compiled.get(program) {
        return found.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/callers/{program}.c"));
    let directory = tempfile::tempdir().expect("a scratch directory");
    let binary = directory.path().join(program);
    let mut cc = Command::new("cc");
    cc.args(["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-pthread", "-o"]);
    let said = cc.arg(&binary).arg(source).output().expect("cc is installed (.ci/deps)");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    compiled.entry(program.into()).or_insert(std::fs::read(&binary).expect("read what cc made")).clone()
}

/// What the racers had, by way and act: how often each outcome.
pub fn had(text: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut had: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let race = format!("{} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let outcomes = words
            .filter_map(|word| word.split_once('='))
            .filter_map(|(what, n)| Some((what.to_owned(), n.parse().ok()?)));
        had.entry(race).or_default().extend(outcomes);
    }
    had
}
