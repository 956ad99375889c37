//! Whether the kernel would let an act on a path go through, asked of the kernel by a process that it judges as it judges
//! the command, without doing anything.
//!
//! "Yes" leaves the call untouched, so that an answer that is wrongly "yes" costs a record and never a barrier; "no" has the
//! act itself tried (`observe::ask`), so that an answer that is wrongly "no" costs time only.

use super::act::{Change, Made};
use super::ask::is_refusal;
use super::caller::Name;
use super::decode::{TMPFILE, writes};
use super::walk::{is, pin, split};
use super::watched::Ids;
use crate::sys::call::{Argument, HERE, call};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::ffi::{CStr, CString};

/// What is to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The call goes through, or fails for a reason that is no denial.
    Passes,
    /// The kernel may refuse it.
    MayBeRefused,
}
use Expected::{MayBeRefused, Passes};

/// faccessat2(2) with the effective ids.
pub fn access(path: &CStr, mode: i32, follow: bool) -> Result<(), Errno> {
    let flags = libc::AT_EACCESS | if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let [mode, flags] = [mode, flags].map(|number| Argument::Number(number as u64));
    call(libc::SYS_faccessat2, [HERE, Argument::Text(path), mode, flags]).map(|_| ())
}

fn stat(path: &CStr, follow: bool) -> Result<FileStat, Errno> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    fstatat(nix::fcntl::AT_FDCWD, path, flags)
}

/// Errors of a look-up that are refusals; all others are told by the kernel again.
pub fn refused(errno: Errno) -> Expected {
    if is_refusal(errno) { MayBeRefused } else { Passes }
}

fn allowed(outcome: Result<(), Errno>) -> Expected {
    outcome.map_or_else(refused, |()| Passes)
}

/// The directory of a name that is to be made or taken away, and its mode and owner.
fn parent(name: &Name) -> Option<CString> {
    let (parent, _) = split(name.text.as_bytes())?;
    CString::new(parent).ok()
}

/// open(2).
pub fn open(name: &Name, flags: u64, ids: Ids) -> Expected {
    let has = |flag: i32| flags & flag as u64 != 0;
    if has(libc::O_PATH) || !writes(flags) {
        return Passes;
    }
    let exclusive = has(libc::O_CREAT) && has(libc::O_EXCL);
    let found = match stat(&name.text, name.follow && !exclusive) {
        Ok(found) => found,
        Err(Errno::ENOENT) if has(libc::O_CREAT) => return created(name, exclusive),
        Err(errno) => return refused(errno),
    };
    if has(TMPFILE) {
        return allowed(access(&name.text, libc::W_OK | libc::X_OK, true));
    }
    // EEXIST, EISDIR, ELOOP.
    let link = is(&found, SFlag::S_IFLNK);
    if exclusive || link || is(&found, SFlag::S_IFDIR) && !has(libc::O_NOATIME) {
        return Passes;
    }
    if access(&name.text, mode_of(flags), name.follow).is_err() {
        return MayBeRefused;
    }
    let device = is(&found, SFlag::S_IFCHR) || is(&found, SFlag::S_IFBLK);
    let others = found.st_uid != ids.uid;
    // What access(2) does not look at: devices on a nodev mount, O_NOATIME on another's file, and files of others in
    // directories that everyone may write to (proc_sys_fs(5), protected_regular and protected_fifos).
    if device && on_mount(name, FsFlags::ST_NODEV) || others && has(libc::O_NOATIME) {
        return MayBeRefused;
    }
    if others && has(libc::O_CREAT) && !device && parent(name).is_some_and(|parent| is_sticky(&parent, ids)) {
        return MayBeRefused;
    }
    Passes
}

/// What access(2) is asked for before an open with these flags.
pub fn mode_of(flags: u64) -> i32 {
    match flags as i32 & libc::O_ACCMODE {
        libc::O_RDONLY if flags & libc::O_TRUNC as u64 != 0 => libc::R_OK | libc::W_OK,
        libc::O_RDONLY => libc::R_OK,
        libc::O_WRONLY => libc::W_OK,
        _ => libc::R_OK | libc::W_OK,
    }
}

/// A file that is not there yet.
fn created(name: &Name, exclusive: bool) -> Expected {
    // A link that leads nowhere has the file made where it leads.
    if !exclusive && stat(&name.text, false).is_ok() {
        return MayBeRefused;
    }
    match parent(name) {
        Some(parent) => allowed(access(&parent, libc::W_OK | libc::X_OK, true)),
        None => Passes,
    }
}

fn on_mount(name: &Name, flag: FsFlags) -> bool {
    pin(name).and_then(fstatvfs).is_ok_and(|found| found.flags().contains(flag))
}

/// Whether a directory is sticky and another's: names in it are their owners' (inode(7)).
fn is_sticky(directory: &CStr, ids: Ids) -> bool {
    let sticky = |found: FileStat| found.st_mode & Mode::S_ISVTX.bits() != 0 && found.st_uid != ids.uid;
    stat(directory, true).is_ok_and(sticky)
}

/// Whether the kernel keeps everyone but its owner from opening a file with O_CREAT where it lies (proc_sys_fs(5),
/// `protected_regular` and `protected_fifos`).
pub fn is_anothers_in_sticky(directory: &FileStat, file: &FileStat, uid: u32) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;
    if directory.st_mode & Mode::S_ISVTX.bits() == 0 || [directory.st_uid, uid].contains(&file.st_uid) {
        return false;
    }
    let level = |kind: &str| -> u32 {
        let told = crate::procfs::read(&format!("/proc/sys/fs/protected_{kind}")).unwrap_or_default();
        told.trim().parse().unwrap_or(0)
    };
    let level = match () {
        () if is(file, SFlag::S_IFREG) => level("regular"),
        () if is(file, SFlag::S_IFIFO) => level("fifos"),
        () => 1,
    };
    level > 0 && directory.st_mode & OTHERS_WRITE != 0 || level > 1 && directory.st_mode & GROUP_WRITES != 0
}

