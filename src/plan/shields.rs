//! Which paths are shielded and which are watched, from the policy and what is at its paths; and where that cannot be.

use super::means::{FileBarrier, Means, SeenBy};
pub use super::view::outermost;
use super::view::unusable;
use super::{HomePlan, Refusal};
use crate::host::{Facts, PathFact};
use crate::install::mounts::MountPlan;
use crate::policy::{Policy, WorkTree, harbor};
use std::path::{Path, PathBuf};

/// What a command cannot do without: a shield over one of these, or above it, leaves nothing to run.
const NEEDED: [&str; 14] = [
    "/",
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/sbin",
];
/// The kernel's own, where nothing is kept.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// The paths that the policy has shielded, and those of them that may be missing.
pub fn asked(policy: &Policy, home: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let filesystem = &policy.filesystem;
    let named = filesystem.shields.iter().map(|path| path.resolve(home)).collect();
    let workspace = filesystem.workspace.as_ref().map(|path| path.resolve(home));
    let known = if filesystem.shield_harbor { harbor::places(workspace.as_deref()) } else { Vec::new() };
    (named, known)
}

/// The paths that the policy has watched.
pub fn watched(policy: &Policy, home: &Path) -> Vec<PathBuf> {
    policy.filesystem.watch_read.iter().map(|path| path.resolve(home)).collect()
}

/// The work trees whose repositories the policy has shielded; the workspace is the one that it names, or those that images
/// have.
pub fn git_trees(policy: &Policy, home: &Path) -> Vec<PathBuf> {
    let workspace = policy.filesystem.workspace.as_ref().map(|path| vec![path.resolve(home)]);
    let workspace = workspace.unwrap_or_else(|| ["/app", "/workspace"].map(PathBuf::from).into());
    let each = policy.filesystem.shield_git.iter().flat_map(|tree| match tree {
        WorkTree::Workspace => workspace.clone(),
        WorkTree::At(path) => vec![path.resolve(home)],
    });
    each.collect()
}

/// The same, free of symbolic links.
///
/// # Errors
/// A work tree that is not there; of the places that images have one is enough.
pub(super) fn work_trees(policy: &Policy, facts: &Facts, home: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let asked = git_trees(policy, home);
    let named = |path: &PathBuf| {
        policy.filesystem.shield_git.iter().any(|tree| matches!(tree, WorkTree::At(at) if at.resolve(home) == *path))
    };
    let mut trees = Vec::new();
    for path in &asked {
        match facts.paths.get(path) {
            Some(PathFact::Present { real, .. }) => {
                let searched = policy.filesystem.workspace.is_none() && !named(path);
                if !searched || real.ancestors().any(|above| facts.repositories.contains(above)) {
                    trees.push(real.clone());
                }
            }
            Some(PathFact::Missing) | None if !named(path) && policy.filesystem.workspace.is_none() => {}
            Some(PathFact::Missing) | None => {
                return Err(Refusal::Path { path: path.clone(), fault: "shield-git: it does not exist".into() });
            }
            Some(fault) => return Err(unusable(path, fault)),
        }
    }
    if trees.is_empty() && !asked.is_empty() {
        let fault = "shield-git: there is no repository in the workspace; accepted: --workspace, or --shield-git=PATH";
        return Err(Refusal::Path { path: asked[0].clone(), fault: fault.into() });
    }
    Ok(trees)
}

/// What is to be shielded, outermost and free of symbolic links.
///
/// # Errors
/// A path that the policy names and that is not there, or cannot be looked at.
pub(super) fn shields(policy: &Policy, facts: &Facts, home: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let (named, known) = asked(policy, home);
    let mut shields = Vec::new();
    for (path, optional) in named.iter().map(|path| (path, false)).chain(known.iter().map(|path| (path, true))) {
        match facts.paths.get(path) {
            Some(PathFact::Present { real, .. }) => shields.push(real.clone()),
            Some(PathFact::Missing) if optional => {}
            Some(PathFact::Missing) | None => {
                let fault = "to be shielded, but it does not exist; accepted: a path that is there when the run starts";
                return Err(Refusal::Path { path: path.clone(), fault: fault.into() });
            }
            Some(fault) => return Err(unusable(path, fault)),
        }
    }
    outermost(&mut shields);
    Ok(shields)
}

