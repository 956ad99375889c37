//! The stage: a single-threaded process in the sandbox's namespaces, with privilege, that forks what is to be confined.
//!
//! It is the parent of the command and, as a subreaper, of every process that the command leaves behind; so it learns of
//! each end, and no child means that nothing of the sandbox is left. When its supervisor ends, it ends them all.

mod attendance;
mod child;
mod stdio;

use crate::channel::Channel;
use crate::confine::Confinement;
#[cfg(doc)]
use crate::confine::exec::Command;
use crate::confine::exec::ExecFailure;
use crate::ledger::record::Probe;
use crate::observe::process::{self, ObserverSpec, Ways};
use crate::probe::Suite;
use crate::supervise::descendants;
use crate::supervise::terminal::{Placement, Terminal};
use crate::sys::{self, Fork};
use attendance::Attendance;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, getpid, getppid, setpgid};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

pub use stdio::{release_input_and_output, release_stdio};

/// What the supervisor asks of the stage.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Run the pre-flight probes in a confined child.
    Probe,
    /// More than one command is to come: have them share what would part them.
    Open,
    /// Start a command. Beside the order come four descriptors: its [`Command`], written by [`crate::document`], and what it
    /// gets as stdin, stdout and stderr.
    Launch {
        /// What the notices of it are told by.
        id: u64,
        /// Its process group.
        placement: Placement,
    },
    /// Deliver a signal to a command.
    Signal {
        /// Which one.
        id: u64,
        /// The signal's number.
        number: i32,
        /// Whether all of its process group gets it, as from a terminal.
        group: bool,
    },
    /// Let a command's process group go on after a stop.
    Continue {
        /// Which one.
        id: u64,
        /// Whether it gets the terminal's foreground again.
        in_foreground: bool,
    },
    /// Mount again what is to be seen at these paths: someone outside has replaced what was covered there.
    Cover(Vec<PathBuf>),
    /// End every process of the sandbox: TERM, a grace period, KILL.
    End {
        /// How long processes may take to obey TERM, in milliseconds.
        grace_ms: u64,
    },
}

