//! The report that is asked for, from its inputs to its form.

use super::cohort::Cohort;
use super::error::ReportError;
use super::gate::Exclusion;
use super::input::{Input, begins_as_ledger, find, open, unreadable};
use super::parallel::in_order;
use super::progress::Progress;
use super::run::{Scan, Scanned, scan};
use super::selection::{By, Selection};
use super::transcript::{Inferred, infer};
use super::{csv, json, table, text};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Tables; `colour` is for a terminal.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values.
    Csv,
}

/// What is asked.
#[derive(Debug, Default)]
pub struct Request {
    /// Files, and directories that are searched.
    pub logs: Vec<PathBuf>,
    /// Which runs.
    pub selection: Selection,
    /// How they are grouped.
    pub by: Option<By>,
    /// The form.
    pub form: Form,
    /// Transcripts.
    pub transcripts: Vec<PathBuf>,
}

/// Makes the report. One ledger that is asked for as it is has its records shown (`table`); everything else is counts.
///
/// Errors: an input that was named and can't be opened, or is no ledger; a transcript that can't be read or whose run is
/// not known; a failure to write. A ledger among others that turns out broken is an excluded run.
pub fn make(request: Request, out: &mut impl Write, colour: bool) -> Result<(), ReportError> {
    let inputs = find(&request.logs)?;
    let alone = request.logs.len() == 1 && inputs.len() == 1 && inputs[0].named;
    let mut transcripts = assign(&request.transcripts, &inputs, alone)?;
    if alone && request.form == Form::Text && request.by.is_none() && request.selection.is_all() {
        return one(&inputs[0], transcripts.remove(&inputs[0].path), out, colour);
    }
    let progress = Progress::of(inputs.len());
    let mut cohort = Cohort::of(request.selection, request.by);
    let mut fault = None;
    let work = |input: &Input| {
        let scanned = read(input, transcripts.get(&input.path));
        progress.advance();
        scanned
    };
    in_order(&inputs, work, |scanned| match scanned {
        Ok(scan) => cohort.take(scan),
        Err(error) => {
            fault.get_or_insert(error);
        }
    });
    drop(progress);
    if let Some(fault) = fault {
        return Err(fault);
    }
    cohort.settle();
    // A single run of which nothing can be read makes no report.
    if let ([run], true) = (&cohort.runs[..], alone)
        && let Some(Exclusion::Unreadable(cause)) = &run.exclusion
    {
        return Err(unreadable("ledger", &run.path, io::Error::other(cause.clone())));
    }
    let written = match request.form {
        Form::Text => text::write(&cohort, out, colour),
        Form::Json => json::write(&cohort, out),
        Form::Csv => csv::write(&cohort, out),
    };
    written.map_err(ReportError::Print)
}

/// A ledger and its transcripts.
fn read(input: &Input, transcripts: Option<&Vec<PathBuf>>) -> Result<Scan, ReportError> {
    let mut scan = scan(input, transcripts.is_some())?;
    if let (Scan::Run(scanned), Some(transcripts)) = (&mut scan, transcripts) {
        scanned.run.inferred = Some(inferred(scanned, transcripts)?);
    }
    Ok(scan)
}

fn inferred(scanned: &Scanned, transcripts: &[PathBuf]) -> Result<Inferred, ReportError> {
    let none = Default::default();
    infer(transcripts, scanned.observed.as_ref().unwrap_or(&none), &scanned.run.postures)
}

/// One run's records, and what its transcripts add.
fn one(
    input: &Input,
    transcripts: Option<Vec<PathBuf>>,
    out: &mut impl Write,
    colour: bool,
) -> Result<(), ReportError> {
    let cause = |cause| unreadable("ledger", &input.path, cause);
    let mut text = open(&input.path).map_err(cause)?;
    if !begins_as_ledger(&mut text).map_err(cause)? {
        return Err(ReportError::NoLedger { path: input.path.clone() });
    }
    let _verification = table::report(&input.path, out, colour)?;
    if let Some(transcripts) = transcripts
        && let Scan::Run(scanned) = scan(input, true)?
    {
        let inferred = inferred(&scanned, &transcripts)?;
        text::inferred_of_run(&inferred, out).map_err(ReportError::Print)?;
    }
    Ok(())
}

/// The transcripts of each ledger. With one LOG all are its own. Otherwise a transcript belongs to the one ledger whose
/// name without `.jsonl` begins the transcript's in the same directory; failing that, to the one ledger in or beneath the
/// nearest directory above the transcript that has any.
fn assign(
    transcripts: &[PathBuf],
    inputs: &[Input],
    alone: bool,
) -> Result<BTreeMap<PathBuf, Vec<PathBuf>>, ReportError> {
    let mut assigned: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    if transcripts.is_empty() {
        return Ok(assigned);
    }
    let real = |what, path: &Path| path.canonicalize().map_err(|cause| unreadable(what, path, cause));
    let ledgers: Vec<(PathBuf, &PathBuf)> = match alone {
        true => Vec::new(),
        false => inputs
            .iter()
            .map(|input| Ok((real("ledger", &input.path)?, &input.path)))
            .collect::<Result<_, ReportError>>()?,
    };
    for path in transcripts {
        let ledger = match alone {
            true => &inputs[0].path,
            false => beside(&real("transcript", path)?, &ledgers)
                .map_err(|why| ReportError::NoRun { path: path.clone(), why })?,
        };
        assigned.entry(ledger.clone()).or_default().push(path.clone());
    }
    Ok(assigned)
}

fn beside<'a>(transcript: &Path, ledgers: &[(PathBuf, &'a PathBuf)]) -> Result<&'a PathBuf, String> {
    let candidates: Vec<_> = ledgers.iter().filter(|(ledger, _)| ledger != transcript).collect();
    let named: Vec<_> = candidates
        .iter()
        .filter(|(ledger, _)| ledger.parent() == transcript.parent() && begins(transcript, ledger))
        .collect();
    if let [(_, ledger)] = named[..] {
        return Ok(ledger);
    }
    for directory in transcript.ancestors().skip(1) {
        let beneath: Vec<_> = candidates.iter().filter(|(ledger, _)| ledger.starts_with(directory)).collect();
        match beneath[..] {
            [] => {}
            [(_, ledger)] => return Ok(ledger),
            _ => return Err(format!("{} ledgers lie in or beneath {directory:?}", beneath.len())),
        }
    }
    Err("no ledger lies beside it".to_owned())
}

fn begins(transcript: &Path, ledger: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (transcript, ledger) = (name(transcript), name(ledger));
    let stem = ledger.trim_end_matches(".zst").trim_end_matches(".jsonl");
    transcript.strip_prefix(stem).is_some_and(|rest| rest.starts_with(['.', '-', '_']))
}
