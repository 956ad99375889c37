//! What stands for protected paths that do not exist: files and directories that the command finds mounted read-only and
//! cannot make its own. They are on disk for as long as a run lives that needs them, and are named in a file of the run's in
//! the state directory before they are made; so the next run removes what one that was killed has left.
//!
//! A run's file is locked (flock(2)) by the supervisor and the stage while either lives, which is how others tell that it
//! does, whatever namespaces they are in. What several runs need goes with the last of them. The directory is locked while
//! one of them looks and changes.

use crate::ledger::LedgerError;
use crate::ledger::target::{self, Made};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const EXTENSION: &str = "placeholders";
/// The first entry; what starts otherwise was written by another version, or torn before anything was made.
const FORM: &[u8] = b"ringfence placeholders 1";
/// The last.
const END: &[u8] = b"end";

/// One path that must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where, without symbolic links; the directory that holds it exists.
    pub path: PathBuf,
    /// A file's content; `None` for a directory.
    pub content: Option<&'static [u8]>,
}

/// Why it could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceholderError {
    /// A call failed.
    #[error("placeholder: {call} on {path}: {errno}", path = path.display())]
    Call {
        /// The call.
        call: &'static str,
        /// Its object.
        path: PathBuf,
        /// Its errno.
        errno: Errno,
    },
    /// The run's file could not be made.
    #[error("placeholders: {0}")]
    File(#[from] LedgerError),
}

fn failed<E: Into<std::io::Error>>(call: &'static str, path: &Path) -> impl FnOnce(E) -> PlaceholderError {
    let path = path.to_owned();
    move |e| PlaceholderError::Call { call, path, errno: Errno::from_raw(e.into().raw_os_error().unwrap_or(libc::EIO)) }
}

/// Those of one run, while it lives.
#[derive(Debug)]
pub struct Placeholders {
    directory: OwnedFd,
    place: PathBuf,
    name: OsString,
    file: OwnedFd,
    made: Option<Made>,
    paths: Vec<PathBuf>,
}

/// Removes what runs have left that are over, if there is such a directory.
pub fn sweep(place: &Path) -> Result<(), PlaceholderError> {
    match open(place, DIRECTORY, Mode::empty()) {
        Ok(directory) => {
            let held = lock(&directory, place)?;
            living(&directory, place, None)?;
            drop(held);
            Ok(())
        }
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
        Err(errno) => Err(failed("open", place)(errno)),
    }
}

impl Placeholders {
    /// Makes those of `missing` that are not there, and counts on those that another living run has made. `present` says
    /// which paths are there: of those only what is another run's is of interest.
    pub fn put_up(
        place: &Path,
        run: &str,
        missing: &[Wanted],
        present: &[PathBuf],
    ) -> Result<Placeholders, PlaceholderError> {
        let path = place.join(run).with_extension(EXTENSION);
        let (file, made) = target::create(&path)?;
        let directory = open(place, DIRECTORY, Mode::empty()).map_err(failed("open", place))?;
        let held = lock(&directory, place)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        // Whoever looked before the lock was had may have taken it for a dead run's.
        if fstat(&file).map_err(failed("fstat", &path))?.st_nlink == 0 {
            return Err(failed("open", &path)(Errno::EBUSY));
        }
        // It goes with the last descriptor of this open file, whoever has that.
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed("flock", &path))?;
        let others = living(&directory, place, Some(&name))?;
        let shared = present.iter().filter(|path| others.contains(*path)).cloned();
        let paths: Vec<PathBuf> = missing.iter().map(|wanted| wanted.path.clone()).chain(shared).collect();
        let written = file.try_clone().and_then(|fd| File::from(fd).write_all(&to_bytes(&paths)));
        let placeholders = Placeholders { directory, place: place.to_owned(), name, file, made: Some(made), paths };
        let outcome = written.map_err(failed("write", &path)).and_then(|()| missing.iter().try_for_each(make));
        drop(held);
        match outcome {
            Ok(()) => Ok(placeholders),
            Err(error) => {
                placeholders.remove()?;
                Err(error)
            }
        }
    }

    /// The directory of the runs' files, to be kept from the command.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The descriptors that the stage keeps.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.directory.as_raw_fd(), self.file.as_raw_fd()]
    }

    /// Removes what no other living run needs, and the run's file. What is gone already is no fault.
    pub fn remove(mut self) -> Result<(), PlaceholderError> {
        self.clear()?;
        match self.made.take() {
            Some(made) => Ok(made.remove(&self.file)?),
            None => Ok(()),
        }
    }

    /// The same in the stage, where they are mount points, which nobody can remove: they are none first.
    pub fn remove_from_inside(&self) -> Result<(), PlaceholderError> {
        for path in &self.paths {
            match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                // Nothing is mounted there: the view was never made.
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(errno) => return Err(failed("umount2", path)(errno)),
            }
        }
        self.clear()
    }

    fn clear(&self) -> Result<(), PlaceholderError> {
        let held = lock(&self.directory, &self.place)?;
        let others = living(&self.directory, &self.place, Some(&self.name))?;
        let outcome = self.paths.iter().filter(|path| !others.contains(*path)).try_for_each(|path| take_away(path));
        let unlinked = outcome.and_then(|()| unlink(&self.directory, &self.name));
        drop(held);
        unlinked
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC).union(OFlag::O_NOFOLLOW);

