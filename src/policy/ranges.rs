//! Which addresses a name may resolve to, whatever name it is.
//!
//! An address that is not public is denied, unless a trusted range opens it. What a trusted range opens:
//! - the addresses it covers, in every block that the table does not close for good (6to4, multicast);
//! - a metadata address, a loopback address or one of the machine's own only when the range is exactly that address
//!   (`/32`, `/128`): a wide range named for a mirror must not open them with it;
//! - an address that carries an IPv4 address inside (NAT64, ISATAP) only when it covers the outer address. An
//!   IPv4-mapped address is the IPv4 address in every respect: that is what goes out on the wire.

use super::special::{self, Block, Opening};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

pub use super::special::METADATA;

/// The rule of a denial whose address is a metadata address.
pub const RULE_METADATA: &str = "metadata";
/// The rule of a denial whose address is not public.
pub const RULE_PRIVATE: &str = "private-range";
/// The rule of a denial whose address is one of the machine's own interface addresses.
pub const RULE_OWN: &str = "own-address";

/// What an address is judged by besides the blocks that are never public.
#[derive(Debug, Clone, Default)]
pub struct AddressRules {
    /// Ranges that the policy opens.
    pub trusted_ranges: Vec<IpNet>,
    /// The addresses of this machine's interfaces.
    pub own_addresses: Vec<IpAddr>,
}

/// The answer for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum AddressVerdict {
    /// A public address.
    Public,
    /// Not public, and a trusted range opens it.
    Trusted,
    /// Denied.
    Denied {
        /// [`RULE_METADATA`], [`RULE_PRIVATE`] or [`RULE_OWN`].
        rule: &'static str,
        /// The range and its purpose, for records: `10.0.0.0/8 (private use, RFC 1918)`.
        range: String,
    },
}

/// Judges an address.
pub fn judge(addr: IpAddr, rules: &AddressRules) -> AddressVerdict {
    let addr = addr.to_canonical();
    let carried = match addr {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(outer) => carried_v4(outer),
    };
    let named = |is: &dyn Fn(IpAddr) -> bool| {
        is(addr) || carried.iter().any(|(inner, _)| is(IpAddr::V4(*inner)))
    };
    let exactly = rules
        .trusted_ranges
        .iter()
        .any(|net| *net == IpNet::from(addr));
    let covered = rules.trusted_ranges.iter().any(|net| net.contains(&addr));

    if named(&|a| METADATA.contains(&a)) {
        return open_if(exactly, RULE_METADATA, || {
            format!("{addr} (cloud metadata)")
        });
    }
    if named(&|a| rules.own_addresses.contains(&a) && !a.is_loopback()) {
        return open_if(exactly, RULE_OWN, || {
            format!("{addr} (this machine's own address)")
        });
    }
    let opens = |block: &Block| match block.opening {
        Opening::Trust => covered,
        Opening::Exact => exactly,
        Opening::Never => false,
    };
    if let Some(block) = block_of(addr) {
        return open_if(opens(block), RULE_PRIVATE, || {
            format!("{} ({})", block.net, block.purpose)
        });
    }
    let blocks = carried
        .iter()
        .filter_map(|(inner, form)| Some((block_of(IpAddr::V4(*inner))?, form)));
    let mut verdict = AddressVerdict::Public;
    for (block, form) in blocks {
        verdict = open_if(opens(block), RULE_PRIVATE, || {
            format!("{} ({}) in {form}", block.net, block.purpose)
        });
        if verdict != AddressVerdict::Trusted {
            break;
        }
    }
    verdict
}

fn open_if(open: bool, rule: &'static str, range: impl FnOnce() -> String) -> AddressVerdict {
    if open {
        AddressVerdict::Trusted
    } else {
        AddressVerdict::Denied {
            rule,
            range: range(),
        }
    }
}

/// The block that makes an address non-public.
fn block_of(addr: IpAddr) -> Option<&'static Block> {
    match addr {
        IpAddr::V4(addr) => BLOCKS
            .v4
            .iter()
            .find(|(net, _)| net.contains(&addr))
            .map(|(_, block)| *block),
        IpAddr::V6(addr) if BLOCKS.reachable.iter().any(|net| net.contains(&addr)) => None,
        IpAddr::V6(addr) => BLOCKS
            .v6
            .iter()
            .find(|(net, _)| net.contains(&addr))
            .map(|(_, block)| *block),
    }
}

