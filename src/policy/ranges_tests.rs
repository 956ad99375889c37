//! The address blocks one by one, what opens them, and the firewall's lists against the judgement.
use super::*;
use proptest::prelude::*;

fn rules(trusted: &[&str], own: &[&str]) -> AddressRules {
    AddressRules {
        trusted_ranges: trusted.iter().map(|text| text.parse().unwrap()).collect(),
        own_addresses: own.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// The verdict in one word: `public`, `trusted`, or the rule.
fn word(addr: &str, rules: &AddressRules) -> &'static str {
    match judge(addr.parse().unwrap(), rules) {
        AddressVerdict::Public => "public",
        AddressVerdict::Trusted => "trusted",
        AddressVerdict::Denied { rule, .. } => rule,
    }
}

#[test]
fn public_addresses_pass() {
    let rules = rules(&[], &[]);
    for addr in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "168.63.129.15",
        "192.31.196.1",
        "192.52.193.1",
        "192.175.48.1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2001:3::1",
        "2001:4:112::1",
        "2001:200::1",
        "2620:4f:8000::1",
        "2606:4700::1111",
        "2a00:1:2:3::1",
        "3ffe:ffff::1",
        "2003::1",
        "2a00:1:2:3:0:5efe:1.1.1.1",
    ] {
        assert_eq!(word(addr, &rules), "public", "{addr}");
    }
}

#[test]
fn every_special_purpose_block_is_denied_at_both_ends() {
    let rules = rules(&[], &[]);
    for (addr, range) in [
        ("0.0.0.0", "0.0.0.0/8"),
        ("0.255.255.255", "0.0.0.0/8"),
        ("10.0.0.0", "10.0.0.0/8"),
        ("10.255.255.255", "10.0.0.0/8"),
        ("100.64.0.0", "100.64.0.0/10"),
        ("100.127.255.255", "100.64.0.0/10"),
        ("127.0.0.1", "127.0.0.0/8"),
        ("127.255.255.255", "127.0.0.0/8"),
        ("169.254.0.0", "169.254.0.0/16"),
        ("169.254.255.255", "169.254.0.0/16"),
        ("172.16.0.0", "172.16.0.0/12"),
        ("172.31.255.255", "172.16.0.0/12"),
        ("192.0.0.1", "192.0.0.0/24"),
        ("192.0.0.9", "192.0.0.0/24"),
        ("192.0.0.171", "192.0.0.0/24"),
        ("192.0.2.1", "192.0.2.0/24"),
        ("192.88.99.2", "192.88.99.0/24"),
        ("192.168.0.0", "192.168.0.0/16"),
        ("192.168.255.255", "192.168.0.0/16"),
        ("198.18.0.0", "198.18.0.0/15"),
        ("198.19.255.255", "198.18.0.0/15"),
        ("198.51.100.1", "198.51.100.0/24"),
        ("203.0.113.1", "203.0.113.0/24"),
        ("224.0.0.0", "224.0.0.0/4"),
        ("239.255.255.255", "224.0.0.0/4"),
        ("240.0.0.0", "240.0.0.0/4"),
        ("255.255.255.254", "240.0.0.0/4"),
        ("255.255.255.255", "255.255.255.255/32"),
        ("::", "::/128"),
        ("::1", "::1/128"),
        ("::2", "::/96"),
        ("::10.0.0.5", "::/96"),
        ("::1.1.1.1", "::/96"),
        ("64:ff9b:1::1", "64:ff9b:1::/48"),
        ("64:ff9b:2::1", "::/3"),
        ("100::1", "100::/64"),
        ("100:0:0:1::1", "100:0:0:1::/64"),
        ("100:0:0:2::1", "::/3"),
        ("2001::1", "2001::/32"),
        ("2001:1::1", "2001::/23"),
        ("2001:2::1", "2001:2::/48"),
        ("2001:10::1", "2001:10::/28"),
        ("2001:20::1", "2001:20::/28"),
        ("2001:30::1", "2001:30::/28"),
        ("2001:1ff::1", "2001::/23"),
        ("2001:db8::1", "2001:db8::/32"),
        ("2002:101:101::1", "2002::/16"),
        ("3fff::1", "3fff::/20"),
        ("4000::1", "4000::/2"),
        ("5f00::1", "5f00::/16"),
        ("8000::1", "8000::/1"),
        ("fc00::1", "fc00::/7"),
        ("fdff::1", "fc00::/7"),
        ("fe80::1", "fe80::/10"),
        ("fec0::1", "fec0::/10"),
        ("ff02::1", "ff00::/8"),
        ("::ffff:127.0.0.1", "127.0.0.0/8"),
        ("::ffff:0.0.0.0", "0.0.0.0/8"),
        ("::ffff:0:1.1.1.1", "::/3"),
    ] {
        match judge(addr.parse().unwrap(), &rules) {
            AddressVerdict::Denied {
                rule: "private-range",
                range: seen,
            } => {
                assert!(seen.starts_with(&format!("{range} (")), "{addr}: {seen}");
            }
            other => panic!("{addr}: {other:?}"),
        }
    }
}

