//! The directories above the shields, open for listing since before Landlock was: it grants a directory whole or not at all.

use super::Kept;
use crate::mutation;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The directories.
#[derive(Debug, Default)]
pub struct Ways {
    open: Vec<Way>,
}

/// One of them, open several times over: those who list it at one time do not share a place in it, nor its flags and locks
/// (open(2), "open file descriptions").
#[derive(Debug)]
struct Way {
    path: PathBuf,
    listings: Vec<OwnedFd>,
    /// How often it has been given out.
    given: AtomicUsize,
}

/// How often each is open. Who comes when so many list one at the same time begins anew for the first of them.
const LISTINGS: usize = 16;

impl Ways {
    /// Opens the directories above what is kept, where masks do not keep it. What cannot be opened is nobody's to list.
    pub fn open(kept: &Kept) -> Ways {
        let mut above: Vec<&Path> = kept.shields.iter().flat_map(|shield| shield.ancestors().skip(1)).collect();
        above.sort();
        above.dedup();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let listings = |path: &Path| (0..LISTINGS).map_while(|_| open(path, flags, Mode::empty()).ok()).collect();
        let above = if kept.by_mounts || mutation::left_out("shield-listings") { Vec::new() } else { above };
        let way = |path: &Path| Way { path: path.to_owned(), listings: listings(path), given: AtomicUsize::new(0) };
        Ways { open: above.into_iter().map(way).collect() }
    }

    /// The numbers of all descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.open.iter().flat_map(|way| &way.listings).map(AsRawFd::as_raw_fd)
    }

    /// A descriptor of a directory, at its beginning, for one who may read it: the one that was given out longest ago.
    pub(super) fn listing(&self, path: &Path) -> Option<OwnedFd> {
        let Way { listings, given, .. } = self.open.iter().find(|way| way.path == path)?;
        let fd = listings.get(given.fetch_add(1, Ordering::Relaxed) % listings.len().max(1))?;
        lseek(fd, 0, Whence::SeekSet).ok()?;
        fd.try_clone().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether two descriptors share a place: where one is moved, so is the other.
    fn is_shared(one: &OwnedFd, other: &OwnedFd) -> bool {
        let at = |fd: &OwnedFd| lseek(fd, 0, Whence::SeekCur).unwrap();
        let before = at(other);
        lseek(one, before + 1, Whence::SeekSet).unwrap();
        at(other) != before
    }

    #[test]
    fn as_many_as_are_open_list_a_directory_apart_whatever_others_list() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("one/shield")).unwrap();
        let kept = Kept { shields: vec![top.join("one/shield")], ..Kept::default() };
        let ways = Ways::open(&kept);
        let first = ways.listing(&top).unwrap();
        for _ in 0..LISTINGS - 1 {
            ways.listing(&top.join("one")).unwrap();
        }
        let second = ways.listing(&top).unwrap();
        assert!(!is_shared(&first, &second));
        let rest: Vec<OwnedFd> = (2..LISTINGS).map(|_| ways.listing(&top).unwrap()).collect();
        assert!(rest.iter().all(|other| !is_shared(&first, other)));
        assert!(is_shared(&first, &ways.listing(&top).unwrap()), "there are no more of them");
    }
}
