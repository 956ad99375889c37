//! The outcome of a suite as a table, as JSON, as TAP version 13 and as JUnit's XML.

use super::outcome::{Counts, Outcome, Report, Row};
use super::standing::Shown;
use crate::ledger::escape::printable;
use crate::policy::BadValue;
use serde_json::json;
use std::fmt::Write;
use std::str::FromStr;

/// What `--format` takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// For people.
    #[default]
    Table,
    /// One object.
    Json,
    /// Test Anything Protocol, version 13.
    Tap,
    /// The XML that JUnit's Ant task writes.
    Junit,
}

impl FromStr for Form {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Form, BadValue> {
        Ok(match text {
            "table" => Form::Table,
            "json" => Form::Json,
            "tap" => Form::Tap,
            "junit" => Form::Junit,
            _ => return Err(BadValue::new("format", text, "table, json, tap, junit")),
        })
    }
}

const NOTHING: &str = "nothing to try: no restriction is in force that was asked for";

/// The report as text.
pub fn render(report: &Report, form: Form) -> String {
    match form {
        Form::Table => table(report),
        Form::Json => json(report),
        Form::Tap => tap(report),
        Form::Junit => junit(report),
    }
}

/// The text with a line ending. Writing to a String never fails.
fn line(out: &mut String, text: impl std::fmt::Display) {
    if writeln!(out, "{text}").is_err() {}
}

/// What is printed under headings, in columns as wide as their widest cell.
pub(super) fn columns<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        line(out, cells.join("  ").trim_end());
    }
}

fn table(report: &Report) -> String {
    let mut out = String::new();
    let Report { run, level, digest, rung, ledger, restrictions, rows } = report;
    line(&mut out, format!("run {run}  level {level}  rung {rung}"));
    line(&mut out, format!("policy: {digest}"));
    line(&mut out, format!("record: {}", printable(ledger)));
    line(&mut out, "");
    let row = |row: &Row| {
        let (verdict, seen) = match &row.outcome {
            Outcome::Passed { seen, .. } => ("ok", seen.clone()),
            Outcome::Failed { expected, seen } => ("FAILED", format!("{seen}, expected {expected}")),
            Outcome::NotJudged { cause } => ("NOT JUDGED", cause.clone()),
            Outcome::Skipped { .. } => return None,
        };
        Some([verdict.into(), row.id.clone(), row.title.clone(), printable(&seen).into_owned()])
    };
    let heading = ["", "PROBE", "TITLE", "SEEN"].map(str::to_owned);
    let shown: Vec<[String; 4]> = std::iter::once(heading).chain(rows.iter().filter_map(row)).collect();
    columns(&mut out, &shown);
    line(&mut out, "");
    for row in rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed { .. })) {
        line(&mut out, format!("{}: {}", row.id, printable(&row.why)));
    }
    if !restrictions.is_empty() {
        line(&mut out, "");
        let heading = ["RESTRICTION", "", "BECAUSE"].map(str::to_owned);
        let known = restrictions.iter().map(|shown| {
            [shown.restriction.to_string(), shown.standing.to_string(), printable(&shown.because).into_owned()]
        });
        columns(&mut out, &std::iter::once(heading).chain(known).collect::<Vec<_>>());
        line(&mut out, "");
    }
    for shown in report.not_judged() {
        line(&mut out, not_judged(shown));
    }
    if report.has_nothing_to_try() {
        line(&mut out, NOTHING);
    }
    let Counts { passed, failed, not_judged, skipped } = report.counts();
    line(&mut out, format!("{passed} passed, {failed} failed, {not_judged} not judged, {skipped} do not apply"));
    out
}

fn not_judged(shown: &Shown) -> String {
    format!("not judged: {} ({})", shown.restriction, printable(&shown.because))
}

fn json(report: &Report) -> String {
    let mut value = json!(report);
    let counts = json!(report.counts());
    if let (Some(fields), Some(counts)) = (value.as_object_mut(), counts.as_object()) {
        fields.extend(counts.clone());
    }
    format!("{value:#}\n")
}

