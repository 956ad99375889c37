//! What a record holds and what it lacks: counted alike by the writer, for the seal, and by the check of the seal.

use super::record::{Body, Gap};
use crate::policy::Axis;
use std::collections::{BTreeMap, BTreeSet};

/// A count of records that could not be stored.
#[derive(Debug)]
struct Loss {
    lost: u64,
    cause: String,
}

/// Denials and holes by axis; a key of none touches all axes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    denials: BTreeMap<Axis, u64>,
    /// What a shadow would have refused, where there is one.
    would_deny: Option<BTreeMap<Axis, u64>>,
    reads: u64,
    holes: BTreeSet<Option<Axis>>,
    losses: BTreeMap<Option<Axis>, Loss>,
}

impl Tally {
    /// Counts a record that is in the ledger.
    pub(super) fn stored(&mut self, body: &Body) {
        match body {
            Body::Denial(denial) => self.denied(denial.axis, denial.count),
            Body::Start(start) if start.shadow.is_some() => self.would_deny = Some(BTreeMap::new()),
            Body::WouldDeny(denial) => self.would_be_denied(denial.axis, denial.count),
            Body::Read(read) => self.reads = self.reads.saturating_add(read.count),
            Body::Gap(gap) => {
                self.holes.insert(gap.axis);
            }
            _ => {}
        }
    }

    /// Counts denials that are in the ledger.
    pub(super) fn denied(&mut self, axis: Axis, count: u64) {
        let denials = self.denials.entry(axis).or_default();
        *denials = denials.saturating_add(count);
    }

    /// The same of what would have been refused.
    pub(super) fn would_be_denied(&mut self, axis: Axis, count: u64) {
        let counted = self.would_deny.get_or_insert_default().entry(axis).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Counts a record that is not in the ledger: a folded one and a gap for all that they stand for.
    pub(super) fn lost(&mut self, body: &Body, cause: String) {
        let records = match body {
            Body::Gap(gap) => gap.lost,
            body => body.count(),
        };
        let loss = self.losses.entry(body.axis()).or_insert(Loss { lost: 0, cause: String::new() });
        loss.lost = loss.lost.saturating_add(records);
        loss.cause = cause;
    }

    /// The next loss to be recorded. It stays until [`Tally::recorded`].
    pub(super) fn next_gap(&self) -> Option<Gap> {
        let (axis, loss) = self.losses.first_key_value()?;
        Some(Gap { axis: *axis, source: "writer".to_owned(), lost: loss.lost, cause: loss.cause.clone() })
    }

    /// The gap that [`Tally::next_gap`] gave is in the ledger.
    pub(super) fn recorded(&mut self, gap: &Gap) {
        self.losses.remove(&gap.axis);
        self.holes.insert(gap.axis);
    }

    pub(super) fn is_losing(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Denials by axis, each axis named.
    pub(super) fn denials(&self) -> BTreeMap<String, u64> {
        named(&self.denials)
    }

    /// What would have been refused by axis, each axis named; nothing where there is no shadow.
    pub(super) fn would_deny(&self) -> BTreeMap<String, u64> {
        self.would_deny.as_ref().map(named).unwrap_or_default()
    }

    /// Reads of watched paths.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    pub(super) fn complete(&self) -> bool {
        self.holes.is_empty()
    }

    /// Whether no gap touches the axis, for each axis.
    pub(super) fn complete_by_axis(&self) -> BTreeMap<String, bool> {
        let whole = |axis: Axis| !self.holes.contains(&None) && !self.holes.contains(&Some(axis));
        Axis::ALL.iter().map(|axis| (axis.name().to_owned(), whole(*axis))).collect()
    }
}

fn named(counts: &BTreeMap<Axis, u64>) -> BTreeMap<String, u64> {
    let count = |axis| counts.get(axis).copied().unwrap_or_default();
    Axis::ALL.iter().map(|axis| (axis.name().to_owned(), count(axis))).collect()
}
