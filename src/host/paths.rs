//! What is at the paths that a policy speaks of.

use crate::install::account::Identity;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, geteuid, getgroups};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is at a HOME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Its path with the symbolic links of its longest existing part resolved.
    pub real: PathBuf,
    /// The uid that owns it; `None` where there is nothing.
    pub owner: Option<u32>,
    /// A symbolic link on the way to it that does not belong to root.
    pub untrusted: Option<PathBuf>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFact {
    /// Nothing.
    Missing,
    /// Something that a symbolic link of a user other than root leads to, so that the user decides what it is.
    Untrusted {
        /// The link.
        link: PathBuf,
    },
    /// It cannot be looked at.
    Unreadable(String),
    /// A file or directory.
    Present {
        /// Its path without symbolic links.
        real: PathBuf,
        /// Whether it is a directory.
        directory: bool,
        /// Whether the command's ids may write it.
        writable: bool,
        /// Whether its file system is mounted read-only (statvfs(3), ST_RDONLY), so that its owner cannot be changed.
        read_only: bool,
        /// Why it cannot be mounted with exchanged ids, where that was tried; empty where it can.
        idmap: Option<String>,
    },
}

/// The path with the symbolic links of its longest existing part resolved.
pub fn real_path(path: &Path) -> PathBuf {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at = path;
    loop {
        match (at.canonicalize(), at.parent(), at.file_name()) {
            (Ok(real), _, _) => return missing.iter().rev().fold(real, |base, name| base.join(name)),
            (Err(_), Some(parent), Some(name)) => {
                missing.push(name);
                at = parent;
            }
            (Err(_), _, _) => return path.to_owned(),
        }
    }
}

/// Looks at a HOME.
pub(super) fn look_at_home(path: &Path) -> Home {
    let real = real_path(path);
    let owner = std::fs::symlink_metadata(&real).ok().map(|meta| meta.uid());
    // What cannot be looked at to its end has no link that anyone could follow further.
    Home { real, owner, untrusted: first_untrusted_link(path).unwrap_or_default() }
}

/// Looks at a path of the policy with the command's eyes.
pub(super) fn look_at(path: &Path, identity: &Identity) -> PathFact {
    match first_untrusted_link(path) {
        Ok(None) => {}
        Ok(Some(link)) => return PathFact::Untrusted { link },
        Err(e) if is_missing(&e) => return PathFact::Missing,
        Err(e) => return PathFact::Unreadable(e.to_string()),
    }
    let seen = path.canonicalize().and_then(|real| {
        let (meta, mount) = (std::fs::symlink_metadata(&real)?, statvfs(&real)?);
        Ok((real, meta, mount.flags().contains(FsFlags::ST_RDONLY)))
    });
    match seen {
        Ok((real, meta, read_only)) => {
            let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
            let bit = if uid == identity.uid.as_raw() {
                0o200
            } else if gid == identity.gid.as_raw() {
                0o020
            } else {
                0o002
            };
            PathFact::Present { real, directory: meta.is_dir(), writable: mode & bit != 0, read_only, idmap: None }
        }
        Err(e) if is_missing(&e) => PathFact::Missing,
        Err(e) => PathFact::Unreadable(e.to_string()),
    }
}

/// This program's own file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProgram {
    /// Its path, free of symbolic links.
    pub path: PathBuf,
    /// What of the path its mode closes to the command's ids: a directory that they may not search, or the file itself.
    pub closed: Option<PathBuf>,
}

/// Looks at this program's file, if it has one here, with the command's eyes.
pub(super) fn look_at_program(identity: Option<&Identity>) -> Option<OwnProgram> {
    let path = std::fs::read_link("/proc/self/exe").ok().filter(|path| path.is_file())?;
    let closed = identity.and_then(|identity| first_closed(&path, identity));
    Some(OwnProgram { path, closed })
}

/// The first component of a path, from the root on, that lacks the bit for search or execution (path_resolution(7)). A command
/// that keeps the caller's uid keeps the caller's groups too.
fn first_closed(path: &Path, identity: &Identity) -> Option<PathBuf> {
    let mut groups = vec![identity.gid];
    if identity.uid == geteuid() {
        groups.extend(getgroups().unwrap_or_default());
    }
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    let closed = |component: &&&Path| {
        let Ok(meta) = std::fs::symlink_metadata(component) else { return true };
        let bit = if meta.uid() == identity.uid.as_raw() {
            0o100
        } else if groups.contains(&Gid::from_raw(meta.gid())) {
            0o010
        } else {
            0o001
        };
        meta.mode() & bit == 0
    };
    way.iter().find(closed).map(|component| component.to_path_buf())
}

/// Nothing is there, nor can be made there: accounts have /dev/null as their HOME.
fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// The first symbolic link on the way to `path` that does not belong to root: its owner could lead us anywhere.
fn first_untrusted_link(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut so_far = PathBuf::new();
    for component in path.components() {
        so_far.push(component);
        let meta = std::fs::symlink_metadata(&so_far)?;
        if meta.is_symlink() && meta.uid() != 0 {
            return Ok(Some(so_far));
        }
    }
    Ok(None)
}
