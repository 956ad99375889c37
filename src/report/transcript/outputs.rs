//! The outputs of tools in a transcript, whatever its form.

use super::{atif, jsonl};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::{self, BufRead};

/// The longest line of a structured transcript that is read, in bytes: images stand in them.
const LINE_LIMIT: u64 = 16 << 20;

/// The longest line of plain text that is kept whole.
const TEXT_LIMIT: u64 = 1 << 16;

/// How much plain text is looked at together.
const PARAGRAPH: usize = 1 << 20;

/// What one tool printed.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The call's identifier, where the transcript has one.
    pub call: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

/// Why a transcript could not be read.
#[derive(Debug)]
pub enum Fault {
    /// read(2), or the compression.
    Read(io::Error),
    /// It looks structured and is of no known form.
    Form {
        /// The line, from 1.
        line: u64,
        /// What does not fit.
        why: String,
    },
}

/// Gives each output in the order of the text; the result is how many lines could not be read. The form is told by the
/// beginning: one JSON document is ATIF, a JSON object in each line is Claude Code's or Codex's, all else is plain text,
/// of which all is output but what follows a prompt.
pub fn each(mut text: impl BufRead, mut take: impl FnMut(Output<'_>)) -> Result<u64, Fault> {
    let start = text.fill_buf().map_err(Fault::Read)?;
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        Some(b'{') => structured(text, &mut take),
        Some(b'[') if is_array(start) => Err(Fault::Form {
            line: 1,
            why: "a JSON array is no known form; accepted: ATIF, JSON lines, plain text".into(),
        }),
        _ => plain(text, &mut take),
    }
}

/// A bracket begins timestamps of logs, too.
fn is_array(start: &[u8]) -> bool {
    let mut rest = start.iter().skip_while(|byte| **byte != b'[').skip(1).filter(|byte| !byte.is_ascii_whitespace());
    matches!(rest.next(), Some(b'{' | b']'))
}

/// What tells a trajectory from a line of its own.
#[derive(Deserialize)]
struct Shape {
    steps: Option<IgnoredAny>,
}

fn structured(mut text: impl BufRead, take: &mut impl FnMut(Output<'_>)) -> Result<u64, Fault> {
    let mut first = Vec::new();
    io::Read::take(&mut text, LINE_LIMIT).read_until(b'\n', &mut first).map_err(Fault::Read)?;
    // A whole object in the first line that is no trajectory begins JSON lines.
    let lines = serde_json::from_slice::<Shape>(&first).is_ok_and(|shape| shape.steps.is_none());
    if !lines {
        return atif::read(io::Read::chain(&first[..], text), take);
    }
    let mut reader = jsonl::Reader::default();
    let mut unread = 0;
    let mut line = first;
    loop {
        if !line.trim_ascii().is_empty() && !reader.line(&line, take) {
            unread += 1;
        }
        line.clear();
        let read = io::Read::take(&mut text, LINE_LIMIT).read_until(b'\n', &mut line).map_err(Fault::Read)?;
        if read == 0 {
            break;
        }
    }
    match reader.known() {
        true => Ok(unread),
        false => {
            Err(Fault::Form { line: 1, why: "no line has a known form; accepted: ATIF, Claude Code, Codex".into() })
        }
    }
}

/// A prompt begins another act, as on a screen (`act::acts`); so text goes on in paragraphs that end before one.
fn plain(mut text: impl BufRead, take: &mut impl FnMut(Output<'_>)) -> Result<u64, Fault> {
    let mut paragraph = String::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut text, TEXT_LIMIT).read_until(b'\n', &mut line).map_err(Fault::Read)?;
        let shown = String::from_utf8_lossy(&line);
        let ends = paragraph.len() + shown.len() > PARAGRAPH || super::screen::is_prompt(shown.trim_end_matches('\n'));
        if (read == 0 || ends) && !paragraph.is_empty() {
            take(Output { call: None, text: &paragraph });
            paragraph.clear();
        }
        if read == 0 {
            return Ok(0);
        }
        if !super::screen::is_prompt(shown.trim_end_matches('\n')) {
            paragraph.push_str(&shown);
        }
    }
}

/// Tools whose output is a model's own words: what a sub-agent answered.
pub(super) fn speaks(tool: &str) -> bool {
    ["Task", "Agent"].contains(&tool)
}

/// Whether an output of this tool may tell of a refusal. What a viewer of files or of the web shows is their content,
/// which speaks of errors as often as not; its own error is short.
pub(super) fn tells(tool: Option<&str>, text: &str) -> bool {
    const VIEWERS: [&str; 8] = ["Read", "Grep", "Glob", "LS", "NotebookRead", "WebFetch", "WebSearch", "read_file"];
    match tool {
        Some(tool) if speaks(tool) => false,
        Some(tool) if VIEWERS.contains(&tool) => text.lines().nth(3).is_none(),
        _ => true,
    }
}
