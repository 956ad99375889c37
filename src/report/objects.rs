//! What was tried, and how often.

use crate::ledger::ObjectView;
use crate::ledger::escape::printable;
use crate::policy::Axis;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

/// How many distinct objects of one run are told apart.
pub(super) const RUN_CAPACITY: usize = 65_536;

/// How many distinct objects of all runs together are told apart.
pub(super) const CAPACITY: usize = 262_144;

/// The longest name kept for printing, in bytes.
const NAME_LIMIT: usize = 256;

/// An object as it is named in reports: where it was (`host:port`, or an address where no name was asked for), what
/// path or paths, what text. The addresses that a name had make no other object of it (`ledger::attempts`).
pub(super) fn name<'a>(object: impl Into<ObjectView<'a>>) -> String {
    let object = object.into();
    let mut name = String::with_capacity(64);
    // Writing to a String cannot fail.
    let _written = match (&object.host, &object.addrs[..]) {
        (Some(host), _) if host.contains(':') && host.parse::<Ipv6Addr>().is_ok() => write!(name, "[{host}]"),
        (Some(host), _) => write!(name, "{host}"),
        (None, [IpAddr::V6(addr)]) => write!(name, "[{addr}]"),
        (None, addrs) => addrs.iter().enumerate().try_for_each(|(number, addr)| {
            let comma = if number > 0 { "," } else { "" };
            write!(name, "{comma}{addr}")
        }),
    };
    if let Some(port) = object.port {
        let _written = write!(name, ":{port}");
    }
    for (before, text) in [("", &object.path), ("-> ", &object.to), ("", &object.text)] {
        let Some(text) = text.as_deref().filter(|text| !(before.is_empty() && text.is_empty())) else { continue };
        if !name.is_empty() {
            name.push(' ');
        }
        name.push_str(before);
        name.push_str(text);
    }
    if name.is_empty() {
        name.push('-');
    }
    name
}

/// How an object fared.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    /// The axis whose restriction refused.
    pub(super) axis: Axis,
    /// Its name, printable and cut.
    pub(super) name: String,
    /// Denials.
    pub(super) denials: u64,
    /// Those of them that were made after one in the same run.
    pub(super) reattempts: u64,
    /// Runs in which it was denied.
    pub(super) runs: u64,
}

/// A table of objects with a bound: what a command tries may be any number of names.
#[derive(Debug, Default)]
pub(super) struct Objects {
    tried: HashMap<u128, Tried>,
    /// Denials on objects beyond the bound.
    beyond: u64,
}

impl Objects {
    /// Counts a denial record of one run: `count` denials, of which `reattempts` came after one on the same object.
    pub(super) fn count<'a>(&mut self, axis: Axis, object: impl Into<ObjectView<'a>>, count: u64, reattempts: u64) {
        let name = name(object);
        let mut hash = Sha256::new();
        hash.update(axis.name());
        hash.update([0]);
        hash.update(&name);
        let digest: [u8; 32] = hash.finalize().into();
        let key = u128::from_le_bytes(std::array::from_fn(|at| digest[at]));
        let new = || Tried { axis, name: cut(&name), denials: 0, reattempts: 0, runs: 1 };
        match entry(&mut self.tried, key, RUN_CAPACITY, new) {
            Some(tried) => {
                tried.denials = tried.denials.saturating_add(count);
                tried.reattempts = tried.reattempts.saturating_add(reattempts);
            }
            None => self.beyond = self.beyond.saturating_add(count),
        }
    }

    /// Adds the table of another run.
    pub(super) fn add(&mut self, other: Objects) {
        self.beyond = self.beyond.saturating_add(other.beyond);
        // In a fixed order, so that at the bound the same ones are kept each time.
        let mut tried: Vec<_> = other.tried.into_iter().collect();
        tried.sort_unstable_by_key(|(key, _)| *key);
        for (key, one) in tried {
            let (denials, reattempts, runs) = (one.denials, one.reattempts, one.runs);
            let new = || Tried { denials: 0, reattempts: 0, runs: 0, ..one };
            match entry(&mut self.tried, key, CAPACITY, new) {
                Some(all) => {
                    all.denials = all.denials.saturating_add(denials);
                    all.reattempts = all.reattempts.saturating_add(reattempts);
                    all.runs += runs;
                }
                None => self.beyond = self.beyond.saturating_add(denials),
            }
        }
    }

    /// All of them, those with most denials first.
    pub(super) fn by_volume(&self) -> Vec<&Tried> {
        self.sorted(|tried| tried.denials)
    }

    /// Those that were tried again, those with most re-attempts first.
    pub(super) fn by_reattempts(&self) -> Vec<&Tried> {
        let mut tried = self.sorted(|tried| tried.reattempts);
        tried.retain(|tried| tried.reattempts > 0);
        tried
    }

    /// Denials on objects that are not in the table, which was full.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }

    fn sorted(&self, by: impl Fn(&Tried) -> u64) -> Vec<&Tried> {
        let mut all: Vec<&Tried> = self.tried.values().collect();
        all.sort_unstable_by(|a, b| by(b).cmp(&by(a)).then_with(|| (a.axis, &a.name).cmp(&(b.axis, &b.name))));
        all
    }
}

