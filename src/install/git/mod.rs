//! Repositories of which the command sees what HEAD reaches and nothing else: a git directory of its own, made of the real one
//! and mounted over it (`--shield-git`), and what it has committed there carried back when it has ended.
//!
//! The copy lies in the real directory, in `ringfence-RUN/`: on the same file system, of the same owner as all of the
//! workspace, and hidden by the very mount that shows it.

mod carry;
mod find;
mod given;
mod real;
mod remove;
mod store;

pub use carry::carry_back;
pub(super) use find::complete;
pub use given::{Given, Repository};
pub use store::make;

use crate::git::GitError;
use crate::git::place::Place;
use crate::ledger::RunId;
use crate::ledger::record::GitEnd;
use std::path::{Path, PathBuf};

/// What the name of a copy's directory begins with; the run's name follows.
const PREFIX: &str = "ringfence-";
/// The part of it that is mounted.
const STORE: &str = "store";

/// Where a run keeps its copy of a git directory.
pub fn wrapper(directory: &Path, run: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{run}"))
}

/// Most paths that a probe looks for.
const HIDDEN: usize = 64;

/// Paths in a git directory of what its copy has not.
pub fn hidden(directory: &Path, store: &Path) -> Vec<PathBuf> {
    let packs = Place::new(directory.join("objects/pack")).names("").unwrap_or_default();
    let packs = packs.iter().map(|name| Path::new("objects/pack").join(name));
    let others = ["logs", "refs/stash", "refs/remotes", "FETCH_HEAD", "ORIG_HEAD", "worktrees"].map(PathBuf::from);
    let below = others.into_iter().chain(packs);
    let real = below.filter(|below| !store.join(below).exists() && directory.join(below).exists());
    store.parent().map(Path::to_owned).into_iter().chain(real.map(|below| directory.join(below))).take(HIDDEN).collect()
}

/// What of it is mounted over the directory.
pub fn store(directory: &Path, run: &str) -> PathBuf {
    wrapper(directory, run).join(STORE)
}

/// Where runs have, or had, their copies of a git directory, and the names of the runs.
pub fn wrappers(directory: &Path) -> Result<Vec<(PathBuf, RunId)>, GitError> {
    let place = Place::new(directory.to_owned());
    let names = place.names("")?.into_iter().filter(|name| place.has_directory(name));
    let named = |name: std::ffi::OsString| {
        let run = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        Some((directory.join(&name), run))
    };
    Ok(names.filter_map(named).collect())
}

/// Carries back what runs that are over have left in a git directory, and says what has become of it.
pub fn put_back_for_the_dead(directory: &Path) -> Result<Vec<GitEnd>, GitError> {
    let mut ends = Vec::new();
    for (wrapper, run) in wrappers(directory)? {
        // What lives is left alone; where that cannot be told it may.
        let Ok(Some(_held)) = super::reserve::run(run.as_str()) else { continue };
        ends.push(carry_back(directory, &wrapper)?);
    }
    Ok(ends)
}
