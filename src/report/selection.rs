//! Which runs are asked about, and how they are grouped.

use super::run::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::str::FromStr;

/// Labels and levels that a run must have. Values of one key stand for one another, keys for all of them.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Values by key.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// Levels; any where none is named.
    pub levels: BTreeSet<String>,
}

impl Selection {
    /// Whether a run is asked about. One whose first record could not be read may be, so it is: as an excluded one.
    pub(super) fn takes(&self, run: &Run) -> bool {
        let Some(level) = &run.level else {
            return true;
        };
        let labelled = self.labels.iter().all(|(key, values)| run.labels.get(key).is_some_and(|v| values.contains(v)));
        labelled && (self.levels.is_empty() || self.levels.contains(level))
    }

    /// Whether it leaves anything out.
    pub(super) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.levels.is_empty()
    }
}

/// What runs are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// The level's name, whatever label may be called so.
    Level,
    /// A label's value.
    Label(String),
}

impl By {
    /// As it was asked for.
    pub fn name(&self) -> &str {
        match self {
            By::Level => "level",
            By::Label(key) => key,
        }
    }

    /// The run's group; none where it has no such label.
    pub(super) fn group<'a>(&self, run: &'a Run) -> Option<&'a str> {
        match self {
            By::Level => run.level.as_deref(),
            By::Label(key) => run.labels.get(key).map(String::as_str),
        }
    }
}

impl FromStr for By {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<By, Infallible> {
        Ok(match text {
            "level" => By::Level,
            key => By::Label(key.to_owned()),
        })
    }
}
