//! The allowlist: which hosts and ports egress may go to. An empty list admits nothing.

use super::authority::{Authority, Host, Name};
use super::entry::{self, BadEntry, DEFAULT_PORTS, Entry, Pattern};
use std::collections::{BTreeSet, HashMap};

include!(concat!(env!("OUT_DIR"), "/allowlists.rs"));

/// Entries, found by name: one look-up for the host and one for each name above it, however long the list.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    exact: HashMap<Host, Vec<Entry>>,
    below: HashMap<Name, Vec<Entry>>,
    len: usize,
}

/// The allowlist's answer. A refusal is an outcome and no error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The host and the port are admitted.
    Admitted {
        /// The entry that admits them, in its canonical text.
        entry: String,
    },
    /// They are not.
    Refused {
        /// `default-deny` when no entry names the host, `port` when one does, with other ports.
        rule: &'static str,
        /// `not_allowed` or `port_not_allowed`.
        reason: &'static str,
    },
}

/// A line of an allowlist file that is no entry.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: \"{text}\" is no allowlist entry: {fault}; accepted: host, *.host, either with :port", text = text.escape_default())]
pub struct BadLine {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The text that is no entry.
    pub text: String,
    /// What is wrong with it.
    #[source]
    pub fault: BadEntry,
}

impl Allowlist {
    /// A list of these entries; one that is there already is not taken twice.
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Allowlist {
        let mut list = Allowlist::default();
        for entry in entries {
            let found = match &entry.pattern {
                Pattern::Exact(host) => list.exact.entry(host.clone()).or_default(),
                Pattern::Below(name) => list.below.entry(name.clone()).or_default(),
            };
            if !found.contains(&entry) {
                found.push(entry);
                list.len += 1;
            }
        }
        list
    }

    /// A list in its file form: one entry a line, `#` starts a comment. `file` is the name that errors give.
    pub fn from_file_text(file: &str, text: &str) -> Result<Allowlist, BadLine> {
        let mut entries = Vec::new();
        for (line, entry) in entry::entries_of_file(text) {
            entries.push(entry.map_err(|(text, fault)| BadLine { file: file.to_owned(), line, text, fault })?);
        }
        Ok(Allowlist::from_entries(entries))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry, so that nothing is admitted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries in canonical order.
    pub fn entries(&self) -> Vec<&Entry> {
        let mut all: Vec<&Entry> = self.exact.values().chain(self.below.values()).flatten().collect();
        all.sort();
        all
    }

    /// Whether some host is admitted on this port.
    pub fn admits_port(&self, port: u16) -> bool {
        self.exact.values().chain(self.below.values()).flatten().any(|entry| entry.admits_port(port))
    }

    /// A port on which a host is admitted, of those on which it is; `None` where it is on none.
    pub fn first_port(&self, host: &Host) -> Option<u16> {
        let entry = self.naming(host).flatten().next()?;
        Some(entry.port.unwrap_or(DEFAULT_PORTS[1]))
    }

    /// Every port on which some host is admitted.
    pub fn ports(&self) -> BTreeSet<u16> {
        let of = |entry: &Entry| entry.port.map_or(DEFAULT_PORTS.to_vec(), |port| vec![port]);
        self.exact.values().chain(self.below.values()).flatten().flat_map(of).collect()
    }

    /// Judges a host and a port. The nearest entry answers: the exact host, then `*.` of each name above it.
    pub fn judge(&self, authority: &Authority) -> Verdict {
        let mut named = false;
        for found in self.naming(&authority.host) {
            named = true;
            if let Some(entry) = found.iter().find(|entry| entry.admits_port(authority.port)) {
                return Verdict::Admitted { entry: entry.to_string() };
            }
        }
        if named {
            Verdict::Refused { rule: "port", reason: "port_not_allowed" }
        } else {
            Verdict::Refused { rule: "default-deny", reason: "not_allowed" }
        }
    }

    /// The entries that name a host, whatever their ports, nearest first.
    fn naming<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Vec<Entry>> {
        let parents = host.name().into_iter().flat_map(Name::parents);
        self.exact.get(host).into_iter().chain(parents.filter_map(|parent| self.below.get(parent)))
    }
}

#[cfg(test)]
#[path = "allowlist_tests.rs"]
mod tests;
