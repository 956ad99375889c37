//! End to end: a command under `ringfence run` that is refused in a tight loop, and what its ledger says of it.

use crate::RINGFENCE;
use crate::rounds::sample::Measured;
use crate::rounds::{Bench, table};
use nix::libc::EROFS;
use nix::time::{ClockId, clock_gettime};
use ringfence::ledger::line::decode;
use ringfence::ledger::record::{Body, Record};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use world::World;
use world::address::PUBLIC4;

const FLOOD: &str = "/usr/local/bin/flood";
const LEDGER: &str = "/var/log/flood.jsonl";

/// Who refuses, and what is tried.
struct Candidate {
    name: &'static str,
    /// One of `tests/flooding/flood.c` with its arguments.
    act: String,
    /// Processes that try at the same time.
    processes: u64,
    /// Tries of each of them.
    times: u64,
    by: By,
}

/// Who refuses.
enum By {
    /// ringfence, which answers once the refusal is recorded.
    Ringfence,
    /// The firewall, which does not wait for ringfence.
    Firewall,
    /// A read-only mount, which records nothing.
    Nobody,
}

/// Refused calls a second.
pub fn measure(bench: &mut Bench, world: &World) {
    world.write(FLOOD, compiled(), 0o755);
    let times = bench.size(20_000, 500);
    let opens = |name, act: &str, processes, by| Candidate {
        name,
        act: format!("{act} /usr/flood {EROFS}"),
        processes,
        times: times / processes,
        by,
    };
    let proxy = |name, processes| Candidate {
        name,
        act: "proxy evil.example.net".to_owned(),
        processes,
        times: times / processes,
        by: By::Ringfence,
    };
    let mut candidates = vec![
        opens("one file opened, 1 process", "open", 1, By::Ringfence),
        opens("one file opened, 4 processes", "open", 4, By::Ringfence),
        opens("files opened, 1 process", "open-distinct", 1, By::Ringfence),
        opens("files opened, 4 processes", "open-distinct", 4, By::Ringfence),
        proxy("requests, 1 process", 1),
        proxy("requests, 4 processes", 4),
        Candidate {
            name: DATAGRAMS,
            act: format!("udp {PUBLIC4} 4444"),
            processes: 1,
            times: bench.size(500_000, 5_000),
            by: By::Firewall,
        },
    ];
    if bench.peer("bwrap", &["--version"]) {
        candidates.push(opens("bwrap, one file opened, 1 process", "open", 1, By::Nobody));
    }
    let mut measured = Measured::new(table("flood", "Refused calls of a command under nist-high", "calls/s", &[]).note(
        "From the first call to the seal. Each refusal is in the ledger, or counted in its file of counts, before its call \
         returns; all of them are found there afterwards, with no gap. Of datagrams the kernel answers at once and tells \
         later: what is counted is recorded ones a second, in a flood that nothing slows; what its log then lost stands in \
         the gap, and both together are what was sent. bwrap's mounts refuse the same call and record nothing.",
    ));
    let mut lost =
        Measured::new(table("flood-lost", "Datagrams of which the kernel's log lost the record", "share", &[]));
    bench.interleave(0, &candidates, |candidate, round| {
        let told = one(world, candidate);
        let Some(round) = round else { return };
        measured.add(round, candidate.name, told.recorded as f64 / told.seconds);
        if candidate.name == DATAGRAMS {
            lost.add(round, candidate.name, told.lost as f64 / (told.lost + told.recorded) as f64);
        }
    });
    bench.done(&measured);
    bench.done(&lost);
}

const DATAGRAMS: &str = "datagrams, 1 process";

/// What the ledger says.
struct Flooded {
    recorded: u64,
    lost: u64,
    seconds: f64,
}

/// Has it be refused, and holds the ledger against the tries.
fn one(world: &World, candidate: &Candidate) -> Flooded {
    let Candidate { name, act, processes, times, by } = candidate;
    let tallies: Vec<String> = (0..*processes).map(|number| format!("/tmp/tally{number}")).collect();
    tallies.iter().for_each(|tally| world.write(tally, [0; 8], 0o666));
    let each: String = tallies.iter().map(|tally| format!("{FLOOD} {tally} {times} {act} & ")).collect();
    let script = format!("echo ready; read line; {each} wait; echo over");
    let mut command = match by {
        By::Nobody => {
            let mut command = world.command("bwrap");
            command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--bind", "/tmp", "/tmp"]);
            command
        }
        By::Ringfence | By::Firewall => {
            world.output(remove(world));
            let mut command = world.command(RINGFENCE);
            command.args(["run", "--policy", "nist-high", "--leftovers", "kill", "--ledger", LEDGER, "--"]);
            command
        }
    };
    command.args(["bash", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = world.spawn(command).expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().unwrap_or_else(|| panic!("{name}: its output has ended")).expect("UTF-8");
    assert_eq!(line(), "ready");
    let begun = monotonic();
    child.stdin.take().expect("piped").write_all(b"\n").expect("the command reads");
    for _ in 0..*processes {
        assert_eq!(line(), format!("refused {times}"), "{name}");
    }
    let answered = monotonic();
    assert_eq!(line(), "over");
    assert!(child.wait().expect("wait").success(), "{name}");
    let tried = processes * times;
    if let By::Nobody = by {
        return Flooded { recorded: tried, lost: 0, seconds: (answered - begun).as_secs_f64() };
    }
    let records = records(world);
    let sum = |of: fn(&Body) -> u64| records.iter().map(|record| of(&record.body)).sum::<u64>();
    let recorded = sum(|body| if let Body::Denial(denial) = body { denial.count } else { 0 });
    let lost = sum(|body| if let Body::Gap(gap) = body { gap.lost } else { 0 });
    let gaps = sum(|body| u64::from(matches!(body, Body::Gap(_))));
    assert_eq!(recorded + lost, tried, "{name}: {recorded} recorded, {lost} lost");
    assert!(matches!(by, By::Firewall) || gaps == 0, "{name}: {gaps} gaps");
    let seal = records.last().expect("a seal");
    Flooded { recorded, lost, seconds: (Duration::from_nanos(seal.mono_ns) - begun).as_secs_f64() }
}

fn remove(world: &World) -> Command {
    let mut command = world.command("rm");
    command.args(["-f", LEDGER]);
    command
}

fn records(world: &World) -> Vec<Record> {
    let text = world.read(LEDGER).expect("the ledger");
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| decode(line).expect("a record")).collect()
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("clock_gettime").into()
}

/// The suite's program that is refused over and over.
fn compiled() -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flooding/flood.c");
    let directory = tempfile::tempdir().expect("a scratch directory");
    let binary = directory.path().join("flood");
    let mut cc = Command::new("cc");
    cc.args(["-static", "-O1", "-o"]).arg(&binary).arg(source);
    assert!(cc.status().expect("cc is installed (.ci/deps)").success());
    std::fs::read(&binary).expect("what cc made")
}
