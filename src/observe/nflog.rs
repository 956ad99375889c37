//! The reader of the firewall's log: every refused packet as the kernel reports it to an NFLOG group
//! (linux/netfilter/nfnetlink_log.h), with an exact count of those that could not be delivered.

mod openings;
mod packet;

pub use openings::Openings;
pub use packet::Packet;

use crate::install::firewall::rules::RULES;
use crate::install::firewall::{Channel, FirewallError, SNAPLEN, datagram};
use crate::ledger::record::{Denial, Mechanism, Object, Subject};
use crate::policy::Axis;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigFlags, ConfigMode, ConfigNla, PacketNla, Timeout, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};

/// The groups that are tried in order. Low numbers are what people configure by hand.
const GROUPS: RangeInclusive<u16> = 23_300..=23_427;
/// Room for some ten thousand records while the supervisor is busy elsewhere, in bytes.
const RECEIVE_BUFFER: usize = 16 * 1024 * 1024;
/// The least that the kernel allocates for a record, in bytes. Its own default is a page, which would waste the buffer.
const RECORD_BUFFER: u32 = 512;

/// A bound NFLOG group. Dropping it frees the group.
#[derive(Debug)]
pub struct NfLog {
    channel: Channel,
    run: String,
    group: u16,
    sequence: Sequence,
}

/// What one [`NfLog::drain`] has found beside the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Records handed over.
    pub records: u64,
    /// Records that are missing for certain and were not reported missing before. A kernel that has dropped records
    /// says so at once but not how many: that is one until the next record's number tells the rest.
    pub lost: u64,
    /// Records of rules that are not this run's, which someone else sends to the same group: a table that a dead run
    /// has left, say.
    pub foreign: u64,
    /// Whether there may be more: not everything was looked at.
    pub more: bool,
}

/// One refused packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The rule that refused, one of [`RULES`].
    pub rule: String,
    /// The uid that had opened the socket.
    pub uid: Option<u32>,
    /// What the packet's headers say; `None` when they are none that can be read.
    pub packet: Option<Packet>,
}

impl AsFd for NfLog {
    /// Readable when [`NfLog::drain`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl NfLog {
    /// Binds a free group for the records of `run` in the calling thread's network namespace. Each record comes at once (threshold 1), with
    /// the packet's first 128 bytes and a number.
    ///
    /// # Errors
    /// [`FirewallError::NoLogGroup`] with EPERM without `CAP_NET_ADMIN`, or when all groups are taken.
    pub fn bind(run: &str) -> Result<NfLog, FirewallError> {
        NfLog::with_receive_buffer(run, RECEIVE_BUFFER)
    }

    /// [`NfLog::bind`] with a receive buffer of `bytes` (the kernel doubles it for its own book-keeping).
    ///
    /// # Errors
    /// As [`NfLog::bind`].
    pub fn with_receive_buffer(run: &str, bytes: usize) -> Result<NfLog, FirewallError> {
        NfLog::bind_by(Channel::open()?, run, bytes)
    }

    /// [`NfLog::bind`] in the network namespace of the channel.
    pub(crate) fn by(channel: Channel, run: &str) -> Result<NfLog, FirewallError> {
        NfLog::bind_by(channel, run, RECEIVE_BUFFER)
    }

    fn bind_by(channel: Channel, run: &str, bytes: usize) -> Result<NfLog, FirewallError> {
        let mut refusal = io::Error::from_raw_os_error(libc::EBUSY);
        for group in GROUPS {
            let configuration: Vec<ConfigNla> = vec![
                ConfigCmd::Bind.into(),
                ConfigMode::new_packet(SNAPLEN).into(),
                ConfigFlags::SEQ.into(),
                ConfigNla::NlBufSiz(RECORD_BUFFER),
                ConfigNla::QThresh(1),
                Timeout::new(1).into(),
            ];
            match channel.request(config_request(NetfilterProtoFamily::Unspec, group, configuration)) {
                Ok(()) => {
                    channel.make_room(bytes)?;
                    return Ok(NfLog { channel, run: run.to_owned(), group, sequence: Sequence::default() });
                }
                // A group that another socket has bound is EPERM.
                Err(FirewallError::Refused { source, .. })
                    if matches!(source.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) =>
                {
                    refusal = source;
                }
                Err(e) => return Err(e),
            }
        }
        Err(FirewallError::NoLogGroup { first: *GROUPS.start(), last: *GROUPS.end(), source: refusal })
    }

    /// The group's number, for the rules that log to it.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Hands every waiting record to `take`, without blocking.
    ///
    /// # Errors
    /// [`FirewallError::Socket`] when the socket is of no use any more. Loss is no error.
    pub fn drain(&mut self, take: impl FnMut(Logged)) -> Result<Drained, FirewallError> {
        self.drain_some(usize::MAX, take)
    }

    /// [`NfLog::drain`], but no more than `most` messages: whoever sends faster than they are read must not hold the reader.
    ///
    /// # Errors
    /// As [`NfLog::drain`].
    pub fn drain_some(&mut self, most: usize, mut take: impl FnMut(Logged)) -> Result<Drained, FirewallError> {
        let mut drained = Drained::default();
        for _ in 0..most {
            let bytes = match self.channel.receive_bytes() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(drained),
                Err(FirewallError::Socket { source, .. }) if source.raw_os_error() == Some(libc::ENOBUFS) => {
                    drained.lost += self.sequence.overrun();
                    continue;
                }
                // No record is as large as the room for it; what it was, it shows as a hole in the numbers.
                Err(FirewallError::Malformed { .. }) => continue,
                Err(e) => return Err(e),
            };
            for attributes in datagram(&bytes).filter_map(Result::ok).filter_map(record) {
                let number = attributes.iter().find_map(|a| if let PacketNla::Seq(n) = a { Some(*n) } else { None });
                drained.lost += number.map_or(0, |number| self.sequence.seen(number));
                match logged(&self.run, &attributes) {
                    Some(logged) => {
                        drained.records += 1;
                        take(logged);
                    }
                    None => drained.foreign += 1,
                }
            }
        }
        drained.more = true;
        Ok(drained)
    }
}

