//! The controlling terminal, shared with the command: whose foreground it is, and giving it back (credentials(7), tcsetpgrp(3)).
//!
//! A command that has the terminal to itself gets a process group of its own, in the foreground: what is typed reaches it
//! and nobody else, and what is sent to this program is forwarded to it once. In a pipeline or a script the others of the
//! caller's group need the foreground as well, so the command stays in that group, as it would without us.

use super::processes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, dup, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The controlling terminal of this process.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    ours: Pid,
}

impl Terminal {
    /// The caller's controlling terminal: /dev/tty, or in an image without it any of stdin, stderr and stdout.
    pub fn of_caller() -> Option<Terminal> {
        let tty = open("/dev/tty", OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, Mode::empty());
        let stdio = [std::io::stdin().as_fd().try_clone_to_owned(), std::io::stderr().as_fd().try_clone_to_owned()];
        let mut candidates = tty.into_iter().chain(stdio.into_iter().flatten()).chain(dup(std::io::stdout()));
        // ENOTTY unless it is this process's own.
        let fd = candidates.find(|fd| tcgetpgrp(fd).is_ok())?;
        Some(Terminal { fd, ours: getpgrp() })
    }

    /// Makes a process group the foreground one. SIGTTOU is blocked in all our processes, so that this never stops one.
    pub fn give_to(&self, group: Pid) -> Result<(), Errno> {
        match tcsetpgrp(&self.fd, group) {
            // The terminal has been hung up, and has no foreground any more.
            Err(Errno::ENOTTY | Errno::EIO) => Ok(()),
            outcome => outcome,
        }
    }

    /// The caller's process group.
    pub fn callers_group(&self) -> Pid {
        self.ours
    }

    /// Its descriptor's number, for the child that closes all others.
    pub fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether the caller's process group is in the foreground now.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.fd) == Ok(self.ours)
    }
}

/// The process group that the command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// One of its own.
    Own {
        /// Whether it gets the terminal's foreground.
        in_foreground: bool,
    },
    /// The caller's.
    Callers,
    /// A session of its own, with its stdin as the controlling terminal.
    Session,
}

/// What to do about a command that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterStop {
    /// Let it be: someone has stopped it, and will let it go on.
    Nothing,
    /// Let its process group go on.
    Continue {
        /// In the terminal's foreground.
        in_foreground: bool,
    },
    /// Let it alone go on.
    Pass,
}

/// Job control (termios(3), "Job control" in the C library's manual) between the caller's shell and the command.
#[derive(Debug)]
pub struct JobControl {
    terminal: Option<Terminal>,
    placement: Placement,
    /// Whether the foreground is the command's by our doing.
    lent: bool,
}

impl JobControl {
    /// Over the caller's terminal, if it has one.
    pub fn new() -> JobControl {
        JobControl { terminal: Terminal::of_caller(), placement: Placement::Own { in_foreground: false }, lent: false }
    }

    /// Settles where the command is placed, just before it starts.
    pub fn place(&mut self) -> Placement {
        let Some(terminal) = &self.terminal else { return self.placement };
        let others = processes::all().into_iter().any(|p| p.group == terminal.ours && p.pid != getpid() && !p.ended);
        self.placement = match others {
            true => Placement::Callers,
            false => Placement::Own { in_foreground: terminal.is_ours() },
        };
        self.lent = self.placement == Placement::Own { in_foreground: true };
        self.placement
    }

    /// Whether what the terminal sends to the caller's process group reaches the command by itself.
    pub fn shares_group(&self) -> bool {
        self.placement == Placement::Callers
    }

    /// The caller's shell has put us in the foreground while we ran: the command is to have it.
    pub fn lend_if_ours(&mut self) -> bool {
        let ours = self.terminal.as_ref().is_some_and(Terminal::is_ours);
        let newly = ours && !self.lent && !self.shares_group();
        self.lent |= newly;
        newly
    }

    /// The command was stopped by `signal`: under a shell with job control this process stops too, and goes on with it.
    pub fn stop_with_command(&mut self, command: Pid, signal: i32) -> Result<AfterStop, Errno> {
        let orphaned = is_orphaned();
        let by_reach_for_terminal = [Signal::SIGTTIN, Signal::SIGTTOU].iter().any(|s| *s as i32 == signal);
        // As late as can be: a shell that brings us forward from here on sees us stop in its foreground.
        if by_reach_for_terminal && self.lend_if_ours() {
            return Ok(AfterStop::Continue { in_foreground: true });
        }
        // Without a terminal nobody waits for a stop.
        let Some(terminal) = &self.terminal else { return Ok(AfterStop::Nothing) };
        if orphaned {
            // Nobody could let us go on. The kernel would not have stopped the command in such a group.
            return Ok(match signal == Signal::SIGTSTP as i32 {
                true if self.shares_group() => AfterStop::Pass,
                true => AfterStop::Continue { in_foreground: self.lent },
                false => AfterStop::Nothing,
            });
        }
        if self.lent {
            terminal.give_to(terminal.ours)?;
            self.lent = false;
        }
        if self.shares_group() {
            stop_unless_continued(command)?;
            // Whoever let the group go on let the command go on with it.
            return Ok(AfterStop::Nothing);
        }
        kill(getpid(), Signal::SIGSTOP)?;
        // Running again. The signal that did it is ours, not the command's.
        take_continued()?;
        self.lent = terminal.is_ours();
        Ok(AfterStop::Continue { in_foreground: self.lent })
    }

    /// Gives the foreground back to the caller, if the command has it by our doing.
    pub fn release(&mut self) -> Result<(), Errno> {
        match self.terminal.take() {
            Some(terminal) if self.lent => terminal.give_to(terminal.ours),
            _ => Ok(()),
        }
    }
}

impl Default for JobControl {
    fn default() -> JobControl {
        JobControl::new()
    }
}

/// Takes SIGCONT away, if it is pending. Returns whether it was.
fn take_continued() -> Result<bool, Errno> {
    let mut continued = SigSet::empty();
    continued.add(Signal::SIGCONT);
    let pending = SignalFd::with_flags(&continued, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut taken = false;
    while pending.read_signal()?.is_some() {
        taken = true;
    }
    Ok(taken)
}

/// Stops this process, unless the process group that it shares with the command has been let go on already: the shell sees
/// the others of the group stop before us, and does not wait for us. A pending SIGTSTP is taken back by a SIGCONT (signal(7)),
/// so that one which comes after the look is not missed either.
fn stop_unless_continued(command: Pid) -> Result<(), Errno> {
    if take_continued()? {
        return Ok(());
    }
    kill(getpid(), Signal::SIGTSTP)?;
    let still_stopped = processes::all().iter().any(|process| process.pid == command && process.stopped);
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    if still_stopped {
        stop.thread_unblock()?;
        // Stopped here, for as long as it takes.
        stop.thread_block()?;
    } else {
        let pending = SignalFd::with_flags(&stop, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        while pending.read_signal()?.is_some() {}
    }
    take_continued().map(drop)
}

/// Whether our process group has no parent in the session that could let it go on after a stop (setpgid(2)).
pub fn is_orphaned() -> bool {
    getpid().as_raw() == 1 || getsid(Some(getppid())).ok() != getsid(None).ok()
}
