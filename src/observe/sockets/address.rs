//! Socket addresses as calls on sockets of the inet families take them.

use super::held::Kind;
use super::rules::Transport;
use crate::install::firewall::rules::LO;
use nix::libc;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where a call on a socket of the inet families is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To an address, with the bytes by which the kernel is told, which are ours.
    To(SocketAddr, Vec<u8>),
    /// Nowhere: AF_UNSPEC.
    Nowhere,
    /// It is no address that such a socket takes: EINVAL or EAFNOSUPPORT.
    Malformed,
}

/// The least size of `struct sockaddr_in6`, without its scope (SIN6_LEN_RFC2133).
const IN6_LEAST: usize = 24;
const IN_SIZE: usize = 16;

/// What connect(2) is told (`is_send` false), or a send with an address: the family of the address is not always asked for
/// (ip(7), udp_sendmsg).
pub fn destination(kind: Kind, bytes: &[u8], is_send: bool) -> Destination {
    let family = bytes.first_chunk().map(|family| i32::from(u16::from_ne_bytes(*family)));
    let Kind::Inet(transport, is_v6) = kind else { return Destination::Malformed };
    match (family, is_v6) {
        // To a datagram socket of IPv4 an address without a family is one of IPv4 where it sends.
        (Some(libc::AF_UNSPEC), false) if is_send && transport == Transport::Udp => v4(bytes),
        (Some(libc::AF_UNSPEC), _) => Destination::Nowhere,
        (Some(libc::AF_INET), false) => v4(bytes),
        // TCP of IPv6 takes its own addresses only.
        (Some(libc::AF_INET), true) if transport == Transport::Udp => v4(bytes),
        (Some(libc::AF_INET6), true) => v6(bytes),
        _ => Destination::Malformed,
    }
}

fn v4(bytes: &[u8]) -> Destination {
    let Some([_, _, p, q, a, b, c, d, ..]) = bytes.get(..IN_SIZE) else { return Destination::Malformed };
    let to = SocketAddr::new(Ipv4Addr::new(*a, *b, *c, *d).into(), u16::from_be_bytes([*p, *q]));
    Destination::To(to, of(to, 0, 0))
}

fn v6(bytes: &[u8]) -> Destination {
    let (Some(head), Some(ip)) = (bytes.first_chunk::<8>(), bytes.get(8..).and_then(|rest| rest.first_chunk::<16>()))
    else {
        return Destination::Malformed;
    };
    let to = SocketAddr::new(Ipv6Addr::from(*ip).into(), u16::from_be_bytes([head[2], head[3]]));
    let flow = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let scope =
        bytes.get(IN6_LEAST..).and_then(|rest| rest.first_chunk()).map_or(0, |scope| u32::from_ne_bytes(*scope));
    Destination::To(to, of(to, flow, scope))
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
pub fn of(address: SocketAddr, flow: u32, scope: u32) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&(libc::AF_INET as u16).to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => {
            [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &port, &flow.to_be_bytes(), &ip.octets(), &scope.to_ne_bytes()]
                .concat()
        }
    }
}

/// An address as a socket of that kind takes and tells it: one of IPv4 is mapped for a socket of IPv6 (RFC 4291, 2.5.5.2).
pub fn on(kind: Kind, address: SocketAddr) -> Vec<u8> {
    let ip = match (kind, address.ip().to_canonical()) {
        (Kind::Inet(_, true), IpAddr::V4(v4)) => v4.to_ipv6_mapped().into(),
        (_, plain) => plain,
    };
    of(SocketAddr::new(ip, address.port()), 0, 0)
}

/// Whether bind(2) to an address would bind the socket to a device other than `lo` by its scope, which it does without any
/// privilege (ipv6(7), __inet6_bind).
pub fn names_device(kind: Kind, bytes: &[u8]) -> bool {
    let scoped = match destination(kind, bytes, false) {
        Destination::To(to, ours) if to.is_ipv6() => ours.get(IN6_LEAST..).map(<[u8]>::to_vec),
        _ => None,
    };
    scoped.is_some_and(|scope| scope != 0u32.to_ne_bytes() && scope != LO.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP4: Kind = Kind::Inet(Transport::Tcp, false);
    const UDP4: Kind = Kind::Inet(Transport::Udp, false);
    const UDP6: Kind = Kind::Inet(Transport::Udp, true);
    const TCP6: Kind = Kind::Inet(Transport::Tcp, true);

    fn to(kind: Kind, bytes: &[u8], is_send: bool) -> Option<SocketAddr> {
        match destination(kind, bytes, is_send) {
            Destination::To(to, _) => Some(to),
            Destination::Nowhere | Destination::Malformed => None,
        }
    }

    #[test]
    fn an_address_is_read_as_the_socket_reads_it() {
        let four: SocketAddr = "11.22.33.44:80".parse().unwrap();
        let six: SocketAddr = "[2a00:1:2:3::10]:80".parse().unwrap();
        let (bytes4, bytes6) = (of(four, 0, 0), of(six, 7, 3));
        assert_eq!([TCP4, UDP4, UDP6].map(|kind| to(kind, &bytes4, false)), [Some(four); 3]);
        assert_eq!([TCP6, UDP6].map(|kind| to(kind, &bytes6, true)), [Some(six); 2]);
        assert_eq!(destination(UDP6, &bytes6, true), Destination::To(six, bytes6.clone()), "flow and scope stay");
        assert_eq!(destination(TCP6, &bytes4, false), Destination::Malformed);
        assert_eq!(destination(TCP4, &bytes6, false), Destination::Malformed);
        assert_eq!(destination(TCP4, &bytes4[..8], false), Destination::Malformed);
        assert_eq!(to(TCP6, &bytes6[..24], false), Some(six), "without a scope");
        // Without a family.
        let bare = [&[0, 0], &bytes4[2..]].concat();
        assert_eq!(to(UDP4, &bare, true), Some(four), "a datagram goes there");
        for (kind, is_send) in [(UDP4, false), (TCP4, false), (UDP6, true), (TCP6, false)] {
            assert_eq!(destination(kind, &bare, is_send), Destination::Nowhere, "{kind:?} {is_send}");
        }
    }

    #[test]
    fn a_scope_names_a_device() {
        let local: SocketAddr = "[fe80::1]:80".parse().unwrap();
        assert!(names_device(TCP6, &of(local, 0, 2)));
        assert!(!names_device(TCP6, &of(local, 0, 0)));
        assert!(!names_device(TCP6, &of(local, 0, LO)));
        assert!(!names_device(TCP4, &of("10.0.0.5:80".parse().unwrap(), 0, 0)));
    }
}
