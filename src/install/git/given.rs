//! What a command was given of a repository, kept beside the copy where the command does not see it: what it has of its own
//! afterwards is held against this.

use crate::git::place::Place;
use crate::git::{Algorithm, GitError, Oid, form, io};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

const FILE: &str = "given.json";
/// Most bytes of the file, and of a list of names.
const LIMIT: u64 = 64 << 20;
const NAMES_LIMIT: u64 = 2 << 30;

/// The repositories of one copy: the git directory itself and those of its submodules.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Each.
    pub repositories: Vec<Repository>,
}

/// What was given of one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repository {
    /// Where it is beneath the git directory.
    pub below: String,
    /// Whether its objects have names of SHA-256.
    pub sha256: bool,
    /// What HEAD says.
    pub head: String,
    /// The references, and what they name.
    pub refs: BTreeMap<String, String>,
    /// SHA-256 of the real index; nothing where there is none.
    pub index: Option<String>,
    /// SHA-256 of the command's.
    pub own_index: Option<String>,
    /// How many objects.
    pub objects: usize,
    /// How many the real repository has beside them.
    pub hidden: usize,
}

impl Repository {
    /// The hash that names its objects.
    pub fn algorithm(&self) -> Algorithm {
        if self.sha256 { Algorithm::Sha256 } else { Algorithm::Sha1 }
    }
}

fn names_file(number: usize) -> String {
    format!("given-{number}")
}

impl Given {
    /// Writes the names of the objects that were given of a repository.
    pub(super) fn write_names(wrapper: &Path, number: usize, names: &[Oid]) -> Result<(), GitError> {
        let path = wrapper.join(names_file(number));
        let bytes: Vec<u8> = names.iter().flat_map(|name| name.as_bytes()).copied().collect();
        std::fs::write(&path, bytes).map_err(io(&path))
    }

    /// Writes the rest, last of all: a copy without it was never whole, and nobody has seen it.
    pub(super) fn write(&self, wrapper: &Path) -> Result<(), GitError> {
        let path = wrapper.join(FILE);
        let text = serde_json::to_vec(self).map_err(|cause| io(&path)(cause.into()))?;
        std::fs::write(&path, text).map_err(io(&path))
    }

    /// Reads it; `None` where there is none.
    pub(super) fn read(wrapper: &Path) -> Result<Option<Given>, GitError> {
        let Some(text) = Place::new(wrapper.to_owned()).read(FILE, LIMIT)? else { return Ok(None) };
        let path = wrapper.join(FILE);
        serde_json::from_slice(&text).map(Some).map_err(|cause| form(&path, cause.to_string()))
    }

    /// The names that were given of a repository.
    pub(super) fn names(wrapper: &Path, number: usize, algorithm: Algorithm) -> Result<HashSet<Oid>, GitError> {
        let file = names_file(number);
        let bytes = Place::new(wrapper.to_owned()).read(&file, NAMES_LIMIT)?;
        let bytes = bytes.ok_or_else(|| form(&wrapper.join(&file), "it is gone"))?;
        Ok(bytes.chunks_exact(algorithm.length()).map(Oid::of).collect())
    }

    /// Has the copy looked at by nobody any more.
    pub(super) fn forget(wrapper: &Path) -> Result<(), GitError> {
        let path = wrapper.join(FILE);
        std::fs::rename(&path, wrapper.join("kept.json")).map_err(io(&path))
    }
}
