//! What is shielded, looked at from outside before anything is put in force: under which other names it could be reached,
//! and what it is made of, to be compared at the end.
//!
//! A shield that cannot be put up whole is an error.

mod digest;
mod files;
pub(super) mod links;

pub use digest::{Manifest, ManifestError, until_alone};
pub use files::Files;

use super::Invocation;
use super::git;
use super::mountinfo::{self, Mount};
use super::mounts::{MountError, read_mountinfo};
use super::surroundings::workdir;
use crate::git::GitError;
use crate::plan::means::FileBarrier;
use crate::plan::{Plan, Refusal, shields};
use nix::sys::stat::{SFlag, fstat};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why a path cannot be shielded.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// The mounts could not be read.
    #[error(transparent)]
    Mounts(#[from] MountError),
    /// What is to be shielded could not be looked at.
    #[error("shield: {path}: {cause}", path = path.display())]
    Look {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file has more names than were found.
    #[error(
        "shield: {path} has {names} names (hard links) and {found} of them were found; accepted: a file whose other names are in reach, or a copy of it",
        path = path.display()
    )]
    Links {
        /// A name within the shield.
        path: PathBuf,
        /// How many names it has.
        names: u64,
        /// How many were found.
        found: u64,
    },
    /// A repository of which a part is to be seen.
    #[error("shield-git: {0}")]
    Git(#[from] GitError),
    /// Another name of a shield cannot be held.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Adds to a plan's shields the other names by which they are reached: other mounts and hard links. What is shielded is a
/// read-only tree as well where no mount covers it.
pub fn complete(plan: &mut Plan, invocation: Option<&Invocation>) -> Result<(), ShieldError> {
    if plan.shields.is_empty() && plan.tripwires.is_empty() && plan.git_trees.is_empty() {
        return Ok(());
    }
    let mounts = read_mountinfo()?;
    let reachable = mountinfo::reachable(&mounts);
    let mut others = other_names(&plan.shields, &reachable)?;
    others.extend(git::complete(plan, &reachable)?);
    shields::outermost(&mut others);
    plan.tripwires.extend(aliases(&plan.tripwires, &reachable));
    plan.notes.extend(repositories(&plan.shields));
    let means = plan.rung.means();
    let directory = invocation.map(|invocation| workdir(plan, invocation));
    let Some(view) = &mut plan.mounts else { return Ok(()) };
    shields::check(&others, view, &plan.policy, plan.home.as_ref(), &means)?;
    view.shields.extend(others);
    if let Some(directory) = directory
        && let Some(shield) = view.shields.iter().find(|shield| directory.starts_with(shield))
    {
        let directory = directory.display();
        let fault = format!("the command's working directory {directory} lies in it");
        return Err(Refusal::Path { path: shield.clone(), fault }.into());
    }
    let shielded = |path: &Path| view.shields.iter().any(|shield| path.starts_with(shield));
    view.read_only_within.retain(|path| !shielded(path));
    if means.files == FileBarrier::Landlock {
        let trees: Vec<PathBuf> = view.shields.iter().filter(|shield| !view.protects(shield)).cloned().collect();
        view.read_only.extend(trees);
    }
    Ok(())
}

/// Every other name of what lies in some paths.
fn other_names(shields: &[PathBuf], reachable: &[&Mount]) -> Result<Vec<PathBuf>, ShieldError> {
    let mut others = aliases(shields, reachable);
    let known: Vec<PathBuf> = shields.iter().chain(&others).cloned().collect();
    others.extend(links::outside(shields, &known, reachable)?);
    crate::plan::shields::outermost(&mut others);
    Ok(others)
}

/// Other names by mounts: of the paths themselves, and of what is mounted beneath them.
pub(super) fn aliases(paths: &[PathBuf], reachable: &[&Mount]) -> Vec<PathBuf> {
    let mut trees = paths.to_vec();
    let beneath = |mount: &&&Mount| paths.iter().any(|path| mount.point.starts_with(path) && mount.point != *path);
    trees.extend(reachable.iter().filter(beneath).map(|mount| mount.point.clone()));
    let mut found = mountinfo::aliases(reachable, &trees);
    found.retain(|alias| alias.symlink_metadata().is_ok());
    found
}

/// What an operator should know of shields in work trees of git.
fn repositories(shields: &[PathBuf]) -> Vec<String> {
    let of = |shield: &PathBuf| {
        let tree = shield.ancestors().skip(1).find(|above| above.join(".git").exists())?;
        Some(format!(
            "shield {}: it lies in a work tree of git, whose objects in {} may hold a copy of it: what HEAD reaches of \
             them stays readable with --shield-git too",
            shield.display(),
            tree.join(".git").display()
        ))
    };
    shields.iter().filter_map(of).collect()
}

/// Whether a descriptor refers into one of the shields, by any name of what it refers to.
pub fn holds(shields: &[PathBuf], fd: &OwnedFd) -> bool {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    if shields.iter().any(|shield| path.starts_with(shield)) {
        return true;
    }
    let Ok(stat) = fstat(fd) else { return false };
    let is_file =
        [SFlag::S_IFREG, SFlag::S_IFDIR].iter().any(|kind| stat.st_mode & SFlag::S_IFMT.bits() == kind.bits());
    is_file && shields.iter().any(|shield| links::has(shield, (stat.st_dev, stat.st_ino)))
}
