//! Which git directories are covered, and by which other ways their objects are reached.

use super::super::mountinfo::Mount;
use super::super::mounts::{GitCover, MountPlan};
use super::super::shields::{ShieldError, links};
use crate::git::config::{self, Filtered};
use crate::git::objects::with_alternates;
use crate::git::place::Place;
use crate::git::{GitError, form};
use crate::install::account::Identity;
use crate::install::workspace::Ownership;
use crate::plan::{Plan, Refusal};
use nix::unistd::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most repositories of submodules in one.
const MODULES: usize = 1000;

/// Covers the git directory of each work tree of the plan in its view. Returns the other ways to its objects: other
/// mounts, hard links, directories of objects that it borrows from.
pub fn complete(plan: &mut Plan, reachable: &[&Mount]) -> Result<Vec<PathBuf>, ShieldError> {
    let mut directories = Vec::new();
    for tree in &plan.git_trees {
        directories.push(directory_of(tree)?);
    }
    directories.sort();
    directories.dedup();
    let Some(view) = &mut plan.mounts else { return Ok(Vec::new()) };
    let mut objects = Vec::new();
    for directory in &directories {
        check_place(view, directory)?;
        for below in repositories(directory)? {
            let repository = Place::new(directory.join(&below));
            read_config(&repository)?;
            let own = with_alternates(&repository.at("objects"))?.into_iter().map(|place| place.path);
            for path in own.filter(|path| !path.starts_with(directory)) {
                let becomes_its =
                    |(tree, way): (&PathBuf, &Ownership)| *way != Ownership::Kept && path.starts_with(tree);
                if !plan.workspaces.iter().any(becomes_its) {
                    check_borrowed(directory, &path, plan.identity.as_ref())?;
                }
                objects.push(path);
            }
        }
        plan.notes.extend(other_work_trees(directory)?);
        plan.notes.push(format!(
            "shield-git: {}: the command sees what HEAD reaches; what it commits is carried back at the end",
            directory.display()
        ));
        let holding = view.writable.iter().filter(|w| directory.starts_with(&w.path));
        let idmapped = holding.max_by_key(|w| w.path.components().count()).is_some_and(|w| w.idmapped);
        let read_only = view.protects(directory);
        view.git.push(GitCover { directory: directory.clone(), store: PathBuf::new(), idmapped, read_only });
    }
    objects.retain(|path| !directories.iter().any(|directory| path.starts_with(directory)));
    let covered: Vec<PathBuf> = directories.iter().chain(&objects).cloned().collect();
    let mut others = super::super::shields::aliases(&covered, reachable);
    let known: Vec<PathBuf> = covered.iter().chain(&others).cloned().collect();
    others.extend(links::outside(&covered, &known, reachable)?);
    if let Some(view) = &mut plan.mounts {
        view.borrowed.clone_from(&objects);
    }
    others.extend(objects);
    crate::plan::shields::outermost(&mut others);
    Ok(others)
}

/// The git directory of a work tree, or of the one that it lies in.
fn directory_of(tree: &Path) -> Result<PathBuf, ShieldError> {
    let refused = |path: &Path, fault: &str| {
        Err(ShieldError::Refused(Refusal::Path { path: path.to_owned(), fault: format!("shield-git: {fault}") }))
    };
    let own = tree.ancestors().map(|above| above.join(".git")).find(|git| git.symlink_metadata().is_ok());
    let Some(git) = own else {
        return refused(tree, "it lies in no work tree of git; accepted: --shield-git=PATH of one");
    };
    let kind = git.symlink_metadata().map_err(|cause| ShieldError::Look { path: git.clone(), cause })?.file_type();
    if kind.is_symlink() {
        return refused(&git, "it is a symbolic link; accepted: a directory");
    }
    if !kind.is_dir() {
        return refused(
            &git,
            "it is a file that leads to a repository elsewhere (a linked work tree, a submodule); accepted: the work tree \
             whose .git is a directory",
        );
    }
    match git.join("HEAD").exists() && git.join("objects").is_dir() {
        true => Ok(git),
        false => refused(&git, "it is no repository: it has no HEAD or no objects"),
    }
}

