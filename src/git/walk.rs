//! What some commits reach: their ancestors, and all trees and files of each. Threads share the trees and have ended when the
//! walk returns.

use super::objects::{Objects, Reader};
use super::pool::Pool;
use super::{GitError, Kind, Oid, parse};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many commits' trees a thread takes at once: neighbours in history share most of what they hold.
const SHARE: usize = 256;
/// With fewer objects a thread costs more than it brings.
const FEW: usize = 4096;
/// How many trees a thread has to have left for half of them to be given to one that has none.
const SPARE: usize = 8;
/// How many names a thread knows that it has come by lately.
const LATELY: usize = 1 << 13;

/// What has been reached.
#[derive(Debug)]
pub struct Reached<'a> {
    objects: &'a Objects,
    flags: Vec<AtomicBool>,
    /// Where history ends though commits name parents (`shallow`).
    shallow: HashSet<Oid>,
    limit: u64,
}

/// What a thread has of its own.
#[derive(Debug)]
pub struct Walker<'a> {
    reader: Reader<'a>,
    /// Names of what has been reached: most of a tree is what another one has that was just read.
    lately: Vec<Option<Oid>>,
}

impl Walker<'_> {
    /// Whether a name was met lately, and so is reached. It is from here on.
    fn has_met(&mut self, name: &[u8]) -> bool {
        let Some(bits) = name.first_chunk::<4>() else { return false };
        let slot = u32::from_ne_bytes(*bits) as usize % self.lately.len();
        let slot = &mut self.lately[slot];
        if slot.as_ref().is_some_and(|met| met.as_bytes() == name) {
            return true;
        }
        *slot = Some(Oid::of(name));
        false
    }
}

impl<'a> Reached<'a> {
    /// Nothing yet. Objects of more than `limit` bytes that have to be read are an error.
    pub fn new(objects: &'a Objects, shallow: HashSet<Oid>, limit: u64) -> Reached<'a> {
        let flags = std::iter::repeat_with(|| AtomicBool::new(false)).take(objects.len()).collect();
        Reached { objects, flags, shallow, limit }
    }

    /// What a thread needs to reach something.
    pub fn walker(&self) -> Walker<'a> {
        let lately = vec![None; self.objects.len().clamp(1, LATELY)];
        Walker { reader: Reader::new(self.objects, self.limit), lately }
    }

    /// Whether an object is among it.
    pub fn has(&self, oid: &Oid) -> bool {
        self.objects.find(oid).is_some_and(|number| self.flags[number as usize].load(Ordering::Relaxed))
    }

    /// The numbers of all that has been reached.
    pub fn numbers(&self) -> Vec<u32> {
        (0..).zip(&self.flags).filter(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(number, _)| number).collect()
    }

    /// Reaches what an object that is there is in need of; its number where it was new.
    fn reach(&self, name: &[u8]) -> Result<Option<u32>, GitError> {
        let number = self.objects.find_name(name).ok_or_else(|| GitError::Missing(Oid::of(name)))?;
        let flag = &self.flags[number as usize];
        Ok((!flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)).then_some(number))
    }

    /// Reaches one object alone.
    pub fn reach_alone(&self, oid: &Oid) -> Result<(), GitError> {
        self.reach(oid.as_bytes()).map(drop)
    }

    /// Reaches a commit and all that it reaches.
    pub fn reach_commit(&self, tip: &Oid, threads: usize) -> Result<(), GitError> {
        let threads = if self.objects.len() < FEW { 1 } else { threads };
        let pool = Pool::default();
        let begun = pool.begin();
        std::thread::scope(|scope| {
            let work = || self.work(&pool, &mut self.walker());
            // One that cannot be had leaves its part to the others, of which this thread is one.
            let started: Vec<_> =
                (1..threads).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            let mut walker = self.walker();
            let walked = self.reach_ancestors(tip, &pool, &mut walker);
            if walked.is_err() {
                pool.stop();
            }
            drop(begun);
            let mut outcome = walked.and_then(|()| self.work(&pool, &mut walker));
            for thread in started {
                match thread.join() {
                    Ok(done) => outcome = outcome.and(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            outcome
        })
    }

    /// Reaches a commit and its ancestors, and leaves their trees to the pool.
    fn reach_ancestors(&self, tip: &Oid, pool: &Pool, walker: &mut Walker<'_>) -> Result<(), GitError> {
        let mut pending = vec![*tip];
        let mut trees = Vec::new();
        while let Some(oid) = pending.pop() {
            let Some(number) = self.reach(oid.as_bytes())? else { continue };
            let (kind, content) = walker.reader.read(number)?;
            let bad = |fault| GitError::Object { oid, fault };
            if kind != Kind::Commit {
                return Err(bad("it is no commit"));
            }
            let commit = parse::commit(&content, self.objects.algorithm).ok_or_else(|| bad("it is no commit"))?;
            trees.extend(self.reach(commit.tree.as_bytes())?);
            if trees.len() == SHARE {
                pool.add(std::mem::take(&mut trees));
            }
            if !self.shallow.contains(&oid) {
                // The first parent is gone to first.
                pending.extend(commit.parents.iter().rev());
            }
        }
        pool.add(trees);
        Ok(())
    }

    /// Reaches what the trees of the pool hold, until there is none left.
    fn work(&self, pool: &Pool, walker: &mut Walker<'_>) -> Result<(), GitError> {
        while let Some((mut share, _at_work)) = pool.next() {
            // The last one is read first.
            share.reverse();
            let read = self.read_trees(share, walker, |pending| {
                if pending.len() >= SPARE && pool.is_waited_for() {
                    pool.add(pending.drain(..pending.len() / 2).rev().collect());
                }
            });
            if read.is_err() {
                pool.stop();
                return read;
            }
        }
        Ok(())
    }

    /// Reaches a tree and all that it holds.
    pub fn reach_tree(&self, tree: &Oid, walker: &mut Walker<'_>) -> Result<(), GitError> {
        let new = self.reach(tree.as_bytes())?;
        self.read_trees(new.into_iter().collect(), walker, |_| {})
    }

    /// Reaches what some trees hold. `spare` may take from those that are still to be read.
    fn read_trees(
        &self,
        mut pending: Vec<u32>,
        walker: &mut Walker<'_>,
        mut spare: impl FnMut(&mut Vec<u32>),
    ) -> Result<(), GitError> {
        while let Some(number) = pending.pop() {
            let (kind, content) = walker.reader.read(number)?;
            let bad = || GitError::Object { oid: self.objects.name(number), fault: "it is no tree" };
            if kind != Kind::Tree {
                return Err(bad());
            }
            for entry in parse::tree(&content, self.objects.algorithm) {
                let entry = entry.ok_or_else(bad)?;
                let Some(kind) = entry.kind() else { continue };
                if !walker.has_met(entry.object) {
                    pending.extend(self.reach(entry.object)?.filter(|_| kind == Kind::Tree));
                }
            }
            spare(&mut pending);
        }
        Ok(())
    }

    /// Reaches a tag that leads to a commit that is reached, through other tags too; whether it does.
    pub fn reach_tag(&self, oid: &Oid, walker: &mut Walker<'_>) -> Result<bool, GitError> {
        let (mut at, mut way) = (*oid, Vec::new());
        // A tag of a tag of a tag.
        for _ in 0..16 {
            let Some(number) = self.objects.find(&at) else { return Ok(false) };
            let (kind, content) = walker.reader.read(number)?;
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
                    pending.extend(entry.kind().map(|kind| (Oid::of(entry.object), kind)));
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
