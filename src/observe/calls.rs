//! From a stopped call's number to what is to be done about it.

use super::watched::{Ids, Watched, watched};
use crate::confine::rules::{Rule, rules};
use crate::confine::seccomp::number;
use crate::policy::Posture;
use crate::sys::notify::CallData;
use nix::libc;

/// `AUDIT_ARCH_*` of this program (linux/audit.h).
pub const NATIVE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// The bit by which x32 calls are told from native ones of the same architecture (linux/unistd.h).
const X32: i32 = 0x4000_0000;

/// What a call is.
#[derive(Debug)]
pub enum Found<'a> {
    /// Made by an entry of another architecture.
    Abi,
    /// One that the filter refuses.
    Refused(&'a Rule),
    /// One that is looked at: its number here, and whether its caller is a 32-bit program.
    Watched(&'a Watched, libc::c_long, bool),
    /// None of these.
    Nothing,
}

/// The calls by number.
#[derive(Debug, Clone)]
pub struct Calls {
    /// What the filter refuses.
    pub rules: Vec<Rule>,
    /// What is looked at.
    pub watched: Vec<Watched>,
    /// For each number, what of both concerns it.
    by_number: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Calls {
    /// The calls of the given postures.
    pub fn new(privilege: Posture, network: Posture, ids: Ids) -> Calls {
        let (rules, watched) = (rules(privilege, network), watched(privilege, ids));
        let mut by_number: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        let mut entry = |call: &str, put: &mut dyn FnMut(&mut (Vec<usize>, Vec<usize>))| {
            let Some(number) = number(call).ok().and_then(|number| usize::try_from(number).ok()) else { return };
            if by_number.len() <= number {
                by_number.resize_with(number + 1, Default::default);
            }
            put(&mut by_number[number]);
        };
        for (index, rule) in rules.iter().enumerate() {
            entry(rule.call, &mut |slot| slot.0.push(index));
        }
        for (index, one) in watched.iter().enumerate() {
            entry(one.call, &mut |slot| slot.1.push(index));
        }
        Calls { rules, watched, by_number }
    }

    /// What a stopped call is.
    pub fn find(&self, call: &CallData) -> Found<'_> {
        if call.arch != NATIVE || cfg!(target_arch = "x86_64") && call.number & X32 != 0 {
            return Found::Abi;
        }
        let Some((rules, watched)) = usize::try_from(call.number).ok().and_then(|n| self.by_number.get(n)) else {
            return Found::Nothing;
        };
        if let Some(rule) = rules.iter().map(|index| &self.rules[*index]).find(|rule| rule.refuses(&call.arguments)) {
            return Found::Refused(rule);
        }
        let looked_at = watched.iter().map(|index| &self.watched[*index]).find(|one| one.concerns(&call.arguments));
        looked_at.map_or(Found::Nothing, |one| Found::Watched(one, libc::c_long::from(call.number), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let calls = Calls::new(Posture::Locked, Posture::Restricted, Ids { uid: 10001, gid: 10001 });
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
        let calls = Calls::new(Posture::Restricted, Posture::Open, Ids { uid: 10001, gid: 10001 });
        assert_eq!(find(&calls, libc::SYS_mount, [0; 6]), "watched mount");
        assert_eq!(find(&calls, libc::SYS_execve, [0; 6]), "nothing");
        assert!(Calls::new(Posture::Open, Posture::Open, Ids { uid: 0, gid: 0 }).watched.is_empty());
    }
}
