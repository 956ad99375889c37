//! Bytes between the caller's stdio and what a command of a session has in its place. It ends with this program: what a
//! command leaves behind has only its own end.

use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::{getpgrp, read, tcgetpgrp, write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes at a time: a pipe that has room takes as many at once (pipe(7), PIPE_BUF).
pub const CHUNK: usize = 4096;
/// How long, in milliseconds, until it is looked again whether the caller's terminal may be read.
const LOOK_AGAIN_MS: u16 = 200;
/// How long, in milliseconds, what a command wrote last may be on its way.
const LAST_OUTPUT_MS: u16 = 50;
/// How long it may be waited for in all.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// More than a pseudo-terminal holds: 64 KiB in the kernel's buffer, and a page that is read already.
const OF_PTY: usize = 256 << 10;

/// What the caller's stdin has, on its way to the command.
struct Input {
    from: OwnedFd,
    to: OwnedFd,
    held: Vec<u8>,
    is_open: bool,
    /// Whether the last of it has been taken.
    has_room: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A pipe with room for one piece. It is closed at the end of input.
    Pipe,
    /// A pseudo-terminal; this character is typed at the end of input.
    Pty(u8),
}

impl Input {
    /// Whether what the caller's stdin has is for the command now. In the background it is for someone else, and so is what
    /// is typed at a terminal that another program of the foreground, such as a pager, has taken over to read it key by key.
    fn is_ours(&self) -> bool {
        match tcgetpgrp(&self.from) {
            Ok(foreground) if foreground != getpgrp() => false,
            // Without job control over it, as any program would.
            Ok(_) | Err(_) => {
                let by_lines = tcgetattr(&self.from).map(|terminal| terminal.local_flags.contains(LocalFlags::ICANON));
                self.kind != Kind::Pipe || by_lines.unwrap_or(true)
            }
        }
    }

    fn awaits_room(&self) -> bool {
        !self.held.is_empty() || !self.has_room
    }

    /// What to wait for, on this program's end of what the command reads. An error is told unasked.
    fn of_command(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.kind {
            _ if self.awaits_room() => Some((self.to.as_fd(), PollFlags::POLLOUT)),
            Kind::Pipe => Some((self.to.as_fd(), PollFlags::empty())),
            // What is polled for nothing may still say that it is hung up, over and over.
            Kind::Pty(_) => None,
        }
    }

    fn take(&mut self) -> Result<(), Errno> {
        // The foreground may have changed since it was waited for.
        if !self.is_ours() {
            return Ok(());
        }
        let mut buffer = [0; CHUNK];
        match read(&self.from, &mut buffer) {
            Ok(length @ 1..) => self.held.extend_from_slice(&buffer[..length]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::EIO) if !self.is_ours() => {}
            Ok(_) | Err(Errno::EIO) => {
                self.is_open = false;
                if let Kind::Pty(end) = self.kind {
                    self.held.push(end);
                }
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), Errno> {
        self.has_room = true;
        if self.held.is_empty() {
            return Ok(());
        }
        match write(&self.to, &self.held) {
            Ok(length) => {
                self.held.drain(..length);
                self.has_room = false;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // Nobody has the other end any more.
            Err(Errno::EIO | Errno::EPIPE) => self.close(),
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn close(&mut self) {
        self.is_open = false;
        self.held.clear();
    }

    fn is_done(&self) -> bool {
        !self.is_open && self.held.is_empty()
    }
}

/// What the command writes, on its way to the caller's stdout or stderr.
struct Output {
    from: OwnedFd,
    to: OwnedFd,
    held: Vec<u8>,
    is_open: bool,
    /// After the command's end: how many bytes may be its own.
    left: Option<usize>,
    waited: Duration,
}

impl Output {
    fn awaited(&self) -> (BorrowedFd<'_>, PollFlags) {
        match self.awaits_command() {
            true => (self.from.as_fd(), PollFlags::POLLIN),
            false => (self.to.as_fd(), PollFlags::POLLOUT),
        }
    }

    fn awaits_command(&self) -> bool {
        self.held.is_empty()
    }

    /// What was waited for is there.
    fn pass_on(&mut self) -> Result<(), Errno> {
        if self.awaits_command() {
            let mut buffer = [0; CHUNK];
            let length = CHUNK.min(self.left.unwrap_or(CHUNK));
            match read(&self.from, &mut buffer[..length]) {
                Ok(0) | Err(Errno::EIO) => self.is_open = false,
                Ok(length) => {
                    self.held.extend_from_slice(&buffer[..length]);
                    self.left = self.left.map(|left| left - length);
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            return Ok(());
        }
        match write(&self.to, &self.held) {
            Ok(length) => drop(self.held.drain(..length)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // Whoever does not read any more need not be written to.
            Err(_) => {
                self.is_open = false;
                self.held.clear();
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.held.is_empty() && (!self.is_open || self.left == Some(0) || self.waited >= LAST_OUTPUT)
    }
}

/// All of a command's.
#[derive(Default)]
pub struct Relay {
    input: Option<Input>,
    outputs: Vec<Output>,
    runs: bool,
}

impl Relay {
    /// Whole lines typed at a terminal go to a pipe, one when the last has been read. `to` has to be of one page, for then it
    /// has room when it is empty, and not to block.
    pub fn lines(&mut self, from: OwnedFd, to: OwnedFd) {
        self.input = Some(Input { from, to, held: Vec::new(), is_open: true, has_room: true, kind: Kind::Pipe });
    }

    /// Whatever there is goes to a pseudo-terminal that does not block; its end becomes the character `end`.
    pub fn keys(&mut self, from: OwnedFd, to: OwnedFd, end: u8) {
        self.input = Some(Input { from, to, held: Vec::new(), is_open: true, has_room: true, kind: Kind::Pty(end) });
    }

    /// What comes from the command, over a descriptor that does not block, goes to the caller.
    pub fn output(&mut self, from: OwnedFd, to: OwnedFd) {
        let (held, is_open, waited) = (Vec::new(), true, Duration::ZERO);
        self.outputs.push(Output { from, to, held, is_open, left: None, waited });
    }

    /// The command runs: what is typed from here on is its own.
    pub fn begin(&mut self) {
        self.runs = true;
    }

    /// The command has ended. What it has written is still to come; what others write after it is not. Of a pipe it is known
    /// how much there is; of a pseudo-terminal only how much there can be.
    pub fn end(&mut self) -> Result<(), Errno> {
        self.input = None;
        for output in &mut self.outputs {
            let is_pty = nix::unistd::isatty(&output.from).unwrap_or(false);
            output.left = Some(if is_pty { OF_PTY } else { sys::readable_now(output.from.as_fd())? });
        }
        Ok(())
    }

    /// Whether all of it has been shown, after [`Relay::end`].
    pub fn is_done(&self) -> bool {
        self.outputs.iter().all(Output::is_done)
    }

    /// Waits until something is to be done, and passes on what is there, either way. Returns which of `others` are ready.
    pub fn step(&mut self, others: &[BorrowedFd<'_>]) -> Result<Vec<bool>, Errno> {
        let input = self.input.as_ref().filter(|_| self.runs);
        let asks = input.is_some_and(|input| input.is_open && !input.awaits_room());
        let is_ours = asks && input.is_some_and(Input::is_ours);
        let ends = self.outputs.iter().any(|output| output.left.is_some());
        let timeout = match (ends, asks && !is_ours) {
            (true, _) => PollTimeout::from(LAST_OUTPUT_MS),
            (_, true) => PollTimeout::from(LOOK_AGAIN_MS),
            _ => PollTimeout::NONE,
        };
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let mut at = |(fd, flags)| {
            fds.push(PollFd::new(fd, flags));
            fds.len() - 1
        };
        let typed = input.filter(|_| is_ours).map(|input| at((input.from.as_fd(), PollFlags::POLLIN)));
        let taken = input.and_then(Input::of_command).map(&mut at);
        let written: Vec<usize> = self.outputs.iter().map(|output| at(output.awaited())).collect();
        let began = Instant::now();
        let quiet = match poll(&mut fds, timeout) {
            Ok(count) => count == 0,
            Err(Errno::EINTR) => return Ok(vec![false; others.len()]),
            Err(errno) => return Err(errno),
        };
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        let waited = if quiet { LAST_OUTPUT } else { began.elapsed() };
        if let Some(input) = &mut self.input {
            match taken.is_some_and(|at| ready[at]) {
                true if input.awaits_room() => input.pass_on()?,
                true => input.close(),
                false => {}
            }
            if typed.is_some_and(|at| ready[at]) && input.is_open {
                input.take()?;
            }
        }
        self.input.take_if(|input| input.is_done());
        for (output, at) in self.outputs.iter_mut().zip(written) {
            if output.left.is_some() && output.awaits_command() {
                output.waited += waited;
            }
            if ready[at] {
                output.pass_on()?;
            }
        }
        // What is closed tells whoever writes there.
        self.outputs.retain(|output| output.is_open || !output.held.is_empty());
        Ok(ready[..others.len()].to_vec())
    }
}
