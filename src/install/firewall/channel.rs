//! One netlink socket of family `NETLINK_NETFILTER`: transactions that commit whole or not at all, and dumps that
//! are one consistent view (netlink(7); linux/netfilter/nfnetlink.h).
//!
//! A socket stays in the network namespace in which it was opened, wherever its thread goes later.

use super::FirewallError;
use crate::sys;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::nftables::NfTablesMessage;
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage as Carried, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair, sockopt,
};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `NFNL_SUBSYS_NFTABLES`: the batch's subsystem, in `res_id` of its begin and end.
const SUBSYSTEM: u16 = 10;
/// Room for one datagram. The kernel builds dumps in pieces of at most 32 KiB (`NLMSG_GOODSIZE`, af_netlink.c).
const DATAGRAM: usize = 64 * 1024;
/// A ruleset that changes under a dump makes it void; each try is a fraction of a millisecond.
const DUMP_TRIES: usize = 32;
/// Room for the largest batch, where the socket's own buffer (net.core.wmem_default) is too small for it.
const SEND_BUFFER: usize = 4 * 1024 * 1024;

/// As many numbers of sockets from this one on are neither a process's nor any that the kernel gives (netlink(7), nl_pid).
const PORTS: u32 = 1 << 30;
/// How often a number is tried for that nobody has.
const PORT_TRIES: usize = 16;

/// One message of a transaction, with words for what it makes.
pub(crate) struct Part {
    /// What the message makes, as an error names it: `rule 3 of chain judge`.
    pub(crate) what: String,
    /// The message.
    pub(crate) message: NfTablesMessage,
    /// `NLM_F_*` beside `NLM_F_REQUEST`.
    pub(crate) flags: u16,
}

impl Part {
    /// A message that creates.
    pub(crate) fn create(what: String, message: NfTablesMessage, flags: u16) -> Part {
        Part { what, message, flags: NLM_F_CREATE | flags }
    }
}

