//! The stopped caller of one notified call: its memory, and names for what it names.
//!
//! Everything read here is the caller's to change at any moment. It decides no refusal by itself: the kernel is asked.

use super::act::{Base, Place};
use super::shadow;
use super::threads;
use super::walk::is;
use crate::procfs;
use crate::sys::{self, CapabilitySets, capability, notify};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlink};
use nix::libc;
use nix::sys::stat::{Mode, SFlag};
use nix::sys::uio::{RemoteIoVec, pread, process_vm_readv};
use nix::unistd::Pid;
use std::ffi::CString;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The longest path, with its NUL (linux/limits.h).
pub const PATH_MAX: usize = 4096;
/// The unit in which memory is mapped or not, at the least.
const PAGE: u64 = 4096;
/// Most paths are shorter: the first look at one takes no more.
const FIRST_LOOK: usize = 256;

/// Why something could not be read of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The kernel will say EFAULT, ENAMETOOLONG or what else the form of the call deserves: no denial.
    Form,
    /// The kernel will say this: no denial.
    Fails(Errno),
    /// The caller has ended.
    Gone,
    /// It may not be read: it is not dumpable, and this process lacks SYS_PTRACE.
    Closed,
    /// A call of ours failed.
    Failed(&'static str, Errno),
}

/// The memory of a caller's.
pub trait Memory: std::fmt::Debug {
    /// Fills `buffer` from `address`; the length read may be less where memory ends.
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Unread>;

    /// `length` bytes at `address`.
    fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Unread> {
        let mut bytes = vec![0; length];
        match self.read_some(address, &mut bytes)? {
            read if read == length => Ok(bytes),
            _ => Err(Unread::Form),
        }
    }

    /// The string at `address`, without its NUL, which must come within `limit` bytes.
    fn string(&self, address: u64, limit: usize) -> Result<Vec<u8>, Unread> {
        string(address, limit, |at, buffer| self.read_some(at, buffer))
    }
}

/// A stopped caller.
#[derive(Debug)]
pub struct Caller<'a> {
    /// Its thread id.
    pub tid: Pid,
    /// The listener that it waits for, and the cookie of its call.
    stopped: (BorrowedFd<'a>, u64),
    /// Whether SYS_PTRACE is held, to be used for callers that are not dumpable.
    may_open: bool,
    /// Whether this one is not dumpable.
    closed: std::cell::Cell<bool>,
    /// Whether its view of the file system is another than this process's.
    apart: bool,
}

/// A name by which this process reaches what the caller means.
#[derive(Debug)]
pub struct Name {
    /// The name, for calls relative to `AT_FDCWD`.
    pub text: CString,
    /// Whether the last component is followed if it is a symbolic link.
    pub follow: bool,
    /// What the name goes through.
    pub held: Option<OwnedFd>,
}

impl Name {
    /// Whether our way to the caller's base has made it longer than the kernel takes.
    pub fn is_too_long(&self) -> bool {
        self.text.as_bytes_with_nul().len() > PATH_MAX
    }
}

impl<'a> Caller<'a> {
    /// The caller of a notification.
    pub fn new(listener: BorrowedFd<'a>, notification: &notify::Notification, may_open: bool) -> Caller<'a> {
        let tid = Pid::from_raw(notification.tid as i32);
        let closed = std::cell::Cell::new(false);
        Caller { tid, stopped: (listener, notification.id), may_open, closed, apart: false }
    }

    /// The same of a caller whose view of the file system is another, and that only SYS_PTRACE shows.
    pub fn apart(self) -> Caller<'a> {
        self.closed.set(true);
        Caller { apart: true, ..self }
    }

    /// The cookie of its call.
    pub fn cookie(&self) -> u64 {
        self.stopped.1
    }

    /// Gone unless it still waits: what was found by its thread id before this is its own only then, for another process may
    /// have that id by now (seccomp_unotify(2)).
    pub fn still_waits(&self) -> Result<(), Unread> {
        let (listener, id) = self.stopped;
        if notify::is_waiting(listener, id) { Ok(()) } else { Err(Unread::Gone) }
    }

