//! What a command has committed, carried from its copy back into the real repository.
//!
//! The copy is hostile: no link in it is followed, each object is held against its name, and every object that a reference
//! is in need of was either given to the command or is in the copy. So a reference to what was kept from it is not carried,
//! though the real repository has the object. Configuration, hooks, logs and stashes are not carried.

use super::given::{Given, Repository};
use super::real::Real;
use super::remove::remove;
use super::store::digest;
use super::{STORE, find};
use crate::git::index::{self, Index};
use crate::git::objects::{Objects, Reader, with_alternates};
use crate::git::place::Place;
use crate::git::refs::{self, Head};
use crate::git::walk::{NEW_OBJECTS, new_beneath};
use crate::git::write::VERIFIED_MOST;
use crate::git::{Algorithm, GitError, Kind, Oid, form, io};
use crate::ledger::record::GitEnd;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Most bytes of an object that a command has made.
const OBJECT_LIMIT: u64 = 512 << 20;
/// Most bytes of a command's index, where the real one is not half as long.
const INDEX_MOST: u64 = 128 << 20;
/// Most bytes that an index of a pack has for each object.
const INDEX_OF_ONE: u64 = 128;
/// Most branches and tags that are carried.
const REFS_MOST: usize = 1000;

/// Carries back what a copy holds, and removes it; where something of it could not be carried it is kept, and the answer says
/// where and why.
pub fn carry_back(directory: &Path, wrapper: &Path) -> Result<GitEnd, GitError> {
    let mut end = GitEnd::of(directory);
    let Some(given) = Given::read(wrapper)? else {
        // Without a list it was never seen by a command, or has been looked at before.
        if !wrapper.join("kept.json").exists() {
            remove(wrapper)?;
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
        true => remove(wrapper),
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
    real: Real,
    /// The objects that the real one has.
    there: Objects,
    copy: Place,
    algorithm: Algorithm,
    given: &'a Repository,
    /// The objects that were given to the command and that the real one still has.
    names: HashSet<Oid>,
    objects: Objects,
}

impl Carrier<'_> {
    fn of<'a>(directory: &Path, wrapper: &Path, number: usize, given: &'a Repository) -> Result<Carrier<'a>, GitError> {
        let algorithm = given.algorithm();
        let copy = Place::new(wrapper.join(STORE).join(&given.below));
        let real = Real::open(directory, &given.below)?;
        let there = Objects::open(with_alternates(&real.place.at("objects"))?, algorithm)?;
        let mut names = Given::names(wrapper, number, algorithm)?;
        check_indexes(&copy, names.len())?;
        // What was cleared away outside meanwhile is carried back with what needs it.
        names.retain(|name| there.find(name).is_some());
        // Whatever alternates the command has named lead elsewhere.
        let objects = Objects::open(vec![copy.at("objects")], algorithm)?;
        Ok(Carrier { real, there, copy, algorithm, given, names, objects })
    }

    fn carry(&self, end: &mut GitEnd) -> Result<(), GitError> {
        let mut reader = Reader::new(&self.objects, OBJECT_LIMIT).with_at_most(VERIFIED_MOST);
        let mut seen = HashSet::new();
        let left_before = end.left_count();
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
        let current = refs::all(&self.real.place, self.algorithm)?;
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
        if head_is_whole && let Err(error) = self.update_head(&head, &theirs, &carried, end) {
            end.leave(&format!("HEAD: {error}"));
        }
        // The index goes with HEAD and the branches: where one of them is left, it is left with the copy.
        if let Some(index) = index.filter(|_| end.left_count() == left_before)
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
            if !carried || same {
                continue;
            }
            if !refs::is_usual(name) {
                end.leave(&format!("{name}: git itself makes none of that name"));
            } else if changed.len() == REFS_MOST {
                end.leave(&format!("{name}: it is beyond the first {REFS_MOST} branches and tags"));
            } else if self.is_whole(name, *oid, reader, seen, end) {
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
        let real = self.real.place.read("index", index::LIMIT)?;
        let most = INDEX_MOST.max(2 * real.map_or(0, |bytes| bytes.len() as u64));
        let bytes = match self.copy.read("index", most) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(error) => {
                end.leave(&error.to_string());
                return Ok(None);
            }
        };
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
                entry if !entry.is_sound => Err(form(Path::new("index"), "a path of it leads out of the work tree")),
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
        let mut names: Vec<Oid> = new.iter().filter(|oid| self.there.find(oid).is_none()).copied().collect();
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        let mut hasher = self.algorithm.start();
        names.iter().for_each(|name| hasher.update(name.as_bytes()));
        let numbers: Vec<u32> = names.iter().filter_map(|name| self.objects.find(name)).collect();
        self.real.add_pack(&format!("pack-{}", hasher.finish()), &self.objects, &numbers, OBJECT_LIMIT)
    }

    fn update_ref(&self, current: &BTreeMap<String, Oid>, name: &str, new: Oid) -> Result<(), GitError> {
        let path = self.real.place.path.join(name);
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
        // Of a remote's HEAD there is a file alone: it names another reference.
        let is_there = |other: &String| {
            current.contains_key(other) || other.ends_with("/HEAD") && self.real.place.open(other).is_ok()
        };
        if now.is_none()
            && let Some(other) = refs::shadowed(name).into_iter().find(is_there)
        {
            return Err(form(&path, format!("git would take it for the real repository's {other}")));
        }
        self.real.replace(name, format!("{new}\n").as_bytes(), || {
            Ok(refs::current(&self.real.place, name, self.algorithm)?.as_ref() == now)
        })
    }

    fn update_head(
        &self,
        head: &Head,
        theirs: &BTreeMap<String, Oid>,
        carried: &BTreeMap<String, Oid>,
        end: &mut GitEnd,
    ) -> Result<(), GitError> {
        if head.to_string() == self.given.head {
            return Ok(());
        }
        let path = self.real.place.path.join("HEAD");
        if let Head::Branch(name) = head {
            // A branch that was kept from the command is not its to check out, nor one that names such a branch.
            let nothing = || matches!(refs::current(&self.real.place, name, self.algorithm), Ok(None));
            let unborn = refs::is_usual(name) && !theirs.contains_key(name) && nothing();
            let own = carried.contains_key(name) || self.given.refs.contains_key(name) || unborn;
            if !own {
                return Err(form(&path, format!("{name} was not given to the command")));
            }
        }
        self.real.replace("HEAD", format!("{head}\n").as_bytes(), || {
            let now = refs::head(&self.real.place, self.algorithm)?.to_string();
            Ok(now == self.given.head || now == head.to_string())
        })?;
        end.carry(&format!("HEAD {head}"));
        Ok(())
    }

    fn update_index(&self, content: &[u8]) -> Result<(), GitError> {
        self.real.replace("index", content, || {
            let now = self.real.place.read("index", index::LIMIT)?;
            Ok(now.as_deref() == Some(content) || now.as_deref().map(digest) == self.given.index)
        })
    }
}

/// Refuses indexes of packs that are longer together than those of all objects that there can be: they are read whole.
fn check_indexes(copy: &Place, given: usize) -> Result<(), GitError> {
    let packs = copy.at("objects/pack");
    let mut length = 0u64;
    for name in packs.names("")?.iter().filter(|name| name.to_string_lossy().ends_with(".idx")) {
        let meta = packs.open(name)?.metadata().map_err(io(&packs.path.join(name)))?;
        length = length.saturating_add(meta.len());
    }
    match length > (given + NEW_OBJECTS) as u64 * INDEX_OF_ONE {
        true => Err(form(&packs.path, "its indexes are longer than those of all objects that there may be")),
        false => Ok(()),
    }
}
