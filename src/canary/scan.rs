//! A search for canaries, from what is asked to what is said.
//!
//! What is said names a token by its pattern, never by itself: a search whose output is kept with a run would plant there
//! what the next one finds.

use super::class::{Class, Classes};
use super::error::CanaryError;
use super::needles::Needles;
use super::progress::Progress;
use super::token::Token;
use super::tokens_file;
use super::unpack::{Hit, Unread};
use super::walk::{FileFound, Ground, walk};
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
    /// JSON lines instead of text.
    pub json: bool,
}

/// What a search comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    hits: usize,
    unread: usize,
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
    let ground = Ground {
        needles: &needles,
        classes: Classes { transcripts: request.transcripts.clone() },
        excluded: request.excluded.clone(),
        own,
        holders,
        limit: request.unpack_limit,
    };
    let progress = Progress::new();
    let found = walk(&request.paths, &ground, &progress);
    let (files, bytes) = (progress.files(), progress.bytes());
    drop(progress);
    let mut say = Say { tokens: &tokens, json: request.json, out, transcript: 0, artifact: 0, unread: 0 };
    found
        .iter()
        .try_for_each(|file| say.file(file))
        .and_then(|()| say.summary(files, bytes))
        .map_err(CanaryError::Print)?;
    Ok(Outcome { hits: say.transcript + say.artifact, unread: say.unread })
}

struct Say<'s, W: Write> {
    tokens: &'s [Token],
    json: bool,
    out: &'s mut W,
    transcript: usize,
    artifact: usize,
    unread: usize,
}

impl<W: Write> Say<'_, W> {
    fn file(&mut self, file: &FileFound) -> io::Result<()> {
        for (hits, place) in [(&file.in_name, "name"), (&file.found.hits, "content")] {
            for hit in hits {
                self.hit(file, hit, place)?;
            }
        }
        for unread in &file.found.unread {
            self.unread(&file.path, unread)?;
        }
        match file.skipped {
            Some(why) => self.skipped(&file.path, why),
            None => Ok(()),
        }
    }

    fn hit(&mut self, file: &FileFound, hit: &Hit, place: &str) -> io::Result<()> {
        match file.class {
            Class::Transcript => self.transcript += 1,
            Class::Artifact => self.artifact += 1,
        }
        let token = &self.tokens[hit.find.token];
        let (encoding, offset, count) = (hit.find.encoding.name(), hit.find.offset, hit.find.count);
        if self.json {
            return self.line(&json!({
                "kind": "hit", "class": file.class, "path": file.path.to_string_lossy(), "within": hit.within, "in": place,
                "pattern": token.pattern(), "planted": token.planted, "encoding": encoding, "offset": offset, "count": count,
            }));
        }
        let planted = token.planted.as_ref().map(|path| format!(" planted in {}", shown(path, &[])));
        let times = if count > 1 { format!(", {count} times") } else { String::new() };
        let where_to = match place {
            "name" => "in the name".to_owned(),
            _ => format!("at byte {offset}"),
        };
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
        self.unread += 1;
        let Unread { within, why } = unread;
        if self.json {
            return self.line(&json!({"kind": "unread", "path": path.to_string_lossy(), "within": within, "why": why}));
        }
        writeln!(self.out, "{:<10} {}: {}", "unread", shown(path, within), printable(why))
    }

    fn skipped(&mut self, path: &Path, why: &str) -> io::Result<()> {
        if self.json {
            return self.line(&json!({"kind": "skipped", "path": path.to_string_lossy(), "why": why}));
        }
        writeln!(self.out, "{:<10} {}: {why}", "skipped", shown(path, &[]))
    }

    fn summary(&mut self, files: u64, bytes: u64) -> io::Result<()> {
        let (transcript, artifact, unread) = (self.transcript, self.artifact, self.unread);
        let hits = transcript + artifact;
        if self.json {
            return self.line(&json!({
                "kind": "summary", "files": files, "bytes": bytes, "tokens": self.tokens.len(), "hits": hits,
                "transcript": transcript, "artifact": artifact, "unread": unread, "complete": unread == 0,
            }));
        }
        writeln!(
            self.out,
            "{hits} hits, {transcript} in transcripts and {artifact} in artifacts, of {} tokens in {files} files ({bytes} bytes); {unread} not read",
            self.tokens.len(),
        )
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }
}

/// A path and what is within it, for a terminal.
fn shown(path: &Path, within: &[String]) -> String {
    let whole = std::iter::once(path.to_string_lossy().into_owned()).chain(within.iter().cloned());
    printable(&whole.collect::<Vec<_>>().join("!")).into_owned()
}
