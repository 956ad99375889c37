//! Rungs: each carries every restriction of a policy by mechanisms of its own, or says what it lacks. They are tried in
//! order of strength, and a policy is never carried in part.

use crate::host::Facts;
use crate::policy::{Axis, Policy, Posture};
use crate::sys::capability::{CHOWN, KILL, NET_ADMIN, SETGID, SETPCAP, SETUID, SYS_ADMIN};
use std::fmt;

/// What a policy asks to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
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
    pub const ALL: [Restriction; 14] = [
        Restriction::EgressAllowlist,
        Restriction::DirectEgress,
        Restriction::OtherFamilies,
        Restriction::ReadOnlyTrees,
        Restriction::ReadOnlyAll,
        Restriction::OwnFiles,
        Restriction::PrivatePaths,
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
            | Restriction::PrivatePaths => Axis::Filesystem,
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
    pub mechanism: &'static str,
}

/// A way to carry policies.
pub trait Rung: fmt::Debug + Sync {
    /// Its name in plans and records.
    fn name(&self) -> &'static str;

    /// The mechanism that carries a restriction on this host, or what is missing for it.
    fn carry(&self, restriction: Restriction, facts: &Facts) -> Result<&'static str, String>;
}

/// Root with SYS_ADMIN and NET_ADMIN: the firewall by uid, a mount namespace, everything of the privilege axis.
#[derive(Debug)]
pub struct Full;

impl Rung for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn carry(&self, restriction: Restriction, facts: &Facts) -> Result<&'static str, String> {
        let capability =
            |number: u32, name: &str| if facts.has(number) { Ok(()) } else { Err(format!("CAP_{name} is missing")) };
        let mounts = || match &facts.mounts {
            Some(Ok(())) => Ok(()),
            Some(Err(cause)) => Err(format!("mounts cannot be changed: {cause}")),
            None => Err("mounts were not tried".into()),
        };
        let firewall = || match &facts.firewall {
            Some(Ok(support)) if support.complete() => Ok(()),
            Some(Ok(support)) => Err(format!("nftables lacks: {}", support.missing.join("; "))),
            Some(Err(cause)) => Err(format!("nftables cannot be used: {cause}")),
            // The installation finds out, and nothing starts without it.
            None => Ok(()),
        };
        if facts.uid != 0 {
            return Err("it needs root".into());
        }
        match restriction {
            Restriction::EgressAllowlist => Ok("proxy on loopback, a process of its own uid"),
            Restriction::DirectEgress => {
                capability(NET_ADMIN, "NET_ADMIN")?;
                firewall().map(|()| "nftables meta skuid, reject and NFLOG")
            }
            Restriction::ControlPlane => {
                capability(NET_ADMIN, "NET_ADMIN")?;
                firewall().map(|()| "nftables meta skuid, reject and NFLOG")
            }
            Restriction::ReadOnlyTrees | Restriction::ReadOnlyAll => {
                capability(SYS_ADMIN, "SYS_ADMIN")?;
                mounts().map(|()| "private mount namespace, mount_setattr recursive, EROFS")
            }
            Restriction::OwnFiles | Restriction::PrivatePaths => mounts().map(|()| "empty masks mounted over"),
            // CHOWN for its home and workspace; KILL to end what runs as it, the proxy under its own uid too.
            Restriction::Account => {
                for (number, name) in [(SETUID, "SETUID"), (SETGID, "SETGID"), (CHOWN, "CHOWN"), (KILL, "KILL")] {
                    capability(number, name)?;
                }
                mounts().map(|()| "setresuid, no groups, account files mounted over")
            }
            Restriction::Keyring => Ok("a new session keyring; where privilege is locked, seccomp, ENOSYS"),
            Restriction::OtherFamilies | Restriction::TerminalInput => Ok("seccomp"),
            Restriction::SetIdExecution => mounts().map(|()| "no_new_privs, nosuid on every mount"),
            Restriction::Capabilities => {
                capability(SETPCAP, "SETPCAP")?;
                Ok("empty bounding, inheritable, permitted, effective and ambient sets")
            }
            Restriction::Namespaces => Ok("seccomp, EPERM; io_uring ENOSYS"),
        }
    }
}

/// The rungs, the strongest first.
pub const RUNGS: [&dyn Rung; 1] = [&Full];

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

/// The first rung that carries all that is wanted, with its mechanisms; else what each lacks.
pub fn first_that_carries(wanted: &[Restriction], facts: &Facts) -> Result<(&'static dyn Rung, Vec<Carried>), String> {
    let mut lacking = Vec::new();
    for rung in RUNGS {
        let carried: Result<Vec<Carried>, String> = wanted
            .iter()
            .map(|&restriction| {
                let mechanism = rung.carry(restriction, facts).map_err(|cause| format!("{restriction}: {cause}"))?;
                Ok(Carried { restriction, mechanism })
            })
            .collect();
        match carried {
            Ok(carried) => return Ok((rung, carried)),
            Err(cause) => lacking.push(format!("{}: {cause}", rung.name())),
        }
    }
    Err(lacking.join("; "))
}
