//! Whether a control file (the ledger, a policy) could be written, replaced or created by the command (case F06).
//!
//! A path is safe when nobody but root and the caller owns, and the command cannot write, the file and every directory
//! and symbolic link on the way to it, link targets included. In a sticky directory that others may write (/tmp)
//! a name of ours can be neither renamed nor removed by them (inode(7), S_ISVTX), so such a directory is safe for a
//! file that exists, and for one that is made with O_EXCL before the command starts.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// As the kernel's own MAXSYMLINKS (path_resolution(7)).
const LINKS_LIMIT: usize = 40;

/// Why a path cannot hold a control file; each names the component.
#[derive(Debug, thiserror::Error)]
pub enum UnsafePath {
    /// Someone else owns it.
    #[error(
        "{component:?} belongs to uid {uid}: a control file and all above it must belong to root or to the caller"
    )]
    Owner {
        /// The file, directory or link.
        component: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Anybody may write it.
    #[error(
        "{component:?} is writable by everyone (mode {mode:04o}): a control file and all above it must not be"
    )]
    OthersWrite {
        /// The file or directory.
        component: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The command may write it as a member of its group, or by its access list.
    #[error(
        "{component:?} is writable by the command ({through}): a control file and all above it must not be"
    )]
    CommandWrites {
        /// The file or directory.
        component: PathBuf,
        /// `group N`, or the entry of the access list.
        through: String,
    },
    /// A component on the way is no directory.
    #[error("{component:?} is not a directory")]
    NotDirectory {
        /// The component.
        component: PathBuf,
    },
    /// More symbolic links than the kernel itself would follow.
    #[error("{path:?} leads through more than 40 symbolic links")]
    TooManyLinks {
        /// The path as asked for.
        path: PathBuf,
    },
    /// A component could not be looked at, so nothing is known of it.
    #[error("{component:?} cannot be checked: {call}: {cause}")]
    Call {
        /// The system call.
        call: &'static str,
        /// What it was called on.
        component: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
}

/// Refuses a path that the command, run as `command_uid` with `command_gid` as its only group, could write, replace or
/// create, now or after the start, naming the component that would let it.
///
/// Trusted owners are root and the caller. A command that keeps the caller's uid (root under posture `open`, an
/// ordinary user on the rungs `rootless` and `bare`) cannot be kept away by ownership: there the check is against
/// everyone else, and it is for the rung to mask the path. Missing components are no fault by themselves: what exists
/// above them decides. Directories that the caller may search but not read can be judged too.
pub fn control_path_is_safe(
    path: &Path,
    command_uid: u32,
    command_gid: u32,
) -> Result<(), UnsafePath> {
    walk(path, &Judge::new(Some((command_uid, command_gid)))).map(|_| ())
}

/// Where a checked path ends: the last directory that exists, and the names below it that do not.
pub(super) struct Walked {
    /// That directory, opened O_PATH.
    pub dir: OwnedFd,
    /// Its path without links.
    pub path: PathBuf,
    /// What is missing below it, outermost first; empty where everything exists.
    pub missing: Vec<OsString>,
}

/// Who is trusted, and who is to be kept out.
pub(super) struct Judge {
    caller: u32,
    command: Option<(u32, u32)>,
}

impl Judge {
    /// Without a command only owners and the write bit for others are judged.
    pub(super) fn new(command: Option<(u32, u32)>) -> Judge {
        Judge {
            caller: geteuid().as_raw(),
            command,
        }
    }

    fn owner(&self, stat: &FileStat, at: &Path) -> Result<(), UnsafePath> {
        match stat.st_uid == 0 || stat.st_uid == self.caller {
            true => Ok(()),
            false => Err(UnsafePath::Owner {
                component: at.to_owned(),
                uid: stat.st_uid,
            }),
        }
    }

    /// `reopen` gives a descriptor that extended attributes can be read through, which O_PATH's cannot.
    pub(super) fn directory(&self, dir: BorrowedFd<'_>, at: &Path) -> Result<(), UnsafePath> {
        let stat = fstat(dir).map_err(|cause| call("fstat", at, cause))?;
        self.owner(&stat, at)?;
        if stat.st_mode & Mode::S_ISVTX.bits() != 0 {
            return Ok(());
        }
        self.writers(&stat, at, || {
            openat(
                dir,
                ".",
                OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )
        })
    }

    fn file(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        stat: &FileStat,
        at: &Path,
    ) -> Result<(), UnsafePath> {
        self.owner(stat, at)?;
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        self.writers(stat, at, || openat(dir, name, flags, Mode::empty()))
    }

