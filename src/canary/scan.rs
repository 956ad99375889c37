//! A search for canaries, from what is asked to what is said.
//!
//! What is said names a token by its pattern, never by itself: a search whose output is kept with a run would plant there
//! what the next one finds.

use super::budget::Budget;
use super::class::{Class, Classes};
use super::error::CanaryError;
use super::json;
use super::needles::Needles;
use super::progress::Progress;
use super::token::Token;
use super::tokens_file;
use super::unpack::{Hit, Unread};
use super::walk::{FileFound, Ground, Walked, walk};
use crate::ledger::escape::printable;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is asked.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Directories, and files.
    pub paths: Vec<PathBuf>,
    /// Files as `plant` writes them.
    pub tokens_files: Vec<PathBuf>,
    /// Tokens that are given.
    pub tokens: Vec<Token>,
    /// Globs that name transcripts; without any the built-in ones.
    pub transcripts: Vec<String>,
    /// Globs of what is passed over.
    pub excluded: Vec<String>,
    /// How many bytes may be unpacked from one file.
    pub unpack_limit: u64,
    /// How many bytes may be unpacked in all.
    pub unpack_total: u64,
    /// JSON lines instead of text.
    pub json: bool,
}

/// What a search comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    hits: u64,
    unread: u64,
}

impl Outcome {
    /// The exit status: 1 where a token was found, else 2 where something could not be read, else 0.
    pub fn status(self) -> i32 {
        match self {
            Outcome { hits: 1.., .. } => 1,
            Outcome { unread: 1.., .. } => 2,
            Outcome { .. } => 0,
        }
    }
}

/// Searches, and says what was found and what could not be read.
///
/// # Errors
/// Tokens that can't be had, and a failure to write.
pub fn scan(request: &ScanRequest, out: &mut impl Write) -> Result<Outcome, CanaryError> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut own = Vec::new();
    let of_files = request.tokens_files.iter().map(|file| {
        let metadata = fs::metadata(file).map_err(CanaryError::file("read", file))?;
        own.push((metadata.dev(), metadata.ino()));
        tokens_file::read(file)
    });
    for token in of_files.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().chain(request.tokens.iter().cloned()) {
        if !tokens.iter().any(|known| known.text() == token.text()) {
            tokens.push(token);
        }
    }
    if tokens.is_empty() {
        return Err(CanaryError::NoTokens);
    }
    let mut holders: HashMap<_, Vec<usize>> = HashMap::new();
    for (number, token) in tokens.iter().enumerate() {
        // One that is no longer there can't be met either.
        if let Some(metadata) = token.holder.as_ref().and_then(|holder| fs::symlink_metadata(holder).ok()) {
            holders.entry((metadata.dev(), metadata.ino())).or_default().push(number);
        }
    }
    let needles = Needles::of(&tokens);
    let budget = Budget::of(request.unpack_total);
    let ground = Ground {
        needles: &needles,
        budget: &budget,
        classes: Classes { transcripts: request.transcripts.clone() },
        excluded: request.excluded.clone(),
        own,
        holders,
        limit: request.unpack_limit,
    };
    let progress = Progress::new();
    let walked = walk(&request.paths, &ground, &progress);
    let (files, bytes) = (progress.files(), progress.bytes());
    drop(progress);
    let mut say = Say { tokens: &tokens, json: request.json, out, told: Told::of(&walked) };
    walked
        .files
        .iter()
        .try_for_each(|file| say.file(file))
        .and_then(|()| say.summary(files, bytes))
        .map_err(CanaryError::Print)?;
    Ok(Outcome { hits: say.told.hits(), unread: say.told.unread })
}

/// What is counted.
struct Told {
    transcript: u64,
    artifact: u64,
    unread: u64,
    /// How many of all these, and of what was passed over, have no line.
    unlisted: u64,
}

impl Told {
    /// Beginning with what is in no file's entry.
    fn of(walked: &Walked) -> Told {
        let Walked { transcript, artifact, unread, skipped, .. } = *walked;
        Told { transcript, artifact, unread, unlisted: transcript + artifact + unread + skipped }
    }

    fn hits(&self) -> u64 {
        self.transcript + self.artifact
    }

