//! All files beneath some directories, read on all cores.
//!
//! What a run has left is hostile: nothing is followed but the names that were given, nothing is opened that could be waited
//! for, and the holes of a sparse file are not read.

use super::class::{Class, Classes, matches};
use super::needles::Needles;
use super::progress::Progress;
use super::segments;
use super::unpack::{self, Found, Hit, Reader, Unread};
use nix::fcntl::OFlag;
use nix::unistd::{Whence, lseek};
use std::collections::HashMap;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions, ReadDir};
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How many entries of a directory are taken at once.
const BATCH: usize = 64;

/// A device's and a file's number.
pub(super) type Identity = (u64, u64);

/// What is known before a search.
pub(super) struct Ground<'a> {
    pub(super) needles: &'a Needles,
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
    /// What is in it, and in its name or a link's target.
    pub(super) found: Found,
    pub(super) in_name: Vec<Hit>,
    /// Why it was passed over, if it was.
    pub(super) skipped: Option<&'static str>,
}

enum Work {
    /// A directory, and its entries that are still to come.
    Directory(PathBuf, ReadDir),
    File(PathBuf),
}

/// What is to be done yet.
struct Queue {
    state: Mutex<(Vec<Work>, usize)>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, (Vec<Work>, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, works: impl Iterator<Item = Work>) {
        self.state().0.extend(works);
        self.changed.notify_all();
    }

    /// The next work; none when all is done and nobody can bring more.
    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        loop {
            if let Some(work) = state.0.pop() {
                state.1 += 1;
                return Some(work);
            }
            if state.1 == 0 {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self) {
        let mut state = self.state();
        state.1 -= 1;
        if state.1 == 0 {
            self.changed.notify_all();
        }
    }
}

/// The directories that were asked for, or that the files are in, and their own names.
struct Roots(Vec<(PathBuf, PathBuf)>);

impl Roots {
    fn of(paths: &[PathBuf]) -> Roots {
        let root = |path: &PathBuf| {
            let real = fs::canonicalize(path).ok()?;
            let (root, named) = match real.is_dir() {
                true => (path.clone(), real.as_path()),
                false => (real.parent()?.to_owned(), real.parent()?),
            };
            Some((root, named.file_name().map(PathBuf::from).unwrap_or_default()))
        };
        Roots(paths.iter().filter_map(root).collect())
    }

