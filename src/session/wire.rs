//! What a session's clients and its supervisor say to each other, over [`crate::channel::Channel`]. One connection has one
//! question.

use serde::{Deserialize, Serialize};

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Start a command. Beside it come four descriptors: the [`crate::install::Invocation`], written by [`crate::document`],
    /// with what is added to the session's environment, and what the command gets as stdin, stdout and stderr.
    Exec {
        /// Whether its stdin is a terminal of its own.
        terminal: bool,
    },
    /// Deliver a signal to the command that this connection has started.
    Signal {
        /// Its number.
        number: i32,
        /// Whether all of the command's process group gets it, as from a terminal.
        group: bool,
    },
    /// Say what is known.
    Status,
    /// End what is left, and seal.
    Down,
}

/// What the supervisor answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The command runs.
    Started,
    /// It was stopped by a signal.
    Stopped,
    /// It has ended, and this is its status as a shell has it.
    Ended(i32),
    /// The command was not started, or its session was ended.
    Failed {
        /// 126 and 127 as a shell has them, 125 for what is ours.
        status: i32,
        /// One line.
        message: String,
    },
    /// To [`Ask::Status`]. Beside it comes the [`Status`], written by [`crate::document`].
    Status,
    /// To [`Ask::Down`]: the record is sealed.
    Down {
        /// Whether it is complete; `None` where it could not be sealed.
        complete: Option<bool>,
    },
}

/// A session as `ringfence status --json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The run's identifier, as in the record.
    pub run: String,
    /// The policy's level.
    pub level: String,
    /// The rung.
    pub rung: String,
    /// Where the record is; null where it is a descriptor.
    pub ledger: Option<String>,
    /// The supervisor's process id.
    pub supervisor: i32,
    /// The uid that the commands run as.
    pub uid: u32,
    /// How many commands were started so far.
    pub started: u64,
    /// The commands that run now.
    pub commands: Vec<Command>,
}

/// A command that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// Its process id, as the supervisor sees it.
    pub pid: i32,
    /// Its arguments, control bytes escaped.
    pub argv: Vec<String>,
}
