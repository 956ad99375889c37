//! The removal of what a command could fill: of any depth, with one directory open at a time, so that neither the stack nor the
//! descriptors run out.

use crate::git::{GitError, io};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A directory on the way down.
struct Level {
    name: OsString,
    /// Its device and inode number.
    identity: (u64, u64),
    /// Its subdirectories that are still there.
    ahead: Vec<OsString>,
}

/// Removes a directory with all that is in it; no link is followed.
pub(super) fn remove(top: &Path) -> Result<(), GitError> {
    let failed = |errno: Errno| io(top)(errno.into());
    let (Some(above), Some(name)) = (top.parent(), top.file_name()) else { return Err(failed(Errno::EINVAL)) };
    let how = OpenHow::new().flags(DIRECTORY).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let mut at = openat2(AT_FDCWD, above, how).map_err(failed)?;
    let mut levels =
        vec![Level { name: OsString::new(), identity: identity(&at).map_err(failed)?, ahead: vec![name.into()] }];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.ahead.pop() {
            at = enter(&at, &name).map_err(failed)?;
            let identity = identity(&at).map_err(failed)?;
            levels.push(Level { name, identity, ahead: empty(&at).map_err(failed)? });
            continue;
        }
        let Some(Level { name, .. }) = levels.pop() else { break };
        let Some(above) = levels.last() else { break };
        at = openat(&at, "..", DIRECTORY, Mode::empty()).map_err(failed)?;
        if identity(&at).map_err(failed)? != above.identity {
            return Err(failed(Errno::ESTALE));
        }
        unlinkat(&at, name.as_os_str(), UnlinkatFlags::RemoveDir).map_err(failed)?;
    }
    Ok(())
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Opens a directory, also one that its owner has closed to himself.
fn enter(at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let opened = match openat(at, name, DIRECTORY, Mode::empty()) {
        Err(Errno::EACCES) => {
            fchmodat(at, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            openat(at, name, DIRECTORY, Mode::empty())
        }
        opened => opened,
    }?;
    fchmod(&opened, Mode::S_IRWXU)?;
    Ok(opened)
}

/// Removes what is in a directory but the directories, whose names it returns.
fn empty(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::openat(directory, ".", DIRECTORY, Mode::empty())?.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    let mut ahead = Vec::new();
    for name in names {
        match unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) => {}
            Err(Errno::EISDIR) => ahead.push(name),
            Err(errno) => return Err(errno),
        }
    }
    Ok(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_is_deep_or_closed_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir_all(top.join("closed")).unwrap();
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        symlink(&kept, top.join("a/link")).unwrap();
        fs::write(top.join("a/file"), "x").unwrap();
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        // Deeper than a path is long, and than there are descriptors.
        let mut at: OwnedFd = fs::File::open(&top).unwrap().into();
        for _ in 0..20_000 {
            nix::sys::stat::mkdirat(&at, "deeper", Mode::S_IRWXU).unwrap();
            at = openat(&at, "deeper", DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        remove(&top).unwrap();
        assert!(!top.exists() && kept.join("file").exists());
        assert!(remove(&top).is_err());
    }
}
