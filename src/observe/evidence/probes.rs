//! What the observer has kept of the probes' refusals, awaited.

use super::{Evidence, EvidenceError, LAST_WORDS};
use crate::ledger::Ledger;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Instant;

impl Evidence {
    /// Waits until the observer has told what was refused to the probes.
    pub fn await_probes(&mut self, ledger: &mut Ledger) -> Result<(), EvidenceError> {
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            self.take_notes(ledger)?;
            let Some(observer) = self.observer.as_ref().filter(|observer| observer.refused().is_none()) else {
                return Ok(());
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(observer.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => {
                    return Err(EvidenceError::Observer(format!(
                        "it told nothing of the probes within {LAST_WORDS:?}"
                    )));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(EvidenceError::Observer(format!("poll: {errno}"))),
            }
        }
    }
}
