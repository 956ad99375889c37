//! The name by which the probes see that resolved addresses are judged: admitted as a name, and never by its address. Where
//! a parent proxy resolves names the address stands for itself.

use crate::policy::{Allowlist, Entry};
use crate::proxy::Dns;
use std::net::{IpAddr, Ipv4Addr};

/// The name, in a domain that never exists (RFC 2606), and its port.
pub const ENTRY: &str = "address.preflight.invalid:443";
const HOST: &str = "address.preflight.invalid";
/// What it resolves to: all hosts of a link (RFC 1112), an address that no policy can trust and to which TCP does not connect.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));

/// The address as an entry, with the port of [`ENTRY`].
pub const LITERAL: &str = "224.0.0.1:443";

/// Lets the proxy's list admit the name, and its hosts file know it; the address alone where it leaves names to a parent
/// proxy, which would be asked for that one.
pub fn admit(allowlist: &Allowlist, dns: Dns, by_parent: bool) -> (Allowlist, Dns) {
    let own = Entry::parse(if by_parent { LITERAL } else { ENTRY }).ok();
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
        let admitted = |by_parent: bool, entry: &str| {
            let (allowlist, dns) = admit(&Allowlist::from_entries([]), Dns::from_files(b"", b""), by_parent);
            let authority = Authority::parse_connect(entry.as_bytes()).unwrap();
            (matches!(allowlist.judge(&authority), Verdict::Admitted { .. }), dns)
        };
        assert!(admitted(false, ENTRY).0 && !admitted(false, LITERAL).0);
        assert!(admitted(true, LITERAL).0 && !admitted(true, ENTRY).0);
        let (_, dns) = admitted(false, ENTRY);
        assert_eq!(LITERAL, format!("{}:443", dns.hosts[HOST][0]));
        let rules = AddressRules { trusted_ranges: vec!["0.0.0.0/0".parse().unwrap()], own_addresses: Vec::new() };
        for address in &dns.hosts[HOST] {
            assert!(matches!(ranges::judge(*address, &rules), AddressVerdict::Denied { .. }), "{address}");
        }
    }
}
