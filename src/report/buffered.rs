//! Files read in large pieces, into a buffer that each thread keeps for the next file.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, Read};

/// The buffer's size in bytes: most ledgers are shorter, and read at one go.
const SIZE: usize = 1 << 18;

thread_local! {
    /// The buffer while no file is read.
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A file with a buffer.
#[derive(Debug)]
pub(super) struct Buffered {
    file: File,
    buffer: Vec<u8>,
    /// What of the buffer is read from the file and not taken yet.
    from: usize,
    to: usize,
}

impl Buffered {
    /// A file to be read from where it is.
    pub(super) fn of(file: File) -> Buffered {
        let mut buffer = KEPT.take();
        buffer.resize(SIZE, 0);
        Buffered { file, buffer, from: 0, to: 0 }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        KEPT.set(std::mem::take(&mut self.buffer));
    }
}

impl BufRead for Buffered {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.from == self.to {
            self.from = 0;
            // On an error there is nothing.
            self.to = 0;
            self.to = self.file.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.from..self.to])
    }

    fn consume(&mut self, count: usize) {
        self.from = self.to.min(self.from + count);
    }
}

impl Read for Buffered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}
