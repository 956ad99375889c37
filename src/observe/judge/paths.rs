//! The verdict on acts on paths: what is expected of the kernel, what it says when it is asked, and of what that is told.

use super::metadata::is_metadata;
use super::{Looked, Verdict};
use crate::observe::act::{Act, Address, Base, Made, Place};
use crate::observe::ask::{self, Answer};
use crate::observe::caller::{Name, Unread};
use crate::observe::predict::{self, Expected};
use crate::observe::told::{PathTarget, Refusal, Target};
use crate::observe::walk::{self, path_of};
use crate::observe::watched::PERMISSION;
use crate::policy::Axis;
use crate::sys::capability;
use nix::errno::Errno;
use nix::fcntl::ResolveFlag;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the names of an act lead.
pub(super) struct Led {
    /// Names of ours for it.
    pub names: Vec<Name>,
    /// The paths, where they can be told.
    pub targets: Vec<Option<PathBuf>>,
    /// Whether each is on a read-only mount.
    pub read_only: Vec<bool>,
    /// Whether one ends where only the caller sees on.
    pub hidden: bool,
}

impl Looked<'_> {
    /// openat2(2) with `RESOLVE_*`: where that leads the kernel alone tells, and it is asked from the caller's own base.
    fn open_within(&self, at: &Place, flags: u64, mode: u64, resolve: u64) -> Result<Verdict, Unread> {
        if let Some(shadow) = &self.judge.shadow {
            return self.opened_within_by_shadow(shadow, at, flags, mode, resolve);
        }
        let base = self.caller.hold(at.base)?;
        let given = CString::new(at.given.as_slice()).map_err(|_| Unread::Form)?;
        let expected = match walk::pin_within(base.as_fd(), &at.given, at.follow, resolve) {
            Ok(object) => predict::open(&walk::name_of(object)?, flags, self.ids.get()),
            Err(Errno::ENOENT) if flags & nix::libc::O_CREAT as u64 != 0 => Expected::MayBeRefused,
            Err(errno) => predict::refused(errno),
        };
        if expected == Expected::Passes {
            return Ok(Verdict::GoOn);
        }
        self.caller.still_waits()?;
        let answer = ask::open(self.caller.tid, Some(base.as_fd()), &given, flags, mode, resolve);
        let found = match ResolveFlag::from_bits_retain(resolve) {
            within if within.intersects(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_IN_ROOT) => {
                walk::found_within(base.as_fd(), &at.given, at.follow, resolve)
            }
            _ => walk::walk(self.caller, &self.caller.name(at)?).ok(),
        };
        let read_only = [found.as_ref().is_some_and(|found| self.is_read_only(found))];
        let path = [found.as_ref().and_then(walk::Found::path)];
        let act = Act::Open { at: at.clone(), flags, mode, resolve };
        Ok(self.answered(answer, &act, &path, &read_only))
    }

    /// An act on one path or two.
    pub(super) fn on_paths(&self, act: &Act) -> Result<Verdict, Unread> {
        let verdict = self.on_places(act)?;
        if let (Some(shadow), Act::Remove(..) | Act::Rename(..)) = (&self.judge.shadow, act) {
            shadow.forget(act, &self.names(act)?);
        }
        Ok(verdict)
    }

    /// Names of ours for the places of an act.
    fn names(&self, act: &Act) -> Result<Vec<Name>, Unread> {
        places(act).into_iter().map(|place| self.caller.name(place)).collect()
    }

    fn on_places(&self, act: &Act) -> Result<Verdict, Unread> {
        if let Some(barrier) = &self.judge.barrier {
            match act {
                Act::Change(at, change) if is_metadata(act) => return self.changed(barrier, at, change),
                Act::Access(at, mode) => return self.accessible(barrier, at, *mode),
                _ => {}
            }
            if let Some(verdict) = self.by_barrier(barrier, act)? {
                return Ok(verdict);
            }
        }
        if let Act::Open { at, flags, mode, resolve: resolve @ 1.. } = act {
            return self.open_within(at, *flags, *mode, *resolve);
        }
        let mut names = self.names(act)?;
        if let Some(mounted) = &self.judge.mounted
            && let Some(verdict) = self.by_mount(mounted, act, &names)?
        {
            return Ok(verdict);
        }
        if let Some(shadow) = &self.judge.shadow {
            shadow.note(&names);
        }
        let mut expected = self.expected(act, &names);
        let too_long = names.iter().any(Name::is_too_long);
        if expected == Expected::Passes && !too_long && places(act).iter().all(|at| walk::is_plain(self.caller, at)) {
            return Ok(Verdict::GoOn);
        }
        // Before a refusal is believed: was it the caller's path or our way to it?
        if self.caller.find_closed() {
            names = self.names(act)?;
            expected = self.expected(act, &names);
        }
        // What is refused for its descriptor is so before anyone looks where it leads.
        if !self.has_descriptors(act)? {
            return Ok(Verdict::GoOn);
        }
        let mut found = Vec::new();
        for (name, place) in names.iter().zip(places(act)) {
            match walk::walk(self.caller, name) {
                // The kernel says so too, whomever the links mean.
                Err(Errno::ELOOP) => return Ok(Verdict::GoOn),
                // The way leads through what only this process may follow.
                Err(Errno::EACCES) => {
                    self.caller.still_waits()?;
                    let path = place.given.clone();
                    let object = PathTarget { decisive: path.clone(), path, to: None, read_only: false, makes: false };
                    return Ok(self.denied(Errno::EACCES, Target::Path(object), PERMISSION, None));
                }
                walked => found.push(walked.ok()),
            }
        }
        let targets: Vec<Option<PathBuf>> = found.iter().map(|f| f.as_ref().and_then(walk::Found::path)).collect();
        let read_only: Vec<bool> = found.iter().map(|f| f.as_ref().is_some_and(|f| self.is_read_only(f))).collect();
        let by_self = found.iter().flatten().any(|found| found.by_self);
        let hidden = found.iter().flatten().any(|found| found.hidden);
        // A shadow's act would not be taken back: where a link leads is settled before the kernel is asked by it.
        if by_self || too_long || self.judge.shadow.is_some() {
            names = found
                .into_iter()
                .zip(names)
                .map(|(found, name)| found.and_then(|found| found.into_name(name.follow)).unwrap_or(name))
                .collect();
        }
        if let Some(shadow) = &self.judge.shadow {
            let led = Led { names, targets, read_only, hidden };
            return self.by_shadow(shadow, act, led);
        }
        if by_self || too_long {
            expected = self.expected(act, &names);
        }
        if expected == Expected::Passes {
            return Ok(Verdict::GoOn);
        }
        // What is done from here on is done with what was read.
        self.caller.still_waits()?;
        let answer = self.ask(act, &names);
        Ok(self.told(answer, act, &Led { names, targets, read_only, hidden }))
    }

    /// What is answered to an act on these names.
    pub(super) fn told(&self, answer: Answer, act: &Act, led: &Led) -> Verdict {
        // The caller may see more than this process.
        if matches!(answer, Answer::Refused(_)) && led.hidden {
            let targets = &led.targets;
            return Verdict::Unknown(format!(
                "{}: its caller is not dumpable and names itself {targets:?}",
                self.watched.call
            ));
        }
        if let (Answer::Refused(Errno::EPERM | Errno::EROFS), Act::Change(_, change), [name]) =
            (&answer, act, &led.names[..])
            && predict::is_for_none(name, change)
        {
            return Verdict::GoOn;
        }
        self.answered(answer, act, &led.targets, &led.read_only)
    }

    /// What is answered to an act on paths that the kernel was asked about.
    fn answered(&self, answer: Answer, act: &Act, paths: &[Option<PathBuf>], read_only: &[bool]) -> Verdict {
        match (answer, act) {
            (Answer::Done(value), _) => Verdict::Done(value),
            (Answer::Opened(file), Act::Open { flags, .. }) => {
                Verdict::Opened(file, flags & nix::libc::O_CLOEXEC as u64 != 0)
            }
            (Answer::Untouched | Answer::Opened(_), _) => Verdict::GoOn,
            (Answer::Refused(errno), _) => {
                let object = target(act, paths, read_only);
                let rule = if errno == Errno::EROFS { "read-only" } else { PERMISSION };
                // Where nothing would be written it is no matter of the tree: root's own right is what is missing.
                let right = match act {
                    _ if writes(act) => None,
                    Act::Open { .. } => Some(capability::FOWNER),
                    _ => Some(capability::DAC_OVERRIDE),
                };
                match self.denied(errno, object, rule, right) {
                    Verdict::Refuse(errno, refusal) if right.is_some() => {
                        Verdict::Refuse(errno, Refusal { axis: Some(Axis::Privilege), ..refusal })
                    }
                    verdict => verdict,
                }
            }
        }
    }

    /// Whether what an act is made on is what the call takes: a file that is open for more than its place, a socket of the
    /// family.
    pub(super) fn has_descriptors(&self, act: &Act) -> Result<bool, Unread> {
        match act {
            Act::Change(Place { base: Base::File(fd), .. }, _) => self.caller.has_file(*fd),
            Act::Make(_, Made::Socket(socket)) | Act::Reach { socket, .. } => self.has_socket(*socket, true),
            _ => Ok(true),
        }
    }

    /// Whether a descriptor is a socket of the unix family, or, if that is not asked for, of another one.
    pub(super) fn has_socket(&self, fd: i32, unix: bool) -> Result<bool, Unread> {
        Ok(self.caller.socket(fd)?.is_some_and(|inode| is_unix(inode) == unix))
    }

    /// Whether what was found is on a read-only mount, or where one would be.
    pub(super) fn is_read_only(&self, found: &walk::Found) -> bool {
        let barrier = self.judge.barrier.as_ref().zip(path_of(found.at.as_fd()));
        barrier.is_some_and(|(barrier, path)| barrier.protects(&path))
            || fstatvfs(&found.at).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_RDONLY))
    }

    pub(super) fn expected(&self, act: &Act, names: &[Name]) -> Expected {
        let ids = self.ids.get();
        match (act, names) {
            (Act::Open { flags, .. }, [name]) => predict::open(name, *flags, ids),
            (Act::Make(_, made), [name]) => predict::make(name, made),
            (Act::Link(..), [from, to]) => predict::link(from, to, ids),
            (Act::Rename(_, _, flags), [from, to]) => predict::rename(from, to, *flags, ids),
            (Act::Remove(..), [name]) => predict::remove(name, ids),
            (Act::Change(_, change), [name]) => predict::change(name, change, ids),
            (Act::Reach { .. }, [name]) => predict::reach(name),
            _ => Expected::Passes,
        }
    }

    pub(super) fn ask(&self, act: &Act, names: &[Name]) -> Answer {
        let tid = self.caller.tid;
        match (act, names) {
            (Act::Open { flags, mode, .. }, [name]) => ask::open(tid, None, &name.text, *flags, *mode, 0),
            (Act::Make(_, made), [name]) => ask::make(tid, name, made),
            (Act::Link(at, _), [from, to]) => ask::link(from, at.given.is_empty(), to),
            (Act::Rename(_, _, flags), [from, to]) => ask::rename(from, to, *flags),
            (Act::Remove(_, directory), [name]) => ask::remove(name, *directory),
            (Act::Change(_, change), [name]) => ask::change(name, change),
            (Act::Reach { .. }, [name]) => ask::reach(name),
            _ => Answer::Untouched,
        }
    }
}

