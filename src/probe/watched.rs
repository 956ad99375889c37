//! What probes try on what is watched.

use super::child::{in_grandchild, name_of};
use super::filesystem::by_alias;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, open, openat2};
use nix::sys::stat::{Mode, SFlag, lstat};
use nix::unistd::{AccessFlags, faccessat};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// It was opened.
pub(super) const OPENED: &str = "ok";
/// Its own mode keeps the command from opening it, or it is neither a file nor a directory.
pub(super) const CLOSED: &str = "not to be opened";

/// The calls by which [`read`] opens a path by its name, and by way of /proc/self/root: what is told of them is told apart.
pub(super) const BY_NAME: [&str; 2] = ["open", "openat"];
pub(super) const BY_ALIAS: [&str; 1] = ["openat2"];

/// Opens each path for reading by its name, and from a grandchild by way of /proc/self/root; what each gave.
pub(super) fn read(watched: &[PathBuf]) -> Vec<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let each = |by: &dyn Fn(&Path) -> Result<OwnedFd, Errno>| {
        watched.iter().map(|path| opened(path, by)).collect::<Vec<String>>()
    };
    let mut seen = each(&|path| open(path, flags, Mode::empty()));
    let how = OpenHow::new().flags(flags);
    seen.extend(in_grandchild(|| each(&|path| openat2(AT_FDCWD, &by_alias(path), how))));
    seen
}

fn opened(path: &Path, by: impl Fn(&Path) -> Result<OwnedFd, Errno>) -> String {
    // To open anything else may do more than that.
    const READ: [SFlag; 2] = [SFlag::S_IFREG, SFlag::S_IFDIR];
    let is_read = |mode: u32| READ.iter().any(|kind| mode & SFlag::S_IFMT.bits() == kind.bits());
    if lstat(path).is_ok_and(|found| !is_read(found.st_mode)) {
        return CLOSED.into();
    }
    match by(path) {
        Ok(_) => OPENED.into(),
        // Neither Landlock nor a mount is looked at here.
        Err(Errno::EACCES) if faccessat(AT_FDCWD, path, AccessFlags::R_OK, AtFlags::AT_EACCESS).is_err() => {
            CLOSED.into()
        }
        Err(errno) => format!("{}: {}", path.display(), name_of(errno)),
    }
}
