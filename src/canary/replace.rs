//! Files replaced all together or not at all: new contents are written beside the old ones, then all are put in their
//! places by rename(2), and what was there is kept by a second link until the last one is in place.

use super::error::CanaryError;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is read: its content and what else is known of it.
pub(super) struct Original {
    file: File,
    metadata: fs::Metadata,
}

impl Original {
    /// Opens a regular file that has one name; nothing else is waited for or followed.
    ///
    /// # Errors
    /// A symbolic link, a file of another kind, one with several names, or one that can't be opened.
    pub(super) fn open(path: &Path) -> Result<Original, CanaryError> {
        let unfit = |is: &str| CanaryError::Unfit {
            path: path.to_owned(),
            is: is.to_owned(),
            accepted: "a regular file with one name",
        };
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
        let file = opened.map_err(|cause| match cause.raw_os_error() {
            Some(nix::libc::ELOOP) => unfit("is a symbolic link"),
            _ => CanaryError::file("opened", path)(cause),
        })?;
        let metadata = file.metadata().map_err(CanaryError::file("looked at", path))?;
        if !metadata.is_file() {
            return Err(unfit("is no regular file"));
        }
        if metadata.nlink() > 1 {
            return Err(unfit(&format!(
                "has {} hard links, and its other names would keep the old content",
                metadata.nlink()
            )));
        }
        Ok(Original { file, metadata })
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.metadata.len()
    }

    /// Its content.
    pub(super) fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.file.read_to_end(&mut content)?;
        Ok(content)
    }
}

/// A new content, written and not yet in place.
struct Staged {
    /// Where it lies.
    new: PathBuf,
    /// Where it belongs.
    place: PathBuf,
    /// What keeps the old content, once there is such a link; none for a file that is new.
    old: Option<PathBuf>,
    placed: bool,
}

/// Replacements to be made together. What was not committed is taken back when this is dropped.
#[derive(Default)]
pub(super) struct Replacement {
    staged: Vec<Staged>,
}

impl Replacement {
    /// Writes a new content for `place`, with the mode, owner, extended attributes and times of `like`.
    ///
    /// # Errors
    /// Whatever of that can't be had: nothing is replaced by a file that is less.
    pub(super) fn stage(&mut self, place: &Path, content: &[u8], like: &Original) -> Result<(), CanaryError> {
        let file = self.write(place, content)?;
        let failed = CanaryError::file("given the attributes of the original", place);
        like_original(&file, like).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Writes a file that only its owner may read.
    pub(super) fn stage_private(&mut self, place: &Path, content: &[u8]) -> Result<(), CanaryError> {
        let file = self.write(place, content)?;
        file.sync_all().map_err(CanaryError::file("written", place))
    }

    fn write(&mut self, place: &Path, content: &[u8]) -> Result<File, CanaryError> {
        let new = beside(place, "new", self.staged.len());
        let flags = OFlag::O_NOFOLLOW;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600).custom_flags(flags.bits());
        let mut file = options.open(&new).map_err(CanaryError::file("written", place))?;
        self.staged.push(Staged { new, place: place.to_owned(), old: None, placed: false });
        file.write_all(content).map_err(CanaryError::file("written", place))?;
        Ok(file)
    }

    /// Puts everything in place. After an error nothing is.
    pub(super) fn commit(mut self) -> Result<(), CanaryError> {
        if let Err(first) = self.put_in_place() {
            let left = self.take_back();
            return Err(match left.is_empty() {
                true => first,
                false => CanaryError::HalfDone { first: Box::new(first), left: left.join("; ") },
            });
        }
        // Whatever happens to the links now, the files are as they should be.
        for staged in std::mem::take(&mut self.staged) {
            if let Some(old) = staged.old {
                fs::remove_file(&old).map_err(CanaryError::file("removed", old))?;
            }
        }
        Ok(())
    }

    fn put_in_place(&mut self) -> Result<(), CanaryError> {
        for (number, staged) in self.staged.iter_mut().enumerate() {
            let old = beside(&staged.place, "old", number);
            match fs::hard_link(&staged.place, &old) {
                Ok(()) => staged.old = Some(old),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(CanaryError::file("kept by a second link", &staged.place)(cause)),
            }
            fs::rename(&staged.new, &staged.place).map_err(CanaryError::file("replaced", &staged.place))?;
            staged.placed = true;
        }
        Ok(())
    }

    /// Undoes everything in reverse; what could not be undone.
    fn take_back(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for staged in std::mem::take(&mut self.staged).into_iter().rev() {
            let done = match (&staged.old, staged.placed) {
                (Some(old), true) => fs::rename(old, &staged.place),
                (Some(old), false) => fs::remove_file(old).and_then(|()| fs::remove_file(&staged.new)),
                (None, true) => fs::remove_file(&staged.place),
                (None, false) => fs::remove_file(&staged.new),
            };
            if let Err(cause) = done {
                left.push(format!("{:?}: {cause}", staged.place));
            }
        }
        left
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // An error is on its way already; its cause is the one to tell.
        let _left = self.take_back();
    }
}

/// A name in the same directory that nobody else has.
fn beside(place: &Path, what: &str, number: usize) -> PathBuf {
    place.with_file_name(format!(".canary-{what}-{}-{number}", std::process::id()))
}

fn like_original(file: &File, like: &Original) -> io::Result<()> {
    let (uid, gid) = (like.metadata.uid(), like.metadata.gid());
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (uid, gid) {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    copy_attributes(file, &like.file)?;
    // After the owner, whose change clears set-id bits, and after the access list, which is tied to the mode.
    fchmod(file, Mode::from_bits_truncate(like.metadata.mode()))?;
    let times = fs::FileTimes::new().set_accessed(like.metadata.accessed()?).set_modified(like.metadata.modified()?);
    file.set_times(times)
}

/// Extended attributes (xattr(7)): access lists, capabilities, labels, those of users.
fn copy_attributes(to: &File, from: &File) -> io::Result<()> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::flistxattr(from.as_fd(), &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(()),
        Err(cause) => return Err(cause.into()),
    };
    let mut value = vec![0; 1 << 16];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::fgetxattr(from.as_fd(), name, &mut value)?;
        rustix::fs::fsetxattr(to.as_fd(), name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}
