//! Walking a tree that the command may have made: of any depth, and perhaps changed meanwhile.
//!
//! One directory is open at a time, so that neither the descriptors nor the stack run out. The way back up is `..`, taken
//! only if it leads to the directory that was left.

use super::workspace::{WorkspaceError, failed};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Is given the full path for messages, and the directory and name to act on.
pub type Visit<'a> = dyn FnMut(&Path, BorrowedFd<'_>, &Path, &FileStat) -> Result<(), WorkspaceError> + 'a;

const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK);

/// A directory on the way down.
struct Level {
    /// Its device and inode number.
    identity: (u64, u64),
    /// Its subdirectories that are still to be walked.
    ahead: Vec<OsString>,
}

/// Visits `top` and everything beneath it on the same mount, by descriptors. No symbolic link is followed, on the way to
/// `top` neither: between the plan and now the owner of a directory above could have put one there.
///
/// # Errors
/// Those of `visit`; ELOOP for a link on the way to `top`; ESTALE when a directory was moved while it was walked.
pub fn walk(top: &Path, visit: &mut Visit<'_>) -> Result<(), WorkspaceError> {
    let how = OpenHow::new().flags(DIRECTORY).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let mut at = openat2(AT_FDCWD, top, how).map_err(|errno| failed("open", top)(errno))?;
    let stat = fstat(&at).map_err(|errno| failed("fstat", top)(errno))?;
    visit(top, at.as_fd(), Path::new("."), &stat)?;
    let mount = mount_of(at.as_fd(), OsStr::new("")).map_err(|errno| failed("statx", top)(errno))?;
    let mut path = top.to_owned();
    let mut levels = vec![look(&at, &mut path, &stat, mount, visit)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.ahead.pop() else {
            levels.pop();
            let Some(above) = levels.last() else { break };
            at = openat(&at, "..", DIRECTORY, Mode::empty()).map_err(|errno| failed("openat", &path)(errno))?;
            if identity(&fstat(&at).map_err(|errno| failed("fstat", &path)(errno))?) != above.identity {
                return Err(failed("openat", &path)(Errno::ESTALE));
            }
            path.pop();
            continue;
        };
        path.push(&name);
        match openat(&at, name.as_os_str(), DIRECTORY, Mode::empty()) {
            Ok(below) => {
                let stat = fstat(&below).map_err(|errno| failed("fstat", &path)(errno))?;
                levels.push(look(&below, &mut path, &stat, mount, visit)?);
                at = below;
            }
            // Gone or exchanged while we looked: nothing of it is ours to change.
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => {
                path.pop();
            }
            Err(errno) => return Err(failed("openat", &path)(errno)),
        }
    }
    Ok(())
}

fn identity(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Visits the entries of one directory.
fn look(
    fd: &OwnedFd,
    path: &mut PathBuf,
    stat: &FileStat,
    mount: u64,
    visit: &mut Visit<'_>,
) -> Result<Level, WorkspaceError> {
    let mut level = Level { identity: identity(stat), ahead: Vec::new() };
    let mut dir = Dir::openat(fd, ".", DIRECTORY, Mode::empty()).map_err(|errno| failed("openat", path)(errno))?;
    for entry in dir.iter() {
        let entry = entry.map_err(|errno| failed("readdir", path)(errno))?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if name == "." || name == ".." {
            continue;
        }
        path.push(&name);
        let looked = entry_of(fd, path, &name, mount, visit);
        path.pop();
        if looked? {
            level.ahead.push(name);
        }
    }
    Ok(level)
}

/// Visits one entry; whether it is a directory to be walked.
fn entry_of(
    fd: &OwnedFd,
    path: &Path,
    name: &OsStr,
    mount: u64,
    visit: &mut Visit<'_>,
) -> Result<bool, WorkspaceError> {
    let stat = match fstatat(fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(failed("fstatat", path)(errno)),
    };
    match mount_of(fd.as_fd(), name) {
        Ok(holding) if holding == mount => {}
        Ok(_) | Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(failed("statx", path)(errno)),
    }
    visit(path, fd.as_fd(), Path::new(name), &stat)?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

/// The id of the mount that holds a name. A device number would not do: overlayfs shows files with other ones than their
/// directories, and a bind mount with the same.
fn mount_of(dir: BorrowedFd<'_>, name: &OsStr) -> Result<u64, Errno> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let answer = statx(dir, name, flags, StatxFlags::MNT_ID).map_err(|e| Errno::from_raw(e.raw_os_error()))?;
    match StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::MNT_ID) {
        true => Ok(answer.stx_mnt_id),
        false => Err(Errno::ENOSYS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    fn seen(top: &Path) -> Result<BTreeSet<PathBuf>, WorkspaceError> {
        let mut seen = BTreeSet::new();
        walk(top, &mut |path, _, _, _| {
            seen.insert(path.strip_prefix(top).unwrap().to_owned());
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn everything_is_visited_and_links_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for directory in ["a/b/c", "a/d", "e"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::write(top.join("a/d/file"), "").unwrap();
        symlink("/etc", top.join("e/link")).unwrap();
        let expected = ["", "a", "a/b", "a/b/c", "a/d", "a/d/file", "e", "e/link"];
        assert_eq!(seen(&top).unwrap(), expected.iter().map(PathBuf::from).collect());
        assert!(seen(&top.join("e/link")).is_err());
        assert!(seen(&top.join("e/link/ssl")).is_err(), "a link on the way is none to follow either");
    }

    #[test]
    fn no_depth_is_too_deep() {
        const DEPTH: usize = 5_000;
        let top = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut at = openat(AT_FDCWD, top.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
        let top = top.path().canonicalize().unwrap();
        let mut count = 0;
        let walked = walk(&top, &mut |_, _, _, _| {
            count += 1;
            Ok(())
        });
        assert!(walked.is_ok() && count == DEPTH + 1, "{count} {walked:?}");
        assert_eq!(std::process::Command::new("rm").arg("-rf").arg(&top).status().unwrap().code(), Some(0));
    }
}