/// A new name for a new object.
pub fn make(name: &Name, made: &Made) -> Expected {
    let Some(parent) = parent(name) else { return Passes };
    if let Made::Node(mode, device) = made {
        let kind = mode & SFlag::S_IFMT.bits();
        // mkdir(2) makes directories, for everyone.
        if kind == SFlag::S_IFDIR.bits() {
            return Passes;
        }
        // A whiteout, character device 0, is for everyone (mknod(2), Linux 5.8).
        if kind == SFlag::S_IFBLK.bits() || kind == SFlag::S_IFCHR.bits() && *device != 0 {
            return MayBeRefused;
        }
    }
    allowed(access(&parent, libc::W_OK | libc::X_OK, true))
}

/// A name is taken away.
pub fn remove(name: &Name, ids: Ids) -> Expected {
    let Some(parent) = parent(name) else { return Passes };
    match access(&parent, libc::W_OK | libc::X_OK, true) {
        Ok(()) if is_sticky(&parent, ids) && is_others(name, ids) => MayBeRefused,
        outcome => allowed(outcome),
    }
}

fn is_others(name: &Name, ids: Ids) -> bool {
    stat(&name.text, false).is_ok_and(|found| found.st_uid != ids.uid)
}

/// A name takes another's place.
pub fn rename(from: &Name, to: &Name, flags: u32, ids: Ids) -> Expected {
    // EBUSY, for everyone.
    if parent(from).is_none() || parent(to).is_none() {
        return Passes;
    }
    if flags & libc::RENAME_WHITEOUT != 0 || remove(from, ids) == MayBeRefused || remove(to, ids) == MayBeRefused {
        return MayBeRefused;
    }
    // A directory that moves has its `..` written.
    let moved = stat(&from.text, false).is_ok_and(|found| is(&found, SFlag::S_IFDIR));
    let swapped = flags & libc::RENAME_EXCHANGE != 0 && stat(&to.text, false).is_ok_and(|f| is(&f, SFlag::S_IFDIR));
    let writable = |name: &Name| access(&name.text, libc::W_OK, false).is_ok();
    if moved && !writable(from) || swapped && !writable(to) { MayBeRefused } else { Passes }
}

/// Another name for an object that is there.
pub fn link(from: &Name, to: &Name, ids: Ids) -> Expected {
    match stat(&from.text, from.follow) {
        // proc_sys_fs(5), protected_hardlinks.
        Ok(found) if found.st_uid != ids.uid => MayBeRefused,
        Ok(_) => make(to, &Made::Directory(0)),
        Err(errno) => refused(errno),
    }
}

/// A change of a file.
pub fn change(name: &Name, change: &Change, ids: Ids) -> Expected {
    let writable = || allowed(access(&name.text, libc::W_OK, name.follow));
    let own = || match pin(name) {
        Ok(object) => {
            let is_own = fstat(&object).is_ok_and(|found| found.st_uid == ids.uid);
            let read_only = fstatvfs(&object).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
            if is_own && !read_only { Passes } else { MayBeRefused }
        }
        Err(errno) => refused(errno),
    };
    match change {
        Change::Length(_) => writable(),
        // What is neither a file, a directory nor a link may be written on a read-only mount, and not be changed there.
        Change::Times(None) if writable() == Passes && !on_mount(name, FsFlags::ST_RDONLY) => Passes,
        Change::Owner(uid, gid) if ![ids.uid, u32::MAX].contains(uid) || ![ids.gid, u32::MAX].contains(gid) => {
            MayBeRefused
        }
        Change::Mode(_) | Change::Owner(..) | Change::Times(_) => own(),
        Change::SetXattr(attribute, ..) | Change::RemoveXattr(attribute) => {
            match attribute.split(|byte| *byte == b'.').next() {
                // Of a sticky directory they are its owner's (xattr(7)).
                Some(b"user") if is_sticky(&name.text, ids) => MayBeRefused,
                Some(b"user") => writable(),
                Some(b"system") => own(),
                // security.* and trusted.* need capabilities, and what else there is is the file system's own.
                _ => MayBeRefused,
            }
        }
        Change::Inode(..) | Change::FileAttributes(_) => MayBeRefused,
        Change::OfFileSystem => Passes,
    }
}

/// Whether a change is one that the kernel makes for nobody: attributes of users are for regular files and directories
/// (xattr(7)), and so are those of inodes (ioctl_iflags(2)).
pub fn is_for_none(name: &Name, change: &Change) -> bool {
    let special = |found: FileStat| !is(&found, SFlag::S_IFREG) && !is(&found, SFlag::S_IFDIR);
    let of_files = match change {
        Change::SetXattr(attribute, ..) | Change::RemoveXattr(attribute) => attribute.starts_with(b"user."),
        Change::Inode(..) | Change::OfFileSystem => true,
        _ => false,
    };
    of_files && stat(&name.text, name.follow).is_ok_and(special)
}

/// Whether a file may be executed.
pub fn is_executable(name: &Name) -> bool {
    access(&name.text, libc::X_OK, name.follow).is_ok()
}

/// A connection to a unix socket that has a path: it takes the right to write (unix(7)).
pub fn reach(name: &Name) -> Expected {
    allowed(access(&name.text, libc::W_OK, true))
}
