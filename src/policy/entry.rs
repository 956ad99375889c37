//! One allowlist entry: `host` or `*.host`, either with `:port`.
//!
//! `host` admits exactly that host. `*.host` admits the names below it at any depth and never `host` itself. Without
//! a port, 80 and 443 are admitted. Nothing else is a pattern, and each entry has one spelling but for letter case:
//! a trailing dot, which a request may carry, is refused in an entry.
//!
//! The file uses only the standard library and `authority.rs`, because `build.rs` compiles it too.

use super::authority::{BadAuthority, Host, Name, port_number};
use std::error::Error;
use std::fmt;

/// The ports that an entry without a port admits.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// One entry of an allowlist. [`fmt::Display`] gives its canonical text, which parses back to the same entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// What the entry admits.
    pub pattern: Pattern,
    /// The one port it admits; none stands for [`DEFAULT_PORTS`].
    pub port: Option<u16>,
}

/// The hosts that an entry admits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// One host, a name or an address literal.
    Exact(Host),
    /// Every name strictly below this one.
    Below(Name),
}

/// Why a text is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEntry {
    /// A `*` that is not the whole first label of more than one.
    Star,
    /// A trailing dot.
    TrailingDot,
    /// `*.` before an address.
    StarOfAddress,
    /// What is left is no host or no port.
    Authority(BadAuthority),
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadEntry::Star => {
                f.write_str("'*' may only stand as the whole first label, as in *.example.org")
            }
            BadEntry::TrailingDot => f.write_str("an entry has no trailing dot"),
            BadEntry::StarOfAddress => f.write_str("an address has no subdomains"),
            BadEntry::Authority(fault) => fault.fmt(f),
        }
    }
}

impl Error for BadEntry {}

impl Entry {
    /// Parses one entry.
    pub fn parse(text: &str) -> Result<Entry, BadEntry> {
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err(BadEntry::Star);
        }
        // Behind the last bracket, if there is one, at most a port follows.
        let tail = rest.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match rest[tail..].rfind(':') {
            Some(colon) => {
                let (host, port) = rest.split_at(tail + colon);
                (
                    host,
                    Some(port_number(&port[1..]).map_err(BadEntry::Authority)?),
                )
            }
            None => (rest, None),
        };
        if host.len() > 1 && host.ends_with('.') && !host.ends_with("..") {
            return Err(BadEntry::TrailingDot);
        }
        let pattern = match (
            below,
            Host::parse(host.as_bytes()).map_err(BadEntry::Authority)?,
        ) {
            (false, host) => Pattern::Exact(host),
            (true, Host::Name(name)) => Pattern::Below(name),
            (true, _) => return Err(BadEntry::StarOfAddress),
        };
        Ok(Entry { pattern, port })
    }

    /// Whether the entry admits the port.
    pub fn admits_port(&self, port: u16) -> bool {
        match self.port {
            Some(one) => one == port,
            None => DEFAULT_PORTS.contains(&port),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(host) => host.fmt(f)?,
            Pattern::Below(name) => write!(f, "*.{name}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// The entries of an allowlist file with their line numbers from 1: one entry a line, `#` starts a comment, blank
/// lines count for nothing.
///
/// Errors give the line's number, its text without comment, and the fault.
pub fn entries_of_file(
    text: &str,
) -> impl Iterator<Item = (usize, Result<Entry, (String, BadEntry)>)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let entry = line.split('#').next().unwrap_or_default().trim();
        (!entry.is_empty()).then(|| {
            (
                index + 1,
                Entry::parse(entry).map_err(|fault| (entry.to_owned(), fault)),
            )
        })
    })
}
