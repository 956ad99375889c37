//! Paths as policies write them.

use super::values::BadValue;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// An absolute path, or one below the command's home that starts with `~`; without `.`, `..` and doubled slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyPath(String);

impl PolicyPath {
    /// The path with `~` replaced by the command's home.
    pub fn resolve(&self, home: &Path) -> PathBuf {
        match self.0.strip_prefix('~') {
            Some(rest) => home.join(rest.trim_start_matches('/')),
            None => PathBuf::from(&self.0),
        }
    }

    /// The path as policies spell it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PolicyPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PolicyPath, BadValue> {
        let bad = || BadValue::new("path", text, "an absolute path, or ~/… below the command's home");
        let (start, rest) = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => ("~", rest),
            Some(_) => return Err(bad().because("another user's home can't be named by ~")),
            None if text.starts_with('/') => ("", text),
            None => return Err(bad()),
        };
        if text.contains('\0') {
            return Err(bad().because("it holds a NUL"));
        }
        let mut canonical = start.to_owned();
        for component in Path::new(rest).components() {
            match component {
                Component::Normal(name) => {
                    canonical.push('/');
                    canonical.push_str(&name.to_string_lossy());
                }
                Component::ParentDir => return Err(bad().because("it holds ..")),
                _ => {}
            }
        }
        if canonical.is_empty() {
            canonical.push('/');
        }
        Ok(PolicyPath(canonical))
    }
}

/// A work tree of git: the one that the workspace is in, or one at a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkTree {
    /// The workspace's.
    Workspace,
    /// One at a path.
    At(PolicyPath),
}

impl FromStr for WorkTree {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<WorkTree, BadValue> {
        match text {
            "workspace" => Ok(WorkTree::Workspace),
            _ => text.parse().map(WorkTree::At).map_err(|_| {
                BadValue::new("work tree", text, "workspace, an absolute path, or ~/… below the command's home")
            }),
        }
    }
}

impl fmt::Display for WorkTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkTree::Workspace => f.write_str("workspace"),
            WorkTree::At(path) => path.fmt(f),
        }
    }
}

impl fmt::Display for PolicyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
