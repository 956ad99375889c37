//! Messages between our own processes: one JSON value a packet over an AF_UNIX SOCK_SEQPACKET pair (unix(7)).

use crate::sys;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, recv, recvmsg, sendmsg,
    shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The largest message; a larger one is an error of ours, never truncated.
const LARGEST: usize = 192 << 10;

thread_local! {
    /// Room for a message. To make it anew, all zeros, takes longer than most messages do.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives `receive` room for the largest message.
fn with_room<T>(receive: impl FnOnce(&mut [u8]) -> T) -> T {
    ROOM.with_borrow_mut(|room| {
        if room.is_empty() {
            // Of pages that nobody touches until a message does.
            *room = vec![0; LARGEST];
        }
        receive(room)
    })
}

/// One end of a pair.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// Why a message did not come through.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A call failed.
    #[error("{call} between our processes: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The message is none of ours, or too large.
    #[error("message between our processes: {0}")]
    Form(String),
    /// The other end is closed: its process has ended.
    #[error("the other process has ended")]
    Closed,
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> ChannelError {
    move |errno| match errno {
        Errno::EPIPE | Errno::ECONNRESET => ChannelError::Closed,
        errno => ChannelError::Call { call, errno },
    }
}

fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, ChannelError> {
    let bytes = serde_json::to_vec(message).map_err(|e| ChannelError::Form(e.to_string()))?;
    match bytes.len() <= LARGEST {
        true => Ok(bytes),
        false => Err(ChannelError::Form(format!("{} bytes, more than {LARGEST}", bytes.len()))),
    }
}

/// No message is empty: that is the end.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ChannelError> {
    if bytes.is_empty() {
        return Err(ChannelError::Closed);
    }
    serde_json::from_slice(bytes).map_err(|e| ChannelError::Form(e.to_string()))
}

/// Receives, waiting. Where the other end was closed before it had read everything, the kernel says ECONNRESET once, and what
/// that end has sent is still there to be received.
fn after_reset<T>(call: &'static str, mut receive: impl FnMut() -> Result<T, Errno>) -> Result<T, ChannelError> {
    let mut reset = false;
    loop {
        match receive() {
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) if !reset => reset = true,
            received => return received.map_err(failed(call)),
        }
    }
}

impl Channel {
    /// A connected pair; both ends close on exec.
    pub fn pair() -> Result<(Channel, Channel), ChannelError> {
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(failed("socketpair"))?;
        Ok((Channel(a), Channel(b)))
    }

    /// Over a connected socket of that kind.
    pub fn over(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// Sends one message if there is room for it. Returns whether there was.
    pub fn offer<T: Serialize>(&self, message: &T) -> Result<bool, ChannelError> {
        self.offer_with(message, &[])
    }

    /// Sends one message, waiting for room.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), ChannelError> {
        self.send_with(message, &[])
    }

    /// Sends no more: the other end sees its input end once it has read what is under way.
    pub fn close_our_side(&self) -> Result<(), ChannelError> {
        shutdown(self.0.as_raw_fd(), Shutdown::Write).map_err(failed("shutdown"))
    }

    /// Receives one message, waiting for it; [`ChannelError::Closed`] at the end.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<T, ChannelError> {
        with_room(|room| {
            let length = after_reset("recv", || recv(self.0.as_raw_fd(), room, MsgFlags::empty()))?;
            decode(&room[..length])
        })
    }
}

impl Channel {
    /// Receives one message if one is there.
    pub fn receive_now<T: DeserializeOwned>(&self) -> Result<Option<T>, ChannelError> {
        match self.is_ready()? {
            true => self.receive().map(Some),
            false => Ok(None),
        }
    }

    /// Whether there is something to be received: a message, or the end.
    fn is_ready(&self) -> Result<bool, ChannelError> {
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) {
            Ok(0) | Err(Errno::EINTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(errno) => Err(failed("poll")(errno)),
        }
    }

    /// Receives one message, waiting for it no longer than this; `None` when none came.
    pub fn receive_within<T: DeserializeOwned>(&self, patience: Duration) -> Result<Option<T>, ChannelError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Ok(None),
                Ok(_) => return self.receive().map(Some),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed("poll")(errno)),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The most descriptors that one message carries: those of a network namespace, with all that may be caught there.
const MOST_DESCRIPTORS: usize = 96;

impl Channel {
    /// Sends one message with descriptors (unix(7), SCM_RIGHTS).
    pub fn send_with<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        self.send_flagged(message, descriptors, MsgFlags::MSG_NOSIGNAL)
    }

    fn send_flagged<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
        flags: MsgFlags,
    ) -> Result<(), ChannelError> {
        let bytes = encode(message)?;
        let numbers: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&bytes)];
        loop {
            match sendmsg::<()>(self.0.as_raw_fd(), &parts, control, flags, None) {
                Err(Errno::EINTR) => {}
                sent => return sent.map(|_| ()).map_err(failed("sendmsg")),
            }
        }
    }

    /// Receives one message with its descriptors, waiting for it; they close on exec.
    pub fn receive_with<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let mut space = cmsg_space!([RawFd; MOST_DESCRIPTORS]);
        with_room(|room| {
            let (length, numbers) = after_reset("recvmsg", || {
                let mut parts = [IoSliceMut::new(room)];
                let flags = MsgFlags::MSG_CMSG_CLOEXEC;
                let received = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
                let mut numbers: Vec<RawFd> = Vec::new();
                for message in received.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(passed) = message {
                        numbers.extend(passed);
                    }
                }
                Ok((received.bytes, numbers))
            })?;
            let descriptors = numbers.into_iter().map(sys::adopt_inherited).collect::<Result<_, _>>();
            let descriptors = descriptors.map_err(failed("recvmsg"))?;
            Ok((decode(&room[..length])?, descriptors))
        })
    }

    /// The same if one is there.
    pub fn receive_with_now<T: DeserializeOwned>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, ChannelError> {
        match self.is_ready()? {
            true => self.receive_with().map(Some),
            false => Ok(None),
        }
    }

    /// Sends one message with descriptors if there is room for it. Returns whether there was.
    pub fn offer_with<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<bool, ChannelError> {
        match self.send_flagged(message, descriptors, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
            Ok(()) => Ok(true),
            Err(ChannelError::Call { errno: Errno::EAGAIN, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_the_end_is_received_though_the_other_end_had_not_read_everything() {
        let (ours, theirs) = Channel::pair().unwrap();
        ours.send(&1).unwrap();
        theirs.send(&2).unwrap();
        drop(theirs);
        assert_eq!(ours.receive::<i32>().unwrap(), 2);
        assert!(matches!(ours.receive::<i32>(), Err(ChannelError::Closed)));
    }

    #[test]
    fn an_offer_waits_for_nobody() {
        let (ours, theirs) = Channel::pair().unwrap();
        let taken = (0..100_000).take_while(|number| ours.offer(number).unwrap()).count();
        assert!((1..100_000).contains(&taken), "{taken}");
        assert_eq!((theirs.receive::<usize>().unwrap(), theirs.receive_now::<usize>().unwrap()), (0, Some(1)));
    }
}
