//! What the host would run later, made read-only within what the command may write: what exists as it is, what does not by
//! a placeholder (see [`super::placeholders`]).

use super::mounts::{MountPlan, Overlay};
use super::placeholders::Wanted;
use crate::policy::{Policy, protect};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Why a path cannot be protected.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// A link that the command could replace stands on the way.
    #[error(
        "protect {path}: {link} is a symbolic link that the command could replace; accepted: a path without links, or a \
         --protect list without it",
        path = path.display(), link = link.display()
    )]
    Link {
        /// The protected path.
        path: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// Something else stands on the way.
    #[error("protect {path}: {cause}", path = path.display())]
    Look {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        cause: std::io::Error,
    },
    /// The workspace is too large to be searched for git directories.
    #[error("protect: {workspace} holds more than {LIMIT} directories, to be searched for those of git; accepted: a \
             --protect list without .git/", workspace = workspace.display())]
    TooMany {
        /// The workspace.
        workspace: PathBuf,
    },
}

/// Most directories of a workspace that are looked through.
const LIMIT: usize = 500_000;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// What exists.
    pub present: Vec<PathBuf>,
    /// What does not: the outermost that is missing.
    pub missing: Vec<Wanted>,
}

/// Finds what of the policy's list lies in what the command may write by `view`.
pub fn find(policy: &Policy, workspace: Option<&Path>, home: &Path, view: &MountPlan) -> Result<Found, ProtectError> {
    let list = protect::effective(policy.filesystem.protect.as_deref());
    let asked: Vec<PathBuf> = policy.filesystem.writable.iter().map(|path| path.resolve(home)).collect();
    let mut found = Found::default();
    let mut take = |path: PathBuf, directory: bool| {
        // Who names it writable has decided.
        if asked.contains(&path) { Ok(()) } else { found.take(path, directory, view) }
    };
    let repositories = match workspace {
        Some(workspace) if list.iter().any(|path| path.in_repository().is_some()) => repositories(workspace)?,
        _ => Vec::new(),
    };
    for path in &list {
        match (path.in_repository(), workspace) {
            (Some(part), Some(workspace)) => {
                for directory in &repositories {
                    take(directory.join(part), path.is_directory())?;
                }
                let own = workspace.join(".git");
                // Without one, what may not be made in it may not be made with it either; a file leads to one elsewhere.
                if !own.is_dir() {
                    take(if own.is_file() { own } else { own.join(part) }, path.is_directory())?;
                }
            }
            (None, None) if path.is_of_workspace() => {}
            _ => take(path.resolve(workspace.unwrap_or(home), home), path.is_directory())?,
        }
    }
    found.outermost();
    Ok(found)
}

impl Found {
    fn take(&mut self, path: PathBuf, directory: bool, view: &MountPlan) -> Result<(), ProtectError> {
        let mut at = PathBuf::from("/");
        let names: Vec<_> = path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        for (number, name) in names.iter().enumerate() {
            at.push(name);
            let last = number + 1 == names.len();
            match std::fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_symlink() && view.protects(&at) => match at.canonicalize() {
                    Ok(real) => at = real,
                    // It leads nowhere, and cannot be made to lead elsewhere.
                    Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                    Err(cause) => return Err(ProtectError::Look { path, cause }),
                },
                Ok(meta) if meta.is_symlink() => return Err(ProtectError::Link { path, link: at }),
                Ok(meta) if !last && !meta.is_dir() => {
                    // A file in the place of a directory: nothing can be made below it, but it could be replaced.
                    self.present_unless(at, view);
                    return Ok(());
                }
                Ok(_) => {}
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                    if !view.protects(&at) {
                        let content = (last && !directory).then(|| content(&at));
                        self.missing.push(Wanted { path: at, content });
                    }
                    return Ok(());
                }
                // What the caller may not search, the command may not either.
                Err(cause) if cause.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
                Err(cause) => return Err(ProtectError::Look { path, cause }),
            }
        }
        self.present_unless(at, view);
        Ok(())
    }

    fn present_unless(&mut self, path: PathBuf, view: &MountPlan) {
        if !view.protects(&path) {
            self.present.push(path);
        }
    }

    /// What lies in another one is held with it.
    fn outermost(&mut self) {
        self.present.sort();
        self.present.dedup();
        let all = self.present.clone();
        self.present.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
        self.missing.retain(|wanted| !all.iter().any(|other| wanted.path.starts_with(other)));
        self.missing.sort_by(|a, b| a.path.cmp(&b.path));
        self.missing.dedup_by(|a, b| a.path == b.path);
    }
}

