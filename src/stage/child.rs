//! Forking a confined child, and hearing from it what became of it.

use crate::channel::Channel;
use crate::confine::{Confinement, Handover};
use crate::observe::process::Of;
use crate::supervise::terminal::{Placement, Terminal};
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, getppid, pipe2, read, setpgid, setsid};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The descriptor on which a confined child reports; what lies above is closed.
const REPORT: i32 = 3;
/// The descriptor by which it gives its listener away; closed when that is done.
const HANDOVER: i32 = 4;
/// Status of a child that could not even report.
const SILENT: i32 = 125;

/// A child that reports, or execs without a word.
pub struct Child {
    /// Its process id.
    pub pid: Pid,
    report: OwnedFd,
}

/// Why there is no report.
pub enum Unheard {
    /// A call failed.
    Call(&'static str, Errno),
    /// The supervisor has ended, or wants the stage to end.
    Dismissed,
}

impl Child {
    /// Forks a child that does `work` and reports what it returns.
    pub fn fork<T: Serialize>(work: impl FnOnce() -> T) -> Result<Child, (&'static str, Errno)> {
        let (report, write) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| ("pipe2", errno))?;
        match sys::fork_single_threaded().map_err(|errno| ("fork", errno))? {
            Fork::Child => report_and_exit(write, work),
            Fork::Parent(pid) => Ok(Child { pid, report }),
        }
    }

    /// Reads some of the report, waiting for it. Returns whether that was its end.
    pub fn read_some(&self, text: &mut Vec<u8>) -> Result<bool, Errno> {
        let mut buffer = [0; 4096];
        loop {
            match read(&self.report, &mut buffer) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(length) => {
                    text.extend_from_slice(&buffer[..length]);
                    return Ok(length == 0);
                }
            }
        }
    }

    /// Reads the report to its end. The child may hang; so the supervisor's end, or its wish for ours, is heard as well, and
    /// ends the child. No order is given while the probes' report is awaited, so that whatever comes from there means that.
    pub fn report(&self, supervisor: &Channel) -> Result<Vec<u8>, Unheard> {
        let mut text = Vec::new();
        loop {
            let mut fds = [
                PollFd::new(self.report.as_fd(), PollFlags::POLLIN),
                PollFd::new(supervisor.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(Unheard::Call("poll", errno)),
            }
            if fds[0].any() == Some(true) {
                if self.read_some(&mut text).map_err(|errno| Unheard::Call("read", errno))? {
                    return Ok(text);
                }
            } else if fds[1].any() == Some(true) {
                // Whatever it has started is ended with the rest of the sandbox.
                return match kill(self.pid, Signal::SIGKILL) {
                    Ok(()) | Err(Errno::ESRCH) => Err(Unheard::Dismissed),
                    Err(errno) => Err(Unheard::Call("kill", errno)),
                };
            }
        }
    }
}

impl AsFd for Child {
    /// Its report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }
}

/// In a forked child: does `work`, writes what it returns to `report`, and ends the process. The report moves to a fixed
/// number that confinement leaves open, and closes on exec: its end without a word says that the command runs.
fn report_and_exit<T: Serialize>(report: OwnedFd, work: impl FnOnce() -> T) -> ! {
    let Ok(report) = sys::move_to(report, REPORT) else { sys::exit_now(SILENT) };
    // What lies further up the stack is the stage's, and must not run here.
    let text = catch_unwind(AssertUnwindSafe(|| serde_json::to_vec(&work()).unwrap_or_default())).unwrap_or_default();
    let written = File::from(report).write_all(&text);
    sys::exit_now(if written.is_ok() && !text.is_empty() { 0 } else { SILENT });
}

/// In a forked child: takes the confinement, its listener going to the observer, and dies with the stage.
pub fn confine(confinement: &Confinement, observer: Option<&OwnedFd>, of: Of) -> Result<(), String> {
    let parent = getppid();
    let handover = observer
        .map(|observer| sys::duplicate(observer.as_raw_fd()).and_then(|fd| sys::move_to(fd, HANDOVER)))
        .map(|moved| moved.map(|observer| Handover { observer, of }))
        .transpose()
        .map_err(|errno| format!("dup of the way to the observer: {errno}"))?;
    let first_closed = if handover.is_some() { HANDOVER } else { REPORT } as u32 + 1;
    confinement.enter(first_closed, handover).map_err(|e| e.to_string())?;
    // After the drop, for a change of credentials clears it (prctl(2)).
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("prctl PR_SET_PDEATHSIG: {e}"))?;
    if getppid() != parent {
        return Err("the stage has ended".into());
    }
    // A change of ids leaves a process that is not dumpable, and that an observer without SYS_PTRACE can't read: the call
    // by which the command executes its program is the first that it is told of.
    set_dumpable(true).map_err(|errno| format!("prctl PR_SET_DUMPABLE: {errno}"))
}

/// In the command's process, before it is confined: its process group or session, and the terminal for that.
pub fn place(placement: Placement, terminal: Option<&Terminal>) -> Result<(), (&'static str, Errno)> {
    let zero = Pid::from_raw(0);
    match (placement, terminal) {
        (Placement::Callers, Some(terminal)) => {
            setpgid(zero, terminal.callers_group()).map_err(|errno| ("setpgid", errno))
        }
        (Placement::Own { in_foreground: true }, Some(terminal)) => {
            setpgid(zero, zero).map_err(|errno| ("setpgid", errno))?;
            terminal.give_to(getpgrp()).map_err(|errno| ("tcsetpgrp", errno))
        }
        (Placement::Session, _) => {
            setsid().map_err(|errno| ("setsid", errno))?;
            sys::take_terminal(std::io::stdin().as_fd()).map_err(|errno| ("ioctl TIOCSCTTY", errno))
        }
        (Placement::Callers | Placement::Own { .. }, _) => setpgid(zero, zero).map_err(|errno| ("setpgid", errno)),
    }
}
