//! What the host would run later: paths that stay read-only although the command may write the directory that holds them.
//! The default list is data with reasons, `harnesses/protected.toml`; a policy that says `protect` has its own in its place.

use super::path::PolicyPath;
use super::values::BadValue;
use serde::Deserialize;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

/// A path below the workspace, or a path of the policy's kind; a directory where the text ends in a slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtectedPath {
    place: Place,
    directory: bool,
}

/// What a path is relative to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Workspace(String),
    Named(PolicyPath),
}

impl ProtectedPath {
    /// The path, for a workspace and the command's home.
    pub fn resolve(&self, workspace: &Path, home: &Path) -> PathBuf {
        match &self.place {
            Place::Workspace(relative) => workspace.join(relative),
            Place::Named(path) => path.resolve(home),
        }
    }

    /// Where it speaks of a part of a git directory (`.git/…`), that part: it holds for every git directory in the workspace.
    pub fn in_repository(&self) -> Option<&Path> {
        match &self.place {
            Place::Workspace(relative) => {
                Path::new(relative).strip_prefix(".git").ok().filter(|rest| rest != &Path::new(""))
            }
            Place::Named(_) => None,
        }
    }

    /// Whether it lies below the workspace, wherever that is.
    pub fn is_of_workspace(&self) -> bool {
        matches!(self.place, Place::Workspace(_))
    }

    /// Whether it is a directory, where it does not exist and that decides what stands in its place.
    pub fn is_directory(&self) -> bool {
        self.directory
    }
}

impl FromStr for ProtectedPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<ProtectedPath, BadValue> {
        let bad = || {
            let accepted =
                "a path below the workspace, an absolute one, or ~/… below the command's home; a directory ends in /";
            BadValue::new("protected path", text, accepted)
        };
        let directory = text.ends_with('/');
        if text.starts_with(['/', '~']) {
            let path: PolicyPath = text.parse().map_err(|_| bad())?;
            let place = match path.as_str() {
                "/" | "~" => return Err(bad().because("it is the whole of what it should lie in")),
                _ => Place::Named(path),
            };
            return Ok(ProtectedPath { place, directory });
        }
        if text.contains('\0') {
            return Err(bad().because("it holds a NUL"));
        }
        let mut names = Vec::new();
        for component in Path::new(text).components() {
            match component {
                Component::Normal(name) => names.push(name.to_string_lossy()),
                Component::CurDir => {}
                _ => return Err(bad().because("it leads out of the workspace")),
            }
        }
        if names.is_empty() {
            return Err(bad());
        }
        Ok(ProtectedPath { place: Place::Workspace(names.join("/")), directory })
    }
}

impl fmt::Display for ProtectedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Workspace(relative) => f.write_str(relative)?,
            Place::Named(path) => path.fmt(f)?,
        }
        f.write_str(if self.directory { "/" } else { "" })
    }
}

/// Some paths of the default list, and why they are on it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// The paths.
    pub paths: Vec<ProtectedPath>,
    /// Who runs them, and when.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    protected: Vec<Protected>,
}

static DEFAULT: LazyLock<Vec<Protected>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../harnesses/protected.toml")).expect("a test parses the file");
    file.protected
});

/// The default list, with its reasons.
pub fn default_list() -> &'static [Protected] {
    &DEFAULT
}

/// What is protected: what the policy says, or the default.
pub fn effective(asked: Option<&[ProtectedPath]>) -> Vec<ProtectedPath> {
    match asked {
        Some(paths) => paths.to_vec(),
        None => default_list().iter().flat_map(|some| some.paths.iter().cloned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_the_workspace_or_of_the_policys_kind() {
        let resolved = |text: &str| {
            let path: ProtectedPath = text.parse().unwrap();
            assert_eq!(path.to_string().parse::<ProtectedPath>().unwrap(), path);
            (path.resolve(Path::new("/w"), Path::new("/home/dev")), path.is_directory())
        };
        assert_eq!(resolved("./.git//hooks/"), ("/w/.git/hooks".into(), true));
        assert_eq!(resolved(".envrc"), ("/w/.envrc".into(), false));
        assert_eq!(resolved("~/.config/autostart/"), ("/home/dev/.config/autostart".into(), true));
        assert_eq!(resolved("/srv/x"), ("/srv/x".into(), false));
        for bad in ["", ".", "..", "../x", "a/../b", "/", "~", "~other/x", "a\0b"] {
            assert!(bad.parse::<ProtectedPath>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_part_of_a_git_directory_is_known_as_one() {
        let part = |text: &str| text.parse::<ProtectedPath>().unwrap().in_repository().map(Path::to_owned);
        assert_eq!(part(".git/hooks/"), Some("hooks".into()));
        assert_eq!(part(".git/info/attributes"), Some("info/attributes".into()));
        assert_eq!(part(".git"), None);
        assert_eq!(part(".github/workflows/"), None);
        assert_eq!(part("/x/.git/hooks"), None);
    }

    #[test]
    fn the_default_list_has_a_reason_for_each_and_none_twice() {
        let mut all = effective(None);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(default_list().iter().all(|some| !some.paths.is_empty() && some.reason.len() > 20));
        assert_eq!(effective(Some(&[])), []);
    }
}
