//! nftables expressions: how a rule of ours is spelled for the kernel, and how one that the kernel holds is compared
//! with it (linux/netfilter/nf_tables.h; the attribute names are the header's).
//!
//! What netlink-packet-netfilter has no type for (counter, ct, log, reject) is spelled here attribute by attribute.

use crate::mutation;
use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute, Meta, MetaKey, Operator,
    Payload, Register, Verdict, VerdictAttribute,
};
use std::net::{IpAddr, SocketAddr};

const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_DIRECTION: u32 = 1;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFTA_LOG_GROUP: u16 = 1;
const NFTA_LOG_PREFIX: u16 = 2;
const NFTA_LOG_SNAPLEN: u16 = 3;
const NFTA_NAT_TYPE: u16 = 1;
const NFTA_NAT_FAMILY: u16 = 2;
/// Least and most of the addresses, then of the ports: which registers they are in.
const NFTA_NAT_REGISTERS: [u16; 4] = [3, 4, 5, 6];
const NFTA_NAT_FLAGS: u16 = 7;
const NFT_NAT_DNAT: u32 = 1;
/// NF_NAT_RANGE_MAP_IPS and NF_NAT_RANGE_PROTO_SPECIFIED: what the kernel adds of its own to a rule with both registers.
const NF_NAT_RANGE: u32 = 1 | 2;
const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;
const NFT_REJECT_TCP_RST: u32 = 1;
const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1;

/// Bytes of a refused packet that are logged: both headers with room for options and extension headers.
pub(crate) const SNAPLEN: u32 = 128;

/// Which address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

/// One rule, built from left to right as it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Rule {
    expressions: Vec<Expressions>,
}

impl Rule {
    /// A rule without conditions.
    pub(super) fn any() -> Rule {
        Rule::default()
    }

