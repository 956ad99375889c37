//! Whose a socket is: from its addresses to its inode by the kernel's socket monitor (sock_diag(7)) or, where the kernel has
//! none, by the tables in /proc/net; from the inode to the processes that hold it by their descriptors.
//!
//! All of it is of the calling thread's network namespace, or of that in which the monitor's socket was opened.

mod diag;
mod holders;

pub use diag::row;
pub use holders::{Holder, Search};

use diag::Diag;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// IPPROTO_TCP and IPPROTO_UDP (IANA protocol numbers).
pub const TCP: u8 = 6;
/// See [`TCP`].
pub const UDP: u8 = 17;

/// Most bytes of a table of /proc/net that are read.
const TABLE_LIMIT: u64 = 4 << 20;

/// A socket's two ends as its packets show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// The end whose socket is asked for.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

impl Flow {
    /// The flow with IPv4 addresses in their own form, as packets have them, and without scopes.
    fn plain(self) -> Flow {
        Flow { local: plain(self.local), remote: plain(self.remote), ..self }
    }
}

/// An address as the packets to it show it: one that is mapped into IPv6 in its own form, without a scope or a flow label.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Which socket has the local end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The one with this inode.
    Socket(u64),
    /// None has it any more.
    NoSocket,
    /// It cannot be told: several share the port, or the kernel does not say.
    Undecided,
}

/// A socket as the kernel lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its local end.
    pub local: SocketAddr,
    /// Its remote end; all zero where it is not connected.
    pub remote: SocketAddr,
    /// Its inode; 0 where no descriptor refers to it any more.
    pub inode: u64,
}

/// The asking end.
#[derive(Debug, Default)]
pub struct SocketOwner {
    diag: Option<Diag>,
    /// The kernel has no socket monitor: the tables are read instead.
    without: bool,
    /// The monitor is of another network namespace, where no other can be opened from here.
    elsewhere: bool,
}

impl SocketOwner {
    /// Asks by a monitor's socket of another network namespace.
    pub fn elsewhere(monitor: OwnedFd) -> SocketOwner {
        SocketOwner { diag: Some(Diag::of(monitor)), without: false, elsewhere: true }
    }

    /// Which socket has the local end of `flow`.
    pub fn of(&mut self, flow: Flow) -> Owner {
        let flow = flow.plain();
        if self.elsewhere && self.diag.is_none() {
            return Owner::Undecided;
        }
        if !self.without && self.diag.is_none() {
            self.diag = Diag::open();
            self.without = self.diag.is_none();
        }
        let Some(diag) = &mut self.diag else { return by_tables(flow) };
        match diag.rows(flow) {
            Ok(rows) => decide(flow, rows),
            Err(_) => {
                // What is left of the answer would be taken for the next one.
                self.diag = None;
                Owner::Undecided
            }
        }
    }
}

/// Picks the flow's socket. A TCP flow has one by its four numbers. A datagram's port may be shared, and a datagram may be
/// sent from another address than the socket's own and to another than the one it is connected to: then only a port that
/// one socket has tells anything.
fn decide(flow: Flow, rows: impl IntoIterator<Item = Row>) -> Owner {
    let fits = |row: &Row| match flow.protocol {
        TCP => (plain(row.local), plain(row.remote)) == (flow.local, flow.remote),
        _ => row.local.port() == flow.local.port() && can_send(row.local.ip(), flow.local.ip()),
    };
    let mut rows = rows.into_iter().filter(|row| row.inode != 0).filter(fits);
    match rows.next() {
        None => Owner::NoSocket,
        // A list that is read while it changes may have a row twice.
        Some(row) if rows.all(|other| other.inode == row.inode) => Owner::Socket(row.inode),
        Some(_) => Owner::Undecided,
    }
}

/// Whether a socket that is bound to `bound` could send a packet of the family that `source` is of.
fn can_send(bound: IpAddr, source: IpAddr) -> bool {
    // One of IPv6 that is bound to no address sends both, unless it is told otherwise.
    bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED) || bound.to_canonical().is_ipv4() == source.is_ipv4()
}

fn by_tables(flow: Flow) -> Owner {
    let names = if flow.protocol == TCP { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    let mut rows = Vec::new();
    for name in names {
        let mut text = Vec::new();
        let read = File::open(format!("/proc/thread-self/net/{name}"))
            .and_then(|table| table.take(TABLE_LIMIT).read_to_end(&mut text));
        match read {
            Ok(length) if (length as u64) < TABLE_LIMIT => rows.extend(table(&text)),
            // A kernel without IPv6 has no table for it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            _ => return Owner::Undecided,
        }
    }
    match decide(flow, rows) {
        // The tables come in pieces, and what moves meanwhile may be missing.
        Owner::NoSocket => Owner::Undecided,
        owner => owner,
    }
}

/// The sockets of a table of /proc/net (proc_pid_net(5)).
pub fn table(text: &[u8]) -> impl Iterator<Item = Row> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
        let (local, remote) = (end(fields.next()?)?, end(fields.next()?)?);
        Some(Row { local, remote, inode: fields.nth(6)?.parse().ok()? })
    })
}

/// `ADDRESS:PORT`, the port in hexadecimal and the address in words of 32 bits, each as a number of this machine.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for at in 0..4 {
                octets[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
#[path = "socket_owner_tests.rs"]
mod tests;
