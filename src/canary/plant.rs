//! Putting tokens into files: all that are named, or none.

use super::error::CanaryError;
use super::place::{Directory, Place};
use super::replace::{Original, Replacement};
use super::token::Token;
use super::{json, syntax, tokens_file};
use rustix::fs::FileType;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

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
    let own = request.tokens.as_deref().map(Place::given).transpose()?;
    let own_path = own.as_ref().map(Place::path);
    for (path, place) in files(&request.paths)? {
        if Some(&path) != own_path.as_ref() {
            planted.push(one(&place, &mut replacement)?);
        }
    }
    if let Some(place) = &own {
        let original = match place.stat().map_err(CanaryError::file("found", place.path()))? {
            Some(_) => Some(Original::open(place)?),
            None => None,
        };
        let (original, tokens) = with_known(original, &planted)?;
        replacement.stage_private(place, original.as_ref(), tokens_file::text(&tokens)?.as_bytes())?;
    }
    // What can't be told is not planted either.
    let lines = planted.iter().map(|planted| line(planted, request.json)).collect::<Result<Vec<_>, _>>()?;
    replacement.commit()?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(CanaryError::Print)
}

fn line(planted: &Planted, json: bool) -> Result<String, CanaryError> {
    let (token, pattern) = (planted.token.text(), planted.token.pattern());
    let Planted { path, holder, already, .. } = planted;
    if !json {
        let shown = crate::ledger::escape::printable(&holder.to_string_lossy()).into_owned();
        return Ok(format!("{shown}\t{token}\t{pattern}"));
    }
    let (Some(path), Some(holder)) = (path.to_str(), holder.to_str()) else {
        return Err(CanaryError::Unfit {
            path: path.clone(),
            is: "has a name that JSON cannot hold".to_owned(),
            accepted: "a name in UTF-8, or no --json",
        });
    };
    let value = json!({"path": path, "holder": holder, "token": token, "pattern": pattern, "already": already});
    Ok(json::line(&value))
}

fn one(place: &Place, replacement: &mut Replacement) -> Result<Planted, CanaryError> {
    let mut original = Original::open(place)?;
    let content = match original.size() <= LARGEST {
        true => Some(original.content()?),
        false => None,
    };
    let planted =
        |holder: &Place, token, already| Planted { path: place.path(), holder: holder.path(), token, already };
    if let Some(token) = content.as_deref().and_then(Token::in_text) {
        return Ok(planted(place, token, true));
    }
    let mut name = place.name.clone();
    name.push(BESIDE);
    let beside = place.beside(&name);
    if beside.stat().map_err(CanaryError::file("looked at", beside.path()))?.is_some() {
        let text = Original::open(&beside)?.content()?;
        return match Token::in_text(&text) {
            Some(token) => Ok(planted(&beside, token, true)),
            None => Err(CanaryError::Unfit {
                path: beside.path(),
                is: "is in the way of a canary".into(),
                accepted: "no such file, or one that holds a canary",
            }),
        };
    }
    let path = place.path();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let token = Token::make(&stem)?;
    let commented = content.and_then(|content| syntax::with_comment(&path, &content, token.text()));
    match commented {
        Some(commented) => {
            replacement.stage(&original, &commented)?;
            Ok(planted(place, token, false))
        }
        None => {
            replacement.stage_new(&beside, format!("{}\n", token.text()).as_bytes(), &original)?;
            Ok(planted(&beside, token, false))
        }
    }
}

/// The files that are meant, by their absolute paths, each once. Beneath a directory: every regular file but git's own and
/// the files that hold a canary for another; symbolic links, devices, pipes and sockets are left alone.
fn files(paths: &[PathBuf]) -> Result<BTreeMap<PathBuf, Place>, CanaryError> {
    let mut files = BTreeMap::new();
    let mut parents: HashMap<PathBuf, Rc<Directory>> = HashMap::new();
    for path in paths {
        let absolute = std::path::absolute(path).map_err(CanaryError::file("found", path))?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            beneath(Directory::given(&absolute)?, &mut files)?;
            continue;
        };
        let parent = match parents.get(parent) {
            Some(known) => Rc::clone(known),
            None => {
                let opened = Directory::given(parent)?;
                parents.insert(parent.to_owned(), Rc::clone(&opened));
                opened
            }
        };
        let place = parent.place(name);
        let found = || CanaryError::file("found", path);
        let stat = place.stat().map_err(found())?.ok_or(rustix::io::Errno::NOENT);
        match FileType::from_raw_mode(stat.map_err(Into::into).map_err(found())?.st_mode).is_dir() {
            true => beneath(parent.within(name)?, &mut files)?,
            false => drop(files.insert(place.path(), place)),
        }
    }
    match files.is_empty() {
        true => Err(CanaryError::Unfit {
            path: paths.first().cloned().unwrap_or_default(),
            is: "holds no regular file".into(),
            accepted: "files, and directories that hold some",
        }),
        false => Ok(files),
    }
}

fn beneath(top: Rc<Directory>, files: &mut BTreeMap<PathBuf, Place>) -> Result<(), CanaryError> {
    let mut directories = vec![top];
    while let Some(directory) = directories.pop() {
        for (name, kind) in directory.entries()? {
            if kind.is_dir() && name != ".git" {
                directories.push(directory.within(&name)?);
            } else if kind.is_file() && !name.as_encoded_bytes().ends_with(BESIDE.as_bytes()) {
                let place = directory.place(&name);
                files.insert(place.path(), place);
            }
        }
    }
    Ok(())
}

/// The tokens that a file has, and those of the planted files that it has not.
fn with_known(original: Option<Original>, planted: &[Planted]) -> Result<(Option<Original>, Vec<Token>), CanaryError> {
    let (original, mut tokens) = match original {
        Some(mut original) => {
            let tokens = tokens_file::read_open(&mut original)?;
            (Some(original), tokens)
        }
        None => (None, Vec::new()),
    };
    for Planted { path, holder, token, .. } in planted {
        if !tokens.iter().any(|known| known.text() == token.text() && known.planted.as_ref() == Some(path)) {
            tokens.push(token.clone().planted_for(path.clone(), holder.clone()));
        }
    }
    Ok((original, tokens))
}
