//! HOME and the state directories: real directories of the image, for graders collect from them afterwards.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Why a directory could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// A call failed.
    #[error("{call} on {path}: {errno}", path = path.display())]
    Call {
        /// The call.
        call: &'static str,
        /// Its object.
        path: PathBuf,
        /// Its errno.
        errno: Errno,
    },
    /// The directory is there and belongs to someone else.
    #[error("{path} belongs to uid {owner}, not to the command's uid {wanted}; accepted: its own or a missing one",
        path = path.display())]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        wanted: u32,
    },
}

/// The directories that a run uses, and those of them that it has made.
#[derive(Debug, Default)]
pub struct Made {
    /// What was made, the outermost first.
    made: Vec<(OwnedFd, OsString)>,
    /// What is used, locked (flock(2)) so that no other run removes it: a mount that stands on it there goes with it.
    used: Vec<OwnedFd>,
}

/// Makes `home` and each of the `state` directories beneath it, given to the command, as far as they are missing. What
/// lies above HOME and is missing is root's. No symbolic link is followed below HOME: the command of an earlier run may
/// have put it there. HOME must be the command's; whose a state directory is that was there before, is the plan's affair.
pub fn make(home: &Path, state: &[PathBuf], uid: Uid, gid: Gid) -> Result<Made, HomeError> {
    let mut made = Made::default();
    let outcome = made.fill(home, state, uid, gid);
    match outcome {
        Ok(()) => Ok(made),
        Err(error) => {
            made.remove_if_empty()?;
            Err(error)
        }
    }
}

