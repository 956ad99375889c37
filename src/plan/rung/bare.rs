//! Rung `bare`: an ordinary user who may make no namespaces, as on hardened hosts and in Kubernetes' "restricted" Pods.

use super::{Means, Restriction, Rung, one_uid, without_mounts};
use crate::host::Facts;
use crate::plan::shields::seen_by;
use crate::policy::Policy;

/// As `container`, under the caller's own uid.
#[derive(Debug)]
pub struct Bare;

impl Rung for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn means(&self) -> Means {
        Means::BARE
    }

    fn stands(&self, policy: &Policy, facts: &Facts) -> Result<(), String> {
        one_uid::stands(policy, facts)?;
        without_mounts::stands(policy, facts)
    }

    fn carry(&self, restriction: Restriction, policy: &Policy, facts: &Facts) -> Result<&'static str, String> {
        match restriction {
            Restriction::EgressAllowlist => Ok("proxy on loopback, out of the Landlock domain's reach"),
            Restriction::Account => Ok(one_uid::ACCOUNT),
            Restriction::Capabilities => {
                Ok("empty inheritable, permitted, effective and ambient sets; no_new_privs voids the bounding set")
            }
            Restriction::WatchedReads => Ok(seen_by(facts, &self.means()).mechanism()),
            other => without_mounts::carry(other, policy, facts),
        }
    }
}
