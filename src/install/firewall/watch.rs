//! The kernel's own notices of ruleset changes (`NFNLGRP_NFTABLES`).

use super::{Channel, FirewallError, datagram};
use netlink_packet_core::{NlaBuffer, NlasIterator};
use std::os::fd::{AsFd, BorrowedFd};

/// linux/netfilter/nfnetlink.h.
const NFNLGRP_NFTABLES: u32 = 7;
const NFNL_SUBSYS_NFTABLES: u8 = 10;
/// In messages about tables, chains, rules, sets, elements, objects and flow tables alike, attribute 1 is the table's
/// name (`NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, ...).
const NFTA_TABLE: u16 = 1;
const NETLINK_HEADER: usize = 16;
const NETFILTER_HEADER: usize = 4;
/// Other tables of the host may change in bursts; a notice that is lost costs a look at ours.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// Tells when something touches one table. It says that a look is needed, never what the look will find.
#[derive(Debug)]
pub struct Watch {
    channel: Channel,
    table: String,
}

impl AsFd for Watch {
    /// Readable when [`Watch::drain`] has something to say.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Watch {
    /// Watches `table` in the calling thread's network namespace from now on. [`super::Wall::watch`] closes the gap
    /// between installation and watch.
    ///
    /// # Errors
    /// [`FirewallError::Socket`].
    pub fn open(table: &str) -> Result<Watch, FirewallError> {
        Watch::by(Channel::open()?, table)
    }

    /// The same in the network namespace of the channel.
    pub(crate) fn by(channel: Channel, table: &str) -> Result<Watch, FirewallError> {
        channel.make_room(RECEIVE_BUFFER)?;
        channel
            .socket()
            .add_membership(NFNLGRP_NFTABLES)
            .map_err(|source| FirewallError::Socket { call: "setsockopt(NETLINK_ADD_MEMBERSHIP)", source })?;
        Ok(Watch { channel, table: table.to_owned() })
    }

    /// Reads every notice that waits, without blocking. True when the table was touched, or may have been: notices
    /// were dropped, or one could not be read. The caller then asks [`super::Wall::is_intact`].
    ///
    /// # Errors
    /// [`FirewallError::Socket`] when the socket is of no use any more.
    pub fn drain(&mut self) -> Result<bool, FirewallError> {
        let mut touched = false;
        loop {
            match self.channel.receive_bytes() {
                Ok(Some(bytes)) => touched |= datagram(&bytes).any(|m| m.map_or(true, |m| self.concerns(m))),
                Ok(None) => return Ok(touched),
                Err(FirewallError::Socket { source, .. }) if source.raw_os_error() == Some(libc::ENOBUFS) => {
                    touched = true;
                }
                Err(FirewallError::Malformed { .. }) => touched = true,
                Err(e) => return Err(e),
            }
        }
    }

    fn concerns(&self, message: &[u8]) -> bool {
        let Some(subsystem) = message.get(5) else {
            return true;
        };
        if *subsystem != NFNL_SUBSYS_NFTABLES {
            return false;
        }
        let Some(attributes) = message.get(NETLINK_HEADER + NETFILTER_HEADER..) else {
            return true;
        };
        let mut named = NlasIterator::new(attributes).map_while(Result::ok);
        // A new generation's number names no table and comes with every commit.
        named.any(|attribute: NlaBuffer<&[u8]>| {
            let value = attribute.value().strip_suffix(&[0]).unwrap_or(attribute.value());
            attribute.kind() == NFTA_TABLE && value == self.table.as_bytes()
        })
    }
}