/// The kernel's answer to one part of a transaction that it did not commit.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The part's number; `None` when the commit as a whole was refused.
    pub(crate) part: Option<usize>,
    /// The error number.
    pub(crate) source: io::Error,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    sequence: Cell<u32>,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    /// Opens a socket in the thread's network namespace, under a number of its own.
    ///
    /// The kernel would give the first one the process's, which is free again before a closed socket's end is through:
    /// what is bound to that number by then is taken for the ended one's (nfnetlink_log.c, `nfulnl_rcv_nl_event`), and a
    /// log goes silent. A last copy that a child closes is as late as it likes.
    pub(crate) fn open() -> Result<Channel, FirewallError> {
        let call = |call| move |source| FirewallError::Socket { call, source };
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(call("socket(AF_NETLINK, NETLINK_NETFILTER)"))?;
        for _ in 0..PORT_TRIES {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).map_err(|error| call("getrandom")(error.into()))?;
            match socket.bind(&SocketAddr::new(PORTS + u32::from_ne_bytes(bytes) % PORTS, 0)) {
                Ok(()) => return Ok(Channel { socket, sequence: Cell::new(1) }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(call("bind")(error)),
            }
        }
        Err(call("bind")(io::ErrorKind::AddrInUse.into()))
    }

    /// A socket that was opened in another network namespace. The kernel asks for NET_ADMIN over that one of whoever opened
    /// the socket and of whoever sends.
    pub(crate) fn of(socket: OwnedFd) -> Channel {
        Channel { socket: sys::netlink_socket(socket), sequence: Cell::new(1) }
    }

    /// Gives the socket away.
    pub(crate) fn into_descriptor(self) -> Result<OwnedFd, FirewallError> {
        let duplicate = self.socket.as_fd().try_clone_to_owned();
        duplicate.map_err(|source| FirewallError::Socket { call: "fcntl(F_DUPFD_CLOEXEC)", source })
    }

    /// Closes the socket without waiting for the kernel to free what a transaction has removed. It is out of force once the
    /// kernel has acknowledged that; to free it takes an RCU grace period, milliseconds, for which every close of a netfilter socket
    /// waits (nf_tables_api.c, `nft_rcv_nl_event`). So it is the kernel's own collector of sockets that closes it.
    pub(crate) fn leave(self) {
        // Where it cannot be left it has been closed here.
        let _left = leave_to_collector(self.socket);
    }

    /// Makes room for `bytes` of waiting messages; in a user namespace for no more than net.core.rmem_max (socket(7)).
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), FirewallError> {
        let forced = setsockopt(&self.socket, sockopt::RcvBufForce, &bytes);
        let made = match forced {
            Err(Errno::EPERM) => setsockopt(&self.socket, sockopt::RcvBuf, &bytes),
            outcome => outcome,
        };
        made.map_err(|e| FirewallError::Socket { call: "setsockopt(SO_RCVBUFFORCE)", source: e.into() })
    }

    /// The socket itself, for its options and groups.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn next_sequence(&self) -> u32 {
        let next = self.sequence.get();
        self.sequence.set(next.wrapping_add(1));
        next
    }

    /// Sends `parts` as one transaction. An empty answer means that the kernel has committed all of it; otherwise
    /// nothing of it is in force and the answer says why.
    pub(crate) fn transaction(&self, parts: Vec<Part>) -> Result<Vec<Refusal>, FirewallError> {
        let count = parts.len();
        let mut batch = Vec::new();
        let first = self.next_sequence();
        let control = |message| NetfilterMessage::new(header(NetfilterProtoFamily::Unspec, SUBSYSTEM), message);
        append(&mut batch, control(ControlMessage::BatchBegin), NLM_F_REQUEST, first);
        let mut last = first;
        for (number, part) in parts.into_iter().enumerate() {
            // Only the last real message asks for an acknowledgement: kernels before 6.10 ignore the flag on the
            // end of a batch, and refusals are reported without being asked for.
            let ack = if number + 1 == count { NLM_F_ACK } else { 0 };
            let message = NetfilterMessage::new(header(NetfilterProtoFamily::Inet, 0), part.message);
            last = self.next_sequence();
            append(&mut batch, message, NLM_F_REQUEST | part.flags | ack, last);
        }
        append(&mut batch, control(ControlMessage::BatchEnd), NLM_F_REQUEST, self.next_sequence());
        match self.send(&batch) {
            Err(FirewallError::Socket { source, .. }) if source.raw_os_error() == Some(libc::EMSGSIZE) => {
                let made = match setsockopt(&self.socket, sockopt::SndBufForce, &SEND_BUFFER) {
                    Err(Errno::EPERM) => setsockopt(&self.socket, sockopt::SndBuf, &SEND_BUFFER),
                    outcome => outcome,
                };
                made.map_err(|e| FirewallError::Socket { call: "setsockopt(SO_SNDBUFFORCE)", source: e.into() })?;
                self.send(&batch)?;
            }
            sent => sent?,
        }

        let mut refusals = Vec::new();
        let mut acknowledged = false;
        // The kernel has worked through the batch before send returns, so every answer is there to be read.
        while let Some(answers) = self.receive()? {
            for answer in answers {
                let NetlinkPayload::Error(error) = answer.payload else {
                    continue;
                };
                let offset = answer.header.sequence_number.wrapping_sub(first);
                match error.code {
                    None => acknowledged |= answer.header.sequence_number == last,
                    Some(_) => refusals.push(Refusal {
                        part: (offset as usize).checked_sub(1).filter(|part| *part < count),
                        source: error.to_io(),
                    }),
                }
            }
        }
        if refusals.is_empty() && !acknowledged {
            return Err(FirewallError::NoAnswer { request: "a transaction" });
        }
        Ok(refusals)
    }

    /// Everything that `request` names, in the kernel's order and as of one moment.
    pub(crate) fn dump(&self, request: NfTablesMessage) -> Result<Vec<NetfilterMessage>, FirewallError> {
        let malformed = |cause: String| FirewallError::Malformed { cause };
        let mut found = Vec::new();
        for message in self.dump_bytes(request)? {
            let message = NetlinkMessage::deserialize(&message).map_err(|e| malformed(e.to_string()))?;
            if let NetlinkPayload::InnerMessage(inner) = message.payload {
                found.push(inner);
            }
        }
        Ok(found)
    }

    /// The same, each message as its bytes with the netlink header.
    pub(crate) fn dump_bytes(&self, request: NfTablesMessage) -> Result<Vec<Vec<u8>>, FirewallError> {
        for _ in 0..DUMP_TRIES {
            if let Some(found) = self.dump_once(request.clone())? {
                return Ok(found);
            }
        }
        Err(FirewallError::Unsettled { tries: DUMP_TRIES })
    }

    fn dump_once(&self, request: NfTablesMessage) -> Result<Option<Vec<Vec<u8>>>, FirewallError> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        let message = NetfilterMessage::new(header(NetfilterProtoFamily::Inet, 0), request);
        append(&mut bytes, message, NLM_F_REQUEST | NLM_F_DUMP, sequence);
        self.send(&bytes)?;
        let malformed = |cause: String| FirewallError::Malformed { cause };
        let mut found = Vec::new();
        let mut consistent = true;
        while let Some(bytes) = self.receive_bytes()? {
            for message in datagram(&bytes) {
                let message = message.map_err(|cause| malformed(cause.to_owned()))?;
                let (kind, flags) = (half(message, 4), half(message, 6));
                if message.get(8..12) != Some(&sequence.to_ne_bytes()) {
                    continue;
                }
                consistent &= flags & NLM_F_DUMP_INTR == 0;
                // Types below this are netlink's own (netlink(7)).
                if kind >= libc::NLMSG_MIN_TYPE as u16 {
                    found.push(message.to_vec());
                    continue;
                }
                let control: NetlinkMessage<NetfilterMessage> =
                    NetlinkMessage::deserialize(message).map_err(|e| malformed(e.to_string()))?;
                match control.payload {
                    NetlinkPayload::Done(done) if done.code == 0 => {
                        return Ok(consistent.then_some(found));
                    }
                    NetlinkPayload::Done(done) if done.code == -libc::EINTR => return Ok(None),
                    NetlinkPayload::Done(done) => {
                        let source = io::Error::from_raw_os_error(done.code.wrapping_neg());
                        return Err(FirewallError::Refused { what: "a dump".into(), source });
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(FirewallError::Refused { what: "a dump".into(), source: error.to_io() });
                    }
                    _ => {}
                }
            }
        }
        Err(FirewallError::NoAnswer { request: "a dump" })
    }

    /// Sends one request that is no transaction and reads its acknowledgement.
    pub(crate) fn request(&self, mut message: NetlinkMessage<NetfilterMessage>) -> Result<(), FirewallError> {
        let sequence = self.next_sequence();
        message.header.sequence_number = sequence;
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.send(&bytes)?;
        while let Some(answers) = self.receive()? {
            for answer in answers.into_iter().filter(|a| a.header.sequence_number == sequence) {
                if let NetlinkPayload::Error(error) = answer.payload {
                    return match error.code {
                        None => Ok(()),
                        Some(_) => Err(FirewallError::Refused { what: "a request".into(), source: error.to_io() }),
                    };
                }
            }
        }
        Err(FirewallError::NoAnswer { request: "a request" })
    }

    fn send(&self, bytes: &[u8]) -> Result<(), FirewallError> {
        let sent = self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0);
        sent.map(drop).map_err(|source| FirewallError::Socket { call: "sendto", source })
    }

    fn receive(&self) -> Result<Option<Vec<NetlinkMessage<NetfilterMessage>>>, FirewallError> {
        let Some(bytes) = self.receive_bytes()? else {
            return Ok(None);
        };
        let malformed = |cause: String| FirewallError::Malformed { cause };
        datagram(&bytes)
            .map(|message| {
                let message = message.map_err(|cause| malformed(cause.to_owned()))?;
                NetlinkMessage::deserialize(message).map_err(|e| malformed(e.to_string()))
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Some)
    }

    /// The next datagram from the kernel, or `None` when none waits. Never blocks.
    ///
    /// # Errors
    /// [`FirewallError::Socket`]; its source is ENOBUFS when the kernel had to drop datagrams for this socket.
    pub(crate) fn receive_bytes(&self) -> Result<Option<Vec<u8>>, FirewallError> {
        let call = "recvfrom";
        loop {
            let mut bytes = Vec::with_capacity(DATAGRAM);
            match self.socket.recv_from(&mut bytes, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
                // Only port 0 is the kernel; another process may address this socket too.
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok((length, _)) if length > bytes.len() => {
                    return Err(FirewallError::Malformed {
                        cause: format!("a datagram of {length} bytes, of which {} fit", bytes.len()),
                    });
                }
                Ok(_) => return Ok(Some(bytes)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(FirewallError::Socket { call, source }),
            }
        }
    }
}

/// The messages of one datagram, each with its header.
pub(crate) fn datagram(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], &'static str>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = rest.first_chunk::<4>().map_or(0, |length| u32::from_ne_bytes(*length) as usize);
        if length < 16 || length > rest.len() {
            rest = &[];
            return Some(Err("a netlink message whose length does not fit its datagram"));
        }
        let (message, after) = rest.split_at(length);
        // NLMSG_ALIGNTO: a message begins on a multiple of four.
        rest = after.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        Some(Ok(message))
    })
}

