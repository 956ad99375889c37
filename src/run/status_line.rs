//! The line on the status descriptor of a run that ends before it has a session.

use super::inherited;
use super::session::tell;
use crate::error::Error;
use crate::ledger::record::Outcome;
use crate::ledger::{SealInput, Status};
use std::os::fd::{OwnedFd, RawFd};

/// `--json-status-fd`: one line, whatever happens.
pub struct StatusLine(Option<OwnedFd>);

impl StatusLine {
    /// Takes the descriptor over, if one was named.
    pub fn open(fd: Option<RawFd>) -> Result<StatusLine, Error> {
        let Some(fd) = fd else { return Ok(StatusLine(None)) };
        inherited::adopt(fd).map(|fd| StatusLine(Some(fd))).map_err(|errno| Error::StatusDescriptor { fd, errno })
    }

    /// Gives it to the session, which tells of its end itself.
    pub fn take(&mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    /// For a run that ended before there was a session to tell of.
    pub fn not_started(self, error: &Error) {
        let end = SealInput { started: false, outcome: Outcome::NotStarted, exit_code: Some(error.status()) };
        tell(self.0, &Status::unsealed(end));
    }
}
