//! The one place where egress is judged. What is dialled elsewhere is a [`Permit`], and only this module makes one.

use super::resolve::{Resolver, Unresolved};
use crate::mutation;
use crate::policy::ranges::{self, AddressRules, AddressVerdict};
use crate::policy::{Allowlist, Authority, Host, Verdict};
use std::net::{IpAddr, SocketAddr};

/// The rule of a denial whose name gives more addresses than are judged.
pub const RULE_ADDRESS_COUNT: &str = "address-count";

/// Leave to connect to the addresses of one authority, for one attempt.
#[derive(Debug)]
pub struct Permit {
    authority: Authority,
    /// Never empty, in the order in which they are tried.
    addresses: Vec<SocketAddr>,
}

impl Permit {
    /// What was judged.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The addresses that were judged: no others may be dialled.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// What refused, and the addresses it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The rule's name.
    pub rule: String,
    /// The class of the reason.
    pub reason: String,
    /// What the name gave; empty where it was never resolved.
    pub addrs: Vec<IpAddr>,
}

/// The outcome of a judgement.
#[derive(Debug)]
#[must_use]
pub enum Judgement {
    /// Egress is admitted.
    Permitted(Permit),
    /// The policy refuses it.
    Refused(Refusal),
    /// The name can't be resolved, which is no matter of policy.
    Unresolved(Unresolved),
}

/// A step of a judgement, for whoever wants to see how it came about.
#[derive(Debug)]
pub enum Step<'a> {
    /// What the allowlist says.
    Allowlist(&'a Verdict),
    /// What a name resolves to.
    Resolved(&'a [IpAddr]),
    /// What the address rules say of one of its addresses. Each is judged, after a denied one too.
    Address(IpAddr, &'a AddressVerdict),
}

/// Judges authorities.
pub struct Judge {
    allowlist: Allowlist,
    rules: AddressRules,
    resolver: Resolver,
    /// The proxy's own listener, which nothing opens; `None` where none is there.
    listener: Option<SocketAddr>,
    /// Most addresses that a name may give.
    address_limit: usize,
}

impl Judge {
    /// A judge over one policy.
    pub fn new(
        allowlist: Allowlist,
        rules: AddressRules,
        resolver: Resolver,
        listener: Option<SocketAddr>,
        address_limit: usize,
    ) -> Judge {
        Judge { allowlist, rules, resolver, listener, address_limit }
    }

    /// Judges an authority: the name and the port first, then, only if they are admitted, one resolution, and each
    /// address that it gives, kept from an earlier one or not. One denied address refuses them all.
    pub async fn judge(&self, authority: &Authority) -> Judgement {
        self.judge_by_steps(authority, &mut |_| {}).await
    }

    /// The same; `told` hears of each step as it is made.
    pub async fn judge_by_steps(&self, authority: &Authority, told: &mut dyn FnMut(Step<'_>)) -> Judgement {
        let verdict = self.allowlist.judge(authority);
        told(Step::Allowlist(&verdict));
        match verdict {
            Verdict::Refused { rule, reason } if !mutation::left_out("allowlist") => {
                return refused(rule, reason, Vec::new());
            }
            Verdict::Refused { .. } | Verdict::Admitted { .. } => {}
        }
        let found = match &authority.host {
            Host::Name(name) => self.resolver.resolve(name.as_str()).await,
            Host::V4(addr) => Ok(vec![IpAddr::V4(*addr)]),
            Host::V6(addr) => Ok(vec![IpAddr::V6(*addr)]),
        };
        let addrs: Vec<IpAddr> = match found {
            Ok(addrs) => addrs.iter().map(IpAddr::to_canonical).collect(),
            Err(cause) => return Judgement::Unresolved(cause),
        };
        if authority.host.name().is_some() {
            told(Step::Resolved(&addrs));
        }
        if addrs.len() > self.address_limit {
            let shown = addrs.into_iter().take(self.address_limit).collect();
            return refused(RULE_ADDRESS_COUNT, "too_many_addresses", shown);
        }
        let rules = self.rules_for(&authority.host);
        let mut denied = None;
        for addr in addrs.iter().filter(|_| !mutation::left_out("address-rules")) {
            let verdict = if Some(SocketAddr::new(*addr, authority.port)) == self.listener {
                AddressVerdict::Denied { rule: ranges::RULE_OWN, range: "the proxy's own listener".into() }
            } else {
                ranges::judge(*addr, &rules)
            };
            told(Step::Address(*addr, &verdict));
            if let AddressVerdict::Denied { rule, .. } = verdict {
                denied.get_or_insert(rule);
            }
        }
        if let Some(rule) = denied {
            return refused(rule, "denied_address", addrs);
        }
        let addresses: Vec<SocketAddr> =
            alternating(&addrs).map(|addr| SocketAddr::new(addr, authority.port)).collect();
        if addresses.is_empty() {
            let cause = Unresolved::NoAddress("an empty answer".to_owned());
            return Judgement::Unresolved(cause);
        }
        Judgement::Permitted(Permit { authority: authority.clone(), addresses })
    }

    /// The address rules for a host: who lists an address by itself trusts exactly that address.
    fn rules_for(&self, host: &Host) -> AddressRules {
        let mut rules = self.rules.clone();
        let literal = host.ip().map(|addr| addr.to_canonical());
        rules.trusted_ranges.extend(literal.map(ipnet::IpNet::from));
        rules
    }
}

fn refused(rule: &str, reason: &str, addrs: Vec<IpAddr>) -> Judgement {
    Judgement::Refused(Refusal { rule: rule.to_owned(), reason: reason.to_owned(), addrs })
}

/// The addresses, the families by turns, IPv6 first (RFC 8305, 4).
fn alternating(addrs: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = addrs.iter().partition(|addr| addr.is_ipv6());
    let longest = v6.len().max(v4.len());
    (0..longest).flat_map(move |i| [v6.get(i).copied(), v4.get(i).copied()].into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addrs = ["::1", "::2", "::3", "1.1.1.1"].map(|a| a.parse::<IpAddr>().unwrap());
        let order: Vec<String> = alternating(&addrs).map(|a| a.to_string()).collect();
        assert_eq!(order, ["::1", "1.1.1.1", "::2", "::3"]);
    }
}
