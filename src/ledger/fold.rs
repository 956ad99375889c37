//! Which denials are counted together instead of being written one by one.
//!
//! Identical denials are written up to a rate, [`BURST`] within a [`WINDOW`]; what comes above it until the window ends
//! is counted and written as one record. A person or a program that tries again by hand, with a back-off or in a test
//! loop stays below that rate, so that its tries stand in the record one by one with their times. A loop that does nothing
//! else makes hundreds of thousands a second and is eleven records a second then.

use super::parts::Parts;
use super::record::Denial;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How many identical denials of one window are written one by one.
pub const BURST: u64 = 10;
/// How long identical denials are counted together at most, from the first that is written.
pub const WINDOW: Duration = Duration::from_secs(1);
/// How many kinds of denial are counted at the same time; for one more, the one counted longest is written.
pub const OPEN: usize = 256;
/// How many kinds of denial are watched for their rate at the same time; for one more, the oldest is forgotten, which
/// means that it is written one by one again.
pub const WATCHED: usize = 4096;
/// The most text, in bytes, that a denial to be counted may have: [`OPEN`] of them are kept in memory.
const TEXT: usize = 16 * 1024;

/// What two identical denials have in common, as a hash.
pub type Key = [u8; 32];

/// The key of a denial: all that it says, but its count, its number among the tries, and of its subject the arguments and
/// the ancestors, for which the first of the denials that are counted together stands.
pub fn key(denial: &Denial) -> Key {
    let Denial { evidence, axis, mechanism, operation, object, errno, http_status, rule, reason, subject, .. } = denial;
    let mut parts = Parts::default();
    for word in [evidence.name(), axis.name(), mechanism.name(), operation, rule, reason] {
        parts.text(Some(word));
    }
    for word in [errno, &object.host, &object.path, &object.to, &object.text, &subject.comm, &subject.exe] {
        parts.text(word.as_deref());
    }
    parts.number(*http_status);
    parts.number(object.port);
    parts.number(subject.pid);
    parts.number(subject.uid);
    parts.addresses(&object.addrs);
    parts.digest()
}

/// Denials that are being counted.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) key: Key,
    /// The last record that holds an identical denial. None follows it until the fold's own record.
    pub(super) base: u64,
    /// The first of them, with the count of all so far.
    pub(super) denial: Denial,
    ends: Instant,
    opened: u64,
}

/// What is known of the rate of one kind of denial.
#[derive(Debug)]
struct Window {
    ends: Instant,
    /// Records that are written.
    written: u64,
    /// The last of them.
    last: u64,
    /// Its place among the folds.
    fold: Option<usize>,
}

/// What becomes of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It is to be written.
    Write,
    /// It is above the rate.
    Open,
    /// It is one more of those in this place.
    Count(usize),
}

/// The kinds of denial that were made lately. Its size is bounded by [`WATCHED`] and [`OPEN`].
#[derive(Debug, Default)]
pub(super) struct Folds {
    windows: HashMap<Key, Window>,
    /// Their keys in the order of their ends.
    order: VecDeque<Key>,
    places: Vec<Option<Fold>>,
    opened: u64,
}

impl Folds {
    pub(super) fn due(&self, key: &Key) -> Due {
        match self.windows.get(key) {
            Some(Window { fold: Some(place), .. }) => Due::Count(*place),
            Some(window) if window.written >= BURST => Due::Open,
            _ => Due::Write,
        }
    }

    /// Notes that a denial stands in record `seq`.
    pub(super) fn written(&mut self, key: Key, seq: u64, now: Instant) {
        if let Some(window) = self.windows.get_mut(&key) {
            window.written += 1;
            window.last = seq;
            return;
        }
        if self.order.len() >= WATCHED {
            // One that is being counted and could not be written stays, and nothing new is watched meanwhile.
            let Some(oldest) = self.order.front().filter(|key| self.windows.get(*key).is_none_or(|w| w.fold.is_none()))
            else {
                return;
            };
            self.windows.remove(oldest);
            self.order.pop_front();
        }
        self.windows.insert(key, Window { ends: now + WINDOW, written: 1, last: seq, fold: None });
        self.order.push_back(key);
    }

    /// Whether a denial is small enough to be kept.
    pub(super) fn takes(denial: &Denial) -> bool {
        let Denial { operation, object, errno, rule, reason, subject, .. } = denial;
        let words = [errno, &object.host, &object.path, &object.to, &object.text, &subject.comm, &subject.exe];
        let words = words.into_iter().flatten().chain([operation, rule, reason]);
        let lists = [&subject.argv, &subject.ancestors].into_iter().flatten().flatten();
        let text: usize = words.chain(lists).map(|text| text.len() + size_of::<String>()).sum();
        text + size_of_val(&object.addrs[..]) <= TEXT
    }

    /// A place for one more fold, below [`OPEN`], that is not among `taken`.
    pub(super) fn free(&self, taken: &[usize]) -> Option<usize> {
        let free = |place: &usize| self.places.get(*place).is_none_or(Option::is_none) && !taken.contains(place);
        (0..OPEN).find(free)
    }

    /// Begins to count in a place that is free. The kind is one that [`Folds::due`] has called [`Due::Open`].
    pub(super) fn open(&mut self, place: usize, key: Key, denial: Denial) {
        let Some(window) = self.windows.get_mut(&key) else { return };
        window.fold = Some(place);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(Fold { key, base: window.last, denial, ends: window.ends, opened: self.opened });
        self.opened += 1;
    }

    /// The record that an identical denial was last written to.
    pub(super) fn last(&self, key: &Key) -> Option<u64> {
        self.windows.get(key).map(|window| window.last)
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Fold> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Ends a fold, which stands in record `seq`.
    pub(super) fn close(&mut self, place: usize, seq: u64) {
        let Some(fold) = self.places.get_mut(place).and_then(Option::take) else { return };
        if let Some(window) = self.windows.get_mut(&fold.key) {
            window.fold = None;
            window.last = seq;
        }
    }

    /// The fold that was opened first.
    pub(super) fn oldest(&self) -> Option<usize> {
        let opened = |place: &usize| self.places[*place].as_ref().map(|fold| fold.opened);
        (0..self.places.len()).filter(|place| self.places[*place].is_some()).min_by_key(opened)
    }

    /// The next fold whose window is over. Windows that are over and have none are forgotten on the way.
    pub(super) fn over(&mut self, now: Instant) -> Option<usize> {
        while let Some(key) = self.order.front() {
            match self.windows.get(key) {
                Some(window) if window.ends > now => return None,
                Some(Window { fold: Some(place), .. }) => return Some(*place),
                _ => {}
            }
            self.windows.remove(key);
            self.order.pop_front();
        }
        None
    }

    /// When the first of the folds is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.places.iter().flatten().map(|fold| fold.ends).min()
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
