//! What of the command's is caught where tools that ask no proxy are served.

use super::ProxyPlan;
use super::means::{EgressBarrier, Means};
use super::rung::{Carried, Restriction};
use crate::host::Facts;
use crate::install::firewall::rules::DNS_PORTS;
use crate::policy::{Host, Name, Policy, Posture};
use crate::proxy::transparent::stand_ins::STAND_INS;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most ports on which connections are caught: each has a listener.
const MOST_PORTS: usize = 64;
/// Most addresses of the hosts file that stand for admitted names.
const MOST_LISTED: usize = 64;
/// Most resolvers in whose place names are answered; the C library asks three.
const MOST_RESOLVERS: usize = 16;
/// The port of HTTPS.
const HTTPS: u16 = 443;
/// Whom the C library asks where resolv.conf(5) names nobody.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// What is caught.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatchPlan {
    /// Ports of TCP: those of the allowlist's entries, less the control plane's.
    pub ports: Vec<u16>,
    /// Whose questions are answered here.
    pub resolvers: Vec<SocketAddr>,
    /// Addresses of the hosts file, and the admitted names that they stand for.
    pub listed: Vec<(IpAddr, Name)>,
    /// Ports at which nothing of ours may listen: they are refused wherever they are.
    pub refused_ports: Vec<u16>,
}

/// Why nothing can be caught. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum NotCaught {
    /// Nothing that is sent to a stand-in would come to the firewall.
    #[error(
        "transparent: no route to {STAND_INS}, whose addresses stand for names ({0}); accepted: a default route, or one to that range"
    )]
    NoRoute(String),
    /// The machine has an address of the range.
    #[error(
        "transparent: {0} is this machine's own and of {STAND_INS}, whose addresses stand for names; accepted: none of it"
    )]
    OwnAddress(IpAddr),
    /// The entries name more ports than there are listeners.
    #[error(
        "transparent: the allowlist's entries name {0} ports, each of which needs a listener; accepted: up to {MOST_PORTS}"
    )]
    Ports(usize),
}

impl CatchPlan {
    /// What the policy and the host have caught; `None` where tools that ask no proxy are refused.
    ///
    /// # Errors
    /// What of the host or the policy stands against it.
    pub fn of(
        policy: &Policy,
        facts: &Facts,
        proxy: &ProxyPlan,
        means: &Means,
    ) -> Result<Option<CatchPlan>, NotCaught> {
        if !policy.network.transparent || policy.network.posture == Posture::Open {
            return Ok(None);
        }
        // In a network namespace of the sandbox's own all is routed over `lo`, and where sockets are made nothing is.
        if means.egress == EgressBarrier::Firewall && !means.own_namespaces {
            facts.stand_ins.clone().map_err(NotCaught::NoRoute)?;
        }
        let in_range = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if STAND_INS.contains(v4));
        if let Some(own) = facts.own_addresses.iter().find(|address| in_range(address)) {
            return Err(NotCaught::OwnAddress(*own));
        }
        let control_plane: Vec<u16> = policy.privilege.control_plane_ports.iter().map(|port| port.get()).collect();
        // An empty list has none: what is sent to stand-ins is judged all the same.
        let mut ports = proxy.allowlist.ports();
        ports.insert(HTTPS);
        ports.retain(|port| !control_plane.contains(port));
        if ports.len() > MOST_PORTS {
            return Err(NotCaught::Ports(ports.len()));
        }
        let mut resolvers = facts.dns.nameservers.clone();
        if resolvers.is_empty() {
            resolvers.push(RESOLVER);
        }
        resolvers.sort();
        resolvers.dedup();
        resolvers.truncate(MOST_RESOLVERS);
        let refused_ports = control_plane.into_iter().chain(DNS_PORTS).collect();
        let ports = ports.into_iter().collect();
        Ok(Some(CatchPlan { ports, resolvers, listed: listed(proxy, &facts.own_addresses), refused_ports }))
    }
}

/// The addresses that the hosts file gives to admitted names, each with the first of them. Those of this machine are nobody's
/// stand-ins, and one of IPv6 is refused as ever: clients try the others then.
fn listed(proxy: &ProxyPlan, own: &[IpAddr]) -> Vec<(IpAddr, Name)> {
    let mut found: Vec<(IpAddr, Name)> = Vec::new();
    for (name, addresses) in &proxy.dns.hosts {
        let is_admitted = |name: &Name| proxy.allowlist.first_port(&Host::Name(name.clone())).is_some();
        let Some(name) = Name::parse(name.as_bytes()).ok().filter(is_admitted) else { continue };
        for address in addresses.iter().filter(|one| one.is_ipv4() && !one.is_loopback() && !own.contains(one)) {
            if found.len() < MOST_LISTED && !found.iter().any(|(one, _)| one == address) {
                found.push((*address, name.clone()));
            }
        }
    }
    found
}

/// Has the restriction that the allowlist is say that it also holds what asks no proxy.
pub fn catching(restrictions: &mut [Carried]) {
    for carried in restrictions.iter_mut().filter(|carried| carried.restriction == Restriction::EgressAllowlist) {
        carried.mechanism.push_str("; names and connections of tools that ask no proxy are caught for it");
    }
}

/// What an operator should know of it: one sentence, if any.
pub fn note(policy: &Policy, caught: Option<&CatchPlan>) -> Option<String> {
    match caught {
        Some(caught) => {
            let ports: Vec<String> = caught.ports.iter().map(u16::to_string).collect();
            Some(format!(
                "tools that ask no proxy are served: admitted names are answered by addresses of {STAND_INS}, and what is sent \
                 there over TCP to {} is judged as a tunnel to the name",
                ports.join(", ")
            ))
        }
        None if policy.network.transparent => Some("transparent has no effect: the network is open".into()),
        None => None,
    }
}
