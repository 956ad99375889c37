//! Living with the command until its end: its signals, its terminal, its evidence.

pub mod descendants;
pub mod processes;
mod signals;
mod standing;
pub mod terminal;
pub mod watch_ledger;
pub mod watch_mounts;

use crate::channel::ChannelError;
use crate::install::Installation;
use crate::install::firewall::FirewallError;
use crate::ledger::{Ledger, LedgerMode};
use crate::observe::evidence::EvidenceError;
use crate::stage::{Ended, Notice, Order};
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use signals::{Meaning, Signals};
pub use signals::{asks_to_end, forwarded};
pub use standing::check_mounts;
use standing::check_wall;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use terminal::{AfterStop, JobControl};
use watch_ledger::LedgerWatch;
use watch_mounts::{MountWatch, MountWatchError};

/// Why a run is ended before its command has ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum AbortCause {
    /// Evidence cannot be taken in or kept.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The stage has ended.
    #[error("stage: {0}")]
    Stage(#[from] ChannelError),
    /// The stage has failed.
    #[error("stage: {0}")]
    StageFailed(String),
    /// The stage says nothing.
    #[error("stage: no answer within {0:?}")]
    StageSilent(Duration),
    /// The wall is not what was installed.
    #[error("the firewall's rules were changed in mid-run: {0}")]
    WallAltered(String),
    /// The mounts are not what was installed.
    #[error("the sandbox's mounts were changed in mid-run: {0}")]
    ViewAltered(String),
    /// The mounts cannot be looked at.
    #[error(transparent)]
    Mounts(#[from] MountWatchError),
    /// Someone has asked for the end of a set-up that did not come to one.
    #[error("a signal asked for the end while the set-up was under way, and the set-up did not finish")]
    AskedToEnd,
    /// The wall cannot be looked at.
    #[error(transparent)]
    Firewall(#[from] FirewallError),
    /// A call.
    #[error("{call}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> AbortCause {
    move |errno| AbortCause::Call { call, errno }
}

/// What the supervisor watches while the sandbox lives.
#[derive(Debug)]
pub struct Watchman {
    signals: Signals,
    job: JobControl,
    command: Option<Pid>,
    ledger: Option<LedgerWatch>,
    ending: bool,
    /// When the command's start is over.
    started: Option<Instant>,
}

/// What a step has found for others to act on.
#[derive(Debug, Default)]
pub struct Stepped {
    /// What the stage has said.
    pub notice: Option<Notice>,
    /// Which of the other descriptors have something to be read, in their order; empty where the wait was interrupted.
    pub others: Vec<bool>,
}

/// How long a command has run when what only its start needed is given back.
const STARTED: Duration = Duration::from_secs(1);

/// The number of the one command of a run.
pub const RUN: u64 = 0;

impl Watchman {
    /// Takes over the signals, which have been blocked since the program began, and the caller's terminal. What a stage that
    /// dies would leave is from here on this process's to end.
    pub fn new() -> Result<Watchman, AbortCause> {
        set_child_subreaper(true).map_err(failed("prctl PR_SET_CHILD_SUBREAPER"))?;
        Ok(Watchman {
            signals: Signals::new()?,
            job: JobControl::new(),
            command: None,
            ledger: None,
            ending: false,
            started: None,
        })
    }

    /// From here on the ledger's file is watched.
    pub fn watch_ledger(&mut self, ledger: &Ledger) {
        self.ledger = LedgerWatch::begin(ledger);
    }

    /// Waits for a notice of the stage that `wanted` picks, while evidence is taken in and signals are forwarded.
    ///
    /// `patience` bounds the wait; without it the wait is for as long as the command runs.
    pub fn await_notice<T>(
        &mut self,
        installation: &mut Installation,
        ledger: &mut Ledger,
        patience: Option<Duration>,
        mut wanted: impl FnMut(Notice) -> Option<T>,
    ) -> Result<T, AbortCause> {
        let deadline = patience.map(|p| Instant::now() + p);
        loop {
            let stepped = self.step(installation, ledger, deadline, &[])?;
            if let Some(found) = stepped.notice.and_then(&mut wanted) {
                return Ok(found);
            }
            if let (Some(deadline), Some(patience)) = (deadline, patience)
                && Instant::now() >= deadline
            {
                return Err(AbortCause::StageSilent(patience));
            }
        }
    }

    /// Waits until there is something to be done, or until `deadline`, and does what is this type's to do. What else may be
    /// there to be read is waited for on `others`.
    pub fn step(
        &mut self,
        installation: &mut Installation,
        ledger: &mut Ledger,
        deadline: Option<Instant>,
        others: &[BorrowedFd<'_>],
    ) -> Result<Stepped, AbortCause> {
        let mut stepped = Stepped::default();
        let ready = self.wait(installation, ledger, deadline, others)?;
        stepped.others = ready.others;
        if self.started.take_if(|over| Instant::now() >= *over).is_some() {
            sys::release_start_pages();
        }
        // Before anything else: where the wall is gone, every moment counts.
        if ready.watch {
            check_wall(installation, ledger)?;
        }
        if ready.mounts {
            check_mounts(installation, ledger, MountWatch::look)?;
        }
        check_mounts(installation, ledger, |view| Ok(view.ask()))?;
        let due = self.ledger.as_mut().map_or(Ok(false), LedgerWatch::take_due);
        if due.map_err(failed("read of inotify"))? {
            ledger.look().map_err(EvidenceError::from)?;
        }
        if ready.signals && !self.signals.note_pending() {
            self.take_signals(installation)?;
        }
        installation.evidence.collect(ledger)?;
        if ready.stage {
            let stage = installation.stage.as_ref().ok_or(ChannelError::Closed)?;
            match stage.channel.receive()? {
                Notice::Stopped { id: RUN, signal } => self.stop_with_command(signal, installation)?,
                Notice::Covered(answer) => check_mounts(installation, ledger, |view| view.answered(answer))?,
                notice => stepped.notice = Some(notice),
            }
        }
        ledger.flush_due(Instant::now()).map_err(EvidenceError::from)?;
        if ledger.is_losing() {
            ledger.look().map_err(EvidenceError::from)?;
            ledger.retry();
            installation.evidence.hold_egress_while_losing(ledger)?;
        }
        if self.signals.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(AbortCause::AskedToEnd);
        }
        Ok(stepped)
    }

    fn wait(
        &self,
        installation: &Installation,
        ledger: &Ledger,
        deadline: Option<Instant>,
        others: &[BorrowedFd<'_>],
    ) -> Result<Ready, AbortCause> {
        let stage = installation.stage.as_ref().ok_or(ChannelError::Closed)?;
        let mut fds = vec![PollFd::new(stage.channel.as_fd(), PollFlags::POLLIN)];
        let mut add = |fd| {
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
            fds.len() - 1
        };
        let signals = self.signals.to_wait_for().map(|signals| add(signals.as_fd()));
        let watch = installation.watch.as_ref().map(|watch| add(watch.as_fd()));
        // These six are looked at after every wait.
        self.ledger.as_ref().and_then(LedgerWatch::awaited).map(&mut add);
        installation.evidence.observer().map(|observer| add(observer.as_fd()));
        installation.evidence.witness().map(|witness| add(witness.as_fd()));
        installation.evidence.log().map(|log| add(log.as_fd()));
        let audit = installation.evidence.audit();
        audit.and_then(|audit| audit.awaited()).map(&mut add);
        installation.evidence.reports().map(|reports| add(reports.as_fd()));
        let first_other = fds.len();
        fds.extend(others.iter().map(|other| PollFd::new(*other, PollFlags::POLLIN)));
        let mounts = installation.view.as_ref().and_then(MountWatch::awaited).map(|view| {
            fds.push(PollFd::new(view, PollFlags::POLLPRI));
            fds.len() - 1
        });
        let until = deadline.into_iter().chain(self.signals.deadline()).chain(ledger.next_flush()).chain(self.started);
        let until = until.chain(audit.and_then(|audit| audit.due()));
        let until = until.chain(installation.view.as_ref().and_then(MountWatch::due));
        let until = until.chain(self.ledger.as_ref().and_then(LedgerWatch::due)).min();
        let left = until.map(|d| d.saturating_duration_since(Instant::now()));
        // What could not be written is tried again from time to time, not only when there is more to write.
        let retry = ledger.is_losing().then_some(RETRY);
        let timeout = match left.into_iter().chain(retry).min() {
            Some(time) => PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(errno) => return Err(failed("poll")(errno)),
        }
        let ready = |index: usize| fds[index].any() == Some(true);
        let others = (first_other..first_other + others.len()).map(ready).collect();
        Ok(Ready {
            signals: signals.is_some_and(ready),
            stage: ready(0),
            watch: watch.is_some_and(ready),
            mounts: mounts.is_some_and(ready),
            others,
        })
    }

    /// Passes each signal on to the command, once.
    fn take_signals(&mut self, installation: &Installation) -> Result<(), AbortCause> {
        while let Some(meaning) = self.signals.next(self.job.shares_group())? {
            match meaning {
                Meaning::Child => reap_strangers(installation)?,
                Meaning::Forward(number) if number == Signal::SIGCONT as i32 && self.job.lend_if_ours() => {
                    send(installation, &Order::Continue { id: RUN, in_foreground: true })?;
                }
                // It is the whole group's, and has reached the command there; a second one, late, would undo a later stop.
                Meaning::Forward(number) if number == Signal::SIGCONT as i32 && self.job.shares_group() => {}
                Meaning::Forward(number) => send(installation, &Order::Signal { id: RUN, number, group: false })?,
                Meaning::EndLeftovers => {
                    self.ending = true;
                    send(installation, &END)?;
                }
                Meaning::Nothing => {}
            }
        }
        Ok(())
    }

    fn stop_with_command(&mut self, signal: i32, installation: &Installation) -> Result<(), AbortCause> {
        let Some(command) = self.command else { return Ok(()) };
        match self.job.stop_with_command(command, signal).map_err(failed("job control"))? {
            AfterStop::Nothing => Ok(()),
            AfterStop::Continue { in_foreground } => send(installation, &Order::Continue { id: RUN, in_foreground }),
            AfterStop::Pass => {
                send(installation, &Order::Signal { id: RUN, number: Signal::SIGCONT as i32, group: false })
            }
        }
    }

    /// The order that starts the command, in the process group that suits the terminal.
    pub fn launch_order(&mut self) -> Order {
        Order::Launch { id: RUN, placement: self.job.place() }
    }

    /// Whether a signal has asked for the end of what is left; the stage has been told.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// From here on there is a command to pass signals to.
    pub fn command_runs(&mut self, command: Pid) {
        self.command = Some(command);
        self.signals.command_runs();
        self.started = Some(Instant::now() + STARTED);
    }

    /// From here on there is none, only what it left behind.
    pub fn command_is_over(&mut self) {
        self.signals.command_is_over();
    }

    /// Has the stage end all that is left.
    pub fn order_end(&self, installation: &Installation) -> Result<(), AbortCause> {
        send(installation, &END)
    }

    /// Gives the terminal back to the caller.
    pub fn release_terminal(&mut self) -> Result<(), AbortCause> {
        self.job.release().map_err(failed("tcsetpgrp"))
    }

    /// Waits until no process of the sandbox is left.
    pub fn await_empty(&mut self, installation: &mut Installation, ledger: &mut Ledger) -> Result<(), AbortCause> {
        self.await_notice(installation, ledger, None, |notice| matches!(notice, Notice::Empty { .. }).then_some(()))
    }

    /// Ends what the command left behind and waits until nothing of the sandbox is left. Returns how the command ended
    /// where it was still running.
    pub fn end_leftovers(
        &mut self,
        installation: &mut Installation,
        ledger: &mut Ledger,
    ) -> Result<Option<Ended>, AbortCause> {
        send(installation, &END)?;
        let mut how = None;
        self.await_notice(installation, ledger, Some(ENDING_ALL), |notice| match notice {
            Notice::Ended { how: ended, .. } => {
                how = Some(ended);
                None
            }
            // One that was under way before the order may come first; nothing is left either way.
            Notice::Empty { .. } => Some(()),
            _ => None,
        })?;
        Ok(how)
    }
}

fn send(installation: &Installation, order: &Order) -> Result<(), AbortCause> {
    match &installation.stage {
        Some(stage) => Ok(stage.channel.send(order)?),
        None => Ok(()),
    }
}

const END: Order = Order::End { grace_ms: GRACE.as_millis() as u64 };
/// How long the stage may take to end all that is left.
pub const ENDING_ALL: Duration = Duration::from_secs(10);
/// How long leftovers may take to obey TERM.
const GRACE: Duration = Duration::from_secs(2);
/// How often a ledger that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Ready {
    signals: bool,
    stage: bool,
    watch: bool,
    mounts: bool,
    others: Vec<bool>,
}

/// Reaps orphans that came to this process, as PID 1 or as a subreaper. The stage and the proxy are left to whoever takes
/// them down.
fn reap_strangers(installation: &Installation) -> Result<(), AbortCause> {
    for pid in processes::children_of(getpid()) {
        if installation.is_own(pid) {
            continue;
        }
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive | WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => {}
            Ok(_) => {}
            Err(errno) => return Err(failed("waitpid")(errno)),
        }
    }
    Ok(())
}

/// The mode that a policy's word asks for.
pub fn ledger_mode(on_failure: crate::policy::OnLedgerFailure) -> LedgerMode {
    match on_failure {
        crate::policy::OnLedgerFailure::Required => LedgerMode::Required,
        crate::policy::OnLedgerFailure::Degrade => LedgerMode::Degrade,
    }
}

impl Installation {
    /// Whether a process is one of ours.
    fn is_own(&self, pid: Pid) -> bool {
        self.stage.as_ref().is_some_and(|s| s.pid == pid) || self.companions().any(|own| own == pid)
    }
}
