//! The special-purpose address blocks as data, and the addresses of cloud metadata services.
//!
//! Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190), the IANA multicast
//! registries, and the IANA IPv6 address space registry, by which only 2000::/3 is global unicast. A block stands
//! here when the registry says that it is not globally reachable, or says nothing. Blocks that are globally
//! reachable inside one that is not are listed only where a name resolves there in earnest: 192.0.0.9 and
//! 192.0.0.10, 2001:1::1 to ::3 (anycast services of the local network) and 2001:20::/28, 2001:30::/28 (identifiers
//! that are no locators) are refused with the block around them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses that is not public.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// The network in CIDR form.
    pub net: &'static str,
    /// What it is for, with the RFC.
    pub purpose: &'static str,
    /// Who may open it.
    pub opening: Opening,
}

/// What opens a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// A trusted range that covers the address.
    Trust,
    /// A trusted range that is exactly the address: it is the machine's own, or leads back to it.
    Exact,
    /// Nothing: no connection to a server can be meant.
    Never,
}

const fn block(net: &'static str, purpose: &'static str) -> Block {
    Block {
        net,
        purpose,
        opening: Opening::Trust,
    }
}

const fn closed(net: &'static str, purpose: &'static str) -> Block {
    Block {
        net,
        purpose,
        opening: Opening::Never,
    }
}

/// IPv4; the first block that holds an address names it.
pub(super) const V4: &[Block] = &[
    // Linux connects to the loopback when asked for 0.0.0.0.
    closed("0.0.0.0/8", "this network, RFC 791"),
    block("10.0.0.0/8", "private use, RFC 1918"),
    block("100.64.0.0/10", "shared address space, RFC 6598"),
    Block {
        net: "127.0.0.0/8",
        purpose: "loopback, RFC 1122",
        opening: Opening::Exact,
    },
    block("169.254.0.0/16", "link local, RFC 3927"),
    block("172.16.0.0/12", "private use, RFC 1918"),
    block("192.0.0.0/24", "IETF protocol assignments, RFC 6890"),
    block("192.0.2.0/24", "documentation, RFC 5737"),
    closed("192.88.99.0/24", "6to4 relay anycast, RFC 7526"),
    block("192.168.0.0/16", "private use, RFC 1918"),
    block("198.18.0.0/15", "benchmarking, RFC 2544"),
    block("198.51.100.0/24", "documentation, RFC 5737"),
    block("203.0.113.0/24", "documentation, RFC 5737"),
    closed("224.0.0.0/4", "multicast, RFC 5771"),
    closed("255.255.255.255/32", "limited broadcast, RFC 8190"),
    block("240.0.0.0/4", "reserved, RFC 1112"),
];

/// IPv6; the first block that holds an address names it. The last three are what global unicast leaves.
pub(super) const V6: &[Block] = &[
    closed("::/128", "unspecified, RFC 4291"),
    Block {
        net: "::1/128",
        purpose: "loopback, RFC 4291",
        opening: Opening::Exact,
    },
    closed("::/96", "IPv4-compatible, RFC 4291"),
    block("64:ff9b:1::/48", "local-use translation, RFC 8215"),
    block("100::/64", "discard only, RFC 6666"),
    block("100:0:0:1::/64", "dummy prefix, RFC 9780"),
    closed("2001::/32", "Teredo, RFC 4380"),
    block("2001:2::/48", "benchmarking, RFC 5180"),
    block("2001:10::/28", "ORCHID, RFC 4843"),
    block("2001:20::/28", "ORCHIDv2, RFC 7343"),
    block("2001:30::/28", "drone remote identification, RFC 9374"),
    block("2001::/23", "IETF protocol assignments, RFC 2928"),
    block("2001:db8::/32", "documentation, RFC 3849"),
    closed("2002::/16", "6to4, RFC 3056"),
    block("3fff::/20", "documentation, RFC 9637"),
    block("5f00::/16", "segment routing, RFC 9602"),
    block("fc00::/7", "unique local, RFC 4193"),
    block("fe80::/10", "link local, RFC 4291"),
    block("fec0::/10", "site local, RFC 3879"),
    closed("ff00::/8", "multicast, RFC 4291"),
    block("::/3", "outside global unicast, RFC 4291"),
    block("4000::/2", "outside global unicast, RFC 4291"),
    block("8000::/1", "outside global unicast, RFC 4291"),
];

/// Globally reachable although [`V6`] has a block around it: translation of public IPv4 addresses (RFC 6052), whose
/// inner address is judged; AMT relays (RFC 7450); AS112 (RFC 7535).
pub(super) const REACHABLE: &[&str] = &["64:ff9b::/96", "2001:3::/32", "2001:4:112::/48"];

/// Where clouds serve instance metadata, credentials, or the wire protocol of the host: never opened by a range,
/// only by a trusted range that is exactly the address.
pub const METADATA: &[IpAddr] = &[
    // AWS, Azure, Google Cloud, Oracle, DigitalOcean, Hetzner, OpenStack.
    v4(169, 254, 169, 254),
    // AWS: container credentials, EKS pod identity.
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    // Tencent Cloud.
    v4(169, 254, 0, 23),
    // Scaleway.
    v4(169, 254, 42, 42),
    // Azure's wire server; a public address.
    v4(168, 63, 129, 16),
    // Alibaba Cloud.
    v4(100, 100, 100, 200),
    // Oracle Cloud's older address.
    v4(192, 0, 0, 192),
    // AWS: metadata, EKS pod identity.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),
    // Google Cloud.
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),
    // Oracle Cloud.
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
    // Scaleway.
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),
    // OpenStack.
    v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(s: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(
        s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7],
    ))
}
