//! Where the command's sockets may go, as one pure function: what the firewall says of loopback on rung `full`
//! (`install::firewall::rules`), and no to everything else.

use crate::install::firewall::rules::{
    CONTROL_PLANE, DEFAULT_DENY, DNS, DNS_PORTS, METADATA, PRIVATE_RANGE, PROXIES, resolvers,
};
use crate::install::firewall::{Loopback, WallSpec, Ways};
use crate::policy::Axis;
use crate::proxy::transparent::stand_ins::{ON_LOOPBACK_NETS, on_loopback};
use ipnet::IpNet;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

/// What a socket carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP's echo datagrams (icmp(7)).
    Icmp,
    /// ICMPv6's.
    IcmpV6,
}

impl Transport {
    /// The operation as a record names it, as those of the firewall's log do.
    pub fn operation(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Icmp => "icmp",
            Transport::IcmpV6 => "icmpv6",
        }
    }

    /// The answer to a refused one.
    pub fn refusal(self) -> Errno {
        if self == Transport::Tcp { Errno::ECONNREFUSED } else { Errno::EPERM }
    }

    /// Whether its header has ports.
    pub fn has_ports(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp)
    }
}

/// What the sockets of one run are held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketRules {
    /// The run's own proxy.
    pub proxy: Option<SocketAddrV4>,
    /// What of loopback may be reached beside it.
    pub loopback: Loopback,
    /// The host's resolvers.
    pub resolvers: Vec<IpAddr>,
    /// The provider's control-plane ports.
    pub control_plane_ports: Vec<u16>,
    /// Addresses of cloud metadata.
    pub metadata: Vec<IpNet>,
    /// Ranges that are not globally reachable.
    pub private: Vec<IpNet>,
    /// Unix sockets, and trees with all in them, that may not be reached by their names.
    pub masked: Vec<PathBuf>,
    /// What is led to sockets of ours instead of being refused; `None` where nothing is.
    pub caught: Option<Ways>,
}

impl From<&WallSpec> for SocketRules {
    fn from(wall: &WallSpec) -> SocketRules {
        SocketRules {
            proxy: wall.proxy,
            loopback: wall.loopback.clone(),
            resolvers: resolvers(&wall.resolvers),
            control_plane_ports: wall.control_plane_ports.clone(),
            metadata: wall.metadata.clone(),
            private: wall.private.clone(),
            masked: Vec::new(),
            caught: wall.caught.clone(),
        }
    }
}

/// The axis of a rule.
pub fn axis(rule: &str) -> Axis {
    if rule == CONTROL_PLANE { Axis::Privilege } else { Axis::Network }
}

/// Where the kernel sends what is sent there: IPv4 for an address of IPv4 in IPv6 (RFC 4291, 2.5.5.2), and this machine for
/// no address at all (ip(7), ipv6(7)).
pub fn meant(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, to.port())
}

