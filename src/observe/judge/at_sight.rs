//! Acts that the kernel lets through, as can be told at one sight: what most calls are, asked with as few questions as will do.
//!
//! SYS_PTRACE may be effective here, with which the caller's memory was read: to take it and lay it down costs more than all
//! else that is asked. So only such questions are asked as have the same answer with it and without: it counts for objects of
//! /proc alone (ptrace(2), proc(5)), and no way that is taken here leads there or through there by `..` or a link. Whatever is
//! not plain is asked about as if nobody had looked, by [`super::paths`] and `observe::predict`.

use super::{Looked, is_for_everyone};
use crate::observe::act::{Act, Address, Base, Change, Made, Place};
use crate::observe::decode::{TMPFILE, writes};
use crate::observe::predict::mode_of;
use crate::observe::walk::{is, pin_within, split};
use crate::sys::call::{Argument, call};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, ResolveFlag};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::sys::statvfs::FsFlags;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A directory, and names in it.
struct Entries {
    directory: OwnedFd,
    names: Vec<CString>,
}

impl Looked<'_> {
    /// Whether the act plainly goes through. False says nothing.
    pub(super) fn passes_at_sight(&self, act: &Act) -> bool {
        let judge = self.judge;
        // Each of these wants to know more of an act than whether the kernel refuses it.
        if judge.barrier.is_some() || judge.kept.is_some() || judge.shadow.is_some() || judge.mixed {
            return false;
        }
        let moves = matches!(act, Act::Rename(..) | Act::Remove(..) | Act::Link(..));
        if moves && judge.mounted.is_some() {
            return false;
        }
        self.passes(act).unwrap_or(false)
    }

    /// `None` where it is not plain.
    fn passes(&self, act: &Act) -> Option<bool> {
        match act {
            Act::Open { at, flags, resolve: 0, .. } => self.opens(at, *flags),
            Act::Make(at, Made::Directory(_) | Made::Symlink(_)) => self.entries_at_sight(at, &[at])?.takes_names(),
            Act::Remove(at, _) => self.takes_away(&self.entries_at_sight(at, &[at])?),
            Act::Rename(from, to, flags) if flags & !libc::RENAME_NOREPLACE == 0 => self.renames(from, to),
            Act::Change(at, change) => self.changes(at, change),
            Act::Reach { address: Address::Inet(to), .. } => Some(self.judge.unnoted.contains(*to)),
            Act::BindPort { port, .. } => Some(is_for_everyone(*port)),
            Act::Plain => Some(true),
            _ => None,
        }
    }

    fn opens(&self, at: &Place, flags: u64) -> Option<bool> {
        let has = |flag: i32| flags & flag as u64 == flag as u64;
        if !writes(flags) || has(libc::O_PATH) || has(libc::O_NOATIME) || flags & TMPFILE as u64 != 0 {
            return None;
        }
        if !has(libc::O_CREAT | libc::O_EXCL) {
            match self.object_at_sight(at) {
                Some(Ok(object)) => return self.opens_object(&object, flags),
                Some(Err(Errno::ENOENT)) if has(libc::O_CREAT) => {}
                _ => return None,
            }
        }
        let entry = self.entries_at_sight(at, &[at])?;
        let free = entry.stat(0) == Err(Errno::ENOENT);
        Some(free && entry.takes_names()?)
    }

    fn opens_object(&self, object: &OwnedFd, flags: u64) -> Option<bool> {
        let found = fstat(object).ok()?;
        let device = is(&found, SFlag::S_IFCHR) || is(&found, SFlag::S_IFBLK);
        let anothers = found.st_uid != self.ids.get().uid;
        // A file of another's in a directory that everyone may write to.
        let protected = anothers && flags & libc::O_CREAT as u64 != 0 && !device;
        if !(device || is(&found, SFlag::S_IFREG)) || protected {
            return None;
        }
        let mount = flags_of_mount(object.as_fd())?;
        let lets = !(device && mount.contains(FsFlags::ST_NODEV));
        Some(lets && may(object.as_fd(), mode_of(flags)))
    }

    fn renames(&self, from: &Place, to: &Place) -> Option<bool> {
        let directory = |at: &Place| split(&at.given).map(|(parent, _)| (at.base, parent.to_vec()));
        // Most are given another name where they are.
        let places = if directory(from)? == directory(to)? { vec![vec![from, to]] } else { vec![vec![from], vec![to]] };
        let entries: Vec<Entries> =
            places.iter().map(|names| self.entries_at_sight(names[0], names)).collect::<Option<_>>()?;
        // A directory that moves has its `..` written.
        if entries[0].stat(0).is_ok_and(|moved| is(&moved, SFlag::S_IFDIR)) {
            return None;
        }
        entries.iter().map(|entries| self.takes_away(entries)).try_fold(true, |all, one| Some(all && one?))
    }

    fn takes_away(&self, entries: &Entries) -> Option<bool> {
        let own = self.ids.get().uid;
        let directory = fstat(&entries.directory).ok()?;
        // Names in a sticky directory are their owners' (inode(7)).
        let sticky = directory.st_mode & Mode::S_ISVTX.bits() != 0 && directory.st_uid != own;
        let is_anothers = |index| entries.stat(index).is_ok_and(|found| found.st_uid != own);
        if sticky && (0..entries.names.len()).any(is_anothers) {
            return None;
        }
        entries.takes_names()
    }

    fn changes(&self, at: &Place, change: &Change) -> Option<bool> {
        let ids = self.ids.get();
        let by_owner = match change {
            Change::Mode(_) | Change::Times(Some(_)) => true,
            Change::Owner(uid, gid) if [ids.uid, u32::MAX].contains(uid) && [ids.gid, u32::MAX].contains(gid) => true,
            Change::Times(None) | Change::Length(_) => false,
            _ => return None,
        };
        let object = self.object_at_sight(at)?.ok()?;
        let lets = !flags_of_mount(object.as_fd())?.contains(FsFlags::ST_RDONLY);
        Some(lets && if by_owner { fstat(&object).ok()?.st_uid == ids.uid } else { may(object.as_fd(), libc::W_OK) })
    }

    /// What a place is, over no link.
    fn object_at_sight(&self, at: &Place) -> Option<Result<OwnedFd, Errno>> {
        if at.given.is_empty() {
            return self.caller.hold(at.base).ok().map(Ok);
        }
        self.plain_from(at.base, &at.given, at.follow)
    }

    /// The directory of a place, and the last components of these, which are all in it.
    fn entries_at_sight(&self, at: &Place, all: &[&Place]) -> Option<Entries> {
        let (parent, _) = split(&at.given)?;
        let directory = self.plain_from(at.base, parent, true)?.ok()?;
        let last = |at: &&Place| {
            let (_, last) = split(&at.given)?;
            // A slash at the end wants a directory of what is there.
            at.given.ends_with(last).then(|| CString::new(last).ok())?
        };
        Some(Entries { directory, names: all.iter().map(last).collect::<Option<_>>()? })
    }

    fn plain_from(&self, base: Base, path: &[u8], follow: bool) -> Option<Result<OwnedFd, Errno>> {
        if path.split(|byte| *byte == b'/').any(|component| component == b"..") {
            return None;
        }
        let pin = |base: BorrowedFd<'_>| pin_within(base, path, follow, ResolveFlag::RESOLVE_NO_SYMLINKS.bits());
        Some(match base {
            Base::Root => pin(nix::fcntl::AT_FDCWD),
            base => pin(self.caller.hold(base).ok()?.as_fd()),
        })
    }
}

