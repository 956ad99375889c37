//! Whether a refused call would have been refused under `control` as well, and if not, whose restriction it met: the record
//! of a denial, or none.
//!
//! It is asked outside of the sandbox, by the process that `control` would have let the command be: same file systems,
//! before the policy's mounts, and its own capabilities.

use super::told::{PathRead, PathTarget, Refusal, Target};
use super::walk::is;
use super::watched::{OUTSIDE, SHIELD};
use crate::ledger::escape;
use crate::ledger::record::{Denial, Mechanism, Object, PathEvent};
use crate::policy::Axis;
use crate::procfs;
use crate::sys::call::attributes;
use crate::sys::capability::DAC_OVERRIDE;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::libc;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The rule of refusals by a tree that the policy has made read-only.
const READ_ONLY: &str = "read-only";

/// The denial that a refusal is; `None` where `control` would have refused it too. `capabilities` are the effective ones that
/// the command would have had there.
pub fn denial(refusal: &Refusal, capabilities: u64) -> Option<Denial> {
    let has = |capability: u32| capabilities >> capability & 1 == 1;
    if refusal.capability.is_some_and(|capability| !has(capability)) {
        return None;
    }
    let axis = match (&refusal.object, refusal.axis) {
        (_, Some(axis)) => axis,
        (Target::Path(target), None) => of_path(refusal, target, has(DAC_OVERRIDE))?,
        (_, None) => Axis::Privilege,
    };
    let rule = match (axis, &refusal.object) {
        (Axis::Filesystem, _) if refusal.rule != SHIELD => READ_ONLY,
        _ => refusal.rule.as_str(),
    };
    let mut denial =
        Denial::observed(axis, Mechanism::Notifier, &refusal.operation, object(&refusal.object), rule, reason(rule));
    denial.errno = refusal.errno.map(|errno| format!("{:?}", Errno::from_raw(errno)));
    denial.subject = refusal.subject.clone();
    Some(denial)
}

/// The record of a read of a watched path.
pub fn read(read: &PathRead) -> PathEvent {
    let text = |bytes: &[u8]| escape::escape(bytes, escape::TEXT_LIMIT);
    let object = Object { path: Some(text(&read.path)), to: read.by.as_deref().map(text), ..Object::default() };
    PathEvent { operation: read.operation.clone(), object, subject: read.subject.clone(), count: 1 }
}

/// The class of reason by the rule.
fn reason(rule: &str) -> &'static str {
    match rule {
        READ_ONLY => "read_only_tree",
        SHIELD => "shielded",
        "permission" | "outside-process" => "not_permitted",
        "capability" | "mount" | "namespaces" | "trace" => "no_capability",
        "identity" => "other_identity",
        "set-id" => "set_id_without_effect",
        "socket-family" | "socket-protocol" | "socket-device" | "fast-open" => "socket_not_allowed",
        "keyring" => "keyring_closed",
        "terminal-input" => "terminal_shared",
        "abi" => "other_abi",
        // As the firewall's records have it.
        "control-plane" => "control_plane",
        "scope" => "outside_domain",
        "dns" => "resolver",
        "metadata" | "private-range" => "denied_address",
        "unreadable" => "caller_unreadable",
        _ => "not_allowed",
    }
}

fn object(target: &Target) -> Object {
    let text = |bytes: &[u8]| Some(escape::escape(bytes, escape::TEXT_LIMIT));
    match target {
        Target::None => Object::default(),
        Target::Text(told) => Object { text: text(told.as_bytes()), ..Object::default() },
        Target::Address(ip, port) => Object { port: *port, addrs: vec![*ip], ..Object::default() },
        Target::Path(target) => {
            Object { path: text(&target.path), to: target.to.as_deref().and_then(text), ..Object::default() }
        }
    }
}

/// What stands outside where the refused path stands inside.
struct Outside {
    /// The object itself, or the nearest directory above it.
    nearest: OwnedFd,
    stat: FileStat,
    /// Whether it is the object.
    whole: bool,
}

fn outside(path: &Path) -> Option<Outside> {
    // The path has been resolved inside; a link on it by now is someone's doing, and none of the way to the object.
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    path.ancestors().enumerate().find_map(|(above, ancestor)| {
        let nearest = openat2(nix::fcntl::AT_FDCWD, ancestor, how).ok()?;
        let stat = fstat(&nearest).ok()?;
        Some(Outside { nearest, stat, whole: above == 0 })
    })
}

