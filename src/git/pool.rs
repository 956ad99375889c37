//! Work that is shared among threads, each of which finds more of it: shares are handed out first come, first served, and all
//! is done when none is left and nobody is at one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is still to be done, by number.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    /// How many threads wait for a share.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    shares: VecDeque<Vec<u32>>,
    /// How many threads may still add shares.
    at_work: usize,
    stopped: bool,
}

/// While it is held there may be more work. One that is dropped by a panic stops all.
pub(super) struct AtWork<'a>(&'a Pool);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.at_work -= 1;
        state.stopped |= std::thread::panicking();
        if state.stopped || state.at_work == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that this thread is about to add shares.
    pub fn begin(&self) -> AtWork<'_> {
        self.state().at_work += 1;
        AtWork(self)
    }

    /// Adds a share; for who is at work.
    pub fn add(&self, share: Vec<u32>) {
        self.state().shares.push_back(share);
        self.changed.notify_one();
    }

    /// The next share, once there is one; `None` when all is done or somebody has stopped it.
    pub fn next(&self) -> Option<(Vec<u32>, AtWork<'_>)> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(share) = state.shares.pop_front() {
                state.at_work += 1;
                return Some((share, AtWork(self)));
            }
            if state.at_work == 0 {
                return None;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a thread has nothing to do.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Has nobody take another share.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down from each number, a share a step.
    fn count_down(pool: &Pool, done: &AtomicUsize) {
        while let Some((share, _at_work)) = pool.next() {
            done.fetch_add(share.len(), Ordering::Relaxed);
            share.iter().filter(|left| **left > 0).for_each(|left| pool.add(vec![left - 1]));
        }
    }

    #[test]
    fn all_is_done_once_and_every_thread_ends() {
        let (pool, done) = (Pool::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let begun = pool.begin();
            (0..4).for_each(|_| drop(scope.spawn(|| count_down(&pool, &done))));
            (0..50).for_each(|number| pool.add(vec![number, number]));
            drop(begun);
        });
        assert_eq!(done.load(Ordering::Relaxed), (1..=50).sum::<usize>() * 2);
        assert!(pool.next().is_none());
    }

    #[test]
    fn who_stops_or_panics_stops_all() {
        for panics in [false, true] {
            let pool = Pool::default();
            let begun = pool.begin();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| pool.next().is_none());
                let ends = scope.spawn(|| {
                    let _begun = pool.begin();
                    match panics {
                        true => panic!("on purpose"),
                        false => pool.stop(),
                    }
                });
                assert_eq!(ends.join().is_err(), panics);
                assert!(waits.join().unwrap());
            });
            drop(begun);
        }
    }
}
