//! A pseudo-terminal between the caller's terminal and a command (pty(7)): what is typed goes in as it is, and what comes out
//! is written. The command leads a session of its own on it, so that its job control is its own.

use crate::sys::{self, WindowSize};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{read, write};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where the caller has no terminal.
const SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };
/// How long, in milliseconds, what a command wrote last may be on its way.
const LAST_OUTPUT_MS: u16 = 50;
/// What ends the input of a terminal (VEOF).
const END_OF_INPUT: u8 = 4;

/// The outer end, and the caller's terminal, which is put back as it was when this is dropped.
pub struct Pty {
    master: OwnedFd,
    /// The caller's terminal as it was.
    before: Option<Termios>,
    /// What was typed and is not taken yet.
    typed: Vec<u8>,
    input_is_open: bool,
    output_is_open: bool,
}

impl Pty {
    /// Opens one of the size of the caller's. The second is the command's end.
    pub fn open() -> Result<(Pty, OwnedFd), Errno> {
        let pair = openpty(None, None)?;
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let pty =
            Pty { master: pair.master, before: None, typed: Vec::new(), input_is_open: true, output_is_open: true };
        sys::set_window_size(pty.master.as_fd(), sys::window_size(std::io::stdin().as_fd()).unwrap_or(SIZE))?;
        Ok((pty, pair.slave))
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

    /// What to wait for: of the caller's input, and of the outer end.
    pub fn awaited(&self) -> [PollFlags; 2] {
        let mut ends = [PollFlags::empty(); 2];
        ends[0].set(PollFlags::POLLIN, self.input_is_open && self.typed.is_empty());
        ends[1].set(PollFlags::POLLIN, self.output_is_open);
        ends[1].set(PollFlags::POLLOUT, !self.typed.is_empty());
        ends
    }

    /// The outer end.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// Takes in what was typed.
    pub fn take_input(&mut self) -> Result<(), Errno> {
        let mut buffer = [0; 4096];
        match read(std::io::stdin(), &mut buffer) {
            Ok(0) | Err(Errno::EIO) => {
                self.input_is_open = false;
                self.typed.push(END_OF_INPUT);
            }
            Ok(length) => self.typed.extend_from_slice(&buffer[..length]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Passes on what is there, either way.
    pub fn pass_on(&mut self) -> Result<(), Errno> {
        if !self.typed.is_empty() {
            match write(&self.master, &self.typed) {
                Ok(length) => drop(self.typed.drain(..length)),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                // Nobody has the other end any more.
                Err(Errno::EIO) => self.typed.clear(),
                Err(errno) => return Err(errno),
            }
        }
        let mut buffer = [0; 16 << 10];
        match read(&self.master, &mut buffer) {
            Ok(0) | Err(Errno::EIO) => self.output_is_open = false,
            Ok(length) => {
                let mut out = std::io::stdout().lock();
                let written = out.write_all(&buffer[..length]).and_then(|()| out.flush());
                // Whoever does not read any more need not be written to; the command is told when this program ends.
                self.output_is_open = written.is_ok();
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// The command has ended: writes what it has written last. What it left behind may still have the other end.
    pub fn finish(mut self) -> Result<(), Errno> {
        self.typed.clear();
        while self.output_is_open {
            let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(LAST_OUTPUT_MS)) {
                Ok(0) => break,
                Ok(_) => self.pass_on()?,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
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
