//! Sessions: a run that stays open between `up` and `down`, and takes in commands by `exec`.
//!
//! The supervisor listens on a socket that only its own user reaches ([`place`]); `exec`, `status` and `down` are its
//! clients ([`client`]), and what they say to each other is [`wire`]. The supervisor's side is the run's ([`crate::run`]).

mod apart;
pub mod client;
mod exec;
mod name;
pub mod place;
mod pty;
mod relay;
pub mod wire;

pub use name::Name;

use nix::errno::Errno;
use std::path::PathBuf;

/// Why there is no session, or none to be asked. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no place for it.
    #[error(
        "XDG_RUNTIME_DIR is not set; accepted: an absolute path of a directory of yours, where the session's socket is kept"
    )]
    NoDirectory,
    /// The place is not the user's own.
    #[error("{path}: {fault}; accepted: a directory of uid {uid} with mode 0700", path = path.display())]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// What is wrong about it.
        fault: String,
        /// Whose it has to be.
        uid: u32,
    },
    /// A call on a file of the session's.
    #[error("{call} {path}: {errno}", path = path.display())]
    File {
        /// The call.
        call: &'static str,
        /// The file.
        path: PathBuf,
        /// Its errno.
        errno: Errno,
    },
    /// The name is taken.
    #[error("session {name} is up already; accepted: another --name, or `ringfence down --name {name}` before")]
    IsUp {
        /// The name.
        name: Name,
    },
    /// There is none of that name.
    #[error("there is no session {name}; accepted: {known}")]
    None {
        /// The name.
        name: Name,
        /// Those that there are.
        known: String,
    },
    /// Its supervisor has died. What was left of it has been removed.
    #[error("session {name} is over: {what}")]
    Died {
        /// The name.
        name: Name,
        /// What is known of it.
        what: String,
    },
    /// The supervisor has refused, or failed.
    #[error("{0}")]
    Told(String),
    /// The supervisor has gone while it was spoken to.
    #[error("session {name}: the supervisor has ended")]
    Gone {
        /// The name.
        name: Name,
    },
    /// The way to it.
    #[error("session: {0}")]
    Channel(#[from] crate::channel::ChannelError),
    /// `--user`.
    #[error(
        "--user {0} is refused: a command of a session is the session's user; accepted: none, for `up --user` settles it"
    )]
    User(String),
    /// A call.
    #[error("{call}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}

/// Turns a call's cause into an error.
fn call<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> SessionError {
    move |source| SessionError::Call { call, source: source.into() }
}
