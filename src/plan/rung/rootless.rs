//! Rung `rootless`: an ordinary user who may make user, mount and network namespaces, as on most dev boxes.

use super::{Means, Restriction, Rung, needed, one_uid};
use crate::host::Facts;
use crate::plan::shields::seen_by;
use crate::policy::{Policy, Posture};

/// The firewall and the mounts of `full` in namespaces of the sandbox's own, under the caller's own uid.
#[derive(Debug)]
pub struct Rootless;

impl Rung for Rootless {
    fn name(&self) -> &'static str {
        "rootless"
    }

    fn means(&self) -> Means {
        Means::ROOTLESS
    }

    fn stands(&self, policy: &Policy, facts: &Facts) -> Result<(), String> {
        one_uid::stands(policy, facts)?;
        needed("/proc", &facts.proc)?;
        needed("user namespaces", &facts.user_namespaces)?;
        needed("mount_setattr", &facts.mount_setattr)?;
        needed("seccomp notification", &facts.notification)?;
        if policy.network.posture > Posture::Open {
            needed("a firewall in a network namespace", &facts.firewall_inside)?;
        }
        Ok(())
    }

    fn carry(&self, restriction: Restriction, policy: &Policy, facts: &Facts) -> Result<&'static str, String> {
        match restriction {
            // With egress open the network is the host's, whose firewall is root's.
            Restriction::ControlPlane if policy.network.posture == Posture::Open => {
                Err("with the network open there is no firewall of the sandbox's own; accepted: network restricted or locked".into())
            }
            Restriction::EgressAllowlist => Ok("proxy outside of the network namespace, its listener inside"),
            Restriction::DirectEgress | Restriction::ControlPlane => {
                Ok("a network namespace without a way out; nftables, reject and NFLOG")
            }
            Restriction::ReadOnlyTrees | Restriction::ReadOnlyAll => {
                Ok("user and mount namespaces, mount_setattr recursive, EROFS")
            }
            Restriction::OwnFiles | Restriction::PrivatePaths => Ok("empty masks mounted over"),
            Restriction::Shields => Ok("empty masks mounted over, attempts seen by the notifier"),
            Restriction::WatchedReads => Ok(seen_by(facts, &self.means()).mechanism()),
            Restriction::GitObjects => Ok("a filtered git directory mounted over the real one"),
            Restriction::Account => Ok(one_uid::ACCOUNT),
            Restriction::Keyring => Ok("a new session keyring; where privilege is locked, seccomp, ENOSYS"),
            Restriction::OtherFamilies | Restriction::TerminalInput => Ok("seccomp"),
            Restriction::SetIdExecution => Ok("no_new_privs, nosuid on every mount"),
            Restriction::Capabilities => Ok("empty bounding, inheritable, permitted, effective and ambient sets"),
            Restriction::Namespaces => Ok("seccomp, EPERM; io_uring ENOSYS"),
        }
    }
}
