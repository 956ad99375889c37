//! What a read-only mount would answer to an act on contents or names, where there are no mounts: the errno and its place
//! among the others. Held against such a mount, act by act, by `tests/files_table.rs`.
//!
//! Landlock is the barrier; here is its answer. What is not answered here goes on, and is refused by Landlock if the place has
//! changed meanwhile. The order is that of the kernel's own steps (fs/namei.c, fs/open.c): a look-up fails first; a name that
//! is to be made must be free before the mount is asked; one that is to go need not even be there.

use super::reached::{Entry, access, is_judged, path_of_object};
use super::{Looked, Verdict};
use crate::confine::landlock::Barrier;
use crate::observe::act::{Act, Change, Made, Place};
use crate::observe::caller::Unread;
use crate::observe::decode::TMPFILE;
use crate::observe::predict::is_anothers_in_sticky;
use crate::observe::told::{PathTarget, Target};
use crate::observe::walk::{Found, found_within, is, pin_within};
use crate::observe::watched::PERMISSION;
use crate::sys::call::{Argument, HERE, call, call_for_fd};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, ResolveFlag};
use nix::libc;
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The rule of what a read-only tree refuses.
pub(super) const READ_ONLY: &str = "read-only";

/// What the barrier makes of an act.
#[derive(Debug)]
pub(super) enum Held {
    /// It is none of its places, or the way there fails: the kernel is asked as on every rung.
    Not,
    /// The kernel's own answer is that of a read-only mount.
    Same,
    /// An errno that is no denial.
    Silently(Errno),
    /// A refusal of these paths, the first of which is the act's.
    Refused(Errno, Vec<PathBuf>),
}
use Held::{Not, Refused, Same, Silently};

/// The value of what was looked up, or [`Not`] where the look-up failed.
macro_rules! reached {
    ($lookup:expr) => {
        match $lookup {
            Ok(reached) => reached,
            Err(_) => return Ok(Not),
        }
    };
}

