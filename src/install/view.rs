//! The command's view of the file system, put in force in the stage by what the rung has for it.

use super::mounts::{self, MountPlan};
use crate::confine::landlock::{Barrier, files};
use crate::confine::no_new_privs_set;
use crate::plan::means::{FileBarrier, Means};
use std::os::fd::BorrowedFd;

/// Puts the calling process, and all that it forks, under the view.
pub(super) fn enter_view(plan: &MountPlan, means: Means, userns: Option<BorrowedFd<'_>>) -> Result<(), String> {
    match means.files {
        FileBarrier::Mounts => mounts::enter(plan, userns).map_err(|e| e.to_string()),
        // Nothing is kept from being written.
        FileBarrier::Landlock if plan.protected_trees().is_empty() => Ok(()),
        FileBarrier::Landlock => {
            let barrier = Barrier::of(plan).map_err(|e| e.to_string())?;
            let rules = files::prepare(&barrier).map_err(|e| e.to_string())?;
            no_new_privs_set().map_err(|e| e.to_string())?;
            rules.restrict().map_err(|e| e.to_string())
        }
    }
}
