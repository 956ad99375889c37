//! Landlock's scopes (landlock(7), ABI 6): no signal to a process outside, no abstract unix socket made outside.

use super::ConfineError;
use ::landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope};

/// Restricts the calling thread to its own Landlock domain for signals and abstract unix sockets.
pub fn restrict_scopes() -> Result<(), ConfineError> {
    let fail = |e: ::landlock::RulesetError| ConfineError::Landlock(e.to_string());
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .and_then(|ruleset| ruleset.create())
        // no_new_privs is a step of its own in the order; the library must not set it behind our back.
        .and_then(|created| created.no_new_privs(false).restrict_self())
        .map_err(fail)?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(ConfineError::Landlock(format!("the ruleset is {:?}", status.ruleset)));
    }
    Ok(())
}
