//! Where a name leads: its parent directory and its last component, found one component at a time as path_resolution(7)
//! tells, so that a refusal can be recorded under one spelling whatever the caller wrote.
//!
//! Links that mean the process that looks (/proc/self, /proc/thread-self) are taken to mean the caller. No verdict comes
//! from here: what is asked of the kernel is asked by the caller's own spelling, save where that means another process.

use super::act::{Base, Place};
use super::caller::{Caller, Name, Unread};
use super::threads;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlink};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How many symbolic links one path may have (path_resolution(7), `MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Where a name leads.
#[derive(Debug)]
pub struct Found {
    /// The deepest directory that was reached, or the object itself where `rest` is empty.
    pub at: OwnedFd,
    /// What comes beneath it: one component where it was reached whole, more where it was not.
    pub rest: Vec<u8>,
    /// Whether the way led over a link that means the process that looks, or over one that only its own process can see.
    pub by_self: bool,
    /// Whether it ended where only the caller sees on.
    pub hidden: bool,
}

impl Found {
    /// The path of the object as the sandbox's file system has it, if it can be named.
    pub fn path(&self) -> Option<PathBuf> {
        let mut path = path_of(self.at.as_fd())?;
        if !self.rest.is_empty() {
            path.push(OsStr::from_bytes(&self.rest));
        }
        Some(path)
    }

    /// A name of ours for what was found.
    pub fn into_name(self, follow: bool) -> Option<Name> {
        let mut text = format!("/proc/self/fd/{}", self.at.as_raw_fd()).into_bytes();
        let base = self.rest.is_empty();
        if !base {
            text.push(b'/');
            text.extend_from_slice(&self.rest);
        }
        Some(Name { text: CString::new(text).ok()?, follow: follow || base, held: Some(self.at) })
    }
}

/// The path of what a descriptor of ours refers to.
pub fn path_of(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_str()).ok()?.into_vec();
    path.starts_with(b"/").then(|| PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// The flags that open no more than an object's place.
fn place_only(follow: bool) -> OFlag {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    if follow { flags } else { flags | OFlag::O_NOFOLLOW }
}

fn pinned(base: BorrowedFd<'_>, name: &[u8], follow: bool) -> Result<OwnedFd, Errno> {
    openat(base, name, place_only(follow), Mode::empty())
}

/// Whether what was found is of this kind.
pub fn is(stat: &FileStat, kind: SFlag) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

/// Whether an object is of the process table's file system (proc(5)).
pub fn is_proc(directory: BorrowedFd<'_>) -> bool {
    fstatfs(directory).is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
}

/// Whether a place means to this process what it means to the caller: nothing on the way to it is one of the links of
/// /proc that jump. Where the way ends nowhere, it may have been one that is not there for this process.
pub fn is_plain(caller: &Caller, place: &Place) -> bool {
    if place.given.is_empty() {
        return true;
    }
    let held = match place.base {
        Base::Root => None,
        base => match caller.hold(base) {
            Ok(held) => Some(held),
            // There is no such descriptor, or no such caller: the kernel says so.
            Err(unread) => return matches!(unread, Unread::Form | Unread::Fails(_) | Unread::Gone),
        },
    };
    let look = |path: &[u8], follow: bool| {
        let base = held.as_ref().map_or(nix::fcntl::AT_FDCWD, AsFd::as_fd);
        pin_within(base, path, follow, ResolveFlag::RESOLVE_NO_MAGICLINKS.bits())
    };
    // A last component that is not followed leads nowhere else.
    if let Some((parent, _)) = split(&place.given).filter(|_| !place.follow) {
        return look(parent, true).is_ok();
    }
    match look(&place.given, place.follow) {
        Ok(_) => true,
        Err(Errno::ENOENT) => {
            let Some((parent, last)) = split(&place.given) else { return false };
            let dangles = |parent: &OwnedFd| fstatat(parent, last, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
            look(parent, true).is_ok_and(|parent| !(is_proc(parent.as_fd()) || place.follow && dangles(&parent)))
        }
        Err(_) => false,
    }
}

/// Walks a name of a caller's. What cannot be reached is told as far as it was.
pub fn walk(caller: &Caller<'_>, name: &Name) -> Result<Found, Errno> {
    let text = name.text.as_bytes();
    // A name relative to a base goes through our own /proc entry of it first: one jump that is not the caller's.
    let (mut at, path) = match &name.held {
        Some(held) => {
            let prefix = format!("/proc/self/fd/{}", held.as_raw_fd());
            (held.try_clone().map_err(|_| Errno::EMFILE)?, text.strip_prefix(prefix.as_bytes()).unwrap_or_default())
        }
        // Where a caller is known not to be dumpable its bases are held, and such a spelling is its own.
        None => match caller_base(caller, text).filter(|_| !caller.is_closed()) {
            Some((base, rest)) => (pinned(nix::fcntl::AT_FDCWD, base, true)?, rest),
            None => (pinned(nix::fcntl::AT_FDCWD, b"/", true)?, text),
        },
    };
    let mut left: VecDeque<Vec<u8>> = components(path).collect();
    let mut links = 0;
    let mut by_self = false;
    while let Some(component) = left.pop_front() {
        let last = left.is_empty();
        let component = match component.as_slice() {
            own @ (b"self" | b"thread-self") if is_proc(at.as_fd()) => {
                by_self = true;
                go_by(&mut left, &threads::proc_name(caller.tid, own));
                continue;
            }
            _ => component,
        };
        let found = match pinned(at.as_fd(), &component, false) {
            Ok(found) => found,
            // The directory of descriptors of a caller that is not dumpable is closed to all but itself.
            Err(Errno::EACCES) if caller.is_closed() && is_callers(caller, &at) => {
                match own_descriptor(caller, &at, &component) {
                    Some(object) if name.follow || !last => (by_self, at) = (true, object),
                    _ => return Ok(Found { hidden: true, ..ended(at, &component, &left, by_self) }),
                }
                continue;
            }
            Err(_) => return Ok(ended(at, &component, &left, by_self)),
        };
        let Ok(stat) = fstat(&found) else { return Ok(ended(at, &component, &left, by_self)) };
        if (name.follow || !last) && is(&stat, SFlag::S_IFLNK) {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP);
            }
            if is_proc(at.as_fd()) && links_to_object(&at) {
                // This process may follow its own, as nobody else may (ptrace(2)).
                if path_of(at.as_fd()).is_some_and(|path| is_of_this_process(&path)) {
                    return Err(Errno::EACCES);
                }
                // It jumps to an object; its text is for people.
                let jump = || pinned(at.as_fd(), &component, true);
                // The caller's sight is of its own process: what others have open is for the kernel to show, or not.
                let own = is_callers(caller, &at);
                by_self |= own && caller.is_closed();
                let jumped = if own { caller.with_sight(jump) } else { Ok(jump()) };
                let jumped = jumped.ok().and_then(Result::ok).filter(|_| caller.still_waits().is_ok());
                at = match jumped.and_then(|object| caller.ours(object).ok()) {
                    Some(object) => object,
                    None => return Ok(ended(at, &component, &left, by_self)),
                };
                continue;
            }
            let target = nix::fcntl::readlinkat(&at, component.as_slice())?.into_vec();
            if target.starts_with(b"/") {
                at = pinned(nix::fcntl::AT_FDCWD, b"/", true)?;
            }
            go_by(&mut left, &target);
            continue;
        }
        if last && component != b".." && component != b"." {
            return Ok(Found { at, rest: component, by_self, hidden: false });
        }
        at = found;
    }
    Ok(Found { at, rest: Vec::new(), by_self, hidden: false })
}

/// Where a walk ends that cannot go on.
fn ended(at: OwnedFd, component: &[u8], left: &VecDeque<Vec<u8>>, by_self: bool) -> Found {
    let rest = std::iter::once(component).chain(left.iter().map(Vec::as_slice)).collect::<Vec<_>>().join(&b'/');
    Found { at, rest, by_self, hidden: false }
}

/// Whether links in this directory of /proc jump: all do below a process's own directory, and none directly in /proc, in
/// a process's directory but for those that show what it has open.
fn links_to_object(directory: &OwnedFd) -> bool {
    let path = path_of(directory.as_fd()).unwrap_or_default();
    path.components().count() > 2
}

/// What one of the caller's descriptors refers to, by its name in /proc/PID/fd or /proc/PID/task/TID/fd.
fn own_descriptor(caller: &Caller<'_>, directory: &OwnedFd, name: &[u8]) -> Option<OwnedFd> {
    let path = path_of(directory.as_fd())?;
    let number = std::str::from_utf8(name).ok()?.parse().ok()?;
    let of_descriptors = path.file_name().is_some_and(|name| name == "fd") && is_callers(caller, directory);
    of_descriptors.then(|| caller.hold(Base::Fd(number)).ok())?
}

/// Whether a directory of /proc is one of the caller's process, or lies beneath it.
pub fn is_callers(caller: &Caller<'_>, directory: &OwnedFd) -> bool {
    let path = path_of(directory.as_fd()).unwrap_or_default();
    let owner = path.strip_prefix("/proc").ok().and_then(|entry| entry.iter().next()?.to_str()?.parse().ok());
    let process = threads::process_of(caller.tid);
    process.is_some() && owner.is_some_and(|tid| threads::process_of(Pid::from_raw(tid)) == process)
}

/// Whether a path is that of this process's directory in /proc, or lies beneath it.
pub fn is_of_this_process(path: &Path) -> bool {
    path.starts_with(format!("/proc/{}", std::process::id()))
}

/// The /proc entry of the caller's by which a relative name begins, and what comes after it.
fn caller_base<'a>(caller: &Caller<'_>, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let own = format!("/proc/{}/", caller.tid);
    let after = text.strip_prefix(own.as_bytes())?;
    let taken = if after.starts_with(b"cwd") {
        3
    } else {
        let digits = after.strip_prefix(b"fd/")?.iter().take_while(|b| b.is_ascii_digit()).count();
        3 + digits
    };
    let end = own.len() + taken;
    (text.len() == end || text[end] == b'/').then(|| text.split_at(end))
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let parts: Vec<Vec<u8>> =
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect();
    parts.into_iter()
}

/// Puts a link's target before what is left of the way.
fn go_by(left: &mut VecDeque<Vec<u8>>, target: &[u8]) {
    components(target).rev().for_each(|part| left.push_front(part));
}

/// The parent of a name and its last component, for objects that may not be there; `None` where the last one is no name
/// of its own.
pub fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().rposition(|byte| *byte != b'/')? + 1;
    let text = &text[..end];
    let start = text.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let last = &text[start..];
    if last == b"." || last == b".." {
        return None;
    }
    // The slash stays, so that the parent is a directory or nothing.
    Some((if start == 0 { b"." } else { &text[..start] }, last))
}

/// A name of ours for an object that is held.
pub fn name_of(object: OwnedFd) -> Result<Name, Unread> {
    let text = CString::new(format!("/proc/self/fd/{}", object.as_raw_fd())).map_err(|_| Unread::Form)?;
    Ok(Name { text, follow: true, held: Some(object) })
}

/// [`pin`] with `RESOLVE_*` of openat2(2).
pub fn pin_within(base: BorrowedFd<'_>, path: &[u8], follow: bool, resolve: u64) -> Result<OwnedFd, Errno> {
    openat2(base, path, OpenHow::new().flags(place_only(follow)).resolve(ResolveFlag::from_bits_retain(resolve)))
}

/// What [`pin_within`] pins, or its directory and the name that is not there.
pub fn found_within(base: BorrowedFd<'_>, path: &[u8], follow: bool, resolve: u64) -> Option<Found> {
    match pin_within(base, path, follow, resolve) {
        Ok(at) => Some(Found { at, rest: Vec::new(), by_self: false, hidden: false }),
        Err(_) => {
            let (parent, last) = split(path)?;
            let at = pin_within(base, parent, true, resolve).ok()?;
            Some(Found { at, rest: last.to_vec(), by_self: false, hidden: false })
        }
    }
}

/// The place that a path leads to.
pub fn pin_path(path: &CStr) -> Result<OwnedFd, Errno> {
    openat(nix::fcntl::AT_FDCWD, path, place_only(true), Mode::empty())
}

/// `O_PATH` opens fail alike for all: only search permission matters.
pub fn pin(name: &Name) -> Result<OwnedFd, Errno> {
    openat(nix::fcntl::AT_FDCWD, name.text.as_c_str(), place_only(name.follow), Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_splits_into_its_parent_and_its_last_component() {
        let split = |text: &'static [u8]| split(text).map(|(a, b)| (a.to_vec(), b.to_vec()));
        let pair = |a: &[u8], b: &[u8]| Some((a.to_vec(), b.to_vec()));
        assert_eq!(split(b"/usr/x"), pair(b"/usr/", b"x"));
        assert_eq!(split(b"/x//"), pair(b"/", b"x"));
        assert_eq!(split(b"x"), pair(b".", b"x"));
        for none in [&b"/"[..], b"", b"/usr/..", b".", b"a/./"] {
            assert_eq!(split(none), None);
        }
    }

    proptest! {
        #[test]
        fn a_name_is_its_parent_and_its_last_component(text in "[a./]{0,12}") {
            let trimmed = text.trim_end_matches('/');
            match split(text.as_bytes()) {
                None => prop_assert!(trimmed.is_empty() || trimmed.rsplit('/').next().is_some_and(|l| [".", ".."].contains(&l))),
                Some((parent, last)) => {
                    prop_assert!(!last.contains(&b'/') && !last.is_empty() && ![&b"."[..], b".."].contains(&last));
                    let joined = if trimmed.contains('/') { [parent, last].concat() } else { last.to_vec() };
                    prop_assert_eq!(joined, trimmed.as_bytes());
                    prop_assert!(parent == b"." || parent.ends_with(b"/"));
                }
            }
        }
    }
}
