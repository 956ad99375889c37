//! Any number of runs together.

use super::counts::Counts;
use super::direct::DirectTools;
use super::gate::Exclusion;
use super::objects::Objects;
use super::run::{MostTried, Run, Scan};
use super::selection::{By, Selection};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// What runs come to together. They are taken in the order of their ledgers' paths, so that a report is the same each time.
#[derive(Debug)]
pub(super) struct Cohort {
    pub(super) selection: Selection,
    pub(super) by: Option<By>,
    /// Every run that is asked about, counted or not.
    pub(super) runs: Vec<Run>,
    /// Of counted runs only, as the next.
    pub(super) objects: Objects,
    pub(super) tools: DirectTools,
    /// Files that were found and are no ledgers.
    pub(super) no_ledgers: Vec<PathBuf>,
    /// The ledger that is counted of each run.
    counted: HashMap<String, PathBuf>,
}

impl Cohort {
    pub(super) fn of(selection: Selection, by: Option<By>) -> Cohort {
        Cohort {
            selection,
            by,
            runs: Vec::new(),
            objects: Objects::default(),
            tools: DirectTools::default(),
            no_ledgers: Vec::new(),
            counted: HashMap::new(),
        }
    }

    pub(super) fn take(&mut self, scan: Scan) {
        let mut scanned = match scan {
            Scan::Run(scanned) => scanned,
            Scan::NoLedger(path) => return self.no_ledgers.push(path),
        };
        if !self.selection.takes(&scanned.run) {
            return;
        }
        if scanned.run.exclusion.is_none()
            && let Some(id) = &scanned.run.id
        {
            match self.counted.get(id) {
                Some(other) => scanned.run.exclusion = Some(duplicate(other)),
                None => {
                    self.counted.insert(id.clone(), scanned.run.path.clone());
                    self.objects.add(std::mem::take(&mut scanned.objects));
                    self.tools.add(std::mem::take(&mut scanned.tools));
                }
            }
        }
        self.runs.push(scanned.run);
    }

    /// A copy of a run that was taken while it still went on is no run that is missing.
    pub(super) fn settle(&mut self) {
        for run in &mut self.runs {
            if let Some(other) = run.id.as_ref().and_then(|id| self.counted.get(id))
                && *other != run.path
            {
                run.exclusion = Some(duplicate(other));
            }
        }
    }

    /// The counts of all runs.
    pub(super) fn total(&self) -> Counts {
        let mut counts = Counts::default();
        self.runs.iter().for_each(|run| counts.add(run));
        counts
    }

    /// The counts of each group; those without one stand under none.
    pub(super) fn groups(&self, by: &By) -> BTreeMap<Option<String>, Counts> {
        let mut groups: BTreeMap<Option<String>, Counts> = BTreeMap::new();
        for run in &self.runs {
            groups.entry(by.group(run).map(str::to_owned)).or_default().add(run);
        }
        groups
    }

    /// The counts of runs with a shadow, by the level that it was of.
    pub(super) fn shadows(&self) -> BTreeMap<String, Counts> {
        let mut shadows: BTreeMap<String, Counts> = BTreeMap::new();
        for run in &self.runs {
            if let Some(level) = &run.shadow {
                shadows.entry(level.clone()).or_default().add(run);
            }
        }
        shadows.retain(|_, of| of.shadowed > 0);
        shadows
    }

    /// The object that was tried again most often in one counted run, and that run; of equals the first.
    pub(super) fn most_tried(&self) -> Option<(&MostTried, &Run)> {
        let counted = self.runs.iter().rev().filter(|run| run.exclusion.is_none());
        let tried = counted.filter_map(|run| Some((run.most_tried.as_ref()?, run)));
        tried.max_by_key(|(most, _)| most.reattempts)
    }

    /// Denials of counted runs of which it is not known whether they are re-attempts.
    pub(super) fn unnumbered(&self) -> u64 {
        let counted = self.runs.iter().filter(|run| run.exclusion.is_none());
        counted.fold(0, |sum, run| sum.saturating_add(run.unnumbered))
    }

    /// How many runs are excluded for each reason.
    pub(super) fn excluded(&self) -> Vec<(&'static str, u64)> {
        let count = |name| {
            let of = |run: &&Run| run.exclusion.as_ref().is_some_and(|exclusion| exclusion.name() == name);
            (name, self.runs.iter().filter(of).count() as u64)
        };
        Exclusion::NAMES.map(count).into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

fn duplicate(other: &std::path::Path) -> Exclusion {
    Exclusion::Duplicate(format!("the same run as {}", other.display()))
}
