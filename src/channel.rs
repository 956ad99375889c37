//! Messages between our own processes: one JSON value a packet over an AF_UNIX SOCK_SEQPACKET pair (unix(7)).

use crate::sys;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType, recv, recvmsg, send,
    sendmsg, shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The largest message; a larger one is an error of ours, never truncated.
const LARGEST: usize = 192 << 10;

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

    /// Sends one message if there is room for it (EAGAIN otherwise).
    pub fn offer<T: Serialize>(&self, message: &T) -> Result<(), ChannelError> {
        let bytes = encode(message)?;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.0.as_raw_fd(), &bytes, flags).map(|_| ()).map_err(failed("send"))
    }

    /// Sends one message, waiting for room.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), ChannelError> {
        let bytes = encode(message)?;
        loop {
            match send(self.0.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EINTR) => {}
                sent => return sent.map(|_| ()).map_err(failed("send")),
            }
        }
    }

    /// Sends no more: the other end sees its input end once it has read what is under way.
    pub fn close_our_side(&self) -> Result<(), ChannelError> {
        shutdown(self.0.as_raw_fd(), Shutdown::Write).map_err(failed("shutdown"))
    }

    /// Receives one message, waiting for it; [`ChannelError::Closed`] at the end.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<T, ChannelError> {
        let mut buffer = vec![0; LARGEST];
        let length = loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                received => break received.map_err(failed("recv"))?,
            }
        };
        decode(&buffer[..length])
    }
}

impl Channel {
    /// Receives one message if one is there.
    pub fn receive_now<T: DeserializeOwned>(&self) -> Result<Option<T>, ChannelError> {
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            Ok(_) => self.receive().map(Some),
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

/// The most descriptors that one message carries.
const MOST_DESCRIPTORS: usize = 16;

impl Channel {
    /// Sends one message with descriptors (unix(7), SCM_RIGHTS).
    pub fn send_with<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let bytes = encode(message)?;
        let numbers: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&bytes)];
        loop {
            match sendmsg::<()>(self.0.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None) {
                Err(Errno::EINTR) => {}
                sent => return sent.map(|_| ()).map_err(failed("sendmsg")),
            }
        }
    }

    /// Receives one message with its descriptors, waiting for it; they close on exec.
    pub fn receive_with<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let mut space = cmsg_space!([RawFd; MOST_DESCRIPTORS]);
        let mut buffer = vec![0; LARGEST];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = loop {
            match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
                Err(Errno::EINTR) => {}
                received => break received.map_err(failed("recvmsg"))?,
            }
        };
        let mut descriptors = Vec::new();
        for message in received.cmsgs().map_err(failed("recvmsg"))? {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                for number in numbers {
                    descriptors.push(sys::adopt_inherited(number).map_err(failed("recvmsg"))?);
                }
            }
        }
        let length = received.bytes;
        Ok((decode(&buffer[..length])?, descriptors))
    }
}