#[test]
fn metadata_is_named_apart_in_every_form() {
    let rules = rules(&["0.0.0.0/0", "::/0"], &[]);
    for addr in METADATA {
        assert_eq!(word(&addr.to_string(), &rules), "metadata", "{addr}");
    }
    for addr in [
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "2001:0:101:101:0:0:5601:5601",
        "2a00:1:2:3:0:5efe:169.254.169.254",
        "2a00:1:2:3:200:5efe:169.254.169.254",
        "64:ff9b::168.63.129.16",
    ] {
        assert_eq!(word(addr, &rules), "metadata", "{addr}");
    }
}

#[test]
fn only_its_exact_address_opens_metadata_loopback_and_own_addresses() {
    let wide = rules(
        &["0.0.0.0/0", "::/0"],
        &["10.0.0.5", "11.22.33.1", "127.0.0.1", "::1", "fe80::7"],
    );
    for (addr, expected) in [
        ("169.254.169.254", "metadata"),
        ("10.0.0.5", "own-address"),
        ("11.22.33.1", "own-address"),
        ("64:ff9b::10.0.0.5", "own-address"),
        ("fe80::7", "own-address"),
        ("127.0.0.1", "private-range"),
        ("127.9.9.9", "private-range"),
        ("::1", "private-range"),
        ("::ffff:127.0.0.1", "private-range"),
        ("64:ff9b::127.0.0.1", "private-range"),
    ] {
        assert_eq!(word(addr, &wide), expected, "{addr}");
    }
    let exact = rules(
        &[
            "169.254.169.254/32",
            "10.0.0.5/32",
            "127.0.0.1/32",
            "::1/128",
            "fd00:ec2::254/128",
        ],
        &["10.0.0.5", "127.0.0.1", "::1"],
    );
    for addr in [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "10.0.0.5",
        "127.0.0.1",
        "::1",
        "fd00:ec2::254",
    ] {
        assert_eq!(word(addr, &exact), "trusted", "{addr}");
    }
    assert_eq!(word("64:ff9b::169.254.169.254", &exact), "metadata");
    assert_eq!(word("127.0.0.2", &exact), "private-range");
}

#[test]
fn a_trusted_range_opens_what_it_covers_and_no_more() {
    let rules = rules(&["10.1.0.0/16", "fd12::/16", "64:ff9b::10.2.0.0/112"], &[]);
    for (addr, expected) in [
        ("10.1.2.3", "trusted"),
        ("::ffff:10.1.2.3", "trusted"),
        ("10.2.2.3", "private-range"),
        ("fd12::1", "trusted"),
        ("fd13::1", "private-range"),
        ("64:ff9b::10.2.0.9", "trusted"),
        ("64:ff9b::10.1.2.3", "private-range"),
        ("2a00:1:2:3:0:5efe:10.1.2.3", "private-range"),
        ("::10.1.2.3", "private-range"),
        ("1.1.1.1", "public"),
    ] {
        assert_eq!(word(addr, &rules), expected, "{addr}");
    }
    let everything = super::tests::rules(&["0.0.0.0/0", "::/0"], &[]);
    for addr in [
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "192.88.99.1",
        "::",
        "::2",
        "2002::1",
        "2001::1",
        "ff02::1",
    ] {
        assert_eq!(word(addr, &everything), "private-range", "{addr}");
    }
}