/// What is to be watched, free of symbolic links.
///
/// # Errors
/// As of [`shields`].
pub(super) fn tripwires(policy: &Policy, facts: &Facts, home: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let mut tripwires = Vec::new();
    for path in watched(policy, home) {
        match facts.paths.get(&path) {
            Some(PathFact::Present { real, .. }) => tripwires.push(real.clone()),
            Some(PathFact::Missing) | None => {
                return Err(Refusal::Path { path, fault: "to be watched, but it does not exist".into() });
            }
            Some(fault) => return Err(unusable(&path, fault)),
        }
    }
    outermost(&mut tripwires);
    Ok(tripwires)
}

/// By what reads of watched paths are seen: where the uid is one, fanotify is not to be had, nor would it tell whose reads
/// they are.
pub(super) fn seen_by(facts: &Facts, means: &Means) -> SeenBy {
    if facts.fanotify.is_ok() && !means.one_uid { SeenBy::Fanotify } else { SeenBy::Notifier }
}

/// What an operator should know of watched reads.
pub(super) fn note_of_reads(by: SeenBy, facts: &Facts) -> String {
    match (by, &facts.fanotify) {
        (SeenBy::Fanotify, _) => "watched reads are seen by fanotify".into(),
        (SeenBy::Notifier, Err(cause)) => {
            format!(
                "watched reads are seen by the notifier, past which a race may read: fanotify is not to be had ({cause})"
            )
        }
        (SeenBy::Notifier, Ok(())) => "watched reads are seen by the notifier, past which a race may read".into(),
    }
}

/// Refuses a shield, or another name of one, that takes away what the command works by, or that the rung cannot hold.
pub fn check(
    shields: &[PathBuf],
    view: &MountPlan,
    policy: &Policy,
    home: Option<&HomePlan>,
    means: &Means,
) -> Result<(), Refusal> {
    let refused = |path: &Path, fault: String| Err(Refusal::Path { path: path.to_owned(), fault });
    let account = home.map_or(Path::new("/"), |home| home.path.as_path());
    let filesystem = &policy.filesystem;
    let named = filesystem.workdir.iter().chain(&filesystem.workspace).chain(&filesystem.sockets);
    let worked_in: Vec<PathBuf> = named
        .map(|path| path.resolve(account))
        .chain(view.writable.iter().map(|w| w.path.clone()))
        .chain(home.map(|home| home.path.clone()))
        .collect();
    for shield in shields {
        if let Some(needed) = NEEDED.iter().find(|needed| Path::new(needed).starts_with(shield)) {
            return refused(
                shield,
                format!("a shield there takes {needed} from every program; accepted: a path below"),
            );
        }
        if let Some(kernels) = KERNELS.iter().find(|kernels| shield.starts_with(kernels)) {
            return refused(shield, format!("what is in {kernels} is the kernel's; accepted: files and directories"));
        }
        if let Some(work) = worked_in.iter().find(|work| work.starts_with(shield)) {
            let work = work.display();
            return refused(
                shield,
                format!("a shield there takes {work} from the command; accepted: a path beside it"),
            );
        }
        if means.files == FileBarrier::Landlock
            && let Some(writable) = view.writable.iter().find(|w| shield.starts_with(&w.path))
        {
            let writable = writable.path.display();
            return refused(
                shield,
                format!(
                    "a shield within {writable}, which the command may write, takes a mount; accepted on this rung: a path outside of it"
                ),
            );
        }
    }
    Ok(())
}

/// What an operator should know of the shields.
pub(super) fn notes(policy: &Policy, shields: &[PathBuf], means: &Means) -> Vec<String> {
    let mut notes = Vec::new();
    if policy.filesystem.shield_harbor {
        let found: Vec<String> = shields.iter().map(|path| path.display().to_string()).collect();
        notes.push(format!("shield-harbor: what is there is shielded: {}", found.join(", ")));
    }
    if !shields.is_empty() && means.files == FileBarrier::Landlock {
        let text = "what appears in the directories above a shield during the run cannot be read: Landlock grants a \
                    directory whole or not at all";
        notes.push(text.into());
    }
    notes
}
