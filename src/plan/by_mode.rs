//! What a plan without mounts leaves to the modes of files, looked at once the plan is made: it is refused where they do not
//! hold it.

use super::means::FileBarrier;
use super::{Plan, Refusal};
use crate::confine::landlock::holdable;
use crate::host::Facts;
use crate::observe::watched::Ids;
use crate::policy::Posture;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Refuses a plan whose trees and masks take mounts that the rung has not.
pub fn check(plan: &Plan, facts: &Facts) -> Result<(), Refusal> {
    let (Some(view), Some(identity), FileBarrier::Landlock) = (&plan.mounts, &plan.identity, plan.rung.means().files)
    else {
        return Ok(());
    };
    let mut view = view.clone();
    if plan.policy.network.posture > Posture::Open {
        // A connection to a unix socket is made by the observer there, or not; only what is read has to be closed by its mode.
        view.masks.retain(|mask| facts.private.contains(mask) && !is_socket(mask));
    }
    holdable(&view, Ids::from(identity)).map_err(|cause| Refusal::NoRung(format!("{}: {cause}", plan.rung.name())))
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}
