//! What a ledger's check has found, in words.

use super::escape::printable;
use std::fmt;

/// What was found in a ledger.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// Every record from the start to the seal is there as it was written, and none was lost.
    Complete {
        /// Lines.
        records: u64,
        /// Denials, folded ones in full.
        denials: u64,
        /// SHA-256 of the last line.
        head: String,
        /// The policy that was held against the run and not enforced, where there was one.
        shadow: Option<Shadowed>,
    },
    /// What is there is as it was written, but it is not everything.
    Incomplete {
        /// Whole lines.
        records: u64,
        /// Denials among them, and those that stand in the file of counts beside them only.
        denials: u64,
        /// What is missing, one phrase each, at most 38.
        why: Vec<String>,
        /// As of a whole one.
        shadow: Option<Shadowed>,
    },
    /// A line is not as it was written, or lines were removed or put in.
    Altered {
        /// The first line, from 1, at which this shows.
        line: u64,
        /// What does not fit.
        why: String,
    },
}

/// What a run's shadow comes to. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// The level of which nothing was enforced.
    pub level: String,
    /// The level that was.
    pub enforced: String,
    /// What would have been refused, folded records in full.
    pub would_deny: u64,
    /// How much of it was refused all the same, as what its proxy cannot serve.
    pub refused: u64,
}

impl fmt::Display for Shadowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shadowed { level, enforced, would_deny, refused } = self;
        let [level, enforced] = [level, enforced].map(|level| printable(level));
        write!(f, "a shadow of {level}, enforcing {enforced}: {would_deny} would be denied, and ")?;
        match refused {
            0 => f.write_str("none of it was refused"),
            _ => write!(f, "{refused} of it was refused, which its proxy could not serve"),
        }
    }
}

impl Verification {
    /// The policy that was held against the run and not enforced; none where there was none, or where nothing vouches for it.
    pub fn shadow(&self) -> Option<&Shadowed> {
        match self {
            Verification::Complete { shadow, .. } | Verification::Incomplete { shadow, .. } => shadow.as_ref(),
            Verification::Altered { .. } => None,
        }
    }

    /// 0 complete, 1 incomplete, 2 altered.
    pub fn exit_code(&self) -> u8 {
        match self {
            Verification::Complete { .. } => 0,
            Verification::Incomplete { .. } => 1,
            Verification::Altered { .. } => 2,
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verification::Complete { records, denials, head, .. } => {
                write!(f, "complete: {records} records, {denials} denials, head {head}")
            }
            Verification::Incomplete { records, denials, why, .. } => {
                write!(f, "incomplete: {records} records, {denials} denials: {}", why.join("; "))
            }
            Verification::Altered { line, why } => write!(f, "altered: line {line}: {why}"),
        }
    }
}
