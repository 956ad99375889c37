//! What the probes are refused: it is on no record, so nobody waits for each of it to be heard. It is kept here and told at once
//! when the probes are over, and the supervisor judges none of them before it has heard.

use super::{Of, PROBES_ARE_OVER, Served, Service};
use crate::observe::connectors::Note;
use crate::observe::told::{Refusal, ToProbe, Told};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendmsg};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{MutexGuard, PoisonError};

/// Tells the observer that nothing of the probes is left: the supervisor hears what was refused to them.
pub fn probes_are_over(handover: BorrowedFd<'_>) -> Result<(), Errno> {
    let word = [PROBES_ARE_OVER];
    sendmsg::<()>(handover.as_raw_fd(), &[IoSlice::new(&word)], &[], MsgFlags::MSG_NOSIGNAL, None).map(|_| ())
}

impl Service {
    /// Has a refusal recorded before it is answered. What is refused to the probes is on no record: it is kept here until
    /// they are over.
    pub(super) fn record(&self, served: &Served, refusal: &Refusal) -> bool {
        match served.of {
            Of::Command => self.ask(&Told::Refused(refusal.clone())),
            Of::Probes => {
                let Refusal { operation, errno, .. } = refusal;
                self.refused_to_probes().insert(ToProbe { operation: operation.clone(), errno: *errno });
                true
            }
        }
    }

    /// Tells who is about to reach where. Where the probes reach is theirs to say.
    pub(super) fn note(&self, served: &Served, note: &Note) -> bool {
        served.of == Of::Probes || self.tell(&Told::Reaches(note.clone()))
    }

    /// Tells what was refused to the probes, all at once, and waits until it is heard.
    pub(super) fn tell_of_probes(&self) -> bool {
        let refused = std::mem::take(&mut *self.refused_to_probes());
        self.ask(&Told::RefusedToProbes(refused))
    }

    fn refused_to_probes(&self) -> MutexGuard<'_, BTreeSet<ToProbe>> {
        self.to_probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
