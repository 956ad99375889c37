//! Attempts on what is shielded, and reads of what is watched. The shield itself is a mount or Landlock's: what is decided
//! here is what is on record, and where Landlock stands, which knows no names, what is told of them.

use super::reached::path_of_object;
use super::{Looked, Verdict};
use crate::observe::act::{Act, Address, Place};
use crate::observe::caller::Unread;
use crate::observe::decode::{TMPFILE, writes};
use crate::observe::told::{PathRead, PathTarget, Refusal, Target};
use crate::observe::walk::{self, pin_within};
use crate::observe::watched::{OUTSIDE, SHIELD};
use crate::policy::Axis;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, ResolveFlag, readlinkat};
use nix::libc;
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, faccessat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is kept, by its paths in the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The shields, under all their names.
    pub shields: Vec<PathBuf>,
    /// Paths whose reads are told of.
    pub tripwires: Vec<PathBuf>,
    /// Whether the kernel tells of each read itself (fanotify(7)): then an open need only be left to it, and what this process
    /// has opened for the caller is all that there is to tell.
    pub told_by_kernel: bool,
    /// Whether masks are mounted over the shields: then no name in one is found or missing.
    pub by_mounts: bool,
}

/// Where a place leads.
enum Leads {
    /// To this path, which may not be there.
    To(PathBuf),
    /// Into what another process sees, by this link of its, which this one may not follow.
    Outside {
        path: PathBuf,
        link: PathBuf,
    },
    Nowhere,
}

impl Kept {
    fn shields(&self, path: &Path) -> bool {
        self.shields.iter().any(|shield| path.starts_with(shield))
    }

    fn watches(&self, path: &Path) -> bool {
        self.tripwires.iter().any(|watched| path.starts_with(watched))
    }

    /// Whether Landlock keeps a directory from being listed, as it is on the way to a shield.
    fn is_above(&self, path: &Path) -> bool {
        !self.by_mounts && self.shields.iter().any(|shield| shield.starts_with(path) && shield != path)
    }
}

