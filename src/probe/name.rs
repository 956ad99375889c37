//! The name by which the probes see that resolved addresses are judged: admitted as a name, and never by its address.

use crate::policy::{Allowlist, Entry};
use crate::proxy::Dns;
use std::net::{IpAddr, Ipv4Addr};

/// The name, in a domain that never exists (RFC 2606), and its port.
pub const ENTRY: &str = "address.preflight.invalid:443";
const HOST: &str = "address.preflight.invalid";
/// What it resolves to: all hosts of a link (RFC 1112), an address that no policy can trust and to which TCP does not connect.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));

/// Lets the proxy's list admit the name, and its hosts file know it.
pub fn admit(allowlist: &Allowlist, dns: Dns) -> (Allowlist, Dns) {
    let own = Entry::parse(ENTRY).ok();
    let allowlist = Allowlist::from_entries(allowlist.entries().into_iter().cloned().chain(own));
    let mut dns = dns;
    dns.hosts.insert(HOST.into(), vec![ADDRESS]);
    (allowlist, dns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ranges::{self, AddressRules, AddressVerdict};
    use crate::policy::{Authority, Verdict};

    #[test]
    fn the_name_is_admitted_and_its_address_is_not_whatever_is_trusted() {
        let (allowlist, dns) = admit(&Allowlist::from_entries([]), Dns::from_files(b"", b""));
        let authority = Authority::parse_connect(ENTRY.as_bytes()).unwrap();
        assert!(matches!(allowlist.judge(&authority), Verdict::Admitted { .. }));
        let rules = AddressRules { trusted_ranges: vec!["0.0.0.0/0".parse().unwrap()], own_addresses: Vec::new() };
        for address in &dns.hosts[HOST] {
            assert!(matches!(ranges::judge(*address, &rules), AddressVerdict::Denied { .. }), "{address}");
        }
    }
}
