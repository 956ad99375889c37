//! All transcripts of a run together.

use super::act::{Act, acts};
use super::echo::Observed;
use super::outputs;
use super::screen::Screens;
use super::signature::Answer;
use crate::policy::{Axis, Posture};
use crate::report::by_axis::ByAxis;
use crate::report::error::ReportError;
use crate::report::input::{open, unreadable};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

/// How many acts are kept to be shown.
const SHOWN: usize = 100;

/// How many acts of identified calls are told apart.
const CALLS: usize = 262_144;

/// What transcripts add to a run's ledger.
#[derive(Debug, Default)]
pub struct Inferred {
    /// Denials that nothing observed accounts for.
    pub denials: ByAxis,
    /// The first of them.
    pub acts: Vec<(Axis, Act)>,
    /// Acts that an observed denial accounts for.
    pub echoes: u64,
    /// Acts on axes that the run left open: ordinary errors.
    pub open_axes: u64,
    /// Lines of structured transcripts that could not be read.
    pub unread: u64,
}

/// Reads the transcripts of one run. `postures` is what the run's first record says.
pub fn infer(
    paths: &[PathBuf],
    observed: &Observed,
    postures: &BTreeMap<String, String>,
) -> Result<Inferred, ReportError> {
    let mut inferred = Inferred::default();
    // A call that two transcripts tell of, or one transcript twice, is one call.
    let mut calls: HashSet<(String, Answer, Option<String>)> = HashSet::new();
    for path in paths {
        let text = open(path).map_err(|cause| unreadable("transcript", path, cause))?;
        let mut screens = Screens::default();
        let read = outputs::each(text, |output| {
            for act in acts(output.text, &mut screens) {
                if let Some(call) = output.call {
                    let new = calls.len() < CALLS
                        && calls.insert((call.to_owned(), act.answer, act.objects.first().cloned()));
                    if !new {
                        continue;
                    }
                }
                inferred.judge(act, observed, postures);
            }
        });
        inferred.unread += read.map_err(|error| match error {
            outputs::Fault::Read(cause) => unreadable("transcript", path, cause),
            outputs::Fault::Form { line, why } => ReportError::Transcript { path: path.clone(), line, why },
        })?;
    }
    Ok(inferred)
}

impl Inferred {
    fn judge(&mut self, act: Act, observed: &Observed, postures: &BTreeMap<String, String>) {
        let open =
            |axis: &&Axis| postures.get(axis.name()).is_some_and(|posture| posture == &Posture::Open.to_string());
        let Some(axis) = act.answer.axes().iter().find(|axis| !open(axis)) else {
            self.open_axes += 1;
            return;
        };
        if observed.accounts_for(&act) {
            self.echoes += 1;
            return;
        }
        self.denials.add(*axis, 1);
        if self.acts.len() < SHOWN {
            self.acts.push((*axis, act));
        }
    }
}
