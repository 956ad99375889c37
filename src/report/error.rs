//! Reports that could not be made.

use crate::ledger::VerifyError;
use std::io;
use std::path::PathBuf;

/// Why there is no report. A ledger that is incomplete or altered is no such reason: its run is left out and named.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The ledger could not be read.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// An input could not be opened or read.
    #[error("{what} {path:?} cannot be read: {cause}")]
    Read {
        /// Ledger, directory or transcript.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file that was named as a ledger is none.
    #[error("{path:?}: line 1 is no record of a ledger, which begins with {{\"v\":")]
    NoLedger {
        /// The file.
        path: PathBuf,
    },
    /// A directory without ledgers.
    #[error("{path:?} holds no ledger: no file beneath it has a name that ends in .jsonl or .jsonl.zst")]
    NoneFound {
        /// The directory.
        path: PathBuf,
    },
    /// A transcript whose run is not known.
    #[error("transcript {path:?} belongs to no run: {why}; accepted: one LOG, or a transcript beside its ledger")]
    NoRun {
        /// The transcript.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// A transcript in no known form.
    #[error("transcript {path:?}: line {line}: {why}")]
    Transcript {
        /// The transcript.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What does not fit.
        why: String,
    },
    /// The report itself could not be written.
    #[error("the report cannot be written: {0}")]
    Print(#[source] io::Error),
}
