//! The real git directory, as what is carried back is written into it: by descriptors and past no link, so that whoever could
//! write there before has nothing written elsewhere; what is new belongs to whom the directory does; and nothing is named before
//! what it names is on disk.

use crate::git::objects::Objects;
use crate::git::place::Place;
use crate::git::{GitError, form, io, write};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A git directory that is written.
pub(super) struct Real {
    /// The same, to be read.
    pub place: Place,
    directory: OwnedFd,
    owner: (Uid, Gid),
    mode: u32,
}

fn failed(path: &Path) -> impl FnOnce(Errno) -> GitError {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::ELOOP => form(&path, "it is a symbolic link, and none is followed; accepted: files and directories"),
        errno => io(&path)(errno.into()),
    }
}

/// Opens what is beneath a directory, and on the way to it no link.
fn open_in(at: impl AsFd, name: &Path, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK)
        .mode(mode)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH);
    openat2(at, name, how)
}

impl Real {
    /// Opens the repository `below` a git directory, whose owner and permissions what is new has too.
    pub fn open(directory: &Path, below: &str) -> Result<Real, GitError> {
        let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let top = openat2(AT_FDCWD, directory, how).map_err(failed(directory))?;
        let like = fstat(&top).map_err(failed(directory))?;
        let path = directory.join(below);
        let own = match below {
            "" => top,
            below => open_in(&top, Path::new(below), OFlag::O_DIRECTORY, Mode::empty()).map_err(failed(&path))?,
        };
        let owner = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
        Ok(Real { place: Place::new(path), directory: own, owner, mode: like.st_mode })
    }

    /// A directory beneath, made where it is missing.
    fn directory(&self, below: &str) -> Result<(OwnedFd, PathBuf), GitError> {
        let mut at = self.directory.try_clone().map_err(io(&self.place.path))?;
        let mut path = self.place.path.clone();
        for name in below.split('/').filter(|name| !name.is_empty()) {
            path.push(name);
            let name = Path::new(name);
            let open = |at: &OwnedFd| open_in(at, name, OFlag::O_DIRECTORY, Mode::empty());
            at = match open(&at) {
                Err(Errno::ENOENT) => {
                    mkdirat(&at, name, Mode::S_IRWXU).map_err(failed(&path))?;
                    let made = open(&at).map_err(failed(&path))?;
                    self.own(&made, 0o777, &path)?;
                    made
                }
                opened => opened.map_err(failed(&path))?,
            };
        }
        Ok((at, path))
    }

    /// Gives a file the directory's owner, and of its permissions those that are among `mode`.
    fn own(&self, file: impl AsFd, mode: u32, path: &Path) -> Result<(), GitError> {
        let owned = fchown(file.as_fd(), Some(self.owner.0), Some(self.owner.1));
        let mode = Mode::from_bits_truncate(self.mode & mode);
        owned.and_then(|()| fchmod(file.as_fd(), mode)).map_err(failed(path))
    }

    /// Puts another content in a file's place as git does: under its lock, if it is still what it should be.
    pub fn replace(
        &self,
        name: &str,
        content: &[u8],
        is_as_given: impl FnOnce() -> Result<bool, GitError>,
    ) -> Result<(), GitError> {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        let (directory, path) = self.directory(above)?;
        let (lock, path) = (format!("{last}.lock"), path.join(last));
        let lock = Path::new(&lock);
        let locked = path.with_file_name(lock);
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
        let file = open_in(&directory, lock, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed(&locked))?;
        let mut file = File::from(file);
        let written = is_as_given().and_then(|as_given| {
            if !as_given {
                return Err(form(&path, "it was changed in the real repository meanwhile"));
            }
            file.write_all(content).map_err(io(&locked))?;
            self.own(&file, 0o666, &locked)?;
            file.sync_all().map_err(io(&locked))?;
            // A directory that is empty is left of references that are gone.
            let _not_empty_or_none = unlinkat(&directory, last, UnlinkatFlags::RemoveDir);
            renameat(&directory, lock, &directory, last).map_err(failed(&path))
        });
        match written {
            Ok(()) => nix::unistd::fsync(&directory).map_err(failed(&path)),
            Err(error) => {
                unlinkat(&directory, lock, UnlinkatFlags::NoRemoveDir).map_err(failed(&locked))?;
                Err(error)
            }
        }
    }

    /// Writes some objects of a command's as one pack `NAME.pack`, each held against its name.
    pub fn add_pack(&self, name: &str, objects: &Objects, numbers: &[u32], limit: u64) -> Result<(), GitError> {
        let (directory, path) = self.directory("objects/pack")?;
        // As git names what it has not finished: its own cleaning takes it away if this run is killed here.
        let unfinished = format!("tmp_pack_{}", std::process::id());
        let parts =
            [(unfinished.clone(), format!("{name}.pack")), (format!("{unfinished}.idx"), format!("{name}.idx"))];
        let clear = || {
            parts.iter().try_for_each(|(from, _)| {
                match unlinkat(&directory, from.as_str(), UnlinkatFlags::NoRemoveDir) {
                    Ok(()) | Err(Errno::ENOENT) => Ok(()),
                    Err(errno) => Err(failed(&path.join(from))(errno)),
                }
            })
        };
        clear()?;
        // By the descriptor: what the path leads to by now may be another directory.
        let held = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let written = write::pack(&held.join(&unfinished), objects, numbers, true, limit).and_then(|()| {
            // The index is last: without one a pack is nothing.
            for (from, to) in &parts {
                let file = open_in(&directory, Path::new(from), OFlag::O_RDONLY, Mode::empty());
                let file = file.map_err(failed(&path.join(from)))?;
                self.own(&file, 0o444, &path.join(from))?;
                nix::unistd::fsync(&file).map_err(failed(&path.join(from)))?;
                renameat(&directory, from.as_str(), &directory, to.as_str()).map_err(failed(&path.join(to)))?;
            }
            nix::unistd::fsync(&directory).map_err(failed(&path))
        });
        written.map_err(|error| {
            let _said_with_the_other = clear();
            match error {
                GitError::Io { path: at, cause } if at.starts_with(&held) => {
                    GitError::Io { path: path.join(at.strip_prefix(&held).unwrap_or(&at)), cause }
                }
                error => error,
            }
        })
    }
}
