//! Denials and watched reads that a run had counted and not yet written when it was killed, read back from the file beside its ledger.

use super::counted::key;
use super::counts::{self, Slot};
use super::escape::printable;
use super::record::{Body, Denial, Record};
use super::view::View;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the file of counts beside a ledger may add to it.
///
/// Made before the ledger is read, so that of a run that goes on the record of a fold is seen rather than missed; then
/// given each record in order; then asked for what is left over. A sealed ledger holds everything: it needs none of this.
#[derive(Debug, Clone, Default)]
pub struct OpenFolds {
    name: String,
    found: Found,
    slots: Vec<Held>,
    misfit: Option<(u64, String)>,
    bad: Option<String>,
}

#[derive(Debug, Clone, Default)]
enum Found {
    #[default]
    Nothing,
    /// Its bytes, until the first record says which run it must be of.
    Bytes(Vec<u8>),
}

/// A slot, and what the ledger has said of it so far.
#[derive(Debug, Clone)]
struct Held {
    slot: Slot,
    base: Option<Body>,
    written: bool,
}

/// What a ledger lacks and the file of counts beside it has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outstanding {
    /// One denial for each fold of them that stands in no record: as the record would be, but for its arguments and ancestors,
    /// which are those of the last identical denial before it.
    pub denials: Vec<Denial>,
    /// Reads of watched paths that stand in no record.
    pub reads: u64,
    /// What is wrong with the file, one phrase each: its counts may be more than those above.
    pub faults: Vec<String>,
    /// A line of the ledger, from 1, that is not what the file says, and why. One of the two was changed.
    pub misfit: Option<(u64, String)>,
}

impl Outstanding {
    /// How many denials that are.
    pub fn count(&self) -> u64 {
        self.denials.iter().fold(0, |sum, denial| sum.saturating_add(denial.count))
    }
}

impl OpenFolds {
    /// Looks for the file beside a ledger. That there is none is the ordinary case.
    ///
    /// In a directory where others may make files only one counts that belongs to the ledger's owner and that no one else
    /// may write.
    pub fn beside(ledger: &Path) -> OpenFolds {
        let ledger = ledger.canonicalize().unwrap_or_else(|_| ledger.to_owned());
        let Some(file_name) = ledger.file_name() else { return OpenFolds::default() };
        let path = ledger.with_file_name(counts::name_for(file_name));
        let name = printable(&path.file_name().unwrap_or_default().to_string_lossy()).into_owned();
        let mut folds = OpenFolds { name, ..OpenFolds::default() };
        match bytes(&ledger, &path) {
            Ok(bytes) => folds.found = Found::Bytes(bytes),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => folds.bad = Some(format!("cannot be used: {cause}")),
        }
        folds
    }

    /// Takes a record of the ledger, in order.
    pub fn note(&mut self, record: &Record) {
        if let Found::Bytes(bytes) = std::mem::take(&mut self.found) {
            let (slots, bad) = counts::read(&bytes, &record.run);
            self.slots = slots.into_iter().map(|slot| Held { slot, base: None, written: false }).collect();
            self.bad = bad.map(|bad| bad.to_string());
        }
        if self.slots.is_empty() {
            return;
        }
        let own = key(&record.body);
        for held in &mut self.slots {
            let identical = own.is_some_and(|key| key == held.slot.key);
            if record.seq == held.slot.seq {
                held.base = identical.then(|| record.body.clone());
                if held.base.is_none() && self.misfit.is_none() {
                    let why = format!("is not the record whose repetitions {} counts", self.name);
                    self.misfit = Some((record.seq.saturating_add(1), why));
                }
            }
            held.written |= record.seq > held.slot.seq && identical;
        }
    }

    /// The same of a record in its line, which is decoded only where there is a file of counts.
    pub fn note_view(&mut self, view: &View<'_>) {
        if matches!(self.found, Found::Nothing) && self.slots.is_empty() {
            return;
        }
        // What has a view can be decoded.
        if let Ok(record) = view.record() {
            self.note(&record);
        }
    }

    /// What is left over when the ledger has been read to its end.
    pub fn end(self) -> Outstanding {
        let mut faults: Vec<String> = self.bad.iter().map(|bad| format!("{} {bad}", self.name)).collect();
        let (mut denials, mut reads) = (Vec::new(), 0u64);
        for Held { slot, base, written } in self.slots {
            match base {
                Some(Body::Denial(base) | Body::WouldDeny(base)) if !written => {
                    denials.push(Denial { count: slot.count, attempt: slot.attempt, ..base });
                }
                Some(_) if !written => reads = reads.saturating_add(slot.count),
                Some(_) => {}
                None if self.misfit.is_some() => {}
                None => faults.push(format!(
                    "{} counts {} denials after line {}, which is not there",
                    self.name,
                    slot.count,
                    slot.seq.saturating_add(1)
                )),
            }
        }
        Outstanding { denials, reads, faults, misfit: self.misfit }
    }

    /// The file's name, printable.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn bytes(ledger: &Path, path: &PathBuf) -> io::Result<Vec<u8>> {
    // Someone may have put a FIFO there, or a link.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    if kind != SFlag::S_IFREG {
        return Err(io::Error::other("it is no file"));
    }
    if stat.st_uid != ledger.metadata()?.uid() || stat.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() != 0 {
        return Err(io::Error::other("others than the ledger's owner could write it"));
    }
    let mut bytes = Vec::new();
    File::from(file).take(counts::SIZE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "open_folds_tests.rs"]
mod tests;
