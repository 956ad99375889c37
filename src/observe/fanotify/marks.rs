//! The marks on what is watched: on each file and each directory, made before the command starts, and on what appears there
//! later.
//!
//! A mark is on an inode, so it holds under every name, through every mount and after a rename. A directory's takes in what
//! is opened in it, so that a file made later is seen from its first open on. A directory made later has to be noticed
//! first (inotify(7)).

use crate::channel::Channel;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::fanotify::{Fanotify, MarkFlags, MaskFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::{Mode, SFlag, fstat, lstat};
use nix::unistd::gettid;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The path under which a file was marked first, of those that it still has, by its device and number.
pub type Known = Mutex<HashMap<(u64, u64), PathBuf>>;

/// What the thread that marks says to the one that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marked {
    /// Everything that there was at the start. This thread has then opened these files, which must have been events.
    All {
        /// Its number.
        thread: i32,
        /// What is watched, by device and number.
        opened: Vec<(u64, u64)>,
    },
    /// Something could not be marked at the start, and why.
    Failed(String),
    /// Something that appeared later could not be, and why.
    Missed(String),
}

/// The marks, and what tells of more to be made.
#[derive(Debug)]
pub struct Marks {
    tripwires: Vec<PathBuf>,
    group: Arc<Fanotify>,
    known: Arc<Known>,
    changes: Inotify,
    /// The directories that are looked at for what appears in them, by the names under which they were found, the last one
    /// first: one may have been renamed, or have several by other mounts.
    places: HashMap<WatchDescriptor, Vec<PathBuf>>,
}

/// A file: each open, and the first read that no open came before.
const OF_FILE: MaskFlags = MaskFlags::FAN_OPEN_PERM.union(MaskFlags::FAN_ACCESS);
/// A directory: each listing, and each open in it.
const OF_DIRECTORY: MaskFlags =
    MaskFlags::FAN_OPEN_PERM.union(MaskFlags::FAN_ONDIR).union(MaskFlags::FAN_EVENT_ON_CHILD);
/// What makes a name appear.
const APPEARS: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);

/// Most names of a directory that are kept.
const NAMES: usize = 8;

/// Why something is not marked.
#[derive(Debug)]
struct Unmarked {
    path: PathBuf,
    call: &'static str,
    errno: Errno,
}

impl Unmarked {
    fn text(&self) -> String {
        let Unmarked { path, call, errno } = self;
        let path = path.display();
        match (*call, errno) {
            (QUEUE, _) => {
                "names appeared faster than they could be marked: what was opened in new directories meanwhile \
                           may be on no record (fs.inotify.max_queued_events)"
                    .into()
            }
            (KIND, _) => format!("{path}: to be watched, but it is neither a file nor a directory"),
            (LOOK, Errno::ENOSPC) => {
                format!("{path}: to be watched, but {call}: {errno} (fs.inotify.max_user_watches)")
            }
            _ => format!("{path}: to be watched, but {call}: {errno}"),
        }
    }

    /// Whether it is not there any more, or something else is.
    fn is_gone(&self) -> bool {
        self.call == KIND || matches!(self.errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE)
    }
}

/// The look at what an object is.
const KIND: &str = "fstat";
/// The loss of changes that were to be told.
const QUEUE: &str = "read of an inotify queue that has overflowed";
/// The call that has changes told.
const LOOK: &str = "inotify_add_watch";

impl Marks {
    /// None yet.
    ///
    /// # Errors
    /// The errno of inotify_init1(2), as a text.
    pub fn new(tripwires: Vec<PathBuf>, group: Arc<Fanotify>, known: Arc<Known>) -> Result<Marks, String> {
        let changes = Inotify::init(InitFlags::IN_CLOEXEC)
            .map_err(|errno| format!("witness: inotify_init1: {errno} (fs.inotify.max_user_instances)"))?;
        Ok(Marks { tripwires, group, known, changes, places: HashMap::new() })
    }

