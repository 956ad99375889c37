//! The copy: a git directory that holds what HEAD reaches, what is staged, and nothing that leads elsewhere.

use super::find::{read_config, repositories};
use super::given::{Given, Repository};
use super::{STORE, wrapper};
use crate::git::index::{self, Index};
use crate::git::objects::{Objects, with_alternates};
use crate::git::place::Place;
use crate::git::refs::{self, Head};
use crate::git::walk::Reached;
use crate::git::{GitError, Oid, form, io, write};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// Most bytes of an object that has to be read to be copied.
const OBJECT_LIMIT: u64 = 4 << 30;
/// Most bytes of a small file.
const FILE_LIMIT: u64 = 16 << 20;
/// Files that are as they were: what is ignored, which attributes files have, which of them are checked out.
const COPIED: [&str; 4] = ["description", "info/attributes", "info/exclude", "info/sparse-checkout"];

/// Makes a run's copy of a git directory.
pub fn make(directory: &Path, run: &str) -> Result<(), GitError> {
    let wrapper = wrapper(directory, run);
    DirBuilder::new().mode(0o700).create(&wrapper).map_err(io(&wrapper))?;
    let like = directory.metadata().map_err(io(directory))?;
    let store = wrapper.join(STORE);
    let mut given = Given::default();
    for (number, below) in repositories(directory)?.into_iter().enumerate() {
        let real = Place::new(directory.join(&below));
        let copy = Part { top: store.join(&below), like: &like };
        let (repository, names) = copy.fill(&real, below)?;
        Given::write_names(&wrapper, number, &names)?;
        given.repositories.push(repository);
    }
    given.write(&wrapper)?;
    crate::install::shields::until_alone();
    Ok(())
}

/// One repository's copy, owned as the real git directory is.
struct Part<'a> {
    top: PathBuf,
    like: &'a Metadata,
}

