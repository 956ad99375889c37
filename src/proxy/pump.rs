//! Bytes from one socket to another up to their end: through memory as they come, and, where there are many, through a
//! pipe by splice(2), which copies none of them. A receiver that is gone is SIGPIPE to splice(2), which the runtime ignores
//! from the start on.
//!
//! What EAGAIN means is decided by what the pipe holds. It is filled only when it is empty, so that EAGAIN is about the
//! source; it is drained only when it holds something, so that EAGAIN is about the destination. A slow reader holds back one
//! pipe's worth.

use super::body::BodyError;
use super::inflow::{Inflow, PIECE};
use super::pulse::Pulse;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::pipe2;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// Bytes that a pipe is to hold. The kernel's limit for a user without privilege is 64 MiB over all pipes
/// (`pipe-user-pages-soft`, pipe(7)).
const SIZE: i32 = 256 * 1024;

/// The smallest pipe that is worth its calls: over the user's limit a new one holds two pages.
const SMALLEST: usize = 64 * 1024;

/// A body with so many bytes to come is bulk from the start.
const BULK: u64 = 256 * 1024;

/// So many full reads in a row show that a stream is bulk.
const FULL_READS: u32 = 2;

/// How long a source may be silent before its pipe is given back.
const HOLD: Duration = Duration::from_millis(250);

/// The pipes that the transfers of one process share. One exists only while a transfer uses it.
#[derive(Debug)]
pub struct Pipes {
    most: Cell<usize>,
    open: Cell<usize>,
}

impl Pipes {
    /// None yet, and at most `most` at once.
    pub fn new(most: usize) -> Rc<Pipes> {
        Rc::new(Pipes { most: Cell::new(most), open: Cell::new(0) })
    }

    /// A pipe, if there may be one more and the kernel gives one that is large enough.
    fn take(self: &Rc<Pipes>) -> Option<Pipe> {
        if self.open.get() >= self.most.get() {
            return None;
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
        // Over a limit of the user's it keeps the size that it has.
        let size = fcntl(&write, FcntlArg::F_SETPIPE_SZ(SIZE)).or_else(|_| fcntl(&write, FcntlArg::F_GETPIPE_SZ));
        let size = usize::try_from(size.ok()?).ok().filter(|size| *size >= SMALLEST)?;
        self.open.set(self.open.get() + 1);
        Some(Pipe { read, write, size, of: self.clone() })
    }

    /// There are no more: the kernel does not splice sockets.
    fn give_up(&self) {
        self.most.set(0);
    }
}

/// An empty pipe, between two fillings.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    size: usize,
    of: Rc<Pipes>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.of.open.set(self.of.open.get() - 1);
    }
}

impl Pipe {
    /// Takes up to `room` bytes from a socket; 0 where a read is to tell what comes: an end, or what lies behind urgent data
    /// (tcp(7)), in front of which splice(2) stops for ever.
    fn fill(&self, from: &TcpStream, room: usize) -> io::Result<usize> {
        match moved(|| splice(from, None, &self.write, None, room, FLAGS)) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
                moved(|| recv(from.as_raw_fd(), &mut [0], peek)).map(|_| 0)
            }
            outcome => outcome,
        }
    }

    /// Passes up to `most` bytes, until the source is silent or only a read can tell what comes.
    /// The pipe is empty after it. Gives the number of bytes that got through.
    async fn pass(&self, from: &TcpStream, to: &TcpStream, most: u64, pulse: &Pulse) -> Result<u64, BodyError> {
        let mut passed = 0;
        while passed < most {
            let room = usize::try_from(most - passed).map_or(self.size, |left| left.min(self.size));
            let fill = from.async_io(Interest::READABLE, || self.fill(from, room));
            let mut held = match timeout(HOLD, fill).await {
                Ok(Ok(0)) | Err(_) => break,
                Ok(Ok(count)) => count,
                Ok(Err(cause)) if is_unsupported(&cause) => {
                    self.of.give_up();
                    break;
                }
                Ok(Err(cause)) => return Err(BodyError::Read(cause)),
            };
            while held > 0 {
                let drain = || moved(|| splice(&self.read, None, to, None, held, FLAGS));
                let count = match to.async_io(Interest::WRITABLE, drain).await {
                    Ok(0) => return Err(BodyError::Write(io::ErrorKind::WriteZero.into())),
                    Ok(count) => count,
                    Err(cause) => return Err(BodyError::Write(cause)),
                };
                held -= count;
                passed += count as u64;
                pulse.beat();
            }
        }
        Ok(passed)
    }
}

const FLAGS: SpliceFFlags = SpliceFFlags::SPLICE_F_NONBLOCK.union(SpliceFFlags::SPLICE_F_MOVE);

/// What a call has moved, made again where a signal came first.
fn moved(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map_err(io::Error::from),
        }
    }
}

/// Whether a kernel says so that does not splice sockets. Nothing has been moved then.
fn is_unsupported(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error().map(Errno::from_raw), Some(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM))
}

/// Passes everything up to the connection's end.
pub async fn pass_all(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    pulse: &Pulse,
    pipes: &Rc<Pipes>,
) -> Result<(), BodyError> {
    pass(from, to, None, pulse, pipes).await
}

/// Passes exactly `length` bytes.
pub async fn pass_length(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    length: u64,
    pulse: &Pulse,
    pipes: &Rc<Pipes>,
) -> Result<(), BodyError> {
    pass(from, to, Some(length), pulse, pipes).await
}

/// Passes `left` bytes, or everything where it is unknown.
async fn pass(
    from: &mut Inflow<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    mut left: Option<u64>,
    pulse: &Pulse,
    pipes: &Rc<Pipes>,
) -> Result<(), BodyError> {
    // A source that was silent is bulk by what it sends then, not by what it announced.
    let mut announced = left.is_some_and(|left| left >= BULK);
    let mut full_reads = 0;
    while left != Some(0) {
        if (announced || full_reads >= FULL_READS)
            && let Some(reader) = from.bare()
            && let Some(pipe) = pipes.take()
        {
            let passed = pipe.pass(reader.as_ref(), to.as_ref(), left.unwrap_or(u64::MAX), pulse).await?;
            left = left.map(|left| left - passed);
            (announced, full_reads) = (false, 0);
            continue;
        }
        let bytes = from.some().await.map_err(BodyError::Read)?;
        if bytes.is_empty() {
            return left.map_or(Ok(()), |_| Err(BodyError::Truncated));
        }
        full_reads = if bytes.len() >= PIECE { full_reads + 1 } else { 0 };
        let count = left.map_or(bytes.len(), |left| usize::try_from(left).map_or(bytes.len(), |n| n.min(bytes.len())));
        to.write_all(&bytes[..count]).await.map_err(BodyError::Write)?;
        from.consume(count);
        left = left.map(|left| left - count as u64);
        pulse.beat();
    }
    Ok(())
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
