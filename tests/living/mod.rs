//! A run that is looked at, and meddled with, while it lives.
#![allow(dead_code, reason = "each test binary uses its own part")]

use super::common::{Ended, Fence};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use world::Said;

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A run whose stdio is the test's.
pub struct Run {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub out: BufReader<ChildStdout>,
    pub err: Option<ChildStderr>,
    pub ledger: String,
}

impl Run {
    /// Starts a bash script under `ringfence run` with these flags.
    pub fn start(fence: &Fence, flags: &[&str], script: &str) -> Run {
        let (command, ledger) = fence.command(flags, &["bash", "-c", script]);
        Run::of(fence, command, ledger)
    }

    /// Starts a command that somehow ends in ringfence.
    pub fn of(fence: &Fence, mut command: Command, ledger: String) -> Run {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = fence.world.spawn(command).expect("ringfence starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Run { stdin: child.stdin.take(), err: child.stderr.take(), out, child, ledger }
    }

    /// The next line of the command's output, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("the command's output is UTF-8");
        if line.is_empty() {
            let mut err = String::new();
            self.err.take().expect("read once").read_to_string(&mut err).expect("stderr is UTF-8");
            panic!("the command's output has ended: {err}");
        }
        line.trim_end().to_owned()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The stage: the observer's child, or the supervisor's where there is no observer.
    pub fn stage(&self) -> i32 {
        stage_of(self.pid())
    }

    /// The proxy: the child of the supervisor that is neither root's nor has a child of its own.
    pub fn proxy(&self) -> i32 {
        self.child_that(|pid| owner(pid).is_some_and(|uid| uid != 0) && children(pid).is_empty())
    }

    /// The observer: the stage's parent.
    pub fn observer(&self) -> i32 {
        self.child_that(|pid| owner(pid).is_some_and(|uid| uid != 0) && !children(pid).is_empty())
    }

    /// Both lead process groups of their own; what is forked to look at the host does not.
    fn child_that(&self, wanted: impl Fn(i32) -> bool) -> i32 {
        let mut found = None;
        until("a child of the supervisor", || {
            found = children(self.pid()).into_iter().find(|pid| leads_group(*pid) && wanted(*pid));
            found.is_some()
        });
        found.expect("it was found")
    }

    /// The record so far.
    pub fn ledger_of(&self, fence: &Fence) -> String {
        String::from_utf8_lossy(&fence.world.read(&self.ledger).unwrap_or_default()).into_owned()
    }

    /// Waits for the end of ringfence itself; what is left may still hold the output.
    pub fn status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < deadline, "ringfence has not ended");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closes the command's input and reads the rest of its output and its record.
    pub fn finish(mut self, fence: &Fence) -> Ended {
        drop(self.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("the command's output is UTF-8");
        if let Some(mut stderr) = self.err.take() {
            stderr.read_to_string(&mut err).expect("stderr is UTF-8");
        }
        let status = self.status();
        let code = status.code().or(status.signal().map(|signal| -signal));
        fence.ended(Said { code, out, err }, self.ledger)
    }
}

fn leads_group(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[2] == pid.to_string())
}

/// The stage of a supervisor: root's, and the child of the observer or, where there is none, of the supervisor.
pub fn stage_of(supervisor: i32) -> i32 {
    let roots = |pid: &i32| owner(*pid) == Some(0) && leads_group(*pid);
    let mut found = None;
    until("the stage", || {
        let first = children(supervisor);
        found = first.iter().copied().chain(first.iter().flat_map(|pid| children(*pid))).find(roots);
        found.is_some()
    });
    found.expect("it was found")
}

/// On any rung: the observer, which has the stage for its child, or the proxy, which has none; both lead groups of their own.
pub fn companion(supervisor: i32, with_child: bool) -> i32 {
    let mut found = children(supervisor).into_iter().filter(|pid| leads_group(*pid));
    found.find(|pid| children(*pid).is_empty() != with_child).expect("a process of ours")
}

/// On any rung: the stage, of a supervisor that has an observer.
pub fn stage_below(supervisor: i32) -> i32 {
    children(companion(supervisor, true))[0]
}

/// Waits for something that happens by itself.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process, or to a group where the number is negative.
pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap_or_else(|cause| panic!("{signal} to {pid}: {cause}"));
}

/// The fields of /proc/PID/stat from the state on; `None` when there is no such process.
pub fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// The state of a process: `R`, `S`, `T`, `Z` and so on.
pub fn state(pid: i32) -> Option<String> {
    stat(pid).map(|fields| fields[0].clone())
}

/// The processes of the machine whose parent is this one.
pub fn children(parent: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields[1] == parent.to_string())).collect()
}

/// The uid of a process.
pub fn owner(pid: i32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid())
}

/// Waits until no process lives in the box, at most this long.
pub fn empty_within(fence: &Fence, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let left = fence.world.processes();
        if left.is_empty() {
            return;
        }
        let named: Vec<_> = left
            .iter()
            .map(|pid| (*pid, std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()))
            .collect();
        assert!(Instant::now() < deadline, "left after {patience:?}: {named:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
