//! How far a long report is, on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

const WIDTH: usize = 30;

/// A bar on stderr; nothing where that is no terminal.
pub(super) struct Progress {
    total: usize,
    done: AtomicUsize,
    /// When it was last drawn, if yet; none where it never is.
    drawn: Option<Mutex<Option<Instant>>>,
}

impl Progress {
    /// A bar for so many files.
    pub(super) fn of(total: usize) -> Progress {
        let drawn = stderr().is_terminal().then(|| Mutex::new(None));
        Progress { total, done: AtomicUsize::new(0), drawn }
    }

    /// One more is read.
    pub(super) fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(mut drawn) = self.drawn.as_ref().and_then(|drawn| drawn.try_lock().ok()) else {
            return;
        };
        if drawn.is_none_or(|at| at.elapsed() >= PAUSE) {
            *drawn = Some(Instant::now());
            draw(&format!("\r{}", bar(done, self.total)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            draw("\r\x1b[K");
        }
    }
}

/// A terminal that is gone takes nothing away from the report.
fn draw(text: &str) {
    let mut out = stderr().lock();
    let _not_shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn bar(done: usize, total: usize) -> String {
    let filled = (done * WIDTH).checked_div(total).unwrap_or(0).min(WIDTH);
    format!("[{}{}] {done} of {total} files", "#".repeat(filled), "-".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 10), format!("[{}] 0 of 10 files", "-".repeat(30)));
        assert_eq!(bar(5, 10), format!("[{}{}] 5 of 10 files", "#".repeat(15), "-".repeat(15)));
        assert_eq!(bar(3, 0), format!("[{}] 3 of 0 files", "-".repeat(30)));
    }
}
