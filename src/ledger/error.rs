//! What can go wrong in keeping a ledger. Each message is one line.

use super::control_path::UnsafePath;
use super::writer::Tampering;
use nix::errno::Errno;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// A ledger that cannot be opened, written or removed. None of these is a denial.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A component of the ledger's path could be replaced by someone else.
    #[error("ledger: {0}")]
    Unsafe(#[from] UnsafePath),
    /// The path does not end in a file's name.
    #[error("ledger: {path:?} does not name a file")]
    NoName {
        /// The path as given.
        path: PathBuf,
    },
    /// A call on the ledger's file or on one of its directories failed.
    #[error("ledger: {call} {path:?}: {cause}")]
    Path {
        /// The system call, as its manual page is named.
        call: &'static str,
        /// What it was called on.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The file is not what was written any more.
    #[error("the ledger was tampered with in mid-run: {target:?}: {tampering}")]
    Tampered {
        /// The ledger's path.
        target: String,
        /// What was done.
        tampering: Tampering,
    },
    /// A failed start could not take back what it had made.
    #[error("{cause}; {left:?}, made by this start, could not be removed: {errno}")]
    LeftBehind {
        /// Why the start had failed.
        cause: Box<LedgerError>,
        /// What is left.
        left: PathBuf,
        /// Why it is left.
        errno: Errno,
    },
    /// Neither variable that the default path depends on is usable.
    #[error(
        "ledger: no default path: neither XDG_STATE_HOME nor HOME is an absolute path; give one with --ledger PATH"
    )]
    NoStateDirectory,
    /// `fd:` is not followed by a usable number.
    #[error("ledger: {text:?} names no descriptor: fd:N with N from 3 up is expected (0 to 2 are the command's own)")]
    DescriptorName {
        /// The text as given.
        text: String,
    },
    /// The descriptor that was named is not open, or not usable.
    #[error("ledger: fd:{fd}: {cause}")]
    Descriptor {
        /// Its number.
        fd: RawFd,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The descriptor is of a kind that keeps no lines in order, or is open for reading only.
    #[error("ledger: fd:{fd} is {found}: a file, pipe, stream socket or character device open for writing is expected")]
    DescriptorKind {
        /// Its number.
        fd: RawFd,
        /// What it is instead.
        found: &'static str,
    },
    /// getrandom(2) failed.
    #[error("ledger: getrandom: {0}")]
    Random(#[source] getrandom::Error),
    /// clock_gettime(2) failed.
    #[error("ledger: clock_gettime: {0}")]
    Clock(#[source] Errno),
    /// A record would not turn into JSON.
    #[error("ledger: record {seq} cannot be encoded: {cause}")]
    Encode {
        /// The record's number.
        seq: u64,
        /// Why.
        #[source]
        cause: serde_json::Error,
    },
    /// A record is longer than a reader of bounded memory takes.
    #[error("ledger: record {seq} would be {length} bytes long, above the limit of {limit}")]
    TooLong {
        /// The record's number.
        seq: u64,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// write(2) failed.
    #[error("ledger: record {seq} cannot be written to {target}: {cause}")]
    Write {
        /// The record's number.
        seq: u64,
        /// The path, or `fd:N`.
        target: String,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// A record out of its place: the first is `start`, which comes once, and none comes after `seal`.
    #[error("ledger: a record of kind {kind:?} {why}")]
    Order {
        /// Its kind.
        kind: &'static str,
        /// What is wrong with its place.
        why: &'static str,
    },
}