/// The IPv4 addresses that an IPv6 address may be turned into on its way, with the name of the form. An
/// IPv4-mapped address is not among them: it is IPv4 before it leaves.
fn carried_v4(outer: Ipv6Addr) -> Vec<(Ipv4Addr, &'static str)> {
    let s = outer.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let mut found = Vec::new();
    match s {
        [0, 0, 0, 0, 0, 0, high, low] => found.push((v4(high, low), "an IPv4-compatible address")),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => found.push((v4(high, low), "NAT64, RFC 6052")),
        [0x64, 0xff9b, 1, ..] => {
            // A translator may use the whole /48 (RFC 6052 section 2.2: the octet at bits 64 to 71 is skipped) or a
            // /96 inside it.
            let low = ((s[4] & 0xff) << 8) | (s[5] >> 8);
            found.push((v4(s[3], low), "local-use translation, RFC 8215"));
            found.push((v4(s[6], s[7]), "local-use translation, RFC 8215"));
        }
        [0x2002, high, low, ..] => found.push((v4(high, low), "6to4, RFC 3056")),
        [0x2001, 0, high, low, ..] => {
            found.push((v4(high, low), "Teredo, RFC 4380"));
            found.push((v4(!s[6], !s[7]), "Teredo, RFC 4380"));
        }
        _ => {}
    }
    // The universal/local bit tells only whether the IPv4 address is unique.
    if s[4] & !0x0200 == 0 && s[5] == 0x5efe {
        found.push((v4(s[6], s[7]), "ISATAP, RFC 5214"));
    }
    found
}

/// The IPv4 networks that egress never goes to, with the rule each is denied by, for the firewall.
///
/// Match in order: the metadata addresses come first and lie inside the networks behind them; networks of one rule
/// are disjoint. Loopback is left out, because the policy's `loopback` decides about it.
pub fn denied_v4() -> &'static [(Ipv4Net, &'static str)] {
    &BLOCKS.denied_v4
}

/// The IPv6 networks that egress never goes to; see [`denied_v4`]. What NAT64's well-known prefix makes of the denied
/// IPv4 networks is among them; what stands around `::` and `::1` in `::/3` without a use is not.
pub fn denied_v6() -> &'static [(Ipv6Net, &'static str)] {
    &BLOCKS.denied_v6
}

struct Blocks {
    v4: Vec<(Ipv4Net, &'static Block)>,
    v6: Vec<(Ipv6Net, &'static Block)>,
    reachable: Vec<Ipv6Net>,
    denied_v4: Vec<(Ipv4Net, &'static str)>,
    denied_v6: Vec<(Ipv6Net, &'static str)>,
}

static BLOCKS: LazyLock<Blocks> = LazyLock::new(|| {
    let v4: Vec<(Ipv4Net, &Block)> = special::V4
        .iter()
        .map(|block| (net(block.net), block))
        .collect();
    let v6: Vec<(Ipv6Net, &Block)> = special::V6
        .iter()
        .map(|block| (net(block.net), block))
        .collect();
    let reachable: Vec<Ipv6Net> = special::REACHABLE.iter().map(|text| net(text)).collect();

    let private_v4 = Ipv4Net::aggregate(
        &v4.iter()
            .map(|(net, _)| *net)
            .filter(|net| !net.addr().is_loopback())
            .collect(),
    );
    let listed = v6.iter().map(|(net, _)| *net);
    let elsewhere = listed
        .filter(|net| !net.contains(&Ipv6Addr::LOCALHOST) && !net.contains(&Ipv6Addr::UNSPECIFIED));
    let private_v6 = elsewhere
        .flat_map(|net| without(net, &reachable))
        .chain(private_v4.iter().map(|net| nat64(*net)));
    let private_v6 = Ipv6Net::aggregate(&private_v6.collect());

    let mut denied_v4 = Vec::new();
    let mut denied_v6 = Vec::new();
    for addr in METADATA {
        match addr {
            IpAddr::V4(addr) => {
                denied_v4.push((Ipv4Net::from(*addr), RULE_METADATA));
                denied_v6.push((nat64(Ipv4Net::from(*addr)), RULE_METADATA));
            }
            IpAddr::V6(addr) => denied_v6.push((Ipv6Net::from(*addr), RULE_METADATA)),
        }
    }
    denied_v4.extend(private_v4.into_iter().map(|net| (net, RULE_PRIVATE)));
    denied_v6.extend(private_v6.into_iter().map(|net| (net, RULE_PRIVATE)));
    Blocks {
        v4,
        v6,
        reachable,
        denied_v4,
        denied_v6,
    }
});

/// A network of the tables in [`super::special`]; a test parses each of them.
fn net<N: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> N {
    text.parse()
        .expect("a network of the special-purpose tables")
}

/// What NAT64's well-known prefix (RFC 6052) makes of an IPv4 network.
fn nat64(inner: Ipv4Net) -> Ipv6Net {
    let low = u128::from(u32::from(inner.network()));
    let prefix = u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0));
    Ipv6Net::new_assert(Ipv6Addr::from(prefix | low), 96 + inner.prefix_len())
}

/// A network less others, as the fewest networks.
fn without(net: Ipv6Net, holes: &[Ipv6Net]) -> Vec<Ipv6Net> {
    if holes.iter().any(|hole| hole.contains(&net)) {
        return Vec::new();
    }
    if !holes.iter().any(|hole| net.contains(hole)) {
        return vec![net];
    }
    // A network that holds another one is no single address, so it has halves.
    let halves = net.subnets(net.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, holes)).collect()
}

#[cfg(test)]
#[path = "ranges_tests.rs"]
mod tests;