/// <https://testanything.org/tap-version-13-specification.html>
fn tap(report: &Report) -> String {
    let mut out = String::new();
    line(&mut out, "TAP version 13");
    line(&mut out, format!("1..{}", report.rows.len()));
    let Report { run, level, digest, rung, .. } = report;
    line(&mut out, format!("# run {run} level {level} rung {rung} policy {digest}"));
    if report.has_nothing_to_try() {
        line(&mut out, format!("# {NOTHING}"));
    }
    report.not_judged().for_each(|shown| line(&mut out, format!("# {}", not_judged(shown))));
    for (number, row) in (1..).zip(&report.rows) {
        // A number sign would begin a directive.
        let description = format!("{}: {}", row.id, printable(&row.title)).replace('\\', "\\\\").replace('#', "\\#");
        match &row.outcome {
            Outcome::Passed { .. } => line(&mut out, format!("ok {number} - {description}")),
            Outcome::Skipped { cause } => {
                line(&mut out, format!("ok {number} - {description} # SKIP {}", printable(cause)))
            }
            Outcome::Failed { expected, seen } => {
                let facts = [("expected", expected.as_str()), ("seen", seen), ("why", &row.why)];
                not_ok(&mut out, number, &description, &facts);
            }
            // A TODO or SKIP would be a success to who reads it.
            Outcome::NotJudged { cause } => {
                let facts = [("outcome", "not judged"), ("cause", cause), ("why", &row.why)];
                not_ok(&mut out, number, &description, &facts);
            }
        }
    }
    out
}

fn not_ok(out: &mut String, number: u32, description: &str, facts: &[(&str, &str)]) {
    line(out, format!("not ok {number} - {description}"));
    line(out, "  ---");
    for (key, value) in facts {
        // A string of JSON is one of YAML (YAML 1.2, 1.3).
        line(out, format!("  {key}: {}", json!(printable(value))));
    }
    line(out, "  ...");
}

/// The elements that <https://github.com/testmoapp/junitxml> describes, a suite for each axis.
fn junit(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let numbers = |report: &Report| {
        let Counts { failed, not_judged, skipped, .. } = report.counts();
        let tests = report.rows.len();
        format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"{not_judged}\" skipped=\"{skipped}\"")
    };
    let of_all = numbers(report);
    line(&mut out, format!("<testsuites name=\"ringfence probe\" {of_all}>"));
    for axis in crate::policy::Axis::ALL.map(crate::policy::Axis::name) {
        let rows: Vec<Row> = report.rows.iter().filter(|row| row.axis == axis).cloned().collect();
        let suite = Report { rows, ..report.clone() };
        let of_axis = numbers(&suite);
        line(&mut out, format!("  <testsuite name=\"{axis}\" {of_axis}>"));
        line(&mut out, "    <properties>");
        let nist = crate::policy::Axis::ALL.iter().find(|known| known.name() == axis).map(|axis| axis.nist().join(" "));
        let properties = [
            ("run", report.run.as_str()),
            ("level", &report.level),
            ("policy", &report.digest),
            ("rung", &report.rung),
            ("nist", nist.as_deref().unwrap_or_default()),
        ];
        for (name, value) in properties {
            line(&mut out, format!("      <property name=\"{name}\" value=\"{}\"/>", xml(value)));
        }
        line(&mut out, "    </properties>");
        suite.rows.iter().for_each(|row| case(&mut out, row));
        line(&mut out, "  </testsuite>");
    }
    line(&mut out, "</testsuites>");
    out
}

fn case(out: &mut String, row: &Row) {
    let names = format!("classname=\"ringfence.{}.{}\" name=\"{}\"", row.axis, xml(&row.class), xml(&row.id));
    match &row.outcome {
        Outcome::Passed { .. } => line(out, format!("    <testcase {names}/>")),
        Outcome::Skipped { cause } => {
            line(out, format!("    <testcase {names}><skipped message=\"{}\"/></testcase>", xml(cause)));
        }
        // What keeps a case from being tried is an error; a skipped one would be a success to who reads it.
        Outcome::NotJudged { cause } => {
            let text = xml(&format!("{}. {}", row.title, row.why));
            let error = format!("<error type=\"not-judged\" message=\"{}\">{text}</error>", xml(cause));
            line(out, format!("    <testcase {names}>{error}</testcase>"));
        }
        Outcome::Failed { expected, seen } => {
            let message = xml(&format!("expected {expected}, saw {seen}"));
            let text = xml(&format!("{}. {}", row.title, row.why));
            let failure = format!("<failure type=\"{}\" message=\"{message}\">{text}</failure>", xml(&row.class));
            line(out, format!("    <testcase {names}>{failure}</testcase>"));
        }
    }
}

/// Text within an attribute or an element. Control characters, of which XML 1.0 has next to none, are written out.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // No characters of XML, and not hidden either.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
