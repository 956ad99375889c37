//! Which processes hold a socket: by the links in /proc/PID/fd (proc_pid_fd(5)).

use crate::observe::subject::Status;
use crate::procfs;
use nix::errno::Errno;
use std::fs::{read_dir, read_link};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Most descriptors that one search looks at.
const DESCRIPTOR_LIMIT: usize = 65_536;
/// Longest that one search may take.
const TIME_LIMIT: Duration = Duration::from_millis(50);

/// Who holds a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// One process, at this descriptor of its own, and no other.
    One {
        /// The process.
        pid: u32,
        /// One of its descriptors.
        fd: u32,
    },
    /// None that was seen.
    Nobody,
    /// Several, or not everything that had to be looked at could be.
    Undecided,
}

impl Holder {
    /// Whether the descriptor still is the socket's.
    pub fn still_holds(self, inode: u64) -> bool {
        match self {
            Holder::One { pid, fd } => is_socket(&format!("/proc/{pid}/fd/{fd}"), inode).unwrap_or(false),
            Holder::Nobody | Holder::Undecided => false,
        }
    }
}

/// A search with its bounds.
#[derive(Debug)]
pub struct Search {
    inode: u64,
    deadline: Instant,
    descriptors: usize,
}

/// A bound was reached.
struct Exhausted;

impl Search {
    /// For the socket with this inode.
    pub fn new(inode: u64) -> Search {
        Search { inode, deadline: Instant::now() + TIME_LIMIT, descriptors: DESCRIPTOR_LIMIT }
    }

    /// Looks through all processes that have `uid` as one of their uids.
    pub fn among(mut self, uid: u32) -> Holder {
        let mut found = Holder::Nobody;
        let Ok(entries) = read_dir("/proc") else { return Holder::Undecided };
        for entry in entries.flatten() {
            if self.in_time().is_err() {
                return Holder::Undecided;
            }
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(owner) = entry.metadata().map(|entry| entry.uid()) else { continue };
            if owner != uid && !(owner == 0 && has_uid(pid, uid)) {
                continue;
            }
            match (self.within(pid), found) {
                (Ok(None), _) => {}
                (Ok(Some(fd)), Holder::Nobody) => found = Holder::One { pid, fd },
                (Ok(Some(_)) | Err(Exhausted), _) => return Holder::Undecided,
            }
        }
        found
    }

    /// Whether a process holds the socket; `None` when that cannot be told.
    pub fn in_process(mut self, pid: u32) -> Option<bool> {
        self.within(pid).ok().map(|fd| fd.is_some())
    }

    fn in_time(&self) -> Result<(), Exhausted> {
        if Instant::now() > self.deadline { Err(Exhausted) } else { Ok(()) }
    }

    /// The first descriptor of a process that is the socket's.
    fn within(&mut self, pid: u32) -> Result<Option<u32>, Exhausted> {
        self.in_time()?;
        let directory = format!("/proc/{pid}/fd");
        let entries = match read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => return Ok(None),
            // Where it cannot be read it may hold anything.
            Err(_) => return Err(Exhausted),
        };
        for entry in entries.flatten() {
            self.descriptors = self.descriptors.checked_sub(1).ok_or(Exhausted)?;
            if self.descriptors.is_multiple_of(64) {
                self.in_time()?;
            }
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match is_socket(&format!("{directory}/{fd}"), self.inode) {
                Ok(true) => return Ok(Some(fd)),
                Ok(false) => {}
                Err(error) if is_gone(&error) => {}
                Err(_) => return Err(Exhausted),
            }
        }
        Ok(None)
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ESRCH))
}

fn is_socket(link: &str, inode: u64) -> io::Result<bool> {
    Ok(read_link(link)?.as_os_str().as_bytes() == format!("socket:[{inode}]").as_bytes())
}

/// Whether a process whose files belong to root has the uid all the same: one that is not dumpable (proc(5)), or that has
/// run a set-id program.
fn has_uid(pid: u32, uid: u32) -> bool {
    let status = procfs::directory(pid).ok().and_then(|directory| {
        let mut buffer = [0; 8192];
        Status::parse(procfs::read_at(directory.as_fd(), "status", &mut buffer).ok()?)
    });
    status.is_some_and(|status| status.uids.contains(&uid))
}
