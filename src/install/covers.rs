//! What is mounted over single paths in the command's view: files over files, and masks. Made with the view, and made again
//! where someone outside has replaced what was covered.

use super::mounts::{
    MountError, MountPlan, Overlay, attach, c_path, clone_tree, cover_read_only, failed, pin, unshare_mounts,
};
use super::shields::Files;
use crate::mutation;
use crate::sys::{self, MountAttr};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, mkdirat};
use nix::unistd::{Gid, Pid, Uid, fchown};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Mounts made ahead of the trees and attached last: files over files, and masks.
pub(super) struct Covers {
    trees: Vec<(PathBuf, OwnedFd)>,
    /// What they are to cover, as far as that is known.
    files: Files,
}

impl Covers {
    pub(super) fn make(plan: &MountPlan) -> Result<Covers, MountError> {
        let mut trees = Vec::new();
        let files: Vec<_> = plan.files.iter().filter(|_| !mutation::left_out("account")).collect();
        let masks = plan.masked();
        if files.is_empty() && masks.is_empty() {
            return Ok(Covers { trees, files: Files::default() });
        }
        // A mount can be copied file by file only while it is attached (before Linux 6.15), so the scratch file system
        // is attached for a moment where a directory is sure to be. Only this process sees it there.
        let proc = Path::new("/proc");
        let scratch =
            sys::new_tmpfs(0o700, sys::ATTR_NODEV | sys::ATTR_NOSUID).map_err(failed("fsmount", Path::new("tmpfs")))?;
        attach(&scratch, proc)?;
        for (number, file) in files.iter().enumerate() {
            let name = format!("file{number}");
            write_like(&scratch, &name, file)?;
            trees.push((file.target.clone(), copy_of(&scratch, &name)?));
        }
        for (number, path) in masks.iter().enumerate() {
            let name = format!("mask{number}");
            let directory = fstat(pin(path)?).map_err(failed("fstat", path))?.st_mode & SFlag::S_IFMT.bits()
                == SFlag::S_IFDIR.bits();
            if directory {
                mkdirat(&scratch, name.as_str(), Mode::empty()).map_err(failed("mkdirat", path))?;
                let within: Vec<&Path> = plan.exposed.iter().filter_map(|e| e.strip_prefix(path).ok()).collect();
                make_places(&scratch, &name, &within)?;
            } else {
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                openat(&scratch, name.as_str(), flags, Mode::empty()).map_err(failed("openat", path))?;
            }
            trees.push(((*path).clone(), copy_of(&scratch, &name)?));
        }
        // Pinned while they are still to be seen, and attached after the masks.
        for path in plan.exposed.iter().filter(|e| masks.iter().any(|mask| e.starts_with(mask) && e != mask)) {
            trees.push((path.clone(), clone_tree(path, false)?));
        }
        umount2(proc, MntFlags::MNT_DETACH).map_err(failed("umount2", proc))?;
        Ok(Covers { trees, files: plan.shield_files.clone() })
    }

    pub(super) fn attach(&self) -> Result<(), MountError> {
        for (path, tree) in &self.trees {
            let read_only = MountAttr { set: sys::ATTR_RDONLY, ..MountAttr::default() };
            sys::mount_setattr(tree.as_fd(), false, &read_only).map_err(failed("mount_setattr", path))?;
            let place = pin(path)?;
            self.files.check(path, &place)?;
            sys::move_mount(tree.as_fd(), place.as_fd()).map_err(failed("move_mount", path))?;
        }
        Ok(())
    }
}

