//! Names opened beneath a directory that is held open, by way of no symbolic link: who may rename on the way leads nowhere
//! else (openat2(2)).

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, openat2};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A device's and a file's number.
pub(super) type Identity = (u64, u64);

/// Opens what a path leads to from an open directory, and that directory itself where the path is empty.
///
/// # Errors
/// `ELOOP` for a symbolic link on the way or at the end, `EXDEV` for a way out of the directory, and open(2)'s.
pub(super) fn open(root: impl AsFd, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens a directory, to name what is in it, by a path that passes no symbolic link.
///
/// # Errors
/// `ELOOP` for a symbolic link on the way or at the end, and open(2)'s.
pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// What tells a file from any other that is there at the same time.
pub(super) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}
