//! Rungs: each carries every restriction of a policy by mechanisms of its own, or says what it lacks. They are tried in
//! order of strength, and a policy is never carried in part.

mod bare;
mod container;
mod full;
mod one_uid;
mod rootless;
mod without_mounts;

use super::dev_box;
use super::means::Means;
use crate::host::{Facts, Finding};
use crate::policy::{Axis, Policy, Posture};
use std::fmt;

/// What came of trying something that a rung stands on.
fn needed(what: &str, finding: &Finding) -> Result<(), String> {
    finding.as_ref().copied().map_err(|cause| format!("{what}: {cause}"))
}

/// What a policy asks to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restriction {
    /// Egress only by the proxy, which judges names and addresses.
    EgressAllowlist,
    /// Everything that skips the proxy is refused and logged.
    DirectEgress,
    /// Sockets of families that the firewall does not see.
    OtherFamilies,
    /// Trees that are read-only with every mount beneath them.
    ReadOnlyTrees,
    /// Everything read-only but the writable set.
    ReadOnlyAll,
    /// The record and the program's own files.
    OwnFiles,
    /// Other users' homes and control sockets.
    PrivatePaths,
    /// Paths that are kept from being read, listed and written.
    Shields,
    /// What of a repository HEAD does not reach.
    GitObjects,
    /// Reads of watched paths on record.
    WatchedReads,
    /// An unprivileged account without groups and without a way to root.
    Account,
    /// The caller's session keyring.
    Keyring,
    /// Input pushed into the shared terminal.
    TerminalInput,
    /// The provider's control-plane ports.
    ControlPlane,
    /// Programs that gain privilege by being executed.
    SetIdExecution,
    /// Capabilities, now or later.
    Capabilities,
    /// Namespaces, mounts and calls that pass the filter by.
    Namespaces,
}

impl Restriction {
    /// Every restriction, in the order of the axes.
    pub const ALL: [Restriction; 17] = [
        Restriction::EgressAllowlist,
        Restriction::DirectEgress,
        Restriction::OtherFamilies,
        Restriction::ReadOnlyTrees,
        Restriction::ReadOnlyAll,
        Restriction::OwnFiles,
        Restriction::PrivatePaths,
        Restriction::Shields,
        Restriction::GitObjects,
        Restriction::WatchedReads,
        Restriction::Account,
        Restriction::Keyring,
        Restriction::TerminalInput,
        Restriction::ControlPlane,
        Restriction::SetIdExecution,
        Restriction::Capabilities,
        Restriction::Namespaces,
    ];

    /// The axis that it belongs to.
    pub fn axis(self) -> Axis {
        match self {
            Restriction::EgressAllowlist | Restriction::DirectEgress | Restriction::OtherFamilies => Axis::Network,
            Restriction::ReadOnlyTrees
            | Restriction::ReadOnlyAll
            | Restriction::OwnFiles
            | Restriction::PrivatePaths
            | Restriction::Shields
            | Restriction::GitObjects
            | Restriction::WatchedReads => Axis::Filesystem,
            _ => Axis::Privilege,
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restriction::EgressAllowlist => "egress by allowlist",
            Restriction::DirectEgress => "no direct egress",
            Restriction::OtherFamilies => "no other socket families",
            Restriction::ReadOnlyTrees => "read-only trees",
            Restriction::ReadOnlyAll => "read-only but the writable set",
            Restriction::OwnFiles => "record and own files masked",
            Restriction::PrivatePaths => "other homes and control sockets masked",
            Restriction::Shields => "shields",
            Restriction::GitObjects => "git objects that HEAD reaches",
            Restriction::WatchedReads => "reads of watched paths on record",
            Restriction::Account => "unprivileged account",
            Restriction::Keyring => "own session keyring",
            Restriction::TerminalInput => "no terminal input injection",
            Restriction::ControlPlane => "no control-plane ports",
            Restriction::SetIdExecution => "set-id execution void",
            Restriction::Capabilities => "no capabilities",
            Restriction::Namespaces => "no namespaces and mounts",
        })
    }
}

