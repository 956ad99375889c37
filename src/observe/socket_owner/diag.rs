//! The kernel's socket monitor (sock_diag(7), linux/inet_diag.h).

use super::{Flow, Row, TCP};
use crate::install::firewall::datagram;
use crate::install::firewall::rules::LO;
use crate::sys;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use nix::errno::Errno;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
/// TCP_LISTEN, as a bit of `idiag_states`.
const LISTENING: u32 = 1 << 10;
const ALL_STATES: u32 = !0;
/// Room for one datagram (`NLMSG_GOODSIZE` and what recvmsg raises it to, af_netlink.c).
const DATAGRAM: usize = 32 * 1024;
/// Most datagrams of one answer.
const ANSWER_LIMIT: usize = 64;

/// A netlink socket to it.
#[derive(Debug)]
pub(super) struct Diag {
    socket: Socket,
    sequence: u32,
}

impl Diag {
    /// `None` where the kernel has no monitor for TCP: a look-up that finds nothing would look the same.
    pub(super) fn open() -> Option<Diag> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).ok()?;
        socket.bind_auto().ok()?;
        let mut diag = Diag { socket, sequence: 0 };
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 1);
        let listeners = Flow { protocol: TCP, local: nowhere, remote: SocketAddr::new(nowhere.ip(), 0) };
        diag.ask(listeners, libc::AF_INET, NLM_F_DUMP, LISTENING).ok()?;
        Some(diag)
    }

    /// By a socket of another network namespace.
    pub(super) fn of(socket: OwnedFd) -> Diag {
        Diag { socket: sys::netlink_socket(socket), sequence: 0 }
    }

    /// The sockets that may have a flow's local end: of a TCP flow the one, of a datagram all that share its port.
    pub(super) fn rows(&mut self, flow: Flow) -> Result<Vec<Row>, io::Error> {
        let family = if flow.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        if flow.protocol == TCP {
            return match self.ask(flow, family, 0, ALL_STATES) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
                answer => answer,
            };
        }
        let any = Flow { remote: SocketAddr::new(flow.remote.ip(), 0), ..flow };
        let mut rows = self.ask(any, family, NLM_F_DUMP, ALL_STATES)?;
        if family == libc::AF_INET {
            // A socket of IPv6 sends to mapped addresses too, and is listed with its own family only.
            rows.extend(self.ask(any, libc::AF_INET6, NLM_F_DUMP, ALL_STATES)?);
        }
        Ok(rows)
    }

    fn ask(&mut self, flow: Flow, family: i32, flags: u16, states: u32) -> Result<Vec<Row>, io::Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(flow, family, flags, states, self.sequence);
        self.socket.send_to(&request, &NetlinkAddr::new(0, 0), 0)?;
        let mut rows = Vec::new();
        for _ in 0..ANSWER_LIMIT {
            let mut bytes = Vec::with_capacity(DATAGRAM);
            // The kernel answers within send and within recv: there is nothing to wait for.
            let (length, from) = self.socket.recv_from(&mut bytes, libc::MSG_DONTWAIT | libc::MSG_TRUNC)?;
            if from.port_number() != 0 {
                continue;
            }
            if length > bytes.len() {
                return Err(Errno::EMSGSIZE.into());
            }
            for message in datagram(&bytes) {
                let message = message.map_err(|_| Errno::EBADMSG)?;
                match kind(message, self.sequence) {
                    Kind::Row(row) => rows.push(row),
                    Kind::Foreign => {}
                    Kind::Done => return Ok(rows),
                    Kind::Error(errno) => return Err(errno.into()),
                }
            }
            if flags & NLM_F_DUMP == 0 && !rows.is_empty() {
                return Ok(rows);
            }
        }
        Err(Errno::E2BIG.into())
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(flow: Flow, family: i32, flags: u16, states: u32, sequence: u32) -> Vec<u8> {
    const LENGTH: u32 = 16 + 56;
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([family as u8, flow.protocol, 0, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(flow.local.port().to_be_bytes());
    bytes.extend(flow.remote.port().to_be_bytes());
    bytes.extend(octets(flow.local.ip()));
    bytes.extend(octets(flow.remote.ip()));
    // A socket that is bound to a device is found by that one only, and others by any (inet_bound_dev_eq).
    let device = if flow.remote.ip().is_loopback() { LO } else { 0 };
    bytes.extend(device.to_ne_bytes());
    // INET_DIAG_NOCOOKIE, twice.
    bytes.extend([0xff; 8]);
    bytes
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
    }
}

enum Kind {
    Row(Row),
    Done,
    Error(Errno),
    Foreign,
}

fn kind(message: &[u8], sequence: u32) -> Kind {
    let half = |at: usize| message.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]));
    let word = |at: usize| message.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    if word(8) != sequence {
        return Kind::Foreign;
    }
    // Both ends of an answer may carry an error, as a negative number or 0.
    let errno = (word(16) as i32).wrapping_neg();
    match half(4) {
        NLMSG_ERROR => Kind::Error(Errno::from_raw(errno)),
        NLMSG_DONE if errno > 0 => Kind::Error(Errno::from_raw(errno)),
        NLMSG_DONE => Kind::Done,
        SOCK_DIAG_BY_FAMILY => row(message.get(16..).unwrap_or_default()).map_or(Kind::Foreign, Kind::Row),
        _ => Kind::Foreign,
    }
}

/// The socket that a `struct inet_diag_msg` describes.
pub fn row(bytes: &[u8]) -> Option<Row> {
    let fixed: &[u8; 72] = bytes.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let ip = |at: usize| -> Option<IpAddr> {
        let field: [u8; 16] = *fixed[at..].first_chunk()?;
        match i32::from(fixed[0]) {
            libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::new(field[0], field[1], field[2], field[3]))),
            libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(field))),
            _ => None,
        }
    };
    Some(Row {
        local: SocketAddr::new(ip(8)?, port(4)),
        remote: SocketAddr::new(ip(24)?, port(6)),
        inode: u64::from(u32::from_ne_bytes(*fixed[68..].first_chunk()?)),
    })
}
