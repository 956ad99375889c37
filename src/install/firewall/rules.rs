//! What the wall says: the chains and rules of one run's table, as a pure function of what was asked.
//!
//! ```text
//! output, priority -190  early   what is caught ... accept            (where anything is)
//!                                meta skuid UID jump judge
//! output, priority -110  catch   what is caught ... dnat to the proxy (the same)
//! output, priority  300  late    to the proxy's ports from any uid but UID and 0 ... reset
//!                                to where what is caught is led ... accept
//!                                meta skuid UID jump judge
//! postrouting, prio 300  exit    meta skuid UID jump leaving      (egress restricted)
//!
//! judge       answers in conversations that others opened ............ accept
//!             control-plane ports .................................... control-plane
//!             (egress open: the proxies of other runs, which would carry to such ports: control-plane;
//!             the rest is accepted)
//!             IPv4 options, IPv6 extension headers ................... default-deny
//!             (but the one by which the kernel marks a large piece of a TCP stream)
//!             the proxy .............................................. accept
//!             the proxies of other runs, and what leads to them ...... default-deny
//!             DNS ports anywhere, the host's resolvers ............... dns
//!             metadata addresses ..................................... metadata
//!             over `lo`, between this machine's own addresses ........ as `loopback` says
//!             private and special-purpose ranges ..................... private-range
//!             everything else ........................................ default-deny
//! answer      IPv4, and from this machine's own IPv6 addresses ....... reject (reset, port-unreachable)
//!             any other source ....................................... drop
//! leaving     whatever leaves by a device other than `lo` and is no answer is dropped
//! ```
//!
//! `early` comes after connection tracking (-200) and before address translation (-100), so that Docker's and others'
//! rules can't turn a refused destination into an admitted one. `late` judges again what those rules made of an
//! admitted one.
//!
//! # Answers
//! `ct direction reply` alone would also hold for ICMP errors related to a conversation; `ct state established`
//! keeps those out. A packet that connection tracking was told to leave alone matches neither and is judged like any
//! other, so the failure is a refusal.
//!
//! A conversation is "opened by others" if its first packet was not the command's. The command could forge that:
//! `IPV6_FREEBIND` needs no privilege and lets a datagram carry any IPv6 source, so one sent over `lo` with the
//! source of a host outside would make the command's own next packets to that host an answer. Hence what is admitted
//! over `lo` must have one of this machine's addresses on both sides. With egress open nothing is admitted over `lo`
//! apart from the rest, and only TCP answers are accepted ahead of the control-plane ports: a forged opening of a TCP
//! conversation leads nowhere, as the host outside has sent no SYN.
//!
//! What remains is what is meant: whoever outside can send to this machine can hold a conversation with the command,
//! for as long as connection tracking remembers it (for UDP 30 to 120 seconds after the last packet).
//!
//! # Proxies
//! A proxy serves whoever connects to it, by the list of its own run. All proxies stand on one address, where a run's
//! wall admits the port of its own alone; so what a command tries there is on its own record. The second bar, before
//! the proxy itself, is for users whom no wall holds: their refusals would otherwise stand in the run's record as the
//! command's. It comes after every translation, and is not recorded, for it refuses nobody's command.
//!
//! # Shadow
//! A shadow's table has the judgement and no answer: what `judge` would refuse is told of and accepted. It stands in `early`
//! alone, as what is let through there would come by `late` and `exit` again, and of a TCP conversation it looks at
//! the first packet, the only one that there would have been.
//!
//! # Own addresses
//! `meta oif` in an output chain is the device chosen before address translation, so in `late` it can't be relied on:
//! a destination must also be one of this machine's addresses as they were at installation. An address that the
//! machine gains later is refused like any other (fail closed).
//!
//! # Refusals
//! A refused packet is answered, so that the command meets an error at once. The answer (an ICMP error with the packet's
//! first thousand bytes, or a reset with its ports) goes to the packet's source. With `IPV6_FREEBIND` that can be any
//! host outside, and the answer would carry to it what the packet was refused for: so in IPv6 only this machine's own
//! addresses are answered, and an address that the machine gains later meets silence. IPv4 has no such way to forge a
//! source without privilege (`ip_route_output_key` wants a local one).
//!
//! # What no rule on a socket's uid can see
//! Packets of sockets that the kernel opens on a process's behalf have no opener: `AF_SMC`, `AF_RXRPC`, `AF_RDS`,
//! `AF_TIPC`, the first packet of a further MPTCP subflow (what follows it is judged), and group membership reports
//! (IGMP, MLD). The families are refused by seccomp, not here.

