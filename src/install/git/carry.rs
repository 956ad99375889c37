//! What a command has committed, carried from its copy back into the real repository.
//!
//! The copy is hostile: no link in it is followed, each object is held against its name, and every object that a reference
//! is in need of was either given to the command or is in the copy. So a reference to what was kept from it is not carried,
//! though the real repository has the object. Configuration, hooks, logs and stashes are not carried.

use super::given::{Given, Repository};
use super::store::digest;
use super::{STORE, find};
use crate::git::index::{self, Index};
use crate::git::objects::{Objects, Reader, with_alternates};
use crate::git::place::Place;
use crate::git::refs::{self, Head};
use crate::git::walk::new_beneath;
use crate::git::{Algorithm, GitError, Kind, Oid, form, io, write};
use crate::ledger::record::GitEnd;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Most bytes of an object that a command has made.
const OBJECT_LIMIT: u64 = 512 << 20;

/// Carries back what a copy holds, and removes it; where something of it could not be carried it is kept, and the answer says
/// where and why.
pub fn carry_back(directory: &Path, wrapper: &Path) -> Result<GitEnd, GitError> {
    let mut end = GitEnd::of(directory);
    let Some(given) = Given::read(wrapper)? else {
        // Without a list it was never seen by a command, or has been looked at before.
        if !wrapper.join("kept.json").exists() {
            std::fs::remove_dir_all(wrapper).map_err(io(wrapper))?;
        }
        return Ok(end);
    };
    let known = find::repositories(directory)?;
    for (number, repository) in given.repositories.iter().enumerate() {
        let carried = match known.contains(&repository.below) {
            true => Carrier::of(directory, wrapper, number, repository).and_then(|carrier| carrier.carry(&mut end)),
            false => Err(form(&directory.join(&repository.below), "it is gone")),
        };
        if let Err(error) = carried {
            end.leave(&error.to_string());
        }
    }
    let removed = match end.left.is_empty() {
        true => std::fs::remove_dir_all(wrapper).map_err(io(wrapper)),
        false => Given::forget(wrapper),
    };
    if let Err(error) = removed {
        end.leave(&error.to_string());
    }
    if !end.left.is_empty() {
        end.keep(&wrapper.join(STORE));
    }
    Ok(end)
}

/// One repository, real and copied.
struct Carrier<'a> {
    real: Place,
    copy: Place,
    like: Metadata,
    algorithm: Algorithm,
    given: &'a Repository,
    names: HashSet<Oid>,
    objects: Objects,
}

