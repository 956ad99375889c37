//! Whether a thread is one of the sandbox's.

use crate::observe::subject::{Stat, Status};
use crate::procfs;
use std::os::fd::{AsFd, OwnedFd};

/// How the sandbox's processes are known: by their real uid, which is nobody else's, or as descendants of the stage, whatever
/// a set-id program among them has become.
#[derive(Debug, Clone, Copy)]
pub struct Sandbox {
    /// The command's uid.
    pub uid: u32,
    /// The process that all of the command's descend from.
    pub stage: u32,
    /// The supervisor's, from which others descend.
    pub supervisor: u32,
}

/// Where a thread belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// To the sandbox.
    Inside,
    /// Elsewhere.
    Outside,
    /// It has ended.
    Gone,
}

/// How far up ancestors are looked for.
const ABOVE: usize = 4096;

impl Sandbox {
    /// Where a thread belongs.
    pub fn side(&self, tid: i32) -> Side {
        // Who is not within this PID namespace has no number here, and is none of the sandbox's.
        let Some(tid) = u32::try_from(tid).ok().filter(|tid| *tid > 0) else { return Side::Outside };
        let Some((uid, parent)) = look(tid) else { return Side::Gone };
        if uid == self.uid || self.descends(parent) { Side::Inside } else { Side::Outside }
    }

    fn descends(&self, mut parent: u32) -> bool {
        for _ in 0..ABOVE {
            if parent == self.stage {
                return true;
            }
            if parent <= 1 || parent == self.supervisor {
                return false;
            }
            // A parent that ends meanwhile has handed its children on, to the stage if they are the sandbox's.
            let Some(next) = procfs::directory(parent).ok().and_then(|directory| parent_of(&directory)) else {
                return false;
            };
            parent = next;
        }
        false
    }
}

/// A thread's real uid and its process's parent.
fn look(tid: u32) -> Option<(u32, u32)> {
    let directory = procfs::directory(tid).ok()?;
    let mut status = [0; 8192];
    let status = Status::parse(procfs::read_at(directory.as_fd(), "status", &mut status).ok()?)?;
    Some((status.uid, parent_of(&directory)?))
}

fn parent_of(directory: &OwnedFd) -> Option<u32> {
    let mut stat = [0; 2048];
    Some(Stat::parse(procfs::read_at(directory.as_fd(), "stat", &mut stat).ok()?)?.parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpid, getppid, getuid};

    #[test]
    fn a_thread_belongs_by_its_uid_or_by_its_descent() {
        let own = getpid().as_raw();
        let (uid, nobody) = (getuid().as_raw(), u32::MAX - 1);
        let parent = getppid().as_raw().unsigned_abs();
        let sandbox = |uid, stage| Sandbox { uid, stage, supervisor: nobody };
        assert_eq!(sandbox(uid, nobody).side(own), Side::Inside);
        assert_eq!(sandbox(nobody, parent).side(own), Side::Inside);
        assert_eq!(sandbox(nobody, nobody).side(own), Side::Outside);
        assert_eq!(Sandbox { supervisor: parent, ..sandbox(nobody, 1) }.side(own), Side::Outside);
        assert_eq!(sandbox(uid, nobody).side(0), Side::Outside);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let id = ended.id();
        ended.wait().unwrap();
        assert_eq!(sandbox(uid, nobody).side(id as i32), Side::Gone);
    }
}