impl Entries {
    fn stat(&self, index: usize) -> Result<FileStat, Errno> {
        fstatat(&self.directory, self.names[index].as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Whether names may be made in the directory and taken away.
    fn takes_names(&self) -> Option<bool> {
        flags_of_mount(self.directory.as_fd())?;
        Some(may(self.directory.as_fd(), libc::W_OK | libc::X_OK))
    }
}

/// faccessat2(2) on the very object, with the effective ids.
fn may(object: BorrowedFd<'_>, mode: i32) -> bool {
    const NONE: &CStr = c"";
    let [mode, flags] = [mode, libc::AT_EACCESS | libc::AT_EMPTY_PATH].map(|number| Argument::Number(number as u64));
    call(libc::SYS_faccessat2, [Argument::Fd(object), Argument::Text(NONE), mode, flags]).is_ok()
}

/// The flags of the mount that an object is on; `None` in /proc.
fn flags_of_mount(object: BorrowedFd<'_>) -> Option<FsFlags> {
    let found = fstatfs(object).ok()?;
    (found.filesystem_type() != PROC_SUPER_MAGIC).then(|| found.flags())
}

#[cfg(test)]
mod tests {
    use super::super::{Judge, Unnoted, Ways};
    use super::*;
    use crate::observe::caller::Caller;
    use crate::observe::calls::{Calls, Found, NATIVE};
    use crate::observe::watched::Ids;
    use crate::plan::means::Terms;
    use crate::policy::Posture;
    use crate::sys::notify::{CallData, Notification};
    use nix::unistd::{geteuid, getpid};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    /// Asks about acts of this very process, which is nobody's caller.
    fn passes(act: &Act) -> bool {
        let ids = Ids { uid: geteuid().as_raw(), gid: 0 };
        let calls = Calls::new(&Terms::full(Posture::Locked, Posture::Restricted), ids, &[]);
        let judge = Judge {
            calls: Arc::new(calls.clone()),
            ids,
            unnoted: Unnoted::default(),
            may_open: false,
            mixed: false,
            stage: getpid(),
            names: false,
            barrier: None,
            mounted: None,
            kept: None,
            ways: Arc::new(Ways::default()),
            sockets: None,
            shadow: None,
        };
        let number = libc::SYS_creat as i32;
        let call = CallData { number, arch: NATIVE, instruction: 0, arguments: [0; 6] };
        let Found::Watched(watched, native) = calls.find(&call) else { panic!("creat(2) is looked at") };
        let notification = Notification { tid: getpid().as_raw() as u32, call, ..Notification::default() };
        let none = std::fs::File::open("/dev/null").unwrap();
        let caller = Caller::new(none.as_fd(), &notification, false);
        Looked::new(&judge, &caller, watched, native).passes_at_sight(act)
    }

    fn place(path: &Path) -> Place {
        Place { base: Base::Root, given: path.as_os_str().as_bytes().to_vec(), follow: true }
    }

    fn open(path: &Path, flags: i32) -> Act {
        Act::Open { at: place(path), flags: flags as u64, mode: 0o600, resolve: 0 }
    }

    #[test]
    fn what_is_ones_own_and_straight_ahead_passes() {
        let home = tempfile::tempdir().unwrap();
        let (there, free) = (home.path().join("there"), home.path().join("free"));
        std::fs::write(&there, "").unwrap();
        for act in [
            open(&there, libc::O_WRONLY),
            open(&free, libc::O_WRONLY | libc::O_CREAT),
            open(&free, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL),
            open(Path::new("/dev/null"), libc::O_WRONLY),
            Act::Make(place(&free), Made::Directory(0o700)),
            Act::Remove(place(&there), false),
            Act::Rename(place(&there), place(&free), 0),
            Act::Change(place(&there), Change::Mode(0o600)),
            Act::Change(place(&there), Change::Times(None)),
        ] {
            assert!(passes(&act), "{act:?}");
        }
    }

    #[test]
    fn what_a_link_a_step_back_or_proc_is_part_of_is_not_plain() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("there"), "").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        symlink("there", at("link")).unwrap();
        symlink(home.path(), at("way")).unwrap();
        let write = libc::O_WRONLY;
        let own = format!("/proc/{}", getpid());
        for act in [
            open(&at("link"), write),
            open(&at("way/there"), write),
            open(&at("way/free"), write | libc::O_CREAT),
            open(&at("directory/../there"), write),
            open(&at("directory/../free"), write | libc::O_CREAT | libc::O_EXCL),
            open(&Path::new(&own).join("comm"), write),
            open(&Path::new(&own).join("cwd/x"), write | libc::O_CREAT),
            open(Path::new("/proc/self/comm"), write),
            Act::Change(place(&Path::new(&own).join("comm")), Change::Mode(0o600)),
            Act::Rename(place(&at("directory")), place(&at("free")), 0),
            Act::Rename(place(&at("there")), place(&at("free")), libc::RENAME_WHITEOUT),
            Act::Remove(place(&at("way/there")), false),
            // Its way is plain, and what is asked for is another's to allow.
            Act::Change(place(&at("there")), Change::Owner(geteuid().as_raw() + 1, 0)),
            open(&at("there"), write | libc::O_NOATIME),
            open(&at("none/free"), write | libc::O_CREAT),
        ] {
            assert!(!passes(&act), "{act:?}");
        }
    }
}