/// Locks the directory by an open file of its own, so that the lock goes with the value.
fn lock(directory: &OwnedFd, place: &Path) -> Result<OwnedFd, PlaceholderError> {
    let own = openat(directory, ".", DIRECTORY, Mode::empty()).map_err(failed("openat", place))?;
    flock(&own, FlockOperation::LockExclusive).map_err(failed("flock", place))?;
    Ok(own)
}

/// The paths of all living runs but `own`; what those that are over have left is removed.
fn living(directory: &OwnedFd, place: &Path, own: Option<&OsStr>) -> Result<BTreeSet<PathBuf>, PlaceholderError> {
    let (mut alive, mut dead) = (BTreeSet::new(), Vec::new());
    let copy = openat(directory, ".", DIRECTORY, Mode::empty()).map_err(failed("openat", place))?;
    let mut entries = nix::dir::Dir::from_fd(copy).map_err(failed("fdopendir", place))?;
    let names: Vec<OsString> = entries
        .iter()
        .flatten()
        .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        .filter(|name| Path::new(name).extension() == Some(EXTENSION.as_ref()) && Some(name.as_os_str()) != own)
        .collect();
    for name in names {
        let path = place.join(&name);
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = match openat(directory, name.as_os_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => continue,
            Err(errno) => return Err(failed("openat", &path)(errno)),
        };
        let mut bytes = Vec::new();
        let copy = file.try_clone().map_err(failed("dup", &path))?;
        File::from(copy).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => dead.push((name, parse(&bytes).unwrap_or_default())),
            Err(rustix::io::Errno::WOULDBLOCK) => alive.extend(parse(&bytes).unwrap_or_default()),
            Err(errno) => return Err(failed("flock", &path)(errno)),
        }
    }
    for (name, paths) in dead {
        paths.iter().filter(|path| !alive.contains(*path)).try_for_each(|path| take_away(path))?;
        unlink(directory, &name)?;
    }
    Ok(alive)
}

fn unlink(directory: &OwnedFd, name: &OsStr) -> Result<(), PlaceholderError> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(failed("unlinkat", Path::new(name))(errno)),
    }
}

/// The mode by which a file of ours is told from one that somebody has written since: nobody may write it.
const MODE: Mode = Mode::S_IRUSR.union(Mode::S_IRGRP).union(Mode::S_IROTH);

fn make(wanted: &Wanted) -> Result<(), PlaceholderError> {
    let path = &wanted.path;
    let Some(content) = wanted.content else {
        // As programs want a directory to be that they put sockets into.
        return match mkdirat(AT_FDCWD, path, Mode::S_IRWXU) {
            // Another run has made it meanwhile, and this one counts on it too.
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(failed("mkdirat", path)(errno)),
        };
    };
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    match open(path, flags, MODE) {
        Ok(file) => {
            // Whatever the caller's umask.
            fchmod(&file, MODE).map_err(failed("fchmod", path))?;
            File::from(file).write_all(content).map_err(failed("write", path))
        }
        Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(failed("open", path)(errno)),
    }
}

