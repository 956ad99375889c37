//! System calls by number, with arguments that say what the kernel may do with them.

use super::{Result, owned};
use nix::errno::Errno;
use nix::libc;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// One argument.
#[derive(Debug)]
pub enum Argument<'a> {
    /// An integer, or the null pointer.
    Number(u64),
    /// A descriptor.
    Fd(BorrowedFd<'a>),
    /// A path or another string.
    Text(&'a CStr),
    /// Memory of this size, which the kernel may read and write.
    Memory(&'a mut [u8]),
}

/// `AT_FDCWD`, for calls that want a directory's descriptor.
pub const HERE: Argument<'static> = Argument::Number(libc::AT_FDCWD as u64);

/// Makes a call. Any call may be asked for whose arguments are integers, strings and memory of a size that the caller of
/// this function has made room for: the kernel takes nothing else through pointers from the calls that are made so.
pub fn call<const N: usize>(number: libc::c_long, arguments: [Argument<'_>; N]) -> Result<i64> {
    let mut words = [0u64; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = match argument {
            Argument::Number(number) => number,
            Argument::Fd(fd) => fd.as_raw_fd() as u64,
            Argument::Text(text) => text.as_ptr() as u64,
            Argument::Memory(memory) => memory.as_mut_ptr() as u64,
        };
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: pointers are to memory that outlives the call; see the contract above for its size.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// [`call`] for one that returns a new descriptor.
pub fn call_for_fd<const N: usize>(number: libc::c_long, arguments: [Argument<'_>; N]) -> Result<OwnedFd> {
    owned(call(number, arguments)?)
}

/// The attributes of a file that no mode shows (statx(2), `stx_attributes`); 0 where the file system has none.
pub fn attributes(path: &CStr) -> Result<u64> {
    // SAFETY: zeros are a valid value of the structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path outlives the call, and the kernel writes one structure.
    Errno::result(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &mut found) })?;
    Ok(found.stx_attributes)
}

/// Whose an object is, when it came to be, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Born {
    /// Its owner.
    pub uid: u32,
    /// Since 1970: its birth where the file system keeps that (STATX_BTIME), its last change of status elsewhere.
    pub at: std::time::Duration,
    /// Whether the file system keeps births.
    pub kept: bool,
    /// Its device, major and minor number, and its inode's number.
    pub identity: (u32, u32, u64),
}

/// [`Born`] of a descriptor's object (statx(2)), as this machine knows it: no file system is asked for what another machine or
/// another process has to say (AT_STATX_DONT_SYNC).
pub fn born(object: BorrowedFd<'_>) -> Result<Born> {
    // SAFETY: zeros are a valid value of the structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    let wanted = libc::STATX_UID | libc::STATX_INO | libc::STATX_CTIME | libc::STATX_BTIME;
    // SAFETY: the kernel reads one NUL byte and writes one structure.
    Errno::result(unsafe { libc::statx(object.as_raw_fd(), c"".as_ptr(), flags, wanted, &mut found) })?;
    let kept = found.stx_mask & libc::STATX_BTIME != 0;
    let at = if kept { found.stx_btime } else { found.stx_ctime };
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    let identity = (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
    Ok(Born { uid: found.stx_uid, at: std::time::Duration::new(seconds, at.tv_nsec), kept, identity })
}

/// The id of the mount that a descriptor's object is on, as mountinfo has it (statx(2), STATX_MNT_ID, Linux 5.8).
/// EOPNOTSUPP where the kernel does not tell.
pub fn mount_id(object: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: zeros are a valid value of the structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the kernel reads one NUL byte and writes one structure.
    let done = unsafe { libc::statx(object.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_MNT_ID, &mut found) };
    Errno::result(done)?;
    if found.stx_mask & libc::STATX_MNT_ID == 0 { Err(Errno::EOPNOTSUPP) } else { Ok(found.stx_mnt_id) }
}
