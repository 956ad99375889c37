//! What a caller's place leads to, pinned: the object itself, or the directory of a name. From then on nobody can put
//! something else in its place.

use super::Looked;
use crate::confine::landlock::Barrier;
use crate::observe::act::Place;
use crate::observe::caller::{Name, Unread};
use crate::observe::walk::{self, path_of, pin_within};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, ResolveFlag, openat, readlink};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A name in a directory that is held.
#[derive(Debug)]
pub(super) struct Entry {
    /// The directory.
    pub directory: OwnedFd,
    /// Its path.
    pub above: PathBuf,
    /// The name; `None` where the last component is `.`, `..` or the root.
    pub name: Option<Vec<u8>>,
    /// Whether a slash follows it.
    pub slash: bool,
}

impl Entry {
    /// What has the name now, links not followed. EACCES where the directory may not be searched.
    pub fn stat(&self) -> Result<FileStat, Errno> {
        let name = self.name.as_deref().unwrap_or(b".");
        fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Whether the directory may be searched, without which no name in it is looked up.
    pub fn is_searchable(&self) -> bool {
        fstatat(&self.directory, ".", AtFlags::empty()) != Err(Errno::EACCES)
    }

    /// The path of the name.
    pub fn path(&self) -> PathBuf {
        self.name.as_deref().map_or_else(|| self.above.clone(), |name| self.above.join(OsStr::from_bytes(name)))
    }
}

/// The path of a held object by which it is judged: of one that has no name any more the one that it had.
pub(super) fn path_of_object(object: &OwnedFd) -> Option<PathBuf> {
    let path = path_of(object.as_fd())?;
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(had) if !is_at(object, &path) => Some(PathBuf::from(std::ffi::OsString::from_vec(had.to_vec()))),
        _ => Some(path),
    }
}

/// Whether an object still has this name.
fn is_at(object: &OwnedFd, path: &Path) -> bool {
    nix::sys::stat::lstat(path).is_ok_and(|named| is_same(object, &named))
}

fn is_same(object: &OwnedFd, named: &FileStat) -> bool {
    fstat(object).is_ok_and(|found| (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino))
}

impl Looked<'_> {
    /// What a place leads to, or the kernel's errno for the way there.
    pub(in crate::observe) fn object(&self, place: &Place) -> Result<Result<OwnedFd, Errno>, Unread> {
        let held = match self.caller.hold(place.base) {
            Err(Unread::Form) => return Ok(Err(Errno::EBADF)),
            held => held?,
        };
        if place.given.is_empty() {
            return Ok(Ok(held));
        }
        match pin_within(held.as_fd(), &place.given, place.follow, ResolveFlag::RESOLVE_NO_MAGICLINKS.bits()) {
            Ok(object) if !is_own(&object) => Ok(Ok(object)),
            // What is refused or not there may be so for this process alone, and a link that jumps is to be followed as the
            // caller's.
            Ok(_) | Err(_) => self.walked(place),
        }
    }

    fn walked(&self, place: &Place) -> Result<Result<OwnedFd, Errno>, Unread> {
        let name = self.walkable(place)?;
        let found = match walk::walk(self.caller, &name) {
            Ok(found) if found.hidden => return Err(Unread::Closed),
            Ok(found) => found,
            Err(errno) => return Ok(Err(errno)),
        };
        let object = match found.rest.as_slice() {
            [] => found.at,
            // Every link has been followed: one that is met now has been put there meanwhile.
            rest => match pin_within(found.at.as_fd(), rest, false, ResolveFlag::RESOLVE_NO_MAGICLINKS.bits()) {
                Ok(object) => object,
                Err(errno) => return Ok(Err(errno)),
            },
        };
        let stat = fstat(&object).map_err(|errno| Unread::Failed("fstat", errno))?;
        if place.given.ends_with(b"/") && !walk::is(&stat, SFlag::S_IFDIR) {
            return Ok(Err(Errno::ENOTDIR));
        }
        Ok(if name.follow && walk::is(&stat, SFlag::S_IFLNK) { Err(Errno::ELOOP) } else { Ok(object) })
    }

    /// A name of a place by which it can be walked; a slash at its end has a link followed.
    pub(super) fn walkable(&self, place: &Place) -> Result<Name, Unread> {
        self.caller.find_closed();
        let name = self.caller.name(place)?;
        Ok(Name { follow: name.follow || place.given.ends_with(b"/"), ..name })
    }

    /// The directory of a place's last component, and its name there.
    pub(super) fn entry(&self, place: &Place) -> Result<Result<Entry, Errno>, Unread> {
        let text = place.given.as_slice();
        let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let start = text[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, last) = (&text[..start], &text[start..end]);
        let given = match (above, last) {
            // A path of slashes alone is the root's.
            (_, b"") if !text.is_empty() => b"/".to_vec(),
            (b"", _) => Vec::new(),
            _ => above.to_vec(),
        };
        let above = Place { given, follow: true, ..place.clone() };
        let directory = match self.object(&above)? {
            Ok(directory) => directory,
            Err(errno) => return Ok(Err(errno)),
        };
        self.entry_of(directory, last, end < text.len())
    }

    /// The directory and the name that a place's own links lead to.
    pub(super) fn entry_followed(&self, place: &Place) -> Result<Result<Entry, Errno>, Unread> {
        let found = match walk::walk(self.caller, &self.walkable(place)?) {
            Ok(found) if found.hidden => return Err(Unread::Closed),
            Ok(found) => found,
            Err(errno) => return Ok(Err(errno)),
        };
        if found.rest.contains(&b'/') {
            return Ok(Err(Errno::ENOENT));
        }
        self.entry_of(found.at, &found.rest, place.given.ends_with(b"/"))
    }

    /// The directory in which a place has this object under its own name.
    pub(super) fn directory_of(&self, place: &Place, object: &OwnedFd) -> Option<OwnedFd> {
        let found = walk::walk(self.caller, &self.walkable(place).ok()?).ok()?;
        let named = fstatat(&found.at, found.rest.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        is_same(object, &named).then_some(found.at)
    }

    fn entry_of(&self, directory: OwnedFd, last: &[u8], slash: bool) -> Result<Result<Entry, Errno>, Unread> {
        let stat = fstat(&directory).map_err(|errno| Unread::Failed("fstat", errno))?;
        let Some(above) = path_of_object(&directory).filter(|_| walk::is(&stat, SFlag::S_IFDIR)) else {
            return Ok(Err(Errno::ENOTDIR));
        };
        let name = Some(last.to_vec()).filter(|name| !matches!(name.as_slice(), b"" | b"." | b".."));
        Ok(Ok(Entry { directory, above, name, slash }))
    }
}

