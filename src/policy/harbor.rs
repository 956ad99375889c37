//! Where Harbor's tasks keep what a solver must not see, as data with reasons: `harnesses/harbor.toml`.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Some of the places, and what is there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Absolute paths, and paths below the workspace.
    pub paths: Vec<String>,
    /// What is there.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    shielded: Vec<Known>,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../harnesses/harbor.toml")).expect("a test parses the file");
    file.shielded
});

/// The places, with a workspace or without one.
pub fn places(workspace: Option<&Path>) -> Vec<PathBuf> {
    let all = KNOWN.iter().flat_map(|known| &known.paths);
    all.filter_map(|path| match path.starts_with('/') {
        true => Some(PathBuf::from(path)),
        false => workspace.map(|workspace| workspace.join(path)),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_reasons_and_the_known_places() {
        assert!(KNOWN.iter().all(|known| !known.paths.is_empty() && known.reason.len() > 20));
        let places = places(Some(Path::new("/w")));
        for path in ["/solution", "/tests", "/logs/verifier", "/w/task.toml"] {
            assert!(places.iter().any(|place| place == Path::new(path)), "{path}");
        }
        assert!(!super::places(None).iter().any(|place| place.is_relative()));
    }
}