#[test]
fn the_lists_for_the_firewall_are_ordered_and_disjoint() {
    fn check<N: Copy + std::fmt::Display>(list: &[(N, &str)], overlap: impl Fn(N, N) -> bool) {
        let first_private = list
            .iter()
            .position(|(_, rule)| *rule == RULE_PRIVATE)
            .unwrap();
        assert!(
            list[..first_private]
                .iter()
                .all(|(_, rule)| *rule == RULE_METADATA)
        );
        assert!(
            list[first_private..]
                .iter()
                .all(|(_, rule)| *rule == RULE_PRIVATE)
        );
        for (i, (a, rule)) in list.iter().enumerate() {
            for (b, other) in &list[i + 1..] {
                assert!(rule != other || !overlap(*a, *b), "{a} {b}");
            }
        }
    }
    check(denied_v4(), |a, b| a.contains(&b) || b.contains(&a));
    check(denied_v6(), |a, b| a.contains(&b) || b.contains(&a));
    assert!(denied_v6().len() < 120, "{}", denied_v6().len());
}

fn firewall(addr: IpAddr) -> Option<&'static str> {
    match addr {
        IpAddr::V4(addr) => denied_v4()
            .iter()
            .find(|(net, _)| net.contains(&addr))
            .map(|(_, rule)| *rule),
        IpAddr::V6(addr) => denied_v6()
            .iter()
            .find(|(net, _)| net.contains(&addr))
            .map(|(_, rule)| *rule),
    }
}

fn judged(addr: IpAddr) -> Option<&'static str> {
    match judge(addr, &AddressRules::default()) {
        AddressVerdict::Denied { rule, .. } => Some(rule),
        _ => None,
    }
}

proptest! {
    #[test]
    fn the_firewall_and_the_judgement_agree_on_v4(bits in any::<u32>()) {
        let addr = Ipv4Addr::from(bits);
        prop_assume!(!addr.is_loopback());
        prop_assert_eq!(firewall(addr.into()), judged(addr.into()));
    }

    #[test]
    fn the_firewall_and_the_judgement_agree_on_native_v6(bits in any::<u128>(), head in prop::option::of(0x2001_0000u32..0x2001_0200)) {
        let bits = match head {
            Some(head) => (u128::from(head) << 96) | (bits >> 32),
            None => bits | (1 << 125),
        };
        let addr = Ipv6Addr::from(bits);
        prop_assume!(carried_v4(addr).is_empty() || addr.segments()[0] < 0x2003);
        prop_assume!(!carried_v4(addr).iter().any(|(inner, _)| METADATA.contains(&IpAddr::V4(*inner))));
        prop_assert_eq!(firewall(addr.into()), judged(addr.into()));
    }

    #[test]
    fn a_mapped_address_is_judged_as_the_address_it_maps(bits in any::<u32>()) {
        let addr = Ipv4Addr::from(bits);
        let rules = rules(&["10.0.0.0/8"], &["10.0.0.1"]);
        prop_assert_eq!(judge(addr.to_ipv6_mapped().into(), &rules), judge(addr.into(), &rules));
    }

    #[test]
    fn translation_never_turns_a_denied_address_public(bits in any::<u32>()) {
        let inner = Ipv4Addr::from(bits);
        let translated: IpAddr = Ipv6Addr::from(u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)) | u128::from(bits)).into();
        prop_assert_eq!(judged(translated), judged(inner.into()));
    }
}
