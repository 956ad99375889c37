//! A ledger as a table on a terminal, its counts, and whether it is whole.

use super::error::ReportError;
use super::input::{open, unreadable};
use super::row::{COLUMNS, HEADINGS, Row, bounded, row};
use super::summary::Summary;
use crate::ledger::escape::printable;
use crate::ledger::line::decode;
use crate::ledger::lines::Lines;
use crate::ledger::record::{Body, Record, Start};
use crate::ledger::{OpenFolds, Verification, VerifyError, verify_each};
use std::io::{self, Write};
use std::path::Path;

/// The widest text in the head, in characters.
const HEAD_WIDTH: usize = 200;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// Prints the ledger at `path`: what ran under which policy, a row for each denial, failed probe, gap and failure, the
/// counts, and what its verification found. The file is read three times and a line at a time, so a ledger of any
/// length can be shown. Records from an altered line on are left out: nothing vouches for them.
///
/// `colour` is for a terminal. All text of the record is printable (`ledger::escape::printable`). Alignment counts
/// characters, so that scripts with wide characters stand a little out of line.
pub fn report(path: &Path, out: &mut impl Write, colour: bool) -> Result<Verification, ReportError> {
    let read = |cause| unreadable("ledger", path, cause);
    let folds = OpenFolds::beside(path);
    let text = open(path).map_err(read)?;
    let verification = verify_each(text, None, folds, |_| {}).map_err(|error| match error {
        VerifyError::Read { cause, .. } => read(cause),
        other => other.into(),
    })?;
    let trusted = match &verification {
        Verification::Altered { line, .. } => line.saturating_sub(1),
        Verification::Complete { .. } | Verification::Incomplete { .. } => u64::MAX,
    };
    let mut widths = HEADINGS.map(|heading| heading.chars().count());
    let mut summary = Summary::default();
    let mut rows = 0u64;
    each_record(path, trusted, |record, start_ns| {
        summary.count(&record);
        if let Some(row) = row(&record, start_ns) {
            rows += 1;
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = cell.chars().count().max(*width);
            }
        }
        Ok(())
    })?;
    each_record(path, trusted, |record, start_ns| {
        if let Body::Start(start) = &record.body {
            print_start(out, &record, start)?;
            if rows > 0 {
                print_row(out, &HEADINGS.map(str::to_owned), &widths, if colour { BOLD } else { "" })?;
            }
        }
        match row(&record, start_ns) {
            Some(row) => print_row(out, &row, &widths, if colour { tint(&record.body) } else { "" }),
            None => Ok(()),
        }
    })?;
    let mut end = || {
        if rows > 0 {
            writeln!(out)?;
        }
        summary.print(out)?;
        let (on, off) = match verification.exit_code() {
            _ if !colour => ("", ""),
            0 => (BOLD, RESET),
            1 => (YELLOW, RESET),
            _ => (RED, RESET),
        };
        writeln!(out, "record: {on}{verification}{off}")?;
        verification.shadow().map_or(Ok(()), |shadow| writeln!(out, "record: {on}{shadow}{off}"))
    };
    end().map_err(ReportError::Print)?;
    Ok(verification)
}

/// Gives each record, up to line `last`, with the start's time in nanoseconds.
fn each_record(path: &Path, last: u64, mut take: impl FnMut(Record, u64) -> io::Result<()>) -> Result<(), ReportError> {
    let read = |cause| unreadable("ledger", path, cause);
    let mut lines = Lines::new(open(path).map_err(read)?);
    let mut start_ns = None;
    while let Some(line) = lines.next().map_err(read)? {
        if line.number > last || !line.ended {
            break;
        }
        // A run that still goes on may have grown since it was verified, by whole records only.
        let Ok(record) = decode(line.bytes) else {
            break;
        };
        let start_ns = *start_ns.get_or_insert(record.mono_ns);
        take(record, start_ns).map_err(ReportError::Print)?;
    }
    Ok(())
}

fn print_start(out: &mut impl Write, record: &Record, start: &Start) -> io::Result<()> {
    let line = format!(
        "run {} at {}: level {}, rung {}, uid {}, gid {}, ringfence {}",
        record.run, record.time, record.level, start.rung, start.uid, start.gid, start.version
    );
    writeln!(out, "{}", printable(&line))?;
    writeln!(out, "policy: {}", printable(&start.policy_digest))?;
    if let Some(shadow) = &start.shadow {
        let line = format!("shadow of {}, not enforced: {}", shadow.level, shadow.policy_digest);
        writeln!(out, "{}", printable(&line))?;
    }
    writeln!(out, "command: {}", bounded(&start.command.join(" "), HEAD_WIDTH))?;
    for (key, value) in &start.labels {
        writeln!(out, "label: {}", bounded(&format!("{key}={value}"), HEAD_WIDTH))?;
    }
    for sentence in &start.unobserved {
        writeln!(out, "not observed: {}", printable(sentence))?;
    }
    writeln!(out)
}

