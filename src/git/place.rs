//! A directory whose files are read. No symbolic link is followed, on the way to it or in it: who may write there could have
//! a reader of more privilege read, or write, what is not his.

use super::{GitError, form, io};
use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most names in a directory.
const NAMES: usize = 4_000_000;
/// Most bytes that there is room for before a file is read: its length is a claim.
const ROOM: u64 = 64 << 20;

/// A directory.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where it is, free of symbolic links.
    pub path: PathBuf,
}

impl Place {
    /// A directory, which need not be there.
    pub fn new(path: PathBuf) -> Place {
        Place { path }
    }

    /// A directory beneath.
    pub fn at(&self, below: impl AsRef<Path>) -> Place {
        Place { path: self.path.join(below) }
    }

    fn open_as(path: &Path, flags: OFlag) -> std::io::Result<OwnedFd> {
        let flags = flags | OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        Ok(openat2(AT_FDCWD, path, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS))?)
    }

    /// Opens a regular file.
    pub fn open(&self, below: impl AsRef<Path>) -> Result<File, GitError> {
        let path = self.path.join(below);
        let opened = Self::open_as(&path, OFlag::empty()).map(File::from);
        let regular = opened.and_then(|file| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(ErrorKind::InvalidInput.into()),
        });
        regular.map_err(failed(&path))
    }

    /// A file's content; `None` where there is no such file.
    pub fn read(&self, below: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>, GitError> {
        let path = self.path.join(below);
        let file = match self.open(&path) {
            Err(GitError::Io { cause, .. }) if is_missing(&cause) => return Ok(None),
            opened => opened?,
        };
        let length = file.metadata().map_err(io(&path))?.len();
        let mut content = Vec::with_capacity(length.min(limit).min(ROOM) as usize + 1);
        file.take(limit + 1).read_to_end(&mut content).map_err(io(&path))?;
        match content.len() as u64 > limit {
            true => Err(form(&path, format!("it is longer than {limit} bytes"))),
            false => Ok(Some(content)),
        }
    }

    /// The names in a directory, sorted; none where there is no such directory.
    pub fn names(&self, below: impl AsRef<Path>) -> Result<Vec<OsString>, GitError> {
        let path = self.path.join(below);
        let directory = match Self::open_as(&path, OFlag::O_DIRECTORY) {
            Err(cause) if is_missing(&cause) => return Ok(Vec::new()),
            opened => opened.map_err(failed(&path))?,
        };
        let mut directory = Dir::from_fd(directory).map_err(|errno| io(&path)(errno.into()))?;
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry.map_err(|errno| io(&path)(errno.into()))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
            if names.len() > NAMES {
                return Err(form(&path, format!("it has more than {NAMES} names")));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether there is a directory.
    pub fn has_directory(&self, below: impl AsRef<Path>) -> bool {
        Self::open_as(&self.path.join(below), OFlag::O_DIRECTORY).is_ok()
    }
}

/// Why a path cannot be opened; a link is named as what it is.
fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> GitError {
    let path = path.to_owned();
    move |cause| match cause.raw_os_error() {
        Some(libc::ELOOP) => form(
            &path,
            "it is a symbolic link, or lies behind one, and none is followed; accepted: files and directories",
        ),
        _ => GitError::Io { path, cause },
    }
}

/// Whether there is no such file: also where what should hold it is none that could.
fn is_missing(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