impl SocketRules {
    /// The rule by which a destination is refused, if one does. `to` is as [`meant`] gives it.
    pub fn refuses(&self, transport: Transport, to: SocketAddr) -> Option<&'static str> {
        let ports = transport.has_ports();
        if ports && self.control_plane_ports.contains(&to.port()) {
            return Some(CONTROL_PLANE);
        }
        if transport == Transport::Tcp && self.proxy.map(SocketAddr::V4) == Some(to) {
            return None;
        }
        // What leads to proxies, those of other runs as well.
        let stands_for_a_name =
            |ip| matches!(ip, IpAddr::V4(v4) if ON_LOOPBACK_NETS.iter().any(|net| net.contains(&v4)));
        if to.ip() == IpAddr::V4(PROXIES) || stands_for_a_name(to.ip()) {
            return Some(DEFAULT_DENY);
        }
        if ports && DNS_PORTS.contains(&to.port()) || self.resolvers.contains(&to.ip()) {
            return Some(DNS);
        }
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&to.ip()));
        if within(&self.metadata) {
            return Some(METADATA);
        }
        if to.ip().is_loopback() {
            let admitted = match &self.loopback {
                Loopback::All => true,
                Loopback::ProxyOnly => false,
                Loopback::Ports(listed) => ports && listed.contains(&to.port()),
            };
            if admitted {
                return None;
            }
        }
        Some(if within(&self.private) { PRIVATE_RANGE } else { DEFAULT_DENY })
    }

    /// Where a socket is led that is to go to `to`, if it is caught. `to` is as [`meant`] gives it.
    pub fn leads(&self, transport: Transport, to: SocketAddr) -> Option<SocketAddr> {
        let ways = self.caught.as_ref()?;
        if !transport.has_ports() {
            return None;
        }
        if let Some((_, stub)) = ways.resolvers.iter().find(|(resolver, _)| meant(*resolver) == to) {
            return Some(*stub);
        }
        let (_, arrival) = ways.ports.iter().find(|(port, _)| *port == to.port())?;
        let stands = on_loopback(to.ip(), &ways.listed).filter(|_| transport == Transport::Tcp)?;
        Some(SocketAddr::new(stands.into(), arrival.port()))
    }

    /// Whether somebody may want to know who connects there: the proxy.
    pub fn is_proxy(&self, to: SocketAddr) -> bool {
        to.ip() == IpAddr::V4(PROXIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(loopback: Loopback) -> SocketRules {
        SocketRules {
            proxy: Some("127.82.70.1:8118".parse().unwrap()),
            loopback,
            resolvers: resolvers(&["10.0.0.2".parse().unwrap()]),
            control_plane_ports: vec![8500],
            metadata: vec!["169.254.169.254/32".parse().unwrap()],
            private: vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
            masked: Vec::new(),
            caught: None,
        }
    }

    fn verdict(rules: &SocketRules, transport: Transport, to: &str) -> Option<&'static str> {
        rules.refuses(transport, meant(to.parse().unwrap()))
    }

    #[test]
    fn loopback_is_served_but_for_what_leads_outside() {
        use Transport::{Icmp, IcmpV6, Tcp, Udp};
        let all = rules(Loopback::All);
        for (transport, to, rule) in [
            (Tcp, "127.82.70.1:8118", None),
            (Udp, "127.82.70.1:8118", Some(DEFAULT_DENY)),
            (Tcp, "127.82.70.1:8119", Some(DEFAULT_DENY)),
            (Tcp, "127.18.0.1:3000", Some(DEFAULT_DENY)),
            (Tcp, "127.20.0.1:3000", Some(DEFAULT_DENY)),
            (Tcp, "127.0.0.1:3000", None),
            (Tcp, "127.9.9.9:3000", None),
            (Tcp, "0.0.0.0:3000", None),
            (Tcp, "[::]:3000", None),
            (Tcp, "[::1]:3000", None),
            (Tcp, "[::ffff:127.0.0.1]:3000", None),
            (Tcp, "[::ffff:0.0.0.0]:3000", None),
            (Udp, "127.0.0.1:3000", None),
            (Udp, "127.0.0.1:53", Some(DNS)),
            (Tcp, "0.0.0.0:53", Some(DNS)),
            (Tcp, "[::ffff:127.0.0.1]:853", Some(DNS)),
            (Udp, "127.0.0.11:3000", Some(DNS)),
            (Tcp, "10.0.0.2:3000", Some(DNS)),
            (Icmp, "127.0.0.53:0", Some(DNS)),
            (Icmp, "127.0.0.1:53", None),
            (IcmpV6, "[::1]:8500", None),
            (Tcp, "127.0.0.1:8500", Some(CONTROL_PLANE)),
            (Tcp, "[::ffff:11.22.33.44]:8500", Some(CONTROL_PLANE)),
            (Tcp, "169.254.169.254:80", Some(METADATA)),
            (Tcp, "10.1.2.3:80", Some(PRIVATE_RANGE)),
            (Tcp, "11.22.33.44:80", Some(DEFAULT_DENY)),
            (Tcp, "[2a00:1:2:3::10]:80", Some(DEFAULT_DENY)),
            (Tcp, "[::127.0.0.1]:80", Some(DEFAULT_DENY)),
        ] {
            assert_eq!(verdict(&all, transport, to), rule, "{transport:?} {to}");
        }
    }

    #[test]
    fn less_of_loopback_is_less() {
        use Transport::{Icmp, Tcp, Udp};
        let none = rules(Loopback::ProxyOnly);
        assert_eq!(verdict(&none, Tcp, "127.82.70.1:8118"), None);
        assert_eq!(verdict(&none, Tcp, "127.0.0.1:3000"), Some(PRIVATE_RANGE));
        let some = rules(Loopback::Ports(vec![3000]));
        assert_eq!([Tcp, Udp].map(|t| verdict(&some, t, "[::1]:3000")), [None, None]);
        assert_eq!([Tcp, Udp].map(|t| verdict(&some, t, "127.0.0.1:3001")), [Some(PRIVATE_RANGE); 2]);
        assert_eq!(verdict(&some, Icmp, "127.0.0.1:3000"), Some(PRIVATE_RANGE));
    }

    #[test]
    fn what_is_caught_is_led_and_what_is_not_is_refused_as_ever() {
        use Transport::{Icmp, Tcp, Udp};
        let socket = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ways = Ways {
            resolvers: vec![(socket("10.0.0.2:53"), socket("127.82.70.1:5300"))],
            ports: vec![(80, socket("0.0.0.0:8000")), (443, socket("0.0.0.0:44300"))],
            listed: vec!["11.22.33.9".parse().unwrap()],
        };
        let rules = SocketRules { caught: Some(ways), ..rules(Loopback::ProxyOnly) };
        for (transport, to, there) in [
            (Udp, "10.0.0.2:53", Some("127.82.70.1:5300")),
            (Tcp, "[::ffff:10.0.0.2]:53", Some("127.82.70.1:5300")),
            (Udp, "10.0.0.3:53", None),
            (Udp, "10.0.0.2:54", None),
            (Icmp, "10.0.0.2:53", None),
            (Tcp, "198.18.0.1:443", Some("127.18.0.1:44300")),
            (Tcp, "198.19.1.2:80", Some("127.19.1.2:8000")),
            (Tcp, "11.22.33.9:443", Some("127.20.0.0:44300")),
            (Udp, "198.18.0.1:443", None),
            (Tcp, "198.18.0.1:22", None),
            (Tcp, "11.22.33.10:443", None),
        ] {
            let to = meant(socket(to));
            assert_eq!(rules.leads(transport, to), there.map(socket), "{transport:?} {to}");
            assert!(rules.refuses(transport, to).is_some(), "{to}: it is refused where nothing leads it");
        }
    }

    #[test]
    fn a_control_plane_refusal_is_of_the_privilege_axis() {
        assert_eq!([CONTROL_PLANE, DNS].map(axis), [Axis::Privilege, Axis::Network]);
        assert_eq!((Transport::Tcp.refusal(), Transport::Icmp.refusal()), (Errno::ECONNREFUSED, Errno::EPERM));
    }
}