    /// `meta KEY VALUE`; `value` in the register's own form.
    pub(super) fn meta(mut self, key: MetaKey, value: &[u8]) -> Rule {
        self.push(Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(key)]));
        self.compare(Operator::Equal, value)
    }

    /// `meta skuid UID`: the socket's file was opened by this uid.
    pub(super) fn opened_by(self, uid: u32) -> Rule {
        self.meta(MetaKey::SocketUserId, &uid.to_ne_bytes())
    }

    /// `meta skuid != UID`. A packet without an opener matches neither this nor [`Rule::opened_by`].
    fn not_opened_by(mut self, uid: u32) -> Rule {
        self.push(Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(MetaKey::SocketUserId)]));
        self.compare(Operator::NotEqual, &uid.to_ne_bytes())
    }

    /// `meta skuid != { UID, 0 }`: the rule holds whoever is neither this uid nor root.
    pub(super) fn of_others(self, uid: u32) -> Rule {
        self.not_opened_by(uid).not_opened_by(0)
    }

    /// `meta l4proto N`.
    pub(super) fn protocol(self, number: u8) -> Rule {
        self.meta(MetaKey::L4Proto, &[number])
    }

    /// `ct state established ct direction reply`.
    pub(super) fn reply(mut self) -> Rule {
        // NF_CT_STATE_BIT(IP_CT_ESTABLISHED); the register holds one bit, in the host's byte order.
        for (key, value) in [(NFT_CT_STATE, &2u32.to_ne_bytes()[..]), (NFT_CT_DIRECTION, &[1])] {
            self.push(other(
                "ct",
                vec![
                    DefaultNla::new(NFTA_CT_DREG, u32::from(Register::Reg1).to_be_bytes().to_vec()),
                    DefaultNla::new(NFTA_CT_KEY, key.to_be_bytes().to_vec()),
                ],
            ));
            self = self.compare(Operator::Equal, value);
        }
        self
    }

    /// `meta nfproto 4|6`, then `ip[6] saddr|daddr NET`.
    pub(super) fn address(mut self, side: Side, net: IpNet) -> Rule {
        let source = side == Side::Source;
        let (nfproto, offset, mask, network) = match net {
            IpNet::V4(net) => (
                libc::NFPROTO_IPV4,
                if source { 12 } else { 16 },
                net.netmask().octets().to_vec(),
                net.network().octets().to_vec(),
            ),
            IpNet::V6(net) => (
                libc::NFPROTO_IPV6,
                if source { 8 } else { 24 },
                net.netmask().octets().to_vec(),
                net.network().octets().to_vec(),
            ),
        };
        self = self.meta(MetaKey::Nfproto, &[nfproto as u8]);
        self.load(NFT_PAYLOAD_NETWORK_HEADER, offset, network.len() as u32);
        if net.prefix_len() < net.max_prefix_len() {
            self.mask(&mask);
        }
        self.compare(Operator::Equal, &network)
    }

    /// A header of `family` whose byte `offset`, masked, relates to `value` as `operator` says.
    pub(super) fn header_byte(mut self, family: i32, offset: u32, mask: u8, operator: Operator, value: u8) -> Rule {
        self = self.meta(MetaKey::Nfproto, &[family as u8]);
        self.load(NFT_PAYLOAD_NETWORK_HEADER, offset, 1);
        if mask != 0xff {
            self.mask(&[mask]);
        }
        self.compare(operator, &[value])
    }

    /// A packet of this protocol without options in its IPv4 header, and without another header between its IPv6 header and
    /// that of the protocol: nothing in it names further hops.
    pub(super) fn plainly(self, ip: IpAddr, protocol: u8) -> Rule {
        const NEXT_HEADER: u32 = 6;
        const WORDS_WITHOUT_OPTIONS: u8 = 5;
        let rule = match ip {
            IpAddr::V4(_) => self.header_byte(libc::NFPROTO_IPV4, 0, 0x0f, Operator::Equal, WORDS_WITHOUT_OPTIONS),
            IpAddr::V6(_) => self.header_byte(libc::NFPROTO_IPV6, NEXT_HEADER, 0xff, Operator::Equal, protocol),
        };
        rule.protocol(protocol)
    }

    /// A transport header whose byte `offset`, masked, relates to `value` as `operator` says; the caller has made sure of
    /// the protocol.
    pub(super) fn transport_byte(mut self, offset: u32, mask: u8, operator: Operator, value: u8) -> Rule {
        self.load(NFT_PAYLOAD_TRANSPORT_HEADER, offset, 1);
        self.mask(&[mask]);
        self.compare(operator, &[value])
    }

    /// `th dport PORT`; the caller has made sure that the protocol has ports.
    pub(super) fn port(mut self, port: u16) -> Rule {
        self.load(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
        self.compare(Operator::Equal, &port.to_be_bytes())
    }

    /// `counter log group GROUP prefix "RUN RULE" snaplen 128`.
    pub(super) fn recorded(mut self, run: &str, rule: &str, group: u16) -> Rule {
        self.push(other("counter", Vec::new()));
        if mutation::left_out("firewall-log") {
            return self;
        }
        let mut prefix = format!("{run} {rule}").into_bytes();
        prefix.push(0);
        self.push(other(
            "log",
            vec![
                DefaultNla::new(NFTA_LOG_GROUP, group.to_be_bytes().to_vec()),
                DefaultNla::new(NFTA_LOG_PREFIX, prefix),
                DefaultNla::new(NFTA_LOG_SNAPLEN, SNAPLEN.to_be_bytes().to_vec()),
            ],
        ));
        self
    }

    /// `meta l4proto tcp reject with tcp reset`.
    pub(super) fn reset(self) -> Rule {
        let mut rule = self.protocol(libc::IPPROTO_TCP as u8);
        let kind = DefaultNla::new(NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST.to_be_bytes().to_vec());
        rule.push(other("reject", vec![kind]));
        rule
    }

    /// `reject with icmpx port-unreachable`.
    pub(super) fn unreachable(mut self) -> Rule {
        self.push(other(
            "reject",
            vec![
                DefaultNla::new(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH.to_be_bytes().to_vec()),
                DefaultNla::new(NFTA_REJECT_ICMP_CODE, vec![NFT_REJECT_ICMPX_PORT_UNREACH]),
            ],
        ));
        self
    }

    /// `dnat ip|ip6 to ADDRESS:PORT`, in a chain of type `nat`.
    pub(super) fn lead_to(mut self, to: SocketAddr) -> Rule {
        let (family, address) = match to.ip() {
            IpAddr::V4(v4) => (libc::NFPROTO_IPV4, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::NFPROTO_IPV6, v6.octets().to_vec()),
        };
        let registers = [(Register::Reg1, address), (Register::Reg2, to.port().to_be_bytes().to_vec())];
        for (register, value) in registers {
            let data = Immediate::Data(DataAttribute::Value(value));
            self.push(Expressions::Immediate(vec![Immediate::DestinationRegister(register), data]));
        }
        // The kernel tells the most as well, where it is the least.
        let numbers = [Register::Reg1, Register::Reg1, Register::Reg2, Register::Reg2].map(u32::from);
        let registers = NFTA_NAT_REGISTERS.into_iter().zip(numbers);
        let what = [(NFTA_NAT_TYPE, NFT_NAT_DNAT), (NFTA_NAT_FAMILY, family as u32), (NFTA_NAT_FLAGS, NF_NAT_RANGE)];
        let all = what.into_iter().chain(registers);
        self.push(other("nat", all.map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).collect()));
        self
    }

    /// `accept`.
    pub(super) fn accept(self) -> Rule {
        self.verdict(Verdict::Other(libc::NF_ACCEPT as u32), None)
    }

    /// `drop`.
    pub(super) fn discard(self) -> Rule {
        self.verdict(Verdict::Other(libc::NF_DROP as u32), None)
    }

    /// `return`.
    pub(super) fn back(self) -> Rule {
        self.verdict(Verdict::Return, None)
    }

    /// `jump CHAIN`.
    pub(super) fn jump(self, chain: &str) -> Rule {
        self.verdict(Verdict::Jump, Some(chain))
    }

    /// `goto CHAIN`.
    pub(super) fn goto(self, chain: &str) -> Rule {
        self.verdict(Verdict::Goto, Some(chain))
    }

    /// The rule as `NFTA_RULE_EXPRESSIONS` holds it.
    pub(super) fn attributes(&self) -> Vec<ListAttribute<ExpressionAttribute>> {
        self.expressions.iter().cloned().map(ListAttribute::from).collect()
    }

    fn push(&mut self, expression: Expressions) {
        self.expressions.push(expression);
    }

    fn load(&mut self, base: u32, offset: u32, length: u32) {
        self.push(Expressions::Payload(vec![
            Payload::DestinationRegister(Register::Reg1),
            Payload::Base(base),
            Payload::Offset(offset),
            Payload::Len(length),
        ]));
    }

    fn mask(&mut self, mask: &[u8]) {
        self.push(Expressions::Bitwise(vec![
            Bitwise::SourceRegister(Register::Reg1),
            Bitwise::DestinationRegister(Register::Reg1),
            Bitwise::Length(mask.len() as u32),
            Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
            Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
            // NFT_BITWISE_MASK_XOR, which the kernel says of its own since 5.6.
            Bitwise::Op(0),
        ]));
    }

    fn compare(mut self, operator: Operator, value: &[u8]) -> Rule {
        self.push(Expressions::Cmp(vec![
            Cmp::SourceRegister(Register::Reg1),
            Cmp::Op(operator),
            Cmp::Data(DataAttribute::Value(value.to_vec())),
        ]));
        self
    }

    fn verdict(mut self, verdict: Verdict, chain: Option<&str>) -> Rule {
        let mut attributes = vec![VerdictAttribute::Code(verdict)];
        attributes.extend(chain.map(|name| VerdictAttribute::Chain(name.to_owned())));
        self.push(Expressions::Immediate(vec![
            Immediate::DestinationRegister(Register::Verdict),
            Immediate::Data(DataAttribute::Verdict(attributes)),
        ]));
        self
    }
}

/// A single address as a network.
pub(super) fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

fn other(name: &str, attributes: Vec<DefaultNla>) -> Expressions {
    Expressions::Other { expression_type: name.to_owned(), attributes }
}

/// The bytes of a rule's expressions, to see what a batch weighs.
#[cfg(test)]
pub(super) fn weight(rule: &Rule) -> usize {
    netlink_packet_core::Emitable::buffer_len(&rule.attributes().as_slice())
}
