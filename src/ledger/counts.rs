//! The file beside a ledger that keeps the counts of denials that are being counted and stand in no record yet.
//!
//! It is written with plain pwrite(2): what a process has written lies in the kernel's page cache and is there after the
//! process's death as it would be with a shared mapping, and no write can fault where the disk is full. A slot is written
//! whole in one call, within one page, which a signal does not divide; a check sum shows what did.
//!
//! The file never says whether a fold has been written: the ledger does. A slot names the record after which it counts
//! (`seq`) and the kind of denial (`key`). While a kind is counted no record of it is written but the fold's own, so that
//! any such record after `seq` means that the slot is over. Hence the order: count here, write the record, free the slot;
//! dying between any two of them neither loses a denial nor counts it twice.

use super::error::LedgerError;
use super::fold::{Key, OPEN};
use super::sink::holding_signals;
use super::target::Made;
use nix::errno::Errno;
use nix::sys::uio::pwrite;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The size of the head and of a slot in bytes; a page holds a whole number of them.
const UNIT: usize = 64;
/// The size of the file in bytes.
pub const SIZE: usize = UNIT * (1 + OPEN);
/// What the file begins with; the last digit is the version of its form.
const MAGIC: &[u8; 16] = b"ringfence counts";
const VERSION: u32 = 1;

/// The name of the file for a ledger of this name: `RUN.counts` for `RUN.jsonl` (and for a compressed `RUN.jsonl.zst`),
/// else the ledger's name and `.counts`.
pub fn name_for(ledger: &OsStr) -> OsString {
    let name = ledger.as_bytes();
    let stem = name.strip_suffix(b".zst").unwrap_or(name);
    let stem = stem.strip_suffix(b".jsonl").filter(|stem| !stem.is_empty()).unwrap_or(name);
    OsString::from_vec([stem, b".counts"].concat())
}

/// Denials that were counted and stand in no record of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The record after which they are counted: the last one that holds an identical denial.
    pub seq: u64,
    /// How many there are.
    pub count: u64,
    /// Which try at their object the first of them is, as in [`super::record::Denial::attempt`].
    pub attempt: u64,
    /// Their kind.
    pub key: Key,
}

impl Slot {
    /// The slot's bytes, all little-endian: seq, count, attempt, key, and eight bytes of SHA-256 over them and the run.
    fn bytes(&self, run: &str) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        bytes[..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.key);
        summed(bytes, run)
    }

    fn read(bytes: &[u8; UNIT], run: &str) -> Option<Slot> {
        if summed(*bytes, run) != *bytes {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Slot { seq: number(0)?, count: number(8)?, attempt: number(16)?, key: bytes[24..56].try_into().ok()? })
    }
}

fn summed(mut bytes: [u8; UNIT], run: &str) -> [u8; UNIT] {
    let sum = Sha256::new().chain_update(run).chain_update(&bytes[..56]).finalize();
    bytes[56..].copy_from_slice(&sum[..8]);
    bytes
}

fn head(run: &str) -> [u8; UNIT] {
    let mut bytes = [0; UNIT];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
    for (to, from) in bytes[24..40].iter_mut().zip(run.bytes()) {
        *to = from;
    }
    summed(bytes, run)
}

/// What is wrong with a file of counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCounts {
    /// It is shorter or longer than any. Shorter ones are seen when the run was killed while it made the file, before
    /// anything was counted.
    #[error("is of {0} bytes, not {SIZE}")]
    Size(usize),
    /// It belongs to another run, or is no such file.
    #[error("is not of this run")]
    Head,
    /// Some of its slots are neither free nor whole.
    #[error("has {0} slots that cannot be read")]
    Slots(usize),
}

/// Reads the bytes of a file of counts: the slots that are in use, and what is wrong with the rest.
pub fn read(bytes: &[u8], run: &str) -> (Vec<Slot>, Option<BadCounts>) {
    if bytes.len() != SIZE {
        return (Vec::new(), Some(BadCounts::Size(bytes.len())));
    }
    let (units, _) = bytes.as_chunks::<UNIT>();
    if units[0] != head(run) {
        return (Vec::new(), Some(BadCounts::Head));
    }
    let used: Vec<_> = units[1..].iter().filter(|unit| **unit != [0; UNIT]).map(|unit| Slot::read(unit, run)).collect();
    let bad = used.iter().filter(|slot| slot.is_none()).count();
    (used.into_iter().flatten().collect(), (bad > 0).then_some(BadCounts::Slots(bad)))
}

/// Writes all of a new file, so that what is written later needs no more room on the disk.
fn fill(file: &OwnedFd, run: &str) -> Result<(), Errno> {
    let mut bytes = vec![0; SIZE];
    bytes[..UNIT].copy_from_slice(&head(run));
    holding_signals(|| match pwrite(file, &bytes, 0)? {
        SIZE => Ok(()),
        _ => Err(Errno::ENOSPC),
    })
}

/// The file as the ledger's writer keeps it.
#[derive(Debug)]
pub(super) struct Counts {
    run: String,
    file: Option<OwnedFd>,
    usable: bool,
}

impl Counts {
    /// Nothing is made yet.
    pub(super) fn of(run: &str) -> Counts {
        Counts { run: run.to_owned(), file: None, usable: true }
    }

    /// Whether the file is there, which is made if need be. One failure is for good: without the file nothing is counted
    /// any more, and each denial is written.
    pub(super) fn ready(&mut self, made: &Made) -> bool {
        if self.usable && self.file.is_none() {
            match made.create_beside(name_for) {
                Ok(file) => {
                    self.usable = fill(&file, &self.run).is_ok();
                    self.file = Some(file);
                }
                Err(_) => self.usable = false,
            }
        }
        self.usable
    }

    /// Removes the file, in which nothing is counted any more, if its name still means it.
    pub(super) fn remove(&mut self, made: &Made) -> Result<(), LedgerError> {
        self.usable = false;
        match self.file.take() {
            Some(file) => made.remove_beside(name_for, &file),
            None => Ok(()),
        }
    }

    pub(super) fn set(&mut self, place: usize, slot: &Slot) -> Result<(), Errno> {
        self.write(place, &slot.bytes(&self.run))
    }

    /// Frees a place whose fold stands in the ledger. Where that fails the ledger still tells that the slot is over.
    pub(super) fn clear(&mut self, place: usize) {
        if self.write(place, &[0; UNIT]).is_err() {
            self.usable = false;
        }
    }

    fn write(&mut self, place: usize, bytes: &[u8; UNIT]) -> Result<(), Errno> {
        let file = self.file.as_ref().filter(|_| self.usable).ok_or(Errno::EBADF)?;
        let at = (UNIT * (1 + place)) as i64;
        let written = holding_signals(|| match pwrite(file, bytes, at)? {
            UNIT => Ok(()),
            _ => Err(Errno::EIO),
        });
        self.usable = written.is_ok();
        written
    }
}

/// A file of counts with one slot.
#[cfg(test)]
pub(super) fn forged(run: &str, slot: Slot) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    bytes[..UNIT].copy_from_slice(&head(run));
    bytes[UNIT..2 * UNIT].copy_from_slice(&slot.bytes(run));
    bytes
}
