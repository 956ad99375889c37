//! The only unsafe code: system calls that have no safe wrapper in the crates used here, one function a call.
//!
//! Each function returns the kernel's errno as it is; what it means is decided by the caller.
//!
//! Its children under `src/sys/` are parts of it.
#![allow(unsafe_code)]

mod borrowed;
pub mod call;
pub mod capability;
mod memory;
pub mod message;
mod mount;
pub mod notify;
mod terminal;

pub use borrowed::fork_in_same_memory;
pub use mount::{
    ATTR_IDMAP, ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY, MountAttr, clone_tree, mount_setattr, move_mount, new_tmpfs,
};

pub use memory::release_start_pages;

pub use terminal::{WindowSize, readable_now, set_window_size, take_terminal, window_size};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The result of a raw call.
pub type Result<T> = std::result::Result<T, Errno>;

static SIGPIPE_IGNORED_AT_START: AtomicBool = AtomicBool::new(false);
static STDIO_CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

extern "C" fn note_start() {
    SIGPIPE_IGNORED_AT_START.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    let closed = (0..3).filter(|number| !is_open(*number)).fold(0, |closed, number| closed | 1 << number);
    STDIO_CLOSED_AT_START.store(closed, Ordering::Relaxed);
}

// The runtime ignores SIGPIPE and opens /dev/null for closed stdio before main, so what the caller had set is only to be
// seen before the runtime starts.
// SAFETY: the section holds pointers to functions of this very type, called once by the C runtime before main.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_START: extern "C" fn() = note_start;

/// Which of the descriptors 0 to 2 the caller of this program had closed.
pub fn stdio_closed_at_start() -> impl Iterator<Item = RawFd> {
    let closed = STDIO_CLOSED_AT_START.load(Ordering::Relaxed);
    (0..3).filter(move |number| closed & 1 << number != 0)
}

/// Closes one of the descriptors 0 to 2, in a forked child that is about to exec.
pub fn close_stdio(number: RawFd) -> Result<()> {
    debug_assert!((0..3).contains(&number));
    // SAFETY: no value owns a descriptor below 3; the standard library's handles only borrow them.
    Errno::result(unsafe { libc::close(number) }).map(|_| ())
}

/// kill(2) by number, for the real-time signals too.
pub fn send_signal(pid: Pid, number: libc::c_int) -> Result<()> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::kill(pid.as_raw(), number) }).map(|_| ())
}

/// Whether the caller of this program had SIGPIPE ignored.
pub fn sigpipe_ignored_at_start() -> bool {
    SIGPIPE_IGNORED_AT_START.load(Ordering::Relaxed)
}

/// Sets a signal's disposition to ignore or default; handlers are never installed by this program.
pub fn set_disposition(signal: nix::sys::signal::Signal, ignore: bool) -> Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, sigaction};
    let handler = if ignore { SigHandler::SigIgn } else { SigHandler::SigDfl };
    // SAFETY: neither disposition runs code of ours.
    unsafe { sigaction(signal, &SigAction::new(handler, SaFlags::empty(), SigSet::empty())) }.map(|_| ())
}

/// Whether a signal is ignored by this process.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a zeroed sigaction is a valid output buffer, and a null `act` only queries.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// The numbers of a set's signals, the real-time ones among them.
pub fn signal_numbers(set: &nix::sys::signal::SigSet) -> Vec<libc::c_int> {
    // SAFETY: the set is initialised, and the call only reads it.
    (1..=libc::SIGRTMAX()).filter(|number| unsafe { libc::sigismember(set.as_ref(), *number) } == 1).collect()
}

/// The set of these signals; numbers that are none are left out.
pub fn signal_set(numbers: &[libc::c_int]) -> nix::sys::signal::SigSet {
    let mut set = *nix::sys::signal::SigSet::empty().as_ref();
    for number in numbers {
        // SAFETY: the set is initialised; a number out of range is refused with EINVAL and changes nothing.
        let _refused = unsafe { libc::sigaddset(&mut set, *number) };
    }
    // SAFETY: it was made by sigemptyset(3) and sigaddset(3).
    unsafe { nix::sys::signal::SigSet::from_sigset_t_unchecked(set) }
}

