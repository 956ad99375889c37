//! From a stopped call's number to what is to be done about it.

use super::watched::{Ids, Watched, made_for_shadow, watched};
use crate::confine::abi::{Form, Table, entries, tables};
use crate::confine::rules::{Rule, rules};
use crate::plan::means::Terms;
use crate::policy::Abi;
use crate::sys::notify::CallData;
use nix::libc;
use std::collections::HashMap;

/// `AUDIT_ARCH_*` of this program (linux/audit.h).
pub const NATIVE: u32 = Table::Native.audit_arch();

/// The bit by which x32 calls are told from native ones of the same architecture (linux/unistd.h).
const X32: i32 = 0x4000_0000;

/// Whose structures are behind a call's pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structures {
    /// Those of this program.
    Native,
    /// Those of a 32-bit program.
    Narrow,
    /// Those of a 32-bit program, with times of 64 bits.
    Time64,
}

/// A watched call in the terms of the native one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InNative {
    /// The number of the native call that asks the kernel for the same; 0 where there is none.
    pub number: libc::c_long,
    /// Its registers.
    pub arguments: [u64; 6],
    /// What its pointers point to.
    pub structures: Structures,
}

/// What a call is.
#[derive(Debug)]
pub enum Found<'a> {
    /// Made by an entry that the policy does not allow.
    Abi,
    /// One that the filter refuses.
    Refused(&'a Rule),
    /// One that is looked at.
    Watched(&'a Watched, InNative),
    /// None of these.
    Nothing,
}

/// What concerns one number of one table.
#[derive(Debug, Clone)]
struct Slot {
    rules: Vec<usize>,
    watched: Vec<usize>,
    native: libc::c_long,
    form: Form,
}

/// The calls by number.
#[derive(Debug, Clone)]
pub struct Calls {
    /// What the filter refuses.
    pub rules: Vec<Rule>,
    /// What is looked at.
    pub watched: Vec<Watched>,
    /// The tables by which calls may be made.
    pub tables: Vec<Table>,
    by_number: HashMap<(u32, i32), Slot>,
}

impl Calls {
    /// The calls on the given terms, by the native entry and those that are allowed beside it.
    pub fn new(terms: &Terms, ids: Ids, allowed: &[Abi]) -> Calls {
        Calls::of(rules(terms), watched(terms, ids), allowed)
    }

    /// The same for a shadow: with the sockets that it makes, and without the calls whose refusal would be in no record.
    pub fn of_shadow(terms: &Terms, ids: Ids, allowed: &[Abi], makes_sockets: bool) -> Calls {
        let recorded = rules(terms).into_iter().filter(|rule| rule.axis.is_some()).collect();
        let made = makes_sockets.then(made_for_shadow).into_iter();
        Calls::of(recorded, watched(terms, ids).into_iter().chain(made).collect(), allowed)
    }

    fn of(rules: Vec<Rule>, watched: Vec<Watched>, allowed: &[Abi]) -> Calls {
        let tables = tables(allowed);
        let mut by_number: HashMap<(u32, i32), Slot> = HashMap::new();
        let mut put = |call: &'static str, put: &dyn Fn(&mut Slot)| {
            for table in &tables {
                // A name that the library does not know is an error where the filter is built.
                for entry in entries(*table, call).unwrap_or_default() {
                    let native = entry.native.map_or(0, libc::c_long::from);
                    let new = Slot { rules: Vec::new(), watched: Vec::new(), native, form: entry.form };
                    put(by_number.entry((table.audit_arch(), entry.number)).or_insert(new));
                }
            }
        };
        for (index, rule) in rules.iter().enumerate() {
            put(rule.call, &|slot| slot.rules.push(index));
        }
        for (index, one) in watched.iter().enumerate() {
            put(one.call, &|slot| slot.watched.push(index));
        }
        Calls { rules, watched, tables, by_number }
    }

    /// What a stopped call is.
    pub fn find(&self, call: &CallData) -> Found<'_> {
        let known = self.tables.iter().find(|table| table.audit_arch() == call.arch);
        let x32 = cfg!(target_arch = "x86_64") && call.arch == NATIVE && call.number & X32 != 0;
        let Some(table) = known.filter(|_| !x32) else { return Found::Abi };
        let Some(slot) = self.by_number.get(&(call.arch, call.number)) else { return Found::Nothing };
        let arguments = slot.form.native(call.arguments);
        let mut rules = slot.rules.iter().map(|index| &self.rules[*index]);
        if let Some(rule) = rules.find(|rule| rule.refuses(&arguments)) {
            return Found::Refused(rule);
        }
        let structures = match (table, slot.form) {
            (Table::Native, _) => Structures::Native,
            (Table::I386, Form::Time64) => Structures::Time64,
            (Table::I386, _) => Structures::Narrow,
        };
        let mut looked_at = slot.watched.iter().map(|index| &self.watched[*index]);
        let looked_at = looked_at.find(|one| one.concerns(&arguments));
        looked_at
            .map_or(Found::Nothing, |one| Found::Watched(one, InNative { number: slot.native, arguments, structures }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Posture;

    fn find(calls: &Calls, number: libc::c_long, arguments: [u64; 6]) -> String {
        let call = CallData { number: number as i32, arch: NATIVE, instruction: 0, arguments };
        match calls.find(&call) {
            Found::Abi => "abi".into(),
            Found::Refused(rule) => format!("refused {}", rule.name),
            Found::Watched(one, ..) => format!("watched {}", one.call),
            Found::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn registers_tell_what_a_call_is() {
        let calls = Calls::new(&Terms::full(Posture::Locked, Posture::Restricted), Ids { uid: 10001, gid: 10001 }, &[]);
        let write = libc::O_WRONLY as u64;
        assert_eq!(find(&calls, libc::SYS_openat, [0, 0, write, 0, 0, 0]), "watched openat");
        assert_eq!(find(&calls, libc::SYS_openat, [0; 6]), "nothing");
        assert_eq!(find(&calls, libc::SYS_mount, [0; 6]), "refused mount");
        assert_eq!(find(&calls, libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]), "refused terminal-input");
        assert_eq!(find(&calls, libc::SYS_ioctl, [0, 0x4008_6602, 0, 0, 0, 0]), "watched ioctl");
        assert_eq!(find(&calls, libc::SYS_socket, [2, 3, 1, 0, 0, 0]), "watched socket");
        assert_eq!(find(&calls, libc::SYS_socket, [40, 1, 0, 0, 0, 0]), "refused socket-family");
        assert_eq!(find(&calls, libc::SYS_read, [0; 6]), "nothing");
        assert_eq!(find(&calls, 452, [0; 6]), "watched fchmodat2");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(find(&calls, libc::SYS_read | 0x4000_0000, [0; 6]), "abi");
        }
        let foreign = CallData { number: 5, arch: 0x4000_0003, instruction: 0, arguments: [0; 6] };
        assert!(matches!(calls.find(&foreign), Found::Abi));
    }

    #[test]
    fn under_restricted_the_kernel_is_asked_about_mounts() {
        let calls = Calls::new(&Terms::full(Posture::Restricted, Posture::Open), Ids { uid: 10001, gid: 10001 }, &[]);
        assert_eq!(find(&calls, libc::SYS_mount, [0; 6]), "watched mount");
        assert_eq!(find(&calls, libc::SYS_execve, [0; 6]), "nothing");
        assert!(Calls::new(&Terms::full(Posture::Open, Posture::Open), Ids { uid: 0, gid: 0 }, &[]).watched.is_empty());
    }
}
