//! What probes try to change in a protected tree besides making a file: names, and what is known of an object. Whatever
//! would succeed changes nothing: names are taken away again, and attributes are set to what they are.

use super::child::{errno_of, name_of};
use super::filesystem::scratch_name;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, futimens, lstat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{
    AccessFlags, Gid, Uid, UnlinkatFlags, access, fchown, fchownat, linkat, mkdir, mkfifoat, symlinkat, unlinkat,
};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A tree that the command may not search answers for itself: the kernel looks at the directory's mode first.
fn searched(tree: &Path, tried: impl FnOnce() -> Vec<String>) -> Vec<String> {
    match access(tree, AccessFlags::X_OK) {
        Err(Errno::EACCES) => vec!["not to be searched".into()],
        _ => tried(),
    }
}

/// Makes a directory, a symbolic link and a fifo, moves and removes a name that is not there, and links a file that is.
pub fn names_in(tree: &Path) -> Vec<String> {
    searched(tree, || {
        let (new, other) = (tree.join(scratch_name()), tree.join(format!("{}-moved", scratch_name())));
        let undone = |made: Result<(), Errno>, flag: UnlinkatFlags| {
            let gone = made.is_err() || unlinkat(AT_FDCWD, &new, flag).is_ok();
            made.map(|()| if gone { "made" } else { "made and left there" })
        };
        let mut tries = vec![
            undone(mkdir(&new, Mode::S_IRWXU), UnlinkatFlags::RemoveDir),
            undone(symlinkat("/", AT_FDCWD, &new), UnlinkatFlags::NoRemoveDir),
            undone(mkfifoat(AT_FDCWD, &new, Mode::S_IRUSR), UnlinkatFlags::NoRemoveDir),
            renameat(AT_FDCWD, &new, AT_FDCWD, &other).map(|()| "moved"),
            unlinkat(AT_FDCWD, &new, UnlinkatFlags::NoRemoveDir).map(|()| "removed"),
        ];
        if let Some(file) = a_file_in(tree) {
            let linked = linkat(AT_FDCWD, &file, AT_FDCWD, &new, AtFlags::empty());
            tries.push(undone(linked, UnlinkatFlags::NoRemoveDir));
        }
        let told =
            |outcome: Result<&str, Errno>| outcome.map_or_else(name_of, |done| format!("{}: {done}", tree.display()));
        tries.into_iter().map(told).collect()
    })
}

/// Sets mode, owner and times to what they are, of the tree itself and of a file in it; of the file not the owner, for
/// that takes away what an execution of it gives (chown(2)).
pub fn attributes_in(tree: &Path) -> Vec<String> {
    searched(tree, || {
        let mut seen = attributes_of(tree, true);
        seen.extend(a_file_in(tree).into_iter().flat_map(|file| attributes_of(&file, false)));
        seen
    })
}

fn attributes_of(object: &Path, owner_too: bool) -> Vec<String> {
    let stat = match lstat(object) {
        Ok(stat) => stat,
        Err(errno) => return vec![name_of(errno)],
    };
    let mode = Mode::from_bits_truncate(stat.st_mode);
    let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    let (read, written) =
        (TimeSpec::new(stat.st_atime, stat.st_atime_nsec), TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec));
    let mut seen = vec![
        errno_of(fchmodat(AT_FDCWD, object, mode, FchmodatFlags::FollowSymlink)),
        errno_of(utimensat(AT_FDCWD, object, &read, &written, UtimensatFlags::NoFollowSymlink)),
    ];
    if owner_too {
        seen.push(errno_of(fchownat(AT_FDCWD, object, owner.0, owner.1, AtFlags::AT_SYMLINK_NOFOLLOW)));
    }
    seen
}

/// The same by a descriptor that is open for reading, and by its name in /proc.
pub fn attributes_by_descriptor(tree: &Path) -> Vec<String> {
    let stat = match lstat(tree) {
        Ok(stat) => stat,
        Err(errno) => return vec![name_of(errno)],
    };
    let fd = match open(tree, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::EACCES) => return vec!["not to be opened".into()],
        Err(errno) => return vec![name_of(errno)],
    };
    let mode = Mode::from_bits_truncate(stat.st_mode);
    let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    let (read, written) =
        (TimeSpec::new(stat.st_atime, stat.st_atime_nsec), TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec));
    let name = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    vec![
        errno_of(fchmod(&fd, mode)),
        errno_of(fchown(&fd, owner.0, owner.1)),
        errno_of(futimens(&fd, &read, &written)),
        errno_of(fchmodat(AT_FDCWD, &name, mode, FchmodatFlags::FollowSymlink)),
    ]
}

/// A regular file in the tree, if one is seen soon, whose mode says nothing of an execution.
fn a_file_in(tree: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(tree).ok()?.take(256).flatten();
    let paths = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path());
    paths.into_iter().find(|path| lstat(path).is_ok_and(|stat| stat.st_mode & 0o6000 == 0))
}
