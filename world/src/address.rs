//! The addresses of the world. The public ones are globally classified: a documentation range would be refused by a
//! correct range check and a test would pass for the wrong reason.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The box's own IPv4 address, in a /24 with the outside.
pub const BOX4: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 2);
/// The box's own IPv6 address, in a /64 with the outside.
pub const BOX6: Ipv6Addr = Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0, 0, 2);
/// The outside's end of the link, the box's IPv4 default route.
pub const GATEWAY4: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 1);
/// The outside's end of the link, the box's IPv6 default route.
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0, 0, 1);
/// Where the box's `/etc/resolv.conf` says that names are resolved.
pub const RESOLVER4: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 53);
/// A public address for origins.
pub const PUBLIC4: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 44);
/// A second public address, for names that must not share the first's.
pub const PUBLIC4_B: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 45);
/// A public address for origins.
pub const PUBLIC6: Ipv6Addr = Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0, 0, 0x44);
/// A private address (RFC 1918).
pub const PRIVATE4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
/// A unique local address (RFC 4193).
pub const PRIVATE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
/// The metadata service of most clouds.
pub const METADATA4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The metadata service's IPv6 address on EC2.
pub const METADATA6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// The wire server of Azure: a public-looking address that serves metadata.
pub const WIRE_SERVER4: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
/// [`PRIVATE4`] in the well-known NAT64 prefix (RFC 6052).
pub const NAT64_PRIVATE: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x0a00, 5);
/// [`PRIVATE4`] as 6to4 writes it (RFC 3056).
pub const SIX_TO_FOUR_PRIVATE: Ipv6Addr = Ipv6Addr::new(0x2002, 0x0a00, 5, 0, 0, 0, 0, 1);

/// Every address that the outside owns when a world is built.
pub const OUTSIDE: [IpAddr; 13] = [
    IpAddr::V4(GATEWAY4),
    IpAddr::V6(GATEWAY6),
    IpAddr::V4(RESOLVER4),
    IpAddr::V4(PUBLIC4),
    IpAddr::V4(PUBLIC4_B),
    IpAddr::V6(PUBLIC6),
    IpAddr::V4(PRIVATE4),
    IpAddr::V6(PRIVATE6),
    IpAddr::V4(METADATA4),
    IpAddr::V6(METADATA6),
    IpAddr::V4(WIRE_SERVER4),
    IpAddr::V6(NAT64_PRIVATE),
    IpAddr::V6(SIX_TO_FOUR_PRIVATE),
];