    /// Does `work`, in which the caller's memory can be read. process_vm_readv(2) goes by the real uid, which this process
    /// has for itself, so it needs SYS_PTRACE for every caller; without it /proc/TID/mem, which goes by the effective one,
    /// serves for those that are dumpable.
    pub fn with_memory<T>(&self, work: impl FnOnce() -> Result<T, Unread>) -> Result<T, Unread> {
        if self.may_open { with_ptrace(work)? } else { work() }
    }

    /// The same, after which SYS_PTRACE may be effective still: whoever asks for this lays it down with `lay_down_ptrace`
    /// before anything is asked whose answer it could change.
    pub fn read_memory<T>(&self, work: impl FnOnce() -> Result<T, Unread>) -> Result<T, Unread> {
        if self.may_open && !PTRACE_IS_UP.get() {
            set_ptrace(true)?;
            PTRACE_IS_UP.set(true);
        }
        work()
    }

    /// A name for what the caller means by a place.
    pub fn name(&self, place: &Place) -> Result<Name, Unread> {
        let (mut text, held) = match place.base {
            Base::Root => (Vec::new(), None),
            Base::Cwd if !self.closed.get() => (format!("/proc/{}/cwd", self.tid).into_bytes(), None),
            Base::Fd(fd) | Base::File(fd) if !self.closed.get() => {
                (format!("/proc/{}/fd/{fd}", self.tid).into_bytes(), None)
            }
            base => {
                let held = self.hold(base)?;
                (format!("/proc/self/fd/{}", held.as_raw_fd()).into_bytes(), Some(held))
            }
        };
        let follow = place.follow || place.given.is_empty();
        if !place.given.is_empty() {
            if place.base != Base::Root {
                text.push(b'/');
            }
            text.extend_from_slice(&place.given);
        }
        let text = CString::new(text).map_err(|_| Unread::Form)?;
        Ok(Name { text, follow, held })
    }

    /// A descriptor of ours for a base, where the caller is not dumpable and its /proc entries are closed.
    pub fn hold(&self, base: Base) -> Result<OwnedFd, Unread> {
        let outcome = match base {
            Base::Root => open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()),
            Base::Cwd => self.open_entry("cwd")?,
            Base::Fd(fd) | Base::File(fd) if self.closed.get() => self.duplicate(fd)?,
            Base::Fd(fd) | Base::File(fd) => self.open_entry(&format!("fd/{fd}"))?,
        };
        self.still_waits()?;
        match outcome {
            Ok(held) => self.ours(held),
            Err(Errno::ESRCH) => Err(Unread::Gone),
            // There is no such descriptor, or it is no directory: the kernel says so.
            Err(Errno::EBADF | Errno::ENOENT | Errno::ENOTDIR) => Err(Unread::Form),
            Err(Errno::EACCES | Errno::EPERM) => Err(Unread::Closed),
            Err(errno) => Err(Unread::Failed("open of a caller's descriptor", errno)),
        }
    }

    /// A duplicate of one of the caller's descriptors.
    fn duplicate(&self, fd: i32) -> Result<Result<OwnedFd, Errno>, Unread> {
        let process = threads::process_of(self.tid).ok_or(Unread::Gone)?;
        with_ptrace(|| notify::duplicate_of(self.tid, process, fd))
    }

    /// An `O_PATH` descriptor of what an entry of the thread's directory in /proc leads to.
    fn open_entry(&self, entry: &str) -> Result<Result<OwnedFd, Errno>, Unread> {
        let path = format!("/proc/{}/{entry}", self.tid);
        self.with_sight(|| open(path.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()))
    }

    /// Whether one of the caller's descriptors is open for more than its place (proc_pid_fdinfo(5), `O_PATH`); a call on
    /// one that is not, or is none, ends with EBADF.
    pub fn has_file(&self, fd: i32) -> Result<bool, Unread> {
        if self.apart {
            let flags = |fd: OwnedFd| nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFL).unwrap_or(libc::O_PATH);
            return Ok(self.duplicate(fd)?.is_ok_and(|fd| flags(fd) & libc::O_PATH == 0));
        }
        let info = self.with_sight(|| procfs::read(&format!("/proc/{}/fdinfo/{fd}", self.tid)).unwrap_or_default())?;
        let flags = procfs::field(&info, "flags:").and_then(|flags| u64::from_str_radix(flags, 8).ok());
        Ok(flags.is_some_and(|flags| flags & libc::O_PATH as u64 == 0))
    }

    /// The inode of one of the caller's sockets; `None` where the descriptor is none.
    pub fn socket(&self, fd: i32) -> Result<Option<u64>, Unread> {
        if self.apart {
            let found = self.duplicate(fd)?.and_then(nix::sys::stat::fstat);
            return Ok(found.ok().filter(|found| is(found, SFlag::S_IFSOCK)).map(|found| found.st_ino));
        }
        let link = self.with_sight(|| readlink(format!("/proc/{}/fd/{fd}", self.tid).as_str()).unwrap_or_default())?;
        Ok(link.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()))
    }

    /// What this process has in the place of an object that the caller means.
    pub fn ours(&self, object: OwnedFd) -> Result<OwnedFd, Unread> {
        if self.apart { shadow::here(object, self.tid) } else { Ok(object) }
    }

    /// Whether the caller is known not to be dumpable.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Does `work` with sight of the caller's /proc entries.
    pub fn with_sight<T>(&self, work: impl FnOnce() -> T) -> Result<T, Unread> {
        with_ptrace_if(self.closed.get(), work)
    }

    /// Notes a caller whose /proc entries are closed to this process although nothing was read of its memory. Returns
    /// whether anything is to be tried again because of it.
    pub fn find_closed(&self) -> bool {
        let link = format!("/proc/{}/cwd", self.tid);
        let closed = matches!(readlink(link.as_str()), Err(Errno::EACCES | Errno::EPERM));
        closed && self.may_open && !self.closed.replace(true)
    }
}

