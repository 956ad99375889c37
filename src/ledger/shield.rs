//! What records say of shields: in the first one what they are made of, in the last one what has become of it.

use super::escape;
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path that is kept from being read, listed and written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shield {
    /// The path, free of symbolic links.
    pub path: String,
    /// SHA-256 over the names, kinds, modes, owners and contents at and beneath it, in hexadecimal.
    pub digest: String,
    /// How many files, directories and links that are.
    pub entries: u64,
    /// How many of them ringfence's own caller may not look into: of those length and times stand for the contents.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub closed: u64,
    /// Other names of what is shielded, by mounts and hard links, which are shielded too; those of all shields are with the
    /// first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
}

/// What the shields were found to be at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShieldsEnd {
    /// `intact`, or `altered`.
    pub state: ShieldState,
    /// What differs from the start, the first 64 of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ShieldChange>,
    /// How many changes there are beside.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// How many files and directories could not be looked into, at the start or at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub closed: u64,
}

/// Whether what is shielded is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShieldState {
    /// It is.
    Intact,
    /// It is not, or could not be looked at.
    Altered,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShieldChange {
    /// Where.
    pub path: String,
    /// `added`, `removed`, `kind`, `contents`, `mode 0644 to 0600`, `owner (0, 0) to (1, 1)`, or why it could not be looked at.
    pub change: String,
}

/// How many changes a seal names.
pub const SHIELD_CHANGES: usize = 64;

impl ShieldsEnd {
    /// What these changes come to.
    pub fn of(mut changes: Vec<ShieldChange>) -> ShieldsEnd {
        let state = if changes.is_empty() { ShieldState::Intact } else { ShieldState::Altered };
        let more = changes.len().saturating_sub(SHIELD_CHANGES) as u64;
        changes.truncate(SHIELD_CHANGES);
        ShieldsEnd { state, changes, more, closed: 0 }
    }

    /// The changes in one line, the first few named.
    pub fn told(&self) -> String {
        let named: Vec<String> =
            self.changes.iter().take(4).map(|change| format!("{} ({})", change.path, change.change)).collect();
        let rest = self.changes.len().saturating_sub(4) as u64 + self.more;
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        format!("{}{rest}", named.join(", "))
    }
}

/// What has become of what a command committed in a repository of which it saw a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitEnd {
    /// The git directory.
    pub path: String,
    /// What the real repository has of it now: `NAME VALUE`, the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<String>,
    /// How much of that there is beside.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_carried: u64,
    /// What was not carried back, and why, the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// How much of that there is beside.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_left: u64,
    /// Where the command's own copy is kept, if something was not carried back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl GitEnd {
    /// Of a git directory; nothing has been carried yet.
    pub fn of(directory: &Path) -> GitEnd {
        GitEnd { path: escape::escape(directory.as_os_str().as_bytes(), escape::TEXT_LIMIT), ..GitEnd::default() }
    }

    /// Something was carried back.
    pub fn carry(&mut self, what: &str) {
        if self.carried.len() < SHIELD_CHANGES {
            self.carried.push(escape::escape(what.as_bytes(), escape::TEXT_LIMIT));
        } else {
            self.more_carried += 1;
        }
    }

    /// Something was not.
    pub fn leave(&mut self, what: &str) {
        if self.left.len() < SHIELD_CHANGES {
            self.left.push(escape::escape(what.as_bytes(), escape::TEXT_LIMIT));
        } else {
            self.more_left += 1;
        }
    }

    /// How much was not carried back.
    pub fn left_count(&self) -> u64 {
        self.more_left.saturating_add(self.left.len() as u64)
    }

    /// How much was.
    pub fn carried_count(&self) -> u64 {
        self.more_carried.saturating_add(self.carried.len() as u64)
    }

    /// The copy is kept.
    pub fn keep(&mut self, copy: &Path) {
        self.kept = Some(escape::escape(copy.as_os_str().as_bytes(), escape::TEXT_LIMIT));
    }

    /// What was not carried back in one line; `None` where there is nothing.
    pub fn told(&self) -> Option<String> {
        Some(format!("shield-git: {}: not carried back: {}", self.path, self.left_in_words()?))
    }

    /// What was not carried back, and where it is kept.
    pub fn left_in_words(&self) -> Option<String> {
        let first = self.left.first()?;
        let kept = self.kept.as_ref().map(|kept| format!("; the command's copy is kept: {kept}")).unwrap_or_default();
        let more = match self.left_count() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!("{first}{more}{kept}"))
    }
}

/// Whether a number need not be said.
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
