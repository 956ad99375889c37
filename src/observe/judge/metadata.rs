//! Changes of what is known of a file beside its contents, where there are no mounts: Landlock does not see them, so that
//! such a call is never let go on. The object is pinned, judged by its own path, and changed by this process, which can do
//! nothing that the command could not; the kernel's answer to it is the caller's.

use super::reached::{is_protected, path_of_object};
use super::read_only::READ_ONLY;
use super::{Looked, Verdict};
use crate::confine::landlock::Barrier;
use crate::observe::act::{Act, Base, Change, Place};
use crate::observe::ask::{self, is_refusal};
use crate::observe::caller::{Name, Unread};
use crate::observe::predict::{self, Expected};
use crate::observe::told::{PathTarget, Refusal, Target};
use crate::observe::walk::{self, name_of};
use crate::observe::watched::PERMISSION;
use crate::policy::Axis;
use nix::errno::Errno;
use nix::libc;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Whether an act is such a change.
pub(super) fn is_metadata(act: &Act) -> bool {
    matches!(act, Act::Change(_, change) if !matches!(change, Change::Length(_)))
}

/// What a change's own form has the kernel answer before it looks at the object's mount.
fn formed(change: &Change) -> Result<(), Errno> {
    const SECOND: std::ops::Range<i64> = 0..1_000_000_000;
    match change {
        Change::Times(Some(times)) => {
            let valid = |of: i64| SECOND.contains(&of) || [libc::UTIME_NOW, libc::UTIME_OMIT].contains(&of);
            if times.iter().all(|(_, of)| valid(*of)) { Ok(()) } else { Err(Errno::EINVAL) }
        }
        Change::SetXattr(.., how) if how & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 => Err(Errno::EINVAL),
        Change::SetXattr(name, ..) | Change::RemoveXattr(name) if name.is_empty() => Err(Errno::ERANGE),
        _ => Ok(()),
    }
}

/// Whether both times stay as they are: then not even the path is looked at (utimensat(2)).
fn leaves_times(change: &Change) -> bool {
    matches!(change, Change::Times(Some(times)) if times.iter().all(|(_, of)| *of == libc::UTIME_OMIT))
}

fn is_of_processes(name: &Name) -> bool {
    name.held.as_ref().is_some_and(|held| walk::is_proc(held.as_fd()))
}

impl Looked<'_> {
    /// Makes a change for the caller, or refuses it. The answer is final.
    pub(super) fn changed(&self, barrier: &Barrier, at: &Place, change: &Change) -> Result<Verdict, Unread> {
        if leaves_times(change) {
            return Ok(Verdict::Done(0));
        }
        // What attributes look like is told before anyone looks where they are to be.
        let early = matches!(change, Change::SetXattr(..) | Change::RemoveXattr(_));
        if let (Err(errno), true) = (formed(change), early) {
            return Ok(Verdict::RefuseSilently(errno));
        }
        if let Base::File(fd) = at.base
            && !self.caller.has_file(fd)?
        {
            self.caller.still_waits()?;
            return Ok(Verdict::RefuseSilently(Errno::EBADF));
        }
        let object = self.object(at)?;
        // What is done from here on is done with what was read.
        self.caller.still_waits()?;
        let object = match object {
            Ok(object) => object,
            Err(errno) if is_refusal(errno) => {
                let found = walk::walk(self.caller, &self.walkable(at)?).ok();
                let read_only = found.as_ref().is_some_and(|found| self.is_read_only(found));
                return Ok(self.by_permission(errno, found.and_then(|found| found.path()), read_only));
            }
            Err(errno) => return Ok(Verdict::RefuseSilently(errno)),
        };
        if let Err(errno) = formed(change) {
            return Ok(Verdict::RefuseSilently(errno));
        }
        let path = path_of_object(&object);
        let protected = is_protected(barrier, &object, || self.directory_of(at, &object));
        let name = name_of(object)?;
        match (protected, path) {
            (true, _) if predict::is_for_none(&name, change) => Ok(Verdict::RefuseSilently(Errno::EROFS)),
            (true, Some(path)) => Ok(self.held(barrier, Errno::EROFS, &[path], None, false)),
            (true, None) => Ok(self.by_permission(Errno::EROFS, None, true)),
            (false, path) if matches!(change, Change::OfFileSystem) && !predict::is_for_none(&name, change) => {
                // As by a file system that has no such request.
                let refused = self.by_permission(Errno::ENOTTY, path, false);
                Ok(match refused {
                    Verdict::Refuse(errno, refusal) => {
                        Verdict::Refuse(errno, Refusal { axis: Some(Axis::Filesystem), ..refusal })
                    }
                    other => other,
                })
            }
            (false, path) => self.made_on(&name, path, change),
        }
    }

    fn made_on(&self, name: &Name, path: Option<PathBuf>, change: &Change) -> Result<Verdict, Unread> {
        Ok(match ask::changed(name, change) {
            Ok(value) => Verdict::Done(value),
            // A descriptor that nobody can open once more: what it could do there is not to be done by anyone else.
            Err(Errno::EAGAIN) if matches!(change, Change::Inode(..)) => self.by_permission(Errno::EPERM, path, false),
            // What is shown of a process takes few changes, from whomever.
            Err(Errno::EPERM) if is_of_processes(name) && self.would_pass(name, change) => {
                Verdict::RefuseSilently(Errno::EPERM)
            }
            // The kernel's answer to everyone.
            Err(Errno::EPERM) if predict::is_for_none(name, change) => Verdict::RefuseSilently(Errno::EPERM),
            Err(errno) if is_refusal(errno) => self.by_permission(errno, path, errno == Errno::EROFS),
            Err(errno) => Verdict::RefuseSilently(errno),
        })
    }

    fn would_pass(&self, name: &Name, change: &Change) -> bool {
        predict::change(name, change, self.judge.ids) == Expected::Passes
    }

    fn by_permission(&self, errno: Errno, path: Option<PathBuf>, read_only: bool) -> Verdict {
        let object = path.map_or(Target::None, |path| {
            let path = path.as_os_str().as_bytes().to_vec();
            Target::Path(PathTarget { decisive: path.clone(), path, to: None, read_only, makes: false })
        });
        let rule = if errno == Errno::EROFS { READ_ONLY } else { PERMISSION };
        self.denied(errno, object, rule, None)
    }
}
