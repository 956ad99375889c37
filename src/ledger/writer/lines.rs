//! How a record becomes a line of the file.

use super::super::chain::{digest, push_hex};
use super::super::error::LedgerError;
use super::super::line::{LINE_LIMIT, encode_into};
use super::super::record::{Body, VERSION};
use super::super::sink::Refused;
use super::Ledger;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::Duration;

impl Ledger {
    /// Brings out what is owed: the rest of a line, then the gaps.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        self.sink.settle().map_err(|cause| self.refused(false, cause))?;
        self.free_places();
        while let Some(gap) = self.tally.next_gap() {
            let result = self.put(&Body::Gap(gap.clone()));
            if result.as_ref().err().is_none_or(|failure| failure.begun) {
                self.tally.recorded(&gap);
            }
            // Whatever became of the gap's line, nothing of the record that waits behind it is out.
            result.map_err(|failure| Failure { begun: false, ..failure })?;
        }
        Ok(())
    }

    pub(super) fn put(&mut self, body: &Body) -> Result<(), Failure> {
        // One buffer serves for all lines.
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let encoded = self.record(body).and_then(|record| self.encode_into(&mut line, &record));
        let result = encoded.map_err(Failure::from).and_then(|()| self.write(&mut line));
        self.line = line;
        result
    }

    /// A line of which a part is out has its place in the chain: its rest will follow.
    pub(super) fn write(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        let digest = digest(line);
        line.push(b'\n');
        let result = self.sink.write_line(line).map_err(|Refused { begun, cause }| self.refused(begun, cause));
        if result.as_ref().err().is_none_or(|failure| failure.begun) {
            self.head.clear();
            push_hex(&mut self.head, &digest);
            self.seq += 1;
        }
        result
    }

    fn refused(&self, begun: bool, cause: Errno) -> Failure {
        Failure { begun, error: LedgerError::Write { seq: self.seq, target: self.target.clone(), cause } }
    }

    pub(super) fn record<'a>(&'a self, body: &'a Body) -> Result<Line<'a>, LedgerError> {
        let mono = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(LedgerError::Clock)?;
        Ok(Line {
            v: VERSION,
            seq: self.seq,
            time: format!("{:.9}", jiff::Timestamp::now()),
            mono_ns: u64::try_from(Duration::from(mono).as_nanos()).unwrap_or(u64::MAX),
            run: &self.run,
            level: &self.level,
            body,
            prev: &self.head,
        })
    }

    pub(super) fn encode(&self, record: &Line<'_>) -> Result<Vec<u8>, LedgerError> {
        let mut line = Vec::with_capacity(1024);
        self.encode_into(&mut line, record).map(|()| line)
    }

    fn encode_into(&self, line: &mut Vec<u8>, record: &Line<'_>) -> Result<(), LedgerError> {
        encode_into(line, record).map_err(|cause| LedgerError::Encode { seq: record.seq, cause })?;
        match line.len() {
            length if length > LINE_LIMIT => Err(LedgerError::TooLong { seq: record.seq, length, limit: LINE_LIMIT }),
            _ => Ok(()),
        }
    }
}

/// What of a [`Record`] becomes a line, borrowed: the same fields in the same order.
///
/// [`Record`]: super::super::record::Record
#[derive(Serialize)]
pub(super) struct Line<'a> {
    v: u32,
    seq: u64,
    time: String,
    mono_ns: u64,
    run: &'a str,
    level: &'a str,
    #[serde(flatten)]
    pub(super) body: &'a Body,
    prev: &'a str,
}

/// Why a record is not in the file, and whether a part of it is.
pub(super) struct Failure {
    /// Whether a part of it is.
    pub(super) begun: bool,
    /// Why it is not there.
    pub(super) error: LedgerError,
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Failure {
        Failure { begun: false, error }
    }
}
