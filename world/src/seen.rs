//! What a server of the world has seen, in order, with a way to wait for more.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// A list that servers append to and tests read.
pub(crate) struct Seen<T> {
    entries: Mutex<Vec<T>>,
    grown: Condvar,
}

impl<T: Clone> Seen<T> {
    pub(crate) fn new() -> Seen<T> {
        Seen { entries: Mutex::new(Vec::new()), grown: Condvar::new() }
    }

    pub(crate) fn push(&self, entry: T) {
        self.entries.lock().expect("no panic while held").push(entry);
        self.grown.notify_all();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.entries.lock().expect("no panic while held").clone()
    }

    /// The entries once they are `enough`, or those that there are after `timeout`.
    pub(crate) fn wait_until(&self, timeout: Duration, enough: impl Fn(&[T]) -> bool) -> Vec<T> {
        let entries = self.entries.lock().expect("no panic while held");
        let (entries, _) =
            self.grown.wait_timeout_while(entries, timeout, |entries| !enough(entries)).expect("no panic while held");
        entries.clone()
    }

    /// The entries once there are `count` of them, or those that there are after `timeout`.
    pub(crate) fn wait_for(&self, count: usize, timeout: Duration) -> Vec<T> {
        self.wait_until(timeout, |entries| entries.len() >= count)
    }

    /// The entries once none has come for `quiet`.
    pub(crate) fn settled(&self, quiet: Duration) -> Vec<T> {
        let mut count = 0;
        loop {
            let entries = self.wait_for(count + 1, quiet);
            if entries.len() == count {
                return entries;
            }
            count = entries.len();
        }
    }
}
