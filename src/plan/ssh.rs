//! The way of ssh through the proxy, which it takes no part in by itself: this program as its ProxyCommand, which the command
//! must then be able to start.

use super::means::{FileBarrier, Means};
use crate::host::{Facts, OwnProgram};
use crate::install::mounts::MountPlan;
use crate::policy::Policy;
use std::path::PathBuf;

/// ssh's port (RFC 4253 section 4.1).
const PORT: u16 = 22;

/// This program's file as the command may start it, where the policy admits ssh to some host; `None` where it admits none. The
/// file is not masked in `view` then, and is read-only wherever the command could write it otherwise.
///
/// # Errors
/// Why the command cannot start it.
pub(super) fn connector(
    policy: &Policy,
    facts: &Facts,
    view: &mut MountPlan,
    means: &Means,
) -> Option<Result<PathBuf, String>> {
    if !policy.effective_allowlist().is_some_and(|list| list.admits_port(PORT)) {
        return None;
    }
    Some(open(facts, view, means))
}

fn open(facts: &Facts, view: &mut MountPlan, means: &Means) -> Result<PathBuf, String> {
    let Some(OwnProgram { path, closed }) = &facts.program else {
        return Err("this program has no file here that could be its ProxyCommand".into());
    };
    let program = path.display();
    if let Some(closed) = closed {
        return Err(format!(
            "{} is closed to the command by its mode, and {program} is the ProxyCommand",
            closed.display()
        ));
    }
    if let Some(mask) = view.masks.iter().find(|mask| *mask != path && path.starts_with(mask)) {
        return Err(format!("{} is masked, and {program} is the ProxyCommand", mask.display()));
    }
    view.masks.retain(|mask| mask != path);
    // Elsewhere than under the caller's uid its mode keeps it from the command, or there is no run.
    if means.files == FileBarrier::Mounts && means.one_uid && !view.protects(path) {
        view.read_only_within.push(path.clone());
    }
    Ok(path.clone())
}
