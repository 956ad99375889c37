//! What is shielded as a list of what it is made of, and the difference of two such lists: names, kinds, modes, owners,
//! contents, the targets of symbolic links.
//!
//! Files are read by as many threads as there are processors, which have ended when the list is made.

use super::ShieldError;
use super::links::{self, walk};
use crate::install::mounts::MountPlan;
use crate::ledger::escape;
use crate::ledger::record::{Shield, ShieldChange, ShieldsEnd};
use crate::sys;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The manifest could not be made.
pub type ManifestError = ShieldError;

/// How much of a file is read at once, in bytes.
const PIECE: usize = 1 << 17;
/// How long threads that have ended may still be counted.
const JOINED: Duration = Duration::from_secs(1);

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: u32,
    mode: u32,
    owner: (u32, u32),
    /// SHA-256 of a file's contents, a link's target, or a device's number; of what may not be read what [`closed`] tells.
    content: Vec<u8>,
    /// Whether it could not be looked into.
    closed: bool,
    /// Which file it is, whatever its name: that may differ where nothing else does.
    file: links::File,
}

/// What the shields are made of.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    shields: Vec<PathBuf>,
    entries: BTreeMap<PathBuf, Entry>,
    /// What in them is the run's own.
    without: Vec<PathBuf>,
}

/// The type bits of a mode (inode(7)).
const KIND: u32 = 0o170_000;

impl Manifest {
    /// Looks at everything at and beneath some paths.
    ///
    /// # Errors
    /// What cannot be read, unless it is for want of permission: that is closed to this user as it is, and counted.
    pub fn of(shields: &[PathBuf]) -> Result<Manifest, ManifestError> {
        Manifest::less(shields, &[])
    }

    /// The same without what lies at and beneath some paths, now and when it is looked at again: they are a run's own.
    ///
    /// # Errors
    /// As of [`Manifest::of`].
    pub fn less(shields: &[PathBuf], without: &[PathBuf]) -> Result<Manifest, ManifestError> {
        let mut entries = BTreeMap::new();
        let mut shut = BTreeSet::new();
        for shield in shields {
            let mut each = |path: &Path, meta: &Metadata, _| {
                if without.iter().any(|own| path == own) {
                    return false;
                }
                let mode = meta.mode();
                let content = meta.rdev().to_le_bytes().to_vec();
                let owner = (meta.uid(), meta.gid());
                let file = (meta.dev(), meta.ino());
                let (kind, mode) = (mode & KIND, mode & !KIND);
                entries.insert(path.to_owned(), Entry { kind, mode, owner, content, closed: false, file });
                true
            };
            walk(shield, &mut each, &mut |path, cause| match cause.kind() {
                io::ErrorKind::PermissionDenied if path != shield || path.symlink_metadata().is_ok() => {
                    shut.insert(path.to_owned());
                    Ok(())
                }
                _ => Err(ShieldError::Look { path: path.to_owned(), cause }),
            })?;
        }
        for path in shut {
            if let Some(entry) = entries.get_mut(&path) {
                (entry.closed, entry.content) = (true, closed(&path)?);
            }
        }
        let mut manifest = Manifest { shields: shields.to_vec(), entries, without: without.to_vec() };
        manifest.read_contents()?;
        Ok(manifest)
    }

    fn read_contents(&mut self) -> Result<(), ManifestError> {
        let mut files = Vec::new();
        for (path, entry) in &mut self.entries {
            match entry.kind {
                libc::S_IFREG => files.push((path, entry)),
                libc::S_IFLNK => {
                    let target = std::fs::read_link(path).map_err(look(path))?;
                    entry.content = target.as_os_str().as_bytes().to_vec();
                }
                _ => {}
            }
        }
        let paths: Vec<&PathBuf> = files.iter().map(|(path, _)| *path).collect();
        let digests = in_parallel(&paths, |path| digest(path))?;
        for ((_, entry), (closed, content)) in files.into_iter().zip(digests) {
            (entry.closed, entry.content) = (closed, content);
        }
        Ok(())
    }

