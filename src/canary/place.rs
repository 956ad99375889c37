//! Where a file that gets a token lies: a name in a directory that is known by its identity, not by its path.
//!
//! The owner of a directory on the way may rename it while tokens are planted. Each act therefore begins at a directory
//! that is held open, goes by way of no symbolic link, and ends in the very directory in which the file was found.

use super::beneath::{self, Identity};
use super::error::CanaryError;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A directory by its identity.
#[derive(Debug)]
pub(super) struct Directory {
    /// An open directory at or above it: one descriptor for all that is beneath.
    root: Rc<OwnedFd>,
    /// The way there.
    relative: PathBuf,
    identity: Identity,
    /// Its path, for what is said.
    path: PathBuf,
}

impl Directory {
    /// The one of an absolute path.
    ///
    /// # Errors
    /// A path by way of a symbolic link, and one that leads to no directory.
    pub(super) fn given(path: &Path) -> Result<Rc<Directory>, CanaryError> {
        let opened = beneath::open_directory(path).and_then(|root| Ok((beneath::identity(&fstat(&root)?), root)));
        let (identity, root) = opened.map_err(|cause| linked(path, cause))?;
        let (root, path) = (Rc::new(root), path.to_owned());
        Ok(Rc::new(Directory { root, relative: PathBuf::new(), identity, path }))
    }

    /// One that is in it.
    pub(super) fn within(&self, name: &OsStr) -> Result<Rc<Directory>, CanaryError> {
        let (relative, path) = (self.relative.join(name), self.path.join(name));
        let opened = beneath::open(&self.root, &relative, OFlags::PATH | OFlags::DIRECTORY);
        let identity = opened.and_then(|opened| Ok(beneath::identity(&fstat(&opened)?)));
        let identity = identity.map_err(|cause| linked(&path, cause))?;
        Ok(Rc::new(Directory { root: Rc::clone(&self.root), relative, identity, path }))
    }

    /// Opens it, to name what is in it.
    ///
    /// # Errors
    /// Another one, or none, where it was.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        self.opened(OFlags::PATH)
    }

    fn opened(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let opened = beneath::open(&self.root, &self.relative, flags | OFlags::DIRECTORY)?;
        match beneath::identity(&fstat(&opened)?) == self.identity {
            true => Ok(opened),
            false => Err(io::Error::other("its directory was replaced meanwhile")),
        }
    }

    /// What is in it: names and kinds.
    pub(super) fn entries(&self) -> Result<Vec<(OsString, FileType)>, CanaryError> {
        let listed = || -> io::Result<Vec<(OsString, FileType)>> {
            let mut directory = Dir::new(self.opened(OFlags::RDONLY)?)?;
            let mut entries = Vec::new();
            while let Some(entry) = directory.read() {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let kind = match entry.file_type() {
                    FileType::Unknown => {
                        let stat = statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
                        FileType::from_raw_mode(stat.st_mode)
                    }
                    kind => kind,
                };
                entries.push((name.to_owned(), kind));
            }
            Ok(entries)
        };
        listed().map_err(CanaryError::file("listed", &self.path))
    }

    /// A name in it.
    pub(super) fn place(self: &Rc<Directory>, name: &OsStr) -> Place {
        Place { directory: Rc::clone(self), name: name.to_owned() }
    }
}

/// A name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) directory: Rc<Directory>,
    pub(super) name: OsString,
}

impl Place {
    /// The one of a path.
    ///
    /// # Errors
    /// As [`Directory::given`]; a path that ends in no name.
    pub(super) fn given(path: &Path) -> Result<Place, CanaryError> {
        let absolute = std::path::absolute(path).map_err(CanaryError::file("found", path))?;
        match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => Ok(Directory::given(parent)?.place(name)),
            _ => Err(CanaryError::file("found", path)(io::ErrorKind::IsADirectory.into())),
        }
    }

    /// Its path, for what is said.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    /// Another name in the same directory.
    pub(super) fn beside(&self, name: &OsStr) -> Place {
        self.directory.place(name)
    }

    /// What is there, links not followed; none where nothing is.
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(self.directory.open()?, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Opens what is there; a symbolic link is an error.
    pub(super) fn open(&self, flags: OFlags, mode: Mode) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(self.directory.open()?, &self.name, flags, mode)?.into())
    }
}

/// Why a directory was not opened.
fn linked(path: &Path, cause: io::Error) -> CanaryError {
    match cause.raw_os_error() {
        Some(nix::libc::ELOOP) => CanaryError::Unfit {
            path: path.to_owned(),
            is: "is reached by a symbolic link".to_owned(),
            accepted: "a path without any, as realpath(1) gives it",
        },
        _ => CanaryError::file("found", path)(cause),
    }
}
