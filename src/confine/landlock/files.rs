//! The read-only trees as a ruleset for contents and names (landlock(7)): the barrier where there are no mounts. What is
//! known of a file beside its contents Landlock leaves alone; that is the observer's.
//!
//! A ruleset only allows, and allows everything beneath a path. So it is made of the complement: from the root down, only
//! where something protected lies beneath, everything beside it.

use super::Barrier;
use crate::confine::ConfineError;
use crate::mutation;
use crate::sys::call::{Argument, call};
use ::landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, RulesetStatus, make_bitflags,
};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The rights that a file can be given.
const CONTENTS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | Truncate});
/// Those of a directory beside: which names it has.
const NAMES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    RemoveDir | RemoveFile | MakeChar | MakeDir | MakeReg | MakeSock | MakeFifo | MakeBlock | MakeSym | Refer
});

/// What a shield takes: the contents of files, the names in directories.
pub(super) const READS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// Those that a file can be given.
pub(super) const OF_FILES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile});

/// The first version that has all of them: Linux 6.2 (TRUNCATE; REFER has come with 2, Linux 5.19).
const ABI: i64 = 3;
/// More rules than this are no view of a file system that anyone has meant.
const RULES_MAX: usize = 100_000;
/// How deep device nodes are looked for below /dev.
const DEVICES_DEPTH: usize = 8;
/// How many directories are tried for one that a write can be refused in.
const TRIED_MAX: usize = 4096;

/// A ruleset that is ready to be entered.
#[derive(Debug)]
pub struct FileRules {
    created: RulesetCreated,
    /// A directory where a name could be made until now.
    witness: Option<PathBuf>,
}

/// Makes the ruleset of a barrier, in the mount namespace where it is to hold. What the barrier protects can be neither
/// written nor truncated and gets no names; everything else stays as it was.
///
/// # Errors
/// A kernel without the rights; a tree within what may be written; a path that cannot be looked at; more than 100,000 rules.
pub fn prepare(barrier: &Barrier) -> Result<FileRules, ConfineError> {
    let abi = call(libc::SYS_landlock_create_ruleset, [0, 0, 1].map(Argument::Number)).unwrap_or(0);
    if abi < ABI {
        return Err(failed(format!("rules for files take ABI {ABI} (Linux 6.2), and the kernel has {abi}")));
    }
    for writable in barrier.writable() {
        if let Some(tree) = barrier.protected_beneath(writable) {
            return Err(failed(format!(
                "{} is read-only within {}, which takes a mount",
                tree.display(),
                writable.display()
            )));
        }
    }
    let shields = if mutation::left_out("shields") { &[][..] } else { barrier.shields() };
    let reads = if shields.is_empty() { BitFlags::empty() } else { READS };
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(CONTENTS | NAMES | reads)
        .and_then(|ruleset| ruleset.create())
        .map_err(of_library)?;
    let mut rules = Rules { barrier, created, count: 0 };
    for path in barrier.writable() {
        let at = pinned(AT_FDCWD, path.as_os_str(), path)?;
        rules.grant(&at, path)?;
    }
    let root = Path::new("/");
    let at = pinned(AT_FDCWD, root.as_os_str(), root)?;
    rules.grant_beside(at, root)?;
    if barrier.protects(Path::new("/dev")) {
        rules.grant_devices(Path::new("/dev"), DEVICES_DEPTH)?;
    }
    if !shields.is_empty() {
        rules.grant_reads(shields)?;
    }
    Ok(FileRules { created: rules.created, witness: witness(barrier) })
}

impl FileRules {
    /// Restricts the calling thread, which must have no_new_privs, and sees a write refused where this process could have
    /// made it before.
    ///
    /// # Errors
    /// Landlock's; a write that is not refused.
    pub fn restrict(self) -> Result<(), ConfineError> {
        let status = self.created.no_new_privs(false).restrict_self().map_err(of_library)?;
        if status.ruleset != RulesetStatus::FullyEnforced {
            return Err(failed(format!("the ruleset is {:?}", status.ruleset)));
        }
        let Some(directory) = self.witness else { return Ok(()) };
        let name = format!(".ringfence-{}", std::process::id());
        let at = pinned(AT_FDCWD, directory.as_os_str(), &directory)?;
        match mkdirat(&at, name.as_str(), Mode::empty()) {
            Err(Errno::EACCES) => Ok(()),
            Ok(()) => {
                unlinkat(&at, name.as_str(), UnlinkatFlags::RemoveDir)
                    .map_err(|errno| failed(format!("rmdir of {name} in {}: {errno}", directory.display())))?;
                Err(failed(format!("a name can be made in {}, which is read-only", directory.display())))
            }
            Err(errno) => Err(failed(format!("mkdir in {}: {errno}, wanted EACCES", directory.display()))),
        }
    }
}

pub(super) struct Rules<'a> {
    barrier: &'a Barrier,
    created: RulesetCreated,
    count: usize,
}