/// Makes a way in a masked directory to each of these: directories that may be searched and not be read, and at its end a file
/// to mount on.
fn make_places(scratch: &OwnedFd, mask: &str, within: &[&Path]) -> Result<(), MountError> {
    let mut ways: Vec<PathBuf> = within.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
    ways.sort();
    ways.dedup();
    let at = |relative: &Path| Path::new(mask).join(relative);
    for way in ways.iter().filter(|way| !way.as_os_str().is_empty()) {
        mkdirat(scratch, &at(way), Mode::S_IRWXU).map_err(failed("mkdirat", way))?;
    }
    for path in within {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(scratch, &at(path), flags, Mode::empty()).map_err(failed("openat", path))?;
    }
    let search = Mode::S_IXUSR | Mode::S_IXGRP | Mode::S_IXOTH;
    for way in ways.iter().rev() {
        fchmodat(scratch, &at(way), search, FchmodatFlags::FollowSymlink).map_err(failed("fchmodat", way))?;
    }
    Ok(())
}

fn copy_of(scratch: &OwnedFd, name: &str) -> Result<OwnedFd, MountError> {
    sys::clone_tree(scratch.as_fd(), &c_path(Path::new(name))?, false).map_err(failed("open_tree", Path::new(name)))
}

/// Writes an overlay's content into the scratch file system with the owner and mode of the file that it covers.
fn write_like(scratch: &OwnedFd, name: &str, overlay: &Overlay) -> Result<(), MountError> {
    let target = &overlay.target;
    let like = fstat(pin(target)?).map_err(failed("fstat", target))?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(scratch, name, flags, Mode::empty()).map_err(failed("openat", target))?);
    file.write_all(&overlay.content)
        .map_err(|e| failed("write", target)(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
    match fchown(&file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid))) {
        // The owner is not known in this user namespace (user_namespaces(7)). The cover is then the caller's, who could read
        // what it covers, and it is read-only.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(failed("fchown", target)(errno)),
    }
    fchmod(&file, Mode::from_bits_truncate(like.st_mode & 0o7777)).map_err(failed("fchmod", target))
}

impl MountPlan {
    /// Whether what is mounted at a path can be put there again once it is gone: a file, a mask, or a read-only path within
    /// what is writable. A tree is none of them, for what it holds beneath it may be gone too.
    pub fn can_cover_again(&self, path: &Path) -> bool {
        let files = self.files.iter().map(|file| &file.target);
        files.chain(&self.masks).chain(&self.shields).chain(&self.read_only_within).any(|covered| covered == path)
    }

    /// The part of the plan that is mounted at these paths.
    fn at(&self, paths: &[PathBuf]) -> MountPlan {
        MountPlan {
            files: self.files.iter().filter(|file| paths.contains(&file.target)).cloned().collect(),
            masks: self.masks.iter().filter(|mask| paths.contains(mask)).cloned().collect(),
            shields: self.shields.iter().filter(|shield| paths.contains(shield)).cloned().collect(),
            read_only_within: self.read_only_within.iter().filter(|path| paths.contains(path)).cloned().collect(),
            exposed: self.exposed.clone(),
            nosuid: self.nosuid,
            ..MountPlan::default()
        }
    }
}

/// Mounts again what the plan has at these paths, of which someone outside has taken it away by replacing what it was mounted
/// on. The calling process is single-threaded and lives in the view's namespace, or enters that of the process `view`; it is of
/// no further use than to say how it went.
///
/// The mounts are made in a namespace apart, for what is mounted on the way would be seen in the command's.
pub fn cover_again(plan: &MountPlan, paths: &[PathBuf], view: Option<Pid>) -> Result<(), MountError> {
    let plan = plan.at(paths);
    let own = view.map_or_else(|| "/proc/self/ns/mnt".into(), |view| PathBuf::from(format!("/proc/{view}/ns/mnt")));
    let own = own.as_path();
    let view =
        File::open(own).map_err(|e| failed("open", own)(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))))?;
    setns(&view, CloneFlags::CLONE_NEWNS).map_err(failed("setns", own))?;
    unshare_mounts().map_err(failed("unshare", Path::new("mount namespace")))?;
    let covers = Covers::make(&plan)?;
    setns(&view, CloneFlags::CLONE_NEWNS).map_err(failed("setns", own))?;
    covers.attach()?;
    plan.read_only_within.iter().try_for_each(|path| cover_read_only(path))
}
