//! One run, read from its ledger in one pass.

use super::by_axis::ByAxis;
use super::direct::DirectTools;
use super::error::ReportError;
use super::gate::{Exclusion, judge};
use super::input::{Input, begins_as_ledger, open, unreadable};
use super::objects::Objects;
use super::transcript::{Inferred, Observed};
use crate::ledger::record::{Body, Evidence, Outcome, Seal};
use crate::ledger::{BodyView, DenialView, OpenFolds, Verification, VerifyError, View, verify_each};
use crate::policy::Axis;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// What is kept of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// The ledger.
    pub(super) path: PathBuf,
    /// The run's identifier; none where not even the first record could be read. So for the level.
    pub(super) id: Option<String>,
    pub(super) level: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    /// Posture by axis.
    pub(super) postures: BTreeMap<String, String>,
    pub(super) outcome: Option<Outcome>,
    pub(super) exit_code: Option<i32>,
    /// Why the run is not counted.
    pub(super) exclusion: Option<Exclusion>,
    /// Denials that enforcement observed.
    pub(super) denials: ByAxis,
    /// Those of them on an object that was denied before.
    pub(super) reattempts: ByAxis,
    /// The level that was held against the run and not enforced; none where there was none.
    pub(super) shadow: Option<String>,
    /// What that would have refused: none of it was.
    pub(super) would_deny: ByAxis,
    /// Those that show a tool which ignored the proxy.
    pub(super) direct: u64,
    /// Denials of which the ledger does not say whether they are re-attempts (`ledger::attempts::CAPACITY`).
    pub(super) unnumbered: u64,
    /// The object tried again most often.
    pub(super) most_tried: Option<MostTried>,
    /// What its transcripts add; none where it has none.
    pub(super) inferred: Option<Inferred>,
}

/// An object and how often it was tried again in one run.
#[derive(Debug, Clone)]
pub(super) struct MostTried {
    pub(super) axis: Axis,
    pub(super) object: String,
    pub(super) reattempts: u64,
}

/// A run, and what it adds to tables over all runs.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) run: Run,
    pub(super) objects: Objects,
    /// The tools that ignored the proxy.
    pub(super) tools: DirectTools,
    /// What was observed, to tell a transcript's echoes by; only where it is asked for.
    pub(super) observed: Option<Observed>,
}

/// What reading one file came to.
#[derive(Debug)]
pub(super) enum Scan {
    /// A run.
    Run(Box<Scanned>),
    /// The file holds something else.
    NoLedger(PathBuf),
}

/// Reads one ledger. What can't be read to its end makes an excluded run, too; so does a file that can't be opened, but
/// where it was named: that is an error.
pub(super) fn scan(input: &Input, with_observed: bool) -> Result<Scan, ReportError> {
    let folds = OpenFolds::beside(&input.path);
    let mut reading = Reading::of(input, folds.clone(), with_observed);
    let opened = match open(&input.path) {
        Err(cause) if input.named => return Err(unreadable("ledger", &input.path, cause)),
        opened => opened,
    };
    let found = opened.and_then(|mut text| match begins_as_ledger(&mut text)? {
        false => Ok(None),
        true => verify_each(text, None, folds, |view| reading.record(view)).map(Some).map_err(|error| match error {
            VerifyError::Read { cause, .. } => cause,
            other => io::Error::other(other),
        }),
    });
    match found {
        Ok(None) if input.named => Err(ReportError::NoLedger { path: input.path.clone() }),
        Ok(None) => Ok(Scan::NoLedger(input.path.clone())),
        Ok(Some(found)) => Ok(Scan::Run(Box::new(reading.end(Ok(&found))))),
        Err(cause) => Ok(Scan::Run(Box::new(reading.end(Err(cause))))),
    }
}

struct Reading {
    scanned: Scanned,
    /// What a run that was killed had counted and not yet written.
    folds: OpenFolds,
    holes: BTreeSet<Option<Axis>>,
    seal: Option<Seal>,
}

impl Reading {
    fn of(input: &Input, folds: OpenFolds, with_observed: bool) -> Reading {
        let run = Run {
            path: input.path.clone(),
            id: None,
            level: None,
            labels: BTreeMap::new(),
            postures: BTreeMap::new(),
            outcome: None,
            exit_code: None,
            exclusion: None,
            denials: ByAxis::default(),
            shadow: None,
            would_deny: ByAxis::default(),
            reattempts: ByAxis::default(),
            direct: 0,
            unnumbered: 0,
            most_tried: None,
            inferred: None,
        };
        let observed = with_observed.then(Observed::default);
        let scanned = Scanned { run, objects: Objects::default(), tools: DirectTools::default(), observed };
        Reading { scanned, folds, holes: BTreeSet::new(), seal: None }
    }

    fn record(&mut self, view: &View<'_>) {
        self.folds.note_view(view);
        let run = &mut self.scanned.run;
        match &view.body {
            BodyView::Denial(denial) if denial.evidence == Evidence::EnforcementObserved => self.denial(denial),
            BodyView::WouldDeny(denial) => run.would_deny.add(denial.axis, denial.count),
            BodyView::Denial(_) | BodyView::Probe => {}
            BodyView::Other(body) => match &**body {
                Body::Start(start) => {
                    run.id = Some(view.run.clone().into_owned());
                    run.level = Some(view.level.clone().into_owned());
                    run.labels.clone_from(&start.labels);
                    run.postures.clone_from(&start.postures);
                    run.shadow = start.shadow.as_ref().map(|shadow| shadow.level.clone());
                }
                Body::Gap(gap) => {
                    self.holes.insert(gap.axis);
                }
                Body::Seal(seal) => {
                    run.outcome = Some(seal.outcome);
                    run.exit_code = seal.exit_code;
                    self.seal = Some(seal.clone());
                }
                _ => {}
            },
        }
    }

    fn denial(&mut self, denial: &DenialView<'_>) {
        let Scanned { run, objects, tools, observed } = &mut self.scanned;
        let axis = denial.axis;
        run.denials.add(axis, denial.count);
        let reattempts = match denial.attempt {
            0 => {
                run.unnumbered = run.unnumbered.saturating_add(denial.count);
                0
            }
            1 => denial.count.saturating_sub(1),
            _ => denial.count,
        };
        run.reattempts.add(axis, reattempts);
        objects.count(axis, &denial.object, denial.count, reattempts);
        tools.count(denial);
        if let Some(observed) = observed {
            observed.denial(denial);
        }
    }

    fn end(mut self, found: Result<&Verification, io::Error>) -> Scanned {
        self.scanned.run.exclusion = match found {
            Ok(found) => judge(found, self.seal.as_ref(), &self.holes),
            Err(cause) => Some(Exclusion::Unreadable(cause.to_string())),
        };
        if let Some(Exclusion::Unsealed(_)) = self.scanned.run.exclusion {
            let counted = std::mem::take(&mut self.folds).end();
            for denial in &counted.denials {
                match &self.scanned.run.shadow {
                    Some(_) => self.scanned.run.would_deny.add(denial.axis, denial.count),
                    None => self.denial(&DenialView::from(denial)),
                }
            }
        }
        let Scanned { run, objects, tools, .. } = &mut self.scanned;
        run.direct = tools.attempts();
        run.most_tried = objects.by_reattempts().first().map(|most| MostTried {
            axis: most.axis,
            object: most.name.clone(),
            reattempts: most.reattempts,
        });
        self.scanned
    }
}
