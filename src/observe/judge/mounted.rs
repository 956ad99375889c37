//! Names that cannot be moved, removed or replaced because a mount of the sandbox's own stands there: the kernel says EBUSY of
//! the mount, and EXDEV of what would go into it or come out of it. Without these mounts nobody would be refused, so each is
//! a denial, whatever the error is called.

use super::{Looked, Verdict};
use crate::install::mounts::MountPlan;
use crate::observe::act::Act;
use crate::observe::ask;
use crate::observe::caller::{Name, Unread};
use crate::observe::told::{PathTarget, Target};
use crate::observe::walk;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The mounts of the sandbox's own within what the command may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where they are.
    points: BTreeSet<PathBuf>,
    /// Those that are read-only, with all below.
    trees: Vec<PathBuf>,
}

impl Mounted {
    /// Those of a plan, if it has any.
    pub fn of(plan: &MountPlan) -> Option<Mounted> {
        let in_writable = |path: &&PathBuf| plan.writable.iter().any(|w| path.starts_with(&w.path) && **path != w.path);
        let own = plan
            .read_only_within
            .iter()
            .chain(&plan.masks)
            .chain(&plan.shields)
            .chain(plan.files.iter().map(|file| &file.target));
        let points: BTreeSet<PathBuf> = own.filter(in_writable).cloned().chain(plan.pinned()).collect();
        let trees = plan.read_only_within.clone();
        (!points.is_empty()).then_some(Mounted { points, trees })
    }

    fn holds(&self, path: &Path) -> bool {
        self.points.contains(path) || self.trees.iter().any(|tree| path.starts_with(tree))
    }
}

impl Looked<'_> {
    /// The verdict on a move, a removal or a link that such a mount concerns; `None` where none does.
    pub(super) fn by_mount(&self, mounted: &Mounted, act: &Act, names: &[Name]) -> Result<Option<Verdict>, Unread> {
        let moves = matches!(act, Act::Rename(..) | Act::Remove(..) | Act::Link(..));
        if !moves {
            return Ok(None);
        }
        let paths: Vec<Option<PathBuf>> =
            names.iter().map(|name| walk::walk(self.caller, name).ok().and_then(|found| found.path())).collect();
        let Some(held) = paths.iter().flatten().find(|path| mounted.holds(path)) else { return Ok(None) };
        // What is done from here on is done with what was read.
        self.caller.still_waits()?;
        let outcome = match (act, names) {
            (Act::Rename(_, _, flags), [from, to]) => ask::renamed(from, to, *flags),
            (Act::Remove(_, directory), [name]) => ask::removed(name, *directory),
            (Act::Link(at, _), [from, to]) => ask::linked(from, at.given.is_empty(), to),
            _ => return Ok(None),
        };
        Ok(match outcome {
            Ok(value) => Some(Verdict::Done(value)),
            Err(errno @ (Errno::EBUSY | Errno::EXDEV)) => {
                let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
                let [path, to] = [0, 1].map(|index| paths.get(index).and_then(Option::as_ref).map(bytes));
                let decisive = bytes(held);
                let path = path.unwrap_or_else(|| decisive.clone());
                let target = PathTarget { path, to, decisive, read_only: true, makes: false };
                let refusal = self.refusal(errno, Target::Path(target), super::read_only::READ_ONLY);
                Some(Verdict::Refuse(errno, refusal))
            }
            // Any other error is for the kernel to give, or told of as everywhere.
            Err(_) => None,
        })
    }
}
