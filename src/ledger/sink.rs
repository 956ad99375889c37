//! Whole lines onto a descriptor, through short writes, full disks, closed pipes and stalled readers.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a reader of a pipe or socket may take before a line counts as not writable: a stalled reader must not hold
/// up the process that forwards signals and answers the proxy.
const PATIENCE: Duration = Duration::from_secs(5);

/// POLLOUT promises room for this much in a pipe (PIPE_BUF, pipe(7)), so that a write of it does not block.
const PACE: usize = 4096;

/// A line that could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// Whether a part of it is out, so that its rest is owed and it will stand in the record after all.
    pub begun: bool,
    /// The kernel's answer.
    pub cause: Errno,
}

/// A descriptor that takes lines.
///
/// A line of which a part is out is never given up: its rest goes before anything else once writing works again, so
/// that a torn line can only be the last one. (Cutting the file back would do for a file of ours only, and not for one
/// that is marked append-only.)
#[derive(Debug)]
pub(super) struct Sink {
    file: OwnedFd,
    paced: bool,
    /// [`PATIENCE`], but in tests.
    pub(super) patience: Duration,
    owed: Vec<u8>,
    /// What has been written, in bytes.
    pub(super) written: u64,
    /// Whether a reader was waited for in vain. Until it reads again it is not waited for any more, so that it holds up
    /// this process once and not with every line.
    stalled: bool,
}

impl Sink {
    pub(super) fn new(file: OwnedFd) -> nix::Result<Sink> {
        let kind = SFlag::from_bits_truncate(fstat(&file)?.st_mode & SFlag::S_IFMT.bits());
        Ok(Sink {
            file,
            paced: kind != SFlag::S_IFREG,
            patience: PATIENCE,
            owed: Vec::new(),
            written: 0,
            stalled: false,
        })
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Whether the rest of a line is still to be written.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Has a reader that has stalled be waited for once more.
    pub(super) fn be_patient(&mut self) {
        self.stalled = false;
    }

    /// Writes the rest of the line that was begun, if any.
    pub(super) fn settle(&mut self) -> Result<(), Errno> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let (done, result) = self.push(&self.owed);
        self.owed.drain(..done);
        self.written += done as u64;
        self.stalled = result == Err(Errno::ETIMEDOUT);
        result
    }

    /// Writes a line, which ends in its newline. Nothing may be owed.
    pub(super) fn write_line(&mut self, line: &[u8]) -> Result<(), Refused> {
        debug_assert!(!self.owes());
        let (done, result) = self.push(line);
        self.written += done as u64;
        self.stalled = result == Err(Errno::ETIMEDOUT);
        result.map_err(|cause| {
            if done > 0 {
                self.owed.extend_from_slice(&line[done..]);
            }
            Refused { begun: done > 0, cause }
        })
    }

    /// How many bytes went out, and what stopped the rest.
    fn push(&self, bytes: &[u8]) -> (usize, Result<(), Errno>) {
        let mut done = 0;
        let result = holding_signals(|| {
            let deadline = Instant::now() + if self.stalled { Duration::ZERO } else { self.patience };
            while done < bytes.len() {
                let rest = &bytes[done..];
                let now = match self.paced {
                    true => self.wait_for_room(deadline).map(|()| &rest[..rest.len().min(PACE)])?,
                    false => rest,
                };
                match write(&self.file, now) {
                    Ok(0) => return Err(Errno::EIO),
                    Ok(n) => done += n,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) if self.paced && Instant::now() < deadline => {}
                    Err(Errno::EAGAIN) if self.paced => return Err(Errno::ETIMEDOUT),
                    Err(cause) => return Err(cause),
                }
            }
            Ok(())
        });
        (done, result)
    }

    fn wait_for_room(&self, deadline: Instant) -> Result<(), Errno> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)], timeout) {
                Ok(0) => return Err(Errno::ETIMEDOUT),
                // An error or a hang-up is told by the write itself.
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}

/// A closed pipe raises SIGPIPE and a file at RLIMIT_FSIZE raises SIGXFSZ (write(2)), whose default is to end the
/// process. Both are directed at the writing thread: held off and taken back here, what stays is the errno, whatever
/// the process has set for them.
pub(super) fn holding_signals(attempt: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGPIPE);
    signals.add(Signal::SIGXFSZ);
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let mut result = attempt();
    if let Err(Errno::EPIPE | Errno::EFBIG) = result {
        // Without a descriptor for it (EMFILE) the signal stays pending, and so must stay blocked.
        let pending = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        while pending.read_signal()?.is_some() {}
    }
    if let Err(cause) = before.thread_set_mask() {
        result = result.and(Err(cause));
    }
    result
}