    fn add(&mut self, file: &FileFound) {
        let found = &file.found;
        let hits = found.hits.len() as u64 + found.more_hits;
        match file.class {
            Class::Transcript => self.transcript += hits,
            Class::Artifact => self.artifact += hits,
        }
        self.unread += found.unread.len() as u64 + found.more_unread;
        self.unlisted += found.more_hits + found.more_unread;
    }
}

struct Say<'s, W: Write> {
    tokens: &'s [Token],
    json: bool,
    out: &'s mut W,
    told: Told,
}

impl<W: Write> Say<'_, W> {
    fn file(&mut self, file: &FileFound) -> io::Result<()> {
        self.told.add(file);
        for hit in &file.found.hits {
            self.hit(file, hit)?;
        }
        for unread in &file.found.unread {
            self.unread(&file.path, unread)?;
        }
        if file.found.more_hits + file.found.more_unread > 0 {
            self.more(file)?;
        }
        match file.skipped {
            Some(why) => self.skipped(&file.path, why),
            None => Ok(()),
        }
    }

    fn hit(&mut self, file: &FileFound, hit: &Hit) -> io::Result<()> {
        let token = &self.tokens[hit.find.token];
        let (encoding, offset, count) = (hit.find.encoding.name(), hit.find.offset, hit.find.count);
        if self.json {
            return self.line(&json!({
                "kind": "hit", "class": file.class, "path": file.path.to_string_lossy(), "within": hit.within,
                "in": if file.in_name { "name" } else { "content" },
                "pattern": token.pattern(), "planted": token.planted, "encoding": encoding, "offset": offset, "count": count,
            }));
        }
        let planted = token.planted.as_ref().map(|path| format!(" planted in {}", shown(path, &[])));
        let times = if count > 1 { format!(", {count} times") } else { String::new() };
        let where_to = if file.in_name { "in the name".to_owned() } else { format!("at byte {offset}") };
        writeln!(
            self.out,
            "{:<10} {}: {}{}: {encoding}, {where_to}{times}",
            file.class.name(),
            shown(&file.path, &hit.within),
            token.pattern(),
            planted.unwrap_or_default(),
        )
    }

    fn unread(&mut self, path: &Path, unread: &Unread) -> io::Result<()> {
        let Unread { within, why } = unread;
        if self.json {
            return self.line(&json!({"kind": "unread", "path": path.to_string_lossy(), "within": within, "why": why}));
        }
        writeln!(self.out, "{:<10} {}: {}", "unread", shown(path, within), printable(why))
    }

    fn more(&mut self, file: &FileFound) -> io::Result<()> {
        let (hits, unread) = (file.found.more_hits, file.found.more_unread);
        if self.json {
            return self.line(&json!({
                "kind": "more", "class": file.class, "path": file.path.to_string_lossy(), "hits": hits, "unread": unread,
            }));
        }
        writeln!(self.out, "{:<10} {}: {hits} hits and {unread} not read", "more", shown(&file.path, &[]))
    }

    fn skipped(&mut self, path: &Path, why: &str) -> io::Result<()> {
        if self.json {
            return self.line(&json!({"kind": "skipped", "path": path.to_string_lossy(), "why": why}));
        }
        writeln!(self.out, "{:<10} {}: {why}", "skipped", shown(path, &[]))
    }

    fn summary(&mut self, files: u64, bytes: u64) -> io::Result<()> {
        let Told { transcript, artifact, unread, unlisted } = self.told;
        let hits = self.told.hits();
        if self.json {
            return self.line(&json!({
                "kind": "summary", "files": files, "bytes": bytes, "tokens": self.tokens.len(), "hits": hits,
                "transcript": transcript, "artifact": artifact, "unread": unread, "unlisted": unlisted,
                "complete": unread == 0,
            }));
        }
        let unlisted = if unlisted > 0 { format!(", {unlisted} of all these not listed") } else { String::new() };
        writeln!(
            self.out,
            "{hits} hits, {transcript} in transcripts and {artifact} in artifacts, of {} tokens in {files} files ({bytes} bytes); {unread} not read{unlisted}",
            self.tokens.len(),
        )
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", json::line(value))
    }
}

/// A path and what is within it, for a terminal.
fn shown(path: &Path, within: &[String]) -> String {
    let whole = std::iter::once(path.to_string_lossy().into_owned()).chain(within.iter().cloned());
    printable(&whole.collect::<Vec<_>>().join("!")).into_owned()
}
