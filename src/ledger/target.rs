//! Where a ledger is kept, and the making of its file.

use super::control_path::{Judge, walk};
use super::error::LedgerError;
use super::run_id::RunId;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, FdFlag, OFlag, fcntl, openat};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a ledger is kept.
#[derive(Debug)]
pub enum LedgerTarget {
    /// A file that does not exist yet.
    Path(PathBuf),
    /// A descriptor that the caller opened for writing: a file, a pipe, a stream socket or a character device. What is
    /// already in such a file, and who else writes to it, is the caller's affair.
    Fd(OwnedFd),
}

impl LedgerTarget {
    /// The target of `--ledger PATH|fd:N`. `adopt` takes ownership of an inherited descriptor by its number
    /// (`sys::adopt_inherited`). 0 to 2 are refused: they stay open in the command, which could write there.
    pub fn named(text: &OsStr, adopt: impl FnOnce(RawFd) -> nix::Result<OwnedFd>) -> Result<LedgerTarget, LedgerError> {
        let Some(number) = text.as_bytes().strip_prefix(b"fd:") else {
            return Ok(LedgerTarget::Path(PathBuf::from(text)));
        };
        let digits = std::str::from_utf8(number).ok().filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        match digits.and_then(|n| n.parse::<RawFd>().ok()) {
            Some(fd) if fd > 2 => {
                adopt(fd).map(LedgerTarget::Fd).map_err(|cause| LedgerError::Descriptor { fd, cause })
            }
            _ => Err(LedgerError::DescriptorName { text: text.to_string_lossy().into_owned() }),
        }
    }

    /// The target when none is named: `/var/log/ringfence/RUN.jsonl` for root, else `ringfence/RUN.jsonl` below
    /// `$XDG_STATE_HOME` or, without it, `$HOME/.local/state` (XDG Base Directory Specification 0.8: a relative path
    /// there is ignored).
    pub fn default_for(uid: u32, run: &RunId) -> Result<LedgerTarget, LedgerError> {
        default_path(uid, run, std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME")).map(LedgerTarget::Path)
    }
}

fn default_path(uid: u32, run: &RunId, xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, LedgerError> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let base = match uid {
        0 => PathBuf::from("/var/log"),
        _ => absolute(xdg)
            .or_else(|| absolute(home).map(|h| h.join(".local/state")))
            .ok_or(LedgerError::NoStateDirectory)?,
    };
    Ok(base.join("ringfence").join(format!("{run}.jsonl")))
}

/// The mode of what only its owner may read and write.
pub(super) const OWNERS: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// A directory entry made by this run, to be taken back if the run never starts.
#[derive(Debug)]
struct Entry {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

/// What opening a ledger has made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    directories: Vec<Entry>,
    file: Option<Entry>,
    /// Whether files are closed to their own owner too.
    pub(super) shut: bool,
}

impl Made {
    /// Whether there is a file that was made here.
    pub(super) fn is_ours(&self) -> bool {
        self.file.is_some()
    }

    /// The path of the file that was made here.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|entry| entry.path.as_path())
    }

    /// The directory of that file.
    pub(super) fn directory(&self) -> Option<&OwnedFd> {
        self.file.as_ref().map(|entry| &entry.dir)
    }

    /// Removes the file, if its name still means `file`, and then each directory that was made and is empty again.
    pub(crate) fn remove(self, file: &OwnedFd) -> Result<(), LedgerError> {
        if let Some(entry) = self.file {
            remove_if_ours(&entry.dir, &entry.name, &entry.path, file)?;
        }
        remove_directories(self.directories)
    }
}

/// A second file in the ledger's directory, which was checked when the ledger was made and has been held since.
impl Made {
    /// Makes the file that has the name which `name` gives for the ledger's: new, 0600, and for reading by no one else.
    ///
    /// # Errors
    /// ENOENT where the ledger is a descriptor of the caller's: what was made beside it could not be found again. Else
    /// openat(2)'s.
    pub(super) fn create_beside(&self, name: fn(&OsStr) -> OsString) -> Result<OwnedFd, Errno> {
        let entry = self.file.as_ref().ok_or(Errno::ENOENT)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let mode = if self.shut { Mode::empty() } else { OWNERS };
        openat(&entry.dir, name(&entry.name).as_os_str(), flags, mode)
    }

    /// Removes that file, if its name still means `file`.
    pub(super) fn remove_beside(&self, name: fn(&OsStr) -> OsString, file: &OwnedFd) -> Result<(), LedgerError> {
        match &self.file {
            Some(entry) => {
                remove_if_ours(&entry.dir, &name(&entry.name), &entry.path.with_file_name(name(&entry.name)), file)
            }
            None => Ok(()),
        }
    }
}

