//! The controlling terminal, shared with the command: whose foreground it is, and giving it back (credentials(7), tcsetpgrp(3)).

use nix::errno::Errno;
use nix::unistd::{Pid, dup, getpgrp, isatty, tcgetpgrp, tcsetpgrp};
use std::os::fd::{AsFd, OwnedFd};

/// A terminal whose foreground is the caller's when the run starts.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    ours: Pid,
}

impl Terminal {
    /// The controlling terminal behind any of stdin, stdout and stderr, if this process is in its foreground.
    pub fn of_caller() -> Option<Terminal> {
        let ours = getpgrp();
        let in_front = |fd: &OwnedFd| isatty(fd) == Ok(true) && tcgetpgrp(fd) == Ok(ours);
        let stdio = [std::io::stdin().as_fd().try_clone_to_owned(), std::io::stderr().as_fd().try_clone_to_owned()];
        let fd = stdio.into_iter().flatten().chain(dup(std::io::stdout())).find(in_front)?;
        Some(Terminal { fd, ours })
    }

    /// Makes a process group the foreground one. SIGTTOU is blocked in all our processes, so that this never stops one.
    pub fn give_to(&self, group: Pid) -> Result<(), Errno> {
        tcsetpgrp(&self.fd, group)
    }

    /// Takes the foreground back for the caller's process group.
    pub fn take_back(&self) -> Result<(), Errno> {
        match tcsetpgrp(&self.fd, self.ours) {
            // The terminal has been hung up: there is nothing to give back.
            Err(Errno::ENOTTY | Errno::EIO) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether the caller's process group is in the foreground now: a shell has put it there again.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.fd) == Ok(self.ours)
    }
}