use super::expression::{Rule, Side, host};
use super::{Egress, Loopback, WallSpec};
use crate::mutation;
use crate::proxy::transparent::stand_ins::ON_LOOPBACK_NETS;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_netfilter::nftables::{MetaKey, Operator};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The rule names that denials carry.
pub const RULES: [&str; 5] = [CONTROL_PLANE, DNS, METADATA, PRIVATE_RANGE, DEFAULT_DENY];
pub(crate) const CONTROL_PLANE: &str = "control-plane";
pub(crate) const DNS: &str = "dns";
pub(crate) const METADATA: &str = "metadata";
pub(crate) const PRIVATE_RANGE: &str = "private-range";
pub(crate) const DEFAULT_DENY: &str = "default-deny";

/// After `NF_IP_PRI_CONNTRACK` (-200), before `NF_IP_PRI_NAT_DST` (-100).
pub(super) const EARLY: i32 = -190;
/// After every translation; `NF_IP_PRI_CONNTRACK_HELPER` is 300 too and translates nothing.
pub(super) const LATE: i32 = 300;

/// Names (53), names over TLS (853), multicast names (5353) and link-local names (5355).
pub(crate) const DNS_PORTS: [u16; 4] = [53, 853, 5353, 5355];
/// Docker's resolver and systemd's two: there whether resolv.conf names them or not.
const FORWARDERS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 54)),
];
/// Where every proxy listens: an address of loopback that nothing else is known to use.
pub const PROXIES: Ipv4Addr = Ipv4Addr::new(127, 82, 70, 1);
/// The protocols whose header begins with a source and a destination port: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// `LOOPBACK_IFINDEX` (linux/net/loopback.h): `lo` in every network namespace.
pub(crate) const LO: u32 = 1;
/// IPv6 headers that no unprivileged client has use for, a routing header among them: hop-by-hop options, routing,
/// fragment, destination options.
const EXTENSION_HEADERS: [u8; 4] = [HOP_BY_HOP, 43, 44, 60];
const HOP_BY_HOP: u8 = 0;
/// The byte of the IPv6 header that names the next one.
const NEXT_HEADER: u32 = 6;
/// Own addresses beyond this many are refused rather than admitted: two rules each.
const MOST_OWN_ADDRESSES: usize = 256;

/// Where a base chain is hooked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hooked {
    /// `NF_INET_*`.
    pub(super) hook: u32,
    /// Order among the hook's chains, lowest first.
    pub(super) priority: i32,
    /// What its rules may do.
    pub(super) kind: Kind,
}

/// The type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It judges.
    Filter,
    /// It sees the first packet of a conversation, and may lead it elsewhere.
    Nat,
}

impl Kind {
    /// As nftables has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Filter => "filter",
            Kind::Nat => "nat",
        }
    }
}

/// One chain.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hooked: Option<Hooked>,
    pub(super) rules: Vec<Rule>,
}

/// The whole table.
#[derive(Debug, Clone)]
pub(super) struct Ruleset {
    pub(super) table: String,
    pub(super) chains: Vec<Chain>,
}

