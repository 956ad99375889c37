//! Ending every process of a sandbox, from its subreaper.

use crate::install::account::Identity;
use crate::stage::{Ended, ended};
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid, setresgid, setresuid};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Ends every descendant: TERM, `grace`, then KILL until none is left. Returns how the direct children ended.
///
/// The caller is a subreaper and single-threaded with SIGCHLD blocked. A process that keeps forking is outrun by a signal
/// sent to the whole uid at once, where the uid is the run's own.
pub fn end_all(grace: Duration, identity: Option<&Identity>) -> Vec<(Pid, Ended)> {
    let mut seen = Vec::new();
    if !grace.is_zero() {
        signal_descendants(Signal::SIGTERM);
        // A stopped process acts on TERM only when it goes on.
        signal_descendants(Signal::SIGCONT);
        let deadline = Instant::now() + grace;
        while reap_all(&mut seen) && Instant::now() < deadline {
            wait_for_child(deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
        }
    }
    while reap_all(&mut seen) {
        if let Some(identity) = identity.filter(|i| i.dedicated) {
            signal_uid(identity);
        }
        signal_descendants(Signal::SIGKILL);
        wait_for_child(Duration::from_millis(20));
    }
    seen
}

/// Reaps what has ended; false when no child is left.
fn reap_all(seen: &mut Vec<(Pid, Ended)>) -> bool {
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
            Ok(status) => match ended(&status) {
                Some(end) => seen.push(end),
                None => return true,
            },
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn wait_for_child(at_most: Duration) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use std::os::fd::AsFd;
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

fn signal_descendants(signal: Signal) {
    for pid in of(getpid()) {
        // ESRCH: it has ended since the list was made.
        if kill(pid, signal) == Err(Errno::EPERM) {
            debug_assert!(false, "a descendant is beyond reach");
        }
    }
}

/// kill(2) to -1 from a process of that uid reaches all of the uid's processes in one call, which no fork escapes.
fn signal_uid(identity: &Identity) {
    let Ok(Fork::Child) = sys::fork_single_threaded() else {
        return;
    };
    let dropped = setresgid(identity.gid, identity.gid, identity.gid)
        .and_then(|()| setresuid(identity.uid, identity.uid, identity.uid));
    if dropped.is_ok() && kill(Pid::from_raw(-1), Signal::SIGKILL).is_err() {
        sys::exit_now(1);
    }
    sys::exit_now(0);
}

/// All descendants of a process, by the parent ids in /proc.
pub fn of(root: Pid) -> Vec<Pid> {
    let mut children = by_parent();
    let mut found = HashSet::new();
    let mut pending = vec![root.as_raw()];
    while let Some(pid) = pending.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            if found.insert(child) {
                pending.push(child);
            }
        }
    }
    found.into_iter().map(Pid::from_raw).collect()
}

/// The children of a process, by the parent ids in /proc.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    by_parent().remove(&parent.as_raw()).unwrap_or_default().into_iter().map(Pid::from_raw).collect()
}

fn by_parent() -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}