impl Looked<'_> {
    /// The verdict on what is shielded or watched; `None` where neither is concerned and the act is not for reading alone.
    pub(super) fn by_keeping(&self, kept: &Kept, act: &Act) -> Result<Option<Verdict>, Unread> {
        let goes_on = is_for_reading(act).then_some(Verdict::GoOn);
        for (place, resolve) in places(act) {
            let path = match self.leads(kept, place, resolve)? {
                Leads::Nowhere => continue,
                Leads::Outside { path, link } if goes_on.is_some() || matches!(act, Act::Access(..)) => {
                    self.caller.still_waits()?;
                    return Ok(Some(self.outside(&path, &link)));
                }
                Leads::Outside { .. } => continue,
                Leads::To(path) if self.is_closed_of_stage(kept, act, &path) => {
                    self.caller.still_waits()?;
                    return Ok(Some(self.outside(&path, &path)));
                }
                Leads::To(path) => path,
            };
            if let Act::Open { flags, .. } = act
                && is_listed(act)
                && kept.is_above(&path)
            {
                // Who may not read it by its mode hears that of the kernel.
                let readable = faccessat(AT_FDCWD, &path, AccessFlags::R_OK, AtFlags::AT_EACCESS).is_ok();
                let Some(listing) = self.judge.ways.listing(&path).filter(|_| readable) else {
                    return Ok(Some(Verdict::GoOn));
                };
                let close_on_exec = flags & libc::O_CLOEXEC as u64 != 0;
                if !kept.watches(&path) {
                    return Ok(Some(Verdict::Opened(listing, close_on_exec)));
                }
                self.caller.still_waits()?;
                return Ok(Some(Verdict::OpenedRead(listing, close_on_exec, self.read_of(&path))));
            }
            if kept.shields(&path) {
                self.caller.still_waits()?;
                let refusal = self.refusal(Errno::EACCES, target(&path), SHIELD);
                let refusal = Refusal { axis: Some(Axis::Filesystem), ..refusal };
                return Ok(Some(Verdict::Refuse(Errno::EACCES, refusal)));
            }
            if goes_on.is_some() && kept.watches(&path) && is_read(act, &path) {
                return self.goes_on_and_reads(kept, &path).map(Some);
            }
        }
        Ok(goes_on)
    }

    /// A look by way of another process: whether its own user may follow the link outside is the supervisor's to try. Those of
    /// the run's own processes lead past the shields.
    fn outside(&self, path: &Path, link: &Path) -> Verdict {
        let path = path.as_os_str().as_bytes().to_vec();
        let decisive = link.as_os_str().as_bytes().to_vec();
        let object = Target::Path(PathTarget { path, to: None, decisive, read_only: false, makes: false });
        let ours = link.starts_with(format!("/proc/{}", self.judge.stage));
        let refusal = self.refusal(Errno::EACCES, object, OUTSIDE);
        Verdict::Refuse(Errno::EACCES, Refusal { axis: ours.then_some(Axis::Privilege), ..refusal })
    }

    /// Whether what is opened for reading is the stage's memory or the like, which its mode closes: it sees past the masks.
    fn is_closed_of_stage(&self, kept: &Kept, act: &Act, path: &Path) -> bool {
        !kept.shields.is_empty()
            && is_listed(act)
            && path.starts_with(format!("/proc/{}", self.judge.stage))
            && faccessat(AT_FDCWD, path, AccessFlags::R_OK, AtFlags::AT_EACCESS) == Err(Errno::EACCES)
    }

    /// The verdict on an execution that goes on: of a watched program it is told.
    pub(super) fn executed(&self, kept: &Kept, place: &Place) -> Result<Verdict, Unread> {
        let path = match place.given.is_empty() {
            // By a descriptor, which may be of a place only (execveat(2), AT_EMPTY_PATH).
            true => match self.caller.hold(place.base) {
                Err(Unread::Form) => None,
                held => path_of_object(&held?),
            },
            false => match self.leads(kept, place, 0)? {
                Leads::To(path) => Some(path),
                _ => None,
            },
        };
        let Some(path) = path else { return Ok(Verdict::GoOn) };
        let executes = || faccessat(AT_FDCWD, &path, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok();
        if !kept.watches(&path) || path.is_dir() || !executes() {
            return Ok(Verdict::GoOn);
        }
        self.goes_on_and_reads(kept, &path)
    }

    /// A read of a watched path, which goes on.
    fn goes_on_and_reads(&self, kept: &Kept, path: &Path) -> Result<Verdict, Unread> {
        if kept.told_by_kernel {
            return Ok(Verdict::GoOn);
        }
        self.caller.still_waits()?;
        Ok(Verdict::GoOnRead(self.read_of(path)))
    }

    /// The verdict on an open that asks for more than to read: where it goes on, what it reads of a watched file is told of.
    pub(super) fn opened_to_read(&self, kept: &Kept, act: &Act, verdict: Verdict) -> Result<Verdict, Unread> {
        let Act::Open { at, flags, resolve, .. } = act else { return Ok(verdict) };
        let goes_on = match &verdict {
            Verdict::GoOn => true,
            // It was there, and nothing keeps the caller from opening it once more.
            Verdict::Opened(file, _) => fstat(file).is_ok_and(|file| file.st_size > 0),
            _ => false,
        };
        if !goes_on || !can_read(*flags) {
            return Ok(verdict);
        }
        let Leads::To(path) = self.leads(kept, at, *resolve)? else { return Ok(verdict) };
        if !kept.watches(&path) || path.is_dir() || !is_read(act, &path) {
            return Ok(verdict);
        }
        self.goes_on_and_reads(kept, &path)
    }

    fn read_of(&self, path: &Path) -> PathRead {
        let path = path.as_os_str().as_bytes().to_vec();
        PathRead {
            operation: self.watched.call.to_owned(),
            path,
            by: None,
            subject: self.judge.subject(self.caller.tid),
        }
    }

    fn leads(&self, kept: &Kept, place: &Place, resolve: u64) -> Result<Leads, Unread> {
        // A descriptor of what is shielded is not to be had.
        if place.given.is_empty() {
            return Ok(Leads::Nowhere);
        }
        let held;
        let absolute = place.given.starts_with(b"/") && resolve == 0;
        let base = match absolute {
            true => AT_FDCWD,
            false => match self.caller.hold(place.base) {
                Ok(base) => {
                    held = base;
                    held.as_fd()
                }
                Err(Unread::Form) => return Ok(Leads::Nowhere),
                Err(unread) => return Err(unread),
            },
        };
        let resolve = resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS.bits();
        match pin_within(base, &place.given, place.follow, resolve) {
            Ok(object) if !is_own(&object) => return Ok(path_of_object(&object).map_or(Leads::Nowhere, Leads::To)),
            // What is missing is not shielded where a mask answers for all in it; what /proc shows of this process may be
            // missing where the caller's is not.
            Err(Errno::ENOENT)
                if kept.by_mounts
                    && !may_be_of_processes(place)
                    && (kept.tripwires.is_empty() || !follows_a_link(base, place, resolve)) =>
            {
                return Ok(Leads::Nowhere);
            }
            _ => {}
        }
        let found = match walk::walk(self.caller, &self.walkable(place)?) {
            Ok(found) => found,
            Err(_) => return Ok(Leads::Nowhere),
        };
        let Some(path) = found.path() else { return Ok(Leads::Nowhere) };
        // The link itself is for everyone to see.
        let goes_through = place.follow || found.rest.contains(&b'/') || self.watched.call.starts_with("readlink");
        if goes_through
            && walk::is_proc(found.at.as_fd())
            && !walk::is_callers(self.caller, &found.at)
            && let Some(first) = found.rest.split(|byte| *byte == b'/').next()
            && matches!(readlinkat(&found.at, OsStr::from_bytes(first)), Err(Errno::EACCES | Errno::EPERM))
        {
            let link = walk::path_of(found.at.as_fd()).unwrap_or_default().join(OsStr::from_bytes(first));
            return Ok(Leads::Outside { path, link });
        }
        // The last component was not followed by the walk if it was not reached.
        Ok(Leads::To(path))
    }
}