/// The ruleset for `spec` on a machine that has the addresses `own`.
pub(super) fn ruleset(spec: &WallSpec, own: &[IpAddr]) -> Ruleset {
    let restricted = spec.egress == Egress::Restricted;
    let mut chains = if spec.shadow { hooked_for_shadow(spec) } else { Vec::new() };
    for (name, hook, priority, to) in [
        ("early", libc::NF_INET_LOCAL_OUT, EARLY, "judge"),
        ("late", libc::NF_INET_LOCAL_OUT, LATE, "judge"),
        ("exit", libc::NF_INET_POST_ROUTING, LATE, "leaving"),
    ] {
        if !spec.shadow && (restricted || to == "judge") && !(name == "early" && mutation::left_out("early")) {
            let bar = spec.proxy.filter(|_| name == "late").map(|proxy| to_proxy(proxy).of_others(spec.uid).reset());
            let caught = spec.caught.iter().flat_map(|ways| match name {
                "early" => ways.let_by(spec.uid),
                "late" => ways.arrive(spec.uid),
                _ => Vec::new(),
            });
            let rules = bar.into_iter().chain(caught).chain([Rule::any().opened_by(spec.uid).jump(to)]).collect();
            let hooked = Some(Hooked { hook: hook as u32, priority, kind: Kind::Filter });
            chains.push(Chain { name, hooked, rules });
        }
    }
    if !spec.shadow {
        chains.extend(spec.caught.iter().flat_map(|ways| ways.chains(spec.uid)));
    }
    let mut add = |name, rules| chains.push(Chain { name, hooked: None, rules });
    for rule in RULES {
        add(rule, refusal(spec, rule));
    }
    add("answer", if spec.shadow { vec![Rule::any().accept()] } else { answer(own) });
    // Final whatever the protocol: `reject` drops the packet also where it has no answer to give.
    if !spec.shadow {
        add("reject", vec![Rule::any().reset(), Rule::any().unreachable()]);
    }
    add("control-plane-ports", ports(&spec.control_plane_ports, CONTROL_PLANE));
    if restricted {
        add("hop-by-hop", hop_by_hop());
        add("dns-ports", ports(&DNS_PORTS, DNS));
        add("to-own", to_own(&spec.loopback, own));
        if let Loopback::Ports(listed) = &spec.loopback {
            add("listed-ports", listed_ports(listed));
        }
        let from_own = own_networks(own).into_iter().map(|net| Rule::any().address(Side::Source, net).jump("to-own"));
        add("from-own", from_own.collect());
        if !spec.shadow {
            add("leaving", leaving(spec));
        }
    }
    add("judge", judge(spec));
    Ruleset { table: spec.table_name(), chains }
}

/// The one hook of a shadow. Its proxy is kept from nobody: the command may be any user.
fn hooked_for_shadow(spec: &WallSpec) -> Vec<Chain> {
    const FLAGS: u32 = 13;
    const SYN: u8 = 0x02;
    const SYN_OR_ACK: u8 = 0x12;
    let later = Rule::any().opened_by(spec.uid).protocol(libc::IPPROTO_TCP as u8);
    let later = later.transport_byte(FLAGS, SYN_OR_ACK, Operator::NotEqual, SYN).accept();
    let rules = vec![later, Rule::any().opened_by(spec.uid).jump("judge")];
    let hooked = Some(Hooked { hook: libc::NF_INET_LOCAL_OUT as u32, priority: EARLY, kind: Kind::Filter });
    vec![Chain { name: "early", hooked, rules }]
}

fn judge(spec: &WallSpec) -> Vec<Rule> {
    let with_ports = |to| WITH_PORTS.map(|protocol| Rule::any().protocol(protocol).jump(to));
    let to = |net: &IpNet, rule| Rule::any().address(Side::Destination, *net).goto(rule);
    let mut rules = Vec::new();
    rules.push(match spec.egress {
        Egress::Restricted => Rule::any().reply().accept(),
        Egress::Open => Rule::any().protocol(libc::IPPROTO_TCP as u8).reply().accept(),
    });
    rules.extend(with_ports("control-plane-ports"));
    if spec.egress == Egress::Open {
        // A proxy connects as nobody's command: it would carry requests to the ports that are named.
        if !spec.control_plane_ports.is_empty() {
            rules.push(to(&host(PROXIES.into()), CONTROL_PLANE));
            rules.extend(ON_LOOPBACK_NETS.map(|net| to(&net.into(), CONTROL_PLANE)));
        }
        return rules;
    }
    // A source route names further hops behind the destination that is judged here. The IPv4 header's length in
    // words is 5 without options.
    if !mutation::left_out("header-options") {
        rules.push(Rule::any().header_byte(libc::NFPROTO_IPV4, 0, 0x0f, Operator::NotEqual, 5).goto(DEFAULT_DENY));
    }
    for extension in EXTENSION_HEADERS {
        let rule = Rule::any().header_byte(libc::NFPROTO_IPV6, NEXT_HEADER, 0xff, Operator::Equal, extension);
        rules.push(if extension == HOP_BY_HOP { rule.jump("hop-by-hop") } else { rule.goto(DEFAULT_DENY) });
    }
    if let Some(proxy) = spec.proxy {
        rules.push(to_proxy(proxy).accept());
    }
    rules.push(to(&host(PROXIES.into()), DEFAULT_DENY));
    // Where others' proxies hear what is caught, beside a run whose sockets are made for it.
    rules.extend(ON_LOOPBACK_NETS.map(|net| to(&net.into(), DEFAULT_DENY)));
    if !mutation::left_out("dns") {
        rules.extend(with_ports("dns-ports"));
        rules.extend(resolvers(&spec.resolvers).iter().map(|address| to(&host(*address), DNS)));
    }
    rules.extend(spec.metadata.iter().map(|net| to(net, METADATA)));
    rules.push(Rule::any().meta(MetaKey::Oif, &LO.to_ne_bytes()).jump("from-own"));
    rules.extend(spec.private.iter().map(|net| to(net, PRIVATE_RANGE)));
    rules.push(Rule::any().goto(DEFAULT_DENY));
    rules
}