    /// What the first record says of each shield.
    pub fn records(&self, other_names: &[PathBuf]) -> Vec<Shield> {
        let text = |path: &PathBuf| escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT);
        let of = |shield: &PathBuf| {
            let mut digest = Sha256::new();
            let (mut entries, mut closed) = (0, 0);
            for (path, entry) in self.entries.range(shield.clone()..).take_while(|(path, _)| path.starts_with(shield)) {
                entries += 1;
                closed += u64::from(entry.closed);
                let below = path.strip_prefix(shield).unwrap_or(path).as_os_str().as_bytes();
                for part in [below, &entry.content] {
                    digest.update((part.len() as u64).to_le_bytes());
                    digest.update(part);
                }
                for number in [entry.kind, entry.mode, entry.owner.0, entry.owner.1] {
                    digest.update(number.to_le_bytes());
                }
            }
            let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            Shield { path: text(shield), digest, entries, closed, other_names: Vec::new() }
        };
        let mut records: Vec<Shield> = self.shields.iter().map(of).collect();
        // Which of the shields they belong to is not kept.
        if let Some(first) = records.first_mut() {
            first.other_names = other_names.iter().map(text).collect();
        }
        records
    }

    /// Whether nothing is shielded.
    pub fn is_empty(&self) -> bool {
        self.shields.is_empty()
    }

    /// Has a view keep which file each of its shields is, their other names among them.
    ///
    /// # Errors
    /// One that is not there any more.
    pub fn hold(&self, view: &mut MountPlan) -> Result<(), ManifestError> {
        let known: BTreeSet<links::File> = self.entries.values().map(|entry| entry.file).collect();
        let whole = self.entries.values().all(|entry| !entry.closed);
        for path in &view.shields {
            let file = match self.entries.get(path) {
                Some(entry) => entry.file,
                None => path.symlink_metadata().map(|meta| (meta.dev(), meta.ino())).map_err(look(path))?,
            };
            // Another name of what was looked at has been given to something else meanwhile.
            let is_borrowed = view.borrowed.iter().any(|borrowed| borrowed.starts_with(path));
            let is_other = whole && !known.contains(&file) && !is_borrowed;
            view.shield_files.0.insert(path.clone(), if is_other { links::NONE } else { file });
        }
        Ok(())
    }

    /// What has become of the shields.
    pub fn end(&self) -> ShieldsEnd {
        let missing = |shield: &PathBuf| shield.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let there: Vec<PathBuf> = self.shields.iter().filter(|shield| !missing(shield)).cloned().collect();
        let closed = |manifest: &Manifest| -> BTreeSet<PathBuf> {
            manifest.entries.iter().filter(|(_, entry)| entry.closed).map(|(path, _)| path.clone()).collect()
        };
        match Manifest::less(&there, &self.without) {
            Ok(now) => ShieldsEnd {
                closed: closed(self).union(&closed(&now)).count() as u64,
                ..ShieldsEnd::of(now.changes_since(self))
            },
            // Where it can't be looked at, that it can't.
            Err(error) => {
                let path = self.shields.first().cloned().unwrap_or_default();
                let path = escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT);
                let change = escape::printable(&error.to_string()).into_owned();
                ShieldsEnd::of(vec![ShieldChange { path, change }])
            }
        }
    }

    /// What differs from an earlier list, by path.
    pub fn changes_since(&self, before: &Manifest) -> Vec<ShieldChange> {
        let mut changes = Vec::new();
        let mut change = |path: &Path, what: &str| {
            let path = escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT);
            changes.push(ShieldChange { path, change: what.to_owned() });
        };
        for (path, was) in &before.entries {
            match self.entries.get(path) {
                None => change(path, "removed"),
                Some(now) if now.kind != was.kind => change(path, "kind"),
                Some(now) => {
                    if now.content != was.content {
                        change(path, "contents");
                    }
                    if now.mode != was.mode {
                        change(path, &format!("mode {:04o} to {:04o}", was.mode, now.mode));
                    }
                    if now.owner != was.owner {
                        change(path, &format!("owner {:?} to {:?}", was.owner, now.owner));
                    }
                }
            }
        }
        self.entries.keys().filter(|path| !before.entries.contains_key(*path)).for_each(|path| change(path, "added"));
        changes
    }
}

fn look(path: &Path) -> impl FnOnce(io::Error) -> ManifestError {
    let path = path.to_owned();
    move |cause| ShieldError::Look { path, cause }
}

