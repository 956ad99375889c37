//! Ending every process of a sandbox: by the stage, whose descendants they are, or by the supervisor when the stage died.

use super::processes::{self, Process};
use crate::install::account::Identity;
use crate::stage::{Ended, ended};
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid, setresgid, setresuid};
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Ends every descendant: TERM, `grace`, then KILL until none is left. Returns how the direct children ended.
///
/// The caller is a subreaper and single-threaded with SIGCHLD blocked, and all its children are the sandbox's.
pub fn end_all(grace: Duration, identity: Option<&Identity>) -> Vec<(Pid, Ended)> {
    let mut seen = Vec::new();
    if !grace.is_zero() {
        for process in ours(&[]) {
            signal(process.pid, Signal::SIGTERM);
            // A stopped process acts on TERM only when it goes on.
            signal(process.pid, Signal::SIGCONT);
        }
        let deadline = Instant::now() + grace;
        while reap_all(&mut seen) && Instant::now() < deadline {
            wait_for_child(deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
        }
    }
    while reap_all(&mut seen) {
        kill_at_once(identity, &[]);
        wait_for_child(Duration::from_millis(20));
    }
    seen
}

/// Ends what a stage that died has left: the caller's descendants, less `spared` and theirs, and all processes of a uid that is
/// the run's own. Returns whether nothing of it is left.
pub fn end_strays(identity: Option<&Identity>, spared: &[Pid], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        for child in processes::children_of(getpid()).into_iter().filter(|child| !spared.contains(child)) {
            match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
                // What it was matters to nobody any more; what is left is looked at below.
                Ok(_) | Err(_) => {}
            }
        }
        let dedicated = identity.filter(|identity| identity.dedicated);
        let of_uid = || processes::all().into_iter().any(|p| !p.ended && dedicated.is_some_and(|i| i.uid == p.uid));
        let gone = || ours(spared).iter().all(|process| process.ended) && !of_uid();
        // The table is read over some time: whose parent ends meanwhile is missing in one look, and has another in the next.
        if gone() && gone() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        kill_at_once(identity, spared);
        wait_for_child(Duration::from_millis(20));
    }
}

/// One KILL to each process below the stage, at once and without a look at what became of it: where egress is open, every
/// moment counts. The stage ends what is left.
pub fn strike(stage: Pid, identity: Option<&Identity>) {
    if !identity.is_some_and(|identity| identity.dedicated && signal_uid(identity)) {
        processes::descendants(&processes::all(), stage, &[]).iter().for_each(|p| signal(p.pid, Signal::SIGKILL));
    }
}

/// KILL to all, faster than any of them forks: the whole uid in one call where it is the run's own; else, or where there is
/// no room for another process, after all have been stopped, for a stopped process forks no more and keeps its place.
pub fn kill_at_once(identity: Option<&Identity>, spared: &[Pid]) {
    let uid_signalled = identity.is_some_and(|identity| identity.dedicated && signal_uid(identity));
    let mut stopped = HashSet::new();
    for _ in 0..if uid_signalled { 0 } else { STOP_ROUNDS } {
        let running: Vec<Process> = ours(spared).into_iter().filter(|p| stopped.insert(p.pid)).collect();
        if running.is_empty() {
            break;
        }
        running.iter().for_each(|process| signal(process.pid, Signal::SIGSTOP));
    }
    ours(spared).iter().for_each(|process| signal(process.pid, Signal::SIGKILL));
}

/// Looks at the table this often for processes that were forked since the look before.
const STOP_ROUNDS: usize = 50;

fn ours(spared: &[Pid]) -> Vec<Process> {
    processes::descendants(&processes::all(), getpid(), spared)
}

/// Reaps what has ended; false when no child is left.
fn reap_all(seen: &mut Vec<(Pid, Ended)>) -> bool {
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
            Ok(status) => match ended(&status) {
                Some(end) => seen.push(end),
                None if status == WaitStatus::StillAlive => return true,
                None => {}
            },
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn wait_for_child(at_most: Duration) {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let milliseconds = u16::try_from(at_most.as_millis()).unwrap_or(u16::MAX).max(1);
    // Without a descriptor for it the wait is only less prompt.
    match SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK) {
        Ok(fd) => {
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::from(milliseconds)).is_ok() {
                while let Ok(Some(_)) = fd.read_signal() {}
            }
        }
        Err(_) => std::thread::sleep(Duration::from_millis(u64::from(milliseconds))),
    }
}

fn signal(pid: Pid, signal: Signal) {
    match kill(pid, signal) {
        // ESRCH: it has ended since the list was made. What could not be signalled stays in the list, and is tried again.
        Ok(()) | Err(_) => {}
    }
}

/// kill(2) to -1 from a process of that uid reaches all of the uid's processes in one call, which no fork escapes. Returns
/// whether there is such a process; it is reaped with the rest.
fn signal_uid(identity: &Identity) -> bool {
    match sys::fork_single_threaded() {
        Ok(Fork::Child) => {
            let dropped = setresgid(identity.gid, identity.gid, identity.gid)
                .and_then(|()| setresuid(identity.uid, identity.uid, identity.uid));
            let done = dropped.and_then(|()| kill(Pid::from_raw(-1), Signal::SIGKILL));
            sys::exit_now(i32::from(done.is_err()));
        }
        Ok(Fork::Parent(_)) => true,
        Err(_) => false,
    }
}
