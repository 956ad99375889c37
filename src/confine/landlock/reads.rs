//! Shields where there are no mounts: no right to read, to list or to execute what lies in them (landlock(7)).
//!
//! A ruleset only allows, and allows everything beneath a path. So the rights are granted beside each shield, level by level
//! from the root down, and not to the directories on the way themselves: they cannot be listed, and what gets a name in
//! them later cannot be read.

use super::files::{READS, Rules, entries, failed, is_link, open_place, pinned};
use crate::confine::ConfineError;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

impl Rules<'_> {
    /// Grants reading of everything but the shields.
    pub(super) fn grant_reads(&mut self, shields: &[PathBuf]) -> Result<(), ConfineError> {
        let root = Path::new("/");
        let at = pinned(AT_FDCWD, root.as_os_str(), root)?;
        self.grant_reads_beside(at, root, shields)
    }

    fn grant_reads_beside(&mut self, at: OwnedFd, path: &Path, shields: &[PathBuf]) -> Result<(), ConfineError> {
        if shields.iter().any(|shield| path.starts_with(shield)) {
            return Ok(());
        }
        if !shields.iter().any(|shield| shield.starts_with(path)) {
            return self.add_reads(&at, path);
        }
        for name in entries(at.as_fd(), path)? {
            let path = path.join(&name);
            match open_place(at.as_fd(), &name) {
                Ok(at) if is_link(&at, &path)? => {}
                Ok(at) => self.grant_reads_beside(at, &path, shields)?,
                // It has gone meanwhile, or is open to nobody (FUSE).
                Err(Errno::ENOENT | Errno::EACCES) => {}
                Err(errno) => return Err(failed(format!("open {}: {errno}", path.display()))),
            }
        }
        Ok(())
    }

    fn add_reads(&mut self, at: &OwnedFd, path: &Path) -> Result<(), ConfineError> {
        let rights = if super::files::is_directory(at, path)? { READS } else { READS & super::files::OF_FILES };
        self.add(at, rights, path)
    }
}
