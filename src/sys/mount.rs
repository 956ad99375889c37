//! Mounts by descriptor: open_tree(2), mount_setattr(2), move_mount(2), fsopen(2).

use super::{Result, owned};
use nix::errno::Errno;
use nix::libc;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The attributes of mount_setattr(2).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountAttr {
    /// `MOUNT_ATTR_*` to set.
    pub set: u64,
    /// `MOUNT_ATTR_*` to clear.
    pub clear: u64,
    /// `MS_PRIVATE` and its kin; 0 leaves propagation alone.
    pub propagation: u64,
    /// A user namespace's descriptor with `MOUNT_ATTR_IDMAP`.
    pub userns_fd: u64,
}

/// `MOUNT_ATTR_RDONLY`.
pub const ATTR_RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// `MOUNT_ATTR_NOSUID`.
pub const ATTR_NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// `MOUNT_ATTR_NODEV`.
pub const ATTR_NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// `MOUNT_ATTR_IDMAP`.
pub const ATTR_IDMAP: u64 = libc::MOUNT_ATTR_IDMAP;

const OPEN_TREE_CLONE: libc::c_long = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_long = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_long = 0x40;

/// open_tree(2) with OPEN_TREE_CLONE: a detached copy of the mount at `path`, with all beneath it when `recursive`.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &CStr, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OPEN_TREE_CLONE | libc::c_long::from(libc::O_CLOEXEC) | libc::c_long::from(libc::AT_EMPTY_PATH);
    if recursive {
        flags |= libc::c_long::from(libc::AT_RECURSIVE);
    }
    // SAFETY: the path is a C string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags) })
}

/// mount_setattr(2) on the mount that `tree` refers to, and on all beneath it when `recursive`.
pub fn mount_setattr(tree: BorrowedFd<'_>, recursive: bool, attr: &MountAttr) -> Result<()> {
    let mut flags = libc::c_long::from(libc::AT_EMPTY_PATH);
    if recursive {
        flags |= libc::c_long::from(libc::AT_RECURSIVE);
    }
    // SAFETY: the empty C string and the attribute structure outlive the call; the size is the structure's.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            attr as *const MountAttr,
            size_of::<MountAttr>(),
        )
    };
    Errno::result(done).map(|_| ())
}

/// move_mount(2) of a detached tree onto what `onto` refers to.
pub fn move_mount(tree: BorrowedFd<'_>, onto: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: both paths are empty C strings.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            onto.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    };
    Errno::result(done).map(|_| ())
}

/// A new, detached tmpfs by fsopen(2), fsconfig(2) and fsmount(2), its root directory having `mode`.
pub fn new_tmpfs(mode: u32, attributes: u64) -> Result<OwnedFd> {
    const FSCONFIG_SET_STRING: libc::c_long = 1;
    const FSCONFIG_CMD_CREATE: libc::c_long = 6;
    const CLOEXEC: libc::c_long = 1;
    // SAFETY: the name is a C string.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), CLOEXEC) })?;
    let value = std::ffi::CString::new(format!("{mode:o}")).map_err(|_| Errno::EINVAL)?;
    // SAFETY: key and value are C strings that outlive the call.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_SET_STRING, c"mode".as_ptr(), value.as_ptr(), 0)
    })?;
    // SAFETY: this command takes no key and no value.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_char>(),
            0,
        )
    })?;
    // SAFETY: all arguments are integers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, attributes) })
}