fn is_own(object: &OwnedFd) -> bool {
    walk::path_of(object.as_fd()).is_some_and(|path| walk::is_of_this_process(&path))
}

/// Whether a link is met on the way to what is missing: one into /proc may lead on for the caller (proc_pid_fd(5)).
fn follows_a_link(base: BorrowedFd<'_>, place: &Place, resolve: u64) -> bool {
    let resolve = resolve | ResolveFlag::RESOLVE_NO_SYMLINKS.bits();
    matches!(pin_within(base, &place.given, place.follow, resolve), Err(Errno::ELOOP))
}

fn may_be_of_processes(place: &Place) -> bool {
    let has = |text: &[u8]| place.given.windows(text.len()).any(|window| window == text);
    has(b"proc") || has(b"self") || has(b"fd") || has(b"task")
}

/// Whether an act leaves everything as it is.
fn is_for_reading(act: &Act) -> bool {
    match act {
        Act::Look(_) => true,
        Act::Open { flags, .. } => !writes(*flags),
        _ => false,
    }
}

/// Whether an open that writes can read as well what is there already.
fn can_read(flags: u64) -> bool {
    let has = |flag: i32| flags & flag as u64 == flag as u64;
    let is_new = has(libc::O_CREAT | libc::O_EXCL) || flags & TMPFILE as u64 != 0;
    flags as i32 & libc::O_ACCMODE != libc::O_WRONLY && !is_new
}

fn is_listed(act: &Act) -> bool {
    matches!(act, Act::Open { flags, .. } if !writes(*flags) && flags & libc::O_PATH as u64 == 0)
}

/// Whether what is opened is read, if it can be: neither a look at a name nor a place only.
fn is_read(act: &Act, path: &Path) -> bool {
    let open = matches!(act, Act::Open { flags, .. } if flags & libc::O_PATH as u64 == 0);
    open && faccessat(AT_FDCWD, path, AccessFlags::R_OK, AtFlags::AT_EACCESS).is_ok()
}

fn places(act: &Act) -> Vec<(&Place, u64)> {
    match act {
        Act::Open { at, resolve, .. } => vec![(at, *resolve)],
        Act::Make(at, _)
        | Act::Remove(at, _)
        | Act::Change(at, _)
        | Act::Access(at, _)
        | Act::Execute(at)
        | Act::Look(at)
        | Act::Reach { address: Address::Unix(at), .. } => vec![(at, 0)],
        Act::Link(from, to) | Act::Rename(from, to, _) => vec![(from, 0), (to, 0)],
        _ => Vec::new(),
    }
}

fn target(path: &Path) -> Target {
    let path = path.as_os_str().as_bytes().to_vec();
    Target::Path(PathTarget { decisive: path.clone(), path, to: None, read_only: false, makes: false })
}
