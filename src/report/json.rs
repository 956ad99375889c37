//! A report as JSON: docs/report.md describes its fields.

use super::by_axis::ByAxis;
use super::cohort::Cohort;
use super::concentration::{buckets, half};
use super::counts::Counts;
use super::direct::{Direct, Tool};
use super::objects::Tried;
use super::run::Run;
use super::selection::By;
use crate::ledger::line::encode;
use crate::policy::Axis;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How many objects each list has at most.
const LISTED: usize = 100;

/// The version of the form, in `version`.
const VERSION: u32 = 1;

/// Writes the report, one run at a time, so that the text is never in memory at once.
pub(super) fn write(cohort: &Cohort, out: &mut impl Write) -> io::Result<()> {
    let total = cohort.total();
    let levels = cohort.groups(&By::Level);
    let groups = cohort.by.as_ref().map(|by| cohort.groups(by));
    let head = json!({
        "version": VERSION,
        "selection": { "labels": cohort.selection.labels, "levels": cohort.selection.levels },
        "by": cohort.by.as_ref().map(By::name),
        "total": counts(&total),
        "excluded": cohort.excluded().into_iter().collect::<BTreeMap<_, _>>(),
        "no_ledgers": cohort.no_ledgers.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "levels": grouped("level", &levels),
        "groups": groups.as_ref().map(|groups| grouped("group", groups)),
        "persistence": persistence(cohort, &total),
        "concentration": concentration(cohort, &total, groups.as_ref()),
        "tools": tools(cohort),
    });
    // As in a ledger, no hidden character of a label or a path stands raw.
    let head = encode(&head)?;
    out.write_all(head.strip_suffix(b"}").unwrap_or(&head))?;
    out.write_all(b",\"runs\":[")?;
    for (at, run) in cohort.runs.iter().enumerate() {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        out.write_all(&encode(&self::run(run))?)?;
    }
    out.write_all(b"\n]}\n")
}

fn counts(counts: &Counts) -> Value {
    json!({
        "runs": counts.runs,
        "excluded": counts.excluded,
        "axes": counts.rows(),
        "direct": counts.direct,
        "shadowed": counts.shadowed,
        "would_deny": counts.would_deny,
        "runs_would_deny": counts.would_be_affected,
        "denials_in_excluded": counts.in_excluded,
        "transcripts": counts.transcripts,
        "inferred": counts.inferred,
        "inferred_runs": counts.inferred_runs,
        "echoes": counts.echoes,
    })
}

fn grouped<'a>(key: &str, groups: impl IntoIterator<Item = (&'a Option<String>, &'a Counts)>) -> Vec<Value> {
    let group = |(name, of): (&Option<String>, &Counts)| {
        let mut value = counts(of);
        value[key] = json!(name);
        value
    };
    groups.into_iter().map(group).collect()
}

fn tried(tried: &&Tried) -> Value {
    json!({
        "axis": tried.axis,
        "object": tried.name,
        "denials": tried.denials,
        "reattempts": tried.reattempts,
        "runs": tried.runs,
    })
}

fn persistence(cohort: &Cohort, total: &Counts) -> Value {
    let largest = cohort.most_tried().map(|(most, run)| {
        json!({ "axis": most.axis, "object": most.object, "reattempts": most.reattempts, "run": run.id,
            "path": run.path.to_string_lossy() })
    });
    json!({
        "reattempts": total.reattempts,
        "unnumbered": cohort.unnumbered(),
        "largest": largest,
        "objects": cohort.objects.by_reattempts().iter().take(LISTED).map(tried).collect::<Vec<_>>(),
    })
}

fn concentration<'a>(cohort: &Cohort, total: &Counts, groups: Option<&'a BTreeMap<Option<String>, Counts>>) -> Value {
    let volume = total.denials.total();
    let objects = cohort.objects.by_volume();
    let mut value = json!({
        "objects": {
            "distinct": objects.len(),
            "denials_beyond": cohort.objects.beyond(),
            "half": half(objects.iter().map(|tried| tried.denials), volume),
            "largest": objects.iter().take(LISTED).map(tried).collect::<Vec<_>>(),
        },
    });
    // Without groups, each run stands for itself.
    let runs = cohort.runs.iter().filter(|run| run.exclusion.is_none()).map(|run| run.denials.total());
    let evaluable = |groups: &'a BTreeMap<_, Counts>| groups.values().filter(|of| of.runs > 0);
    let mut volumes: Vec<u64> = match groups {
        Some(groups) => evaluable(groups).map(|of| of.denials.total()).collect(),
        None => runs.collect(),
    };
    volumes.sort_unstable_by(|a, b| b.cmp(a));
    value["units"] = json!(if groups.is_some() { "groups" } else { "runs" });
    value["count"] = json!(volumes.len());
    value["half"] = json!(half(volumes.iter().copied(), volume));
    value["buckets"] = json!(buckets(volumes));
    if let Some(groups) = groups {
        let mut touched = ByAxis::default();
        for of in evaluable(groups) {
            Axis::ALL.iter().for_each(|axis| touched.add(*axis, u64::from(of.denials.get(*axis) > 0)));
        }
        value["touched_by_axis"] = json!(touched);
        value["denied_in_every_run"] = json!(evaluable(groups).filter(|of| of.affected == of.runs).count());
    }
    value
}

fn tools(cohort: &Cohort) -> Vec<Value> {
    let tool = |(tool, of): (&Tool, &Direct)| {
        json!({
            "comm": tool.comm,
            "exe": tool.exe,
            "denials": of.attempts,
            "lookups": of.lookups,
            "destinations": of.destinations.len(),
            "first": of.first,
            "ports": of.ports.iter().take(LISTED).collect::<Vec<_>>(),
            "runs": of.runs,
        })
    };
    cohort.tools.by_attempts().into_iter().map(tool).collect()
}

fn run(run: &Run) -> Value {
    let exclusion = run.exclusion.as_ref();
    let axes = match exclusion {
        Some(super::gate::Exclusion::Gap(axes, _)) if axes.is_empty() => Some(Axis::ALL.to_vec()),
        Some(super::gate::Exclusion::Gap(axes, _)) => Some(axes.iter().copied().collect()),
        _ => None,
    };
    let inferred = run.inferred.as_ref().map(|inferred| {
        let act = |(axis, act): &(Axis, super::transcript::Act)| {
            json!({ "evidence": "transcript-inferred", "axis": axis, "answer": act.answer.name(),
                "object": act.objects.first(), "line": act.line })
        };
        json!({
            "denials": inferred.denials,
            "echoes": inferred.echoes,
            "open_axes": inferred.open_axes,
            "lines_unread": inferred.unread,
            "acts": inferred.acts.iter().map(act).collect::<Vec<_>>(),
        })
    });
    json!({
        "run": run.id,
        "path": run.path.to_string_lossy(),
        "level": run.level,
        "labels": run.labels,
        "outcome": run.outcome,
        "exit_code": run.exit_code,
        "counted": exclusion.is_none(),
        "excluded": exclusion.map(|exclusion| exclusion.name()),
        "why": exclusion.map(|exclusion| exclusion.detail()).filter(|why| !why.is_empty()),
        "gap_axes": axes,
        "denials": run.denials,
        "reattempts": run.reattempts,
        "shadow": run.shadow,
        "would_deny": run.shadow.as_ref().map(|_| run.would_deny),
        "direct": run.direct,
        "inferred": inferred,
    })
}
