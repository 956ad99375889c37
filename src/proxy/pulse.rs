//! The idle deadline over both directions of an exchange: it moves with every byte that gets through either way.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// When something last got through.
#[derive(Debug)]
pub struct Pulse(Cell<Instant>);

impl Pulse {
    /// A pulse that beats now.
    pub fn new() -> Pulse {
        Pulse(Cell::new(Instant::now()))
    }

    /// Something got through.
    pub fn beat(&self) {
        self.0.set(Instant::now());
    }

    /// Waits until nothing has got through for `limit`.
    pub async fn stopped(&self, limit: Duration) {
        loop {
            let deadline = self.0.get() + limit;
            if Instant::now() >= deadline {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse::new()
    }
}