/// Another file under that name, or none, is not ours to remove.
fn remove_if_ours(dir: &OwnedFd, name: &OsStr, path: &Path, file: &OwnedFd) -> Result<(), LedgerError> {
    let ours = fstat(file).map_err(|cause| failed("fstat", path, cause))?;
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino) => {
            unlinkat(dir, name, UnlinkatFlags::NoRemoveDir).map_err(|cause| failed("unlinkat", path, cause))
        }
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(cause) => Err(failed("fstatat", path, cause)),
    }
}

fn remove_directories(made: Vec<Entry>) -> Result<(), LedgerError> {
    for entry in made.into_iter().rev() {
        match unlinkat(&entry.dir, entry.name.as_os_str(), UnlinkatFlags::RemoveDir) {
            // Another run has put its ledger there meanwhile, or has removed the directory itself.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => break,
            Err(cause) => return Err(failed("unlinkat", &entry.path, cause)),
        }
    }
    Ok(())
}

fn failed(call: &'static str, path: &Path, cause: Errno) -> LedgerError {
    LedgerError::Path { call, path: path.to_owned(), cause }
}

/// Makes the file, 0600, and the directories above it that are missing, 0700. On failure nothing that was made stays.
pub(crate) fn create(path: &Path) -> Result<(OwnedFd, Made), LedgerError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(LedgerError::NoName { path: path.to_owned() });
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let mut made = Vec::new();
    match create_below(parent, name, &mut made) {
        Ok((file, entry)) => Ok((file, Made { directories: made, file: Some(entry), shut: false })),
        Err(cause) => match remove_directories(made) {
            Ok(()) => Err(cause),
            Err(LedgerError::Path { path: left, cause: errno, .. }) => {
                Err(LedgerError::LeftBehind { cause: Box::new(cause), left, errno })
            }
            Err(other) => Err(other),
        },
    }
}

fn create_below(parent: &Path, name: &OsStr, made: &mut Vec<Entry>) -> Result<(OwnedFd, Entry), LedgerError> {
    let judge = Judge::new(None);
    let walked = walk(parent, &judge)?;
    let (mut dir, mut path) = (walked.dir, walked.path);
    for missing in walked.missing {
        path.push(&missing);
        let is_ours = match mkdirat(&dir, missing.as_os_str(), Mode::S_IRWXU) {
            Ok(()) => true,
            // Another run that starts now has made it; it is judged like one that was there before.
            Err(Errno::EEXIST) => false,
            Err(cause) => return Err(failed("mkdirat", &path, cause)),
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next =
            openat(&dir, missing.as_os_str(), flags, Mode::empty()).map_err(|cause| failed("openat", &path, cause))?;
        if is_ours {
            made.push(Entry { dir, name: missing, path: path.clone() });
        }
        // In a sticky directory that others write, the name could be another's by now.
        judge.directory(next.as_fd(), &path)?;
        dir = next;
    }
    path.push(name);
    // O_EXCL fails for a name that exists, a dangling link included (open(2)), so the file is ours from its first byte.
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let file = openat(&dir, name, flags, OWNERS).map_err(|cause| failed("openat", &path, cause))?;
    Ok((file, Entry { dir, name: name.to_owned(), path }))
}

/// Checks that records can go to a descriptor of the caller's, and keeps it from the command.
pub(super) fn adopt(file: &OwnedFd) -> Result<(), LedgerError> {
    let fd = file.as_raw_fd();
    let failed = |cause| LedgerError::Descriptor { fd, cause };
    let unfit = |found| Err(LedgerError::DescriptorKind { fd, found });
    let flags = OFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GETFL).map_err(failed)?);
    let stat = fstat(file).map_err(failed)?;
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG | SFlag::S_IFIFO | SFlag::S_IFCHR => {}
        SFlag::S_IFSOCK if getsockopt(file, sockopt::SockType).map_err(failed)? == SockType::Stream => {}
        SFlag::S_IFSOCK => return unfit("a socket of another type than SOCK_STREAM"),
        SFlag::S_IFDIR => return unfit("a directory"),
        SFlag::S_IFBLK => return unfit("a block device"),
        _ => return unfit("of an unknown kind"),
    }
    if flags.contains(OFlag::O_PATH) || flags & OFlag::O_ACCMODE == OFlag::O_RDONLY {
        return unfit("open for reading only");
    }
    fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
