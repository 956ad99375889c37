//! The record of one refusal: what was refused, by what, and how that is known.

use super::record::{Object, Subject};
use crate::policy::Axis;
use serde::{Deserialize, Serialize};

/// Where a record's knowledge comes from (paper, Appendix G).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Said by what made the refusal.
    EnforcementObserved,
    /// Read from the text of a transcript.
    TranscriptInferred,
    /// Said by a shadow, which has refused nothing.
    ShadowObserved,
}

impl Evidence {
    /// Its name as records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::EnforcementObserved => "enforcement-observed",
            Evidence::TranscriptInferred => "transcript-inferred",
            Evidence::ShadowObserved => "shadow-observed",
        }
    }
}

/// What made a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// The egress proxy.
    Proxy,
    /// nftables, seen by NFLOG.
    Firewall,
    /// seccomp user notification.
    Notifier,
    /// Landlock, seen by the kernel's audit.
    Landlock,
}

impl Mechanism {
    /// The mechanism's name as records spell it.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Proxy => "proxy",
            Mechanism::Firewall => "firewall",
            Mechanism::Notifier => "notifier",
            Mechanism::Landlock => "landlock",
        }
    }
}

/// One refused operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Denial {
    /// How it is known.
    pub evidence: Evidence,
    /// The axis whose restriction refused.
    pub axis: Axis,
    /// The NIST SP 800-53 controls of that axis.
    pub nist: Vec<String>,
    /// What refused.
    pub mechanism: Mechanism,
    /// The operation as the caller would name it: `CONNECT`, `GET`, `tcp`, `udp`, `icmp`, `openat`.
    pub operation: String,
    /// What it was tried on.
    pub object: Object,
    /// The error number's name, where the kernel's errno was the answer.
    pub errno: Option<String>,
    /// The HTTP status, where that was the answer.
    pub http_status: Option<u16>,
    /// The rule that refused: `default-deny`, `metadata`, `private-range`, `dns`, `control-plane`, `port`, `malformed`,
    /// `own-address`, `address-count`, `connection-limit`, `head-deadline`.
    pub rule: String,
    /// The class of reason, in snake case: `not_allowed`, `denied_address`, `bad_authority`.
    pub reason: String,
    /// Who tried.
    pub subject: Subject,
    /// Which try at this object in this run it is, from 1; the first of them when `count` is above 1, between which and
    /// the others there may have been tries of another kind or by another process. The ledger's writer sets it. 0: not known, as more distinct objects were tried than the writer counts (`ledger::attempts`).
    #[serde(default)]
    pub attempt: u64,
    /// How many identical refusals the record stands for (`ledger::fold`).
    #[serde(default = "one")]
    pub count: u64,
}

pub(super) fn one() -> u64 {
    1
}

impl Denial {
    /// A denial seen by what enforced it; the writer numbers the attempt.
    pub fn observed(
        axis: Axis,
        mechanism: Mechanism,
        operation: &str,
        object: Object,
        rule: &str,
        reason: &str,
    ) -> Denial {
        Denial {
            evidence: Evidence::EnforcementObserved,
            axis,
            nist: axis.nist().iter().map(|s| s.to_string()).collect(),
            mechanism,
            operation: operation.to_owned(),
            object,
            errno: None,
            http_status: None,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            subject: Subject::default(),
            attempt: 0,
            count: 1,
        }
    }

    /// The same of what was let through all the same.
    pub fn let_through(self) -> Denial {
        Denial { evidence: Evidence::ShadowObserved, ..self }
    }

    /// Whether it was let through.
    pub fn is_let_through(&self) -> bool {
        self.evidence == Evidence::ShadowObserved
    }
}
