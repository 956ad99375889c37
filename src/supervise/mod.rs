//! Living with the command until its end: its signals, its terminal, its evidence.

pub mod descendants;
pub mod terminal;

use crate::channel::ChannelError;
use crate::install::Installation;
use crate::install::firewall::{FirewallError, Integrity};
use crate::ledger::{Ledger, LedgerMode};
use crate::observe::evidence::EvidenceError;
use crate::stage::{Ended, Notice, Order};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use terminal::Terminal;

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
    signals: SignalFd,
    terminal: Option<Terminal>,
    phase: Phase,
}

/// What a signal to the supervisor means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing yet: signals stay pending until there is a command to pass them to.
    Preparing,
    /// It is the command's.
    Forwarding,
    /// The command has ended: what asks a program to end, ends what it left behind.
    Keeping,
}

impl Watchman {
    /// Takes over the signals, which have been blocked since the program began.
    pub fn new(terminal: Option<Terminal>) -> Result<Watchman, AbortCause> {
        let mut all = SigSet::all();
        // Faults of our own are not messages from others.
        for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGXFSZ, Signal::SIGPIPE]
        {
            all.remove(fault);
        }
        let signals =
            SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed("signalfd"))?;
        Ok(Watchman { signals, terminal, phase: Phase::Preparing })
    }

    /// Waits for a notice of the stage that `wanted` picks, while evidence is taken in and signals are forwarded.
    ///
    /// `patience` bounds the wait; without it the wait is for as long as the command runs.
    pub fn await_notice<T>(
        &self,
        installation: &mut Installation,
        ledger: &mut Ledger,
        patience: Option<Duration>,
        mut wanted: impl FnMut(Notice) -> Option<T>,
    ) -> Result<T, AbortCause> {
        let deadline = patience.map(|p| Instant::now() + p);
        loop {
            let ready = self.wait(installation, ledger, deadline)?;
            if ready.signals {
                self.forward_signals(installation)?;
            }
            if ready.watch {
                check_wall(installation)?;
            }
            installation.evidence.collect(ledger)?;
            if ready.stage {
                let stage = installation.stage.as_ref().ok_or(ChannelError::Closed)?;
                match stage.channel.receive()? {
                    Notice::Stopped(_) => self.stop_with_command(installation)?,
                    notice => {
                        if let Some(found) = wanted(notice) {
                            return Ok(found);
                        }
                    }
                }
            }
            if ledger.is_losing() {
                ledger.retry();
                installation.evidence.hold_egress_while_losing(ledger)?;
            }
            if let (Some(deadline), Some(patience)) = (deadline, patience)
                && Instant::now() >= deadline
            {
                return Err(AbortCause::StageSilent(patience));
            }
        }
    }

    fn wait(
        &self,
        installation: &Installation,
        ledger: &Ledger,
        deadline: Option<Instant>,
    ) -> Result<Ready, AbortCause> {
        let stage = installation.stage.as_ref().ok_or(ChannelError::Closed)?;
        let for_signals = if self.phase == Phase::Preparing { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut fds =
            vec![PollFd::new(self.signals.as_fd(), for_signals), PollFd::new(stage.channel.as_fd(), PollFlags::POLLIN)];
        let watch = installation.watch.as_ref().map(|w| {
            fds.push(PollFd::new(w.as_fd(), PollFlags::POLLIN));
            fds.len() - 1
        });
        fds.extend(installation.evidence.log().map(|l| PollFd::new(l.as_fd(), PollFlags::POLLIN)));
        fds.extend(installation.evidence.reports().map(|r| PollFd::new(r.as_fd(), PollFlags::POLLIN)));
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
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
        Ok(Ready { signals: ready(0), stage: ready(1), watch: watch.is_some_and(ready) })
    }

    /// Passes each signal on to the command, once. Those of the terminal reach the command's own process group by
    /// themselves, for ours is not in the foreground.
    fn forward_signals(&self, installation: &Installation) -> Result<(), AbortCause> {
        while let Some(info) = self.signals.read_signal().map_err(failed("read"))? {
            let number = info.ssi_signo as i32;
            if number == Signal::SIGCHLD as i32 {
                reap_strangers(installation)?;
                continue;
            }
            let Some(stage) = &installation.stage else { continue };
            match self.phase {
                Phase::Preparing | Phase::Forwarding => stage.channel.send(&Order::Signal(number))?,
                Phase::Keeping if ENDING.iter().any(|s| *s as i32 == number) => stage.channel.send(&END)?,
                Phase::Keeping => {}
            }
        }
        Ok(())
    }

    /// The command was stopped: under a shell with job control this process stops too, and goes on with it.
    fn stop_with_command(&self, installation: &Installation) -> Result<(), AbortCause> {
        // Without a terminal nobody waits for a stop, and a PID 1 cannot be stopped.
        let (Some(terminal), false) = (&self.terminal, getpid().as_raw() == 1) else { return Ok(()) };
        terminal.take_back().map_err(failed("tcsetpgrp"))?;
        kill(getpid(), Signal::SIGSTOP).map_err(failed("kill"))?;
        // Running again. The signal that did it is ours, not the command's.
        let mut continued = SigSet::empty();
        continued.add(Signal::SIGCONT);
        let drained = SignalFd::with_flags(&continued, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(failed("signalfd"))?;
        while drained.read_signal().map_err(failed("read"))?.is_some() {}
        if let Some(stage) = &installation.stage {
            stage.channel.send(&Order::Continue { in_foreground: terminal.is_ours() })?;
        }
        Ok(())
    }

    /// From here on there is a command to pass signals to.
    pub fn command_runs(&mut self) {
        self.phase = Phase::Forwarding;
    }

    /// From here on there is none, only what it left behind.
    pub fn command_is_over(&mut self) {
        self.phase = Phase::Keeping;
    }

    /// Gives the terminal back to the caller.
    pub fn release_terminal(&mut self) -> Result<(), AbortCause> {
        match self.terminal.take() {
            Some(terminal) => terminal.take_back().map_err(failed("tcsetpgrp")),
            None => Ok(()),
        }
    }

    /// Waits until no process of the sandbox is left.
    pub fn await_empty(&self, installation: &mut Installation, ledger: &mut Ledger) -> Result<(), AbortCause> {
        self.await_notice(installation, ledger, None, |notice| matches!(notice, Notice::Empty).then_some(()))
    }

    /// Ends what the command left behind and waits until nothing of the sandbox is left. Returns how the command ended
    /// where it was still running.
    pub fn end_leftovers(
        &self,
        installation: &mut Installation,
        ledger: &mut Ledger,
    ) -> Result<Option<Ended>, AbortCause> {
        if let Some(stage) = &installation.stage {
            stage.channel.send(&END)?;
        }
        let mut how = None;
        self.await_notice(installation, ledger, Some(GRACE * 5), |notice| match notice {
            Notice::Ended { how: ended, .. } => {
                how = Some(ended);
                None
            }
            // One that was under way before the order may come first; nothing is left either way.
            Notice::Empty => Some(()),
            _ => None,
        })?;
        Ok(how)
    }
}

const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
const END: Order = Order::End { grace_ms: GRACE.as_millis() as u64 };
/// How long leftovers may take to obey TERM.
const GRACE: Duration = Duration::from_secs(2);
/// How often a ledger that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Ready {
    signals: bool,
    stage: bool,
    watch: bool,
}

fn check_wall(installation: &mut Installation) -> Result<(), AbortCause> {
    let (Some(watch), Some(wall)) = (&mut installation.watch, &installation.wall) else { return Ok(()) };
    if !watch.drain()? {
        return Ok(());
    }
    match wall.is_intact()? {
        Integrity::Intact => Ok(()),
        Integrity::Altered(difference) => Err(AbortCause::WallAltered(difference)),
    }
}

/// Reaps orphans that came to this process as PID 1. The stage and the proxy are left to whoever takes them down.
fn reap_strangers(installation: &Installation) -> Result<(), AbortCause> {
    if getpid().as_raw() != 1 {
        return Ok(());
    }
    for pid in descendants::children_of(getpid()) {
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
        self.stage.as_ref().is_some_and(|s| s.pid == pid) || self.proxy_pid() == Some(pid)
    }
}
