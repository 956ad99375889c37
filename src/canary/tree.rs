//! Names beneath the directories that were asked for. Each is opened from there by way of no symbolic link, so that what is
//! renamed while a search runs leads it nowhere else.

use super::beneath;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, OFlags, fstat, readlinkat, statat};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that was asked for, or in which a file is that was.
#[derive(Debug)]
struct Root {
    held: OwnedFd,
    /// Its path as it is told.
    path: PathBuf,
    /// Its own name, by which what is beneath is classed: what stands above says nothing of the run.
    name: PathBuf,
}

/// A directory at or beneath a root.
#[derive(Debug)]
pub(super) struct Branch {
    root: Arc<Root>,
    relative: PathBuf,
}

/// A name in a directory; the directory itself where it is empty.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    parent: Arc<Branch>,
    name: OsString,
}

/// What was asked for.
pub(super) enum Asked {
    Directory(Leaf),
    File(Leaf),
}

impl Asked {
    /// What a path leads to: a name that was given is followed.
    pub(super) fn of(path: &Path) -> io::Result<Asked> {
        let metadata = fs::metadata(path)?;
        let real = fs::canonicalize(path)?;
        let own = |real: &Path| real.file_name().map(PathBuf::from).unwrap_or_default();
        let leaf = |at: &Path, path: PathBuf, own: PathBuf, name: &OsStr| -> io::Result<Leaf> {
            let held = beneath::open_directory(at)?;
            let parent = Arc::new(Branch { root: Arc::new(Root { held, path, name: own }), relative: PathBuf::new() });
            Ok(Leaf { parent, name: name.to_owned() })
        };
        match (real.parent(), real.file_name()) {
            _ if metadata.is_dir() => Ok(Asked::Directory(leaf(&real, path.to_owned(), own(&real), OsStr::new(""))?)),
            (Some(parent), Some(name)) if metadata.is_file() => {
                Ok(Asked::File(leaf(parent, parent.to_owned(), own(parent), name)?))
            }
            _ => Err(io::Error::other("it is no regular file and no directory")),
        }
    }
}

impl Leaf {
    /// Its path, as it is told.
    pub(super) fn path(&self) -> PathBuf {
        joined(&self.parent.path(), &self.name)
    }

    /// Its path from its root's own name on.
    pub(super) fn place(&self) -> PathBuf {
        joined(&joined(&self.parent.root.name, self.parent.relative.as_os_str()), &self.name)
    }

    /// Its own name.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Opens it.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let relative = joined(&self.parent.relative, &self.name);
        beneath::open(&self.parent.root.held, &relative, flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Begins to list the directory that it is.
    pub(super) fn list(&self) -> io::Result<Listing> {
        let opened = self.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let stat = fstat(&opened)?;
        let (root, relative) = (Arc::clone(&self.parent.root), joined(&self.parent.relative, &self.name));
        let written = (stat.st_mtime, stat.st_mtime_nsec);
        Ok(Listing { branch: Arc::new(Branch { root, relative }), entries: Dir::new(opened)?, written })
    }
}

impl Branch {
    fn path(&self) -> PathBuf {
        joined(&self.root.path, self.relative.as_os_str())
    }
}

/// A directory that is being listed.
pub(super) struct Listing {
    branch: Arc<Branch>,
    entries: Dir,
    /// When it was last written when the listing began, in seconds and nanoseconds.
    written: (i64, u64),
}

/// What an entry of a directory is.
pub(super) enum Kind {
    Directory,
    File,
    /// A symbolic link and its target.
    Link(Vec<u8>),
    /// A device, a pipe or a socket.
    Other,
}

impl Listing {
    /// The directory's path, as it is told.
    pub(super) fn path(&self) -> PathBuf {
        self.branch.path()
    }

    /// The next entry; none at the end.
    ///
    /// # Errors
    /// readdir(3)'s; a directory that was written to meanwhile, of which some entry may never have been seen.
    pub(super) fn next(&mut self) -> io::Result<Option<(Leaf, DirEntry)>> {
        loop {
            let Some(entry) = self.entries.read() else {
                let stat = self.entries.stat()?;
                return match (stat.st_mtime, stat.st_mtime_nsec) == self.written {
                    true => Ok(None),
                    false => Err(io::Error::other("it was changed while it was listed")),
                };
            };
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                let (parent, name) = (Arc::clone(&self.branch), name.to_owned());
                return Ok(Some((Leaf { parent, name }, entry)));
            }
        }
    }

    /// What an entry is.
    pub(super) fn kind(&self, entry: &DirEntry) -> io::Result<Kind> {
        let directory = self.entries.fd()?;
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        Ok(match kind {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Link(readlinkat(directory, entry.file_name(), Vec::new())?.into_bytes()),
            _ => Kind::Other,
        })
    }
}

/// A path with another one after it, if that is not empty.
fn joined(path: &Path, more: &OsStr) -> PathBuf {
    if more.is_empty() { path.to_owned() } else { path.join(more) }
}
