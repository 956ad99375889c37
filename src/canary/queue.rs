//! What a search has yet to do, shared by its threads.
//!
//! Names wait, not descriptors: however wide and deep a tree is, few directories of it are open, and few of its names are
//! held at a time.

use super::tree::{Leaf, Listing};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// With more names of directories than this waiting, some are opened before the listings go on.
const MANY: usize = 1 << 16;

/// How many directories may then be open.
const MOST_OPEN: usize = 256;

/// One thing to do.
pub(super) enum Work {
    Directory(Leaf),
    Listing(Listing),
    File(Leaf),
}

#[derive(Default)]
struct State {
    files: Vec<Leaf>,
    /// Directories whose listing is not at its end.
    listings: Vec<Listing>,
    directories: Vec<Leaf>,
    /// How many works are in progress.
    working: usize,
}

/// What is to be done yet.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, works: impl IntoIterator<Item = Work>) {
        let mut state = self.state();
        for work in works {
            match work {
                Work::File(leaf) => state.files.push(leaf),
                Work::Listing(listing) => state.listings.push(listing),
                Work::Directory(leaf) => state.directories.push(leaf),
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next work; none when all is done and nobody can bring more.
    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.state();
        loop {
            if let Some(work) = state.next() {
                state.working += 1;
                return Some(work);
            }
            if state.working == 0 {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn done(&self) {
        let mut state = self.state();
        state.working -= 1;
        if state.working == 0 {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn next(&mut self) -> Option<Work> {
        if let Some(file) = self.files.pop() {
            return Some(Work::File(file));
        }
        let crowded = self.directories.len() > MANY && self.listings.len() < MOST_OPEN;
        if let Some(listing) = self.listings.pop_if(|_| !crowded) {
            return Some(Work::Listing(listing));
        }
        self.directories.pop().map(Work::Directory)
    }
}
