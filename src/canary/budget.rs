//! What a whole search may take, whatever it meets: shared by all its threads.

use super::unpack::Found;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// How much memory the hits that are listed may take, and what else is: in bytes each. What was not read takes no room from
/// what was found.
const LISTED: u64 = 32 << 20;

/// What an entry takes beside its texts, in bytes.
const ENTRY: usize = 128;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget {
    /// How many bytes may be unpacked in all.
    pub(super) limit: u64,
    unpacked: AtomicU64,
    hits: AtomicU64,
    notes: AtomicU64,
    threads: AtomicUsize,
}

impl Budget {
    /// Of a search that may unpack so many bytes.
    pub(super) fn of(limit: u64) -> Budget {
        Budget {
            limit,
            unpacked: AtomicU64::new(limit),
            hits: AtomicU64::new(LISTED),
            notes: AtomicU64::new(LISTED),
            threads: AtomicUsize::new(cores() - 1),
        }
    }

    /// How many bytes may still be unpacked.
    pub(super) fn left(&self) -> u64 {
        self.unpacked.load(Ordering::Relaxed)
    }

    /// So many bytes were unpacked.
    pub(super) fn unpacked(&self, bytes: u64) {
        // It always yields a value, so it always succeeds.
        let _before =
            self.unpacked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
    }

    /// Leaves out of what a file gave what can't be listed any more: it is counted only.
    pub(super) fn list(&self, path: &Path, found: &mut Found) {
        let texts = |within: &[String]| ENTRY + within.iter().map(|name| ENTRY + name.len()).sum::<usize>();
        let path = path.as_os_str().len();
        let hits: usize = found.hits.iter().map(|hit| path + texts(&hit.within)).sum();
        if hits > 0 && !taken(&self.hits, hits) {
            found.more_hits += std::mem::take(&mut found.hits).len() as u64;
        }
        let notes: usize = found.unread.iter().map(|unread| path + unread.why.len() + texts(&unread.within)).sum();
        if notes > 0 && !taken(&self.notes, notes) {
            found.more_unread += std::mem::take(&mut found.unread).len() as u64;
        }
    }

    /// Whether a file that was passed over can be listed.
    pub(super) fn list_skipped(&self, path: &Path) -> bool {
        taken(&self.notes, path.as_os_str().len() + ENTRY)
    }

    /// How many of so many further threads may be had. They are to be given back.
    pub(super) fn take_threads(&self, wanted: usize) -> usize {
        let take = |free: usize| Some(free - free.min(wanted));
        let taken = self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_or(0, |free| free.min(wanted))
    }

    /// Gives threads back.
    pub(super) fn give_threads(&self, count: usize) {
        self.threads.fetch_add(count, Ordering::Relaxed);
    }
}

/// How many threads run at the same time.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn taken(of: &AtomicU64, size: usize) -> bool {
    let size = size as u64;
    of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::unpack::Unread;
    use super::*;

    #[test]
    fn no_more_threads_are_given_than_there_are() {
        let budget = Budget::of(0);
        let all = cores() - 1;
        assert_eq!(budget.take_threads(usize::MAX), all);
        assert_eq!(budget.take_threads(1), 0);
        budget.give_threads(all);
        assert_eq!(budget.take_threads(all), all);
    }

    #[test]
    fn what_can_no_longer_be_listed_is_counted() {
        let budget = Budget::of(0);
        let unread = Unread { within: vec!["x".repeat(4096); 8], why: "y".into() };
        let mut listed = 0;
        let files = 2000;
        let mut more = 0;
        for _ in 0..files {
            let mut found = Found { unread: vec![unread.clone()], ..Found::default() };
            budget.list(Path::new("z"), &mut found);
            listed += found.unread.len() as u64;
            more += found.more_unread;
        }
        assert!(listed > 500 && more > 500, "{listed} {more}");
        assert_eq!(listed + more, files);
        assert!(budget.list_skipped(Path::new("z")) || budget.left() == 0);
    }
}