/// Whether an object is of this process's own directory in /proc: the name meant the caller's.
fn is_own(object: &OwnedFd) -> bool {
    path_of(object.as_fd()).is_some_and(|path| walk::is_of_this_process(&path))
}

/// faccessat2(2) with the ids by which the kernel judges the command, on an object that is held.
pub(super) fn access(object: &OwnedFd, mode: i32) -> Result<(), Errno> {
    use crate::sys::call::{Argument, call};
    let [mode, flags] = [mode, libc::AT_EACCESS | libc::AT_EMPTY_PATH].map(|number| Argument::Number(number as u64));
    call(libc::SYS_faccessat2, [Argument::Fd(object.as_fd()), Argument::Text(c""), mode, flags]).map(|_| ())
}

/// Whether an object is on a mount of this process's namespace, where its path is its place: what is in memory alone has a
/// path too, and no place (memfd_create(2), shmget(2)).
pub(super) fn is_judged(object: &OwnedFd) -> bool {
    path_of(object.as_fd()).is_some_and(|path| !path.as_os_str().as_bytes().ends_with(b" (deleted)"))
        || is_mounted(object)
}

fn is_mounted(object: &OwnedFd) -> bool {
    let Ok(id) = crate::sys::call::mount_id(object.as_fd()) else { return true };
    let mounts = crate::install::mounts::read_mountinfo();
    mounts.map_or(true, |mounts| mounts.iter().any(|mount| u64::from(mount.id) == id))
}

/// Whether the barrier protects an object, by its own path; `above` is the directory that it has been found in. What cannot
/// be told is protected.
pub(super) fn is_protected(barrier: &Barrier, object: &OwnedFd, above: impl FnOnce() -> Option<OwnedFd>) -> bool {
    match readlink(format!("/proc/self/fd/{}", object.as_raw_fd()).as_str()) {
        Ok(text) if text.as_bytes().starts_with(b"/") => {
            path_of_object(object).is_none_or(|path| barrier.protects(&path)) && is_judged(object)
        }
        // A pipe, a socket and their like, which have none.
        Ok(_) => is_mounted(object),
        // One that is longer than a page. A path of the plan is not, so that its directory's will do.
        Err(Errno::ENAMETOOLONG) => {
            let directory = fstat(object).is_ok_and(|stat| walk::is(&stat, SFlag::S_IFDIR));
            let from = if directory { object.try_clone().ok() } else { above() };
            from.and_then(nearest_path).is_none_or(|path| barrier.protects(&path))
        }
        Err(_) => true,
    }
}

/// The path of the nearest directory above one whose path is too long.
fn nearest_path(mut directory: OwnedFd) -> Option<PathBuf> {
    /// Each level is two bytes of a path at the least, and no page is filled without one that has a path.
    const LEVELS: usize = 65_536;
    for _ in 0..LEVELS {
        if let Some(path) = path_of(directory.as_fd()) {
            return Some(path);
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        directory = openat(&directory, "..", flags, Mode::empty()).ok()?;
    }
    None
}
