//! Rung `rootless`: an ordinary user who may make user, mount and network namespaces, as on most dev boxes.

use super::{Means, Restriction, Rung, one_uid};
use crate::host::Facts;
use crate::policy::Policy;

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
        Err("its namespaces are not built yet".into())
    }

    fn carry(&self, restriction: Restriction, _policy: &Policy, _facts: &Facts) -> Result<&'static str, String> {
        match restriction {
            Restriction::EgressAllowlist => Ok("proxy outside of the network namespace, its listener inside"),
            Restriction::DirectEgress | Restriction::ControlPlane => {
                Ok("a network namespace without a way out; nftables, reject and NFLOG")
            }
            Restriction::ReadOnlyTrees | Restriction::ReadOnlyAll => {
                Ok("user and mount namespaces, mount_setattr recursive, EROFS")
            }
            Restriction::OwnFiles | Restriction::PrivatePaths => Ok("empty masks mounted over"),
            Restriction::Account => Ok(one_uid::ACCOUNT),
            Restriction::Keyring => Ok("a new session keyring; where privilege is locked, seccomp, ENOSYS"),
            Restriction::OtherFamilies | Restriction::TerminalInput => Ok("seccomp"),
            Restriction::SetIdExecution => Ok("no_new_privs, nosuid on every mount"),
            Restriction::Capabilities => Ok("empty bounding, inheritable, permitted, effective and ambient sets"),
            Restriction::Namespaces => Ok("seccomp, EPERM; io_uring ENOSYS"),
        }
    }
}
