//! All files beneath some directories, read on all cores.
//!
//! What a run has left is hostile: nothing is followed but the names that were given, nothing is opened that could be waited
//! for, and the holes of a sparse file are not read.

use super::beneath::Identity;
use super::budget::{self, Budget};
use super::class::{Class, Classes, matches};
use super::holes::{WithoutHoles, is_sparse};
use super::kind;
use super::needles::Needles;
use super::progress::Progress;
use super::queue::{Queue, Work};
use super::segments;
use super::tree::{Asked, Kind, Leaf, Listing};
use super::unpack::{self, Found, Reader};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;

/// How many entries of a directory are taken at once.
const BATCH: usize = 64;

/// Why something is not read that was there when its directory was listed.
const GONE: &str = "it went, or became something else, while the search ran";

/// What is known before a search.
pub(super) struct Ground<'a> {
    pub(super) needles: &'a Needles,
    pub(super) budget: &'a Budget,
    pub(super) classes: Classes,
    /// Paths that are passed over.
    pub(super) excluded: Vec<String>,
    /// The tokens files of this search.
    pub(super) own: Vec<Identity>,
    /// The files that hold a token by planting, and which.
    pub(super) holders: HashMap<Identity, Vec<usize>>,
    /// How many bytes may be unpacked from one file.
    pub(super) limit: u64,
}

/// What one file gave that is worth telling.
#[derive(Debug)]
pub(super) struct FileFound {
    pub(super) path: PathBuf,
    pub(super) class: Class,
    pub(super) found: Found,
    /// Whether it is in its name or a link's target, not in its content.
    pub(super) in_name: bool,
    /// Why it was passed over, if it was.
    pub(super) skipped: Option<&'static str>,
}

/// What a search gave.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) files: Vec<FileFound>,
    /// How many hits, by class, and what else there is that is not among them for want of room.
    pub(super) transcript: u64,
    pub(super) artifact: u64,
    pub(super) unread: u64,
    pub(super) skipped: u64,
}

impl Walked {
    /// Keeps what a file gave, as far as there is room for it.
    fn tell(&mut self, budget: &Budget, mut file: FileFound) {
        budget.list(&file.path, &mut file.found);
        let found = &file.found;
        let skipped = file.skipped.filter(|_| budget.list_skipped(&file.path));
        self.skipped += u64::from(file.skipped.is_some() && skipped.is_none());
        if found.hits.is_empty() && found.unread.is_empty() && skipped.is_none() {
            self.count(file.class, found.more_hits, found.more_unread);
            return;
        }
        file.skipped = skipped;
        self.files.push(file);
    }

    fn count(&mut self, class: Class, hits: u64, unread: u64) {
        match class {
            Class::Transcript => self.transcript += hits,
            Class::Artifact => self.artifact += hits,
        }
        self.unread += unread;
    }

    fn add(&mut self, more: Walked) {
        self.files.extend(more.files);
        self.transcript += more.transcript;
        self.artifact += more.artifact;
        self.unread += more.unread;
        self.skipped += more.skipped;
    }
}

