//! A report over runs for people: the tables of the paper's Appendix G.

use super::cohort::Cohort;
use super::concentration::{buckets, half};
use super::counts::Counts;
use super::direct;
use super::row::bounded;
use super::run::Run;
use super::selection::By;
use super::transcript::Inferred;
use crate::ledger::escape::printable;
use crate::policy::Axis;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How many rows each table of objects, groups and excluded runs has at most.
const ROWS: usize = 20;

/// The widest name, in characters.
const WIDTH: usize = 72;

type Table = Vec<Vec<String>>;

/// Writes the tables; those without rows are left out.
pub(super) fn write<W: Write>(cohort: &Cohort, out: &mut W, bold: bool) -> io::Result<()> {
    let total = cohort.total();
    head(cohort, &total, out)?;
    let print = |out: &mut W, title: &str, table: Table| print(out, title, &table, bold);
    print(out, "BLOCKED ACTIONS", axes(&total))?;
    print(out, "BY LEVEL", groups("LEVEL", &cohort.groups(&By::Level)))?;
    if let Some(by) = cohort.by.as_ref().filter(|by| **by != By::Level) {
        print(out, &format!("BY {}", by.name().to_uppercase()), groups(by.name(), &cohort.groups(by)))?;
    }
    let most = cohort.most_tried().map_or_else(String::new, |(most, _)| {
        let object = bounded(&most.object, WIDTH);
        format!(": AT MOST {} RE-ATTEMPTS ON ONE OBJECT IN ONE RUN ({object})", most.reattempts)
    });
    print(
        out,
        &format!("PERSISTENCE{most}"),
        objects(&cohort.objects.by_reattempts(), total.reattempts.total(), true),
    )?;
    print(out, "CONCENTRATION: OBJECTS", objects(&cohort.objects.by_volume(), total.denials.total(), false))?;
    let (title, table) = spread(cohort, &total);
    print(out, &title, table)?;
    print(out, "NOT THROUGH THE PROXY", tools(cohort))?;
    if cohort.tools.attempts() > 0 {
        writeln!(out, "{}", direct::ADVICE)?;
    }
    for (level, of) in cohort.shadows() {
        let title = format!(
            "A SHADOW OF {}: NOTHING OF THIS WAS ENFORCED, AND NONE OF IT IS COUNTED ABOVE",
            level.to_uppercase()
        );
        print(out, &title, would_deny(&of))?;
    }
    if total.transcripts > 0 {
        print(out, "INFERRED FROM TRANSCRIPTS, NOT ADDED TO THE ABOVE", inferred(&total))?;
    }
    print(out, "NOT COUNTED", excluded(cohort))
}