impl Memory for Caller<'_> {
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Unread> {
        let outcome = if self.may_open {
            let base = usize::try_from(address).map_err(|_| Unread::Form)?;
            let remote = [RemoteIoVec { base, len: buffer.len() }];
            process_vm_readv(self.tid, &mut [IoSliceMut::new(buffer)], &remote)
        } else {
            let path = format!("/proc/{}/mem", self.tid);
            open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
                .and_then(|memory| pread(&memory, buffer, i64::try_from(address).map_err(|_| Errno::EFAULT)?))
        };
        match outcome {
            Ok(length) => Ok(length),
            Err(Errno::EFAULT | Errno::EIO) => Err(Unread::Form),
            Err(Errno::ESRCH | Errno::ENOENT) => Err(Unread::Gone),
            Err(Errno::EPERM | Errno::EACCES) => Err(Unread::Closed),
            Err(errno) => Err(Unread::Failed("process_vm_readv", errno)),
        }
    }
}

/// The string at `address` as `read` gives it piece by piece, none of which crosses the end of a page.
pub fn string(
    address: u64,
    limit: usize,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Unread>,
) -> Result<Vec<u8>, Unread> {
    let mut found = Vec::new();
    let mut buffer = [0; PAGE as usize];
    let mut at = address;
    let mut piece = FIRST_LOOK;
    while found.len() < limit {
        let in_page = (PAGE - at % PAGE) as usize;
        let length = piece.min(in_page).min(limit - found.len());
        let length = read(at, &mut buffer[..length])?;
        if length == 0 {
            return Err(Unread::Form);
        }
        match buffer[..length].iter().position(|byte| *byte == 0) {
            Some(end) => {
                found.extend_from_slice(&buffer[..end]);
                return Ok(found);
            }
            None => found.extend_from_slice(&buffer[..length]),
        }
        at = at.checked_add(length as u64).ok_or(Unread::Form)?;
        piece = PAGE as usize;
    }
    Err(Unread::Form)
}

const SYS_PTRACE: u64 = 1 << capability::SYS_PTRACE;

fn with_ptrace_if<T>(needed: bool, work: impl FnOnce() -> T) -> Result<T, Unread> {
    if needed { with_ptrace(work) } else { Ok(work()) }
}

