//! A ledger's lines in bounded memory.

use super::line::LINE_LIMIT;
use std::io::{self, BufRead};

/// One line of a ledger.
pub struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// Without the newline; only the first of them when `too_long`.
    pub bytes: &'a [u8],
    /// Whether a newline follows. Only the last line may lack it.
    pub ended: bool,
    /// Whether it is longer than [`LINE_LIMIT`]. What follows is not read then.
    pub too_long: bool,
}

/// Reads lines one at a time, each into the same buffer.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The lines of a reader.
    pub fn new(reader: R) -> Lines<R> {
        Lines {
            reader,
            buffer: Vec::new(),
            number: 0,
        }
    }

    /// The next line, or none at the end. Errors are the reader's own.
    #[expect(
        clippy::should_implement_trait,
        reason = "a line borrows the buffer, which an Iterator's item cannot"
    )]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let mut bounded = io::Read::take(&mut self.reader, LINE_LIMIT as u64 + 1);
        if bounded.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let (bytes, ended) = match self.buffer.split_last() {
            Some((b'\n', bytes)) => (bytes, true),
            _ => (&self.buffer[..], false),
        };
        Ok(Some(Line {
            number: self.number,
            bytes,
            ended,
            too_long: bytes.len() > LINE_LIMIT,
        }))
    }
}
