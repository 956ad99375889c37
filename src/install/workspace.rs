//! Making a workspace that root owns in the image writable to the command: by an idmapped mount where the file system can,
//! by a change of ownership that is put back at the seal where it can't (overlayfs answers EINVAL).

use super::tree;
use crate::sys::{self, Fork, MountAttr};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{FileStat, Mode, fstatat};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, fchownat, getpid, getppid, pipe, read};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a writable path becomes writable to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// It is already.
    Kept,
    /// The mount exchanges root's and the command's ids; on disk nothing changes, and new files are root's.
    Idmapped,
    /// The tree's owner is changed for the run and put back at the seal.
    Changed,
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ownership::Kept => "kept",
            Ownership::Idmapped => "idmapped",
            Ownership::Changed => "changed",
        })
    }
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} on {path}: {errno}", path = shown(path))]
pub struct WorkspaceError {
    call: &'static str,
    path: PathBuf,
    errno: Errno,
}

/// A path as a message shows it: the command may have made one of any length.
fn shown(path: &Path) -> String {
    const LIMIT: usize = 200;
    let text = path.to_string_lossy();
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

pub(super) fn failed(call: &'static str, path: &Path) -> impl FnOnce(Errno) -> WorkspaceError {
    let path = path.to_owned();
    move |errno| WorkspaceError { call, path, errno }
}

/// A user namespace whose mapping exchanges 0 with the command's ids and leaves every other id as it is.
#[derive(Debug)]
pub struct IdMapping(OwnedFd);

impl IdMapping {
    /// Makes the namespace in a child that lives only until it is opened.
    pub fn new(uid: Uid, gid: Gid) -> Result<IdMapping, WorkspaceError> {
        let what = Path::new("user namespace of the workspace's id mapping");
        let (ready_read, ready_write) = pipe().map_err(failed("pipe2", what))?;
        let parent = getpid();
        let child = match sys::fork_single_threaded().map_err(failed("fork", what))? {
            Fork::Child => {
                // After the change of credentials, which clears it (prctl(2)): it must not outlive whoever would end it.
                let made = unshare(CloneFlags::CLONE_NEWUSER)
                    .and_then(|()| set_pdeathsig(Signal::SIGKILL))
                    .and_then(|()| nix::unistd::write(&ready_write, b"1"));
                if made.is_err() || getppid() != parent {
                    sys::exit_now(1);
                }
                loop {
                    nix::unistd::pause();
                }
            }
            Fork::Parent(child) => child,
        };
        drop(ready_write);
        let mapped = (|| {
            if read(&ready_read, &mut [0u8; 1]).map_err(failed("read", what))? == 0 {
                return Err(failed("unshare", what)(Errno::EPERM));
            }
            let write = |file: &str, id: u32| {
                let path = PathBuf::from(format!("/proc/{child}/{file}"));
                std::fs::write(&path, exchange(id))
                    .map_err(|e| failed("write", &path)(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))
            };
            write("uid_map", uid.as_raw())?;
            write("gid_map", gid.as_raw())?;
            let path = PathBuf::from(format!("/proc/{child}/ns/user"));
            open(&path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed("open", &path))
        })();
        kill(child, Signal::SIGKILL).map_err(failed("kill", what))?;
        waitpid(child, None).map_err(failed("waitpid", what))?;
        mapped.map(IdMapping)
    }

    /// Tries, on a detached copy, whether the file system at `path` takes the mapping; the errno says why not.
    pub fn fits(&self, path: &Path) -> Result<(), Errno> {
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let tree = sys::clone_tree(AT_FDCWD, &c_path, false)?;
        let attr = MountAttr { set: sys::ATTR_IDMAP, userns_fd: self.0.as_raw_fd() as u64, ..MountAttr::default() };
        sys::mount_setattr(tree.as_fd(), false, &attr)
    }
}

impl AsFd for IdMapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The uid_map or gid_map text (user_namespaces(7)) that exchanges 0 and `id`.
fn exchange(id: u32) -> String {
    let mut map = format!("0 {id} 1\n{id} 0 1\n");
    if id > 1 {
        map += &format!("1 1 {}\n", id - 1);
    }
    if id < u32::MAX - 1 {
        map += &format!("{next} {next} {}\n", u32::MAX - 1 - id, next = id + 1);
    }
    map
}

/// The owners that a tree had before [`Owners::give`] changed them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The tree.
    pub top: PathBuf,
    /// The top's own owner: what is made during the run belongs to it afterwards.
    pub of_top: (u32, u32),
    /// Paths below the top whose owner differs from the top's.
    pub exceptions: BTreeMap<OsString, (u32, u32)>,
    /// Files that have names outside of the tree as well, by device and inode number: they are not the tree's to give away.
    pub shared: BTreeSet<(u64, u64)>,
}