/// The header by which the kernel itself sends more than 64 KiB of a TCP stream in one piece, which it does on `lo` and takes
/// off again before a wire (`ip6_xmit`, BIG TCP, Linux 5.19): no length in the IPv6 header, then a jumbo payload option
/// (RFC 2675) and nothing else, then TCP. A process needs NET_RAW for any header of this kind.
fn hop_by_hop() -> Vec<Rule> {
    const JUMBO_PAYLOAD: u8 = 0xc2;
    let [length_high, length_low, header] = [4, 5, 40];
    let jumbo = [
        (length_high, 0),
        (length_low, 0),
        (header, libc::IPPROTO_TCP as u8),
        (header + 1, 0),
        (header + 2, JUMBO_PAYLOAD),
        (header + 3, 4),
    ];
    let fits = jumbo.into_iter().fold(Rule::any(), |rule, (offset, value)| {
        rule.header_byte(libc::NFPROTO_IPV6, offset, 0xff, Operator::Equal, value)
    });
    vec![fits.back(), Rule::any().goto(DEFAULT_DENY)]
}

fn to_proxy(proxy: SocketAddrV4) -> Rule {
    let rule = Rule::any().address(Side::Destination, host((*proxy.ip()).into()));
    rule.protocol(libc::IPPROTO_TCP as u8).port(proxy.port())
}

/// The resolvers that are refused whatever the port: all but the addresses that everything else on loopback has too.
pub(crate) fn resolvers(named: &[IpAddr]) -> Vec<IpAddr> {
    let shared = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let mut all: Vec<_> = named.iter().map(IpAddr::to_canonical).chain(FORWARDERS).collect();
    all.retain(|address| !shared.contains(address) && !address.is_unspecified());
    all.sort();
    all.dedup();
    all
}

fn ports(ports: &[u16], rule: &str) -> Vec<Rule> {
    ports.iter().map(|port| Rule::any().port(*port).goto(rule)).collect()
}

fn refusal(spec: &WallSpec, rule: &str) -> Vec<Rule> {
    vec![Rule::any().recorded(&spec.run, rule, spec.nflog_group), Rule::any().goto("answer")]
}

/// Who is answered. The answer quotes the refused packet and goes to its source, which the command can forge in IPv6.
fn answer(own: &[IpAddr]) -> Vec<Rule> {
    let v4 = Rule::any().meta(MetaKey::Nfproto, &[libc::NFPROTO_IPV4 as u8]).goto("reject");
    let v6 = own_networks(own).into_iter().filter(|net| matches!(net, IpNet::V6(_)));
    let v6 = v6.map(|net| Rule::any().address(Side::Source, net).goto("reject"));
    [v4].into_iter().chain(v6).chain([Rule::any().discard()]).collect()
}

fn own_networks(own: &[IpAddr]) -> Vec<IpNet> {
    let mut addresses: Vec<_> = own.iter().filter(|a| !a.is_loopback() && !a.is_unspecified()).copied().collect();
    addresses.sort();
    addresses.dedup();
    addresses.truncate(MOST_OWN_ADDRESSES);
    loopback_networks().into_iter().chain(addresses.into_iter().map(host)).collect()
}