impl Part<'_> {
    fn fill(&self, real: &Place, below: String) -> Result<(Repository, Vec<Oid>), GitError> {
        let config = read_config(real)?;
        let algorithm = config.algorithm;
        let head = refs::head(real, algorithm)?;
        let all = refs::all(real, algorithm)?;
        let objects = Objects::open(with_alternates(&real.at("objects"))?, algorithm)?;
        let shallow = shallow(real, algorithm)?;
        let reached = Reached::new(&objects, shallow.clone(), OBJECT_LIMIT);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (branch, tip) = match &head {
            Head::Branch(name) => (Some(name), all.get(name).copied()),
            Head::Detached(oid) => (None, Some(*oid)),
        };
        if let Some(tip) = tip {
            reached.reach_commit(&tip, threads)?;
        }
        let index = real.read("index", index::LIMIT)?;
        let parsed =
            index.as_deref().map(|bytes| Index::parse(&real.path.join("index"), bytes, algorithm)).transpose()?;
        let mut walker = reached.walker();
        for entry in parsed.iter().flat_map(|index| &index.entries) {
            // A file that is only to be added later has no object yet.
            match objects.find(&entry.oid) {
                Some(_) if entry.is_tree() => reached.reach_tree(&entry.oid, &mut walker)?,
                Some(_) if entry.is_blob() => reached.reach_alone(&entry.oid)?,
                _ => {}
            }
        }
        let mut kept = BTreeMap::new();
        for (name, oid) in all.iter().filter(|(name, _)| name.starts_with("refs/tags/")) {
            if reached.reach_tag(oid, &mut walker)? {
                kept.insert(name.clone(), *oid);
            }
        }
        let mut numbers = reached.numbers();
        objects.sort_by_name(&mut numbers);
        let names: Vec<Oid> = numbers.iter().map(|number| objects.name(*number)).collect();
        for place in ["", "info", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"] {
            self.directory(place)?;
        }
        for file in write::packs(&self.top.join("objects/pack"), &objects, &numbers, OBJECT_LIMIT)? {
            self.own(&file, 0o444)?;
        }
        self.file("HEAD", format!("{head}\n").as_bytes(), 0o644)?;
        self.file("config", config.text.as_bytes(), 0o644)?;
        if let Some(index) = &parsed {
            self.file("index", &index.to_bytes(), 0o644)?;
        }
        let mut packed = String::from("# pack-refs with: sorted \n");
        kept.iter().for_each(|(name, oid)| packed += &format!("{oid} {name}\n"));
        self.file("packed-refs", packed.as_bytes(), 0o644)?;
        if let (Some(name), Some(tip)) = (branch, tip) {
            self.file(name, format!("{tip}\n").as_bytes(), 0o644)?;
            kept.insert(name.clone(), tip);
        }
        let ends: Vec<String> = shallow.iter().filter(|oid| reached.has(oid)).map(|oid| format!("{oid}\n")).collect();
        if !ends.is_empty() {
            self.file("shallow", ends.concat().as_bytes(), 0o644)?;
        }
        self.copy_small_files(real)?;
        let repository = Repository {
            below,
            sha256: algorithm == crate::git::Algorithm::Sha256,
            head: head.to_string(),
            refs: kept.into_iter().map(|(name, oid)| (name, oid.to_string())).collect(),
            index: index.map(|bytes| digest(&bytes)),
            own_index: parsed.map(|index| digest(&index.to_bytes())),
            objects: names.len(),
            hidden: objects.len() - names.len(),
        };
        Ok((repository, names))
    }

    fn copy_small_files(&self, real: &Place) -> Result<(), GitError> {
        for name in COPIED {
            if !self.copy_link(real, name)?
                && let Some(content) = real.read(name, FILE_LIMIT)?
            {
                self.file(name, &content, 0o644)?;
            }
        }
        if self.copy_link(real, "hooks")? {
            return Ok(());
        }
        for name in real.names("hooks")?.iter().filter_map(|name| name.to_str()) {
            let hook = format!("hooks/{name}");
            if !name.ends_with(".sample")
                && !self.copy_link(real, &hook)?
                && let Ok(file) = real.open(&hook)
                && let Some(content) = real.read(&hook, FILE_LIMIT)?
            {
                let mode = file.metadata().map_err(io(&real.path.join(&hook)))?.mode() & 0o777;
                self.file(&hook, &content, mode)?;
            }
        }
        Ok(())
    }

    /// Copies a symbolic link as one, if that is what it is: what it leads to is the command's to read or not.
    fn copy_link(&self, real: &Place, below: &str) -> Result<bool, GitError> {
        let Ok(target) = std::fs::read_link(real.path.join(below)) else { return Ok(false) };
        if let Some((above, _)) = below.rsplit_once('/') {
            self.directory(above)?;
        }
        let path = self.top.join(below);
        symlink(target, &path)
            .and_then(|()| lchown(&path, Some(self.like.uid()), Some(self.like.gid())))
            .map_err(io(&path))?;
        Ok(true)
    }

    fn directory(&self, below: &str) -> Result<(), GitError> {
        let path = self.top.join(below);
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        for directory in missing.into_iter().rev() {
            std::fs::create_dir(directory).map_err(io(directory))?;
            self.own(directory, self.like.mode() & 0o777 | 0o700)?;
        }
        Ok(())
    }

    fn file(&self, below: &str, content: &[u8], mode: u32) -> Result<(), GitError> {
        if let Some((above, _)) = below.rsplit_once('/') {
            self.directory(above)?;
        }
        let path = self.top.join(below);
        std::fs::write(&path, content).map_err(io(&path))?;
        self.own(&path, mode)
    }

    fn own(&self, path: &Path, mode: u32) -> Result<(), GitError> {
        let path = self.top.join(path);
        let owned = chown(&path, Some(self.like.uid()), Some(self.like.gid()));
        owned.and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))).map_err(io(&path))
    }
}

/// SHA-256 of some bytes, in hexadecimal.
pub(super) fn digest(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// The commits that a shallow repository's history ends with.
fn shallow(real: &Place, algorithm: crate::git::Algorithm) -> Result<HashSet<Oid>, GitError> {
    let text = real.read("shallow", FILE_LIMIT)?.unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let oid = |line| Oid::from_hex(line, algorithm);
    lines
        .map(|line| oid(line).ok_or_else(|| form(&real.path.join("shallow"), "it has a line that is no commit")))
        .collect()
}