    /// A path from the name of its directory on: what stands above that says nothing of the run.
    fn place(&self, path: &Path) -> PathBuf {
        let beneath = |(root, name): &(PathBuf, PathBuf)| path.strip_prefix(root).ok().map(|rest| name.join(rest));
        self.0.iter().find_map(beneath).unwrap_or_else(|| path.to_owned())
    }
}

/// Searches everything that the paths name, and beneath it; what gave something, by path.
pub(super) fn walk(paths: &[PathBuf], ground: &Ground<'_>, progress: &Progress) -> Vec<FileFound> {
    let queue = Queue { state: Mutex::new((Vec::new(), 0)), changed: Condvar::new() };
    let mut told: Vec<FileFound> = Vec::new();
    let roots = Roots::of(paths);
    for path in paths {
        // A name that was given is followed; so it is judged by what it leads to.
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match fs::read_dir(path) {
                Ok(entries) => queue.add(std::iter::once(Work::Directory(path.clone(), entries))),
                Err(cause) => told.push(unread(path, &cause)),
            },
            Ok(metadata) if metadata.is_file() => match fs::canonicalize(path) {
                Ok(real) => queue.add(std::iter::once(Work::File(real))),
                Err(cause) => told.push(unread(path, &cause)),
            },
            Ok(_) => told.push(unread(path, &io::Error::other("it is no regular file and no directory"))),
            Err(cause) => told.push(unread(path, &cause)),
        }
    }
    let work = || {
        let mut worker = Worker {
            ground,
            progress,
            roots: &roots,
            queue: &queue,
            reader: Reader::of(ground.needles, ground.limit),
            told: Vec::new(),
        };
        while let Some(work) = queue.next() {
            worker.work(work);
            queue.done();
        }
        worker.told
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    told.extend(all);
    told.sort_by(|a, b| a.path.cmp(&b.path));
    told
}

fn unread(path: &Path, cause: &io::Error) -> FileFound {
    let why = cause.to_string();
    let found = Found { unread: vec![Unread { within: Vec::new(), why }], ..Found::default() };
    FileFound { path: path.to_owned(), class: Class::Artifact, found, in_name: Vec::new(), skipped: None }
}

struct Worker<'a, 'q> {
    ground: &'a Ground<'a>,
    progress: &'a Progress,
    roots: &'q Roots,
    queue: &'q Queue,
    reader: Reader<'a>,
    told: Vec<FileFound>,
}

impl Worker<'_, '_> {
    fn work(&mut self, work: Work) {
        match work {
            Work::File(path) => self.file(&path),
            Work::Directory(path, mut entries) => {
                let mut ended = false;
                let mut more = Vec::new();
                for _ in 0..BATCH {
                    match entries.next() {
                        None => {
                            ended = true;
                            break;
                        }
                        Some(Ok(entry)) => more.extend(self.entry(&entry)),
                        Some(Err(cause)) => self.told.push(unread(&path, &cause)),
                    }
                }
                // The rest of the directory comes after what was found of it: what waits stays little.
                let rest = (!ended).then_some(Work::Directory(path, entries));
                self.queue.add(rest.into_iter().chain(more));
            }
        }
    }

    /// What an entry of a directory brings.
    fn entry(&mut self, entry: &DirEntry) -> Option<Work> {
        let path = entry.path();
        if self.ground.excluded.iter().any(|glob| matches(glob, &self.roots.place(&path))) {
            return None;
        }
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(cause) => {
                self.told.push(unread(&path, &cause));
                return None;
            }
        };
        self.name(&path, kind.is_symlink());
        if kind.is_dir() {
            return match fs::read_dir(&path) {
                Ok(entries) => Some(Work::Directory(path, entries)),
                Err(cause) => {
                    self.told.push(unread(&path, &cause));
                    None
                }
            };
        }
        kind.is_file().then_some(Work::File(path))
    }

    /// Names carry tokens as well, and so do the targets of symbolic links.
    fn name(&mut self, path: &Path, is_link: bool) {
        let mut texts = vec![path.file_name().unwrap_or_default().as_bytes().to_vec()];
        if is_link {
            texts.extend(fs::read_link(path).map(|target| target.as_os_str().as_bytes().to_vec()));
        }
        for text in texts.iter().filter(|text| self.ground.needles.next(text, 0).is_some()) {
            let hits = self.reader.bytes("", text).hits;
            if !hits.is_empty() {
                let class = self.ground.classes.of(&self.roots.place(path), Vec::new);
                self.told.push(FileFound {
                    path: path.to_owned(),
                    class,
                    found: Found::default(),
                    in_name: hits,
                    skipped: None,
                });
            }
        }
    }

    fn file(&mut self, path: &Path) {
        match self.read(path) {
            Ok(None) => {}
            Ok(Some(found)) => self.told.push(found),
            Err(cause) => self.told.push(unread(path, &cause)),
        }
    }