/// Two bytes of a message in the host's order; 0 beyond its end.
fn half(message: &[u8], at: usize) -> u16 {
    message.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

/// The nftables message within `message`, if it is one of table family `inet`.
pub(crate) fn inet(message: NetfilterMessage) -> Option<NfTablesMessage> {
    match message.inner {
        NetfilterMessageInner::NfTables(inner) if message.header.family == NetfilterProtoFamily::Inet => Some(inner),
        _ => None,
    }
}

/// Leaves a socket as a message in a unix socket that is reachable through that very message alone: the kernel looks for such
/// when a unix socket is closed, and closes what they hold by a thread of its own since Linux 6.8 (net/unix/garbage.c); earlier it
/// did so in the process that closed it.
fn leave_to_collector(socket: Socket) -> Result<(), Errno> {
    let (sender, keeper) = socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_CLOEXEC)?;
    let kept = [socket.as_raw_fd(), keeper.as_raw_fd()];
    let message = [Carried::ScmRights(&kept)];
    sendmsg::<()>(sender.as_raw_fd(), &[IoSlice::new(&[0])], &message, MsgFlags::MSG_DONTWAIT, None)?;
    // The sender last: with the others it is the message that holds them.
    drop((socket, keeper));
    drop(sender);
    Ok(())
}

