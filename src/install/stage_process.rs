//! The stage, seen from the supervisor, and the end of the sandbox whether the stage lives or not.

use super::Installation;
use super::take_down::reap;
use crate::channel::{Channel, ChannelError};
use crate::stage::Notice;
use crate::supervise::{descendants, processes};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use std::time::{Duration, Instant};

/// The stage, seen from the supervisor.
#[derive(Debug)]
pub struct StageProcess {
    /// Its process id.
    pub pid: Pid,
    /// Orders to it and notices from it.
    pub channel: Channel,
}

/// How long the stage may take to end the sandbox; it kills, and waits for nothing else.
const ENDING: Duration = Duration::from_secs(5);
/// The same for what a stage that died has left.
const STRAYS: Duration = Duration::from_secs(3);

impl Installation {
    /// Kills what it can of the sandbox, before anything else.
    pub fn strike(&self) {
        if let Some(stage) = &self.stage {
            descendants::strike(stage.pid, self.identity.as_ref());
        }
    }

    /// Has the stage end every process of the sandbox and then itself; where it does not or is dead, does it in its place.
    pub(super) fn end_sandbox(&self, stage: StageProcess) -> Result<(), String> {
        let emptied = stage.dismiss();
        // One that has closed its end is dead, or about to be: its number may be another's soon.
        if emptied.is_err() {
            stage.kill()?;
        }
        // Until the stage has said its number, this one is its parent's, the observer's, who is ended after it.
        if Some(stage.pid) != self.observer {
            reap(stage.pid)?;
        }
        // Before the stage has ended, what it leaves has it for a parent, and is below the observer, which is spared.
        let ended = emptied == Ok(true) || stage.has_ended_within(ENDING, self.observer);
        let spared: Vec<Pid> = self.companions().chain(self.strangers.iter().copied()).collect();
        match emptied {
            Ok(true) => Ok(()),
            _ if descendants::end_strays(self.identity.as_ref(), &spared, STRAYS) && ended => Ok(()),
            Ok(false) => Err("processes of the sandbox could not be ended after the death of the stage".into()),
            Err(cause) => Err(format!("processes of the sandbox could not be ended: {cause}")),
        }
    }
}

impl StageProcess {
    /// Closes the channel, upon which the stage ends the sandbox and itself. Whether it has said that nothing is left.
    fn dismiss(&self) -> Result<bool, String> {
        let deadline = Instant::now() + ENDING;
        // It may have ended already.
        if let Err(error) = self.channel.close_our_side()
            && !matches!(error, ChannelError::Closed)
        {
            return Err(error.to_string());
        }
        let mut empty = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.channel.receive_within::<Notice>(left) {
                Ok(Some(notice)) => empty = matches!(notice, Notice::Empty { .. }),
                Ok(None) => return Err(format!("stage: no end within {ENDING:?}")),
                Err(ChannelError::Closed) => return Ok(empty),
                Err(error) => return Err(format!("stage: {error}")),
            }
        }
    }

    /// Waits until the stage is no more than its status. By then its children have another parent: its descriptors are closed
    /// before (`do_exit` in the kernel's exit.c), so that the end of its channel does not say so.
    fn has_ended_within(&self, patience: Duration, observer: Option<Pid>) -> bool {
        let deadline = Instant::now() + patience;
        // Its number may be another's by now, whose parent is neither of these.
        let is_there = || {
            let stage = processes::one(self.pid).filter(|process| !process.ended && Some(process.pid) != observer);
            stage.is_some_and(|process| process.parent == getpid() || Some(process.parent) == observer)
        };
        while is_there() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn kill(&self) -> Result<(), String> {
        match kill(self.pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(format!("kill of the stage: {errno}")),
        }
    }
}
