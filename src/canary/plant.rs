//! Putting tokens into files: all that are named, or none.

use super::error::CanaryError;
use super::replace::{Original, Replacement};
use super::token::Token;
use super::{syntax, tokens_file};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the name of a file beside another one ends in.
const BESIDE: &str = ".canary";

/// A larger file gets its token beside it, as it would have to be held in memory. In bytes.
const LARGEST: u64 = 64 << 20;

/// What is asked.
#[derive(Debug, Clone)]
pub struct PlantRequest {
    /// Files, and directories whose files are all meant.
    pub paths: Vec<PathBuf>,
    /// Where the tokens are written to; those that it has already stay.
    pub tokens: Option<PathBuf>,
    /// JSON lines instead of text.
    pub json: bool,
}

/// A file and its token.
struct Planted {
    path: PathBuf,
    holder: PathBuf,
    token: Token,
    already: bool,
}

/// Plants a token in, or beside, each file, and says which: a line each of path, token and pattern.
///
/// # Errors
/// Any file that can't have one; no file is changed then.
pub fn plant(request: &PlantRequest, out: &mut impl Write) -> Result<(), CanaryError> {
    let mut replacement = Replacement::default();
    let mut planted: Vec<Planted> = Vec::new();
    let own = request.tokens.as_deref().map(std::path::absolute).transpose();
    let own = own.map_err(CanaryError::file("found", request.tokens.clone().unwrap_or_default()))?;
    for path in files(&request.paths)?.into_iter().filter(|path| Some(path) != own.as_ref()) {
        planted.push(one(&path, &mut replacement)?);
    }
    if let Some(file) = &request.tokens {
        let tokens = with_known(file, &planted)?;
        replacement.stage_private(file, tokens_file::text(&tokens)?.as_bytes())?;
    }
    replacement.commit()?;
    planted.iter().try_for_each(|planted| line(planted, request.json, out)).map_err(CanaryError::Print)
}

fn line(planted: &Planted, json: bool, out: &mut impl Write) -> io::Result<()> {
    let (token, pattern) = (planted.token.text(), planted.token.pattern());
    let Planted { path, holder, already, .. } = planted;
    if json {
        let line = json!({"path": path, "holder": holder, "token": token, "pattern": pattern, "already": already});
        return writeln!(out, "{line}");
    }
    let shown = crate::ledger::escape::printable(&holder.to_string_lossy()).into_owned();
    writeln!(out, "{shown}\t{token}\t{pattern}")
}

fn one(path: &Path, replacement: &mut Replacement) -> Result<Planted, CanaryError> {
    let mut original = Original::open(path)?;
    let content = match original.size() <= LARGEST {
        true => Some(original.content().map_err(CanaryError::file("read", path))?),
        false => None,
    };
    let planted =
        |holder: &Path, token, already| Planted { path: path.to_owned(), holder: holder.to_owned(), token, already };
    if let Some(token) = content.as_deref().and_then(Token::in_text) {
        return Ok(planted(path, token, true));
    }
    let mut name = path.as_os_str().to_owned();
    name.push(BESIDE);
    let beside = PathBuf::from(name);
    if fs::symlink_metadata(&beside).is_ok() {
        let text = Original::open(&beside)?.content().map_err(CanaryError::file("read", &beside))?;
        return match Token::in_text(&text) {
            Some(token) => Ok(planted(&beside, token, true)),
            None => Err(CanaryError::Unfit {
                path: beside,
                is: "is in the way of a canary".into(),
                accepted: "no such file, or one that holds a canary",
            }),
        };
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let token = Token::make(&stem)?;
    let commented = content.and_then(|content| syntax::with_comment(path, &content, token.text()));
    match commented {
        Some(commented) => {
            replacement.stage(path, &commented, &original)?;
            Ok(planted(path, token, false))
        }
        None => {
            replacement.stage(&beside, format!("{}\n", token.text()).as_bytes(), &original)?;
            Ok(planted(&beside, token, false))
        }
    }
}

/// The files that are meant, by absolute paths, each once. Beneath a directory: every regular file but git's own and the
/// files that hold a canary for another; symbolic links, devices, pipes and sockets are left alone.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CanaryError> {
    let mut files = BTreeMap::new();
    for path in paths {
        let absolute = std::path::absolute(path).map_err(CanaryError::file("found", path))?;
        let metadata = fs::symlink_metadata(path).map_err(CanaryError::file("found", path))?;
        match metadata.is_dir() {
            true => beneath(&absolute, &mut files)?,
            false => drop(files.insert(absolute, ())),
        }
    }
    match files.is_empty() {
        true => Err(CanaryError::Unfit {
            path: paths.first().cloned().unwrap_or_default(),
            is: "holds no regular file".into(),
            accepted: "files, and directories that hold some",
        }),
        false => Ok(files.into_keys().collect()),
    }
}

fn beneath(top: &Path, files: &mut BTreeMap<PathBuf, ()>) -> Result<(), CanaryError> {
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = || CanaryError::file("listed", &directory);
        for entry in fs::read_dir(&directory).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let kind = entry.file_type().map_err(failed())?;
            let name = entry.file_name();
            if kind.is_dir() && name != ".git" {
                directories.push(entry.path());
            } else if kind.is_file() && !name.as_encoded_bytes().ends_with(BESIDE.as_bytes()) {
                files.insert(entry.path(), ());
            }
        }
    }
    Ok(())
}

/// The tokens that a file has, and those of the planted files that it has not.
fn with_known(file: &Path, planted: &[Planted]) -> Result<Vec<Token>, CanaryError> {
    let mut tokens = match fs::symlink_metadata(file) {
        Ok(_) => {
            Original::open(file)?;
            tokens_file::read(file)?
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(cause) => return Err(CanaryError::file("found", file)(cause)),
    };
    for Planted { path, holder, token, .. } in planted {
        if !tokens.iter().any(|known| known.text() == token.text() && known.planted.as_ref() == Some(path)) {
            tokens.push(token.clone().planted_for(path.clone(), holder.clone()));
        }
    }
    Ok(tokens)
}
