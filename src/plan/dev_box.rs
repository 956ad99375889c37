//! What is particular to an ordinary user's own machine: the workspace is where the user stands, the user's session is out of
//! reach, and what the host would run later is named.

use super::means::Means;
use super::{MountPlan, Refusal};
use crate::host::{Facts, PathFact, real_path};
use crate::install::account::Identity;
use crate::policy::{Policy, Posture};
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};

/// Makes the caller's directory the workspace where an ordinary user names none, unless the whole home would be in it or the
/// user may not write there.
pub fn settle_workspace(policy: &mut Policy, directory: &Path, identity: Option<&Identity>) {
    let Some(identity) = identity else { return };
    if identity.uid.is_root() || policy.filesystem.workspace.is_some() || policy.filesystem.posture == Posture::Open {
        return;
    }
    let own = access(directory, AccessFlags::W_OK).is_ok();
    if own && !holds_home(directory, &real_path(&identity.home)) {
        policy.filesystem.workspace = directory.to_str().and_then(|text| text.parse().ok());
    }
}

/// Whether a directory is / or the home, or holds it.
fn holds_home(directory: &Path, home: &Path) -> bool {
    directory == Path::new("/") || home.starts_with(directory)
}

/// Holds the workspace against what is said of it on a rung that keeps the caller's identity and has mounts.
pub(super) fn check_workspace(policy: &Policy, facts: &Facts, identity: &Identity) -> Result<(), Refusal> {
    if policy.filesystem.posture == Posture::Open {
        return Ok(());
    }
    let home = facts.home.as_ref().map_or(&identity.home, |home| &home.real);
    let refused = |path: PathBuf| {
        let fault = "it is / or holds the whole home, whose files start programs outside; accepted: a directory of a \
                     project, by changing to it or by --workspace";
        Err(Refusal::Path { path, fault: fault.to_owned() })
    };
    match &policy.filesystem.workspace {
        None if holds_home(&facts.session.directory, home) => refused(facts.session.directory.clone()),
        // The user may not write there, and the command may not either.
        None => Ok(()),
        Some(workspace) => {
            let path = workspace.resolve(&identity.home);
            let real = match facts.paths.get(&path) {
                Some(PathFact::Present { real, .. }) => real.clone(),
                _ => path.clone(),
            };
            if holds_home(&real, home) { refused(path) } else { Ok(()) }
        }
    }
}

/// Takes the user's session out of the view, but for the sockets that the policy names.
pub(super) fn close_session(view: &mut MountPlan, policy: &Policy, facts: &Facts) -> Result<(), Refusal> {
    let mut named = Vec::new();
    for (path, found) in &facts.session.named {
        match found {
            Ok(real) => named.push(real.clone()),
            Err(cause) => {
                return Err(Refusal::Path { path: path.clone(), fault: format!("it is named as a socket: {cause}") });
            }
        }
    }
    let mut masks = facts.session.sockets.clone();
    if policy.filesystem.posture == Posture::Locked {
        masks.extend(facts.session.credentials.iter().cloned());
    }
    let open = |mask: &PathBuf| view.writable.iter().any(|w| w.path.starts_with(mask)) || named.contains(mask);
    masks.retain(|mask| !open(mask));
    view.masks.retain(|mask| !named.contains(mask));
    view.masks.extend(masks);
    super::view::outermost(&mut view.masks);
    view.exposed = named;
    Ok(())
}

/// What the policy asks for that only this rung has.
pub(super) fn only_here(policy: &Policy, means: &Means) -> Result<(), String> {
    if means.own_namespaces && policy.network.posture > Posture::Open {
        return Ok(());
    }
    if let Some(port) = policy.network.publish.first() {
        return Err(format!("publish {port}: the command's servers are on the host's own loopback here"));
    }
    if means.own_namespaces {
        return Ok(());
    }
    if let Some(socket) = policy.filesystem.sockets.first() {
        return Err(format!(
            "socket {socket}: only rung rootless takes the caller's sockets away, so that one can be left"
        ));
    }
    match policy.filesystem.protect.as_ref().and_then(|list| list.first()) {
        Some(path) => {
            Err(format!("protect {path}: only rung rootless keeps what the host would run later; see read-only"))
        }
        None => Ok(()),
    }
}