    /// Makes all marks, and then those on what appears, until the other thread ends the process.
    pub fn live(mut self, says: &Channel) {
        let first = match self.mark_all().and_then(|()| self.open_each()) {
            Ok(opened) => Marked::All { thread: gettid().as_raw(), opened },
            Err(unmarked) => Marked::Failed(unmarked.text()),
        };
        let mut heard = says.send(&first).is_ok() && matches!(first, Marked::All { .. });
        while heard {
            heard = match self.follow() {
                Ok(()) => true,
                Err(unmarked) => says.send(&Marked::Missed(unmarked.text())).is_ok(),
            };
        }
    }

    fn mark_all(&mut self) -> Result<(), Unmarked> {
        for tripwire in self.tripwires.clone() {
            if let Some(parent) = tripwire.parent() {
                // It may be replaced, by a rename over it say.
                self.look_for_changes(parent, parent)?;
            }
            self.mark_tree(&tripwire)?;
        }
        Ok(())
    }

    /// Opens what is watched, as a trial.
    fn open_each(&self) -> Result<Vec<(u64, u64)>, Unmarked> {
        let opened = self.tripwires.iter().map(|path| {
            let file = open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty());
            let stat = file.and_then(fstat).map_err(|errno| Unmarked { path: path.clone(), call: "open", errno })?;
            Ok((stat.st_dev, stat.st_ino))
        });
        opened.collect()
    }

    /// Waits for something to appear, and marks it.
    fn follow(&mut self) -> Result<(), Unmarked> {
        let unread = |errno| Unmarked { path: PathBuf::from("/"), call: "read of inotify", errno };
        let events = match self.changes.read_events() {
            Err(Errno::EINTR) => return Ok(()),
            events => events.map_err(unread)?,
        };
        let mut outcome = Ok(());
        for event in events {
            let marked = if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                self.mark_again()
            } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                self.places.remove(&event.wd);
                Ok(())
            } else if let Some(name) = event.name {
                self.mark_new(event.wd, &name)
            } else {
                Ok(())
            };
            outcome = outcome.and(marked);
        }
        outcome
    }

    /// Marks what has appeared in a directory, by the first of its names that still leads there.
    fn mark_new(&mut self, place: WatchDescriptor, name: &OsStr) -> Result<(), Unmarked> {
        let names = self.places.get(&place).into_iter().flatten().map(|directory| directory.join(name));
        let watched = |path: &PathBuf| self.tripwires.iter().any(|tripwire| path.starts_with(tripwire));
        for path in names.filter(watched).collect::<Vec<_>>() {
            match self.mark_tree(&path) {
                Err(unmarked) if unmarked.is_gone() => {}
                marked => return marked,
            }
        }
        Ok(())
    }

    /// Marks everything that there is now: what has appeared was not told of.
    fn mark_again(&mut self) -> Result<(), Unmarked> {
        for tripwire in self.tripwires.clone() {
            match self.mark_tree(&tripwire) {
                Err(unmarked) if !unmarked.is_gone() => return Err(unmarked),
                _ => {}
            }
        }
        Err(Unmarked { path: PathBuf::new(), call: QUEUE, errno: Errno::EOVERFLOW })
    }

    /// Marks what is at a path, and all beneath it.
    fn mark_tree(&mut self, top: &Path) -> Result<(), Unmarked> {
        let mut left = self.mark(top)?;
        while let Some(path) = left.pop() {
            match self.mark(&path) {
                Ok(more) => left.extend(more),
                Err(unmarked) if unmarked.is_gone() => {}
                Err(unmarked) => return Err(unmarked),
            }
        }
        Ok(())
    }

    /// Marks one file or directory. Returns what is in it.
    fn mark(&mut self, path: &Path) -> Result<Vec<PathBuf>, Unmarked> {
        let failed = |call: &'static str| {
            let path = path.to_owned();
            move |errno| Unmarked { path, call, errno }
        };
        // Whoever may write on the way must not lead this process elsewhere. A place only: opening it is no event.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let object = openat2(AT_FDCWD, path, how).map_err(failed("openat2"))?;
        let stat = fstat(&object).map_err(failed("stat"))?;
        let own = PathBuf::from(format!("/proc/self/fd/{}", object.as_raw_fd()));
        let mask = match stat.st_mode & SFlag::S_IFMT.bits() {
            kind if kind == SFlag::S_IFREG.bits() => OF_FILE,
            kind if kind == SFlag::S_IFDIR.bits() => OF_DIRECTORY,
            // Nothing else has contents of its own.
            _ => return Err(failed(KIND)(Errno::EINVAL)),
        };
        if mask == OF_DIRECTORY {
            // Before it is listed, so that nothing appears unseen.
            self.look_for_changes(&own, path)?;
        }
        let id = (stat.st_dev, stat.st_ino);
        // The number of a file that is gone is given to another one.
        let is_there = |path: &PathBuf| lstat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == id);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.get(&id).is_some_and(is_there) {
            known.insert(id, path.to_owned());
        }
        drop(known);
        self.group
            .mark(MarkFlags::FAN_MARK_ADD, mask, AT_FDCWD, Some(own.as_path()))
            .map_err(failed("fanotify_mark"))?;
        if mask == OF_FILE {
            return Ok(Vec::new());
        }
        let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        let entries = std::fs::read_dir(&own).map_err(errno).map_err(failed("opendir"))?;
        let names = entries.map(|entry| entry.map(|entry| path.join(entry.file_name())));
        names.collect::<Result<_, _>>().map_err(errno).map_err(failed("readdir"))
    }

    fn look_for_changes(&mut self, directory: &Path, path: &Path) -> Result<(), Unmarked> {
        let watched = self.changes.add_watch(directory, APPEARS | AddWatchFlags::IN_ONLYDIR);
        let place = watched.map_err(|errno| Unmarked { path: path.to_owned(), call: LOOK, errno })?;
        let names = self.places.entry(place).or_default();
        names.retain(|known| known != path);
        names.insert(0, path.to_owned());
        names.truncate(NAMES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::fanotify::{FanotifyResponse, Response};
    use std::fs;
    use std::os::fd::AsFd;

    /// Marks of two directories, with all that is in them.
    fn marked(top: &Path) -> Marks {
        let tripwires = ["one", "two"].map(|name| top.join(name)).to_vec();
        tripwires.iter().for_each(|path| fs::create_dir_all(path.join("deep")).unwrap());
        let group = Arc::new(super::super::group().unwrap());
        let asked = group.clone();
        // Who opens what is marked waits for an answer, this process too. It ends with the process.
        std::thread::spawn(move || answer_all(&asked));
        let mut marks = Marks::new(tripwires, group, Arc::default()).unwrap();
        marks.mark_all().unwrap();
        marks
    }

    fn answer_all(group: &Fanotify) {
        loop {
            poll(&mut [PollFd::new(group.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
            let Ok(events) = group.read_events() else { continue };
            for event in events.iter().filter(|event| event.mask().contains(MaskFlags::FAN_OPEN_PERM)) {
                let answer = FanotifyResponse::new(event.fd().unwrap(), Response::FAN_ALLOW);
                group.write_response(answer).unwrap();
            }
        }
    }

    fn names(marks: &Marks) -> Vec<PathBuf> {
        marks.known.lock().unwrap().values().cloned().collect()
    }

    #[test]
    fn what_was_not_told_of_is_marked_beside_what_is_gone_and_said() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let mut marks = marked(&top);
        fs::remove_dir_all(top.join("one")).unwrap();
        fs::create_dir_all(top.join("two/new/er")).unwrap();
        let text = marks.mark_again().unwrap_err().text();
        assert!(text.contains("may be on no record (fs.inotify.max_queued_events)"), "{text}");
        let names = names(&marks);
        assert!(["two/new", "two/new/er"].iter().all(|name| names.contains(&top.join(name))), "{names:?}");
    }

    #[test]
    fn what_appears_in_a_renamed_directory_is_marked_by_its_new_name() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let mut marks = marked(&top);
        fs::rename(top.join("one/deep"), top.join("one/moved")).unwrap();
        marks.follow().unwrap();
        fs::create_dir(top.join("one/moved/new")).unwrap();
        marks.follow().unwrap();
        assert!(names(&marks).contains(&top.join("one/moved/new")), "{:?}", names(&marks));
        // A name that is gone stands in no way of one that is there.
        assert!(marks.places.values().any(|names| *names == ["one/moved", "one/deep"].map(|name| top.join(name))));
    }
}