impl Rules<'_> {
    pub(super) fn add(&mut self, at: &OwnedFd, rights: BitFlags<AccessFs>, path: &Path) -> Result<(), ConfineError> {
        self.count += 1;
        if self.count > RULES_MAX {
            return Err(failed(format!("more than {RULES_MAX} rules, at {}", path.display())));
        }
        (&mut self.created).add_rule(PathBeneath::new(at, rights)).map_err(of_library).map(|_| ())
    }

    /// Everything may be done at a path and beneath it.
    fn grant(&mut self, at: &OwnedFd, path: &Path) -> Result<(), ConfineError> {
        let directory = is_directory(at, path)?;
        // There names are the kernel's own.
        let of_processes = path == Path::new("/proc");
        let rights = if directory && !of_processes { CONTENTS | NAMES } else { CONTENTS };
        self.add(at, rights, path)
    }

    /// Grants what the barrier does not protect at a path and beneath it. In a directory with something protected beneath,
    /// no names of its own can be granted.
    fn grant_beside(&mut self, at: OwnedFd, path: &Path) -> Result<(), ConfineError> {
        if self.barrier.protects(path) {
            return Ok(());
        }
        if !self.barrier.protects_beneath(path) {
            return self.grant(&at, path);
        }
        for name in entries(at.as_fd(), path)? {
            let path = path.join(&name);
            match open_place(at.as_fd(), &name) {
                Ok(at) if is_link(&at, &path)? => {}
                Ok(at) => self.grant_beside(at, &path)?,
                // It has gone meanwhile, or is open to nobody (FUSE).
                Err(Errno::ENOENT | Errno::EACCES) => {}
                Err(errno) => return Err(failed(format!("open {}: {errno}", path.display()))),
            }
        }
        Ok(())
    }

    /// Grants writing to the character devices below a directory, and to all terminals, as a read-only mount leaves them
    /// writable.
    fn grant_devices(&mut self, directory: &Path, depth: usize) -> Result<(), ConfineError> {
        let at = match openat2(AT_FDCWD, directory, place_only()) {
            Ok(at) => at,
            Err(Errno::ENOENT | Errno::ELOOP) => return Ok(()),
            Err(errno) => return Err(failed(format!("open {}: {errno}", directory.display()))),
        };
        if directory == Path::new("/dev/pts") {
            // They come and go.
            return self.add(&at, AccessFs::WriteFile.into(), directory);
        }
        for name in entries(at.as_fd(), directory)? {
            let path = directory.join(&name);
            let Ok(at) = open_place(at.as_fd(), &name) else { continue };
            match kind(&at, &path)? {
                SFlag::S_IFCHR => self.add(&at, AccessFs::WriteFile.into(), &path)?,
                SFlag::S_IFDIR if depth > 0 && self.barrier.protects(&path) => self.grant_devices(&path, depth - 1)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A directory in which this process could make a name that the barrier refuses: the first, breadth first.
fn witness(barrier: &Barrier) -> Option<PathBuf> {
    let mut left: std::collections::VecDeque<PathBuf> = barrier.trees().into();
    for _ in 0..TRIED_MAX {
        let path = left.pop_front()?;
        let Ok(at) = openat2(AT_FDCWD, &path, place_only()) else { continue };
        if !barrier.protects(&path) || !is_directory(&at, &path).unwrap_or(false) {
            continue;
        }
        let flags = nix::fcntl::AtFlags::AT_EACCESS;
        let mode = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
        if nix::unistd::faccessat(AT_FDCWD, &path, mode, flags).is_ok() {
            return Some(path);
        }
        left.extend(entries(at.as_fd(), &path).unwrap_or_default().into_iter().map(|name| path.join(name)));
    }
    None
}

pub(super) fn failed(fault: String) -> ConfineError {
    ConfineError::Landlock(fault)
}

fn of_library(error: RulesetError) -> ConfineError {
    ConfineError::Landlock(error.to_string())
}

/// A symbolic link that is met on a path of the plan was put there since.
fn place_only() -> OpenHow {
    OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS)
}

pub(super) fn pinned(base: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<OwnedFd, ConfineError> {
    openat2(base, name, place_only()).map_err(|errno| failed(format!("open {}: {errno}", path.display())))
}

pub(super) fn open_place(base: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(base, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn kind(at: &OwnedFd, path: &Path) -> Result<SFlag, ConfineError> {
    let stat = fstat(at).map_err(|errno| failed(format!("fstat {}: {errno}", path.display())))?;
    Ok(SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()))
}

pub(super) fn is_directory(at: &OwnedFd, path: &Path) -> Result<bool, ConfineError> {
    kind(at, path).map(|kind| kind == SFlag::S_IFDIR)
}

pub(super) fn is_link(at: &OwnedFd, path: &Path) -> Result<bool, ConfineError> {
    kind(at, path).map(|kind| kind == SFlag::S_IFLNK)
}

/// The names in a directory, in order.
pub(super) fn entries(directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<OsString>, ConfineError> {
    let fail = |errno| failed(format!("read {}: {errno}", path.display()));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::openat(directory, ".", flags, Mode::empty()).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