fn places(act: &Act) -> Vec<&Place> {
    match act {
        Act::Open { at, .. } | Act::Make(at, _) | Act::Remove(at, _) | Act::Change(at, _) => vec![at],
        Act::Reach { address: Address::Unix(at), .. } => vec![at],
        Act::Link(from, to) | Act::Rename(from, to, _) => vec![from, to],
        _ => Vec::new(),
    }
}

/// Whether an act writes to a file, a directory or what is known of them.
fn writes(act: &Act) -> bool {
    match act {
        Act::Open { flags, .. } => crate::observe::decode::writes(flags & !(nix::libc::O_NOATIME as u64)),
        Act::Reach { .. } => false,
        _ => true,
    }
}

/// Whether the inode is that of a unix socket (proc_pid_net(5)): the last column but for the path.
fn is_unix(inode: u64) -> bool {
    let sockets = crate::procfs::read("/proc/self/net/unix").unwrap_or_default();
    let inode = inode.to_string();
    sockets.lines().any(|line| line.split_ascii_whitespace().nth(6) == Some(&inode))
}

fn target(act: &Act, paths: &[Option<PathBuf>], read_only: &[bool]) -> Target {
    let bytes = |index: usize| paths.get(index).and_then(|p| p.as_ref()).map(|p| p.as_os_str().as_bytes().to_vec());
    let Some(path) = bytes(0) else { return Target::None };
    let to = match act {
        Act::Make(_, Made::Symlink(target)) => Some(target.clone()),
        _ => bytes(1),
    };
    // Of two, the one on a read-only mount is the one that was refused.
    let second = !read_only.first().is_some_and(|r| *r) && read_only.get(1).is_some_and(|r| *r);
    let decisive = if second { bytes(1).unwrap_or_else(|| path.clone()) } else { path.clone() };
    let makes = matches!(act, Act::Open { flags, .. } if flags & nix::libc::O_CREAT as u64 != 0);
    Target::Path(PathTarget { path, to, decisive, read_only: read_only.iter().any(|r| *r), makes })
}