fn check_place(view: &MountPlan, directory: &Path) -> Result<(), Refusal> {
    let refused = |path: &Path, fault: String| Err(Refusal::Path { path: path.to_owned(), fault });
    let git = directory.display();
    if let Some(shield) = view.shields.iter().find(|s| directory.starts_with(s) || s.starts_with(directory)) {
        return refused(
            shield,
            format!("a shield there and shield-git for {git} exclude each other; accepted: one of them"),
        );
    }
    if let Some(writable) = view.writable.iter().find(|w| w.path.starts_with(directory)) {
        return refused(&writable.path, format!("it is named writable within {git}, which shield-git covers"));
    }
    Ok(())
}

/// Refuses objects that the command's user could not read where they are: a list of alternates that somebody else has written
/// would have them copied for it.
fn check_borrowed(directory: &Path, objects: &Path, identity: Option<&Identity>) -> Result<(), ShieldError> {
    let Some(identity) = identity.filter(|_| geteuid().is_root()) else { return Ok(()) };
    let (uid, gid) = (identity.uid.as_raw(), identity.gid.as_raw());
    for path in objects.ancestors().chain([&*objects.join("pack")]) {
        let meta = match path.metadata() {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            looked => looked.map_err(|cause| ShieldError::Look { path: path.to_owned(), cause })?,
        };
        let shift = if meta.uid() == uid {
            6
        } else if meta.gid() == gid {
            3
        } else {
            0
        };
        let needed = if path.starts_with(objects) { 0o5 } else { 0o1 };
        if uid != 0 && meta.mode() >> shift & needed != needed {
            let git = directory.display();
            let fault = format!(
                "shield-git: {git} borrows objects there (objects/info/alternates), where the command's user may not read; \
                 accepted: objects that he may read"
            );
            return Err(ShieldError::Refused(Refusal::Path { path: objects.to_owned(), fault }));
        }
    }
    Ok(())
}

/// The repositories in a git directory: itself, and those of submodules, whose names may hold slashes.
pub(super) fn repositories(directory: &Path) -> Result<Vec<String>, GitError> {
    let place = Place::new(directory.to_owned());
    let mut found = vec![String::new()];
    let mut pending = vec!["modules".to_owned()];
    let mut seen = 0;
    while let Some(below) = pending.pop() {
        for name in place.names(&below)? {
            seen += 1;
            if seen > MODULES {
                return Err(form(&directory.join("modules"), format!("it has more than {MODULES} names")));
            }
            let Some(name) = name.to_str().map(|name| format!("{below}/{name}")) else { continue };
            if !place.has_directory(&name) {
                continue;
            }
            if place.open(format!("{name}/HEAD")).is_ok() {
                pending.push(format!("{name}/modules"));
                found.push(name);
            } else {
                pending.push(name);
            }
        }
    }
    Ok(found)
}

/// A repository's configuration, filtered.
pub(super) fn read_config(repository: &Place) -> Result<Filtered, GitError> {
    let path = repository.path.join("config");
    let text = repository.read("config", config::LIMIT)?.unwrap_or_default();
    // What a work tree has of its own overrides it.
    let own = repository.read("config.worktree", config::LIMIT)?.unwrap_or_default();
    config::filter(&path, &[&text[..], b"\n", &own].concat())
}

/// What an operator should know of further work trees of a repository.
fn other_work_trees(directory: &Path) -> Result<Vec<String>, GitError> {
    let place = Place::new(directory.join("worktrees"));
    let mut notes = Vec::new();
    for name in place.names("")? {
        let gitdir = place.read(Path::new(&name).join("gitdir"), 4096)?.unwrap_or_default();
        let tree = String::from_utf8_lossy(&gitdir).trim().trim_end_matches("/.git").to_owned();
        notes.push(format!("shield-git: the files of the linked work tree {tree} stay as they are: shield them too"));
    }
    Ok(notes)
}
