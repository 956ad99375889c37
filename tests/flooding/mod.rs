//! One refused act made over and over in the box, by a static program that keeps count where no death takes it away.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::attempts::compile;
use crate::common::{Ended, Fence, RINGFENCE};
use crate::living::{Run, until};
use ringfence::ledger::record::Body;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the program lies in the box.
pub const FLOOD: &str = "/usr/local/bin/flood";
/// The program's own count of the refusals that it was answered.
pub const TALLY: &str = "/tmp/tally";

/// A closed world whose box has ringfence and the program.
pub fn fence() -> Fence {
    let fence = Fence::new();
    fence.world.write(FLOOD, compile("tests/flooding/flood.c"), 0o755);
    fence
}

/// A flood under way.
pub struct Flood {
    pub run: Run,
}

impl Flood {
    /// Starts so many acts, or acts without end where `times` is 0; `act` is one of `tests/flooding/flood.c` with its arguments.
    /// Nothing is refused before [`Flood::release`].
    pub fn start(fence: &Fence, flags: &[&str], act: &str, times: u64) -> Flood {
        let (command, ledger) = fence.command(flags, &["bash", "-c", &script(act, times)]);
        Flood::of(fence, command, ledger)
    }

    /// The same with a ledger where the flags put it, and started by `outer`, a line of bash that ends in `"$@"`.
    pub fn start_by(fence: &Fence, outer: &str, flags: &[&str], act: &str, times: u64) -> Flood {
        let mut command = fence.world.command("bash");
        command.args(["-c", outer, "outer", RINGFENCE, "run"]).args(flags);
        command.args(["--", "bash", "-c", &script(act, times)]);
        Flood::of(fence, command, String::new())
    }

    fn of(fence: &Fence, command: Command, ledger: String) -> Flood {
        fence.world.write(TALLY, [0; 8], 0o666);
        let mut run = Run::of(fence, command, ledger);
        assert_eq!(run.line(), "ready");
        Flood { run }
    }

    /// Lets it begin.
    pub fn release(&mut self) {
        use std::io::Write;
        self.run.stdin.as_mut().expect("piped").write_all(b"\n").expect("the command reads");
    }
}

fn script(act: &str, times: u64) -> String {
    format!("echo ready; read line; {FLOOD} {TALLY} {times} {act}; echo over; read line; exit 7")
}

/// How many refusals the program has been answered.
pub fn answered(fence: &Fence) -> u64 {
    let bytes = fence.world.read(TALLY).expect("the tally");
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// What a flood that has come to its end has left.
pub struct Flooded {
    pub ended: Ended,
    /// Denials in the record, folded ones in full.
    pub recorded: u64,
    /// Denials that its gaps say are missing.
    pub lost: u64,
    /// The most memory that the supervisor had before the flood and by its end, in KiB (VmHWM).
    pub memory: (u64, u64),
    pub took: Duration,
}

/// Makes so many refused acts, and waits for the end of the run.
pub fn flood(fence: &Fence, flags: &[&str], act: &str, times: u64) -> Flooded {
    let mut flood = Flood::start(fence, flags, act, times);
    let before = most_memory(flood.run.pid());
    let since = Instant::now();
    flood.release();
    assert_eq!(flood.run.line(), format!("refused {times}"));
    assert_eq!(flood.run.line(), "over");
    let took = since.elapsed();
    // The supervisor may still have much to take in; it is at rest when it waits.
    until("the supervisor to have taken in everything", || at_rest(flood.run.pid()));
    let memory = (before, most_memory(flood.run.pid()));
    let ended = flood.run.finish(fence);
    assert_eq!(ended.said.code, Some(7), "{}", ended.said);
    assert_eq!(answered(fence), times);
    let (recorded, lost) = sums(&ended);
    Flooded { ended, recorded, lost, memory, took }
}

/// The denials that a record holds, and those that it says are missing.
pub fn sums(ended: &Ended) -> (u64, u64) {
    let recorded = ended.denials().iter().map(|denial| denial.count).sum();
    let gaps = ended.records.iter().filter_map(|record| match &record.body {
        Body::Gap(gap) => Some(gap.lost),
        _ => None,
    });
    (recorded, gaps.sum())
}

/// Whether a process has used no time for a moment.
fn at_rest(pid: i32) -> bool {
    let used = || crate::living::stat(pid).map(|fields| (fields[11].clone(), fields[12].clone()));
    let before = used();
    std::thread::sleep(Duration::from_millis(100));
    before == used()
}

/// The most memory that a process had resident so far, in KiB.
pub fn most_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}
