//! The record form: every kind that a ledger may hold, as it stands in one JSON line.
//!
//! The whole schema is fixed here, the kinds that later sources write included, so that a reader of today's
//! ledgers reads tomorrow's.

pub use super::denial::{Denial, Evidence, Mechanism};
use super::shield::is_zero;
pub use super::shield::{GitEnd, Shield, ShieldChange, ShieldState, ShieldsEnd};
use crate::policy::Axis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The version of the record form, in every line as `v`.
pub const VERSION: u32 = 1;

/// One line of a ledger: what every record carries, and the kind's own fields beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub v: u32,
    /// The record's number in its run, from 0, without holes.
    pub seq: u64,
    /// Wall-clock time, RFC 3339 with nanoseconds, UTC.
    pub time: String,
    /// `CLOCK_MONOTONIC` in nanoseconds: the order of events when the wall clock is set.
    pub mono_ns: u64,
    /// The run's identifier, 16 hexadecimal digits.
    pub run: String,
    /// The level's name, or `custom`.
    pub level: String,
    /// What the record says.
    #[serde(flatten)]
    pub body: Body,
    /// SHA-256 of the line before, in hexadecimal; 64 zeros in the first.
    pub prev: String,
}

/// The kinds of record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// The first record: what is in force and what cannot be observed here.
    Start(Start),
    /// One pre-flight probe.
    Probe(Probe),
    /// One refused operation.
    Denial(Denial),
    /// A read of a watched path.
    Read(PathEvent),
    /// What the shadowed policy would have refused: it was not.
    WouldDeny(Denial),
    /// An exact count of what could not be stored or received.
    Gap(Gap),
    /// A failure of the world outside, which is never a denial.
    Infrastructure(Infrastructure),
    /// The run was ended before its command had ended.
    Abort(Abort),
    /// The last record.
    Seal(Seal),
}

impl Body {
    /// The kind's name as the line spells it.
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Start(_) => "start",
            Body::Probe(_) => "probe",
            Body::Denial(_) => "denial",
            Body::Read(_) => "read",
            Body::WouldDeny(_) => "would_deny",
            Body::Gap(_) => "gap",
            Body::Infrastructure(_) => "infrastructure",
            Body::Abort(_) => "abort",
            Body::Seal(_) => "seal",
        }
    }

    /// The axis whose evidence the record belongs to; none where it belongs to the run as a whole.
    pub fn axis(&self) -> Option<Axis> {
        match self {
            Body::Denial(denial) | Body::WouldDeny(denial) => Some(denial.axis),
            Body::Probe(probe) => Some(probe.axis),
            Body::Gap(gap) => gap.axis,
            Body::Read(_) => Some(Axis::Filesystem),
            Body::Infrastructure(_) => Some(Axis::Network),
            Body::Start(_) | Body::Abort(_) | Body::Seal(_) => None,
        }
    }
}

/// The first record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The program's version.
    pub version: String,
    /// SHA-256 of the effective policy's canonical TOML, in hexadecimal.
    pub policy_digest: String,
    /// Posture by axis.
    pub postures: BTreeMap<String, String>,
    /// The rung that carries the policy (`full`, `container`, `rootless`, `bare`).
    pub rung: String,
    /// The session's name, where the run is one that stays open and has commands that come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The command, with control bytes escaped.
    pub command: Vec<String>,
    /// The numeric uid and gid that the command runs as.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// What the host offers, as found by trying.
    pub host: BTreeMap<String, serde_json::Value>,
    /// Each restriction and the mechanism that carries it.
    pub restrictions: BTreeMap<String, String>,
    /// `--label KEY=VALUE`.
    pub labels: BTreeMap<String, String>,
    /// The stricter policy that was held against the run and not enforced; none where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadow>,
    /// What this host, on this rung, cannot observe: one sentence each.
    pub unobserved: Vec<String>,
    /// What stands in the field `Ringfence-Refusal` of the proxy's refusals, 32 hexadecimal digits; none where they are
    /// not explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal_nonce: Option<String>,
    /// What is shielded, with its digest before the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shields: Vec<Shield>,
    /// Paths each read of which is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tripwires: Vec<String>,
    /// By what their reads are seen: `fanotify` or `notifier`; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_seen_by: Option<String>,
    /// Workspaces whose ownership was changed for the run: path and how (`idmapped`, `chown`).
    pub workspaces: BTreeMap<String, String>,
}

