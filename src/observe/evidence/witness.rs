//! What the witness tells, which fanotify asks before what is watched is opened.

use super::{Evidence, EvidenceError, Hearing};
use crate::ledger::record::{Body, Gap};
use crate::ledger::{Ledger, LedgerError};
use crate::policy::Axis;

impl Evidence {
    /// From here on the witness is heard too.
    pub fn hear_witness(&mut self, hearing: Hearing) {
        self.witness = Some(hearing);
    }

    /// The witness is no longer heard: with nobody left who could read.
    pub fn witness_is_over(&mut self) {
        self.witness = None;
    }

    /// The witness has ended before it should: what was read since is on no record.
    pub fn witness_was_lost(&mut self, cause: &str, ledger: &mut Ledger) -> Result<(), LedgerError> {
        self.witness = None;
        if self.recording {
            let cause = format!("witness: {cause}: what was read last may be missing");
            let axis = Some(Axis::Filesystem);
            ledger.append(Body::Gap(Gap { axis, source: "fanotify".into(), lost: 0, cause }))?;
        }
        Ok(())
    }

    /// The witness, to be waited for.
    pub fn witness(&self) -> Option<&Hearing> {
        self.witness.as_ref()
    }

    /// Whether there may be more.
    pub(super) fn collect_witness(&mut self, ledger: &mut Ledger) -> Result<bool, EvidenceError> {
        let recording = self.recording;
        // It tells of nobody who reaches anything.
        self.witness.as_mut().map_or(Ok(false), |witness| witness.collect(ledger, recording, |_| {}))
    }
}
