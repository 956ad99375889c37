//! The file that `plant` writes and `scan` reads: JSON lines, the first of which says what it is. It holds the tokens
//! themselves, so its mode is 0600 and it belongs where no run can read it.

use super::error::CanaryError;
use super::replace::Original;
use super::token::Token;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The first line.
pub(super) const HEADER: &str = "{\"ringfence\":\"canary tokens\",\"v\":1}";

/// The largest file that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    token: String,
    path: PathBuf,
    holder: PathBuf,
}

/// The tokens of a file.
pub(super) fn read(path: &Path) -> Result<Vec<Token>, CanaryError> {
    let failed = CanaryError::file("read", path);
    let length = fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(std::io::Error::other("it is no regular file")),
    });
    let text = length.and_then(|length| match length <= LARGEST {
        true => fs::read_to_string(path),
        false => Err(std::io::Error::other("it has more than 64 MiB")),
    });
    parse(path, &text.map_err(failed)?)
}

/// The tokens of a file that is to be replaced.
pub(super) fn read_open(original: &mut Original) -> Result<Vec<Token>, CanaryError> {
    let path = original.place.path();
    let text = match original.size() <= LARGEST {
        true => String::from_utf8(original.content()?).map_err(|cause| std::io::Error::other(cause.utf8_error())),
        false => Err(std::io::Error::other("it has more than 64 MiB")),
    };
    parse(&path, &text.map_err(CanaryError::file("read", &path))?)
}

/// The tokens of a file's text.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Token>, CanaryError> {
    let wrong = |line, why: String| CanaryError::TokensFile { path: path.to_owned(), line, why };
    let mut lines = text.lines().enumerate();
    if lines.next().map(|(_, line)| line) != Some(HEADER) {
        return Err(wrong(1, "it is not the first line of a tokens file".into()));
    }
    let token = |(at, line)| {
        let read: Line = serde_json::from_str(line).map_err(|cause| wrong(at + 1, cause.to_string()))?;
        let token = Token::given(&read.token).map_err(|bad| wrong(at + 1, bad.to_string()))?;
        Ok(token.planted_for(read.path, read.holder))
    };
    lines.map(token).collect()
}

/// The file's text for these tokens.
pub(super) fn text(tokens: &[Token]) -> Result<String, CanaryError> {
    let mut text = format!("{HEADER}\n");
    for token in tokens {
        let (Some(path), Some(holder)) = (&token.planted, &token.holder) else { continue };
        let line = Line { token: token.text().to_owned(), path: path.clone(), holder: holder.clone() };
        let line = serde_json::to_string(&line).map_err(|cause| CanaryError::Unfit {
            path: path.clone(),
            is: format!("has a name that a tokens file cannot hold ({cause})"),
            accepted: "a name in UTF-8",
        })?;
        text += &line;
        text.push('\n');
    }
    Ok(text)
}