fn print_row(out: &mut impl Write, row: &Row, widths: &[usize; COLUMNS], tint: &str) -> io::Result<()> {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    let line = cells.join("  ");
    let reset = if tint.is_empty() { "" } else { RESET };
    writeln!(out, "{tint}{}{reset}", line.trim_end())
}

fn tint(body: &Body) -> &'static str {
    match body {
        Body::Denial(_) | Body::Probe(_) | Body::Abort(_) => RED,
        Body::Gap(_) | Body::WouldDeny(_) | Body::Infrastructure(_) => YELLOW,
        Body::Start(_) | Body::Read(_) | Body::Seal(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::samples::{denial, gap, probe, sealed};
    use crate::policy::Axis;

    fn printed(bytes: &[u8], colour: bool) -> (String, u8) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        std::fs::write(&path, bytes).unwrap();
        let mut out = Vec::new();
        let found = report(&path, &mut out, colour).unwrap();
        (String::from_utf8(out).unwrap(), found.exit_code())
    }

    fn session() -> (Vec<u8>, String) {
        let mut by_status = denial(Axis::Network, "evil\u{1b}[2J.test");
        by_status.http_status = Some(403);
        let mut by_errno = denial(Axis::Filesystem, "b");
        by_errno.errno = Some("EROFS".into());
        by_errno.count = 4;
        by_errno.object = crate::ledger::record::Object { path: Some("/usr/".repeat(100)), ..Default::default() };
        let bodies = [
            probe(true),
            probe(false),
            Body::Denial(by_status.clone()),
            Body::Denial(by_status),
            Body::Denial(by_errno),
            gap(Some(Axis::Network), 3),
        ];
        let (bytes, end) = sealed(bodies);
        (bytes, end.head)
    }

    /// The rows without their times, which differ.
    fn rows(text: &str) -> Vec<String> {
        let squeeze = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        text.lines().skip_while(|l| !l.starts_with("TIME")).take_while(|l| !l.is_empty()).map(squeeze).collect()
    }

    #[test]
    fn a_record_reads_as_a_table_with_its_counts() {
        let (bytes, _) = session();
        let (text, code) = printed(&bytes, false);
        assert_eq!(
            rows(&text),
            [
                "KIND AXIS MECHANISM OPERATION OBJECT RULE ANSWER TRY",
                "probe network direct network.direct expected ECONNREFUSED, seen connected - FAILED -",
                "denial network proxy CONNECT evil\\x1b[2J.test:443 default-deny 403 1",
                "denial network proxy CONNECT evil\\x1b[2J.test:443 default-deny 403 2",
                &format!("denial filesystem proxy CONNECT {}/u.. default-deny EROFS 1 x4", "/usr/".repeat(12)),
                "gap network nflog - 3 lost: ENOBUFS - - -",
            ]
        );
        let (_, end) = text.rsplit_once("\n\n").unwrap();
        assert_eq!(
            end,
            "denials: network 2, filesystem 4, privilege 0\nprobes: 1 of 2 passed\nrecords lost: 3\noutcome: exited 0\n\
             record: incomplete: 8 records, 6 denials: 3 of network lost by nflog: ENOBUFS\n"
        );
        assert_eq!(code, 1);
        assert!(text.lines().all(|line| !line.contains('\x1b')));
        let starts: Vec<_> = text.lines().filter_map(|l| l.find("network  ").map(|at| (at, l.len()))).collect();
        assert!(starts.windows(2).all(|w| w[0].0 == w[1].0), "the columns line up: {text}");
    }

    #[test]
    fn colour_is_only_what_the_report_adds() {
        let (bytes, _) = session();
        let (plain, _) = printed(&bytes, false);
        let (coloured, _) = printed(&bytes, true);
        assert!(coloured.contains(RED) && coloured.contains(YELLOW));
        let mut stripped = coloured;
        for code in [BOLD, RED, YELLOW, RESET] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn nothing_from_an_altered_line_on_is_shown() {
        let (bytes, _) = sealed(["a.test", "b.test", "c.test"].map(|h| Body::Denial(denial(Axis::Network, h))));
        let changed = String::from_utf8(bytes).unwrap().replace("b.test", "x.test");
        let (text, code) = printed(changed.as_bytes(), false);
        // The line after the changed one is the first whose `prev` does not fit.
        assert!(text.contains("record: altered: line 4:") && !text.contains("c.test"), "{text}");
        assert_eq!(code, 2);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(matches!(report(Path::new("/none"), &mut Vec::new(), false), Err(ReportError::Read { .. })));
        let (text, code) = printed(b"", false);
        assert!(text.contains("outcome: not recorded") && code == 1);
    }
}
