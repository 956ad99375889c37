//! Rung `full`: root with SYS_ADMIN and NET_ADMIN.

use super::{Means, Restriction, Rung, capability};
use crate::host::{Facts, NOT_TRIED};
use crate::plan::shields::seen_by;
use crate::policy::Policy;
use crate::sys::capability::{CHOWN, KILL, NET_ADMIN, SETGID, SETPCAP, SETUID, SYS_ADMIN};

/// The firewall by uid, a mount namespace, everything of the privilege axis.
#[derive(Debug)]
pub struct Full;

impl Rung for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn means(&self) -> Means {
        Means::FULL
    }

    fn stands(&self, _policy: &Policy, facts: &Facts) -> Result<(), String> {
        if facts.uid != 0 {
            return Err("it needs root".into());
        }
        // It is tried by who gives up its uid: what is missing for that is named by itself.
        let gives_up = [SETUID, SETGID].iter().all(|capability| facts.has(*capability));
        match &facts.notification {
            // Where it was not tried the stage finds out, and nothing starts without it.
            Err(cause) if gives_up && cause != NOT_TRIED => Err(format!("seccomp notification: {cause}")),
            _ => Ok(()),
        }
    }

    fn carry(&self, restriction: Restriction, policy: &Policy, facts: &Facts) -> Result<&'static str, String> {
        let capability = |number: u32, name: &str| capability(facts, number, name);
        let mounts = || match &facts.mounts {
            Some(Ok(())) => Ok(()),
            Some(Err(cause)) => Err(format!("mounts cannot be changed: {cause}")),
            None => Err("mounts were not tried".into()),
        };
        let firewall = || match &facts.firewall {
            Some(Ok(support)) if support.complete() && (support.nat || !policy.network.transparent) => Ok(()),
            Some(Ok(support)) => Err(format!("nftables lacks: {}", support.missing.join("; "))),
            Some(Err(cause)) => Err(format!("nftables cannot be used: {cause}")),
            // The installation finds out, and nothing starts without it.
            None => Ok(()),
        };
        match restriction {
            Restriction::EgressAllowlist => Ok("proxy on loopback, a process of its own uid"),
            Restriction::DirectEgress | Restriction::ControlPlane => {
                capability(NET_ADMIN, "NET_ADMIN")?;
                firewall().map(|()| "nftables meta skuid, reject and NFLOG")
            }
            Restriction::ReadOnlyTrees | Restriction::ReadOnlyAll => {
                capability(SYS_ADMIN, "SYS_ADMIN")?;
                mounts().map(|()| "private mount namespace, mount_setattr recursive, EROFS")
            }
            Restriction::OwnFiles | Restriction::PrivatePaths => mounts().map(|()| "empty masks mounted over"),
            Restriction::Shields => mounts().map(|()| "empty masks mounted over, attempts seen by the notifier"),
            Restriction::WatchedReads => Ok(seen_by(facts, &self.means()).mechanism()),
            Restriction::GitObjects => mounts().map(|()| "a filtered git directory mounted over the real one"),
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
