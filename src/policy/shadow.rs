//! A stricter policy that is held against what a run does, and not enforced: what `--shadow` names.

use super::axis::Axis;
use super::effective::{Policy, PolicyError};
use super::layer::Layer;
use super::level::Postures;
use super::values::PolicyArg;

/// The stricter policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// As it was named.
    pub named: PolicyArg,
    /// What it says, with the enforced policy's settings over it, less the postures.
    pub policy: Policy,
}

impl Shadow {
    /// The policy that is named, under what the enforced one's layer says beside postures.
    ///
    /// # Errors
    /// What keeps the named policy from being read; a policy that names a shadow of its own; one that is laxer than the
    /// enforced one on an axis, or stricter on none.
    pub(super) fn of(named: PolicyArg, enforced: Postures, over: &Layer) -> Result<Shadow, PolicyError> {
        let settings = Layer {
            extends: None,
            network: None,
            filesystem: None,
            privilege: None,
            explain: None,
            shadow: None,
            ..over.clone()
        };
        let policy = Policy::load(&named, &settings)?;
        if policy.shadow.is_some() {
            return Err(PolicyError::ShadowOfShadow(named));
        }
        let wanted = policy.postures();
        let laxer = Axis::ALL.into_iter().find(|axis| wanted.of(*axis) < enforced.of(*axis));
        match laxer {
            Some(axis) => {
                Err(PolicyError::ShadowLaxer { named, axis, shadow: wanted.of(axis), enforced: enforced.of(axis) })
            }
            None if wanted == enforced => Err(PolicyError::ShadowNotStricter(named)),
            None => Ok(Shadow { named, policy }),
        }
    }
}
