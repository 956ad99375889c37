//! A ledger that cannot be written any more, in each way that there is: under `required` the run ends, under `degrade` it goes
//! on and says how many are missing; the command is held up for a bounded time, and no signal ends us.
//! (`tests/egress_full_disk.rs` has the full disk.)

mod attempts;
mod common;
mod flooding;
mod living;

use common::{Ended, Fence, as_root};
use flooding::{Flood, answered, sums};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use ringfence::ledger::record::{Body, Record};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};
use world::Said;

const REQUIRED: [&str; 4] = ["--policy", "nist-high", "--leftovers", "kill"];
const DEGRADE: [&str; 6] = ["--policy", "nist-high", "--leftovers", "kill", "--ledger", "degrade"];
const ACT: &str = "proxy evil.example.net";
const FIFO: &str = "/srv/ledger";
const TIMES: u64 = 300;

/// Limits the size of the files that a process may write, or no longer.
fn limit(fence: &Fence, pid: i32, bytes: &str) {
    as_root(fence, &format!("prlimit --pid {pid} --fsize={bytes}:"));
}

#[test]
fn at_a_file_size_limit_a_degraded_run_counts_what_is_missing() {
    let fence = flooding::fence();
    let mut flood = Flood::start(&fence, &DEGRADE, ACT, TIMES);
    limit(&fence, flood.run.pid(), "4096");
    flood.release();
    assert_eq!(flood.run.line(), format!("refused {TIMES}"));
    limit(&fence, flood.run.pid(), "unlimited");
    let ended = flood.run.finish(&fence);
    let (recorded, lost) = sums(&ended);
    assert_eq!((ended.said.code, recorded + lost), (Some(7), TIMES), "{ended}");
    assert!(lost >= TIMES - 1 && !ended.seal().complete, "{ended}");
    let cause = |record: &Record| match &record.body {
        Body::Gap(gap) => Some(gap.cause.clone()),
        _ => None,
    };
    assert!(ended.records.iter().filter_map(cause).all(|cause| cause.contains("EFBIG")), "{ended}");
    let left = as_root(&fence, "ls /var/log/ringfence");
    assert!(!left.contains("counts"), "{left}");
}