/// A restriction with the mechanism that carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// What is held.
    pub restriction: Restriction,
    /// By what.
    pub mechanism: String,
}

/// A way to carry policies.
pub trait Rung: fmt::Debug + Sync {
    /// Its name in plans and records.
    fn name(&self) -> &'static str;

    /// How it works.
    fn means(&self) -> Means;

    /// What is missing for it to carry anything at all above `open`.
    fn stands(&self, policy: &Policy, facts: &Facts) -> Result<(), String>;

    /// The mechanism that carries a restriction on this host, or what is missing for it.
    fn carry(&self, restriction: Restriction, policy: &Policy, facts: &Facts) -> Result<&'static str, String>;
}

/// The rungs, the strongest first.
pub const RUNGS: [&dyn Rung; 4] = [&full::Full, &rootless::Rootless, &container::Container, &bare::Bare];

/// The rung of a name.
pub fn named(name: &str) -> Option<&'static dyn Rung> {
    RUNGS.into_iter().find(|rung| rung.name() == name)
}

/// A capability of this process.
fn capability(facts: &Facts, number: u32, name: &str) -> Result<(), String> {
    if facts.has(number) { Ok(()) } else { Err(format!("CAP_{name} is missing")) }
}

/// What a policy asks to be held.
pub fn wanted(policy: &Policy) -> Vec<Restriction> {
    use Restriction::*;
    let postures = policy.postures();
    let mut wanted = Vec::new();
    if postures.network > Posture::Open {
        wanted.extend([EgressAllowlist, DirectEgress, OtherFamilies]);
    }
    match postures.filesystem {
        Posture::Open => {}
        Posture::Restricted => wanted.extend([ReadOnlyTrees, OwnFiles]),
        Posture::Locked => wanted.extend([ReadOnlyAll, OwnFiles, PrivatePaths]),
    }
    if policy.asks_for_shields() {
        wanted.push(Shields);
    }
    if !policy.filesystem.shield_git.is_empty() {
        wanted.push(GitObjects);
    }
    if !policy.filesystem.watch_read.is_empty() {
        wanted.push(WatchedReads);
    }
    if postures.privilege > Posture::Open {
        wanted.extend([Account, Keyring, TerminalInput]);
        if !policy.privilege.control_plane_ports.is_empty() {
            wanted.push(ControlPlane);
        }
    }
    if postures.privilege == Posture::Locked {
        wanted.extend([SetIdExecution, Capabilities, Namespaces]);
    }
    wanted
}

/// The first rung that carries all that is wanted, with its mechanisms, or `demanded` if it does; else what each lacks.
pub fn first_that_carries(
    wanted: &[Restriction],
    policy: &Policy,
    facts: &Facts,
    demanded: Option<&'static dyn Rung>,
) -> Result<(&'static dyn Rung, Vec<Carried>), String> {
    let mut lacking = Vec::new();
    let candidates = RUNGS.into_iter().filter(|rung| demanded.is_none_or(|demanded| demanded.name() == rung.name()));
    for rung in candidates {
        // Nothing above `open` is wanted: there is nothing to stand on.
        let stands = if wanted.is_empty() { Ok(()) } else { rung.stands(policy, facts) };
        let stands = stands.and_then(|()| dev_box::only_here(policy, &rung.means()));
        let carried: Result<Vec<Carried>, String> = stands.and_then(|()| {
            let each = wanted.iter().map(|&restriction| {
                let carried = rung.carry(restriction, policy, facts);
                let mechanism = carried.map_err(|cause| format!("{restriction}: {cause}"))?;
                Ok(Carried { restriction, mechanism: mechanism.to_owned() })
            });
            each.collect()
        });
        match carried {
            Ok(carried) => return Ok((rung, carried)),
            Err(cause) => lacking.push(format!("{}: {cause}", rung.name())),
        }
    }
    Err(lacking.join("; "))
}