impl Owners {
    /// Reads the owners of `top` and all beneath it on the same mount. Nothing is changed.
    pub fn read(top: &Path) -> Result<Owners, WorkspaceError> {
        let stat = fstatat(AT_FDCWD, top, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(failed("fstatat", top))?;
        let mut owners = Owners { top: top.into(), of_top: (stat.st_uid, stat.st_gid), ..Owners::default() };
        let mut linked = BTreeMap::new();
        tree::walk(top, &mut |path, _, _, stat| {
            let owner = (stat.st_uid, stat.st_gid);
            if owner != owners.of_top {
                owners.exceptions.insert(path.as_os_str().to_owned(), owner);
            }
            if stat.st_nlink > 1 && stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
                *linked.entry((stat.st_dev, stat.st_ino)).or_insert(stat.st_nlink) -= 1;
            }
            Ok(())
        })?;
        owners.shared = linked.into_iter().filter(|(_, elsewhere)| *elsewhere > 0).map(|(inode, _)| inode).collect();
        Ok(owners)
    }

    /// Gives the tree to the command, never across symbolic links, hard links to the outside, or mounts.
    pub fn give(&self, uid: Uid, gid: Gid) -> Result<(), WorkspaceError> {
        tree::walk(&self.top, &mut |path, dir, name, stat| {
            if self.shared.contains(&(stat.st_dev, stat.st_ino)) {
                return Ok(());
            }
            change(dir, name, path, stat, uid, gid)
        })
    }

    /// Puts the owners back. What the command, whose uid is `of`, made is given to the top's owner; what others made or
    /// took meanwhile is theirs.
    pub fn restore(&self, of: Uid) -> Result<(), WorkspaceError> {
        let restored = tree::walk(&self.top, &mut |path, dir, name, stat| {
            if stat.st_uid != of.as_raw() {
                return Ok(());
            }
            let (uid, gid) = self.exceptions.get(path.as_os_str()).copied().unwrap_or(self.of_top);
            change(dir, name, path, stat, Uid::from_raw(uid), Gid::from_raw(gid))
        });
        restored
            .or_else(|error| if error.errno == Errno::ENOENT && error.path == self.top { Ok(()) } else { Err(error) })
    }
}