impl Looked<'_> {
    /// The verdict on contents and names of what the barrier protects; `None` where it has none.
    pub(super) fn by_barrier(&self, barrier: &Barrier, act: &Act) -> Result<Option<Verdict>, Unread> {
        let held = match act {
            Act::Open { at, flags, resolve, .. } => self.opened(barrier, at, *flags, *resolve)?,
            Act::Make(at, made) if self.has_descriptors(act)? => self.made(barrier, at, made)?,
            Act::Remove(at, _) => self.removed(barrier, at)?,
            Act::Rename(from, to, flags) => self.renamed(barrier, from, to, *flags)?,
            Act::Link(from, to) => self.linked(barrier, from, to)?,
            Act::Change(at, Change::Length(length)) => self.cut(barrier, at, *length as i64)?,
            _ => Not,
        };
        // What is answered is answered to the caller whose place was looked at.
        if !matches!(held, Not) {
            self.caller.still_waits()?;
        }
        Ok(match held {
            Not => None,
            Same => Some(Verdict::GoOn),
            Silently(errno) => Some(Verdict::RefuseSilently(errno)),
            Refused(errno, paths) => {
                let to = match act {
                    Act::Make(_, Made::Symlink(target)) => Some(target.clone()),
                    _ => None,
                };
                let makes = matches!(act, Act::Open { flags, .. } if flags & libc::O_CREAT as u64 != 0);
                Some(self.held(barrier, errno, &paths, to, makes))
            }
        })
    }

    /// A refusal that a read-only mount would make.
    pub(super) fn held(
        &self,
        barrier: &Barrier,
        errno: Errno,
        paths: &[PathBuf],
        to: Option<Vec<u8>>,
        makes: bool,
    ) -> Verdict {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let path = paths.first().map(bytes).unwrap_or_default();
        let decisive = paths.iter().find(|path| barrier.protects(path)).map_or_else(|| path.clone(), bytes);
        let to = to.or_else(|| paths.get(1).map(bytes));
        let object = Target::Path(PathTarget { path, to, decisive, read_only: true, makes });
        let rule = if errno == Errno::EROFS { READ_ONLY } else { PERMISSION };
        self.denied(errno, object, rule, None)
    }

    fn opened(&self, barrier: &Barrier, at: &Place, flags: u64, resolve: u64) -> Result<Held, Unread> {
        let has = |flag: i32| flags & flag as u64 != 0;
        if has(libc::O_PATH) {
            return Ok(Not);
        }
        let object = match resolve {
            0 => self.object(at)?,
            resolve => {
                let base = self.caller.hold(at.base)?;
                pin_within(base.as_fd(), &at.given, at.follow, resolve)
            }
        };
        match object {
            Ok(object) => Ok(self.opened_object(barrier, at, &object, flags)),
            // A directory is not to be made so (open(2), EINVAL).
            Err(Errno::ENOENT) if has(libc::O_CREAT) && !has(libc::O_DIRECTORY) => self.created(barrier, at, resolve),
            Err(_) => Ok(Not),
        }
    }

    /// A file that is not there: the mount is asked before the directory's mode.
    fn created(&self, barrier: &Barrier, at: &Place, resolve: u64) -> Result<Held, Unread> {
        let path = match ResolveFlag::from_bits_retain(resolve) {
            // Where links lead from a base that is not to be left the kernel alone tells.
            within if within.intersects(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_IN_ROOT) => {
                let base = self.caller.hold(at.base)?;
                let found = found_within(base.as_fd(), &at.given, at.follow, resolve);
                let missing =
                    |found: &Found| fstatat(&found.at, found.rest.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW).is_err();
                let found = found.filter(|found| !found.rest.is_empty() && !at.given.ends_with(b"/") && missing(found));
                reached!(found.and_then(|found| found.path()).ok_or(()))
            }
            _ => {
                let entry = match self.entry(at)? {
                    Ok(entry) if at.follow && entry.stat().is_ok() => self.entry_followed(at)?,
                    entry => entry,
                };
                let entry = reached!(entry);
                if entry.name.is_none() || entry.slash || entry.stat() != Err(Errno::ENOENT) {
                    return Ok(Not);
                }
                entry.path()
            }
        };
        Ok(if barrier.protects(path.parent().unwrap_or(&path)) { Refused(Errno::EROFS, vec![path]) } else { Not })
    }

    fn opened_object(&self, barrier: &Barrier, at: &Place, object: &OwnedFd, flags: u64) -> Held {
        let has = |flag: i32| flags & flag as u64 != 0;
        let (Some(path), Ok(stat)) = (path_of_object(object), fstat(object)) else { return Not };
        if !barrier.protects(&path) || !is_judged(object) {
            return Not;
        }
        if has(TMPFILE) {
            return if is(&stat, SFlag::S_IFDIR) { Refused(Errno::EROFS, vec![path]) } else { Same };
        }
        let regular = is(&stat, SFlag::S_IFREG);
        let mode = match flags as i32 & libc::O_ACCMODE {
            libc::O_WRONLY => libc::W_OK,
            libc::O_RDWR => libc::R_OK | libc::W_OK,
            // Neither to read nor to write, or to read and to cut, for which the mode does not matter here.
            _ if has(libc::O_TRUNC) && regular => 0,
            _ => return Not,
        };
        let exclusive = has(libc::O_CREAT) && has(libc::O_EXCL);
        if exclusive || has(libc::O_DIRECTORY) || is(&stat, SFlag::S_IFDIR) || is(&stat, SFlag::S_IFLNK) {
            return Same;
        }
        if has(libc::O_CREAT) && self.is_anothers_in_sticky(at, &stat) {
            return Refused(Errno::EACCES, vec![path]);
        }
        if has(libc::O_TRUNC) && regular {
            return Refused(Errno::EROFS, vec![path]);
        }
        if let Err(errno) = access(object, mode) {
            return Refused(errno, vec![path]);
        }
        match () {
            () if regular => match attempt(object, flags) {
                // Attributes that bind everyone.
                Err(Errno::EPERM) => Refused(Errno::EPERM, vec![path]),
                Err(Errno::ETXTBSY) => Same,
                _ => Refused(Errno::EROFS, vec![path]),
            },
            // A device, a pipe or a socket is no part of its mount. Landlock lets the devices be written that were in /dev,
            // and refuses what else has a name in a tree.
            () if is(&stat, SFlag::S_IFSOCK) => Silently(Errno::ENXIO),
            () if is(&stat, SFlag::S_IFCHR) && path.starts_with("/dev") => Not,
            () => Refused(Errno::EACCES, vec![path]),
        }
    }

    /// Whether a file may not be opened with O_CREAT for whose it and its directory are.
    fn is_anothers_in_sticky(&self, at: &Place, file: &FileStat) -> bool {
        let followed = self.entry_followed(at);
        let directory = followed.map(|entry| entry.and_then(|entry| fstat(&entry.directory)));
        matches!(directory, Ok(Ok(directory)) if is_anothers_in_sticky(&directory, file, self.judge.ids.uid))
    }

    fn made(&self, barrier: &Barrier, at: &Place, made: &Made) -> Result<Held, Unread> {
        let entry = reached!(self.entry(at)?);
        if !barrier.protects(&entry.above) {
            return Ok(Not);
        }
        let formed = match made {
            Made::Node(mode, _) => {
                let kind = mode & SFlag::S_IFMT.bits();
                let kinds = [SFlag::S_IFREG, SFlag::S_IFCHR, SFlag::S_IFBLK, SFlag::S_IFIFO, SFlag::S_IFSOCK];
                kind == 0 || kinds.iter().any(|known| known.bits() == kind)
            }
            Made::Symlink(target) => !target.is_empty(),
            Made::Directory(_) | Made::Socket(_) => true,
        };
        let held = free(&entry, matches!(made, Made::Directory(_)));
        Ok(if formed { held } else { Not })
    }

    fn removed(&self, barrier: &Barrier, at: &Place) -> Result<Held, Unread> {
        let entry = reached!(self.entry(at)?);
        if !barrier.protects(&entry.above) || !entry.is_searchable() {
            return Ok(Not);
        }
        Ok(if entry.name.is_some() { Refused(Errno::EROFS, vec![entry.path()]) } else { Same })
    }

    fn renamed(&self, barrier: &Barrier, from: &Place, to: &Place, flags: u32) -> Result<Held, Unread> {
        let excluded = libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
        let swaps = flags & libc::RENAME_EXCHANGE != 0;
        if flags & !(excluded | libc::RENAME_EXCHANGE) != 0 || swaps && flags & excluded != 0 {
            return Ok(Not);
        }
        let (old, new) = (reached!(self.entry(from)?), reached!(self.entry(to)?));
        if !old.is_searchable() || !new.is_searchable() {
            return Ok(Not);
        }
        if barrier.mount_of(&old.above) != barrier.mount_of(&new.above) {
            return Ok(Silently(Errno::EXDEV));
        }
        Ok(match () {
            () if !barrier.protects(&old.above) => Not,
            () if old.name.is_some() && new.name.is_some() => Refused(Errno::EROFS, vec![old.path(), new.path()]),
            () => Same,
        })
    }

    fn linked(&self, barrier: &Barrier, from: &Place, to: &Place) -> Result<Held, Unread> {
        let object = reached!(self.object(from)?);
        let entry = reached!(self.entry(to)?);
        let Some(source) = path_of_object(&object) else { return Ok(Not) };
        if barrier.protects(&entry.above) {
            // Of a descriptor's own file, only if the kernel gives names to such at all.
            if from.given.is_empty() && !gives_names(&object) {
                return Ok(Not);
            }
            return Ok(match free(&entry, false) {
                Refused(errno, mut paths) => {
                    paths.insert(0, source);
                    Refused(errno, paths)
                }
                other => other,
            });
        }
        let crosses = barrier.mount_of(&source) != barrier.mount_of(&entry.above);
        let is_free = || entry.name.is_some() && !entry.slash && entry.stat() == Err(Errno::ENOENT);
        Ok(if crosses && is_free() { Silently(Errno::EXDEV) } else { Not })
    }

    /// truncate(2): the mount is asked after the mode, and before attributes that bind everyone.
    fn cut(&self, barrier: &Barrier, at: &Place, length: i64) -> Result<Held, Unread> {
        let object = reached!(self.object(at)?);
        let (Some(path), Ok(stat)) = (path_of_object(&object), fstat(&object)) else { return Ok(Not) };
        if length < 0 || !is(&stat, SFlag::S_IFREG) || !barrier.protects(&path) || !is_judged(&object) {
            return Ok(Not);
        }
        Ok(match access(&object, libc::W_OK) {
            Ok(()) => Refused(Errno::EROFS, vec![path]),
            Err(errno) => Refused(errno, vec![path]),
        })
    }

    /// access(2) and its kin, which tell of a read-only mount what they would tell without a barrier of nothing.
    pub(super) fn accessible(&self, barrier: &Barrier, at: &Place, mode: i32) -> Result<Verdict, Unread> {
        let Ok(object) = self.object(at)? else { return Ok(Verdict::GoOn) };
        let (Some(path), Ok(stat)) = (path_of_object(&object), fstat(&object)) else { return Ok(Verdict::GoOn) };
        let of_mount = [SFlag::S_IFREG, SFlag::S_IFDIR, SFlag::S_IFLNK].into_iter().any(|kind| is(&stat, kind));
        if !of_mount || !barrier.protects(&path) || !is_judged(&object) || access(&object, mode).is_err() {
            return Ok(Verdict::GoOn);
        }
        self.caller.still_waits()?;
        Ok(Verdict::RefuseSilently(Errno::EROFS))
    }
}

