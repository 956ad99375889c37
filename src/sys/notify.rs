//! seccomp user notification (seccomp_unotify(2)): the listener, what comes from it, and the answers.

use super::{Fork, Result, owned};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// One stopped call: `struct seccomp_notif`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notification {
    /// The cookie that an answer names.
    pub id: u64,
    /// The caller's thread id in the listener's PID namespace; 0 where it is not visible there.
    pub tid: u32,
    /// No flag is defined.
    pub flags: u32,
    /// The call.
    pub call: CallData,
}

/// `struct seccomp_data`: the kernel's own copy of the registers, which the caller cannot change any more.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallData {
    /// The number, in the table of `arch`.
    pub number: i32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Where the call was made.
    pub instruction: u64,
    /// The arguments as the registers held them.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

// linux/seccomp.h, by the encoding of ioctl numbers (asm-generic/ioctl.h).
const fn number(direction: u64, size: usize, nr: u64) -> libc::c_ulong {
    (direction << 30 | (size as u64) << 16 | 0x21 << 8 | nr) as libc::c_ulong
}
const READ_WRITE: u64 = 3;
const WRITE: u64 = 1;
const NOTIF_RECV: libc::c_ulong = number(READ_WRITE, size_of::<Notification>(), 0);
const NOTIF_SEND: libc::c_ulong = number(READ_WRITE, size_of::<Answer>(), 1);
const NOTIF_ID_VALID: libc::c_ulong = number(WRITE, size_of::<u64>(), 2);
const NOTIF_ADDFD: libc::c_ulong = number(WRITE, size_of::<AddFd>(), 3);
const NOTIF_SET_FLAGS: libc::c_ulong = number(WRITE, size_of::<u64>(), 4);

/// Loads a program with `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19).
/// Returns the listener's number: whoever was told it owns it, not this process.
pub fn load_seccomp_with_listener(program: &[u8]) -> Result<RawFd> {
    const NEW_LISTENER: libc::c_long = 1 << 3;
    const WAIT_KILLABLE_RECV: libc::c_long = 1 << 5;
    let number = super::set_filter(program, NEW_LISTENER | WAIT_KILLABLE_RECV)?;
    RawFd::try_from(number).map_err(|_| Errno::EBADF)
}

/// Has a notification wake the listener's reader on the caller's own processor, as the caller waits for nothing else
/// (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, Linux 6.6); EINVAL on an older kernel.
pub fn wake_synchronously(listener: BorrowedFd<'_>) -> Result<()> {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: this request takes its flags by value.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) }).map(|_| ())
}

/// Waits for the next stopped call. ENOENT: its caller has been killed meanwhile, or, since Linux 6.11, no process has the
/// filter any more.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: the kernel writes one structure of this size, which is zeroed as it demands.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &mut notification) })?;
    Ok(notification)
}

/// Whether the call is still stopped. What was read of its caller before is the caller's own only if it is.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one integer.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID, &id) == 0 }
}

fn answer(listener: BorrowedFd<'_>, answer: &Answer) -> Result<()> {
    // SAFETY: the kernel reads one structure of this size.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, answer) }).map(|_| ())
}

/// Lets the call go on into the kernel, arguments and all as they are then. ENOENT: its caller is gone.
pub fn let_go_on(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    const CONTINUE: u32 = 1;
    answer(listener, &Answer { id, value: 0, error: 0, flags: CONTINUE })
}

/// Ends the call with an errno. ENOENT: its caller is gone.
pub fn refuse(listener: BorrowedFd<'_>, id: u64, errno: Errno) -> Result<()> {
    answer(listener, &Answer { id, value: 0, error: -(errno as i32), flags: 0 })
}

/// Ends the call as one that a signal has interrupted before anything was done: the kernel makes it again or has it fail with
/// EINTR, as the signal's action says (signal(7), SA_RESTART). Only for a caller for whom a signal waits that no other
/// thread can take: it would see the kernel's own number otherwise.
pub fn interrupt(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    // linux/errno.h: -ERESTARTSYS never reaches a program.
    const RESTART: i32 = 512;
    answer(listener, &Answer { id, value: 0, error: -RESTART, flags: 0 })
}

/// Ends the call with a return value. ENOENT: its caller is gone.
pub fn succeed(listener: BorrowedFd<'_>, id: u64, value: i64) -> Result<()> {
    answer(listener, &Answer { id, value, error: 0, flags: 0 })
}

/// Gives the caller a duplicate of `file`, close-on-exec or not, and ends the call with its number
/// (`SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14), which is returned.
pub fn succeed_with_file(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> Result<RawFd> {
    const SEND: u32 = 1 << 1;
    let added = AddFd {
        id,
        flags: SEND,
        srcfd: file.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the kernel reads one structure of this size.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ADDFD, &added) })
}

/// clone(2) with CLONE_FILES and no signal at its end: a child with memory of its own that shares the table of descriptors.
/// It is waited for by [`wait_for_peer`] only. EDEADLK where this process has more than one thread.
pub fn fork_sharing_files() -> Result<Fork> {
    if super::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    let flags = libc::CLONE_FILES as libc::c_ulong;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: as fork(2): there is no other thread, the child has memory of its own and goes on here with this very stack.
    // The order of the last two arguments differs between architectures; both are null.
    match Errno::result(unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::ERANGE)?))),
    }
}

/// Waits for a child of [`fork_sharing_files`]; its exit status, or EPROTO when a signal has ended it.
pub fn wait_for_peer(pid: Pid) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one integer.
        match Errno::result(unsafe { libc::waitpid(pid.as_raw(), &mut status, libc::__WCLONE) }) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) if libc::WIFEXITED(status) => return Ok(libc::WEXITSTATUS(status)),
            Ok(_) => return Err(Errno::EPROTO),
        }
    }
}

/// Closes a descriptor by its number, in a process that owns none of that number.
pub fn close_number(number: RawFd) -> Result<()> {
    // SAFETY: the contract above: no value of this process owns it.
    Errno::result(unsafe { libc::close(number) }).map(|_| ())
}

/// pidfd_open(2) and pidfd_getfd(2): a duplicate of descriptor `fd` of thread `tid`, which need not share its descriptors
/// with the other threads of its process. Before Linux 6.9, which has no descriptor for a thread, that of
/// `first`, the process's first one.
pub fn duplicate_of(tid: Pid, first: Pid, fd: RawFd) -> Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    let open = |pid: Pid, flags: libc::c_int| {
        // SAFETY: all arguments are integers.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), flags) })
    };
    let thread = match open(tid, PIDFD_THREAD) {
        Err(Errno::EINVAL) => open(first, 0),
        opened => opened,
    }?;
    // SAFETY: all arguments are integers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, thread.as_raw_fd(), fd, 0) })
}