    fn writers(
        &self,
        stat: &FileStat,
        at: &Path,
        reopen: impl FnOnce() -> nix::Result<OwnedFd>,
    ) -> Result<(), UnsafePath> {
        let mode = stat.st_mode & 0o7777;
        if mode & Mode::S_IWOTH.bits() != 0 {
            return Err(UnsafePath::OthersWrite {
                component: at.to_owned(),
                mode,
            });
        }
        // The group's write bit is the mask of an access list too: without it no entry of one grants writing (acl(5)).
        let Some((uid, gid)) = self.command.filter(|_| mode & Mode::S_IWGRP.bits() != 0) else {
            return Ok(());
        };
        let list = access_list(&reopen().map_err(|cause| call("openat", at, cause))?)
            .map_err(|c| call("fgetxattr", at, c))?;
        let through = match list {
            None => (stat.st_gid == gid).then(|| format!("group {gid}")),
            Some(list) => list_grants(&list, uid, gid, stat.st_gid),
        };
        match through {
            None => Ok(()),
            Some(through) => Err(UnsafePath::CommandWrites {
                component: at.to_owned(),
                through,
            }),
        }
    }
}

fn call(call: &'static str, component: &Path, cause: Errno) -> UnsafePath {
    UnsafePath::Call {
        call,
        component: component.to_owned(),
        cause,
    }
}

fn access_list(file: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut list = vec![0; 65_536];
    match rustix::fs::fgetxattr(file, c"system.posix_acl_access", &mut list[..]) {
        Ok(length) => {
            list.truncate(length);
            Ok(Some(list))
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(other) => Err(Errno::from_raw(other.raw_os_error())),
    }
}

/// Reads the form that the kernel gives (include/uapi/linux/posix_acl_xattr.h): version 2 in four bytes, then entries
/// of tag, permissions (two bytes each) and id (four), little-endian. What is not understood is taken as granting.
fn list_grants(list: &[u8], uid: u32, gid: u32, owning_group: u32) -> Option<String> {
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const WRITE: u16 = 0x02;
    let (entries, []) = list.get(4..).unwrap_or(&[0]).as_chunks::<8>() else {
        return Some("an access list of unknown form".to_owned());
    };
    if list[..4] != 2u32.to_le_bytes() {
        return Some("an access list of unknown version".to_owned());
    }
    entries.iter().find_map(|[t0, t1, p0, p1, id @ ..]| {
        let (tag, permissions, id) = (
            u16::from_le_bytes([*t0, *t1]),
            u16::from_le_bytes([*p0, *p1]),
            u32::from_le_bytes(*id),
        );
        let named = match tag {
            USER if id == uid => format!("access list, user {uid}"),
            GROUP if id == gid => format!("access list, group {gid}"),
            GROUP_OBJ if owning_group == gid => format!("group {gid}"),
            _ => return None,
        };
        (permissions & WRITE != 0).then_some(named)
    })
}

/// Follows a path component by component, link by link, and judges each.
pub(super) fn walk(path: &Path, judge: &Judge) -> Result<Walked, UnsafePath> {
    let absolute = std::path::absolute(path).map_err(|e| {
        call(
            "getcwd",
            path,
            Errno::from_raw(e.raw_os_error().unwrap_or(0)),
        )
    })?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open("/", flags, Mode::empty())
        .map_err(|cause| call("open", Path::new("/"), cause))?;
    judge.directory(root.as_fd(), Path::new("/"))?;
    let mut above = vec![(root, PathBuf::from("/"))];
    let mut ahead = names(&absolute);
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if above.len() > 1 {
                above.pop();
            }
            continue;
        }
        let Some((dir, dir_path)) = above.last() else {
            break;
        };
        let at = dir_path.join(&name);
        let stat = match fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => {
                ahead.push_front(name);
                break;
            }
            Err(cause) => return Err(call("fstatat", &at, cause)),
        };
        match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFLNK => {
                judge.owner(&stat, &at)?;
                links += 1;
                if links > LINKS_LIMIT {
                    return Err(UnsafePath::TooManyLinks {
                        path: path.to_owned(),
                    });
                }
                let target = readlinkat(dir, name.as_os_str())
                    .map_err(|cause| call("readlinkat", &at, cause))?;
                if Path::new(&target).is_absolute() {
                    above.truncate(1);
                }
                for part in names(Path::new(&target)).into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            SFlag::S_IFDIR => {
                let next = openat(dir, name.as_os_str(), flags, Mode::empty())
                    .map_err(|cause| call("openat", &at, cause))?;
                judge.directory(next.as_fd(), &at)?;
                above.push((next, at));
            }
            _ if !ahead.is_empty() => return Err(UnsafePath::NotDirectory { component: at }),
            _ => judge.file(dir.as_fd(), &name, &stat, &at)?,
        }
    }
    let missing: Vec<OsString> = ahead.into();
    // The kernel gives ENOENT for `missing/..` as well; there is nothing to judge or to create behind it.
    if missing.iter().any(|name| name == "..") {
        return Err(call("openat", &absolute, Errno::ENOENT));
    }
    let Some((dir, path)) = above.pop() else {
        return Err(call("open", &absolute, Errno::ENOENT));
    };
    Ok(Walked { dir, path, missing })
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

#[cfg(test)]
#[path = "control_path_tests.rs"]
mod tests;
