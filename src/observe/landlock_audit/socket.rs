//! The kernel's audit over netlink (linux/audit.h): its state is asked for and its log is read; nothing is ever set.

use super::record::Record;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Why audit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A call failed.
    #[error("audit: {call}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The kernel's audit is switched off.
    #[error("audit: it is switched off")]
    Off,
    /// The kernel did not answer in time.
    #[error("audit: no {what} within {patience:?}")]
    Silent {
        /// What was waited for.
        what: &'static str,
        /// How long.
        patience: Duration,
    },
    /// The calling thread is in another network namespace than its own: it must not go on.
    #[error("audit: setns back to this process's network namespace: {0}")]
    Astray(Errno),
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> AuditError {
    move |errno| AuditError::Call { call, errno }
}

/// `AUDIT_GET`.
const GET: u16 = 1000;
/// `AUDIT_NLGRP_READLOG`, as a bit: whoever may read the log (CAP_AUDIT_READ) joins it.
const READ_LOG: u32 = 1;
/// The length of a netlink message's header, in bytes (netlink(7)).
const HEADER: usize = 16;
/// The longest message of audit's (`MAX_AUDIT_MESSAGE_LENGTH`) and its header fit, in bytes.
const ROOM: usize = 16 * 1024;
/// Room for some ten thousand records while the supervisor is busy elsewhere, in bytes.
const RECEIVE_BUFFER: usize = 16 * 1024 * 1024;
/// How long the kernel may take to tell its state. It has a thread of its own answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Audit's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Whether records are made.
    pub enabled: bool,
    /// How many records of anybody's were lost before anyone could read them, modulo 2^32.
    pub lost: u32,
}

impl Status {
    /// Asks for it.
    ///
    /// # Errors
    /// EPERM without CAP_AUDIT_CONTROL or outside the initial PID namespace, ECONNREFUSED outside the initial user
    /// namespace, EPROTONOSUPPORT on a kernel without audit.
    pub fn ask() -> Result<Status, AuditError> {
        const CALL: &str = "AUDIT_GET";
        let socket = netlink(0)?;
        let mut request = Vec::with_capacity(HEADER);
        request.extend((HEADER as u32).to_ne_bytes());
        request.extend(GET.to_ne_bytes());
        request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend([0; 8]);
        sendto(socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty()).map_err(failed("sendto"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match receive(socket.as_fd())? {
                Received::Message { kind: GET, body } => {
                    let word = |at: usize| body.get(at * 4..at * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
                    // struct audit_status: mask, enabled, failure, pid, rate_limit, backlog_limit, lost, …
                    let short = || AuditError::Call { call: CALL, errno: Errno::EPROTO };
                    let (enabled, lost) = word(1).zip(word(6)).ok_or_else(short)?;
                    return Ok(Status { enabled: enabled != 0, lost });
                }
                Received::Message { kind, body } if i32::from(kind) == libc::NLMSG_ERROR => {
                    let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                    return Err(failed(CALL)(Errno::from_raw(-code)));
                }
                Received::Message { .. } => {}
                Received::Overrun => return Err(failed(CALL)(Errno::ENOBUFS)),
                Received::Nothing => await_more(socket.as_fd(), deadline, CALL, PATIENCE)?,
            }
        }
    }
}

/// A reader of audit's log, from when it was opened.
#[derive(Debug)]
pub struct Reader {
    socket: OwnedFd,
}

/// What a reader has found.
#[derive(Debug)]
pub enum Found {
    /// A record.
    Record(Record),
    /// One that tells nothing of interest.
    Other,
    /// Records came faster than they were read: some are missing.
    Overrun,
    /// Nothing is there now.
    Nothing,
}

impl Reader {
    /// Opens the log where audit is on. Its records go to the initial network namespace only, which is entered for
    /// that moment where this process is in another one.
    ///
    /// # Errors
    /// Where audit is off or may not be read; after [`AuditError::Astray`] the process must end.
    pub fn open() -> Result<(Reader, Status), AuditError> {
        let status = Status::ask()?;
        if !status.enabled {
            return Err(AuditError::Off);
        }
        let namespace = |path| open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let own = namespace("/proc/self/ns/net").map_err(failed("open /proc/self/ns/net"))?;
        // Process 2 of the initial PID namespace, where audit has just answered, is kthreadd: no one can have moved it.
        let first = namespace("/proc/2/ns/net").map_err(failed("open /proc/2/ns/net"))?;
        let identity = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).map_err(failed("fstat"));
        let socket = if identity(&own)? == identity(&first)? {
            netlink(READ_LOG)?
        } else {
            setns(&first, CloneFlags::CLONE_NEWNET).map_err(failed("setns"))?;
            let socket = netlink(READ_LOG);
            setns(&own, CloneFlags::CLONE_NEWNET).map_err(AuditError::Astray)?;
            socket?
        };
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).map_err(failed("setsockopt SO_RCVBUFFORCE"))?;
        Ok((Reader { socket }, status))
    }

    /// Takes one message, without blocking.
    ///
    /// # Errors
    /// Where the socket is of no use any more. Loss is no error.
    pub fn take(&self) -> Result<Found, AuditError> {
        Ok(match receive(self.socket.as_fd())? {
            Received::Message { kind, body } => Record::parse(kind, &body).map_or(Found::Other, Found::Record),
            Received::Overrun => Found::Overrun,
            Received::Nothing => Found::Nothing,
        })
    }

    /// Waits until there is more, or `deadline` has passed, which is [`AuditError::Silent`].
    pub fn await_more(&self, deadline: Instant, what: &'static str, patience: Duration) -> Result<(), AuditError> {
        await_more(self.socket.as_fd(), deadline, what, patience)
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn netlink(groups: u32) -> Result<OwnedFd, AuditError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkAudit);
    let socket = socket.map_err(failed("socket"))?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups)).map_err(failed("bind"))?;
    Ok(socket)
}

enum Received {
    Message { kind: u16, body: Vec<u8> },
    Overrun,
    Nothing,
}

fn receive(socket: BorrowedFd<'_>) -> Result<Received, AuditError> {
    let mut bytes = vec![0; ROOM];
    loop {
        let (length, from) = match recvfrom::<NetlinkAddr>(socket.as_raw_fd(), &mut bytes) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Ok(Received::Nothing),
            Err(Errno::ENOBUFS) => return Ok(Received::Overrun),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(failed("recvfrom")(errno)),
        };
        // Audit's own messages have the length of the datagram; the header's was wrong for years (`nlmsg_len`).
        if from.is_some_and(|from| from.pid() == 0) && length >= HEADER {
            return Ok(Received::Message {
                kind: u16::from_ne_bytes([bytes[4], bytes[5]]),
                body: bytes[HEADER..length].to_vec(),
            });
        }
    }
}

fn await_more(
    socket: BorrowedFd<'_>,
    deadline: Instant,
    what: &'static str,
    patience: Duration,
) -> Result<(), AuditError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(AuditError::Silent { what, patience });
    }
    let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(failed("poll")(errno)),
    }
}
