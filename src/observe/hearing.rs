//! The supervisor's end of the observer: what it tells is recorded before it is answered.

use super::connectors::Note;
use super::control;
use super::evidence::{EvidenceError, record};
use super::told::{Heard, Told};
use crate::channel::{Channel, ChannelError};
use crate::ledger::Ledger;
use crate::ledger::record::{Body, Gap};
use crate::policy::Axis;
use crate::sys;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// Messages that are taken in before anything else has its turn.
const AT_ONCE: usize = 64;

/// Who is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The observer, which answers the notifier.
    Notifier,
    /// The witness, which is asked by fanotify.
    Fanotify,
}

impl Source {
    /// What it loses, by the names of gaps.
    fn gap(self, lost: u64, cause: String) -> Gap {
        match self {
            Source::Notifier => Gap { axis: None, source: "notifier".into(), lost, cause },
            Source::Fanotify => Gap { axis: Some(Axis::Filesystem), source: "fanotify".into(), lost, cause },
        }
    }

    fn failed(self, cause: String) -> EvidenceError {
        match self {
            Source::Notifier => EvidenceError::Observer(cause),
            Source::Fanotify => EvidenceError::Witness(cause),
        }
    }

    fn ended(self, error: ChannelError) -> EvidenceError {
        match error {
            ChannelError::Closed => self.failed("it has ended".into()),
            error => self.failed(error.to_string()),
        }
    }
}

/// The observer or the witness, heard.
#[derive(Debug)]
pub struct Hearing {
    channel: Channel,
    /// Whose words they are.
    source: Source,
    /// What the command would be capable of under `control`: what this process is.
    capabilities: u64,
    /// What was refused to the probes, by operation and errno, once that was told.
    refused: Option<BTreeSet<(String, String)>>,
    /// What of what is watched was opened before the command runs, by operation and path.
    reads: BTreeSet<(String, PathBuf)>,
}

impl Hearing {
    /// Waits until the process is ready: confined, and all that it watches marked.
    pub fn begin(source: Source, channel: Channel, patience: Duration) -> Result<Hearing, EvidenceError> {
        let capabilities = sys::capget().map_err(|errno| source.failed(format!("capget: {errno}")))?.effective;
        match channel.receive_within::<Told>(patience).map_err(|error| source.ended(error))? {
            Some(Told::Ready) => Ok(Hearing { channel, source, capabilities, refused: None, reads: BTreeSet::new() }),
            Some(Told::Failed(cause)) => Err(source.failed(cause)),
            Some(other) => Err(source.failed(format!("said {other:?} before it was ready"))),
            None => Err(source.failed(format!("not ready within {patience:?}"))),
        }
    }

    /// What was refused to the probes, by operation and errno; `None` as long as it was not told.
    pub fn refused(&self) -> Option<&BTreeSet<(String, String)>> {
        self.refused.as_ref()
    }

    /// What of what is watched the probes opened, by operation and path.
    pub fn reads(&self) -> &BTreeSet<(String, PathBuf)> {
        &self.reads
    }

    /// Takes in some of what is there. Returns whether there may be more. Who is about to reach where is given to `note`, and
    /// nothing where that may have been lost.
    pub fn collect(
        &mut self,
        ledger: &mut Ledger,
        recording: bool,
        mut note: impl FnMut(Option<Note>),
    ) -> Result<bool, EvidenceError> {
        let source = self.source;
        let ended = |error| source.ended(error);
        for _ in 0..AT_ONCE {
            let told = match self.channel.receive_now::<Told>().map_err(ended)? {
                Some(told) => told,
                None => return Ok(false),
            };
            match told {
                // No command has a listener before recording begins.
                Told::Refused(_) if !recording => {
                    return Err(source.failed("it told of a command's call too soon".into()));
                }
                Told::Refused(refusal) => {
                    if let Some(denial) = control::denial(&refusal, self.capabilities) {
                        record(ledger, Body::Denial(denial))?;
                    }
                    self.channel.send(&Heard { of_command: recording }).map_err(ended)?;
                }
                Told::RefusedToProbes(_) if self.refused.is_some() => {
                    return Err(source.failed("it told of the probes a second time".into()));
                }
                Told::RefusedToProbes(refused) => {
                    let named = |errno: Option<i32>| errno.map(|errno| format!("{:?}", Errno::from_raw(errno)));
                    let told = refused.into_iter().map(|one| (one.operation, named(one.errno).unwrap_or_default()));
                    self.refused = Some(told.collect());
                    self.channel.send(&Heard { of_command: recording }).map_err(ended)?;
                }
                Told::Read(read) => {
                    if recording {
                        record(ledger, Body::Read(control::read(&read)))?;
                    } else {
                        let path = PathBuf::from(OsString::from_vec(read.path));
                        self.reads.insert((read.operation, path));
                    }
                    self.channel.send(&Heard { of_command: recording }).map_err(ended)?;
                }
                Told::Reaches(reached) => note(Some(reached)),
                // What could not be marked stays so when the command runs.
                Told::Lost { calls: 0, cause } if !recording && source == Source::Fanotify => {
                    return Err(source.failed(cause));
                }
                // A probe's own call: what it saw is what counts.
                Told::Lost { .. } if !recording => {}
                Told::Lost { calls, cause } => {
                    // It may have been a connect.
                    note(None);
                    record(ledger, Body::Gap(source.gap(calls, cause)))?;
                }
                Told::Failed(cause) => return Err(source.failed(cause)),
                Told::Ready => return Err(source.failed("it began a second time".into())),
            }
        }
        Ok(true)
    }
}

impl AsFd for Hearing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
