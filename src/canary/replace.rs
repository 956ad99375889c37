//! Files replaced all together or not at all: new contents are written beside the old ones, then all are put in their
//! places by rename(2), and what was there is kept by a second link until the last one is in place.

use super::attributes;
use super::beneath::{self, Identity};
use super::error::CanaryError;
use super::place::Place;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, linkat, renameat, statat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// A file as it was read: its identity, its size in bytes, and when it was last written, in seconds and nanoseconds.
type State = (Identity, i64, (i64, u64));

fn state(stat: &Stat) -> State {
    (beneath::identity(stat), stat.st_size, (stat.st_mtime, stat.st_mtime_nsec))
}

/// A file that is read: its content and what else is known of it.
pub(super) struct Original {
    pub(super) place: Place,
    file: File,
    metadata: Metadata,
    state: State,
}

impl Original {
    /// Opens a regular file that has one name; nothing else is waited for or followed.
    ///
    /// # Errors
    /// A symbolic link, a file of another kind, one with several names, or one that can't be opened.
    pub(super) fn open(place: &Place) -> Result<Original, CanaryError> {
        let unfit = |is: &str| CanaryError::Unfit {
            path: place.path(),
            is: is.to_owned(),
            accepted: "a regular file with one name",
        };
        let file = place.open(OFlags::RDONLY, Mode::empty()).map_err(|cause| match cause.raw_os_error() {
            Some(nix::libc::ELOOP) => unfit("is a symbolic link"),
            _ => CanaryError::file("opened", place.path())(cause),
        })?;
        let looked_at = file.metadata().and_then(|metadata| Ok((metadata, state(&fstat(&file)?))));
        let (metadata, state) = looked_at.map_err(CanaryError::file("looked at", place.path()))?;
        if !metadata.is_file() {
            return Err(unfit("is no regular file"));
        }
        if metadata.nlink() > 1 {
            return Err(unfit(&format!(
                "has {} hard links, and its other names would keep the old content",
                metadata.nlink()
            )));
        }
        Ok(Original { place: place.clone(), file, metadata, state })
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.metadata.len()
    }

    /// Its content.
    pub(super) fn content(&mut self) -> Result<Vec<u8>, CanaryError> {
        let mut content = Vec::new();
        self.file.read_to_end(&mut content).map_err(CanaryError::file("read", self.place.path()))?;
        Ok(content)
    }
}

/// A new content, written and not yet in place.
struct Staged {
    /// Where it belongs.
    place: Place,
    /// The name in the same directory under which it lies; none once it is gone.
    new: Option<OsString>,
    identity: Identity,
    /// What it replaces; none for a file that is new.
    instead: Option<State>,
    /// The name that keeps the old content, once there is one.
    old: Option<OsString>,
    placed: bool,
}

/// Replacements to be made together. What was not committed is taken back when this is dropped.
#[derive(Default)]
pub(super) struct Replacement {
    staged: Vec<Staged>,
}

impl Replacement {
    /// Writes a new content for a file, which keeps its mode, owner, extended attributes and times.
    ///
    /// # Errors
    /// Whatever of that can't be had: nothing is replaced by a file that is less.
    pub(super) fn stage(&mut self, original: &Original, content: &[u8]) -> Result<(), CanaryError> {
        self.stage_like(&original.place, Some(original.state), content, original)
    }

    /// The same for a file that is not there yet, and becomes like another one.
    pub(super) fn stage_new(&mut self, place: &Place, content: &[u8], like: &Original) -> Result<(), CanaryError> {
        self.stage_like(place, None, content, like)
    }