/// What is known of a file or a directory that may not be read: its length and when it has changed. Names in a directory come
/// and go with its time of modification.
fn closed(path: &Path) -> Result<Vec<u8>, ManifestError> {
    let meta = path.symlink_metadata().map_err(look(path))?;
    let [length, seconds, fraction] = [meta.len() as i64, meta.mtime(), meta.mtime_nsec()];
    Ok(format!("closed {length} {seconds}.{fraction} {}.{}", meta.ctime(), meta.ctime_nsec()).into_bytes())
}

/// SHA-256 of a file's contents; of one that may not be read, what [`closed`] tells, and that it is so.
fn digest(path: &Path) -> Result<(bool, Vec<u8>), ManifestError> {
    // What has taken the file's place meanwhile must neither hold this up nor lead elsewhere.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(nix::errno::Errno::EACCES) => return Ok((true, closed(path)?)),
        Err(errno) => return Err(look(path)(errno.into())),
    };
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((false, digest.finalize().to_vec())),
            Ok(length) => digest.update(&piece[..length]),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(look(path)(cause)),
        }
    }
}

/// Waits until the kernel counts no thread beside this one: it does for a moment after a thread's end.
pub fn until_alone() {
    let deadline = Instant::now() + JOINED;
    while sys::thread_count().is_ok_and(|count| count > 1) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// `work` on each of some things, in threads that have ended when it returns: this process forks.
fn in_parallel<T: Sync, R: Send>(
    things: &[T],
    work: impl Fn(&T) -> Result<R, ManifestError> + Sync,
) -> Result<Vec<R>, ManifestError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(things.len());
    if threads < 2 {
        return things.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some((index, thing)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, things.get(i)?)))
        {
            done.push((index, work(thing)));
        }
        done
    };
    let mut all: Vec<(usize, Result<R, ManifestError>)> = std::thread::scope(|scope| {
        // One that cannot be had leaves its share to the others, of which this thread is one.
        let started: Vec<_> =
            (1..threads).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, take).ok()).collect();
        let mut all = take();
        for thread in started {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    until_alone();
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap().join("shield");
        fs::create_dir_all(top.join("deep")).unwrap();
        for name in ["one", "two", "deep/three"] {
            fs::write(top.join(name), name).unwrap();
        }
        symlink("one", top.join("link")).unwrap();
        (place, top)
    }

    fn changes(top: &Path, make: impl FnOnce(&Path)) -> Vec<String> {
        let before = Manifest::of(&[top.to_owned()]).unwrap();
        let same = Manifest::of(&[top.to_owned()]).unwrap();
        assert_eq!(same.changes_since(&before), []);
        assert_eq!(same.records(&[]), before.records(&[]));
        make(top);
        let after = Manifest::of(&[top.to_owned()]).unwrap();
        assert_ne!(after.records(&[])[0].digest, before.records(&[])[0].digest);
        let below = |change: ShieldChange| {
            let path = change.path.strip_prefix(top.to_str().unwrap()).unwrap().to_owned();
            format!("{path} {}", change.change)
        };
        after.changes_since(&before).into_iter().map(below).collect()
    }

    #[test]
    fn each_kind_of_change_is_found_and_named() {
        let of = |make: fn(&Path)| {
            let (_place, top) = place();
            changes(&top, make)
        };
        assert_eq!(of(|top| fs::write(top.join("deep/three"), "3hree").unwrap()), ["/deep/three contents"]);
        assert_eq!(of(|top| fs::write(top.join("deep/new"), "").unwrap()), ["/deep/new added"]);
        assert_eq!(of(|top| fs::remove_file(top.join("two")).unwrap()), ["/two removed"]);
        let mode = |top: &Path| fs::set_permissions(top.join("one"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(of(mode), ["/one mode 0644 to 0600"]);
        let target =
            |top: &Path| fs::remove_file(top.join("link")).and_then(|()| symlink("two", top.join("link"))).unwrap();
        assert_eq!(of(target), ["/link contents"]);
        let kind =
            |top: &Path| fs::remove_file(top.join("two")).and_then(|()| fs::create_dir(top.join("two"))).unwrap();
        assert_eq!(of(kind), ["/two kind"]);
    }

    #[test]
    fn no_thread_is_left() {
        let (_place, top) = place();
        (0..50).for_each(|n| fs::write(top.join(format!("file{n}")), vec![n; 5000]).unwrap());
        assert_eq!(Manifest::of(&[top]).unwrap().entries.len(), 56);
    }
}
