//! Counts the tries at each object of a run.

use super::parts::Parts;
use super::record::{Denial, Object};
use crate::policy::Axis;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How many distinct objects are counted. A command can try any number of names, so the table has a bound: beyond it
/// objects already known are still counted rightly, and each new one is given 0, for "not known".
pub const CAPACITY: usize = 65_536;

/// Tries by object.
#[derive(Debug, Default)]
pub struct Attempts {
    tries: HashMap<[u8; 32], u64>,
}

impl Attempts {
    /// The number of this denial's first try at its object, from 1, or 0 where it is not known; adds its `count`.
    ///
    /// An object is an axis and what was asked for: host and port, path or paths, or raw text, whatever the operation
    /// and whatever addresses a name had this time; addresses count only where there is no name.
    pub fn number(&mut self, denial: &Denial) -> u64 {
        let key = key(denial.axis, &denial.object);
        let full = self.tries.len() >= CAPACITY;
        match self.tries.entry(key) {
            Entry::Vacant(_) if full => 0,
            entry => {
                let tries = entry.or_default();
                let first = tries.saturating_add(1);
                *tries = tries.saturating_add(denial.count);
                first
            }
        }
    }
}

/// A hash stands for the object, so that the table's size does not depend on what a command tries.
fn key(axis: Axis, object: &Object) -> [u8; 32] {
    let mut parts = Parts::default();
    parts.text(Some(axis.name()));
    parts.text(object.host.as_deref());
    parts.number(object.port);
    parts.text(object.path.as_deref());
    parts.text(object.to.as_deref());
    parts.text(object.text.as_deref());
    if object.host.is_none() {
        parts.addresses(&object.addrs);
    }
    parts.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::Mechanism;

    fn denial(object: Object) -> Denial {
        Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed")
    }

    fn host(name: &str, port: u16) -> Object {
        Object { host: Some(name.into()), port: Some(port), ..Object::default() }
    }

    #[test]
    fn tries_at_one_object_are_numbered_whatever_the_operation_and_the_addresses() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.number(&denial(host("a.test", 443))), 1);
        let mut other = denial(host("a.test", 443));
        other.operation = "GET".into();
        other.object.addrs = vec!["10.0.0.5".parse().unwrap()];
        other.count = 10;
        assert_eq!(attempts.number(&other), 2);
        assert_eq!(attempts.number(&denial(host("a.test", 443))), 12);
        assert_eq!(attempts.number(&denial(host("a.test", 80))), 1);
        let mut elsewhere = denial(host("a.test", 443));
        elsewhere.axis = Axis::Privilege;
        assert_eq!(attempts.number(&elsewhere), 1);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let mut attempts = Attempts::default();
        for object in [
            Object { host: Some("a".into()), path: Some("b".into()), ..Object::default() },
            Object { host: Some("ab".into()), ..Object::default() },
            Object { path: Some("ab".into()), ..Object::default() },
            Object { path: Some("a".into()), to: Some("b".into()), ..Object::default() },
            Object { text: Some("ab".into()), ..Object::default() },
            Object { host: Some("".into()), ..Object::default() },
            Object { addrs: vec!["1.2.3.4".parse().unwrap()], ..Object::default() },
            Object::default(),
        ] {
            assert_eq!(attempts.number(&denial(object.clone())), 1, "{object:?}");
        }
    }

    #[test]
    fn a_full_table_says_not_known_and_never_a_wrong_number() {
        let mut attempts = Attempts::default();
        for n in 0..CAPACITY {
            assert_eq!(attempts.number(&denial(host(&format!("{n}.test"), 443))), 1);
        }
        assert_eq!(attempts.number(&denial(host("one-more.test", 443))), 0);
        assert_eq!(attempts.number(&denial(host("one-more.test", 443))), 0);
        assert_eq!(attempts.number(&denial(host("7.test", 443))), 2);
    }
}
