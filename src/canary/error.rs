//! Canaries that could not be planted or looked for.

use crate::policy::BadValue;
use std::io;
use std::path::PathBuf;

/// Why nothing was planted, or no search was made. What a search merely could not read is no such error: it is told
/// with the finds.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// A token or a pattern that is none.
    #[error(transparent)]
    Value(#[from] BadValue),
    /// Nothing to look for.
    #[error("no token is given; accepted: --tokens FILE as `canary plant` writes it, --token TEXT, --pattern REGEX")]
    NoTokens,
    /// A file that is not what its role asks for.
    #[error("{path:?} {is}; accepted: {accepted}")]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        is: String,
        /// What would do.
        accepted: &'static str,
    },
    /// A line of a tokens file.
    #[error("{path:?}: line {line}: {why}; accepted: what `canary plant --tokens` has written")]
    TokensFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What does not fit.
        why: String,
    },
    /// A file system's answer.
    #[error("{path:?} cannot be {act}: {cause}")]
    File {
        /// Read, written, …
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A failure that left something behind, because taking it back failed as well.
    #[error("{first}; what was changed could not all be put back: {left}")]
    HalfDone {
        /// What went wrong first.
        first: Box<CanaryError>,
        /// What is left.
        left: String,
    },
    /// getrandom(2).
    #[error("getrandom: {0}")]
    Random(getrandom::Error),
    /// The outcome could not be written.
    #[error("the outcome cannot be written: {0}")]
    Print(#[source] io::Error),
}

impl CanaryError {
    /// A file system's answer.
    pub(super) fn file(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CanaryError {
        let path = path.into();
        move |cause| CanaryError::File { act, path, cause }
    }
}