/// Changes one entry's owner. The kernel clears set-id bits of files when their owner changes, so what the command made
/// set-id never becomes set-id root.
fn change(
    dir: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
    stat: &FileStat,
    uid: Uid,
    gid: Gid,
) -> Result<(), WorkspaceError> {
    if stat.st_uid == uid.as_raw() && stat.st_gid == gid.as_raw() {
        return Ok(());
    }
    fchownat(dir, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(failed("fchownat", path))
}

/// Clears set-id bits that were put on root's files beneath an idmapped workspace after `since` (seconds since the epoch).
///
/// Through the mapping the command owns root's files there, so it could leave a set-uid program of root's behind. In the
/// sandbox it is void (nosuid, no_new_privs); outside it would not be.
pub fn clear_new_set_ids(top: &Path, since: i64) -> Result<u64, WorkspaceError> {
    let mut cleared = 0;
    let walked = tree::walk(top, &mut |path, dir, name, stat| {
        let set_id = stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if regular && set_id && stat.st_ctime >= since && (stat.st_uid == 0 || stat.st_gid == 0) {
            // Changing the owner to what it is clears the bits, and never follows a link put there meanwhile.
            let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            fchownat(dir, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(failed("fchownat", path))?;
            cleared += 1;
        }
        Ok(())
    });
    match walked {
        Err(error) if error.errno == Errno::ENOENT && error.path == top => Ok(0),
        walked => walked.map(|()| cleared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn the_exchange_maps_every_id_once() {
        for id in [1, 2, 10001, u32::MAX - 1] {
            let mut total = 0u64;
            for line in exchange(id).lines() {
                let fields: Vec<u64> = line.split(' ').map(|f| f.parse().unwrap()).collect();
                total += fields[2];
            }
            assert_eq!(total, u64::from(u32::MAX), "{id}");
        }
    }

    #[test]
    fn owners_are_taken_and_put_back_without_following_links() {
        let outside = tempfile::tempdir().unwrap();
        let top = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        std::fs::create_dir(top.path().join("sub")).unwrap();
        std::fs::write(top.path().join("sub/file"), "").unwrap();
        symlink(outside.path(), top.path().join("sub/link")).unwrap();
        std::os::unix::fs::chown(top.path().join("sub/file"), Some(7), Some(8)).unwrap();
        let inside = top.path().join("inside");
        std::fs::write(&inside, "").unwrap();
        std::fs::hard_link(&inside, top.path().join("sub/inside")).unwrap();
        let other_top = tempfile::tempdir_in(top.path().parent().unwrap()).unwrap();
        std::fs::write(other_top.path().join("elsewhere"), "").unwrap();
        std::fs::hard_link(other_top.path().join("elsewhere"), top.path().join("sub/elsewhere")).unwrap();
        let owners = Owners::read(top.path()).unwrap();
        owners.give(Uid::from_raw(10001), Gid::from_raw(10001)).unwrap();
        let owner = |p: PathBuf| std::fs::symlink_metadata(p).map(|m| (m.uid(), m.gid())).unwrap();
        assert_eq!(owner(top.path().join("sub/file")), (10001, 10001));
        assert_eq!(owner(top.path().join("sub/link")), (10001, 10001));
        assert_eq!(owner(outside.path().join("kept")), (0, 0));
        assert_eq!(owner(other_top.path().join("elsewhere")), (0, 0), "it has a name outside of the tree");
        assert_eq!(owner(inside), (10001, 10001));
        let others = top.path().join("of another");
        std::fs::write(&others, "").unwrap();
        std::os::unix::fs::chown(&others, Some(33), Some(33)).unwrap();
        let suid = top.path().join("sub/new");
        std::fs::write(&suid, "").unwrap();
        std::os::unix::fs::chown(&suid, Some(10001), Some(10001)).unwrap();
        std::fs::set_permissions(&suid, std::fs::Permissions::from_mode(0o4755)).unwrap();
        owners.restore(Uid::from_raw(10001)).unwrap();
        assert_eq!(owner(others), (33, 33));
        assert_eq!(owner(top.path().join("sub/file")), (7, 8));
        assert_eq!(owner(top.path().join("sub")), (0, 0));
        assert_eq!(owner(suid.clone()), (0, 0));
        assert_eq!(std::fs::metadata(&suid).unwrap().permissions().mode() & 0o7000, 0);
    }

    #[test]
    fn new_set_id_files_of_root_lose_the_bits() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("tool");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(clear_new_set_ids(top.path(), i64::MAX).unwrap(), 0);
        assert_eq!(clear_new_set_ids(top.path(), 0).unwrap(), 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    }
}
