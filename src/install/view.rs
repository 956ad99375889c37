//! The command's view of the file system, put in force in the stage by what the rung has for it.

use super::mounts::{self, MountPlan};
use crate::confine::landlock::{self, Barrier, files};
use crate::confine::{ConfineError, no_new_privs_set};
use crate::mutation;
use crate::plan::means::{FileBarrier, Means};
use std::os::fd::BorrowedFd;

/// Puts the calling process, and all that it forks, under the view.
///
/// Where Landlock stands for mounts it is the domain of the observer too, which connects for the command: with `scopes` no
/// abstract unix socket of the outside is in its reach.
pub(super) fn enter_view(
    plan: &MountPlan,
    means: Means,
    scopes: bool,
    userns: Option<BorrowedFd<'_>>,
) -> Result<(), String> {
    match means.files {
        FileBarrier::Mounts => mounts::enter(plan, userns).map_err(|e| e.to_string()),
        FileBarrier::Landlock => enter_domain(plan, scopes).map_err(|e| e.to_string()),
    }
}

fn enter_domain(plan: &MountPlan, scopes: bool) -> Result<(), ConfineError> {
    // Without a tree that is to be read-only there is nothing to keep from being written.
    let rules = match plan.protected_trees().is_empty() || mutation::left_out("file-rules") {
        true => None,
        false => {
            let barrier = Barrier::of(plan).map_err(|e| ConfineError::Landlock(e.to_string()))?;
            let rules = files::prepare(&barrier)?;
            // What the rules grant is held by them, whatever becomes of its name.
            plan.check_shields().map_err(|e| ConfineError::Landlock(e.to_string()))?;
            Some(rules)
        }
    };
    no_new_privs_set()?;
    let by_rules = rules.is_some();
    rules.map_or(Ok(()), files::FileRules::restrict)?;
    if scopes && !mutation::left_out("names-inside") { landlock::restrict_scopes(false, by_rules) } else { Ok(()) }
}
