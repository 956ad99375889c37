//! What probes try of what a process is and carries: ids, capabilities, keys, descriptors, environment.

use super::Surroundings;
use super::child::{attempt, in_child, in_grandchild, name_of};
use crate::confine::known_capabilities;
use crate::policy::environment::is_dropped;
use crate::sys;
use nix::libc;
use nix::unistd::{getgroups, getresgid, getresuid};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;

/// What a probe tries of its own process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Tells whether the real, effective and saved ids are the account's.
    Ids,
    /// Tells the supplementary groups.
    Groups,
    /// Tells the capability sets that are not empty.
    CapabilitySets,
    /// Tells the capabilities in the bounding set.
    BoundingSet,
    /// Tells no_new_privs.
    NoNewPrivs,
    /// Becomes uid 0, as each of the three ids.
    BecomeRoot,
    /// The same from a grandchild.
    BecomeRootFromGrandchild,
    /// Looks for the caller's session keyring.
    Keyring,
    /// Looks at the caller's session keyring by its number.
    CallersKeyring,
    /// Looks at the session keyring of its own.
    OwnKeyring,
    /// Looks for descriptors beside stdio.
    Descriptors,
    /// Looks for variables of the caller's that must not reach the command.
    Environment,
    /// Looks for the proxy's address in the variables that name it.
    ProxyEnvironment,
}

/// Tries an operation; what it saw, one word a try.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    match operation {
        Operation::Ids => vec![ids(run)],
        Operation::Groups => vec![groups()],
        Operation::CapabilitySets => vec![capability_sets()],
        Operation::BoundingSet => vec![bounding_set()],
        Operation::NoNewPrivs => {
            vec![nix::sys::prctl::get_no_new_privs().map_or_else(name_of, |held| u8::from(held).to_string())]
        }
        Operation::BecomeRoot => in_child(become_root),
        Operation::BecomeRootFromGrandchild => in_grandchild(become_root),
        Operation::Keyring => vec![keyring(run)],
        Operation::CallersKeyring => vec![describe_keyring(run.keyring)],
        Operation::OwnKeyring => vec![describe_keyring(SESSION_KEYRING)],
        Operation::Descriptors => descriptors(),
        Operation::Environment => vec![environment(run)],
        Operation::ProxyEnvironment => vec![proxy_environment(run)],
    }
}

/// KEY_SPEC_SESSION_KEYRING (keyctl(2)).
const SESSION_KEYRING: i64 = -3;

fn describe_keyring(serial: i64) -> String {
    const KEYCTL_DESCRIBE: u64 = 6;
    attempt(libc::SYS_keyctl, [KEYCTL_DESCRIBE, serial as u64, 0, 0, 0, 0])
}

fn ids(run: &Surroundings) -> String {
    let (Ok(u), Ok(g)) = (getresuid(), getresgid()) else {
        return "unknown".into();
    };
    let all = [u.real, u.effective, u.saved].map(|i| i.as_raw());
    let groups = [g.real, g.effective, g.saved].map(|i| i.as_raw());
    match run.ids {
        Some((uid, gid)) if all == [uid; 3] && groups == [gid; 3] => "the account's".into(),
        _ => format!("uid {all:?} gid {groups:?}"),
    }
}

fn groups() -> String {
    match getgroups() {
        Ok(groups) if groups.is_empty() => "none".into(),
        Ok(groups) => format!("{groups:?}"),
        Err(errno) => name_of(errno),
    }
}

fn capability_sets() -> String {
    let ambient = known_capabilities().is_ok_and(|mut all| all.any(|n| sys::ambient_has(n) == Ok(true)));
    match sys::capget() {
        Ok(sets) if sets == sys::CapabilitySets::default() && !ambient => "empty".into(),
        Ok(sets) => format!("{sets:x?} ambient {ambient}"),
        Err(errno) => name_of(errno),
    }
}

fn bounding_set() -> String {
    match known_capabilities() {
        Ok(all) => {
            let held: Vec<u32> = all.filter(|n| sys::bounding_has(*n) != Ok(false)).collect();
            if held.is_empty() { "empty".into() } else { format!("holds {held:?}") }
        }
        Err(errno) => name_of(errno),
    }
}

