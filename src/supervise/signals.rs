//! Signals to this program: held from before the command is forked, each forwarded to it once, none lost or invented.

use super::{AbortCause, failed};
use crate::sys;
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::time::{Duration, Instant};

/// What asks a program to end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// What the kernel sends to the process groups of a terminal.
const OF_TERMINAL: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
    Signal::SIGHUP,
    Signal::SIGCONT,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];
/// Faults and limits of this process itself, which are no messages from others.
const OWN: [Signal; 7] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGXFSZ,
    Signal::SIGXCPU,
    Signal::SIGPIPE,
];
/// How long a set-up that is asked to end may still take. The signal stays pending meanwhile and is the command's once it
/// runs; a set-up takes a fraction of this.
const SET_UP_GRACE: Duration = Duration::from_secs(3);

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

/// What is to be done about one signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A child of this process has ended.
    Child,
    /// It is the command's, by this number.
    Forward(i32),
    /// What the command left behind is to end.
    EndLeftovers,
    /// Nothing.
    Nothing,
}

/// What is a command's, of what is sent to a program of ours that stands for it.
pub fn forwarded() -> SigSet {
    let mut all = SigSet::all();
    OWN.into_iter().chain([Signal::SIGCHLD]).for_each(|signal| all.remove(signal));
    all
}

/// What asks this process to end. One that the caller ignores asks for nothing (nohup(1), `&` in a script).
pub fn asks_to_end() -> SigSet {
    ENDING.into_iter().filter(|signal| !sys::is_ignored(*signal as i32)).collect()
}

/// The signals of this process, all of which are blocked.
#[derive(Debug)]
pub struct Signals {
    all: SignalFd,
    ending: SignalFd,
    phase: Phase,
    asked: Option<Instant>,
}

impl Signals {
    /// Takes them over.
    pub fn new() -> Result<Signals, AbortCause> {
        let mut all = forwarded();
        all.add(Signal::SIGCHLD);
        let ending = asks_to_end();
        let open = |set: &SigSet| {
            SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed("signalfd"))
        };
        Ok(Signals { all: open(&all)?, ending: open(&ending)?, phase: Phase::Preparing, asked: None })
    }

    /// The descriptor to wait for; during the set-up that of a request to end, until one is there.
    pub fn to_wait_for(&self) -> Option<&SignalFd> {
        match (self.phase, self.asked) {
            (Phase::Preparing, None) => Some(&self.ending),
            (Phase::Preparing, Some(_)) => None,
            _ => Some(&self.all),
        }
    }

    /// When the set-up has had its time after a request to end.
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.filter(|_| self.phase == Phase::Preparing).map(|asked| asked + SET_UP_GRACE)
    }

    /// During the set-up: takes note of a pending request to end, without taking it.
    pub fn note_pending(&mut self) -> bool {
        if self.phase != Phase::Preparing {
            return false;
        }
        self.asked.get_or_insert_with(Instant::now);
        true
    }

    /// The next signal and its meaning; `None` when there is none.
    pub fn next(&self, shares_group: bool) -> Result<Option<Meaning>, AbortCause> {
        let Some(info) = self.all.read_signal().map_err(failed("read"))? else { return Ok(None) };
        let number = info.ssi_signo as i32;
        let among = |signals: &[Signal]| signals.iter().any(|signal| *signal as i32 == number);
        // What the terminal sends to the command's process group too has reached it there.
        let reached = shares_group && info.ssi_code == libc::SI_KERNEL && among(&OF_TERMINAL);
        Ok(Some(match self.phase {
            _ if number == Signal::SIGCHLD as i32 => Meaning::Child,
            Phase::Preparing | Phase::Forwarding if reached => Meaning::Nothing,
            Phase::Preparing | Phase::Forwarding => Meaning::Forward(number),
            Phase::Keeping if among(&ENDING) && !sys::is_ignored(number) => Meaning::EndLeftovers,
            Phase::Keeping => Meaning::Nothing,
        }))
    }

    /// From here on there is a command to pass signals to.
    pub fn command_runs(&mut self) {
        self.phase = Phase::Forwarding;
    }

    /// From here on there is none, only what it left behind.
    pub fn command_is_over(&mut self) {
        self.phase = Phase::Keeping;
    }
}
