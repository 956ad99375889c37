//! How far a search is, on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

/// A line on stderr; nothing where that is no terminal. How much there is in all is not known before it is read.
pub(super) struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    hits: AtomicU64,
    /// When it was last drawn; none where it never is.
    drawn: Option<Mutex<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let drawn = stderr().is_terminal().then(|| Mutex::new(Instant::now()));
        Progress { files: AtomicU64::new(0), bytes: AtomicU64::new(0), hits: AtomicU64::new(0), drawn }
    }

    /// One more file is read.
    pub(super) fn advance(&self, bytes: u64, hits: u64) {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let hits = self.hits.fetch_add(hits, Ordering::Relaxed) + hits;
        let Some(mut drawn) = self.drawn.as_ref().and_then(|drawn| drawn.try_lock().ok()) else { return };
        if drawn.elapsed() >= PAUSE {
            *drawn = Instant::now();
            draw(&format!("\r\x1b[K{files} files, {} MiB, {hits} hits", bytes >> 20));
        }
    }

    pub(super) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            draw("\r\x1b[K");
        }
    }
}

/// A terminal that is gone takes nothing away from the search.
fn draw(text: &str) {
    let mut out = stderr().lock();
    let _not_shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