impl Carrier<'_> {
    fn of<'a>(directory: &Path, wrapper: &Path, number: usize, given: &'a Repository) -> Result<Carrier<'a>, GitError> {
        let algorithm = given.algorithm();
        let copy = Place::hostile(wrapper.join(STORE).join(&given.below));
        Ok(Carrier {
            real: Place::trusted(directory.join(&given.below)),
            like: directory.metadata().map_err(io(directory))?,
            algorithm,
            given,
            names: Given::names(wrapper, number, algorithm)?,
            // Whatever alternates the command has named lead elsewhere.
            objects: Objects::open(vec![copy.at("objects")], algorithm)?,
            copy,
        })
    }

    fn carry(&self, end: &mut GitEnd) -> Result<(), GitError> {
        let mut reader = Reader::new(&self.objects, OBJECT_LIMIT);
        let mut seen = HashSet::new();
        let left_before = end.left.len();
        let theirs = refs::all(&self.copy, self.algorithm)?;
        let changed = self.changed_refs(&theirs, &mut reader, &mut seen, end);
        let head = refs::head(&self.copy, self.algorithm)?;
        let head_is_whole = match &head {
            Head::Detached(oid) => self.is_whole("HEAD", *oid, &mut reader, &mut seen, end),
            // One without a commit yet is whole.
            Head::Branch(name) => theirs.get(name).is_none_or(|oid| {
                let given = self.given.refs.get(name).is_some_and(|given| *given == oid.to_string());
                given || changed.iter().any(|(changed, _)| changed == name)
            }),
        };
        let index = self.changed_index(&mut reader, &mut seen, end)?;
        self.write_objects(&seen)?;
        let current = refs::all(&self.real, self.algorithm)?;
        let mut carried = BTreeMap::new();
        for (name, new) in changed {
            match self.update_ref(&current, &name, new) {
                Ok(()) => {
                    end.carry(&format!("{name} {new}"));
                    carried.insert(name, new);
                }
                Err(error) => end.leave(&format!("{name}: {error}")),
            }
        }
        if head_is_whole && let Err(error) = self.update_head(&head, &current, &theirs, &carried, end) {
            end.leave(&format!("HEAD: {error}"));
        }
        // The index goes with HEAD and the branches: where one of them is left, it is left with the copy.
        if let Some(index) = index.filter(|_| end.left.len() == left_before)
            && let Err(error) = self.update_index(&index)
        {
            end.leave(&format!("index: {error}"));
        }
        Ok(())
    }

    /// The branches and tags that name something else than what was given, and all of whose objects are there.
    fn changed_refs(
        &self,
        theirs: &BTreeMap<String, Oid>,
        reader: &mut Reader<'_>,
        seen: &mut HashSet<Oid>,
        end: &mut GitEnd,
    ) -> Vec<(String, Oid)> {
        let mut changed = Vec::new();
        for (name, oid) in theirs {
            let carried = refs::is_branch(name) || name.starts_with("refs/tags/");
            let same = self.given.refs.get(name).is_some_and(|given| *given == oid.to_string());
            if carried && !same && self.is_whole(name, *oid, reader, seen, end) {
                changed.push((name.clone(), *oid));
            }
        }
        changed
    }

    /// Whether all is there that a reference is in need of; if so `seen` has what of it is new.
    fn is_whole(
        &self,
        name: &str,
        oid: Oid,
        reader: &mut Reader<'_>,
        seen: &mut HashSet<Oid>,
        end: &mut GitEnd,
    ) -> bool {
        let kind = self.objects.find(&oid).ok_or(GitError::Missing(oid)).and_then(|n| Ok(reader.read(n)?.0));
        let found = kind.and_then(|kind| match kind == Kind::Commit || name.starts_with("refs/tags/") {
            true => new_beneath((oid, kind), &self.names, &self.objects, reader, seen),
            false => Err(GitError::Object { oid, fault: "it is no commit" }),
        });
        match found {
            Ok(new) => {
                seen.extend(new);
                true
            }
            Err(error) => {
                end.leave(&format!("{name}: {error}"));
                false
            }
        }
    }

    /// The command's index, where it is another than the real one and all its files are there.
    fn changed_index(
        &self,
        reader: &mut Reader<'_>,
        seen: &mut HashSet<Oid>,
        end: &mut GitEnd,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let Some(bytes) = self.copy.read("index", index::LIMIT)? else { return Ok(None) };
        if self.given.own_index.as_ref() == Some(&digest(&bytes)) {
            return Ok(None);
        }
        let index = match Index::parse(Path::new("index"), &bytes, self.algorithm) {
            Ok(index) => index,
            Err(error) => {
                end.leave(&error.to_string());
                return Ok(None);
            }
        };
        // What is only to be added later is named by the empty file's name, and need not be there.
        let empty = self.algorithm.name_of(Kind::Blob, b"");
        let mut new = HashSet::new();
        for entry in &index.entries {
            let kind = if entry.is_tree() { Kind::Tree } else { Kind::Blob };
            let found = match entry {
                entry if !entry.is_sound() => Err(form(Path::new("index"), "a path of it leads out of the work tree")),
                entry if entry.is_tree() || entry.is_blob() && entry.oid != empty => {
                    new_beneath((entry.oid, kind), &self.names, &self.objects, reader, seen)
                }
                _ => Ok(Vec::new()),
            };
            match found {
                Ok(found) => new.extend(found),
                Err(error) => {
                    end.leave(&format!("index: {error}"));
                    return Ok(None);
                }
            }
        }
        seen.extend(new);
        Ok(Some(index.to_bytes()))
    }

    /// Writes a pack of what is new to the real repository.
    fn write_objects(&self, new: &HashSet<Oid>) -> Result<(), GitError> {
        if new.is_empty() {
            return Ok(());
        }
        let path = self.real.path.join("objects");
        let path = path.canonicalize().map_err(io(&path))?;
        let there = Objects::open(with_alternates(&Place::trusted(path.clone()))?, self.algorithm)?;
        let mut names: Vec<Oid> = new.iter().filter(|oid| there.find(oid).is_none()).copied().collect();
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        let mut hasher = self.algorithm.start();
        names.iter().for_each(|name| hasher.update(name.as_bytes()));
        let name = format!("pack-{}.pack", hasher.finish());
        let numbers: Vec<u32> = names.iter().filter_map(|name| self.objects.find(name)).collect();
        let packs = path.join("pack");
        self.make_directory(&packs)?;
        // As git names what it has not finished: its own cleaning takes it away if this run is killed here.
        let unfinished = packs.join(format!("tmp_pack_{}", std::process::id()));
        let unfinished_index = unfinished.with_extension("idx");
        for left in [&unfinished, &unfinished_index] {
            match std::fs::remove_file(left) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(io(left)(cause)),
                _ => {}
            }
        }
        write::pack(&unfinished, &self.objects, &numbers, true, OBJECT_LIMIT)?;
        let finished = packs.join(name);
        for (from, to) in [(unfinished, finished.clone()), (unfinished_index, finished.with_extension("idx"))] {
            self.own(&from, 0o444)?;
            std::fs::rename(&from, &to).map_err(io(&to))?;
        }
        Ok(())
    }

    fn update_ref(&self, current: &BTreeMap<String, Oid>, name: &str, new: Oid) -> Result<(), GitError> {
        let path = self.real.path.join(name);
        let now = current.get(name);
        if now == Some(&new) {
            return Ok(());
        }
        if now.map(Oid::to_string).as_ref() != self.given.refs.get(name) {
            return Err(form(&path, "the real repository has another one of that name"));
        }
        let crosses = |other: &String| {
            let beneath = |one: &str, of: &str| one.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
            beneath(other, name) || beneath(name, other)
        };
        if let Some(other) = current.keys().find(|other| crosses(other)) {
            return Err(form(&path, format!("the real repository has {other}")));
        }
        if let Some(above) = path.parent() {
            self.make_directory(above)?;
        }
        self.replace(&path, format!("{new}\n").as_bytes(), || {
            let loose = refs::value(&self.real, name, self.algorithm)?;
            Ok(loose.is_none() || loose.as_ref() == now)
        })
    }

    fn update_head(
        &self,
        head: &Head,
        current: &BTreeMap<String, Oid>,
        theirs: &BTreeMap<String, Oid>,
        carried: &BTreeMap<String, Oid>,
        end: &mut GitEnd,
    ) -> Result<(), GitError> {
        if head.to_string() == self.given.head {
            return Ok(());
        }
        let path = self.real.path.join("HEAD");
        if let Head::Branch(name) = head {
            // A branch that was kept from the command is not its to check out.
            let unborn = !current.contains_key(name) && !theirs.contains_key(name);
            let own = carried.contains_key(name) || self.given.refs.contains_key(name) || unborn;
            if !own {
                return Err(form(&path, format!("{name} was not given to the command")));
            }
        }
        self.replace(&path, format!("{head}\n").as_bytes(), || {
            let now = refs::head(&self.real, self.algorithm)?.to_string();
            Ok(now == self.given.head || now == head.to_string())
        })?;
        end.carry(&format!("HEAD {head}"));
        Ok(())
    }

    fn update_index(&self, content: &[u8]) -> Result<(), GitError> {
        let path = self.real.path.join("index");
        self.replace(&path, content, || {
            let now = self.real.read("index", index::LIMIT)?;
            Ok(now.as_deref() == Some(content) || now.as_deref().map(digest) == self.given.index)
        })
    }

    /// Puts another content in a file's place as git does: under its lock, if it is still what it should be.
    fn replace(
        &self,
        path: &Path,
        content: &[u8],
        is_as_given: impl FnOnce() -> Result<bool, GitError>,
    ) -> Result<(), GitError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let mut file = File::options().write(true).create_new(true).open(&lock).map_err(io(&lock))?;
        let written = is_as_given().and_then(|as_given| {
            if !as_given {
                return Err(form(path, "it was changed in the real repository meanwhile"));
            }
            file.write_all(content).map_err(io(&lock))?;
            self.own(&lock, 0o666)?;
            std::fs::rename(&lock, path).map_err(io(path))
        });
        if written.is_err() {
            std::fs::remove_file(&lock).map_err(io(&lock))?;
        }
        written
    }

    fn make_directory(&self, path: &Path) -> Result<(), GitError> {
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        for directory in missing.into_iter().rev() {
            std::fs::create_dir(directory).map_err(io(directory))?;
            self.own(directory, 0o777)?;
        }
        Ok(())
    }

    /// Gives a file the real directory's owner, and of its permissions those that are among `mode`.
    fn own(&self, path: &Path, mode: u32) -> Result<(), GitError> {
        let mode = self.like.mode() & mode;
        let owned = chown(path, Some(self.like.uid()), Some(self.like.gid()));
        owned.and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(mode))).map_err(io(path))
    }
}