fn entry(
    table: &mut HashMap<u128, Tried>,
    key: u128,
    capacity: usize,
    new: impl FnOnce() -> Tried,
) -> Option<&mut Tried> {
    let full = table.len() >= capacity;
    match table.entry(key) {
        Entry::Vacant(_) if full => None,
        Entry::Vacant(place) => Some(place.insert(new())),
        Entry::Occupied(place) => Some(place.into_mut()),
    }
}

/// An object's name as it is printed: without hidden characters, and bounded.
pub(super) fn shown<'a>(object: impl Into<ObjectView<'a>>) -> String {
    cut(&name(object))
}

fn cut(name: &str) -> String {
    let name = printable(name);
    let mut end = name.len().min(NAME_LIMIT);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    match end == name.len() {
        true => name.into_owned(),
        false => format!("{}..", &name[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::Object;

    fn host(name: &str) -> Object {
        Object { host: Some(name.into()), port: Some(443), ..Object::default() }
    }

    #[test]
    fn objects_are_named_by_what_was_asked_for() {
        let addrs = |list: &[&str]| list.iter().map(|addr| addr.parse().unwrap()).collect();
        let resolved = Object { addrs: addrs(&["10.0.0.9"]), ..host("a.test") };
        assert_eq!((name(&host("a.test")), name(&resolved)), ("a.test:443".into(), "a.test:443".into()));
        assert_eq!(name(&host("fd00::1")), "[fd00::1]:443");
        let packet = |list| Object { addrs: addrs(list), port: Some(53), ..Object::default() };
        assert_eq!(name(&packet(&["fd00::1"])), "[fd00::1]:53");
        assert_eq!(name(&packet(&["10.0.0.9"])), "10.0.0.9:53");
        assert_eq!(name(&Object { path: Some("/usr/x".into()), ..Object::default() }), "/usr/x");
        let link = Object { path: Some("/usr/x".into()), to: Some("/usr/y".into()), ..Object::default() };
        assert_eq!(name(&link), "/usr/x -> /usr/y");
        assert_eq!(name(&Object { text: Some("a@b".into()), ..Object::default() }), "a@b");
        assert_eq!(name(&Object::default()), "-");
    }

    #[test]
    fn counts_are_exact_where_the_table_is_full() {
        let mut run = Objects::default();
        for n in 0..RUN_CAPACITY {
            run.count(Axis::Network, &host(&format!("{n}.test")), 1, 0);
        }
        run.count(Axis::Network, &host("more.test"), 5, 4);
        run.count(Axis::Network, &host("7.test"), 2, 2);
        assert_eq!((run.by_volume().len(), run.beyond()), (RUN_CAPACITY, 5));
        let most = run.by_reattempts();
        assert_eq!((most.len(), most[0].name.as_str(), most[0].denials, most[0].reattempts), (1, "7.test:443", 3, 2));
    }

    #[test]
    fn runs_add_up_and_axes_are_kept_apart() {
        let mut all = Objects::default();
        for count in [1, 2] {
            let mut run = Objects::default();
            run.count(Axis::Network, &host("a.test"), count, count - 1);
            run.count(Axis::Privilege, &host("a.test"), 1, 0);
            all.add(run);
        }
        let rows =
            all.by_volume().into_iter().map(|of| (of.axis, of.denials, of.reattempts, of.runs)).collect::<Vec<_>>();
        assert_eq!(rows, [(Axis::Network, 3, 1, 2), (Axis::Privilege, 2, 0, 2)]);
        let mut long = Objects::default();
        long.count(Axis::Network, &host(&"ä".repeat(300)), 1, 0);
        let shown = &long.by_volume()[0].name;
        assert!(shown.len() <= NAME_LIMIT + 2 && shown.ends_with("..") && !shown.contains('\u{1b}'));
    }
}
