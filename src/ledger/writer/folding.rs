//! The writer's way with denials: written up to a rate, counted above it (`ledger::fold`, `ledger::counts`).

use super::super::counts::Slot;
use super::super::error::LedgerError;
use super::super::fold::{Due, Fold, Folds, Key, key};
use super::super::record::{Denial, Evidence, Mechanism};
use super::{Appended, Ledger, LedgerMode};
use std::time::Instant;

impl Ledger {
    /// Writes the records of the counted denials whose window is over by `now`. To be called by the time that
    /// [`Ledger::next_flush`] says; [`Ledger::append`] and [`Ledger::seal`] do it by themselves.
    ///
    /// # Errors
    /// As [`Ledger::append`]. Counted denials that could not be written stay counted.
    pub fn flush_due(&mut self, now: Instant) -> Result<(), LedgerError> {
        while let Some(place) = self.folds.over(now) {
            if let Err(error) = self.flush(place) {
                return self.bear(error);
            }
        }
        Ok(())
    }

    /// When [`Ledger::flush_due`] has something to do; none where nothing is counted, or where it could not be written, which
    /// [`Ledger::is_losing`] tells and [`Ledger::retry`] tries again.
    pub fn next_flush(&self) -> Option<Instant> {
        if self.stuck { None } else { self.folds.next() }
    }

    /// Writes all counted denials.
    pub(super) fn flush_all(&mut self) -> Result<(), LedgerError> {
        while let Some(place) = self.folds.oldest() {
            self.flush(place)?;
        }
        Ok(())
    }

    pub(super) fn denied(&mut self, mut denial: Denial, now: Instant) -> Result<Appended, LedgerError> {
        denial.evidence = match denial.evidence {
            _ if self.shadow && denial.mechanism != Mechanism::Proxy => Evidence::ShadowObserved,
            Evidence::ShadowObserved if !self.shadow => Evidence::EnforcementObserved,
            told => told,
        };
        denial.attempt = self.attempts.number(&denial);
        let overdue = self.flush_due(now);
        let key = key(&denial);
        let appended = match self.folds.due(&key) {
            Due::Count(place) => self.count(place, denial.count),
            Due::Open if self.begin(key, &denial) => Ok(Appended::Counted),
            Due::Open | Due::Write => self.written(key, denial, now),
        };
        overdue.and(appended)
    }

    /// Writes a denial, and notes that it was.
    fn written(&mut self, key: Key, denial: Denial, now: Instant) -> Result<Appended, LedgerError> {
        let appended = self.write_now(&self.body_of(denial));
        if let Ok(Appended::Stored { seq, .. }) = &appended {
            self.folds.written(key, *seq, now);
        }
        appended
    }

    /// Counts one more of a kind that is being counted.
    fn count(&mut self, place: usize, count: u64) -> Result<Appended, LedgerError> {
        let Some(fold) = self.folds.at(place) else { return Ok(Appended::NotStored) };
        fold.denial.count = fold.denial.count.saturating_add(count);
        if self.counts.set(place, &slot(fold)).is_ok() {
            return Ok(Appended::Counted);
        }
        // A count that would not outlive this process is written at once. The record says more than the slot, and counts.
        match self.flush(place) {
            Ok(()) => Ok(Appended::Stored { seq: self.seq - 1, head: self.head.clone() }),
            Err(error) => self.bear(error).map(|()| Appended::NotStored),
        }
    }

    /// Begins to count a kind of denial, if there is the file for it and a place in it.
    fn begin(&mut self, key: Key, denial: &Denial) -> bool {
        let Some(base) = self.folds.last(&key).filter(|_| Folds::takes(denial) && self.counts.ready(&self.made)) else {
            return false;
        };
        let Some(place) = self.place() else { return false };
        let slot = Slot { seq: base, count: denial.count, attempt: denial.attempt, key };
        if self.counts.set(place, &slot).is_err() {
            return false;
        }
        self.folds.open(place, key, denial.clone());
        true
    }

    /// A free place: where there is none, that of the fold that was opened first, which is written. Where it cannot be,
    /// its count stays, and what had needed the place shares the ledger's fate.
    fn place(&mut self) -> Option<usize> {
        if let Some(place) = self.folds.free(&self.leaving) {
            return Some(place);
        }
        let oldest = self.folds.oldest()?;
        self.flush(oldest).ok()?;
        self.folds.free(&self.leaving)
    }

    /// Writes the record of a fold, and then frees its slot.
    fn flush(&mut self, place: usize) -> Result<(), LedgerError> {
        let Some(fold) = self.folds.at(place) else { return Ok(()) };
        let denial = fold.denial.clone();
        let body = self.body_of(denial);
        let result = self.settle().and_then(|()| self.put(&body));
        let begun = result.as_ref().err().is_none_or(|failure| failure.begun);
        self.stuck = !begun;
        if begun {
            self.tally.stored(&body);
            self.folds.close(place, self.seq - 1);
            self.leaving.push(place);
        }
        self.free_places();
        result.map_err(|failure| failure.error)
    }

    /// Frees the slots of folds that stand in the ledger whole: until the last byte of a record is out, the slot counts.
    pub(super) fn free_places(&mut self) {
        if !self.sink.owes() {
            self.leaving.drain(..).for_each(|place| self.counts.clear(place));
        }
    }

    /// An error where it ends the run; where it does not, what was not written is kept.
    fn bear(&self, error: LedgerError) -> Result<(), LedgerError> {
        match self.mode {
            LedgerMode::Required => Err(error),
            LedgerMode::Degrade => Ok(()),
        }
    }
}

fn slot(fold: &Fold) -> Slot {
    Slot { seq: fold.base, count: fold.denial.count, attempt: fold.denial.attempt, key: fold.key }
}

#[cfg(test)]
#[path = "folding_tests.rs"]
mod tests;
