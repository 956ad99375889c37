//! A pseudo-terminal between the caller's terminal and a command (pty(7)): what is typed goes in as it is, and what comes out
//! is written. The command leads a session of its own on it, so that its job control is its own.

use super::apart::duplicate;
use super::relay::Relay;
use crate::sys::{self, WindowSize};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::os::fd::{AsFd, OwnedFd};

/// Where the caller has no terminal.
const SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };
/// What ends the input of a terminal (VEOF).
const END_OF_INPUT: u8 = 4;

/// The outer end, and the caller's terminal, which is put back as it was when this is dropped.
pub struct Pty {
    master: OwnedFd,
    /// The caller's terminal as it was.
    before: Option<Termios>,
}

impl Pty {
    /// Opens one of the size of the caller's, and joins its outer end with the caller's stdio. The second is the command's end.
    pub fn open(relay: &mut Relay) -> Result<(Pty, OwnedFd), Errno> {
        let pair = openpty(None, None)?;
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
        sys::set_window_size(pair.master.as_fd(), sys::window_size(stdin.as_fd()).unwrap_or(SIZE))?;
        relay.keys(duplicate(stdin.as_fd())?, duplicate(pair.master.as_fd())?, END_OF_INPUT);
        relay.output(duplicate(pair.master.as_fd())?, duplicate(stdout.as_fd())?);
        Ok((Pty { master: pair.master, before: None }, pair.slave))
    }

    /// The command runs: from here on every byte that is typed is its own.
    pub fn begin(&mut self) -> Result<(), Errno> {
        let stdin = std::io::stdin();
        let Ok(before) = tcgetattr(&stdin) else { return Ok(()) };
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSADRAIN, &raw)?;
        self.before = Some(before);
        Ok(())
    }

    /// The caller's terminal has another size.
    pub fn resize(&self) -> Result<(), Errno> {
        match sys::window_size(std::io::stdin().as_fd()) {
            Ok(size) => sys::set_window_size(self.master.as_fd(), size),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            match tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &before) {
                // It may have been hung up.
                Ok(()) | Err(_) => {}
            }
        }
    }
}