/// A policy of which nothing is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    /// Its level's name, or `custom`.
    pub level: String,
    /// SHA-256 of its canonical TOML, in hexadecimal.
    pub policy_digest: String,
    /// Posture by axis.
    pub postures: BTreeMap<String, String>,
}

/// The outcome of one pre-flight probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The probe's id, as `ringfence probe --explain` takes it.
    pub id: String,
    /// The axis that it tries.
    pub axis: Axis,
    /// `direct`, `adversarial` or `enablement`.
    pub class: String,
    /// What must be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// Whether the two agree.
    pub passed: bool,
}

/// What an operation was tried on. Text from the command is escaped before it gets here (see `ledger::escape`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Object {
    /// A host name or address literal as asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// A port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// The addresses a name gave, or the one a packet went to.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub addrs: Vec<IpAddr>,
    /// A path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// The second path: where a rename or a link was to lead, the name that a symbolic link was to have; of a read, the name
    /// that it went by, where that one is not in what is watched.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
    /// The raw text that would not parse.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
}

/// Who tried. What is not known is null, never a guess.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Process id in the supervisor's PID namespace.
    pub pid: Option<u32>,
    /// Real uid.
    pub uid: Option<u32>,
    /// The thread's name.
    pub comm: Option<String>,
    /// The executable's path.
    pub exe: Option<String>,
    /// The argument vector, bounded.
    pub argv: Option<Vec<String>>,
    /// Names of the ancestors, nearest first, bounded.
    pub ancestors: Option<Vec<String>>,
}

/// An event on a watched path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathEvent {
    /// The operation.
    pub operation: String,
    /// The path.
    pub object: Object,
    /// Who.
    pub subject: Subject,
    /// How many identical reads the record stands for (`ledger::fold`).
    #[serde(default = "super::denial::one")]
    pub count: u64,
}

/// A counted loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The axis whose evidence has the hole; null when it touches all.
    pub axis: Option<Axis>,
    /// What lost it: `nflog`, `writer`, `firewall-counter`, `notifier`, `fanotify`.
    pub source: String,
    /// How many records at least are missing.
    pub lost: u64,
    /// Why.
    pub cause: String,
}

/// A failure outside the policy: upstream DNS or connect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Infrastructure {
    /// The operation that failed: `resolve`, `connect`.
    pub operation: String,
    /// On what.
    pub object: Object,
    /// The cause.
    pub cause: String,
    /// The status that the command was given.
    pub http_status: Option<u16>,
}

/// Why a run was ended early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Abort {
    /// The cause.
    pub cause: String,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command never ran.
    NotStarted,
    /// It exited.
    Exited,
    /// A signal ended it.
    Signaled,
    /// The run was ended by ringfence.
    Aborted,
}

impl Outcome {
    /// The outcome's name as records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::NotStarted => "not_started",
            Outcome::Exited => "exited",
            Outcome::Signaled => "signaled",
            Outcome::Aborted => "aborted",
        }
    }
}

/// The last record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seal {
    /// Whether the command was started.
    pub started: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The exit status passed on (128+n for a signal).
    pub exit_code: Option<i32>,
    /// Denials by axis, folded ones counted in full.
    pub denials: BTreeMap<String, u64>,
    /// What the shadowed policy would have refused, by axis, folded records counted in full; nothing of it was refused.
    /// Empty where there is no shadow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub would_deny: BTreeMap<String, u64>,
    /// Reads of watched paths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reads: u64,
    /// What has become of what was shielded; nothing where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shields: Option<ShieldsEnd>,
    /// What has become of what was committed in repositories of which the command saw a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git: Vec<GitEnd>,
    /// True only if no gap was recorded.
    pub complete: bool,
    /// Completeness by axis.
    pub complete_by_axis: BTreeMap<String, bool>,
    /// The chain's head before this record: SHA-256 of the line before, in hexadecimal.
    pub head: String,
    /// SHA-256 of this very line with these 64 digits as zeros: a damaged last line shows itself, though no line
    /// follows that would hold its hash. Against a rewritten one only the head sent out by the status descriptor helps.
    pub digest: String,
}