fn head(cohort: &Cohort, total: &Counts, out: &mut impl Write) -> io::Result<()> {
    let reasons: Vec<String> = cohort.excluded().iter().map(|(name, count)| format!("{name} {count}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    writeln!(out, "runs: {} counted, {} not counted{reasons}", total.runs, total.excluded)?;
    if !cohort.selection.is_all() {
        let labels = cohort.selection.labels.iter().flat_map(|(key, of)| of.iter().map(move |v| format!("{key}={v}")));
        let levels = cohort.selection.levels.iter().map(|level| format!("level {level}"));
        let all: Vec<String> = labels.chain(levels).collect();
        writeln!(out, "selected: {}", printable(&all.join(", ")))?;
    }
    if !cohort.no_ledgers.is_empty() {
        writeln!(out, "files that are no ledgers: {}", cohort.no_ledgers.len())?;
    }
    if total.excluded > 0 {
        writeln!(out, "seen in runs that are not counted: {} denials", total.in_excluded.total())?;
        writeln!(out, "all counts are lower bounds")?;
    }
    if cohort.unnumbered() > 0 {
        writeln!(out, "denials not known to be re-attempts or none: {}", cohort.unnumbered())?;
    }
    if cohort.objects.beyond() > 0 {
        writeln!(out, "denials on objects beyond those told apart: {}", cohort.objects.beyond())?;
    }
    Ok(())
}

fn share(part: u64, of: u64) -> String {
    match of {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / of as f64),
    }
}

fn axes(total: &Counts) -> Table {
    let mut table =
        vec![cells(["AXIS", "DENIALS", "SHARE", "RUNS", "OF RUNS", "MEAN", "MOST", "RE-ATTEMPTS", "SHARE"])];
    for row in total.rows() {
        table.push(vec![
            row.axis.to_owned(),
            row.denials.to_string(),
            share(row.denials, total.denials.total()),
            row.runs.to_string(),
            share(row.runs, total.runs),
            row.mean.map_or("-".to_owned(), |mean| format!("{mean:.1}")),
            row.most_in_one_run.to_string(),
            row.reattempts.to_string(),
            share(row.reattempts, row.denials),
        ]);
    }
    table
}

fn groups(heading: &str, groups: &BTreeMap<Option<String>, Counts>) -> Table {
    let mut table = vec![cells([
        &printable(&heading.to_uppercase()),
        "RUNS",
        "NOT COUNTED",
        "WITH ANY",
        "SHARE",
        "DENIALS",
        "NETWORK",
        "FILESYSTEM",
        "PRIVILEGE",
        "PER RUN",
    ])];
    let mut sorted: Vec<_> = groups.iter().collect();
    sorted.sort_by_key(|(_, of)| std::cmp::Reverse(of.denials.total()));
    for (name, of) in sorted {
        let mut row = vec![bounded(name.as_deref().unwrap_or_default(), WIDTH)];
        row.extend([of.runs, of.excluded, of.affected].map(|count| count.to_string()));
        row.push(share(of.affected, of.runs));
        row.push(of.denials.total().to_string());
        row.extend(Axis::ALL.map(|axis| of.denials.get(axis).to_string()));
        row.push(match of.runs {
            0 => "-".to_owned(),
            runs => format!("{:.2}", of.denials.total() as f64 / runs as f64),
        });
        table.push(row);
    }
    table
}

fn objects(tried: &[&super::objects::Tried], total: u64, again: bool) -> Table {
    let mut table = vec![cells(["OBJECT", "AXIS", "DENIALS", "RE-ATTEMPTS", "RUNS", "SHARE", "TOGETHER"])];
    let mut sum = 0u64;
    for tried in tried.iter().take(ROWS) {
        let part = if again { tried.reattempts } else { tried.denials };
        sum = sum.saturating_add(part);
        table.push(vec![
            bounded(&tried.name, WIDTH),
            tried.axis.name().to_owned(),
            tried.denials.to_string(),
            tried.reattempts.to_string(),
            tried.runs.to_string(),
            share(part, total),
            share(sum, total),
        ]);
    }
    table
}

/// How the volume lies over groups, or over runs where there are no groups.
fn spread(cohort: &Cohort, total: &Counts) -> (String, Table) {
    let of_groups = cohort.by.as_ref().map(|by| cohort.groups(by));
    let units = of_groups.as_ref().map_or("RUNS", |_| "GROUPS");
    let mut volumes: Vec<u64> = match &of_groups {
        Some(groups) => groups.values().filter(|of| of.runs > 0).map(|of| of.denials.total()).collect(),
        None => cohort.runs.iter().filter(|run| run.exclusion.is_none()).map(|run| run.denials.total()).collect(),
    };
    volumes.sort_unstable_by(|a, b| b.cmp(a));
    let (count, volume) = (volumes.len() as u64, total.denials.total());
    let carry = half(volumes.iter().copied(), volume).unwrap_or_default();
    let title = format!("CONCENTRATION: {carry} OF {count} {units} CARRY HALF OF THE DENIALS");
    let mut table = vec![cells(["DENIALS", units, "SHARE", "VOLUME", "SHARE"])];
    for bucket in buckets(volumes) {
        let row = [bucket.denials, &bucket.count.to_string(), &share(bucket.count, count), &bucket.volume.to_string()];
        let mut row = cells(row);
        row.push(share(bucket.volume, volume));
        table.push(row);
    }
    (title, table)
}

fn tools(cohort: &Cohort) -> Table {
    let headings = ["PROGRAM", "EXECUTABLE", "ATTEMPTS", "LOOKUPS", "DESTINATIONS", "FIRST", "PORTS", "RUNS"];
    let mut table = vec![cells(headings)];
    for (tool, of) in cohort.tools.by_attempts().into_iter().take(direct::ROWS) {
        let [comm, exe] = tool.in_words().map(|name| bounded(name, WIDTH));
        table.push(vec![
            comm,
            exe,
            of.attempts.to_string(),
            of.lookups.to_string(),
            of.destinations.len().to_string(),
            bounded(&of.first, WIDTH),
            of.ports_in_words(),
            of.runs.to_string(),
        ]);
    }
    table
}

fn inferred(total: &Counts) -> Table {
    let mut table = vec![cells(["AXIS", "DENIALS", "RUNS", "OF RUNS WITH ONE"])];
    for axis in Axis::ALL {
        let (denials, runs) = (total.inferred.get(axis), total.inferred_runs.get(axis));
        table.push(vec![axis.name().into(), denials.to_string(), runs.to_string(), share(runs, total.transcripts)]);
    }
    table
}

fn would_deny(of: &Counts) -> Table {
    let mut table = vec![cells(["AXIS", "WOULD BE DENIED", "RUNS", "OF RUNS WITH THE SHADOW"])];
    for axis in Axis::ALL {
        let (count, runs) = (of.would_deny.get(axis), of.would_be_affected.get(axis));
        table.push(vec![axis.name().into(), count.to_string(), runs.to_string(), share(runs, of.shadowed)]);
    }
    table
}

fn excluded(cohort: &Cohort) -> Table {
    let mut table = vec![cells(["LEDGER", "REASON", "FOUND"])];
    let left_out: Vec<&Run> = cohort.runs.iter().filter(|run| run.exclusion.is_some()).collect();
    for run in left_out.iter().take(ROWS) {
        if let Some(exclusion) = &run.exclusion {
            let path = bounded(&run.path.to_string_lossy(), WIDTH);
            table.push(vec![path, exclusion.name().into(), bounded(exclusion.detail(), WIDTH)]);
        }
    }
    if left_out.len() > ROWS {
        table.push(vec![format!("and {} more: --csv lists all", left_out.len() - ROWS), String::new(), String::new()]);
    }
    table
}

/// What the transcripts of a single run add, below its own table.
pub(super) fn inferred_of_run(inferred: &Inferred, out: &mut impl Write) -> io::Result<()> {
    let by_axis = Axis::ALL.map(|axis| format!("{axis} {}", inferred.denials.get(axis)));
    writeln!(out, "inferred from transcripts, not observed: {}", by_axis.join(", "))?;
    for (axis, act) in &inferred.acts {
        writeln!(out, "  {axis} {}: {}", act.answer.name(), bounded(&act.line, 120))?;
    }
    writeln!(out, "echoes of observed denials in transcripts: {}", inferred.echoes)
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Numbers stand at the right of their columns, words at the left.
fn print(out: &mut impl Write, title: &str, table: &Table, bold: bool) -> io::Result<()> {
    if table.len() < 2 {
        return Ok(());
    }
    let title = printable(title);
    let (on, off) = if bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    writeln!(out, "\n{on}{title}{off}")?;
    let columns = table[0].len();
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let number = |text: &str| text.is_empty() || text == "-" || text.starts_with(|c: char| c.is_ascii_digit());
    let right: Vec<bool> =
        (0..columns).map(|column| column > 0 && table[1..].iter().all(|row| number(&row[column]))).collect();
    for row in table {
        let cell = |(at, text): (usize, &String)| match right[at] {
            true => format!("{text:>width$}", width = widths[at]),
            false => format!("{text:<width$}", width = widths[at]),
        };
        let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