fn header(family: NetfilterProtoFamily, resource: u16) -> NetfilterHeader {
    NetfilterHeader::new(family, libc::NFNETLINK_V0 as u8, resource)
}

fn append(batch: &mut Vec<u8>, message: NetfilterMessage, flags: u16, sequence: u32) {
    let mut netlink = NetlinkHeader::default();
    netlink.flags = flags;
    netlink.sequence_number = sequence;
    let mut message = NetlinkMessage::new(netlink, NetlinkPayload::from(message));
    message.finalize();
    let start = batch.len();
    batch.resize(start + message.buffer_len(), 0);
    message.serialize(&mut batch[start..]);
}

#[cfg(test)]
mod tests {
    use super::datagram;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn splitting_any_bytes_ends_and_stays_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = datagram(&bytes).filter_map(Result::ok).map(<[u8]>::len).sum();
            prop_assert!(total <= bytes.len());
        }
    }

    #[test]
    fn two_messages_one_unaligned_are_both_found() {
        let mut bytes = Vec::new();
        for length in [17u32, 16] {
            let start = bytes.len();
            bytes.extend(length.to_ne_bytes());
            bytes.resize((start + length as usize).next_multiple_of(4), 0);
        }
        let lengths: Vec<_> = datagram(&bytes).map(|m| m.unwrap().len()).collect();
        assert_eq!(lengths, [17, 16]);
    }

    #[test]
    fn a_length_beyond_the_datagram_is_an_error() {
        let mut bytes = 64u32.to_ne_bytes().to_vec();
        bytes.resize(32, 0);
        assert!(datagram(&bytes).next().unwrap().is_err());
    }
}