fn become_root() -> Vec<String> {
    const KEEP: u64 = u32::MAX as u64;
    let ways = [[0, KEEP, KEEP], [KEEP, 0, KEEP], [KEEP, KEEP, 0]];
    ways.map(|[real, effective, saved]| attempt(libc::SYS_setresuid, [real, effective, saved, 0, 0, 0])).into()
}

fn keyring(run: &Surroundings) -> String {
    if run.external {
        return keys_held();
    }
    match sys::session_keyring() {
        Ok(serial) if serial == run.keyring => "the caller's".into(),
        Ok(_) => "its own".into(),
        // Under the caller's own uid it is listed whoever possesses it; it is the calls that are closed.
        Err(errno) if run.means.is_some_and(|means| means.one_uid) => name_of(errno),
        // Where the calls are refused, the keyring still serves the kernel, and is listed to who possesses it (keyrings(7)).
        Err(errno) => match crate::procfs::read("/proc/keys") {
            Ok(keys) if keys.lines().any(|line| line.starts_with(&format!("{:08x} ", run.keyring))) => {
                "the caller's".into()
            }
            _ => name_of(errno),
        },
    }
}

/// What no one says whose it is counts as one's own where it holds no key: a new one is empty (session-keyring(7)), and
/// what a login has made holds the user's at least.
fn keys_held() -> String {
    const KEYCTL_READ: u64 = 11;
    const KEY: i64 = 4;
    // Without room for them the answer is how much room the keys take.
    match sys::attempt(libc::SYS_keyctl, [KEYCTL_READ, SESSION_KEYRING as u64, 0, 0, 0, 0]) {
        Ok(0) => "its own".into(),
        Ok(length) => format!("one that holds {} keys", length / KEY),
        Err(errno) => name_of(errno),
    }
}

/// Every descriptor beyond stdio and the report.
fn descriptors() -> Vec<String> {
    let Ok(listing) = std::fs::read_dir("/proc/self/fd") else { return vec!["no /proc/self/fd".into()] };
    let numbers: Vec<i32> = listing.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // The listing's own is closed by now.
    let stray = numbers.into_iter().filter(|number| *number > 3 && sys::is_open(*number));
    let found: Vec<String> = stray.map(|n| format!("descriptor {n}")).collect();
    if found.is_empty() { vec!["none".into()] } else { found }
}

/// A variable is the caller's if its value is: what this program sets itself under such a name is its own.
fn environment(run: &Surroundings) -> String {
    let callers = |name: &[u8], value: &[u8]| {
        let held = run.callers_environment.iter().find(|(known, _)| known.as_bytes() == name);
        held.is_some_and(|(_, known)| known.as_bytes() == value)
    };
    let passed = |name: &[u8]| run.passed_variables.iter().any(|known| known.as_bytes() == name);
    // What names a proxy is another probe's matter, for there ours has the caller's name and may have its value.
    let names_a_proxy = |name: &[u8]| name.to_ascii_lowercase().ends_with(b"_proxy");
    for variable in &run.environment {
        let bytes = variable.as_bytes();
        let Some(at) = bytes.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = (&bytes[..at], &bytes[at + 1..]);
        let dropped = is_dropped(std::ffi::OsStr::from_bytes(name));
        if dropped && !names_a_proxy(name) && !passed(name) && callers(name, value) {
            return format!("{} is the caller's", String::from_utf8_lossy(name));
        }
    }
    "nothing of the caller's".into()
}

fn proxy_environment(run: &Surroundings) -> String {
    let Some(proxy) = run.proxy else { return "no proxy".into() };
    let address = proxy.to_string();
    let passed = |name: &str| run.passed_variables.iter().any(|known| known == name);
    let names = |variable: &str, name: &str| {
        variable.split_once('=').is_some_and(|(known, value)| known == name && value.contains(&address))
    };
    let missing = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"].into_iter().find(|name| {
        !passed(name) && !run.environment.iter().filter_map(|v| v.to_str().ok()).any(|variable| names(variable, name))
    });
    missing.map_or_else(|| "ok".into(), |name| format!("{name} does not name the proxy"))
}
