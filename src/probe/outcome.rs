//! What became of the probes of one run, for those who read it.

use super::spec::Spec;
use super::standing::{Shown, Standing};
use super::trace::{CLASS, TRACES};
use crate::ledger::record::Probe;
use serde::Serialize;

/// What became of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// What was seen is what must be seen.
    Passed {
        /// What must be seen.
        expected: String,
        /// What was.
        seen: String,
    },
    /// It is not.
    Failed {
        /// What must be seen.
        expected: String,
        /// What was.
        seen: String,
    },
    /// It does not apply to this policy or this rung.
    Skipped {
        /// Why.
        cause: String,
    },
    /// It could not be tried, and no other probe shows a restriction of its either.
    NotJudged {
        /// Why.
        cause: String,
    },
}

impl From<&Probe> for Outcome {
    fn from(probe: &Probe) -> Outcome {
        let (expected, seen) = (probe.expected.clone(), probe.seen.clone());
        if probe.passed { Outcome::Passed { expected, seen } } else { Outcome::Failed { expected, seen } }
    }
}

/// One probe and what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// What holds if it passes.
    pub title: String,
    /// `network`, `filesystem` or `privilege`.
    pub axis: &'static str,
    /// The NIST SP 800-53 controls that it is evidence of.
    pub nist: Vec<String>,
    /// `direct`, `adversarial`, `enablement`, or `trace`.
    pub class: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Why it is there.
    pub why: String,
}

impl Row {
    /// A probe's.
    pub fn of(spec: &Spec, outcome: Outcome) -> Row {
        Row {
            id: spec.id.clone(),
            title: spec.title.clone(),
            axis: spec.axis().name(),
            nist: spec.nist(),
            class: spec.class.to_string(),
            outcome,
            why: spec.why.clone(),
        }
    }

    /// That of a comparison of before and after.
    pub fn of_trace(probe: &Probe) -> Row {
        let known = TRACES.iter().find(|trace| trace.id == probe.id);
        Row {
            id: probe.id.clone(),
            title: known.map_or("", |trace| trace.title).to_owned(),
            axis: probe.axis.name(),
            nist: probe.axis.nist().iter().map(|&control| control.to_owned()).collect(),
            class: probe.class.clone(),
            outcome: probe.into(),
            why: known.map_or("", |trace| trace.why).to_owned(),
        }
    }
}

/// The outcome of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The run's id.
    pub run: String,
    /// The policy's level.
    pub level: String,
    /// The policy's digest.
    pub digest: String,
    /// The rung that carried it.
    pub rung: String,
    /// Where the record is.
    pub ledger: String,
    /// What is known of each restriction; empty where a plan says what carries it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restrictions: Vec<Shown>,
    /// Every probe that was asked for, and the comparisons.
    #[serde(rename = "probes")]
    pub rows: Vec<Row>,
}

/// How many there are of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Probes that passed.
    pub passed: usize,
    /// Probes that failed.
    pub failed: usize,
    /// Probes that could not be tried, of restrictions of which none could be.
    pub not_judged: usize,
    /// Probes that do not apply.
    pub skipped: usize,
}

impl Report {
    /// How many there are of each.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in &self.rows {
            *match row.outcome {
                Outcome::Passed { .. } => &mut counts.passed,
                Outcome::Failed { .. } => &mut counts.failed,
                Outcome::NotJudged { .. } => &mut counts.not_judged,
                Outcome::Skipped { .. } => &mut counts.skipped,
            } += 1;
        }
        counts
    }

    /// Whether the policy restricts nothing that could be tried: all that was looked at is what is left.
    pub fn has_nothing_to_try(&self) -> bool {
        self.rows.iter().all(|row| row.class == CLASS || matches!(row.outcome, Outcome::Skipped { .. }))
    }

    /// The restrictions of which nothing is known.
    pub fn not_judged(&self) -> impl Iterator<Item = &Shown> {
        self.restrictions.iter().filter(|shown| shown.standing == Standing::NotJudged)
    }

    /// The exit status: 0 if nothing has failed and no restriction is missing or not judged, 1 otherwise.
    pub fn status(&self) -> i32 {
        let known = |shown: &Shown| matches!(shown.standing, Standing::Held | Standing::NothingHere);
        i32::from(self.counts().failed > 0 || !self.restrictions.iter().all(known))
    }
}
