//! Rung `container`: root in a container that gives neither mounts nor a firewall nor namespaces, as Docker and Kubernetes do
//! by default.

use super::{Means, Restriction, Rung, capability, without_mounts};
use crate::host::Facts;
use crate::plan::shields::seen_by;
use crate::policy::{Policy, Posture};
use crate::sys::capability::{CHOWN, KILL, SETGID, SETPCAP, SETUID};

/// Sockets made for the command, Landlock, the observer's own acts, a uid of the run's own.
#[derive(Debug)]
pub struct Container;

impl Rung for Container {
    fn name(&self) -> &'static str {
        "container"
    }

    fn means(&self) -> Means {
        Means::CONTAINER
    }

    fn stands(&self, policy: &Policy, facts: &Facts) -> Result<(), String> {
        if facts.uid != 0 {
            return Err("it needs root".into());
        }
        // Without these nothing further could be tried as who the command will be.
        if policy.postures().privilege > Posture::Open {
            for (number, name) in [(SETUID, "SETUID"), (SETGID, "SETGID")] {
                capability(facts, number, name)?;
            }
        }
        without_mounts::stands(policy, facts)
    }

    fn carry(&self, restriction: Restriction, policy: &Policy, facts: &Facts) -> Result<&'static str, String> {
        let capability = |number: u32, name: &str| capability(facts, number, name);
        match restriction {
            Restriction::EgressAllowlist => Ok("proxy on loopback, a process of its own uid"),
            Restriction::Account => {
                for (number, name) in [(SETUID, "SETUID"), (SETGID, "SETGID"), (CHOWN, "CHOWN"), (KILL, "KILL")] {
                    capability(number, name)?;
                }
                Ok("setresuid, no groups, no_new_privs")
            }
            Restriction::Capabilities => {
                capability(SETPCAP, "SETPCAP")?;
                Ok("empty bounding, inheritable, permitted, effective and ambient sets")
            }
            Restriction::WatchedReads => Ok(seen_by(facts, &self.means()).mechanism()),
            other => without_mounts::carry(other, policy, facts),
        }
    }
}