/// Searches everything that the paths name, and beneath it; what gave something, by path.
pub(super) fn walk(paths: &[PathBuf], ground: &Ground<'_>, progress: &Progress) -> Walked {
    let queue = Queue::default();
    let mut walked = Walked::default();
    for path in paths {
        match Asked::of(path) {
            Ok(Asked::Directory(leaf)) => queue.add([Work::Directory(leaf)]),
            Ok(Asked::File(leaf)) => queue.add([Work::File(leaf)]),
            Err(cause) => walked.tell(ground.budget, unread(path.clone(), &cause)),
        }
    }
    let work = || {
        let reader = Reader::of(ground.needles, ground.budget, ground.limit);
        let mut worker = Worker { ground, progress, queue: &queue, reader, walked: Walked::default() };
        while let Some(work) = queue.next() {
            worker.work(work);
            queue.done();
        }
        worker.walked
    };
    thread::scope(|scope| {
        // Where no thread can be had, fewer do it.
        let spawned = (1..budget::cores()).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok());
        let threads: Vec<_> = spawned.collect();
        walked.add(work());
        for thread in threads {
            walked.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    walked.files.sort_by(|a, b| a.path.cmp(&b.path));
    walked
}

fn unread(path: PathBuf, cause: &io::Error) -> FileFound {
    let mut found = Found::default();
    found.note(&[], &cause.to_string());
    FileFound { path, class: Class::Artifact, found, in_name: false, skipped: None }
}

struct Worker<'a, 'q> {
    ground: &'a Ground<'a>,
    progress: &'a Progress,
    queue: &'q Queue,
    reader: Reader<'a>,
    walked: Walked,
}

impl Worker<'_, '_> {
    fn work(&mut self, work: Work) {
        match work {
            Work::File(leaf) => self.file(&leaf),
            Work::Listing(listing) => self.list(listing),
            Work::Directory(leaf) => match leaf.list() {
                Ok(listing) => self.list(listing),
                Err(cause) => self.unread(leaf.path(), &meanwhile(cause)),
            },
        }
    }

    fn tell(&mut self, file: FileFound) {
        self.walked.tell(self.ground.budget, file);
    }

    fn unread(&mut self, path: PathBuf, cause: &io::Error) {
        self.tell(unread(path, cause));
    }

    /// Takes some entries of a directory; the rest comes after the files among them.
    fn list(&mut self, mut listing: Listing) {
        let mut more = Vec::new();
        for _ in 0..BATCH {
            match listing.next() {
                Ok(Some((leaf, entry))) => match listing.kind(&entry) {
                    Ok(kind) => more.extend(self.entry(leaf, &kind)),
                    Err(cause) => self.unread(leaf.path(), &meanwhile(cause)),
                },
                Ok(None) => return self.queue.add(more),
                Err(cause) => {
                    self.unread(listing.path(), &cause);
                    return self.queue.add(more);
                }
            }
        }
        self.queue.add(more.into_iter().chain([Work::Listing(listing)]));
    }

    /// What an entry of a directory brings.
    fn entry(&mut self, leaf: Leaf, kind: &Kind) -> Option<Work> {
        if !self.ground.excluded.is_empty() {
            let place = leaf.place();
            if self.ground.excluded.iter().any(|glob| matches(glob, &place)) {
                return None;
            }
        }
        self.name(&leaf, leaf.name().as_bytes());
        match kind {
            Kind::Directory => Some(Work::Directory(leaf)),
            Kind::File => Some(Work::File(leaf)),
            Kind::Link(target) => {
                self.name(&leaf, target);
                None
            }
            Kind::Other => None,
        }
    }

    /// Names carry tokens as well, and so do the targets of symbolic links.
    fn name(&mut self, leaf: &Leaf, mut text: &[u8]) {
        if self.ground.needles.next(text, 0).is_none() {
            return;
        }
        let found = self.reader.plainly(&mut text, &[]);
        if !found.is_nothing() {
            let class = self.ground.classes.of(&leaf.place(), Vec::new);
            self.tell(FileFound { path: leaf.path(), class, found, in_name: true, skipped: None });
        }
    }

    fn file(&mut self, leaf: &Leaf) {
        match self.read(leaf) {
            Ok(None) => {}
            Ok(Some(found)) => self.tell(found),
            Err(cause) => self.unread(leaf.path(), &meanwhile(cause)),
        }
    }

    fn read(&mut self, leaf: &Leaf) -> io::Result<Option<FileFound>> {
        let file = File::from(leaf.open(OFlags::RDONLY)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other(GONE));
        }
        let identity = (metadata.dev(), metadata.ino());
        let told = |class, found, skipped| Some(FileFound { path: leaf.path(), class, found, in_name: false, skipped });
        if self.ground.own.contains(&identity) {
            return Ok(told(Class::Artifact, Found::default(), Some("the tokens file of this search")));
        }
        let ours = self.ground.holders.get(&identity).map(Vec::as_slice).unwrap_or_default();
        let mut found = self.content(&leaf.name().to_string_lossy(), &file, &metadata, ours)?;
        let after = file.metadata()?;
        if state(&after) != state(&metadata) {
            found.note(&[], "it was changed while it was read");
        }
        let skipped = found.ours.then_some("its own token, where it was planted");
        self.progress.advance(found.bytes, found.hits.len() as u64 + found.more_hits);
        if found.is_nothing() && skipped.is_none() {
            return Ok(None);
        }
        let class = self.ground.classes.of(&leaf.place(), || beginning(&file, super::class::BEGINNING));
        Ok(told(class, found, skipped))
    }

    /// What is in a file. A decoder that fails on hostile bytes takes nothing but their content away.
    fn content(&mut self, name: &str, file: &File, metadata: &Metadata, ours: &[usize]) -> io::Result<Found> {
        let length = metadata.len();
        if length >= segments::LARGE
            && !is_sparse(metadata)
            && !kind::is_container(&beginning(file, unpack::HEAD), name)
        {
            return segments::search(self.ground.needles, self.ground.budget, file, length, ours);
        }
        let mut whole = || match is_sparse(metadata) {
            true => self.reader.file(name, &mut WithoutHoles::of(file, length), ours),
            false => self.reader.file(name, &mut &*file, ours),
        };
        if let Ok(found) = catch_unwind(AssertUnwindSafe(&mut whole)) {
            return Ok(found);
        }
        self.reader = Reader::of(self.ground.needles, self.ground.budget, self.ground.limit);
        (&*file).seek(SeekFrom::Start(0))?;
        let mut found = self.reader.plainly(&mut &*file, ours);
        found.note(&[], "unpacking it failed");
        Ok(found)
    }
}

/// What differs once a file was written to: its length, and when anything of it was last changed.
fn state(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.ctime(), metadata.ctime_nsec())
}

/// An error, said as what it means for a name that has just been listed.
fn meanwhile(cause: io::Error) -> io::Error {
    let gone = [nix::libc::ENOENT, nix::libc::ELOOP, nix::libc::ENOTDIR, nix::libc::EINVAL];
    match cause.raw_os_error().is_some_and(|number| gone.contains(&number)) {
        true => io::Error::other(GONE),
        false => cause,
    }
}

fn beginning(file: &File, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    // What can't be read again was told when it was read.
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(count);
    bytes
}
