//! What a plan says of the way by which admitted egress leaves.

use super::means::Means;
use super::rung::{Carried, Restriction};
use super::{ProxyPlan, Refusal, WallPlan};
use crate::host::Facts;
use crate::install::specs::wall_spec;
use crate::observe::sockets::rules::{SocketRules, Transport, meant};
use crate::policy::{Host, ParentProxy, Policy, Posture, Upstream};
use std::net::{IpAddr, SocketAddr};

/// Refuses a parent proxy that the command itself could ask: it knows nothing of the allowlist. What its name resolves to
/// elsewhere than in the hosts file is not known here; the wall refuses the command all but loopback.
pub fn check(proxy: &ProxyPlan, wall: &WallPlan, means: &Means) -> Result<(), Refusal> {
    let Some(parent) = proxy.upstream.as_ref().filter(|_| !means.own_namespaces) else { return Ok(()) };
    let rules = SocketRules::from(&wall_spec("", 0, None, wall, 0));
    let reached = addresses(parent, proxy)
        .into_iter()
        .map(|addr| meant(SocketAddr::new(addr, parent.authority().port)))
        .find(|address| rules.refuses(Transport::Tcp, *address).is_none());
    match reached {
        Some(address) => Err(Refusal::UpstreamInReach { parent: parent.to_string(), address }),
        None => Ok(()),
    }
}

fn addresses(parent: &ParentProxy, proxy: &ProxyPlan) -> Vec<IpAddr> {
    match &parent.authority().host {
        Host::Name(name) => proxy.dns.hosts.get(name.as_str()).cloned().unwrap_or_default(),
        literal => literal.ip().into_iter().collect(),
    }
}

/// Has the restriction that the allowlist is say that it is held by names alone.
pub fn by_names_alone(restrictions: &mut [Carried]) {
    for carried in restrictions.iter_mut().filter(|carried| carried.restriction == Restriction::EgressAllowlist) {
        carried.mechanism.push_str("; by names alone, which an upstream proxy resolves");
    }
}

/// What is not seen of egress by a parent proxy.
pub fn unobserved(parent: &ParentProxy) -> String {
    format!("addresses of admitted names: the upstream proxy {parent} resolves them, and none was judged")
}

/// What an operator should know of it: one sentence, if any.
pub fn note(policy: &Policy, facts: &Facts, proxy: Option<&ProxyPlan>) -> Option<String> {
    let upstream = &policy.network.upstream;
    match (proxy.and_then(|proxy| proxy.upstream.as_ref()), &facts.proxy_variable) {
        (Some(parent), _) => Some(format!(
            "admitted egress leaves by the upstream proxy {parent}: it resolves names, and their addresses are not judged"
        )),
        (None, _) if *upstream != Upstream::None => Some("upstream has no effect: the network is open".into()),
        (None, Some(variable)) if policy.network.posture > Posture::Open => {
            Some(format!("the proxy that {variable} names is not used: --upstream environment"))
        }
        _ => None,
    }
}
