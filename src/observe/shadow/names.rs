//! What the kernel would say to an act that makes names or takes them away, told by looks alone: it would be made by the asking,
//! and in a shadow it is the command's own to make.
//!
//! Whose the directory is decides, and in a sticky one whose the object is (inode(7)): each directory is looked at as who would
//! own it under the stricter policy. The steps are the kernel's own, in its order (fs/namei.c).

use super::Shadow;
use crate::observe::act::{Act, Made};
use crate::observe::ask::is_refusal;
use crate::observe::caller::Name;
use crate::observe::predict::{access, is_anothers_in_sticky};
use crate::observe::walk::{self, is, pin, split};
use crate::sys::call::{attributes, mount_id};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat, stat};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

/// A name, the directory that it is in, and whether that would be the command's own.
struct Entry<'n> {
    name: &'n Name,
    parent: CString,
    directory: Option<OwnedFd>,
    own: bool,
}

/// Whether the kernel keeps names from being given to the files of others (proc_sys_fs(5), `protected_hardlinks`).
fn are_hardlinks_protected() -> bool {
    crate::procfs::read("/proc/sys/fs/protected_hardlinks").is_ok_and(|told| told.trim() != "0")
}

/// statx(2), `STATX_ATTR_IMMUTABLE` and `STATX_ATTR_APPEND`, which bind everyone.
const IMMUTABLE: u64 = 0x10;
const APPEND: u64 = 0x20;

fn has(path: &CStr, wanted: u64) -> bool {
    attributes(path).is_ok_and(|found| found & wanted != 0)
}

/// What is said of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It would be refused.
    Refused(Errno),
    /// It would not.
    Passes,
    /// It neither makes nor takes away a name: the kernel is to be asked.
    Ask,
}

impl Shadow {
    /// What is to be said of an act on names.
    pub fn on_names(&self, act: &Act, names: &[Name], stage: Pid) -> Said {
        let opens = |flag: i32| matches!(act, Act::Open { flags, .. } if flags & flag as u64 != 0);
        let said = match (act, names) {
            (Act::Open { .. }, [name]) if opens(libc::O_CREAT) => self.created(name, opens(libc::O_EXCL), stage),
            (Act::Make(_, made), [name]) => self.made(name, made, stage),
            (Act::Remove(..), [name]) => self.removed(name, stage),
            (Act::Rename(_, _, flags), [from, to]) => self.renamed(from, to, *flags, stage),
            (Act::Link(at, _), [from, to]) => self.linked(from, at.given.is_empty(), to, stage),
            _ => return Said::Ask,
        };
        match said {
            // A file that is there is opened as others are, but for this.
            Err(Errno::EEXIST) if opens(libc::O_CREAT) && !opens(libc::O_EXCL) => {
                let anothers = names.iter().any(|name| self.is_kept_by_sticky(name, stage));
                if anothers { Said::Refused(Errno::EACCES) } else { Said::Ask }
            }
            Err(errno) if is_refusal(errno) => Said::Refused(errno),
            Ok(()) | Err(_) => Said::Passes,
        }
    }