#[test]
fn at_a_file_size_limit_what_is_counted_already_is_not_lost() {
    let fence = flooding::fence();
    let mut flood = Flood::start(&fence, &DEGRADE, ACT, 0);
    flood.release();
    living::until("something to be counted", || answered(&fence) > 100);
    limit(&fence, flood.run.pid(), "64");
    let at = answered(&fence);
    living::until("more refusals", || answered(&fence) > at + 100);
    limit(&fence, flood.run.pid(), "unlimited");
    let at = answered(&fence);
    living::until("more refusals", || answered(&fence) > at + 100);
    living::send(flood.run.pid(), nix::sys::signal::Signal::SIGTERM);
    let ended = flood.run.finish(&fence);
    let (recorded, lost) = sums(&ended);
    let answered = answered(&fence);
    assert!(recorded + lost == answered || recorded + lost == answered + 1, "{answered}: {recorded} and {lost} lost");
    assert!(recorded > 100, "{ended}");
    assert_eq!(ended.seal().complete, lost == 0, "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(i32::from(lost > 0)));
}

#[test]
fn at_a_file_size_limit_a_run_that_requires_it_ends() {
    let fence = flooding::fence();
    let mut flood = Flood::start(&fence, &REQUIRED, ACT, 0);
    limit(&fence, flood.run.pid(), "4096");
    flood.release();
    assert_eq!(flood.run.status().code(), Some(125));
    let ended = flood.run.finish(&fence);
    assert!(ended.said.err.contains("EFBIG"), "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(1), "{ended}");
    assert!(fence.world.processes().is_empty());
}

/// A pipe for the ledger, of which nothing is read.
fn fifo(fence: &Fence) -> File {
    fence.world.inside().run(|| {
        mkfifo(FIFO, Mode::S_IRUSR | Mode::S_IWUSR).expect("mkfifo");
        OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(FIFO).expect("open")
    })
}

fn over_pipe<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    [flags, &["--ledger", "fd:3"]].concat()
}

/// All that is in the pipe now.
fn drain(pipe: &mut File, into: &mut Vec<u8>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = pipe.read(&mut bytes) {
        into.extend_from_slice(&bytes[..count]);
    }
}

#[test]
fn a_reader_that_stalls_holds_the_command_up_once() {
    let fence = flooding::fence();
    let mut pipe = fifo(&fence);
    let mut flood = Flood::start_by(&fence, &format!("exec \"$@\" 3>{FIFO}"), &over_pipe(&DEGRADE), ACT, TIMES);
    let since = Instant::now();
    flood.release();
    assert_eq!(flood.run.line(), format!("refused {TIMES}"));
    let took = since.elapsed();
    assert!(took > Duration::from_secs(4), "the pipe has filled up: {took:?}");
    // Were each waited for, it would take a quarter of an hour.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let mut bytes = Vec::new();
    drain(&mut pipe, &mut bytes);
    drop(flood.run.stdin.take());
    let status = flood.run.status();
    drain(&mut pipe, &mut bytes);
    let text = String::from_utf8(bytes).expect("a ledger is UTF-8");
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let said = Said { code: status.code(), out: String::new(), err: String::new() };
    let ended = Ended { said, ledger: FIFO.into(), records };
    let (recorded, lost) = sums(&ended);
    assert_eq!((ended.said.code, recorded + lost), (Some(7), TIMES), "{ended}");
    assert!(lost > 0 && !ended.seal().complete, "{ended}");
    fence.world.write("/tmp/copy.jsonl", text, 0o600);
    assert_eq!(fence.verify("/tmp/copy.jsonl").code, Some(1));
}

#[test]
fn a_reader_that_goes_ends_a_run_that_requires_it_and_no_other() {
    for (flags, at_once) in [(&REQUIRED[..], true), (&DEGRADE[..], false)] {
        let fence = flooding::fence();
        let pipe = fifo(&fence);
        let mut flood = Flood::start_by(&fence, &format!("exec \"$@\" 3>{FIFO}"), &over_pipe(flags), ACT, TIMES);
        drop(pipe);
        flood.release();
        if !at_once {
            assert_eq!(flood.run.line(), format!("refused {TIMES}"));
            assert_eq!(flood.run.line(), "over");
        }
        let ended = flood.run.finish(&fence);
        // In either mode a run whose last record could not be written is not passed off as one that was recorded.
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains("EPIPE"), "{ended}");
        assert_eq!(fence.as_root("nft list tables").out, "");
    }
}

#[test]
fn what_cannot_be_written_from_the_start_is_no_run() {
    let fence = flooding::fence();
    for outer in ["exec \"$@\" 3>/dev/full", "ulimit -f 0; exec \"$@\" 3>/srv/file"] {
        let mut command = fence.world.command("bash");
        command.args(["-c", outer, "outer", common::RINGFENCE, "run"]).args(over_pipe(&DEGRADE));
        let said = Said::from(fence.world.output({
            command.args(["--", "touch", "/tmp/started"]);
            command
        }));
        assert_eq!((said.code, said.err.lines().count()), (Some(125), 1), "{outer}: {said}");
        assert_eq!(fence.world.read("/tmp/started"), None, "{outer}");
    }
}

#[test]
fn a_directory_that_is_removed_ends_a_run_and_takes_no_record_with_it() {
    let fence = flooding::fence();
    let mut flood = Flood::start(&fence, &REQUIRED, ACT, 0);
    let path = flood.run.ledger.clone();
    let kept = fence.world.inside().run(move || File::open(path).expect("the ledger"));
    flood.release();
    living::until("refusals", || answered(&fence) > 100);
    as_root(&fence, "rm -r /var/log/ringfence");
    assert_eq!(flood.run.status().code(), Some(125));
    let mut ended = flood.run.finish(&fence);
    let mut text = String::new();
    (&kept).read_to_string(&mut text).expect("read");
    ended.records = text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    assert!(ended.said.err.contains("it was removed or moved away"), "{ended}");
    let recorded: u64 = ended.denials().iter().map(|denial| denial.count).sum();
    let answered = answered(&fence);
    assert!(recorded == answered || recorded == answered + 1, "{answered} answered, {recorded} recorded: {ended}");
    assert!(!ended.seal().complete, "{ended}");
}
