//! What the rungs without mounts and without a firewall have in common.

use super::{Restriction, needed};
use crate::host::Facts;
use crate::policy::{Policy, Posture};

/// What is missing for anything to be held without mounts and without a firewall.
pub fn stands(policy: &Policy, facts: &Facts) -> Result<(), String> {
    let postures = policy.postures();
    needed("/proc", &facts.proc)?;
    needed("no_new_privs", &facts.no_new_privs)?;
    needed("seccomp notification", &facts.notification)?;
    needed("reading what a stopped caller asks for", &facts.reads_callers)?;
    if postures.network > Posture::Open {
        needed("a descriptor given in answer to a call", &facts.addfd)?;
        needed("a socket bound to lo", &facts.bind_to_lo)?;
    }
    if postures.filesystem > Posture::Open || policy.asks_for_shields() {
        needed("Landlock", &facts.landlock.usable)?;
    }
    Ok(())
}

/// The mechanism that carries a restriction there.
pub fn carry(restriction: Restriction, policy: &Policy, _facts: &Facts) -> Result<&'static str, String> {
    match restriction {
        Restriction::DirectEgress => Ok("sockets made for the command, bound to lo, connected by the observer"),
        Restriction::ControlPlane if policy.network.posture > Posture::Open => {
            Ok("sockets made for the command, bound to lo, connected by the observer")
        }
        Restriction::ControlPlane => Err("with the network open it needs a firewall".into()),
        Restriction::ReadOnlyTrees | Restriction::ReadOnlyAll => {
            Ok("Landlock for contents, the observer for metadata, EROFS by the observer")
        }
        Restriction::OwnFiles => Ok("the record closed by mode and Landlock; own files as their modes have them"),
        Restriction::Shields => Ok("Landlock, no right to read; names and attempts by the notifier"),
        Restriction::GitObjects => Err(
            "a filtered git directory takes a mount; accepted: rung full or rootless, or a clone that has only what the command may see".into(),
        ),
        Restriction::PrivatePaths => Ok("closed by their modes"),
        Restriction::Keyring => {
            Ok("a new session keyring, or none to be had; where privilege is locked, seccomp, ENOSYS")
        }
        Restriction::OtherFamilies | Restriction::TerminalInput => Ok("seccomp"),
        Restriction::SetIdExecution => Ok("no_new_privs"),
        Restriction::Namespaces => Ok("seccomp, EPERM; io_uring ENOSYS"),
        Restriction::EgressAllowlist | Restriction::Account | Restriction::Capabilities | Restriction::WatchedReads => {
            Err("it is the rung's own to carry".into())
        }
    }
}
