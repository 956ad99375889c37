//! What the command has found: objects that are older than the run, and whose birth says so no longer once they are changed.
//!
//! An overlay copies an object of its lower layers, and each directory above it, when it is first changed, and shows the copy's
//! birth from then on; its inode's number stays (Linux, Documentation/filesystems/overlayfs.rst, "Inode properties"). A file
//! system that keeps no births shows the last change in its place. So each object there is noted when it is first met, before
//! the act goes on.
//!
//! A file that has several names in a lower layer gets another number with its copy (unless the overlay has an index), and is
//! not known again.

use super::super::walk::path_of;
use crate::sys::call::{Born, born};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The objects that are known to have been there.
#[derive(Debug, Default)]
pub(super) struct Found(Mutex<HashSet<(u32, u32, u64)>>);

impl Found {
    fn known(&self) -> MutexGuard<'_, HashSet<(u32, u32, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was met when it was older than the run.
    pub(super) fn has(&self, object: &Born) -> bool {
        self.known().contains(&object.identity)
    }

    /// Notes an object and the directories above it, as far as they are older than this.
    pub(super) fn note(&self, object: OwnedFd, began: Duration) {
        let Some(above) = self.note_one(&object, began) else { return };
        let directory = path_of(object.as_fd()).and_then(|path| place(path.parent()?).ok());
        let (mut below, mut next) = (above, directory);
        while let Some(directory) = next {
            match self.note_one(&directory, began) {
                // The root is above itself.
                Some(found) if found != below => below = found,
                _ => return,
            }
            next = openat(&directory, "..", PLACE, Mode::empty()).ok();
        }
    }

    /// Returns which object it was if those above it are to be looked at too: they were when it was noted itself, and on another
    /// kind of file system a birth is one.
    fn note_one(&self, object: &OwnedFd, began: Duration) -> Option<(u32, u32, u64)> {
        let found = born(object.as_fd()).ok()?;
        if found.kept && !fstatfs(object).is_ok_and(|of| of.filesystem_type() == OVERLAYFS_SUPER_MAGIC) {
            return None;
        }
        let was_known = found.at < began && !self.known().insert(found.identity);
        (!was_known).then_some(found.identity)
    }

    /// An object goes: its number may be another's soon.
    pub(super) fn forget(&self, object: &OwnedFd) {
        if let Ok(found) = born(object.as_fd()) {
            self.known().remove(&found.identity);
        }
    }
}

const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

fn place(path: &Path) -> Result<OwnedFd, Errno> {
    openat(AT_FDCWD, path, PLACE, Mode::empty())
}
