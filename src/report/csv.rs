//! A report as comma-separated values (RFC 4180, but with line feeds alone): a row for each run, or for each group.

use super::cohort::Cohort;
use super::run::Run;
use crate::ledger::escape::printable;
use crate::policy::Axis;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Writes the rows after their headings. What is not known is empty.
pub(super) fn write(cohort: &Cohort, out: &mut impl Write) -> io::Result<()> {
    match &cohort.by {
        Some(by) => {
            let mut headings = vec![by.name().to_owned(), "runs".into(), "excluded".into(), "runs_denied".into()];
            for name in ["runs", "denials", "reattempts", "inferred"] {
                headings.extend(Axis::ALL.map(|axis| format!("{name}_{axis}")));
            }
            headings.push("direct".into());
            row(out, headings.iter().map(String::as_str))?;
            for (name, counts) in cohort.groups(by) {
                let mut cells = vec![name.unwrap_or_default()];
                cells.extend([counts.runs, counts.excluded, counts.affected].map(|count| count.to_string()));
                for by_axis in [&counts.affected_by_axis, &counts.denials, &counts.reattempts, &counts.inferred] {
                    cells.extend(Axis::ALL.map(|axis| by_axis.get(axis).to_string()));
                }
                cells.push(counts.direct.to_string());
                row(out, cells.iter().map(String::as_str))?;
            }
            Ok(())
        }
        None => {
            let keys: BTreeSet<&str> =
                cohort.runs.iter().flat_map(|run| run.labels.keys().map(String::as_str)).collect();
            let mut headings: Vec<String> =
                ["path", "run", "level", "outcome", "exit_code", "counted", "excluded", "why"]
                    .map(str::to_owned)
                    .into();
            for name in ["denials", "reattempts", "inferred"] {
                headings.extend(Axis::ALL.map(|axis| format!("{name}_{axis}")));
            }
            headings.push("shadow".into());
            headings.extend(Axis::ALL.map(|axis| format!("would_deny_{axis}")));
            headings.push("direct".into());
            headings.extend(keys.iter().map(|key| format!("label_{key}")));
            row(out, headings.iter().map(String::as_str))?;
            cohort.runs.iter().try_for_each(|run| row(out, cells(run, &keys).iter().map(String::as_str)))
        }
    }
}

fn cells(run: &Run, keys: &BTreeSet<&str>) -> Vec<String> {
    let exclusion = run.exclusion.as_ref();
    let mut cells = vec![
        run.path.to_string_lossy().into_owned(),
        run.id.clone().unwrap_or_default(),
        run.level.clone().unwrap_or_default(),
        run.outcome.map(|outcome| outcome.name().to_owned()).unwrap_or_default(),
        run.exit_code.map(|code| code.to_string()).unwrap_or_default(),
        exclusion.is_none().to_string(),
        exclusion.map(|exclusion| exclusion.name().to_owned()).unwrap_or_default(),
        exclusion.map(|exclusion| exclusion.detail().to_owned()).unwrap_or_default(),
    ];
    for by_axis in [&run.denials, &run.reattempts] {
        cells.extend(Axis::ALL.map(|axis| by_axis.get(axis).to_string()));
    }
    let inferred = run.inferred.as_ref();
    cells.extend(Axis::ALL.map(|axis| inferred.map(|of| of.denials.get(axis).to_string()).unwrap_or_default()));
    cells.push(run.shadow.clone().unwrap_or_default());
    let would_deny = |axis| run.shadow.as_ref().map(|_| run.would_deny.get(axis).to_string()).unwrap_or_default();
    cells.extend(Axis::ALL.map(would_deny));
    cells.push(run.direct.to_string());
    cells.extend(keys.iter().map(|key| run.labels.get(*key).cloned().unwrap_or_default()));
    cells
}

fn row<'a>(out: &mut impl Write, cells: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let line = cells.map(cell).collect::<Vec<_>>().join(",");
    writeln!(out, "{line}")
}

/// Line feeds are kept, in quotes: a label's value is to be the same for whoever reads it.
fn cell(text: &str) -> String {
    let text = text.split('\n').map(printable).collect::<Vec<_>>().join("\n");
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut out = Vec::new();
        row(&mut out, ["a", "", "b,c", "d\"e", "f\ng", "h\u{1b}"].into_iter()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a,,\"b,c\",\"d\"\"e\",\"f\ng\",h\\x1b\n");
    }
}
