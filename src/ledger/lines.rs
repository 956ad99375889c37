//! A ledger's lines in bounded memory.

use super::line::LINE_LIMIT;
use memchr::memchr;
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

/// Reads lines one at a time: where the reader has one whole in its buffer, it is given from there.
pub struct Lines<R> {
    reader: R,
    /// What the reader's buffer begins with and was given out.
    given: usize,
    /// A line that lies across two fillings of the reader's buffer.
    joined: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The lines of a reader.
    pub fn new(reader: R) -> Lines<R> {
        Lines { reader, given: 0, joined: Vec::new(), number: 0 }
    }

    /// The next line, or none at the end. Errors are the reader's own.
    #[expect(clippy::should_implement_trait, reason = "a line borrows the buffer, which an Iterator's item cannot")]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.reader.consume(std::mem::take(&mut self.given));
        let found = loop {
            match self.reader.fill_buf() {
                Ok(buffer) => break memchr(b'\n', buffer).filter(|length| *length <= LINE_LIMIT),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        };
        if let Some(length) = found {
            self.number += 1;
            self.given = length + 1;
            // It is filled, so this is a look at it.
            let bytes = &self.reader.fill_buf()?[..length];
            return Ok(Some(Line { number: self.number, bytes, ended: true, too_long: false }));
        }
        self.joined.clear();
        let mut bounded = io::Read::take(&mut self.reader, LINE_LIMIT as u64 + 1);
        if bounded.read_until(b'\n', &mut self.joined)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let (bytes, ended) = match self.joined.split_last() {
            Some((b'\n', bytes)) => (bytes, true),
            _ => (&self.joined[..], false),
        };
        Ok(Some(Line { number: self.number, bytes, ended, too_long: bytes.len() > LINE_LIMIT }))
    }
}
