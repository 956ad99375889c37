//! What a system call costs a program under `ringfence run` beside bare, bwrap and firejail, and what a command costs that is
//! started in an open session beside setpriv. The program that is measured is this one, started again inside.
//!
//! `make bench` runs it over the stripped binary in a closed world. `calls PATH [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[path = "calls/acts.rs"]
mod acts;
#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use acts::{ACTS, INSIDE};
use rounds::line::By;
use rounds::sample::Measured;
use rounds::{Bench, table};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;
use world::World;

const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LOOP: &str = "/usr/local/bin/calls";
const LEDGER: &str = "/var/log/calls.jsonl";
/// In memory, and everyone's: only the calls are to be measured.
const DIRECTORY: &str = "/tmp";

/// Under what the program runs.
struct Candidate {
    name: &'static str,
    peer: Option<&'static str>,
    before: &'static [&'static str],
}

const BARE: &str = "bare";
const FULL: &str = "ringfence, nist-high";
const CANDIDATES: &[Candidate] = &[
    Candidate { name: BARE, peer: None, before: &[] },
    Candidate {
        name: "bwrap",
        peer: Some("bwrap"),
        before: &["bwrap", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind"],
    },
    Candidate {
        name: "firejail",
        peer: Some("firejail"),
        before: &["firejail", "--quiet", "--noprofile", "--seccomp"],
    },
    Candidate {
        name: FULL,
        peer: None,
        before: &[RINGFENCE, "run", "--policy", "nist-high", "--ledger", LEDGER, "--"],
    },
];

fn main() {
    if std::env::args().nth(1).as_deref() == Some(INSIDE) {
        return acts::measure();
    }
    let mut bench = Bench::new(15);
    let world = World::new().expect("a closed world");
    world.install(&bench.binary, RINGFENCE);
    world.install(&std::env::current_exe().expect("this program"), LOOP);
    world.mount_memory(DIRECTORY).expect("tmpfs");
    let version = &["--version"];
    let here: Vec<&Candidate> =
        CANDIDATES.iter().filter(|one| one.peer.is_none_or(|program| bench.peer(program, version))).collect();
    let setpriv = bench.peer("setpriv", version);
    world.inside().run(move || {
        Command::new("chmod").args(["1777", DIRECTORY]).status().expect("chmod");
        calls(&mut bench, &here);
        exec(&mut bench, setpriv);
    });
}

/// Each call under each candidate.
fn calls(bench: &mut Bench, here: &[&Candidate]) {
    let mut tables: Vec<Measured> = ACTS.iter().map(|act| Measured::new(table_of(act))).collect();
    let share = bench.size("1", "50");
    bench.interleave(1, here, |candidate, round| {
        let _none = std::fs::remove_file(LEDGER);
        let own = [LOOP, INSIDE, DIRECTORY, share];
        let bound: &[&str] = if candidate.name == "bwrap" { &[DIRECTORY, DIRECTORY] } else { &[] };
        let line: Vec<&str> = candidate.before.iter().chain(bound).chain(&own).copied().collect();
        let output = Command::new(line[0]).args(&line[1..]).output().expect(candidate.name);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {told}{}", candidate.name, String::from_utf8_lossy(&output.stderr));
        let found: BTreeMap<String, f64> = serde_json::from_str(&told).expect("what the program measured");
        assert_eq!(found.len(), ACTS.len(), "{}: each act is measured", candidate.name);
        let Some(round) = round else { return };
        for measured in &mut tables {
            let act = measured.table.table.trim_start_matches("call-").to_owned();
            measured.add(round, candidate.name, found[&act]);
        }
    });
    let left: Vec<_> =
        std::fs::read_dir(DIRECTORY).expect(DIRECTORY).flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("calls")), "what was made is gone: {left:?}");
    tables.iter().for_each(|measured| bench.done(measured));
}

fn table_of(act: &acts::Act) -> rounds::line::Table {
    let table = table(&format!("call-{}", act.name), act.title, "µs", &[BARE]).note(act.note);
    match act.goal {
        None => table,
        Some((By::ExcessAtMost, bound)) => {
            table.goal(&format!("{}, µs more than bare", act.name), FULL, &[BARE], By::ExcessAtMost, bound)
        }
        Some((by, bound)) => table.goal(&format!("{} beside bare", act.name), FULL, &[BARE], by, bound),
    }
}

/// `true` in an open session.
fn exec(bench: &mut Bench, setpriv: bool) {
    const SESSION: &str = "ringfence exec, an open session";
    let up = ["up", "--policy", "nist-high", "--ledger", "/var/log/session.jsonl"];
    let said = Command::new(RINGFENCE).args(up).output().expect("ringfence");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let mut measured = Measured::new(
        table("exec", "Start to end of `true`, in a session that is up", "ms", &["plain exec", "setpriv"])
            .note("setpriv changes the ids and drops the capabilities, and does nothing else.")
            .goal("`exec` into an open session", SESSION, &["setpriv"], By::RatioAtMost, 1.5),
    );
    let reduced: &[&str] = &[
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
    ];
    let candidates: Vec<(&str, &[&str])> =
        [("plain exec", &["true"][..]), ("setpriv", reduced), (SESSION, &[RINGFENCE, "exec", "--", "true"])]
            .into_iter()
            .filter(|(name, _)| *name != "setpriv" || setpriv)
            .collect();
    let times = bench.size(10, 1);
    bench.interleave(1, &candidates, |(name, line), round| {
        let mut took: Vec<f64> = (0..times)
            .map(|_| {
                let begun = Instant::now();
                let status = Command::new(line[0]).args(&line[1..]).status().expect(name);
                let took = begun.elapsed();
                assert!(status.success(), "{name}: {status}");
                took.as_secs_f64() * 1e3
            })
            .collect();
        took.sort_by(f64::total_cmp);
        if let Some(round) = round {
            measured.add(round, name, took[took.len() / 2]);
        }
    });
    let said = Command::new(RINGFENCE).arg("down").output().expect("ringfence");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    bench.done(&measured);
}