fn loopback_networks() -> [IpNet; 2] {
    [Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(), Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into()]
}

fn to_own(loopback: &Loopback, own: &[IpAddr]) -> Vec<Rule> {
    let to = |net| Rule::any().address(Side::Destination, net);
    match loopback {
        Loopback::All => own_networks(own).into_iter().map(|net| to(net).accept()).collect(),
        Loopback::ProxyOnly => Vec::new(),
        Loopback::Ports(_) => loopback_networks().into_iter().map(|net| to(net).goto("listed-ports")).collect(),
    }
}

fn listed_ports(listed: &[u16]) -> Vec<Rule> {
    let protocols = [libc::IPPROTO_TCP as u8, libc::IPPROTO_UDP as u8];
    let each = |protocol| listed.iter().map(move |port| Rule::any().protocol(protocol).port(*port).accept());
    protocols.into_iter().flat_map(each).collect()
}

/// The last look, where the output device is what it will be. `reject` can't be used after routing.
fn leaving(spec: &WallSpec) -> Vec<Rule> {
    vec![
        Rule::any().meta(MetaKey::Oif, &LO.to_ne_bytes()).back(),
        Rule::any().reply().back(),
        Rule::any().recorded(&spec.run, DEFAULT_DENY, spec.nflog_group),
        Rule::any().discard(),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::install::firewall::expression::weight;

    pub(in super::super) fn spec() -> WallSpec {
        WallSpec {
            shadow: false,
            run: "0123456789abcdef".into(),
            uid: 10001,
            proxy: None,
            egress: Egress::Restricted,
            loopback: Loopback::All,
            resolvers: Vec::new(),
            control_plane_ports: vec![8500],
            nflog_group: 7,
            metadata: Vec::new(),
            private: Vec::new(),
            caught: None,
        }
    }

    #[test]
    fn a_resolver_on_shared_loopback_is_refused_by_port_only_and_the_forwarders_always() {
        let named = ["127.0.0.1", "::1", "::ffff:10.0.0.2", "0.0.0.0"].map(|a| a.parse().unwrap());
        let expected: Vec<IpAddr> =
            ["10.0.0.2", "127.0.0.11", "127.0.0.53", "127.0.0.54"].iter().map(|a| a.parse().unwrap()).collect();
        assert_eq!(resolvers(&named), expected);
    }

    #[test]
    fn with_egress_open_only_the_control_plane_rule_is_there() {
        let open = WallSpec { egress: Egress::Open, ..spec() };
        let ruleset = ruleset(&open, &[]);
        let judge = ruleset.chains.iter().find(|c| c.name == "judge").unwrap();
        assert_eq!(
            judge.rules.len(),
            1 + WITH_PORTS.len() + 1 + ON_LOOPBACK_NETS.len(),
            "answers, the ports, and the proxies"
        );
        assert!(!ruleset.chains.iter().any(|c| c.name == "exit"));
    }

    #[test]
    fn a_shadows_table_answers_nobody() {
        let proxy = Some("127.82.70.1:3128".parse().unwrap());
        for spec in [spec(), WallSpec { proxy, ..spec() }, WallSpec { egress: Egress::Open, ..spec() }] {
            let names = |shadow| {
                let chains = ruleset(&WallSpec { shadow, ..spec.clone() }, &[]).chains;
                chains.into_iter().map(|chain| chain.name).collect::<Vec<_>>()
            };
            assert!(names(false).contains(&"reject") && names(false).contains(&"late"));
            let shadow = names(true);
            assert!(!["reject", "exit", "leaving", "late"].iter().any(|name| shadow.contains(name)), "{shadow:?}");
        }
    }

    #[test]
    fn the_number_of_own_addresses_is_bounded() {
        let own: Vec<IpAddr> = (0..5000u32).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).into()).collect();
        assert_eq!(own_networks(&own).len(), 2 + MOST_OWN_ADDRESSES);
        let heaviest = ruleset(&spec(), &own).chains.iter().flat_map(|c| &c.rules).map(weight).sum::<usize>();
        assert!(heaviest < 1 << 20, "{heaviest} bytes of expressions");
    }
}
