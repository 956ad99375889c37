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

/// Whether a name that git takes is one that its own commands would make: none that reads as an option or as HEAD.
pub fn is_usual(name: &str) -> bool {
    let short = name.splitn(3, '/').nth(2).unwrap_or_default();
    short != "HEAD" && !short.split('/').any(|part| part.starts_with('-'))
}

/// The names that git would take to mean something else if there were a reference of this name: branches that a tag, and
/// branches of remotes that a tag or a branch stands before (gitrevisions(7), "refname").
pub fn shadowed(name: &str) -> Vec<String> {
    let behind: (&str, &[&str]) = match (name.strip_prefix("refs/tags/"), name.strip_prefix("refs/heads/")) {
        (Some(short), _) => (short, &["refs/heads/", "refs/remotes/"]),
        (None, Some(short)) => (short, &["refs/remotes/"]),
        (None, None) => return Vec::new(),
    };
    let (short, prefixes) = behind;
    let mut names: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}{short}")).collect();
    names.push(format!("refs/remotes/{short}/HEAD"));
    names
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
            } else if is_valid(&name) {
                match value(directory, &name, algorithm) {
                    Ok(Some(oid)) => {
                        found.insert(name, oid);
                    }
                    Err(error @ GitError::Form { .. }) => return Err(error),
                    // What is no file, or names another reference.
                    Ok(None) | Err(_) => {}
                }
            }
        }
    }
    Ok(found)
}

/// What a loose reference names; `None` where there is none, or it names another reference.
fn value(directory: &Place, name: &str, algorithm: Algorithm) -> Result<Option<Oid>, GitError> {
    let text = directory.read(Path::new(name), LIMIT)?.unwrap_or_default();
    Ok(first_word(&text, algorithm))
}

fn first_word(text: &[u8], algorithm: Algorithm) -> Option<Oid> {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    Oid::from_hex(&text[..end], algorithm)
}

/// What a reference names at this moment, loose or packed; `None` where there is none.
///
/// # Errors
/// One that names another reference, or nothing.
pub fn current(directory: &Place, name: &str, algorithm: Algorithm) -> Result<Option<Oid>, GitError> {
    // A directory may be left of references that are gone.
    let loose = if directory.has_directory(name) { None } else { directory.read(name, LIMIT)? };
    match loose {
        Some(text) => {
            let named = first_word(&text, algorithm);
            named.map(Some).ok_or_else(|| form(&directory.path.join(name), "it does not name an object itself"))
        }
        None => Ok(packed(directory, algorithm)?.remove(name)),
    }
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
    fn what_git_would_mistake_is_known() {
        for bad in ["refs/heads/-x", "refs/tags/a/--upload-pack=x", "refs/heads/HEAD"] {
            assert!(is_valid(bad) && !is_usual(bad), "{bad}");
        }
        assert!(is_usual("refs/heads/a-b") && is_usual("refs/heads/HEADS"));
        assert_eq!(shadowed("refs/tags/m"), ["refs/heads/m", "refs/remotes/m", "refs/remotes/m/HEAD"]);
        assert_eq!(shadowed("refs/heads/o/m"), ["refs/remotes/o/m", "refs/remotes/o/m/HEAD"]);
        assert!(shadowed("refs/notes/x").is_empty());
    }

    #[test]
    fn a_reference_is_known_loose_and_packed_and_past_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path().canonicalize().unwrap());
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        std::fs::create_dir_all(place.path.join("refs/heads/empty")).unwrap();
        std::fs::write(
            place.path.join("packed-refs"),
            format!("{one} refs/heads/a\n{one} refs/heads/b\n{one} refs/heads/empty\n"),
        )
        .unwrap();
        std::fs::write(place.path.join("refs/heads/b"), format!("{two}\n")).unwrap();
        std::fs::write(place.path.join("refs/heads/to"), "ref: refs/heads/b\n").unwrap();
        let now = |name: &str| current(&place, name, Algorithm::Sha1).map(|oid| oid.map(|oid| oid.to_string()));
        assert_eq!(now("refs/heads/a").unwrap(), Some(one.clone()));
        assert_eq!(now("refs/heads/b").unwrap(), Some(two.clone()));
        assert_eq!(now("refs/heads/empty").unwrap(), Some(one));
        assert_eq!(now("refs/heads/none").unwrap(), None);
        assert!(now("refs/heads/to").is_err());
        assert_eq!(all(&place, Algorithm::Sha1).unwrap().len(), 3);
        std::os::unix::fs::symlink(place.path.join("refs/heads/b"), place.path.join("refs/heads/link")).unwrap();
        assert!(all(&place, Algorithm::Sha1).unwrap_err().to_string().contains("symbolic link"));
        assert!(now("refs/heads/link").is_err());
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