    fn stage_like(
        &mut self,
        place: &Place,
        instead: Option<State>,
        content: &[u8],
        like: &Original,
    ) -> Result<(), CanaryError> {
        let file = self.write(place, instead, content)?;
        let failed = CanaryError::file("given the attributes of the original", place.path());
        attributes::copy(&file, &like.file, &like.metadata).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Writes a file that only its owner may read, in place of another one if there is one.
    pub(super) fn stage_private(
        &mut self,
        place: &Place,
        original: Option<&Original>,
        content: &[u8],
    ) -> Result<(), CanaryError> {
        let file = self.write(place, original.map(|original| original.state), content)?;
        let done = attributes::without_access_list(&file).and_then(|()| file.sync_all());
        done.map_err(CanaryError::file("written", place.path()))
    }

    fn write(&mut self, place: &Place, instead: Option<State>, content: &[u8]) -> Result<File, CanaryError> {
        let failed = || CanaryError::file("written", place.path());
        let new = hidden("new", self.staged.len());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = place.beside(&new).open(flags, Mode::RUSR | Mode::WUSR).map_err(failed())?;
        let identity = beneath::identity(&fstat(&file).map_err(io::Error::from).map_err(failed())?);
        self.staged.push(Staged { place: place.clone(), new: Some(new), identity, instead, old: None, placed: false });
        file.write_all(content).map_err(failed())?;
        Ok(file)
    }

    /// Puts everything in place. After an error nothing is.
    pub(super) fn commit(mut self) -> Result<(), CanaryError> {
        let placed = self.staged.iter_mut().enumerate().try_for_each(|(number, staged)| staged.put_in_place(number));
        if let Err(first) = placed {
            let left = self.take_back();
            return Err(match left.is_empty() {
                true => first,
                false => CanaryError::HalfDone { first: Box::new(first), left: left.join("; ") },
            });
        }
        // Whatever happens to the links now, the files are as they should be.
        let mut removed = Ok(());
        for Staged { place, old, .. } in std::mem::take(&mut self.staged) {
            if let Some(old) = old {
                let done = place.directory.open().and_then(|directory| remove(&directory, &old));
                removed = removed.and(done.map_err(CanaryError::file("removed", place.beside(&old).path())));
            }
        }
        removed
    }

    /// Undoes everything in reverse; what could not be undone.
    fn take_back(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for staged in std::mem::take(&mut self.staged).into_iter().rev() {
            if let Err(cause) = staged.take_back() {
                left.push(format!("{:?}: {cause}", staged.place.path()));
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

impl Staged {
    fn put_in_place(&mut self, number: usize) -> Result<(), CanaryError> {
        let path = self.place.path();
        let failed = |act| CanaryError::file(act, &path);
        let meanwhile = |is: &str| CanaryError::Unfit {
            path: path.clone(),
            is: is.to_owned(),
            accepted: "a file that nothing else writes while tokens are planted",
        };
        let name = self.place.name.as_os_str();
        let directory = self.place.directory.open().map_err(failed("replaced"))?;
        let found = |name: &OsStr| statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
        let Some(new) = self.new.clone() else { return Ok(()) };
        match self.instead {
            Some(expected) => {
                let old = hidden("old", number);
                linkat(&directory, name, &directory, &old, AtFlags::empty())
                    .map_err(io::Error::from)
                    .map_err(failed("kept by a second link"))?;
                self.old = Some(old.clone());
                if state(&found(&old).map_err(failed("looked at"))?) != expected {
                    return Err(meanwhile("was changed after it was read"));
                }
                renameat(&directory, &new, &directory, name).map_err(io::Error::from).map_err(failed("replaced"))?;
                self.placed = true;
            }
            // link(2), which replaces nothing.
            None => {
                linkat(&directory, &new, &directory, name, AtFlags::empty())
                    .map_err(io::Error::from)
                    .map_err(failed("written"))?;
                self.placed = true;
                remove(&directory, &new).map_err(failed("written"))?;
            }
        }
        self.new = None;
        match beneath::identity(&found(name).map_err(failed("looked at"))?) == self.identity {
            true => Ok(()),
            false => Err(meanwhile("was replaced by another file")),
        }
    }

    fn take_back(&self) -> io::Result<()> {
        let directory = self.place.directory.open()?;
        match (&self.old, self.placed) {
            (Some(old), true) => renameat(&directory, old, &directory, &self.place.name)?,
            (Some(old), false) => remove(&directory, old)?,
            (None, true) => remove(&directory, &self.place.name)?,
            (None, false) => {}
        }
        self.new.as_ref().map_or(Ok(()), |new| remove(&directory, new))
    }
}

fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    Ok(unlinkat(directory, name, AtFlags::empty())?)
}

/// A name that nobody else has.
fn hidden(what: &str, number: usize) -> OsString {
    format!(".canary-{what}-{}-{number}", std::process::id()).into()
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
