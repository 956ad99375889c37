//! The stage: a single-threaded process in the sandbox's namespaces, with privilege, that forks what is to be confined.
//!
//! It is the parent of the command and, as a subreaper, of every process that the command leaves behind; so it learns of
//! each end, and no child means that nothing of the sandbox is left. When its supervisor ends, it ends them all.

mod child;

use crate::channel::{Channel, ChannelError};
use crate::confine::Confinement;
use crate::confine::exec::{Command, ExecFailure};
use crate::ledger::record::Probe;
use crate::observe::process::{self, ObserverSpec, Of};
use crate::probe::Suite;
use crate::supervise::descendants;
use crate::supervise::terminal::{Placement, Terminal};
use crate::sys::{self, Fork};
use child::{Child, Unheard, confine};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, setpgid};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What the supervisor asks of the stage.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Run the pre-flight probes in a confined child.
    Probe,
    /// Start the command, in this process group.
    Launch(Placement),
    /// Deliver a signal to the command.
    Signal(i32),
    /// Let the command's process group go on after a stop.
    Continue {
        /// Whether it gets the terminal's foreground again.
        in_foreground: bool,
    },
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
    /// The command runs.
    Launched {
        /// Its process id.
        pid: i32,
    },
    /// It could not be started.
    NotLaunched(ExecFailure),
    /// It was stopped by a signal.
    Stopped(i32),
    /// It ended.
    Ended {
        /// How.
        how: Ended,
        /// Whether other processes of the sandbox are left.
        left: bool,
    },
    /// No process of the sandbox is left.
    Empty,
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
    /// What they run.
    pub command: Command,
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
    /// and the stage is a child of its. `leave` is for when nothing of the sandbox is left: the supervisor may not live any
    /// more to undo what is on disk.
    pub fn live(
        self,
        supervisor: Channel,
        told: Channel,
        enter: impl FnOnce() -> Result<(), String>,
        leave: impl FnOnce() -> Result<(), String>,
    ) -> i32 {
        let apart = setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(|errno| format!("stage: setpgid: {errno}"));
        if let Err(cause) = apart.and_then(|()| enter()) {
            return failed(&supervisor, cause);
        }
        let Some(spec) = &self.observer else { return self.attend(supervisor, None, leave) };
        let (stages, observers) = match process::handover() {
            Ok(ends) => ends,
            Err((call, errno)) => return failed(&supervisor, format!("observer: {call}: {errno}")),
        };
        match sys::fork_single_threaded() {
            Ok(Fork::Child) => {
                drop((told, observers));
                self.attend(supervisor, Some(stages), leave)
            }
            Ok(Fork::Parent(stage)) => process::live(spec, stage, told, observers),
            Err(errno) => failed(&supervisor, format!("observer: fork: {errno}")),
        }
    }

    fn attend(self, supervisor: Channel, observer: Option<OwnedFd>, leave: impl FnOnce() -> Result<(), String>) -> i32 {
        let children = match start() {
            Ok(children) => children,
            Err(errno) => return failed(&supervisor, format!("stage: {errno}")),
        };
        if supervisor.send(&Notice::Ready { stage: getpid().as_raw() }).is_err() {
            return i32::from(leave().is_err()) + 1;
        }
        let mut attendance =
            Attendance { stage: self, supervisor, children, observer, command: None, group: None, launched: false };
        let outcome = attendance.attend();
        descendants::end_all(Duration::ZERO, attendance.stage.confinement.identity.as_ref());
        let left = leave();
        // The supervisor, if it still lives, knows by this that there is nothing left for it to end.
        let farewell = attendance.supervisor.send(&Notice::Empty);
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

struct Attendance {
    stage: Stage,
    supervisor: Channel,
    children: SignalFd,
    /// Where listeners are handed over to the observer.
    observer: Option<OwnedFd>,
    command: Option<Pid>,
    /// The command's own process group, if it has one.
    group: Option<Pid>,
    launched: bool,
}

impl Attendance {
    fn attend(&mut self) -> Result<(), ChannelError> {
        loop {
            let mut fds = [
                PollFd::new(self.supervisor.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(ChannelError::Call { call: "poll", errno });
                }
            }
            let said = fds[0].any() == Some(true);
            if fds[1].any() == Some(true) {
                while let Ok(Some(_)) = self.children.read_signal() {}
                self.reap()?;
            }
            if said {
                match self.supervisor.receive() {
                    Ok(order) => self.obey(order)?,
                    Err(ChannelError::Closed) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), ChannelError> {
        match order {
            Order::Probe => match self.probe()? {
                Ok(outcomes) => self.supervisor.send(&Notice::Probed(outcomes)),
                Err(cause) => self.supervisor.send(&Notice::Failed(cause)),
            },
            Order::Launch(placement) => match self.launch(placement)? {
                Ok(pid) => {
                    self.command = Some(pid);
                    self.group = Some(pid).filter(|_| placement != Placement::Callers);
                    self.launched = true;
                    self.supervisor.send(&Notice::Launched { pid: pid.as_raw() })?;
                    // Whoever waits for the end of the command's output must not wait for ours.
                    release_stdio().map_err(|errno| ChannelError::Call { call: "dup2", errno })
                }
                Err(failure) => self.supervisor.send(&Notice::NotLaunched(failure)),
            },
            Order::Signal(number) => {
                if let Some(pid) = self.command {
                    match sys::send_signal(pid, number) {
                        // It has ended meanwhile; its status is on its way.
                        Ok(()) | Err(Errno::ESRCH) => {}
                        Err(errno) => {
                            return Err(ChannelError::Call { call: "kill", errno });
                        }
                    }
                }
                Ok(())
            }
            Order::Continue { in_foreground } => {
                let (Some(_), Some(group)) = (self.command, self.group) else { return Ok(()) };
                let failed = |call| move |errno| ChannelError::Call { call, errno };
                if let Some(terminal) = self.stage.terminal.as_ref().filter(|_| in_foreground) {
                    terminal.give_to(group).map_err(failed("tcsetpgrp"))?;
                }
                match killpg(group, Signal::SIGCONT) {
                    Ok(()) | Err(Errno::ESRCH) => Ok(()),
                    Err(errno) => Err(failed("killpg")(errno)),
                }
            }
            Order::End { grace_ms } => {
                let identity = self.stage.confinement.identity.clone();
                let ended = descendants::end_all(Duration::from_millis(grace_ms), identity.as_ref());
                if let Some(ended) = self.command.take().and_then(|pid| ended.into_iter().find(|(p, _)| *p == pid)) {
                    self.supervisor.send(&Notice::Ended { how: ended.1, left: false })?;
                }
                self.supervisor.send(&Notice::Empty)
            }
        }
    }

    /// Takes in every child that has changed state. How the command ended is told together with whether anything is left.
    fn reap(&mut self) -> Result<(), ChannelError> {
        let mut command_ended = None;
        let left = loop {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
            let status = match waitid(Id::All, flags) {
                Ok(status) => status,
                Err(Errno::ECHILD) => break false,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(ChannelError::Call { call: "waitid", errno }),
            };
            match (status, ended(&status)) {
                (WaitStatus::StillAlive, _) => break true,
                (WaitStatus::Stopped(pid, signal), _) if Some(pid) == self.command => {
                    self.supervisor.send(&Notice::Stopped(signal as i32))?;
                }
                (_, Some((pid, how))) if Some(pid) == self.command => {
                    self.command = None;
                    command_ended = Some(how);
                }
                _ => {}
            }
        };
        if let Some(how) = command_ended {
            self.supervisor.send(&Notice::Ended { how, left })?;
        }
        if !left && self.launched && self.command.is_none() {
            self.supervisor.send(&Notice::Empty)?;
        }
        Ok(())
    }

    /// Runs the suite in a child that takes the command's confinement, and reads its report.
    fn probe(&self) -> Result<Result<Vec<Probe>, String>, ChannelError> {
        let stage = &self.stage;
        let arena = match stage.suite.prepare() {
            Ok(arena) => arena,
            Err(cause) => return Ok(Err(cause)),
        };
        let forked = Child::fork(|| {
            confine(&stage.confinement, self.observer.as_ref(), Of::Probes).map(|()| stage.suite.run(&arena))
        });
        let heard = self.hear(&forked)?;
        let status = forked.map(|child| waitpid(child.pid, None));
        // Whatever a probe started is a child of ours now.
        descendants::end_all(Duration::ZERO, stage.confinement.identity.as_ref());
        Ok(stage.suite.clear(arena).and_then(|()| {
            let text = heard.map_err(|(call, errno)| format!("probes: {call}: {errno}"))?;
            if !matches!(status, Ok(Ok(WaitStatus::Exited(_, 0)))) {
                return Err(format!("probes: the probing process did not end well: {status:?}"));
            }
            let outcome: Result<Vec<Probe>, String> =
                serde_json::from_slice(&text).map_err(|e| format!("probes: the report is torn: {e}"))?;
            outcome.map(|seen| [stage.suite.run_as_stage(), seen].concat())
        }))
    }

    fn launch(&self, placement: Placement) -> Result<Result<Pid, ExecFailure>, ChannelError> {
        let stage = &self.stage;
        let ours = |message: String| ExecFailure { status: 125, message };
        let forked = Child::fork(|| {
            let placed = place(placement, stage.terminal.as_ref());
            let ready = placed.map_err(|(call, errno)| format!("launch: {call}: {errno}"));
            match ready.and_then(|()| confine(&stage.confinement, self.observer.as_ref(), Of::Command)) {
                Ok(()) => stage.command.execute(),
                Err(cause) => ours(cause),
            }
        });
        let heard = self.hear(&forked)?;
        Ok(match (forked, heard) {
            (Ok(child), Ok(text)) if text.is_empty() => Ok(child.pid),
            (Ok(child), Ok(text)) => {
                match waitpid(child.pid, None) {
                    Ok(_) => Err(serde_json::from_slice(&text)
                        .unwrap_or_else(|e| ours(format!("launch: the report is torn: {e}")))),
                    Err(errno) => Err(ours(format!("launch: waitpid: {errno}"))),
                }
            }
            (_, Err((call, errno))) | (Err((call, errno)), _) => Err(ours(format!("launch: {call}: {errno}"))),
        })
    }

    /// Reads a child's report; [`ChannelError::Closed`] when the stage is to end instead.
    fn hear(
        &self,
        child: &Result<Child, (&'static str, Errno)>,
    ) -> Result<Result<Vec<u8>, (&'static str, Errno)>, ChannelError> {
        match child.as_ref().map(|child| child.report(&self.supervisor)) {
            Ok(Ok(text)) => Ok(Ok(text)),
            Ok(Err(Unheard::Dismissed)) => Err(ChannelError::Closed),
            Ok(Err(Unheard::Call(call, errno))) => Ok(Err((call, errno))),
            Err((call, errno)) => Ok(Err((call, *errno))),
        }
    }
}

/// In the command's process, before it is confined: its process group, and the terminal's foreground for that.
fn place(placement: Placement, terminal: Option<&Terminal>) -> Result<(), (&'static str, Errno)> {
    let zero = Pid::from_raw(0);
    match (placement, terminal) {
        (Placement::Callers, Some(terminal)) => {
            setpgid(zero, terminal.callers_group()).map_err(|errno| ("setpgid", errno))
        }
        (Placement::Own { in_foreground: true }, Some(terminal)) => {
            setpgid(zero, zero).map_err(|errno| ("setpgid", errno))?;
            terminal.give_to(getpgrp()).map_err(|errno| ("tcsetpgrp", errno))
        }
        (Placement::Callers | Placement::Own { .. }, _) => setpgid(zero, zero).map_err(|errno| ("setpgid", errno)),
    }
}

/// Puts /dev/null in the place of this process's stdio, or an empty file in memory where the image has no /dev/null.
pub fn release_stdio() -> Result<(), Errno> {
    let null = release_input_and_output()?;
    nix::unistd::dup2_stderr(&null)
}

/// The same for stdin and stdout alone. Returns the descriptor of /dev/null.
pub fn release_input_and_output() -> Result<OwnedFd, Errno> {
    let opened = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty());
    let null = opened.or_else(|_| nix::sys::memfd::memfd_create(c"null", nix::sys::memfd::MFdFlags::MFD_CLOEXEC))?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(null)
}

/// What a wait status says of an end.
pub fn ended(status: &WaitStatus) -> Option<(Pid, Ended)> {
    match *status {
        WaitStatus::Exited(pid, code) => Some((pid, Ended::Exited(code))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, Ended::Signaled(signal as i32))),
        _ => None,
    }
}