/// A name that is to be made in a protected directory.
fn free(entry: &Entry, takes_slash: bool) -> Held {
    match entry.stat() {
        Err(Errno::ENOENT) if entry.name.is_some() && (takes_slash || !entry.slash) => {
            Refused(Errno::EROFS, vec![entry.path()])
        }
        // The directory may not be searched.
        Err(Errno::EACCES) => Not,
        Ok(_) | Err(_) => Same,
    }
}

/// Whether the kernel gives a name to a descriptor's file without a capability (linkat(2), AT_EMPTY_PATH; Linux 6.10). The
/// new name that is asked for is there.
pub(in crate::observe) fn gives_names(object: &OwnedFd) -> bool {
    let flags = Argument::Number(libc::AT_EMPTY_PATH as u64);
    let asked = [Argument::Fd(object.as_fd()), Argument::Text(c""), HERE, Argument::Text(c"/"), flags];
    call(libc::SYS_linkat, asked) == Err(Errno::EEXIST)
}

/// Opens a file as it was to be, less what would change it, to learn what else refuses.
fn attempt(object: &OwnedFd, flags: u64) -> Result<OwnedFd, Errno> {
    let changes = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW;
    let ours = flags as i32 & !changes | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let path = CString::new(format!("/proc/self/fd/{}", object.as_raw_fd())).map_err(|_| Errno::EINVAL)?;
    call_for_fd(libc::SYS_openat, [HERE, Argument::Text(&path), Argument::Number(ours as u64), Argument::Number(0)])
}