thread_local! {
    /// Whether SYS_PTRACE is effective in this thread beyond one piece of work: capabilities are a thread's own, and to take
    /// and to lay down one costs as much as to ask about a path.
    static PTRACE_IS_UP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn set_ptrace(up: bool) -> Result<(), Unread> {
    let effective = if up { SYS_PTRACE } else { 0 };
    let sets = CapabilitySets { effective, permitted: SYS_PTRACE, inheritable: 0 };
    sys::capset(sets).map_err(|errno| Unread::Failed("capset", errno))
}

/// Does `work` with SYS_PTRACE effective in this thread, which has it in the permitted set.
pub(super) fn with_ptrace<T>(work: impl FnOnce() -> T) -> Result<T, Unread> {
    if PTRACE_IS_UP.get() {
        return Ok(work());
    }
    set_ptrace(true)?;
    let done = work();
    lay_down();
    Ok(done)
}

/// Lays SYS_PTRACE down where [`Caller::read_memory`] has left it effective.
pub(super) fn lay_down_ptrace() {
    if PTRACE_IS_UP.replace(false) {
        lay_down();
    }
}

fn lay_down() {
    if set_ptrace(false).is_err() {
        // A thread that cannot lay it down would act with it.
        sys::exit_now(1);
    }
}

/// Whether the flags of an *at call ask for the descriptor itself.
pub fn asks_for_base(flags: u64) -> bool {
    flags & libc::AT_EMPTY_PATH as u64 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory that is mapped below `end` only.
    fn memory(text: &'static [u8], end: u64) -> impl FnMut(u64, &mut [u8]) -> Result<usize, Unread> {
        move |at, buffer| {
            let length = (end.saturating_sub(at) as usize).min(buffer.len());
            if length == 0 {
                return Err(Unread::Form);
            }
            let start = (at - (end - text.len() as u64)) as usize;
            buffer[..length].copy_from_slice(&text[start..start + length]);
            Ok(length)
        }
    }

    #[test]
    fn a_string_may_end_where_memory_ends() {
        let text = b"/usr/x\0";
        assert_eq!(string(8192 - 7, PATH_MAX, memory(text, 8192)), Ok(b"/usr/x".to_vec()));
        let unterminated = b"/usr/xy";
        assert_eq!(string(8192 - 7, PATH_MAX, memory(unterminated, 8192)), Err(Unread::Form));
    }

    #[test]
    fn a_string_may_have_the_longest_length_and_no_more() {
        let long: &'static [u8] = Box::leak([vec![b'a'; PATH_MAX - 1], vec![0]].concat().into_boxed_slice());
        assert_eq!(string(10, PATH_MAX, memory(long, 10 + PATH_MAX as u64)).unwrap().len(), PATH_MAX - 1);
        let longer: &'static [u8] = Box::leak([vec![b'a'; PATH_MAX], vec![0]].concat().into_boxed_slice());
        assert_eq!(string(10, PATH_MAX, memory(longer, 11 + PATH_MAX as u64)), Err(Unread::Form));
    }

    #[test]
    fn the_end_of_the_address_space_is_no_place_to_go_on() {
        let all = |_, buffer: &mut [u8]| {
            buffer.fill(b'a');
            Ok(buffer.len())
        };
        assert_eq!(string(u64::MAX - 3, PATH_MAX, all), Err(Unread::Form));
    }

    proptest! {
        /// As the kernel reads it (strncpy_from_user): what comes before the first NUL, if that comes in time and all before
        /// it is mapped.
        #[test]
        fn a_string_is_what_comes_before_its_nul(
            bytes in prop::collection::vec(prop_oneof![30 => 1u8..=255, 1 => Just(0u8)], 1..9000),
            start in 0u64..5000,
            limit in 1usize..5000,
        ) {
            let read = |at: u64, buffer: &mut [u8]| {
                assert!(at / PAGE == (at + buffer.len() as u64 - 1) / PAGE, "no piece crosses the end of a page");
                let from = (at - start) as usize;
                let length = buffer.len().min(bytes.len().saturating_sub(from));
                buffer[..length].copy_from_slice(&bytes[from..][..length]);
                if length == 0 { Err(Unread::Form) } else { Ok(length) }
            };
            let end = bytes.iter().take(limit).position(|byte| *byte == 0);
            let expected = end.map(|end| bytes[..end].to_vec()).ok_or(Unread::Form);
            prop_assert_eq!(string(start, limit, read), expected);
        }
    }
}