    fn read(&mut self, path: &Path) -> io::Result<Option<FileFound>> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
            // It went, or became something else, since its directory was read.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound || cause.raw_os_error() == Some(nix::libc::ELOOP) => {
                return Ok(None);
            }
            opened => opened?,
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let identity = (metadata.dev(), metadata.ino());
        let told = |class, found, skipped| {
            Some(FileFound { path: path.to_owned(), class, found, in_name: Vec::new(), skipped })
        };
        if self.ground.own.contains(&identity) {
            return Ok(told(Class::Artifact, Found::default(), Some("the tokens file of this search")));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut found = self.content(&name, &file, &metadata)?;
        let before = found.hits.len();
        let planted = self.ground.holders.get(&identity);
        found.hits.retain(|hit| planted.is_none_or(|tokens| !tokens.contains(&hit.find.token)));
        let skipped = (found.hits.len() < before).then_some("its own token, where it was planted");
        self.progress.advance(found.bytes, found.hits.len());
        if found.hits.is_empty() && found.unread.is_empty() && skipped.is_none() {
            return Ok(None);
        }
        let class = self.ground.classes.of(&self.roots.place(path), || beginning(&file, super::class::BEGINNING));
        Ok(told(class, found, skipped))
    }
}

impl Worker<'_, '_> {
    /// What is in a file. A decoder that fails on hostile bytes takes nothing but their content away.
    fn content(&mut self, name: &str, file: &File, metadata: &Metadata) -> io::Result<Found> {
        let length = metadata.len();
        if length >= segments::LARGE
            && !is_sparse(metadata)
            && !unpack::is_container(&beginning(file, unpack::HEAD), name)
        {
            return segments::search(self.ground.needles, file, length);
        }
        let mut whole = || match is_sparse(metadata) {
            true => {
                let end = metadata.len();
                self.reader.file(name, &mut WithoutHoles { file, end, at: 0, until: 0, nulls: 0 })
            }
            false => self.reader.file(name, &mut &*file),
        };
        if let Ok(found) = catch_unwind(AssertUnwindSafe(&mut whole)) {
            return Ok(found);
        }
        self.reader = Reader::of(self.ground.needles, self.ground.limit);
        (&*file).seek(SeekFrom::Start(0))?;
        let mut found = self.reader.plainly(&mut &*file);
        found.unread.push(Unread { within: Vec::new(), why: "unpacking it failed".to_owned() });
        Ok(found)
    }
}

fn beginning(file: &File, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    // What can't be read again was told when it was read.
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

fn is_sparse(metadata: &Metadata) -> bool {
    const SECTOR: u64 = 512;
    metadata.len() > 1 << 20 && metadata.blocks() * SECTOR < metadata.len()
}

/// How much of a hole is read, in bytes: more than any token reaches across.
const HOLE: u64 = 1 << 16;

/// A sparse file, its holes (lseek(2), SEEK_HOLE) cut short.
struct WithoutHoles<'f> {
    file: &'f File,
    end: u64,
    at: u64,
    /// Where the data ends that begins at or before `at`.
    until: u64,
    /// How many bytes of a hole come first.
    nulls: u64,
}

impl WithoutHoles<'_> {
    fn next_data(&mut self) -> io::Result<()> {
        let seek = |from: u64, whence| -> io::Result<Option<u64>> {
            let from = i64::try_from(from).map_err(io::Error::other)?;
            match lseek(self.file, from, whence) {
                Ok(found) => Ok(u64::try_from(found).ok()),
                Err(nix::Error::ENXIO) => Ok(None),
                Err(cause) => Err(cause.into()),
            }
        };
        let data = seek(self.at, Whence::SeekData)?.unwrap_or(self.end);
        self.nulls = (data - self.at).min(HOLE);
        self.at = data;
        self.until = if data < self.end { seek(data, Whence::SeekHole)?.unwrap_or(self.end) } else { self.end };
        Ok(())
    }
}

impl Read for WithoutHoles<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.nulls == 0 && self.at >= self.until && self.at < self.end {
            self.next_data()?;
        }
        let most = |count: u64| usize::try_from(count).unwrap_or(usize::MAX).min(buffer.len());
        if self.nulls > 0 {
            let count = most(self.nulls);
            buffer[..count].fill(0);
            self.nulls -= count as u64;
            return Ok(count);
        }
        let count = most(self.until.saturating_sub(self.at));
        let count = self.file.read_at(&mut buffer[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
