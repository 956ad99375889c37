//! What some commits reach: their ancestors, and all trees and files of each. Threads share the trees and have ended when the
//! walk returns.

use super::objects::{Objects, Reader};
use super::{GitError, Kind, Oid, parse};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many commits' trees a thread takes at once: neighbours in history share most of what they hold.
const SHARE: usize = 256;

/// What has been reached.
#[derive(Debug)]
pub struct Reached<'a> {
    objects: &'a Objects,
    flags: Vec<AtomicBool>,
    /// Where history ends though commits name parents (`shallow`).
    shallow: HashSet<Oid>,
    limit: u64,
}

impl<'a> Reached<'a> {
    /// Nothing yet. Objects of more than `limit` bytes that have to be read are an error.
    pub fn new(objects: &'a Objects, shallow: HashSet<Oid>, limit: u64) -> Reached<'a> {
        let flags = std::iter::repeat_with(|| AtomicBool::new(false)).take(objects.len()).collect();
        Reached { objects, flags, shallow, limit }
    }

    /// Whether an object is among it.
    pub fn has(&self, oid: &Oid) -> bool {
        self.objects.find(oid).is_some_and(|number| self.flags[number as usize].load(Ordering::Relaxed))
    }

    /// The numbers of all that has been reached.
    pub fn numbers(&self) -> Vec<u32> {
        (0..).zip(&self.flags).filter(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(number, _)| number).collect()
    }

    /// Reaches what an object that is there is in need of; whether it was new.
    fn reach(&self, oid: &Oid) -> Result<Option<u32>, GitError> {
        let number = self.objects.find(oid).ok_or(GitError::Missing(*oid))?;
        Ok((!self.flags[number as usize].swap(true, Ordering::Relaxed)).then_some(number))
    }

    /// Reaches one object alone.
    pub fn reach_alone(&self, oid: &Oid) -> Result<(), GitError> {
        self.reach(oid).map(drop)
    }

    /// Reaches a commit and all that it reaches.
    pub fn reach_commit(&self, oid: &Oid, threads: usize) -> Result<(), GitError> {
        let mut reader = Reader::new(self.objects, self.limit);
        let mut pending = vec![*oid];
        let mut trees = Vec::new();
        while let Some(oid) = pending.pop() {
            let Some(number) = self.reach(&oid)? else { continue };
            let (kind, content) = reader.read(number)?;
            let bad = |fault| GitError::Object { oid, fault };
            if kind != Kind::Commit {
                return Err(bad("it is no commit"));
            }
            let commit = parse::commit(&content, self.objects.algorithm).ok_or_else(|| bad("it is no commit"))?;
            trees.push(commit.tree);
            if !self.shallow.contains(&oid) {
                // The first parent is gone to first.
                pending.extend(commit.parents.iter().rev());
            }
        }
        drop(reader);
        self.reach_trees(&trees, threads)
    }

    /// Reaches trees and all that they hold.
    pub fn reach_trees(&self, trees: &[Oid], threads: usize) -> Result<(), GitError> {
        let shares: Vec<&[Oid]> = trees.chunks(SHARE).collect();
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), GitError> {
            let mut reader = Reader::new(self.objects, self.limit);
            while let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed)) {
                share.iter().try_for_each(|tree| self.reach_tree(tree, &mut reader))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            // One that cannot be had leaves its share to the others, of which this thread is one.
            let started: Vec<_> = (1..threads.min(shares.len()))
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let mut outcome = work();
            for thread in started {
                match thread.join() {
                    Ok(done) => outcome = outcome.and(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            outcome
        })
    }

    fn reach_tree(&self, tree: &Oid, reader: &mut Reader<'_>) -> Result<(), GitError> {
        let mut pending = vec![];
        pending.extend(self.reach(tree)?);
        while let Some(number) = pending.pop() {
            let (kind, content) = reader.read(number)?;
            let bad = || GitError::Object { oid: self.objects.name(number), fault: "it is no tree" };
            if kind != Kind::Tree {
                return Err(bad());
            }
            for entry in parse::tree(&content, self.objects.algorithm) {
                let entry = entry.ok_or_else(bad)?;
                let new = match entry.kind() {
                    Some(_) => self.reach(&entry.oid)?,
                    None => None,
                };
                pending.extend(new.filter(|_| entry.kind() == Some(Kind::Tree)));
            }
        }
        Ok(())
    }

    /// Reaches a tag that leads to a commit that is reached, through other tags too; whether it does.
    pub fn reach_tag(&self, oid: &Oid) -> Result<bool, GitError> {
        let mut reader = Reader::new(self.objects, self.limit);
        let (mut at, mut way) = (*oid, Vec::new());
        // A tag of a tag of a tag.
        for _ in 0..16 {
            let Some(number) = self.objects.find(&at) else { return Ok(false) };
            let (kind, content) = reader.read(number)?;
            if kind != Kind::Tag {
                let leads = kind == Kind::Commit && self.has(&at);
                if leads {
                    way.iter().try_for_each(|tag| self.reach_alone(tag))?;
                }
                return Ok(leads);
            }
            way.push(at);
            let Some((object, _)) = parse::tag(&content, self.objects.algorithm) else { return Ok(false) };
            at = object;
        }
        Ok(false)
    }
}

/// Most objects, and most bytes of all, that are new in what a command has made.
pub const NEW_OBJECTS: usize = 1_000_000;
/// See [`NEW_OBJECTS`].
pub const NEW_BYTES: u64 = 8 << 30;

/// What a tip of a hostile repository is in need of beyond what it was given: each object read, held against its name, of the
/// kind that is asked for. `seen` takes what has been found whole for other tips already.
///
/// # Errors
/// An object that is neither given nor there: it may be one that was kept from the command.
pub fn new_beneath(
    tip: (Oid, Kind),
    given: &HashSet<Oid>,
    objects: &Objects,
    reader: &mut Reader<'_>,
    seen: &HashSet<Oid>,
) -> Result<Vec<Oid>, GitError> {
    let mut found: HashSet<Oid> = HashSet::new();
    let mut order = Vec::new();
    let mut pending = vec![tip];
    let mut bytes = 0u64;
    while let Some((oid, wanted)) = pending.pop() {
        if given.contains(&oid) || seen.contains(&oid) || !found.insert(oid) {
            continue;
        }
        let bad = |fault| GitError::Object { oid, fault };
        let number = objects.find(&oid).ok_or(GitError::Missing(oid))?;
        let (kind, content) = reader.read_verified(number)?;
        bytes = bytes.saturating_add(content.len() as u64);
        if kind != wanted {
            return Err(bad("it is of another kind than what names it says"));
        }
        if found.len() > NEW_OBJECTS || bytes > NEW_BYTES {
            return Err(bad("with it there are too many new objects, or too large ones"));
        }
        order.push(oid);
        match kind {
            Kind::Commit => {
                let commit = parse::commit(&content, objects.algorithm).ok_or_else(|| bad("it is no commit"))?;
                pending.push((commit.tree, Kind::Tree));
                pending.extend(commit.parents.into_iter().map(|parent| (parent, Kind::Commit)));
            }
            Kind::Tree => {
                for entry in parse::tree(&content, objects.algorithm) {
                    let entry = entry.filter(parse::TreeEntry::is_sound).ok_or_else(|| bad("it is no sound tree"))?;
                    pending.extend(entry.kind().map(|kind| (entry.oid, kind)));
                }
            }
            Kind::Tag => {
                let tagged = parse::tag(&content, objects.algorithm).ok_or_else(|| bad("it is no tag"))?;
                pending.push(tagged);
            }
            Kind::Blob => {}
        }
    }
    Ok(order)
}
