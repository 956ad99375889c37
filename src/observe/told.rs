//! What the observer tells the supervisor.

use crate::ledger::record::Subject;
use crate::observe::connectors::Note;
use crate::policy::Axis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A message of the observer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It is confined and takes listeners.
    Ready,
    /// It is not, and why.
    Failed(String),
    /// A refusal, to be recorded before it is answered: the supervisor says [`Heard`].
    Refused(Refusal),
    /// All that was refused to the probes, now that they are over: the supervisor says [`Heard`].
    RefusedToProbes(BTreeSet<ToProbe>),
    /// A read of a watched path, to be recorded before it goes on: the supervisor says [`Heard`].
    Read(PathRead),
    /// Someone is about to send to an address.
    Reaches(Note),
    /// What became of this many calls is not known; they went on to the kernel.
    Lost {
        /// How many.
        calls: u64,
        /// Why.
        cause: String,
    },
}

/// The supervisor's answer to a refusal or a read: it is recorded, or need not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Whether the command runs, whose it is then. What the probes did before counts for nothing afterwards.
    pub of_command: bool,
}

/// What is told of a call that was refused to a probe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToProbe {
    /// The system call.
    pub operation: String,
    /// The answer, as of [`Refusal::errno`].
    pub errno: Option<i32>,
}

/// One refused call, before it is known whether `control` would have refused it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The system call.
    pub operation: String,
    /// The answer; `None` where the call has gone on and the kernel tells nobody that a part of it had no effect.
    pub errno: Option<i32>,
    /// What it was about.
    pub object: Target,
    /// The axis, where the rule alone tells.
    pub axis: Option<Axis>,
    /// The rule.
    pub rule: String,
    /// The capability that would have let it pass, where one alone would.
    pub capability: Option<u32>,
    /// Who.
    pub subject: Subject,
}

/// A read of a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRead {
    /// The system call.
    pub operation: String,
    /// The path.
    pub path: Vec<u8>,
    /// The name that led there, where it is another one: a hard link, or a mount.
    pub by: Option<Vec<u8>>,
    /// Who.
    pub subject: Subject,
}

/// What a call was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Nothing that has a name, or none that could be read.
    None,
    /// Something that has a text: a socket's kind, ids, a process.
    Text(String),
    /// A path in the sandbox's file system.
    Path(PathTarget),
    /// An address on the network, with a port where the protocol has them.
    Address(IpAddr, Option<u16>),
}

/// A path that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// The path.
    pub path: Vec<u8>,
    /// The second path of rename(2) and link(2), the target of symlink(2).
    pub to: Option<Vec<u8>>,
    /// The path whose mount matters to the refusal: that of `path`, or of `to` where that one was refused.
    pub decisive: Vec<u8>,
    /// Whether the mount that holds it is read-only in the sandbox.
    pub read_only: bool,
    /// Whether the call would have made a file that is not there (open(2), `O_CREAT`).
    pub makes: bool,
}