    /// `None` where the name is no name of its own: `.`, `..` or the root, of which none is made or taken away.
    fn entry<'n>(&self, name: &'n Name, stage: Pid) -> Option<Entry<'n>> {
        let (parent, _) = split(name.text.as_bytes())?;
        let parent = CString::new(parent).ok()?;
        let directory = self.as_root(|| walk::pin_path(&parent)).ok();
        let own = directory.as_ref().is_some_and(|directory| self.owns(directory, stage));
        Some(Entry { name, parent, directory, own })
    }

    fn by<T>(&self, own: bool, look: impl FnOnce() -> T) -> T {
        if own { self.as_root(look) } else { look() }
    }

    fn created(&self, name: &Name, exclusive: bool, stage: Pid) -> Result<(), Errno> {
        let Some(entry) = self.entry(name, stage) else { return Err(Errno::EEXIST) };
        let follow = name.follow && !exclusive;
        self.by(entry.own, || {
            entry.search()?;
            match if follow { stat(name.text.as_c_str()) } else { entry.stat() } {
                Ok(_) => Err(Errno::EEXIST),
                Err(Errno::ENOENT) => entry.take_name(),
                Err(errno) => Err(errno),
            }
        })
    }

    fn made(&self, name: &Name, made: &Made, stage: Pid) -> Result<(), Errno> {
        let Some(entry) = self.entry(name, stage) else { return Ok(()) };
        self.by(entry.own, || {
            entry.search()?;
            entry.is_free()?;
            entry.take_name()
        })?;
        let Made::Node(mode, device) = made else { return Ok(()) };
        let kind = mode & SFlag::S_IFMT.bits();
        // A whiteout, character device 0, is for everyone (mknod(2)).
        let privileged = kind == SFlag::S_IFBLK.bits() || kind == SFlag::S_IFCHR.bits() && *device != 0;
        if privileged { Err(Errno::EPERM) } else { Ok(()) }
    }

    fn removed(&self, name: &Name, stage: Pid) -> Result<(), Errno> {
        let Some(entry) = self.entry(name, stage) else { return Ok(()) };
        self.by(entry.own, || {
            entry.search()?;
            entry.is_writable_mount()
        })?;
        self.goes(&entry, stage)
    }

    fn renamed(&self, from: &Name, to: &Name, flags: u32, stage: Pid) -> Result<(), Errno> {
        let (Some(old), Some(new)) = (self.entry(from, stage), self.entry(to, stage)) else { return Ok(()) };
        for entry in [&old, &new] {
            self.by(entry.own, || entry.search())?;
        }
        if old.mount()? != new.mount()? {
            return Err(Errno::EXDEV);
        }
        self.by(old.own, || old.is_writable_mount())?;
        let source = self.by(old.own, || old.stat())?;
        let target = match self.by(new.own, || new.stat()) {
            Err(Errno::ENOENT) => None,
            found => Some(found?),
        };
        let swaps = flags & libc::RENAME_EXCHANGE != 0;
        match &target {
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            // Two names of one object: nothing is done.
            Some(target) if is_same(&source, target) => return Ok(()),
            None if swaps => return Err(Errno::ENOENT),
            _ => {}
        }
        self.goes(&old, stage)?;
        match &target {
            Some(_) => self.goes(&new, stage)?,
            None => self.by(new.own, || new.take_name())?,
        }
        // A directory that moves has its `..` written.
        if old.is_same_directory(&new) {
            return Ok(());
        }
        let swapped = target.filter(|_| swaps);
        for (entry, object) in [(&old, Some(source)), (&new, swapped)] {
            if object.is_some_and(|object| is(&object, SFlag::S_IFDIR)) {
                self.by(self.owns_object(entry, stage), || access(&entry.name.text, libc::W_OK, false))?;
            }
        }
        Ok(())
    }

    fn linked(&self, from: &Name, of_descriptor: bool, to: &Name, stage: Pid) -> Result<(), Errno> {
        let Some(entry) = self.entry(to, stage) else { return Ok(()) };
        let source = pin(from).or_else(|errno| match errno {
            Errno::EACCES => self.as_root(|| pin(from)).ok().filter(|found| self.owns(found, stage)).ok_or(errno),
            errno => Err(errno),
        })?;
        if of_descriptor && !crate::observe::judge::gives_names(&source) {
            return Ok(());
        }
        self.by(entry.own, || {
            entry.search()?;
            entry.is_free()?;
            entry.is_writable_mount()
        })?;
        if mount_id(source.as_fd())? != entry.mount()? {
            return Err(Errno::EXDEV);
        }
        let found = fstat(&source)?;
        let own = self.owns(&source, stage) || found.st_uid == self.account.as_raw();
        if !own && are_hardlinks_protected() && !is_safe_to_link(&found, from) {
            return Err(Errno::EPERM);
        }
        self.by(entry.own, || entry.take_name())?;
        let bound = self.by(own, || has(&from.text, IMMUTABLE | APPEND)) || is(&found, SFlag::S_IFDIR);
        if bound { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// A name is taken away, on a mount that can be written.
    fn goes(&self, entry: &Entry<'_>, stage: Pid) -> Result<(), Errno> {
        let directory = self.by(entry.own, || {
            entry.stat()?;
            access(&entry.parent, libc::W_OK | libc::X_OK, true)?;
            stat(entry.parent.as_c_str())
        })?;
        let sticky = directory.st_mode & Mode::S_ISVTX.bits() != 0;
        let of_directory = entry.own || directory.st_uid == self.account.as_raw();
        if sticky && !of_directory && !self.owns_object(entry, stage) {
            return Err(Errno::EPERM);
        }
        let bound = self.by(entry.own, || has(&entry.parent, APPEND) || has(&entry.name.text, IMMUTABLE | APPEND));
        if bound { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether what has the name would be the command's own.
    fn owns_object(&self, entry: &Entry<'_>, stage: Pid) -> bool {
        let name = Name { text: entry.name.text.clone(), follow: false, held: None };
        let Ok(object) = self.as_root(|| pin(&name)).or_else(|_| pin(&name)) else { return false };
        self.owns(&object, stage) || fstat(&object).is_ok_and(|found| found.st_uid == self.account.as_raw())
    }

    /// Whether a file that is there may not be opened with O_CREAT for whose it and its directory are.
    fn is_kept_by_sticky(&self, name: &Name, stage: Pid) -> bool {
        let Some(entry) = self.entry(name, stage) else { return false };
        let (Ok(directory), Ok(file)) = (stat(entry.parent.as_c_str()), stat(name.text.as_c_str())) else {
            return false;
        };
        // What is followed here was put in the way since the name was found.
        !self.owns_object(&entry, stage) && is_anothers_in_sticky(&directory, &file, self.account.as_raw())
    }
}

impl Entry<'_> {
    /// Nothing is looked up in a directory that may not be searched.
    fn search(&self) -> Result<(), Errno> {
        access(&self.parent, libc::X_OK, true)
    }

    fn stat(&self) -> Result<FileStat, Errno> {
        lstat(self.name.text.as_c_str())
    }

    fn is_free(&self) -> Result<(), Errno> {
        match self.stat() {
            Err(Errno::ENOENT) => Ok(()),
            Ok(_) => Err(Errno::EEXIST),
            Err(errno) => Err(errno),
        }
    }

    fn is_writable_mount(&self) -> Result<(), Errno> {
        let read_only = statvfs(self.parent.as_c_str())?.flags().contains(FsFlags::ST_RDONLY);
        if read_only { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// A name that is free is given to something.
    fn take_name(&self) -> Result<(), Errno> {
        self.is_writable_mount()?;
        access(&self.parent, libc::W_OK | libc::X_OK, true)
    }

    fn mount(&self) -> Result<u64, Errno> {
        mount_id(self.directory.as_ref().ok_or(Errno::ENOENT)?.as_fd())
    }

    fn is_same_directory(&self, other: &Entry<'_>) -> bool {
        let of = |entry: &Entry<'_>| entry.directory.as_ref().and_then(|directory| fstat(directory).ok());
        of(self).zip(of(other)).is_some_and(|(one, other)| is_same(&one, &other))
    }
}

fn is_same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether anybody who may read and write it may give a file another name (fs/namei.c, `safe_hardlink_source`).
fn is_safe_to_link(found: &FileStat, name: &Name) -> bool {
    let has = |bits: Mode| found.st_mode & bits.bits() == bits.bits();
    let privileged = has(Mode::S_ISUID) || has(Mode::S_ISGID | Mode::S_IXGRP);
    is(found, SFlag::S_IFREG) && !privileged && access(&name.text, libc::R_OK | libc::W_OK, name.follow).is_ok()
}