/// What an empty file of that name would not be taken for.
fn content(path: &Path) -> &'static [u8] {
    if path.file_name() == Some("commondir".as_ref()) {
        // Git's own directory, as if there were no such file (gitrepository-layout(5)).
        b".\n"
    } else if path.extension() == Some("json".as_ref()) {
        b"{}\n"
    } else {
        b""
    }
}

/// The git directories in a workspace: each `.git`, what a file of that name leads to, and those of submodules in them.
fn repositories(workspace: &Path) -> Result<Vec<PathBuf>, ProtectError> {
    let mut found = Vec::new();
    let mut pending = VecDeque::from([workspace.to_owned()]);
    let mut seen = 0;
    while let Some(directory) = pending.pop_front() {
        seen += 1;
        if seen > LIMIT {
            return Err(ProtectError::TooMany { workspace: workspace.to_owned() });
        }
        // What cannot be read here cannot be entered by the command, which has the same ids.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            match (entry.file_name() == ".git", kind.is_dir()) {
                (true, true) => with_modules(entry.path(), &mut found),
                (true, false) if kind.is_file() => found.extend(led_to(&entry.path())),
                (false, true) => pending.push_back(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// A git directory, and below its `modules/` those of submodules, whose names may hold slashes.
fn with_modules(directory: PathBuf, found: &mut Vec<PathBuf>) {
    let mut pending = vec![directory.join("modules")];
    found.push(directory);
    while let Some(place) = pending.pop() {
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if path.join("HEAD").exists() {
                pending.push(path.join("modules"));
                found.push(path);
            } else {
                pending.push(path);
            }
        }
    }
}

/// Where a file `.git` says that the directory is: `gitdir: PATH` (gitrepository-layout(5)).
fn led_to(file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(file).ok()?;
    let path = text.strip_prefix("gitdir:")?.trim();
    file.parent()?.join(path).canonicalize().ok()
}

/// Git's list of files that are not its business, with the placeholders on it, so that `git add --all` passes them by.
pub fn excluded(workspace: &Path, missing: &[Wanted]) -> Option<Overlay> {
    let git = workspace.join(".git");
    let directory = if git.is_dir() { git } else { led_to(&git)? };
    let target = directory.join("info/exclude").canonicalize().ok()?;
    let mut content = std::fs::read(&target).ok()?;
    let files = missing.iter().filter(|wanted| wanted.content.is_some());
    let names: Vec<&Path> = files.filter_map(|wanted| wanted.path.strip_prefix(workspace).ok()).collect();
    if names.iter().all(|name| name.starts_with(".git")) {
        return None;
    }
    for name in names {
        content.extend_from_slice(b"\n/");
        content.extend_from_slice(name.as_os_str().as_bytes());
    }
    content.push(b'\n');
    Some(Overlay { target, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::mounts::Writable;
    use crate::policy::{Layer, Level, PolicyArg, ProtectedPath};
    use std::fs::{create_dir_all, write};

    fn found(top: &Path, list: &[&str]) -> Result<Found, ProtectError> {
        let protect = Some(list.iter().map(|text| text.parse::<ProtectedPath>().unwrap()).collect());
        let flags = Layer { protect, ..Layer::default() };
        let policy = Policy::load(&PolicyArg::Level(Level::NistHigh), &flags).unwrap();
        let (workspace, home) = (top.join("w"), top.join("home"));
        let writable = [&workspace, &home.join(".config")].map(|path| Writable { path: path.clone(), idmapped: false });
        let view = MountPlan { read_only: vec![top.into()], writable: writable.into(), ..MountPlan::default() };
        find(&policy, Some(&workspace), &home, &view)
    }

    fn below<'a>(top: &Path, paths: impl Iterator<Item = &'a PathBuf>) -> Vec<String> {
        paths.map(|path| path.strip_prefix(top).unwrap().display().to_string()).collect()
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        create_dir_all(top.join("w")).unwrap();
        create_dir_all(top.join("home/.config")).unwrap();
        (dir, top)
    }

    #[test]
    fn what_exists_is_held_and_of_what_does_not_the_outermost_is_made() {
        let (_dir, top) = place();
        create_dir_all(top.join("w/a")).unwrap();
        write(top.join("w/here"), "").unwrap();
        let list = ["here", "a/b/c", "a/b/d/", "e.json", "~/.config/x/", "~/.bashrc", "/etc/hostname"];
        let found = found(&top, &list).unwrap();
        assert_eq!(below(&top, found.present.iter().filter(|p| p.starts_with(&top))), ["w/here"]);
        assert_eq!(below(&top, found.missing.iter().map(|w| &w.path)), ["home/.config/x", "w/a/b", "w/e.json"]);
        let contents: Vec<_> = found.missing.iter().map(|w| w.content).collect();
        assert_eq!(contents, [None, None, Some(&b"{}\n"[..])], "a home that is read-only needs nothing in it");
    }

    #[test]
    fn every_git_directory_of_the_workspace_is_found() {
        let (_dir, top) = place();
        for directory in [".git", "deep/er/.git", ".git/modules/lib/sub", "elsewhere"] {
            create_dir_all(top.join("w").join(directory)).unwrap();
        }
        for file in [".git/config", "deep/er/.git/config", ".git/modules/lib/sub/HEAD", "elsewhere/config"] {
            write(top.join("w").join(file), "").unwrap();
        }
        create_dir_all(top.join("w/tree")).unwrap();
        write(top.join("w/tree/.git"), "gitdir: ../elsewhere\n").unwrap();
        let found = found(&top, &[".git/config"]).unwrap();
        let present = ["w/.git/config", "w/deep/er/.git/config", "w/elsewhere/config"];
        assert_eq!(below(&top, found.present.iter()), present);
        assert_eq!(below(&top, found.missing.iter().map(|w| &w.path)), ["w/.git/modules/lib/sub/config"]);
    }

    #[test]
    fn where_there_is_no_repository_none_is_made_and_a_file_that_leads_to_one_is_held() {
        let (_dir, top) = place();
        let none = found(&top, &[".git/hooks/", ".git/config"]).unwrap();
        assert_eq!(below(&top, none.missing.iter().map(|w| &w.path)), ["w/.git"]);
        assert_eq!(none.missing[0].content, None);
        write(top.join("w/.git"), "gitdir: /nowhere\n").unwrap();
        let file = found(&top, &[".git/hooks/", ".git/config"]).unwrap();
        assert_eq!(below(&top, file.present.iter()), ["w/.git"]);
    }

    #[test]
    fn a_link_that_the_command_could_replace_is_refused() {
        let (_dir, top) = place();
        create_dir_all(top.join("w/real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("w/.vscode")).unwrap();
        let refusal = found(&top, &[".vscode/tasks.json"]).unwrap_err().to_string();
        assert!(refusal.contains("/w/.vscode is a symbolic link"), "{refusal}");
    }

    #[test]
    fn git_passes_the_placeholders_by() {
        let (_dir, top) = place();
        create_dir_all(top.join("w/.git/info")).unwrap();
        write(top.join("w/.git/info/exclude"), "*.o").unwrap();
        let found = found(&top, &[".envrc", ".vscode/", ".git/commondir"]).unwrap();
        let overlay = excluded(&top.join("w"), &found.missing).unwrap();
        assert_eq!(String::from_utf8(overlay.content).unwrap(), "*.o\n/.envrc\n/.git/commondir\n");
    }
}
