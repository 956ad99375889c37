//! What an operator would have to say so that something refused were admitted.

use super::allowlist::{Allowlist, Verdict};
use super::authority::Authority;
use super::ranges::{self, AddressRules, AddressVerdict};
use ipnet::IpNet;
use std::net::IpAddr;

/// The flag for each thing that is refused, or that nothing helps. `addrs` are those that the refusal was about.
pub fn ways_to_admit(
    authority: &Authority,
    addrs: &[IpAddr],
    allowlist: &Allowlist,
    address_rules: &AddressRules,
) -> Vec<String> {
    if let Verdict::Refused { .. } = allowlist.judge(authority) {
        let port = if matches!(authority.port, 80 | 443) { String::new() } else { format!(":{}", authority.port) };
        return vec![format!("--allow-host {}{port}", authority.host)];
    }
    let denied =
        |addr: IpAddr, rules: &AddressRules| matches!(ranges::judge(addr, rules), AddressVerdict::Denied { .. });
    let ways = addrs.iter().filter(|addr| denied(**addr, address_rules)).map(|addr| {
        let range = IpNet::from(*addr);
        let mut rules = address_rules.clone();
        rules.trusted_ranges.push(range);
        match denied(*addr, &rules) {
            true => format!("{addr}: nothing opens it"),
            false => format!("--trust-range {range}"),
        }
    });
    ways.collect()
}