impl Made {
    fn fill(&mut self, home: &Path, state: &[PathBuf], uid: Uid, gid: Gid) -> Result<(), HomeError> {
        let root = open("/", DIRECTORY, Mode::empty()).map_err(failed("open", Path::new("/")))?;
        let at_home = self.descend(root, Path::new("/"), home, None, (uid, gid))?;
        owned_by(&at_home, home, uid)?;
        self.hold(&at_home);
        for path in state {
            let start = at_home.try_clone().map_err(|_| failed("dup", home)(Errno::EMFILE))?;
            let relative = path.strip_prefix(home).unwrap_or(path);
            match self.descend(start, home, relative, Some((uid, gid)), (uid, gid)) {
                Ok(directory) => self.hold(&directory),
                // A link or a file in its place, which the command of an earlier run may have put there: that is no reason
                // to refuse every run after it. What a mount needs was looked at by the plan.
                Err(HomeError::Call { errno: Errno::ENOTDIR | Errno::ELOOP, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens `path` below `start`, making what is missing: for `above` if given, else for root up to the last component,
    /// which is always `last`'s.
    fn descend(
        &mut self,
        start: OwnedFd,
        base: &Path,
        path: &Path,
        above: Option<(Uid, Gid)>,
        last: (Uid, Gid),
    ) -> Result<OwnedFd, HomeError> {
        let names: Vec<_> = path
            .components()
            .filter_map(|c| match c {
                Component::Normal(name) => Some(name),
                _ => None,
            })
            .collect();
        let (mut at, mut so_far) = (start, base.to_owned());
        for (number, name) in names.iter().enumerate() {
            so_far.push(name);
            let is_last = number + 1 == names.len();
            let made = mkdirat(&at, *name, Mode::from_bits_truncate(0o755));
            let fresh = match made {
                Ok(()) => true,
                Err(Errno::EEXIST) => false,
                // A read-only root may hold the directory already.
                Err(Errno::EROFS) => false,
                Err(errno) => return Err(failed("mkdirat", &so_far)(errno)),
            };
            // Links above HOME are the image's own; below it they are refused.
            let flags = if above.is_some() || is_last { DIRECTORY | OFlag::O_NOFOLLOW } else { DIRECTORY };
            let next = openat(&at, *name, flags, Mode::empty()).map_err(|errno| match made {
                Err(Errno::EROFS) if errno == Errno::ENOENT => failed("mkdirat", &so_far)(Errno::EROFS),
                _ => failed("openat", &so_far)(errno),
            })?;
            if fresh {
                self.made.push((at, (*name).to_owned()));
                let owner = if is_last { Some(last) } else { above };
                if let Some((uid, gid)) = owner {
                    fchownat(&next, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)
                        .map_err(failed("fchownat", &so_far))?;
                }
            }
            at = next;
        }
        Ok(at)
    }

    /// Says to other runs that it is used. The command may hold a lock of its own there, which is then as good.
    fn hold(&mut self, directory: &OwnedFd) {
        if let Ok(directory) = directory.try_clone()
            && flock(&directory, FlockOperation::NonBlockingLockShared).is_ok()
        {
            self.used.push(directory);
        }
    }

    /// Removes what was made and is empty and not used by another run: a run that left nothing in HOME leaves no HOME.
    pub fn remove_if_empty(&mut self) -> Result<(), HomeError> {
        self.used.clear();
        while let Some((parent, name)) = self.made.pop() {
            let directory = openat(&parent, name.as_os_str(), DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty());
            let locked = directory.as_ref().map(|it| flock(it, FlockOperation::NonBlockingLockExclusive));
            if locked == Ok(Err(rustix::io::Errno::WOULDBLOCK)) {
                continue;
            }
            match unlinkat(&parent, name.as_os_str(), UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(errno) => return Err(failed("unlinkat", Path::new(&name))(errno)),
            }
        }
        Ok(())
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

fn failed(call: &'static str, path: &Path) -> impl FnOnce(Errno) -> HomeError {
    let path = path.to_owned();
    move |errno| HomeError::Call { call, path, errno }
}

fn owned_by(directory: &OwnedFd, path: &Path, uid: Uid) -> Result<(), HomeError> {
    let owner = fstat(directory).map_err(failed("fstat", path))?.st_uid;
    if owner == uid.as_raw() {
        return Ok(());
    }
    Err(HomeError::Owner { path: path.into(), owner, wanted: uid.as_raw() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn ids() -> (Uid, Gid) {
        (Uid::from_raw(10001), Gid::from_raw(10001))
    }

    #[test]
    fn what_is_missing_is_made_and_goes_when_empty() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("home/agent");
        let state = [home.join(".cache"), home.join(".local/share/tool")];
        let (uid, gid) = ids();
        let mut made = make(&home, &state, uid, gid).unwrap();
        let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
        assert_eq!(owner(&top.path().join("home")), 0);
        for path in [&home, &state[0], &state[1], &home.join(".local")] {
            assert_eq!(owner(path), 10001, "{}", path.display());
        }
        std::fs::write(state[0].join("kept"), "").unwrap();
        made.remove_if_empty().unwrap();
        assert!(state[0].join("kept").exists() && !home.join(".local").exists());
    }

    #[test]
    fn what_another_run_uses_stays() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join("agent");
        let state = [home.join(".cache")];
        let (uid, gid) = ids();
        let mut first = make(&home, &state, uid, gid).unwrap();
        let mut second = make(&home, &state, uid, gid).unwrap();
        first.remove_if_empty().unwrap();
        assert!(state[0].exists());
        second.remove_if_empty().unwrap();
        assert!(state[0].exists(), "it has not made it");
        let alone = top.path().join("alone");
        let state = [".cache", ".local", ".local/bin"].map(|name| alone.join(name));
        make(&alone, &state, uid, gid).unwrap().remove_if_empty().unwrap();
        assert!(!alone.exists());
    }

    #[test]
    fn what_stands_in_the_way_below_home_is_neither_followed_nor_a_hindrance() {
        let top = tempfile::tempdir().unwrap();
        let (home, outside) = (top.path().join("agent"), top.path().join("outside"));
        for path in [&home, &outside] {
            std::fs::create_dir(path).unwrap();
        }
        std::os::unix::fs::chown(&home, Some(10001), Some(10001)).unwrap();
        symlink(&outside, home.join(".cache")).unwrap();
        std::fs::write(home.join(".local"), "").unwrap();
        let (uid, gid) = ids();
        let state = [".cache", ".cache/deeper", ".local/bin", ".config"].map(|name| home.join(name));
        make(&home, &state, uid, gid).unwrap();
        assert!(home.join(".config").is_dir() && home.join(".local").is_file());
        assert_eq!(std::fs::metadata(&outside).unwrap().uid(), 0);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn a_home_of_another_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let (uid, gid) = ids();
        assert!(matches!(make(top.path(), &[], uid, gid), Err(HomeError::Owner { owner: 0, .. })));
    }
}