/// Which side of a fork the caller is on.
pub enum Fork {
    /// The parent, with the child's process id.
    Parent(Pid),
    /// The child.
    Child,
}

/// Forks a process that has exactly one thread; EDEADLK when it has more, for then the child could
/// hold locks that no one in it will release, and credentials are a property of threads (case P03).
pub fn fork_single_threaded() -> Result<Fork> {
    if thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: there is no other thread, so the child's memory is consistent.
    match unsafe { nix::unistd::fork()? } {
        nix::unistd::ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(Fork::Child),
    }
}

/// The number of threads of this process, from /proc/self/stat's `num_threads` (proc(5), field 20).
pub fn thread_count() -> Result<usize> {
    let stat = crate::procfs::whole("/proc/self/stat").map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(17).and_then(|n| n.parse().ok()).ok_or(Errno::EPROTO)
}

fn owned(returned: libc::c_long) -> Result<OwnedFd> {
    let fd = Errno::result(returned)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A netlink socket that another process has opened.
pub fn netlink_socket(socket: OwnedFd) -> netlink_sys::Socket {
    // SAFETY: the number is an open descriptor that nobody else owns.
    unsafe { netlink_sys::Socket::from_raw_fd(socket.into_raw_fd()) }
}

/// Takes ownership of a descriptor that this process was started with, by its number; EBADF when it is not open.
pub fn adopt_inherited(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: F_GETFD only asks.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: the descriptor is open, and descriptors named by the caller of the program are ours to own.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// close_range(2) from `first` up, with CLOSE_RANGE_CLOEXEC when `at_exec` and closing at once otherwise.
///
/// Closing at once is for a process that is about to exec or to end: it owns no descriptor up there any more.
pub fn close_from(first: u32, at_exec: bool) -> Result<()> {
    let flags: libc::c_uint = if at_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: all arguments are integers; the contract above keeps owned descriptors out of the range.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) }).map(|_| ())
}

/// keyctl(2) KEYCTL_JOIN_SESSION_KEYRING with no name: a new, anonymous session keyring.
pub fn join_new_session_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let done =
        unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    Errno::result(done).map(|_| ())
}

/// The serial number of the session keyring, without making one (keyctl KEYCTL_GET_KEYRING_ID).
pub fn session_keyring() -> Result<i64> {
    const KEYCTL_GET_KEYRING_ID: libc::c_long = 0;
    const KEY_SPEC_SESSION_KEYRING: libc::c_long = -3;
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) })
}

/// Whether capability `number` is in the bounding set; EINVAL beyond the kernel's last one (capabilities(7)).
pub fn bounding_has(number: u32) -> Result<bool> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(number), 0, 0, 0) }).map(|v| v == 1)
}

/// Drops capability `number` from the bounding set.
pub fn bounding_drop(number: u32) -> Result<()> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }).map(|_| ())
}

/// Whether capability `number` is in the ambient set; EINVAL beyond the kernel's last one.
pub fn ambient_has(number: u32) -> Result<bool> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_IS_SET as libc::c_ulong,
            libc::c_ulong::from(number),
            0,
            0,
        )
    })
    .map(|v| v == 1)
}

/// Empties the ambient set.
pub fn ambient_clear() -> Result<()> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong, 0, 0, 0)
    })
    .map(|_| ())
}

/// The effective, permitted and inheritable sets of this thread (capget(2), version 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    /// What permission checks look at.
    pub effective: u64,
    /// What may be made effective.
    pub permitted: u64,
    /// What survives exec of a file with inheritable capabilities.
    pub inheritable: u64,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Reads the three sets of this thread.
pub fn capget() -> Result<CapabilitySets> {
    let mut header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 writes two data structures, and there are two.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(CapabilitySets {
        effective: join(data[0].effective, data[1].effective),
        permitted: join(data[0].permitted, data[1].permitted),
        inheritable: join(data[0].inheritable, data[1].inheritable),
    })
}

/// Sets the three sets of this thread.
pub fn capset(sets: CapabilitySets) -> Result<()> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let part = |shift: u32| CapData {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let data = [part(0), part(32)];
    // SAFETY: version 3 reads two data structures, and there are two.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) }).map(|_| ())
}

