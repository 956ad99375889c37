//! The outside as an ordinary session meets it: names that resolve, origins behind them, and the addresses that an
//! attacker would rather have, each with a listener that keeps what arrives.

use crate::address::{METADATA4, METADATA6, NAT64_PRIVATE, PRIVATE4, PUBLIC4, PUBLIC4_B, PUBLIC6, RESOLVER4};
use crate::authority::Authority;
use crate::closed::World;
use crate::error::Error;
use crate::origin::{self, Content, Origin};
use crate::resolver::Resolver;
use crate::sink::Sink;
use std::net::{IpAddr, Ipv6Addr};

/// Names that the shipped allowlist admits, on public addresses.
pub const ADMITTED: [&str; 7] = [
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "github.com",
    "index.crates.io",
    "static.crates.io",
    "archive.ubuntu.com",
];
/// A name that no allowlist admits, on a public address of its own.
pub const STRANGER: &str = "stranger.example.org";

/// The servers of the outside.
pub struct Internet {
    /// Answers at [`RESOLVER4`].
    pub resolver: Resolver,
    /// Signed every certificate here; the box trusts it.
    pub authority: Authority,
    /// Port 80 behind the admitted names, at [`PUBLIC4`].
    pub http: Origin,
    /// The same at [`PUBLIC6`].
    pub http6: Origin,
    /// Port 443 behind the admitted names, at [`PUBLIC4`].
    pub https: Origin,
    /// The same at [`PUBLIC6`].
    pub https6: Origin,
    /// Port 80 behind [`STRANGER`], at [`PUBLIC4_B`].
    pub stranger: Origin,
    /// Port 443 behind [`STRANGER`].
    pub stranger_https: Origin,
    /// Port 80 at [`METADATA4`]: what an attacker would read there.
    pub metadata: Origin,
    /// Port 80 at [`PRIVATE4`].
    pub private: Origin,
    /// Port 80 at [`METADATA6`].
    pub metadata6: Origin,
    /// Port 80 at [`NAT64_PRIVATE`].
    pub nat64: Origin,
}

impl Internet {
    /// Starts the servers with the standard content.
    ///
    /// # Errors
    /// An address can't be bound, or no certificate could be made.
    pub fn start(world: &World) -> Result<Internet, Error> {
        Internet::serving(world, origin::standard())
    }

    /// Starts the servers with that content behind the admitted names.
    ///
    /// # Errors
    /// See [`Internet::start`].
    pub fn serving(world: &World, content: Content) -> Result<Internet, Error> {
        let (outside, authority) = (world.outside(), Authority::new()?);
        world.trust(authority.pem());
        let resolver = Resolver::start(outside, RESOLVER4)?;
        for name in ADMITTED {
            resolver.host(name, &[PUBLIC4.into(), PUBLIC6.into()]);
        }
        resolver.host(STRANGER, &[PUBLIC4_B.into()]);
        let https = |address: IpAddr, names: &[&str], content: Content| {
            Origin::https(outside, address, 443, &authority, names, content)
        };
        Ok(Internet {
            http: Origin::http(outside, PUBLIC4, 80, content.clone())?,
            http6: Origin::http(outside, PUBLIC6, 80, content.clone())?,
            https: https(PUBLIC4.into(), &ADMITTED, content.clone())?,
            https6: https(PUBLIC6.into(), &ADMITTED, content)?,
            stranger: Origin::http(outside, PUBLIC4_B, 80, origin::standard())?,
            stranger_https: https(PUBLIC4_B.into(), &[STRANGER], origin::standard())?,
            metadata: Origin::http(outside, METADATA4, 80, origin::standard())?,
            private: Origin::http(outside, PRIVATE4, 80, origin::standard())?,
            metadata6: Origin::http(outside, METADATA6, 80, origin::standard())?,
            nat64: Origin::http(outside, NAT64_PRIVATE, 80, origin::standard())?,
            resolver,
            authority,
        })
    }
}

/// A listener on every address of the outside, for both families, at a port where no origin is.
///
/// # Errors
/// The port can't be bound.
pub fn everywhere(world: &World, port: u16) -> Result<(Sink, Sink), Error> {
    let any = Ipv6Addr::UNSPECIFIED;
    Ok((Sink::tcp(world.outside(), any, port)?, Sink::udp(world.outside(), any, port)?))
}