/// What the stage tells the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Notice {
    /// The sandbox's namespaces are as planned.
    Ready {
        /// The stage's process id.
        stage: i32,
    },
    /// They are not, and why.
    Failed(String),
    /// The outcome of each probe.
    Probed(Vec<Probe>),
    /// Commands may come.
    Opened,
    /// What was to be mounted again is mounted, or why not.
    Covered(Result<(), String>),
    /// A command runs.
    Launched {
        /// Which one.
        id: u64,
        /// Its process id.
        pid: i32,
    },
    /// It could not be started.
    NotLaunched {
        /// Which one.
        id: u64,
        /// Why.
        failure: ExecFailure,
    },
    /// It was stopped by a signal.
    Stopped {
        /// Which one.
        id: u64,
        /// The signal.
        signal: i32,
    },
    /// It ended.
    Ended {
        /// Which one.
        id: u64,
        /// How.
        how: Ended,
        /// Whether other processes of the sandbox are left.
        left: bool,
    },
    /// No process of the sandbox is left.
    Empty {
        /// This is what [`Order::End`] came to.
        at_the_end: bool,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By exit, with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl Ended {
    /// The status that a shell gives: 128+n for a signal.
    pub fn status(self) -> i32 {
        match self {
            Ended::Exited(status) => status,
            Ended::Signaled(signal) => 128 + signal,
        }
    }
}

/// What the stage needs to know of the run.
#[derive(Debug)]
pub struct Stage {
    /// How children are confined.
    pub confinement: Confinement,
    /// The probes.
    pub suite: Suite,
    /// The terminal shared with the command.
    pub terminal: Option<Terminal>,
    /// The observer that answers for the filter; `None` where there is no filter.
    pub observer: Option<ObserverSpec>,
}

impl Stage {
    /// Puts the calling, freshly forked process into the sandbox's namespaces by `enter`, and lives the stage's life there;
    /// returns the exit status. Where there is an observer, the calling process becomes that, tells `told` what it sees,
    /// and the stage is a child of its. `cover` mounts again what is to be seen at some paths, in a process of its own: in its own
    /// view, or in that of the process that it is given. `leave` is for when nothing of the sandbox is left: the supervisor may not live any more to undo what is on disk.
    pub fn live(
        self,
        supervisor: Channel,
        told: Channel,
        enter: impl FnOnce() -> Result<(), String>,
        cover: impl Fn(&[PathBuf], Option<Pid>) -> Result<(), String>,
        leave: impl FnOnce() -> Result<(), String>,
    ) -> i32 {
        let apart = setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(|errno| format!("stage: setpgid: {errno}"));
        let kept = self.observer.as_ref().and_then(|spec| spec.kept.as_ref());
        let ways = kept.map(Ways::open).unwrap_or_default();
        // A shadow's view is the observer's alone.
        let of_observer = self.observer.as_ref().is_some_and(|spec| spec.shadow.is_some());
        let mut enter = Some(enter);
        let entered = if of_observer { None } else { enter.take() };
        if let Err(cause) = apart.and_then(|()| entered.map_or(Ok(()), |enter| enter())) {
            return failed(&supervisor, cause);
        }
        let Some(spec) = &self.observer else {
            return self.attend(supervisor, None, |paths| cover(paths, None), leave);
        };
        let (stages, observers) = match process::handover() {
            Ok(ends) => ends,
            Err((call, errno)) => return failed(&supervisor, format!("observer: {call}: {errno}")),
        };
        match sys::fork_single_threaded() {
            Ok(Fork::Child) => {
                drop((told, observers, ways));
                let view = of_observer.then(getppid);
                self.attend(supervisor, Some(stages), |paths| cover(paths, view), leave)
            }
            Ok(Fork::Parent(stage)) => {
                process::live(spec, stage, told, observers, ways, || enter.map_or(Ok(()), |enter| enter()))
            }
            Err(errno) => failed(&supervisor, format!("observer: fork: {errno}")),
        }
    }

    fn attend(
        self,
        supervisor: Channel,
        observer: Option<OwnedFd>,
        cover: impl Fn(&[PathBuf]) -> Result<(), String>,
        leave: impl FnOnce() -> Result<(), String>,
    ) -> i32 {
        let children = match start() {
            Ok(children) => children,
            Err(errno) => return failed(&supervisor, format!("stage: {errno}")),
        };
        let identity = self.confinement.identity.clone();
        if supervisor.send(&Notice::Ready { stage: getpid().as_raw() }).is_err() {
            return i32::from(leave().is_err()) + 1;
        }
        let mut attendance = Attendance::new(self, supervisor, children, observer, cover);
        let outcome = attendance.attend();
        descendants::end_all(Duration::ZERO, identity.as_ref());
        let left = leave();
        // The supervisor, if it still lives, knows by this that there is nothing left for it to end.
        let farewell = attendance.supervisor.send(&Notice::Empty { at_the_end: true });
        i32::from(outcome.is_err() || left.is_err() || farewell.is_err())
    }
}

fn failed(supervisor: &Channel, cause: String) -> i32 {
    // Where even this cannot be said, the supervisor sees the channel close.
    i32::from(supervisor.send(&Notice::Failed(cause)).is_err()) + 1
}

/// Leaves the process group that it was forked in, so that what ends one of ours leaves the stage time to end the sandbox.
fn start() -> Result<SignalFd, Errno> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    set_child_subreaper(true)?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// What a wait status says of an end.
pub fn ended(status: &WaitStatus) -> Option<(Pid, Ended)> {
    match *status {
        WaitStatus::Exited(pid, code) => Some((pid, Ended::Exited(code))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, Ended::Signaled(signal as i32))),
        _ => None,
    }
}
