//! Whether the ledger's file is still what was written, under the name by which it is read.

use super::{Ledger, LedgerMode, Stage};
use crate::ledger::error::LedgerError;
use crate::ledger::record::{Body, Gap};
use nix::errno::Errno;
use nix::sys::stat::{fstat, lstat};

/// What has become of a ledger's file without its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Tampering {
    /// Nothing has its name.
    #[error("it was removed or moved away")]
    Removed,
    /// Another file has its name.
    #[error("another file was put in its place")]
    Replaced,
    /// Some of it is gone.
    #[error("it was truncated: {left} bytes are left of {written}")]
    Truncated {
        /// Its size, in bytes.
        left: u64,
        /// What was written, in bytes.
        written: u64,
    },
    /// Something else has written to it.
    #[error("something else has written to it: it has {left} bytes, of which {written} are the run's")]
    Lengthened {
        /// Its size, in bytes.
        left: u64,
        /// What was written, in bytes.
        written: u64,
    },
}

impl Ledger {
    /// Holds the file and its name against what was written. What is wrong is recorded once, as a `gap` of source `ledger`.
    ///
    /// A descriptor of the caller's is the caller's affair, and not looked at.
    ///
    /// # Errors
    /// [`LedgerError::Tampered`] in [`LedgerMode::Required`]; in the other mode a ledger without its name is losing
    /// ([`Ledger::is_losing`]) until the name means it again.
    pub fn look(&mut self) -> Result<(), LedgerError> {
        if self.stage != Stage::Open {
            return Ok(());
        }
        let Some((tampering, size)) = self.tampering()? else {
            self.nameless = false;
            return Ok(());
        };
        let is_nameless = matches!(tampering, Tampering::Removed | Tampering::Replaced);
        if is_nameless && self.nameless {
            return Ok(());
        }
        self.nameless |= is_nameless;
        self.sink.written = size;
        let error = LedgerError::Tampered { target: self.target.clone(), tampering };
        // What is gone with the name is all; how many records a part is, nothing says.
        let lost = if is_nameless { self.seq } else { 0 };
        let gap = Gap { axis: None, source: "ledger".into(), lost, cause: tampering.to_string() };
        self.append(Body::Gap(gap))?;
        if self.mode == LedgerMode::Required { Err(error) } else { Ok(()) }
    }

    /// Whether the ledger can be read under its name, at the end.
    ///
    /// # Errors
    /// [`LedgerError::Tampered`] where it cannot.
    pub fn stands(&self) -> Result<(), LedgerError> {
        match self.tampering()? {
            Some((tampering, _)) => Err(LedgerError::Tampered { target: self.target.clone(), tampering }),
            None => Ok(()),
        }
    }

    /// What is wrong, and the file's size in bytes.
    fn tampering(&self) -> Result<Option<(Tampering, u64)>, LedgerError> {
        let Some(path) = self.made.path() else { return Ok(None) };
        let failed = |call| move |cause| LedgerError::Path { call, path: path.to_owned(), cause };
        let file = fstat(self.sink.file()).map_err(failed("fstat"))?;
        let (left, written) = (u64::try_from(file.st_size).unwrap_or(0), self.sink.written);
        let named = match lstat(path) {
            Ok(named) => Some((named.st_dev, named.st_ino)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            Err(cause) => return Err(failed("lstat")(cause)),
        };
        let tampering = match named {
            None => Some(Tampering::Removed),
            Some(named) if named != (file.st_dev, file.st_ino) => Some(Tampering::Replaced),
            Some(_) if left < written => Some(Tampering::Truncated { left, written }),
            Some(_) if left > written => Some(Tampering::Lengthened { left, written }),
            Some(_) => None,
        };
        Ok(tampering.map(|tampering| (tampering, left)))
    }

    /// Where the file and its directory can be watched by inotify(7), which takes paths only; `None` for a descriptor of the
    /// caller's.
    pub fn watched(&self) -> Option<[String; 2]> {
        use std::os::fd::AsRawFd;
        let directory = self.made.directory()?;
        Some([self.sink.file(), directory].map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd())))
    }
}
