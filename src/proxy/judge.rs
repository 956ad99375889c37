//! The one place where egress is judged. What is dialled elsewhere is a [`Permit`], and only this module makes one.

use super::resolve::{Resolver, Unresolved};
use crate::mutation;
use crate::policy::ranges::{self, AddressRules, AddressVerdict};
use crate::policy::{Allowlist, Authority, Host, Name, ParentProxy, Verdict, ways_to_admit};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// The rule of a denial whose name gives more addresses than are judged.
pub const RULE_ADDRESS_COUNT: &str = "address-count";

/// Leave to connect to one authority, for one attempt, by the route that was judged.
#[derive(Debug)]
pub struct Permit {
    authority: Authority,
    route: Route,
    /// Whether it was refused, and is served all the same: a shadow's.
    let_through: bool,
}

/// Where a permit leads. The addresses are never empty, in the order in which they are tried.
#[derive(Debug)]
enum Route {
    /// To the authority's own addresses, each of which was judged.
    Direct(Vec<SocketAddr>),
    /// To the parent proxy that the policy names, which finds the authority.
    Upstream { parent: Rc<ParentProxy>, addresses: Vec<SocketAddr> },
}

impl Permit {
    /// What was judged.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether it was refused and recorded, and is served as if nothing had judged it.
    pub fn is_let_through(&self) -> bool {
        self.let_through
    }

    /// The addresses of the route: no others may be dialled.
    pub fn addresses(&self) -> &[SocketAddr] {
        match &self.route {
            Route::Direct(addresses) | Route::Upstream { addresses, .. } => addresses,
        }
    }

    /// The parent proxy that is to be asked for the authority; `None` where the connection is with the authority itself.
    pub fn parent(&self) -> Option<&ParentProxy> {
        match &self.route {
            Route::Direct(_) => None,
            Route::Upstream { parent, .. } => Some(parent),
        }
    }

    /// The authority's own addresses as far as they are known here, for a record.
    pub fn known_addresses(&self) -> Vec<IpAddr> {
        match &self.route {
            Route::Direct(addresses) => addresses.iter().map(SocketAddr::ip).collect(),
            Route::Upstream { .. } => self.authority.host.ip().into_iter().collect(),
        }
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
    /// The parent proxy that is asked, and where it is.
    Upstream(&'a ParentProxy, &'a [SocketAddr]),
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
    /// The parent proxy, where egress leaves by one.
    upstream: Option<Rc<ParentProxy>>,
    /// Whether what is refused is served.
    shadow: bool,
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
        Judge { allowlist, rules, resolver, listener, address_limit, upstream: None, shadow: false }
    }

    /// The same judge, where egress leaves by a parent proxy.
    pub fn with_upstream(self, upstream: Option<ParentProxy>) -> Judge {
        Judge { upstream: upstream.map(Rc::new), ..self }
    }

    /// The same judge, whose refusals are recorded and not made.
    pub fn of_shadow(self, shadow: bool) -> Judge {
        Judge { shadow, ..self }
    }

    /// Whether what is refused is to be served.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// A permit for what was refused, as nothing would have judged it.
    pub async fn let_through(&self, authority: &Authority) -> Result<Permit, Unresolved> {
        let route = match (&self.upstream, &authority.host) {
            (Some(parent), Host::Name(_)) => {
                Route::Upstream { parent: parent.clone(), addresses: self.find(parent).await? }
            }
            (_, Host::Name(name)) => {
                let found = self.resolver.resolve(name.as_str()).await?;
                Route::Direct(alternating(&found).map(|addr| SocketAddr::new(addr, authority.port)).collect())
            }
            (_, literal) => {
                Route::Direct(literal.ip().into_iter().map(|addr| SocketAddr::new(addr, authority.port)).collect())
            }
        };
        Ok(Permit { authority: authority.clone(), route, let_through: true })
    }