/// Removes what is as it was made: an empty directory, or a file that nobody has written.
fn take_away(path: &Path) -> Result<(), PlaceholderError> {
    let stat = match fstatat(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        Err(errno) => return Err(failed("fstatat", path)(errno)),
    };
    let kind = stat.st_mode & SFlag::S_IFMT.bits();
    let flags = if kind == SFlag::S_IFDIR.bits() {
        UnlinkatFlags::RemoveDir
    } else if kind == SFlag::S_IFREG.bits() && stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o7777 == MODE.bits()
    {
        UnlinkatFlags::NoRemoveDir
    } else {
        return Ok(());
    };
    match unlinkat(AT_FDCWD, path, flags) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
        Err(errno) => Err(failed("unlinkat", path)(errno)),
    }
}

fn to_bytes(paths: &[PathBuf]) -> Vec<u8> {
    let entries = [FORM].into_iter().chain(paths.iter().map(|path| path.as_os_str().as_bytes())).chain([END]);
    entries.flat_map(|entry| entry.iter().copied().chain([0])).collect()
}

fn parse(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    let mut entries: Vec<&[u8]> = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0).collect();
    let whole = entries.len() >= 2 && entries.pop() == Some(END) && entries.remove(0) == FORM;
    whole.then(|| entries.iter().map(|entry| PathBuf::from(OsString::from_vec(entry.to_vec()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(top: &Path) -> [Wanted; 2] {
        [
            Wanted { path: top.join("file"), content: Some(b"x\n") },
            Wanted { path: top.join("directory"), content: None },
        ]
    }

    fn names(top: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(top)
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_is_read_and_what_is_torn_is_nothing() {
        let paths = vec![PathBuf::from("/a b"), PathBuf::from(OsString::from_vec(b"/\xff\n".to_vec()))];
        let bytes = to_bytes(&paths);
        assert_eq!(parse(&bytes), Some(paths));
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None, "torn at {length}");
        }
    }

    #[test]
    fn they_go_with_the_run_and_what_was_changed_since_stays() {
        let (top, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = state.path().join("runs");
        let up = Placeholders::put_up(&place, "a", &wanted(top.path()), &[]).unwrap();
        assert_eq!(names(top.path()), ["directory", "file"]);
        up.remove().unwrap();
        assert_eq!((names(top.path()).len(), place.exists()), (0, false));
        let up = Placeholders::put_up(&place, "a", &wanted(top.path()), &[]).unwrap();
        std::fs::write(top.path().join("directory/kept"), "").unwrap();
        std::fs::remove_file(top.path().join("file")).unwrap();
        std::fs::write(top.path().join("file"), "mine").unwrap();
        up.remove().unwrap();
        assert_eq!(names(top.path()), ["directory", "file"]);
    }

    #[test]
    fn what_two_runs_need_goes_with_the_last() {
        let (top, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Placeholders::put_up(state.path(), "a", &wanted(top.path()), &[]).unwrap();
        let present: Vec<PathBuf> = wanted(top.path()).map(|wanted| wanted.path).into();
        let second = Placeholders::put_up(state.path(), "b", &[], &present).unwrap();
        first.remove().unwrap();
        assert_eq!(names(top.path()), ["directory", "file"]);
        second.remove().unwrap();
        assert_eq!(names(top.path()).len() + names(state.path()).len(), 0);
    }

    #[test]
    fn what_a_killed_run_has_left_goes_with_the_next() {
        let (top, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let killed = Placeholders::put_up(state.path(), "a", &wanted(top.path()), &[]).unwrap();
        sweep(state.path()).unwrap();
        assert_eq!(names(top.path()), ["directory", "file"], "live: it lives");
        // As the kernel leaves it: its descriptors are closed, and nothing else is done.
        drop(killed);
        assert_eq!(names(top.path()), ["directory", "file"]);
        sweep(state.path()).unwrap();
        assert_eq!(names(top.path()).len() + names(state.path()).len(), 0);
    }
}
