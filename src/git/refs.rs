//! References: HEAD, loose ones, packed ones (gitrepository-layout(5), git-check-ref-format(1)).

use super::place::Place;
use super::{Algorithm, GitError, Oid, form};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Most bytes of a reference's file.
const LIMIT: u64 = 4096;
/// Most bytes of `packed-refs`.
const PACKED_LIMIT: u64 = 256 << 20;
/// Most references, and most directories of them one in the other.
const MOST: usize = 200_000;
const DEPTH: usize = 64;

/// What HEAD says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// A branch, which may have no commit yet: `refs/heads/…`.
    Branch(String),
    /// A commit.
    Detached(Oid),
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Head::Branch(name) => write!(f, "ref: {name}"),
            Head::Detached(oid) => oid.fmt(f),
        }
    }
}

impl Head {
    /// What the text of a HEAD says.
    pub fn parse(text: &str, algorithm: Algorithm) -> Option<Head> {
        let text = text.trim_end_matches(['\n', ' ']);
        match text.strip_prefix("ref:") {
            Some(name) => Some(name.trim_start()).filter(|name| is_branch(name)).map(|name| Head::Branch(name.into())),
            None => Oid::from_hex(text.as_bytes(), algorithm).map(Head::Detached),
        }
    }
}

/// Whether a name is one of a branch.
pub fn is_branch(name: &str) -> bool {
    name.starts_with("refs/heads/") && is_valid(name)
}

/// Whether git takes a name for a reference (git-check-ref-format(1)).
pub fn is_valid(name: &str) -> bool {
    let sound = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let forbidden = |c: char| c.is_ascii_control() || " ~^:?*[\\\x7f".contains(c);
    name.starts_with("refs/")
        && name.len() <= 1024
        && name.split('/').all(sound)
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(forbidden)
}

/// HEAD of a git directory.
pub fn head(directory: &Place, algorithm: Algorithm) -> Result<Head, GitError> {
    let path = directory.path.join("HEAD");
    let text = directory.read("HEAD", LIMIT)?.ok_or_else(|| form(&path, "there is none"))?;
    let head = std::str::from_utf8(&text).ok().and_then(|text| Head::parse(text, algorithm));
    head.ok_or_else(|| form(&path, "it names neither a branch nor a commit"))
}

/// All references that name an object themselves, by name. What no work tree could have made is passed over.
pub fn all(directory: &Place, algorithm: Algorithm) -> Result<BTreeMap<String, Oid>, GitError> {
    let mut found = packed(directory, algorithm)?;
    let mut pending = vec![("refs".to_owned(), 0)];
    while let Some((below, depth)) = pending.pop() {
        for name in directory.names(&below)? {
            let Some(name) = name.to_str().map(|name| format!("{below}/{name}")) else { continue };
            if found.len() + pending.len() > MOST || depth > DEPTH {
                return Err(form(&directory.path.join("refs"), "there are too many references"));
            }
            if directory.has_directory(&name) {
                pending.push((name, depth + 1));
            } else if is_valid(&name)
                && let Ok(Some(oid)) = value(directory, &name, algorithm)
            {
                found.insert(name, oid);
            }
        }
    }
    Ok(found)
}

/// What a loose reference names; `None` where there is none, or it names another reference.
pub fn value(directory: &Place, name: &str, algorithm: Algorithm) -> Result<Option<Oid>, GitError> {
    let text = directory.read(Path::new(name), LIMIT)?.unwrap_or_default();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    Ok(Oid::from_hex(&text[..end], algorithm))
}

fn packed(directory: &Place, algorithm: Algorithm) -> Result<BTreeMap<String, Oid>, GitError> {
    let text = directory.read("packed-refs", PACKED_LIMIT)?.unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let named = lines.filter_map(|line| {
        let (oid, name) = (line.get(..2 * algorithm.length())?, line.get(2 * algorithm.length() + 1..)?);
        let name = std::str::from_utf8(name).ok().filter(|name| is_valid(name))?;
        Some((name.to_owned(), Oid::from_hex(oid, algorithm)?))
    });
    let found: BTreeMap<String, Oid> = named.take(MOST + 1).collect();
    match found.len() > MOST {
        true => Err(form(&directory.path.join("packed-refs"), "there are too many references")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_refuses_is_no_name() {
        for good in ["refs/heads/main", "refs/heads/a/b-c.d", "refs/tags/v1.0"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "main",
            "refs/heads/../x",
            "refs/heads/.x",
            "refs/heads/a.lock",
            "refs/heads/a.lock/b",
            "refs/heads//x",
            "refs/heads/x/",
            "refs/heads/a b",
            "refs/heads/a\nb",
            "refs/heads/x.",
            "refs/heads/@{1}",
            "refs/heads/a:b",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn head_is_a_branch_or_a_commit() {
        let head = |text: &str| Head::parse(text, Algorithm::Sha1);
        assert_eq!(head("ref: refs/heads/main\n"), Some(Head::Branch("refs/heads/main".into())));
        assert!(matches!(head(&"a".repeat(40)), Some(Head::Detached(_))));
        assert_eq!(head("ref: refs/remotes/x\n"), None);
        assert_eq!(head("ref: refs/heads/../../x"), None);
    }
}
