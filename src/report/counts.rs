//! Volume and incidence over runs.

use super::by_axis::ByAxis;
use super::gate::Exclusion;
use super::run::Run;
use crate::policy::Axis;
use serde::Serialize;

/// What runs come to: all of them, those of a level, or those of a group.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Runs that are counted.
    pub(super) runs: u64,
    /// Runs that are not.
    pub(super) excluded: u64,
    /// Counted runs with at least one denial on any axis.
    pub(super) affected: u64,
    /// The same by axis. Their sum may be more: a run can be denied on more than one.
    pub(super) affected_by_axis: ByAxis,
    pub(super) denials: ByAxis,
    pub(super) reattempts: ByAxis,
    /// Denials that show a tool which ignored the proxy.
    pub(super) direct: u64,
    /// Counted runs with a shadow, and what would have been refused in them, none of which was.
    pub(super) shadowed: u64,
    pub(super) would_deny: ByAxis,
    /// Runs with a shadow in which anything would have been refused, by axis.
    pub(super) would_be_affected: ByAxis,
    /// The most denials of one run, by axis and on all together.
    pub(super) most_by_axis: ByAxis,
    pub(super) most: u64,
    /// Denials seen in runs that are not counted.
    pub(super) in_excluded: ByAxis,
    /// Counted runs with a transcript, and what it adds.
    pub(super) transcripts: u64,
    pub(super) inferred: ByAxis,
    pub(super) inferred_runs: ByAxis,
    pub(super) echoes: u64,
}

/// One line of the table of blocked actions. Means are by run that has any; null where none has.
#[derive(Debug, Serialize)]
pub(super) struct AxisRow {
    /// The axis, or `any` for their union.
    pub(super) axis: &'static str,
    pub(super) denials: u64,
    pub(super) runs: u64,
    pub(super) mean: Option<f64>,
    pub(super) most_in_one_run: u64,
    pub(super) reattempts: u64,
}

impl Counts {
    pub(super) fn add(&mut self, run: &Run) {
        if let Some(exclusion) = &run.exclusion {
            self.excluded += 1;
            // What a second ledger of a run holds is not missing.
            if !matches!(exclusion, Exclusion::Duplicate(_)) {
                self.in_excluded.add_all(&run.denials);
            }
            return;
        }
        self.runs += 1;
        self.denials.add_all(&run.denials);
        self.reattempts.add_all(&run.reattempts);
        self.direct = self.direct.saturating_add(run.direct);
        self.shadowed += u64::from(run.shadow.is_some());
        self.would_deny.add_all(&run.would_deny);
        let total = run.denials.total();
        self.most = self.most.max(total);
        self.affected += u64::from(total > 0);
        if let Some(inferred) = &run.inferred {
            self.transcripts += 1;
            self.inferred.add_all(&inferred.denials);
            self.echoes += inferred.echoes;
        }
        for axis in Axis::ALL {
            let denials = run.denials.get(axis);
            self.affected_by_axis.add(axis, u64::from(denials > 0));
            self.would_be_affected.add(axis, u64::from(run.would_deny.get(axis) > 0));
            self.most_by_axis.raise(axis, denials);
            let inferred = run.inferred.as_ref().map_or(0, |inferred| inferred.denials.get(axis));
            self.inferred_runs.add(axis, u64::from(inferred > 0));
        }
    }

    /// A row for each axis, and the last for all together.
    pub(super) fn rows(&self) -> [AxisRow; Axis::ALL.len() + 1] {
        let row = |axis, denials: u64, runs: u64, most_in_one_run, reattempts| AxisRow {
            axis,
            denials,
            runs,
            mean: (runs > 0).then(|| denials as f64 / runs as f64),
            most_in_one_run,
            reattempts,
        };
        let of = |axis: Axis| {
            let (denials, runs) = (self.denials.get(axis), self.affected_by_axis.get(axis));
            row(axis.name(), denials, runs, self.most_by_axis.get(axis), self.reattempts.get(axis))
        };
        let [network, filesystem, privilege] = Axis::ALL.map(of);
        let any = row("any", self.denials.total(), self.affected, self.most, self.reattempts.total());
        [network, filesystem, privilege, any]
    }
}
