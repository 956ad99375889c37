//! Sparse files, whose holes are not read: they have no bound.

use nix::unistd::{Whence, lseek};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Whether a file is worth the trouble.
pub(super) fn is_sparse(metadata: &Metadata) -> bool {
    const SECTOR: u64 = 512;
    metadata.len() > 1 << 20 && metadata.blocks() * SECTOR < metadata.len()
}

/// How much of a hole is read, in bytes: more than any token reaches across.
const HOLE: u64 = 1 << 16;

/// A sparse file, its holes (lseek(2), SEEK_HOLE) cut short.
pub(super) struct WithoutHoles<'f> {
    file: &'f File,
    end: u64,
    at: u64,
    /// Where the data ends that begins at or before `at`.
    until: u64,
    /// How many bytes of a hole come first.
    nulls: u64,
}

impl<'f> WithoutHoles<'f> {
    /// Of a file of that length.
    pub(super) fn of(file: &'f File, length: u64) -> WithoutHoles<'f> {
        WithoutHoles { file, end: length, at: 0, until: 0, nulls: 0 }
    }

    fn next_data(&mut self) -> io::Result<()> {
        let seek = |from: u64, whence| -> io::Result<Option<u64>> {
            let from = i64::try_from(from).map_err(io::Error::other)?;
            match lseek(self.file, from, whence) {
                Ok(found) => Ok(u64::try_from(found).ok()),
                Err(nix::Error::ENXIO) => Ok(None),
                Err(cause) => Err(cause.into()),
            }
        };
        let data = seek(self.at, Whence::SeekData)?.unwrap_or(self.end);
        self.nulls = (data - self.at).min(HOLE);
        self.at = data;
        self.until = if data < self.end { seek(data, Whence::SeekHole)?.unwrap_or(self.end) } else { self.end };
        Ok(())
    }
}

impl Read for WithoutHoles<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.nulls == 0 && self.at >= self.until && self.at < self.end {
            self.next_data()?;
        }
        let most = |count: u64| usize::try_from(count).unwrap_or(usize::MAX).min(buffer.len());
        if self.nulls > 0 {
            let count = most(self.nulls);
            buffer[..count].fill(0);
            self.nulls -= count as u64;
            return Ok(count);
        }
        let count = most(self.until.saturating_sub(self.at));
        let count = self.file.read_at(&mut buffer[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
