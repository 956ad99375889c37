//! What arrives from the box at the outside's end of the link, whether anything listens for it or not.

use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use crate::network::OUTSIDE_LINK;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// One IP packet from the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where it says it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// The IP protocol number: 6 is TCP, 17 UDP, 1 ICMP, 58 ICMPv6.
    pub protocol: u8,
    /// The source port of TCP and UDP.
    pub source_port: Option<u16>,
    /// The destination port of TCP and UDP.
    pub destination_port: Option<u16>,
    /// The message type of ICMP and ICMPv6.
    pub icmp_type: Option<u8>,
}

impl Packet {
    /// Whether it is what a kernel itself says on a link: IPv6's neighbour discovery (types 133 to 137) and multicast
    /// listener reports (130 to 132, 143, behind hop-by-hop options), and IPv4's group membership reports (IGMP, 2).
    pub fn is_link_chatter(&self) -> bool {
        match self.protocol {
            0 | 2 => true,
            58 => self.icmp_type.is_some_and(|kind| matches!(kind, 130..=137 | 143)),
            _ => false,
        }
    }
}

/// The datagram that marks a point in the stream of packets; everything sent before it has been seen when it is.
const MARK: &[u8] = b"world mark ";
/// `PACKET_OUTGOING` of packet(7): sent by the outside itself. Everything else has come from the box, to one host, to a
/// group, or to all.
const PACKET_OUTGOING: u8 = 4;

#[derive(Default)]
struct Seen {
    packets: Mutex<(Vec<Packet>, u64)>,
    marked: Condvar,
}

/// The packets that have come over the link.
pub struct Capture {
    seen: Arc<Seen>,
    next_mark: AtomicU64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Starts to listen on the outside's end of the link.
    ///
    /// # Errors
    /// No packet socket (packet(7)) could be opened.
    pub(crate) fn start(outside: &Namespace) -> Result<Capture, Error> {
        let (fd, link) = outside.run(|| -> Result<_, Error> {
            let fd = socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
                .doing("socket(AF_PACKET)")?;
            setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).doing("setsockopt(SO_RCVTIMEO)")?;
            setsockopt(&fd, sockopt::RcvBufForce, &(32 << 20)).doing("setsockopt(SO_RCVBUFFORCE)")?;
            Ok((fd, nix::net::if_::if_nametoindex(OUTSIDE_LINK).doing("if_nametoindex")?))
        })?;
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let thread = thread::Builder::new()
            .name("capture".to_owned())
            .spawn({
                let (seen, stop) = (seen.clone(), stop.clone());
                move || {
                    let mut bytes = vec![0; 65_536];
                    while !stop.load(Ordering::Relaxed) {
                        // A timeout is the moment to look at `stop`; ENETDOWN comes once when the link goes up.
                        let Ok((length, Some(from))) = recvfrom::<LinkAddr>(fd.as_raw_fd(), &mut bytes) else {
                            continue;
                        };
                        if from.ifindex() == link as usize && from.pkttype() != PACKET_OUTGOING {
                            note(&seen, &bytes[..length]);
                        }
                    }
                }
            })
            .doing("start a thread")?;
        Ok(Capture { seen, next_mark: AtomicU64::new(1), stop, thread: Some(thread) })
    }

    /// The packets seen so far.
    pub(crate) fn packets(&self) -> Vec<Packet> {
        self.seen.packets.lock().expect("no panic while held").0.clone()
    }

    /// A new mark: its number, and the datagram to send.
    pub(crate) fn mark(&self) -> (u64, Vec<u8>) {
        let number = self.next_mark.fetch_add(1, Ordering::Relaxed);
        let mut datagram = MARK.to_vec();
        datagram.extend_from_slice(&number.to_be_bytes());
        (number, datagram)
    }

    /// Waits until mark `number` has come by; false after `timeout`.
    pub(crate) fn wait_for(&self, number: u64, timeout: Duration) -> bool {
        let guard = self.seen.packets.lock().expect("no panic while held");
        let (guard, _) =
            self.seen.marked.wait_timeout_while(guard, timeout, |seen| seen.1 < number).expect("no panic while held");
        guard.1 >= number
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the capture ends without a panic");
        }
    }
}

fn note(seen: &Seen, bytes: &[u8]) {
    let Some((packet, payload)) = parse(bytes) else {
        return;
    };
    let mut held = seen.packets.lock().expect("no panic while held");
    match payload.strip_prefix(MARK).and_then(|rest| rest.try_into().ok()) {
        Some(number) => {
            held.1 = held.1.max(u64::from_be_bytes(number));
            seen.marked.notify_all();
        }
        None => held.0.push(packet),
    }
}

/// Reads an IP packet's addresses and ports; the payload is a UDP datagram's, else empty.
fn parse(bytes: &[u8]) -> Option<(Packet, &[u8])> {
    let (source, destination, protocol, transport): (IpAddr, IpAddr, u8, &[u8]) = match bytes.first()? >> 4 {
        4 => {
            let header = usize::from(bytes[0] & 15) * 4;
            let address = |at: usize| {
                let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
                Some(IpAddr::V4(Ipv4Addr::from(octets)))
            };
            (address(12)?, address(16)?, *bytes.get(9)?, bytes.get(header..)?)
        }
        6 => {
            let address = |at: usize| {
                let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(octets)))
            };
            (address(8)?, address(24)?, *bytes.get(6)?, bytes.get(40..)?)
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(transport.get(at..at + 2)?.try_into().ok()?));
    let (source_port, destination_port) = if matches!(protocol, 6 | 17) { (port(0), port(2)) } else { (None, None) };
    let icmp_type = if matches!(protocol, 1 | 58) { transport.first().copied() } else { None };
    let payload = if protocol == 17 { transport.get(8..).unwrap_or_default() } else { &[] };
    Some((Packet { source, destination, protocol, source_port, destination_port, icmp_type }, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_datagram_is_read() {
        let mut bytes = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 11, 22, 33, 2, 10, 0, 0, 5];
        bytes.extend_from_slice(&[0x30, 0x39, 0, 53, 0, 10, 0, 0, b'h', b'i']);
        let (packet, payload) = parse(&bytes).expect("well formed");
        assert_eq!(packet.destination, IpAddr::from([10, 0, 0, 5]));
        assert_eq!((packet.source_port, packet.destination_port), (Some(12345), Some(53)));
        assert_eq!(payload, b"hi");
    }

    #[test]
    fn a_truncated_packet_is_none() {
        assert_eq!(parse(&[0x45, 0, 0]), None);
        assert_eq!(parse(&[0x60; 20]), None);
        assert_eq!(parse(&[]), None);
    }
}