/// Whether a change of the uids away from 0 leaves the permitted set as it is (prctl PR_SET_KEEPCAPS).
pub fn keep_capabilities(keep: bool) -> Result<()> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, libc::c_ulong::from(keep), 0, 0, 0) }).map(|_| ())
}

/// The seccomp mode of this thread (prctl PR_GET_SECCOMP): 0 none, 2 filter.
pub fn seccomp_mode() -> Result<i32> {
    // SAFETY: all arguments are integers.
    Errno::result(unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) })
}

/// Loads a classic BPF program of `struct sock_filter` (8 bytes each) by seccomp(2).
pub fn load_seccomp(program: &[u8]) -> Result<()> {
    set_filter(program, 0).map(|_| ())
}

fn set_filter(program: &[u8], flags: libc::c_long) -> Result<libc::c_long> {
    const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;
    let instructions = u16::try_from(program.len() / 8).map_err(|_| Errno::E2BIG)?;
    let aligned: Vec<libc::sock_filter> = program
        .chunks_exact(8)
        .map(|c| libc::sock_filter {
            code: u16::from_ne_bytes([c[0], c[1]]),
            jt: c[2],
            jf: c[3],
            k: u32::from_ne_bytes([c[4], c[5], c[6], c[7]]),
        })
        .collect();
    let fprog = libc::sock_fprog { len: instructions, filter: aligned.as_ptr().cast_mut() };
    // SAFETY: the program and its length agree, and the kernel only reads it.
    Errno::result(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog) })
}

/// Tries a system call by number for a probe, all of whose arguments are integers, pointers to nothing, or pointers to
/// memory that the call only reads.
///
/// The kernel checks pointers itself (EFAULT), and no call that the suite tries writes to memory through its arguments.
pub fn attempt(number: libc::c_long, arguments: [u64; 6]) -> Result<i64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: see above; a call that succeeds is a failed probe, and the process that tried it ends.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Ends the process at once, without running anything registered to run at exit: for forked children.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory.
    unsafe { libc::_exit(status) }
}

/// Moves a descriptor to a fixed number by dup3(2), closing on exec; what had that number before is closed.
///
/// For a forked child that is about to close everything above: nothing else in it may own the number.
pub fn move_to(fd: OwnedFd, number: RawFd) -> Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    // SAFETY: both are plain descriptors; the contract above leaves no other owner of the number in this process.
    owned(libc::c_long::from(unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) }))
}

/// Gives an executable file one permitted and effective capability (capabilities(7), `security.capability`, revision 2).
pub fn set_file_capability(file: BorrowedFd<'_>, capability: u32) -> Result<()> {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    let mask = 1u64 << capability;
    let words = [REVISION_2_EFFECTIVE, mask as u32, 0, (mask >> 32) as u32, 0];
    let value: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // SAFETY: name and value outlive the call, and the length is the value's.
    Errno::result(unsafe {
        libc::fsetxattr(file.as_raw_fd(), c"security.capability".as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(|_| ())
}

/// A descriptor by its number, only to ask whether it is open.
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: F_GETFD only asks.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// Closes every descriptor from 3 up but those named: for a forked child that keeps nothing else of its parent's.
pub fn close_all_but(kept: &[RawFd]) -> Result<()> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept {
        if fd > from {
            // SAFETY: all arguments are integers; the child's other owners of these numbers never run again.
            Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) })?;
        }
        from = fd + 1;
    }
    close_from(from, false)
}

/// A duplicate of a descriptor by its number, closing on exec; EBADF when it is not open.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC makes a new descriptor and leaves the old one alone.
    owned(libc::c_long::from(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) }))
}

/// A duplicate of a descriptor, closing on exec, with a number of at least `least`.
pub fn duplicate_above(fd: BorrowedFd<'_>, least: RawFd) -> Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC makes a new descriptor and leaves the old one alone.
    owned(libc::c_long::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) }))
}

/// Sets the options that each IPv4 header of the socket's packets carries (ip(7), IP_OPTIONS).
pub fn set_ip_options(socket: BorrowedFd<'_>, options: &[u8]) -> Result<()> {
    let length = libc::socklen_t::try_from(options.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the options outlive the call, and the length is theirs.
    Errno::result(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_OPTIONS, options.as_ptr().cast(), length)
    })
    .map(|_| ())
}