/// The axis of a refusal on a path. What a caller without capabilities is refused for a file's mode or owner, it is refused
/// under `control` as well.
fn of_path(refusal: &Refusal, target: &PathTarget, privileged: bool) -> Option<Axis> {
    let path = Path::new(OsStr::from_bytes(&target.decisive));
    if refusal.rule == OUTSIDE {
        return readlink(path).is_ok().then_some(Axis::Privilege);
    }
    let Some(outside) = outside(path) else { return Some(Axis::Privilege) };
    let mount = fstatvfs(&outside.nearest).map_or(FsFlags::empty(), |found| found.flags());
    if refusal.errno.is_none() {
        // Set-id bits that the image's own mount makes void.
        return (!mount.contains(FsFlags::ST_NOSUID)).then_some(Axis::Privilege);
    }
    // EPERM comes of privilege on any mount. EROFS that is not the image's is the policy's, also where the refused object
    // is itself what is mounted.
    let errno = refusal.errno.map(Errno::from_raw);
    if errno != Some(Errno::EPERM) {
        if mount.contains(FsFlags::ST_RDONLY) {
            return None;
        }
        if target.read_only || errno == Some(Errno::EROFS) {
            let held = privileged || is_for_caller(&refusal.operation, path, &outside);
            return held.then_some(Axis::Filesystem);
        }
    }
    if !privileged {
        return None;
    }
    let device = is(&outside.stat, SFlag::S_IFCHR) || is(&outside.stat, SFlag::S_IFBLK);
    if outside.whole && device && mount.contains(FsFlags::ST_NODEV) {
        return None;
    }
    // A file of the kernel's that takes nothing from anyone, and one whose attributes bind root as well.
    if outside.whole && takes_nothing(&outside) || is_bound(path) {
        return None;
    }
    if target.makes && outside.whole && is_protected(path, &outside.stat) {
        return None;
    }
    Some(Axis::Privilege)
}

/// Whether a caller without capabilities could have made a call on a path: outside, where no tree is read-only, its own ids
/// are asked for by name (access(2), AT_EACCESS) or by ownership.
fn is_for_caller(operation: &str, path: &Path, outside: &Outside) -> bool {
    const BY_OWNER: [&str; 5] = ["chmod", "chown", "xattr", "ioctl", "setattr"];
    const BY_PARENT: [&str; 5] = ["unlink", "rmdir", "rename", "link", "bind"];
    let of = |kinds: &[&str]| kinds.iter().any(|kind| operation.contains(kind));
    let names = AccessFlags::W_OK | AccessFlags::X_OK;
    if !outside.whole {
        return writes_to(&outside.nearest, names);
    }
    let owned = outside.stat.st_uid == geteuid().as_raw();
    match () {
        () if of(&BY_PARENT) => path
            .parent()
            .is_some_and(|parent| faccessat(nix::fcntl::AT_FDCWD, parent, names, AtFlags::AT_EACCESS).is_ok()),
        () if of(&BY_OWNER) => owned,
        () if operation.contains("utim") => owned || writes_to(&outside.nearest, AccessFlags::W_OK),
        () => writes_to(&outside.nearest, AccessFlags::W_OK),
    }
}

/// faccessat(2) on what a descriptor refers to.
fn writes_to(fd: &OwnedFd, mode: AccessFlags) -> bool {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    faccessat(nix::fcntl::AT_FDCWD, path.as_str(), mode, AtFlags::AT_EACCESS).is_ok()
}

fn takes_nothing(outside: &Outside) -> bool {
    const ANY_WRITE: u32 = 0o222;
    let kernels =
        fstatfs(&outside.nearest).is_ok_and(|found| [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&found.filesystem_type()));
    kernels && is(&outside.stat, SFlag::S_IFREG) && outside.stat.st_mode & ANY_WRITE == 0
}

/// Whether the kernel keeps everyone but its owner from opening a file with `O_CREAT` where it lies (proc_sys_fs(5),
/// `protected_regular` and `protected_fifos`), this process too.
fn is_protected(path: &Path, file: &FileStat) -> bool {
    let kind = match () {
        () if is(file, SFlag::S_IFREG) => "regular",
        () if is(file, SFlag::S_IFIFO) => "fifos",
        () => return false,
    };
    let level = procfs::read(&format!("/proc/sys/fs/protected_{kind}")).unwrap_or_default();
    let (Ok(level), Some(Ok(directory))) = (level.trim().parse(), path.parent().map(nix::sys::stat::lstat)) else {
        return false;
    };
    protects(level, &directory, file.st_uid, nix::unistd::geteuid().as_raw())
}

/// What such a level keeps from a process of `uid`.
fn protects(level: u32, directory: &FileStat, owner: u32, uid: u32) -> bool {
    let has = |bits: u32| directory.st_mode & bits == bits;
    let everyones = has(0o1002) || level > 1 && has(0o1020);
    level > 0 && everyones && owner != directory.st_uid && owner != uid
}

/// Whether an object or its directory is immutable or only grows (ioctl_iflags(2)).
fn is_bound(path: &Path) -> bool {
    const BOUND: u64 = (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64;
    path.ancestors().take(2).any(|path| {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        attributes(&name).is_ok_and(|found| found & BOUND != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sticky_directory_keeps_files_of_others_from_root_as_well() {
        let directory = |mode: u32, owner: u32| {
            let mut found = nix::sys::stat::stat("/").unwrap();
            (found.st_mode, found.st_uid) = (SFlag::S_IFDIR.bits() | mode, owner);
            found
        };
        let tmp = directory(0o1777, 0);
        assert!(protects(1, &tmp, 5, 0) && protects(2, &tmp, 5, 0));
        assert!(!protects(0, &tmp, 5, 0), "it is switched off");
        assert!(!protects(2, &tmp, 0, 7), "the directory's owner's");
        assert!(!protects(2, &tmp, 5, 5), "one's own");
        let groups = directory(0o1770, 0);
        assert_eq!([1, 2].map(|level| protects(level, &groups, 5, 0)), [false, true]);
        assert!(!protects(2, &directory(0o777, 0), 5, 0), "not sticky");
    }
}