    /// Judges an authority: the name and the port first, then, only if they are admitted, one resolution, and each
    /// address that it gives, kept from an earlier one or not. One denied address refuses them all.
    ///
    /// Where egress leaves by a parent proxy a name is not resolved, for the parent does that; an address literal is judged
    /// all the same. The parent's own addresses are not: the policy names it.
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
        let by_name_alone = self.upstream.is_some() && authority.host.name().is_some();
        let judged = match by_name_alone {
            true => Vec::new(),
            false => match self.judge_addresses(authority, told).await {
                Ok(addresses) => addresses,
                Err(judgement) => return judgement,
            },
        };
        let route = match &self.upstream {
            None => Route::Direct(judged),
            Some(parent) => match self.find(parent).await {
                Ok(addresses) => {
                    told(Step::Upstream(parent, &addresses));
                    Route::Upstream { parent: parent.clone(), addresses }
                }
                Err(cause) => return Judgement::Unresolved(cause),
            },
        };
        Judgement::Permitted(Permit { authority: authority.clone(), route, let_through: false })
    }

    /// The addresses of an authority, in the order in which they are tried, if none of them is denied.
    async fn judge_addresses(
        &self,
        authority: &Authority,
        told: &mut dyn FnMut(Step<'_>),
    ) -> Result<Vec<SocketAddr>, Judgement> {
        let found = match &authority.host {
            Host::Name(name) => self.resolver.resolve(name.as_str()).await,
            Host::V4(addr) => Ok(vec![IpAddr::V4(*addr)]),
            Host::V6(addr) => Ok(vec![IpAddr::V6(*addr)]),
        };
        let addrs: Vec<IpAddr> = match found {
            Ok(addrs) => addrs.iter().map(IpAddr::to_canonical).collect(),
            Err(cause) => return Err(Judgement::Unresolved(cause)),
        };
        if authority.host.name().is_some() {
            told(Step::Resolved(&addrs));
        }
        if addrs.len() > self.address_limit {
            let shown = addrs.into_iter().take(self.address_limit).collect();
            return Err(refused(RULE_ADDRESS_COUNT, "too_many_addresses", shown));
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
            return Err(refused(rule, "denied_address", addrs));
        }
        let addresses: Vec<SocketAddr> =
            alternating(&addrs).map(|addr| SocketAddr::new(addr, authority.port)).collect();
        if addresses.is_empty() {
            let cause = Unresolved::NoAddress("an empty answer".to_owned());
            return Err(Judgement::Unresolved(cause));
        }
        Ok(addresses)
    }

    /// The addresses of the parent proxy, in whatever range. Loopback is where the command could ask it too: the plan has
    /// seen to that for a literal and for the hosts file, and who answers for other names has no say in it.
    async fn find(&self, parent: &ParentProxy) -> Result<Vec<SocketAddr>, Unresolved> {
        let Authority { host, port } = parent.authority();
        let addrs = match host {
            Host::Name(name) => {
                let found = self.resolver.resolve(name.as_str()).await;
                let looped = |addrs: &[IpAddr]| addrs.iter().any(|addr| addr.to_canonical().is_loopback());
                let found = found.and_then(|addrs| match !self.resolver.is_listed(name.as_str()) && looped(&addrs) {
                    true => Err(Unresolved::NoAddress("a resolver gives loopback for it".to_owned())),
                    false => Ok(addrs),
                });
                found.map_err(|cause| Unresolved::Upstream { parent: parent.to_string(), cause: Box::new(cause) })?
            }
            literal => literal.ip().into_iter().collect(),
        };
        Ok(alternating(&addrs)
            .take(self.address_limit)
            .map(|addr| SocketAddr::new(addr.to_canonical(), *port))
            .collect())
    }

    /// Whether a host is admitted at some port.
    pub fn admits_at_any_port(&self, host: &Host) -> bool {
        self.allowlist.first_port(host).is_some()
    }

    /// A host with a port at which it is admitted; with that of HTTPS where it is admitted at none.
    pub fn at_first_port(&self, host: Host) -> Authority {
        let port = self.allowlist.first_port(&host).unwrap_or(443);
        Authority { host, port }
    }

    /// Whether a name is an admitted one with a search domain of the host's behind it.
    pub fn is_search_of_admitted(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.resolver.search().iter().any(|domain| {
            let meant = name.strip_suffix(domain.as_str()).and_then(|rest| rest.strip_suffix('.'));
            meant
                .and_then(|meant| Name::parse(meant.as_bytes()).ok())
                .is_some_and(|meant| self.admits_at_any_port(&Host::Name(meant)))
        })
    }

    /// What would admit what is refused.
    pub fn ways_to_admit(&self, authority: &Authority, refusal: &Refusal) -> Vec<String> {
        ways_to_admit(authority, &refusal.addrs, &self.allowlist, &self.rules)
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
