//! Whether a run is counted: only if its ledger shows that no denial of it can be missing.

use crate::ledger::Verification;
use crate::ledger::record::{Outcome, Seal};
use crate::policy::Axis;
use std::collections::BTreeSet;

/// Why a run is not counted. The order is that in which reasons are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// The file could not be read to its end.
    Unreadable(String),
    /// A line is not as it was written.
    Altered(String),
    /// There is no seal: the run goes on, was killed, or lost the end of its record.
    Unsealed(String),
    /// The command was never started.
    NotStarted,
    /// The run was ended by ringfence.
    Aborted,
    /// Records were lost, on these axes; on all where none is named.
    Gap(BTreeSet<Axis>, String),
    /// Another ledger of the same run is counted.
    Duplicate(String),
}

impl Exclusion {
    /// All names, in the order in which they are printed.
    pub const NAMES: [&str; 7] = ["unreadable", "altered", "unsealed", "not_started", "aborted", "gap", "duplicate"];

    /// The reason's name, as reports spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Exclusion::Unreadable(_) => "unreadable",
            Exclusion::Altered(_) => "altered",
            Exclusion::Unsealed(_) => "unsealed",
            Exclusion::NotStarted => "not_started",
            Exclusion::Aborted => "aborted",
            Exclusion::Gap(..) => "gap",
            Exclusion::Duplicate(_) => "duplicate",
        }
    }

    /// What was found, in words; empty where the name says it all.
    pub fn detail(&self) -> &str {
        match self {
            Exclusion::Unreadable(why)
            | Exclusion::Altered(why)
            | Exclusion::Unsealed(why)
            | Exclusion::Gap(_, why)
            | Exclusion::Duplicate(why) => why,
            Exclusion::NotStarted | Exclusion::Aborted => "",
        }
    }
}

/// What keeps a run from being counted, if anything does. `holes` are the axes of its gaps; a gap of none touches all.
pub(super) fn judge(found: &Verification, seal: Option<&Seal>, holes: &BTreeSet<Option<Axis>>) -> Option<Exclusion> {
    let whole = match found {
        Verification::Altered { line, why } => return Some(Exclusion::Altered(format!("line {line}: {why}"))),
        Verification::Incomplete { why, .. } => Err(why.join("; ")),
        Verification::Complete { .. } => Ok(()),
    };
    let Some(seal) = seal else {
        return Some(Exclusion::Unsealed(whole.err().unwrap_or_default()));
    };
    match (seal.outcome, whole) {
        (Outcome::NotStarted, _) => Some(Exclusion::NotStarted),
        (Outcome::Aborted, _) => Some(Exclusion::Aborted),
        _ if !seal.started => Some(Exclusion::NotStarted),
        (Outcome::Exited | Outcome::Signaled, Err(why)) => {
            let axes = if holes.contains(&None) { BTreeSet::new() } else { holes.iter().flatten().copied().collect() };
            Some(Exclusion::Gap(axes, why))
        }
        (Outcome::Exited | Outcome::Signaled, Ok(())) => None,
    }
}