/// The attributes of a message that is a record.
fn record(message: &[u8]) -> Option<Vec<PacketNla>> {
    match NetlinkMessage::<NetfilterMessage>::deserialize(message).ok()?.payload {
        NetlinkPayload::InnerMessage(NetfilterMessage {
            inner: NetfilterMessageInner::ULog(ULogMessage::Packet(attributes)),
            ..
        }) => Some(attributes),
        _ => None,
    }
}

/// The refusal that a record of `run` tells of; its log prefix is `RUN RULE`.
fn logged(run: &str, attributes: &[PacketNla]) -> Option<Logged> {
    let (mut rule, mut uid, mut packet) = (None, None, None);
    for attribute in attributes {
        match attribute {
            PacketNla::Prefix(prefix) => {
                let name = prefix.to_str().ok()?.strip_prefix(run)?.strip_prefix(' ')?;
                rule = RULES.into_iter().find(|rule| *rule == name);
            }
            PacketNla::Uid(opener) => uid = Some(*opener),
            PacketNla::Payload(bytes) => packet = Packet::parse(bytes),
            _ => {}
        }
    }
    Some(Logged { rule: rule?.to_owned(), uid, packet })
}

/// The numbers of a group's records: from 0, one more for each, whether it could be delivered or not.
#[derive(Debug, Default)]
struct Sequence {
    next: u32,
    /// Losses that were reported before the numbers showed them.
    ahead: u64,
}

impl Sequence {
    /// Takes a record's number; returns how many records before it are newly known to be lost.
    fn seen(&mut self, number: u32) -> u64 {
        let hole = u64::from(number.wrapping_sub(self.next));
        self.next = number.wrapping_add(1);
        if hole == 0 {
            // What was queued before the overrun comes first and shows no hole yet.
            return 0;
        }
        let new = hole.saturating_sub(self.ahead);
        self.ahead = 0;
        new
    }

    /// The kernel has said that it dropped something.
    fn overrun(&mut self) -> u64 {
        let new = u64::from(self.ahead == 0);
        self.ahead += new;
        new
    }
}

impl Logged {
    /// The denial that this packet's refusal is. Its subject is known by uid only.
    pub fn into_denial(self) -> Denial {
        let control_plane = self.rule == "control-plane";
        let axis = if control_plane { Axis::Privilege } else { Axis::Network };
        let reason = match self.rule.as_str() {
            "control-plane" => "control_plane",
            "dns" => "resolver",
            "metadata" | "private-range" => "denied_address",
            _ => "not_allowed",
        };
        let (operation, object) = match &self.packet {
            Some(packet) => {
                (packet.operation(), Object { port: packet.dport, addrs: vec![packet.dst], ..Object::default() })
            }
            None => ("ip".to_owned(), Object::default()),
        };
        let mut denial = Denial::observed(axis, Mechanism::Firewall, &operation, object, &self.rule, reason);
        denial.errno = match operation.as_str() {
            "tcp" => Some("ECONNREFUSED".to_owned()),
            "udp" | "icmp" => Some("EPERM".to_owned()),
            // An ICMPv6 echo socket loses the error (ping_v6_sendmsg, seen on 6.18) where a raw one passes it on.
            _ => None,
        };
        denial.subject = Subject { uid: self.uid, ..Subject::default() };
        denial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_overruns_are_counted_once() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.seen(0), 0);
        assert_eq!(sequence.overrun(), 1);
        assert_eq!(sequence.overrun(), 0, "a second notice before the numbers tell");
        assert_eq!(sequence.seen(1), 0, "queued before the overrun");
        assert_eq!(sequence.seen(7), 4, "five are missing, one of which was said before");
        assert_eq!(sequence.seen(8), 0);
        assert_eq!(sequence.seen(10), 1);
    }

    #[test]
    fn the_first_record_shows_what_was_lost_before_it_and_numbers_wrap() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.seen(3), 3);
        let mut sequence = Sequence { next: u32::MAX, ahead: 0 };
        assert_eq!(sequence.seen(u32::MAX), 0);
        assert_eq!(sequence.seen(1), 1);
    }

    #[test]
    fn a_control_plane_refusal_is_of_the_privilege_axis() {
        let packet = Packet {
            protocol: 6,
            src: "127.0.0.1".parse().unwrap(),
            sport: Some(40000),
            dst: "127.0.0.1".parse().unwrap(),
            dport: Some(8500),
            icmp: None,
            sequence: None,
        };
        let denial = Logged { rule: "control-plane".into(), uid: Some(7), packet: Some(packet) }.into_denial();
        assert_eq!((denial.axis, denial.nist.as_slice()), (Axis::Privilege, &["AC-6".to_owned()][..]));
        assert_eq!((denial.operation.as_str(), denial.errno.as_deref()), ("tcp", Some("ECONNREFUSED")));
        assert_eq!((denial.object.port, denial.subject.uid), (Some(8500), Some(7)));
    }

    #[test]
    fn a_packet_that_cannot_be_read_is_still_a_denial() {
        let denial = Logged { rule: "default-deny".into(), uid: None, packet: None }.into_denial();
        assert_eq!((denial.axis, denial.operation.as_str()), (Axis::Network, "ip"));
    }
}
