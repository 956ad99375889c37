//! What a packet's first bytes say (RFC 791, RFC 8200). The bytes are the command's own making: every length in them
//! may be a lie, and the end may be anywhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet as far as its headers could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The transport protocol's number (IANA protocol numbers), behind any IPv6 extension headers.
    pub protocol: u8,
    /// The source address.
    pub src: IpAddr,
    /// The source port, where the protocol has ports and the bytes reach that far.
    pub sport: Option<u16>,
    /// The destination address.
    pub dst: IpAddr,
    /// The destination port, as `sport`.
    pub dport: Option<u16>,
    /// Type and code of an ICMP or ICMPv6 message.
    pub icmp: Option<(u8, u8)>,
    /// The sequence number of a TCP segment (RFC 9293, 3.1).
    pub sequence: Option<u32>,
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

impl Packet {
    /// Reads an IP packet of which `bytes` are the beginning. `None` when both addresses are not there.
    pub fn parse(bytes: &[u8]) -> Option<Packet> {
        match bytes.first()? >> 4 {
            4 => Packet::v4(bytes),
            6 => Packet::v6(bytes),
            _ => None,
        }
    }

    /// The operation as a record names it: `tcp`, `udp`, `icmp`, `icmpv6`, or `ip-proto-N`.
    pub fn operation(&self) -> String {
        match self.protocol {
            TCP => "tcp".to_owned(),
            UDP => "udp".to_owned(),
            ICMP => "icmp".to_owned(),
            ICMPV6 => "icmpv6".to_owned(),
            other => format!("ip-proto-{other}"),
        }
    }

    fn v4(bytes: &[u8]) -> Option<Packet> {
        let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?)));
        let (src, dst) = (address(12)?, address(16)?);
        let length = usize::from(bytes[0] & 0x0f) * 4;
        let fragment = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff;
        // A header shorter than its fixed part, or a later fragment, has no transport header behind it.
        let transport = bytes.get(length..).filter(|_| length >= 20 && fragment == 0);
        Some(Packet::of(bytes[9], src, dst, transport))
    }

    fn v6(bytes: &[u8]) -> Option<Packet> {
        let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?)));
        let (src, dst) = (address(8)?, address(24)?);
        let mut protocol = bytes[6];
        let mut rest = bytes.get(40..);
        // Every header is at least eight bytes long, so the bytes run out.
        while let Some(header) = rest {
            let Some([next, length, field @ ..]) = header.first_chunk::<4>() else {
                break;
            };
            let length = match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HOST_IDENTITY | SHIM6 => {
                    (usize::from(*length) + 1) * 8
                }
                AUTHENTICATION => ((usize::from(*length) + 2) * 4).max(8),
                FRAGMENT => 8,
                _ => break,
            };
            let later_fragment = protocol == FRAGMENT && u16::from_be_bytes(*field) >> 3 != 0;
            protocol = *next;
            rest = header.get(length..).filter(|_| !later_fragment);
        }
        Some(Packet::of(protocol, src, dst, rest))
    }

    fn of(protocol: u8, src: IpAddr, dst: IpAddr, transport: Option<&[u8]>) -> Packet {
        let first = transport.and_then(|t| t.first_chunk::<4>());
        let ports = first.filter(|_| matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE));
        Packet {
            protocol,
            src,
            sport: ports.map(|b| u16::from_be_bytes([b[0], b[1]])),
            dst,
            dport: ports.map(|b| u16::from_be_bytes([b[2], b[3]])),
            icmp: first.filter(|_| matches!(protocol, ICMP | ICMPV6)).map(|b| (b[0], b[1])),
            sequence: transport
                .filter(|_| protocol == TCP)
                .and_then(|t| t.get(4..)?.first_chunk().copied())
                .map(u32::from_be_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(words: u8, fragment: u16, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x40 | words, 0, 0, 0, 0, 0];
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 11, 22, 33, 44]);
        bytes.extend(rest);
        bytes
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        bytes.extend("2a00:1:2:3::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend("2a00:1:2:3::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend(rest);
        bytes
    }

    const PORTS: [u8; 4] = [0x9c, 0x40, 0x01, 0xbb];

    #[test]
    fn ports_are_found_behind_ipv4_options() {
        let options = [1u8, 1, 1, 0].iter().chain(&PORTS).copied().collect::<Vec<_>>();
        let packet = Packet::parse(&v4(6, 0, TCP, &options)).unwrap();
        assert_eq!((packet.sport, packet.dport), (Some(40000), Some(443)));
        assert_eq!(packet.dst, "11.22.33.44".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_later_fragment_and_a_short_header_have_no_ports() {
        for bytes in [v4(5, 1, UDP, &PORTS), v4(4, 0, UDP, &PORTS), v4(15, 0, UDP, &PORTS)] {
            assert_eq!(Packet::parse(&bytes).unwrap().dport, None);
        }
    }

    #[test]
    fn ports_are_found_behind_ipv6_extension_headers() {
        let mut rest = vec![ROUTING, 0, 0, 0, 0, 0, 0, 0];
        rest.extend([FRAGMENT, 1]);
        rest.extend([0; 14]);
        rest.extend([UDP, 0, 0, 1, 0, 0, 0, 9]);
        rest.extend(PORTS);
        let packet = Packet::parse(&v6(HOP_BY_HOP, &rest)).unwrap();
        assert_eq!((packet.protocol, packet.dport), (UDP, Some(443)));
    }

    #[test]
    fn a_later_ipv6_fragment_has_no_ports() {
        let mut rest = vec![UDP, 0, 0, 8, 0, 0, 0, 9];
        rest.extend(PORTS);
        let packet = Packet::parse(&v6(FRAGMENT, &rest)).unwrap();
        assert_eq!((packet.protocol, packet.dport), (UDP, None));
    }

    #[test]
    fn icmp_has_a_type_and_other_protocols_have_a_number() {
        assert_eq!(Packet::parse(&v4(5, 0, ICMP, &[8, 0, 0, 0])).unwrap().icmp, Some((8, 0)));
        assert_eq!(Packet::parse(&v6(ICMPV6, &[128, 0, 0, 0])).unwrap().operation(), "icmpv6");
        assert_eq!(Packet::parse(&v4(5, 0, 47, &[])).unwrap().operation(), "ip-proto-47");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
            if let Some(packet) = Packet::parse(&bytes) {
                prop_assert!(bytes.len() >= 20);
                prop_assert_eq!(packet.sport.is_some(), packet.dport.is_some());
            }
        }

        #[test]
        fn any_chain_of_extension_headers_ends(
            next in any::<u8>(),
            headers in proptest::collection::vec((prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60), any::<u8>()], any::<u8>()), 0..30),
        ) {
            let rest: Vec<u8> = headers.iter().flat_map(|(next, length)| [*next, *length, 0, 0, 0, 0, 0, 0]).collect();
            let packet = Packet::parse(&v6(next, &rest)).unwrap();
            prop_assert_eq!(packet.dst, "2a00:1:2:3::2".parse::<IpAddr>().unwrap());
        }

        #[test]
        fn a_cut_packet_never_changes_what_it_says(cut in 20usize..24) {
            let whole = v4(5, 0, TCP, &PORTS);
            let packet = Packet::parse(&whole[..cut]).unwrap();
            prop_assert_eq!(packet.dport, None);
            prop_assert_eq!(packet.dst, Packet::parse(&whole).unwrap().dst);
        }
    }
}
