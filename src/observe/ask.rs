//! The act itself, made by a process that can do nothing which the command could not: the kernel's answer to it is the
//! answer to the command, and the record.

use super::act::{Change, Made, Value};
use super::caller::Name;
use super::walk::{is, split};
use crate::procfs;
use crate::sys::call::{Argument, HERE, call, call_for_fd};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::Pid;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// What became of it.
#[derive(Debug)]
pub enum Answer {
    /// The kernel refused it.
    Refused(Errno),
    /// It would have gone through, or failed otherwise, and nothing was done.
    Untouched,
    /// It went through, as it can when what it is about changes meanwhile, and is done.
    Done(i64),
    /// It went through and made a new file, which is open.
    Opened(OwnedFd),
}

/// Which errors are refusals of access: POSIX.1-2024's permission denied, not permitted and read-only file system.
pub fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS)
}

fn answer(outcome: Result<i64, Errno>) -> Answer {
    match outcome {
        Ok(value) => Answer::Done(value),
        Err(errno) => refused_or_untouched(Err(errno)),
    }
}

/// The answer to a call whose success changes nothing.
fn refused_or_untouched(outcome: Result<(), Errno>) -> Answer {
    match outcome {
        Err(errno) if is_refusal(errno) => Answer::Refused(errno),
        Ok(()) | Err(_) => Answer::Untouched,
    }
}

fn number(value: impl Into<i128>) -> Argument<'static> {
    Argument::Number(value.into() as u64)
}

fn no_follow(name: &Name) -> Argument<'static> {
    number(if name.follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW })
}

/// The mask of modes belongs to the whole process: one act at a time has its caller's.
static MASK: Mutex<()> = Mutex::new(());

/// Does `work` with the mask of modes that the caller has.
pub fn with_mask_of<T>(tid: Pid, work: impl FnOnce() -> T) -> T {
    let _alone = MASK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let status = procfs::read(&format!("/proc/{tid}/status")).unwrap_or_default();
    let mask = procfs::field(&status, "Umask:").and_then(|mask| u32::from_str_radix(mask, 8).ok());
    // What is made for a caller that is gone is nobody's.
    let before = umask(Mode::from_bits_truncate(mask.unwrap_or(0o777)));
    let done = work();
    umask(before);
    done
}

/// open(2) in any of its forms; what openat2(2) is to resolve beneath stays relative to a descriptor.
pub fn open(tid: Pid, from: Option<BorrowedFd<'_>>, path: &CStr, flags: u64, mode: u64, resolve: u64) -> Answer {
    let given = flags as i32;
    // Nothing is to be waited for, and no terminal to be taken.
    let ours = (given | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY) as u64;
    // An open that makes nothing may have any mode given to it, save in openat2(2).
    let mode = if flags & (libc::O_CREAT as u64 | super::decode::TMPFILE as u64) == 0 { 0 } else { mode & 0o7777 };
    let mut how: Vec<u8> = [ours, mode, resolve].into_iter().flat_map(u64::to_ne_bytes).collect();
    let size = number(how.len() as u64);
    let directory = from.map_or(HERE, Argument::Fd);
    let outcome = with_mask_of(tid, || match resolve {
        0 => call_for_fd(libc::SYS_openat, [directory, Argument::Text(path), number(ours), number(mode)]),
        _ => call_for_fd(libc::SYS_openat2, [directory, Argument::Text(path), Argument::Memory(&mut how), size]),
    });
    match outcome {
        Err(errno) if is_refusal(errno) => Answer::Refused(errno),
        // The file that was made is the caller's, whatever its mode: a second open could be refused.
        Ok(file) if given & libc::O_CREAT != 0 && is_regular(&file) => {
            // With what the caller asked for.
            let status = number(given & !(libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC));
            match call(libc::SYS_fcntl, [Argument::Fd(file.as_fd()), number(libc::F_SETFL), status]) {
                Ok(_) => Answer::Opened(file),
                Err(_) => Answer::Untouched,
            }
        }
        Ok(_) | Err(_) => Answer::Untouched,
    }
}

fn is_regular(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|found| is(&found, SFlag::S_IFREG))
}

/// A new name for a new object.
pub fn make(tid: Pid, name: &Name, made: &Made) -> Answer {
    let path = Argument::Text(&name.text);
    with_mask_of(tid, || {
        answer(match made {
            Made::Directory(mode) => call(libc::SYS_mkdirat, [HERE, path, number(*mode)]),
            Made::Node(mode, device) => call(libc::SYS_mknodat, [HERE, path, number(*mode), number(*device)]),
            // What bind(2) does; a name that is taken is not for here to tell.
            Made::Socket(_) => make_socket(name),
            Made::Symlink(target) => match CString::new(target.as_slice()) {
                Ok(target) => call(libc::SYS_symlinkat, [Argument::Text(&target), HERE, path]),
                Err(_) => Err(Errno::EINVAL),
            },
        })
    })
}

/// Makes the name of a socket as bind(2) does, and takes it away again (EAGAIN). Both in the very same directory, though the way
/// there may lead elsewhere from one call to the next.
fn make_socket(name: &Name) -> Result<i64, Errno> {
    let Some((parent, last)) = split(name.text.as_bytes()) else { return Err(Errno::EADDRINUSE) };
    let [parent, last] = [parent, last].map(|text| CString::new(text).map_err(|_| Errno::EINVAL));
    let (parent, last) = (parent?, last?);
    let place = number((libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64);
    let directory = call_for_fd(libc::SYS_openat, [HERE, Argument::Text(&parent), place])?;
    let at = || Argument::Fd(directory.as_fd());
    call(libc::SYS_mknodat, [at(), Argument::Text(&last), number(libc::S_IFSOCK | 0o777), number(0)])?;
    call(libc::SYS_unlinkat, [at(), Argument::Text(&last), number(0)]).and(Err(Errno::EAGAIN))
}

/// What connect(2) asks of the name of a unix socket (unix(7)).
pub fn reach(name: &Name) -> Answer {
    let asked = [HERE, Argument::Text(&name.text), number(libc::W_OK), number(libc::AT_EACCESS)];
    refused_or_untouched(call(libc::SYS_faccessat2, asked).map(drop))
}

/// An act on names that are there; of a descriptor's own file if `own`.
pub fn link(from: &Name, own: bool, to: &Name) -> Answer {
    answer(linked(from, own, to))
}

/// [`link`], with whatever the kernel says.
pub fn linked(from: &Name, own: bool, to: &Name) -> Result<i64, Errno> {
    let to = Argument::Text(&to.text);
    let object = if own { super::walk::pin(from).map(Some) } else { Ok(None) };
    object.and_then(|object| match &object {
        Some(object) => {
            let flags = number(libc::AT_EMPTY_PATH);
            call(libc::SYS_linkat, [Argument::Fd(object.as_fd()), Argument::Text(c""), HERE, to, flags])
        }
        None => {
            let flags = number(if from.follow { libc::AT_SYMLINK_FOLLOW } else { 0 });
            call(libc::SYS_linkat, [HERE, Argument::Text(&from.text), HERE, to, flags])
        }
    })
}

/// rename(2).
pub fn rename(from: &Name, to: &Name, flags: u32) -> Answer {
    answer(renamed(from, to, flags))
}

/// [`rename`], with whatever the kernel says.
pub fn renamed(from: &Name, to: &Name, flags: u32) -> Result<i64, Errno> {
    let [old, new] = [from, to].map(|name| Argument::Text(&name.text));
    call(libc::SYS_renameat2, [HERE, old, HERE, new, number(flags)])
}

/// unlink(2), rmdir(2).
pub fn remove(name: &Name, directory: bool) -> Answer {
    answer(removed(name, directory))
}

/// [`remove`], with whatever the kernel says.
pub fn removed(name: &Name, directory: bool) -> Result<i64, Errno> {
    let flags = number(if directory { libc::AT_REMOVEDIR } else { 0 });
    call(libc::SYS_unlinkat, [HERE, Argument::Text(&name.text), flags])
}

/// A change of a file.
pub fn change(name: &Name, change: &Change) -> Answer {
    answer(match (changed(name, change), change) {
        // An id that has no number in the user namespace (user_namespaces(7)) is another's, and not to be given to.
        (Err(Errno::EINVAL), Change::Owner(..)) => Err(Errno::EPERM),
        (outcome, _) => outcome,
    })
}

/// [`change`], with whatever the kernel says.
pub fn changed(name: &Name, change: &Change) -> Result<i64, Errno> {
    let path = Argument::Text(&name.text);
    let flags = no_follow(name);
    match change {
        // fchmodat2(2) is newer than some kernels; a link's own mode cannot be changed anyway (EOPNOTSUPP).
        Change::Mode(mode) if name.follow => call(libc::SYS_fchmodat, [HERE, path, number(*mode)]),
        Change::Mode(mode) => call(SYS_FCHMODAT2, [HERE, path, number(*mode), flags]),
        Change::Owner(uid, gid) => call(libc::SYS_fchownat, [HERE, path, number(*uid), number(*gid), flags]),
        Change::Length(length) => call(libc::SYS_truncate, [path, number(*length)]),
        Change::Times(None) => call(libc::SYS_utimensat, [HERE, path, number(0), flags]),
        Change::Times(Some(times)) => {
            let words = times.iter().flat_map(|(seconds, fraction)| [*seconds, *fraction]);
            let mut bytes: Vec<u8> = words.flat_map(i64::to_ne_bytes).collect();
            call(libc::SYS_utimensat, [HERE, path, Argument::Memory(&mut bytes), flags])
        }
        Change::SetXattr(attribute, value, how) => {
            let attribute = CString::new(attribute.as_slice()).map_err(|_| Errno::EINVAL)?;
            let mut value = value.clone();
            let size = number(value.len() as u64);
            let which = if name.follow { libc::SYS_setxattr } else { libc::SYS_lsetxattr };
            call(which, [path, Argument::Text(&attribute), Argument::Memory(&mut value), size, number(*how)])
        }
        Change::RemoveXattr(attribute) => {
            let attribute = CString::new(attribute.as_slice()).map_err(|_| Errno::EINVAL)?;
            let which = if name.follow { libc::SYS_removexattr } else { libc::SYS_lremovexattr };
            call(which, [path, Argument::Text(&attribute)])
        }
        Change::Inode(request, bytes) => {
            let mut bytes = bytes.clone();
            let file = opened_for_attributes(name)?;
            let file = Argument::Fd(file.as_fd());
            call(libc::SYS_ioctl, [file, number(*request), Argument::Memory(&mut bytes)])
        }
        Change::OfFileSystem => Err(Errno::ENOTTY),
        Change::FileAttributes(bytes) => {
            let mut bytes = bytes.clone();
            let size = number(bytes.len() as u64);
            call(SYS_FILE_SETATTR, [HERE, path, Argument::Memory(&mut bytes), size, flags])
        }
    }
}

/// A file whose attributes are to be changed, which takes a descriptor of it. One that may be opened neither to read nor to
/// write is EAGAIN, which says nothing of a descriptor that is open already; what is neither a file nor a directory has no
/// such attributes, and an open could set something going.
fn opened_for_attributes(name: &Name) -> Result<OwnedFd, Errno> {
    let found = nix::sys::stat::stat(name.text.as_c_str())?;
    if !is(&found, SFlag::S_IFREG) && !is(&found, SFlag::S_IFDIR) {
        return Err(Errno::ENOTTY);
    }
    let open = |how: i32| {
        let how = number(how | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY);
        call_for_fd(libc::SYS_openat, [HERE, Argument::Text(&name.text), how])
    };
    open(libc::O_RDONLY).or_else(|_| open(libc::O_WRONLY)).map_err(|_| Errno::EAGAIN)
}

const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_FILE_SETATTR: libc::c_long = 469;

/// A call that needs a capability, with paths as `names` gives them. One that goes through without it is undone where it made
/// something, and not answered.
pub fn again(number: libc::c_long, values: &[Value], names: &[Name]) -> Answer {
    let Some(values) = as_ours(number, values) else { return Answer::Untouched };
    let values = values.as_slice();
    let mut texts = Vec::new();
    let mut memories = Vec::new();
    for value in values {
        match value {
            Value::Text(text) => match CString::new(text.as_slice()) {
                Ok(text) => texts.push(text),
                Err(_) => return Answer::Untouched,
            },
            Value::Memory(bytes) => memories.push(bytes.clone()),
            Value::Number(_) | Value::Path(_) => {}
        }
    }
    let (mut texts, mut memories, mut names) = (texts.iter(), memories.iter_mut(), names.iter());
    let mut arguments: [Argument<'_>; 6] = std::array::from_fn(|_| Argument::Number(0));
    for (argument, value) in arguments.iter_mut().zip(values) {
        *argument = match value {
            Value::Number(number) => Argument::Number(*number),
            Value::Text(_) => texts.next().map_or(Argument::Number(0), |text| Argument::Text(text)),
            Value::Path(_) => names.next().map_or(Argument::Number(0), |name| Argument::Text(&name.text)),
            Value::Memory(_) => memories.next().map_or(Argument::Number(0), |bytes| Argument::Memory(bytes)),
        };
    }
    refused_or_untouched(match makes_descriptor(number) {
        true => call_for_fd(number, arguments).map(drop),
        false => call(number, arguments).map(drop),
    })
}

/// The values with which a call means for this process what it means for its caller; `None` where that cannot be had.
fn as_ours(number: libc::c_long, values: &[Value]) -> Option<Vec<Value>> {
    let mut values = values.to_vec();
    match (number, values.as_mut_slice()) {
        // Its attributes hold addresses, to which the kernel writes, and descriptors: only where the kernel refuses all
        // that has neither can this process make the call.
        (libc::SYS_bpf, _) if !is_bpf_closed() => return None,
        (libc::SYS_perf_event_open, [Value::Memory(attributes), Value::Number(pid), ..]) => {
            // It must never fire here: a breakpoint can send a signal.
            const DISABLED: u8 = 1;
            if let Some(flags) = attributes.get_mut(PERF_FLAGS) {
                *flags |= DISABLED;
            }
            // Whom the command may trace it may measure, and this process itself, which stands in for it (ptrace(2)).
            if *pid as i32 > 0 && is_traceable(*pid as i32).is_ok() {
                *pid = 0;
            }
        }
        // Which mount is looked at after the capability; the number is one of the caller's descriptors. Negative ones stand
        // for file systems of the kernel's.
        (libc::SYS_open_by_handle_at, [Value::Number(mount), ..]) if *mount as i32 >= 0 => {
            *mount = libc::AT_FDCWD as u64;
        }
        _ => {}
    }
    Some(values)
}

/// Where the flags begin in `struct perf_event_attr`, `disabled` being the first (perf_event_open(2)).
const PERF_FLAGS: usize = if cfg!(target_endian = "little") { 40 } else { 47 };

/// Whether bpf(2) is for the privileged alone (proc_sys_kernel(5), `unprivileged_bpf_disabled`).
fn is_bpf_closed() -> bool {
    procfs::read("/proc/sys/kernel/unprivileged_bpf_disabled").is_ok_and(|told| told.trim() != "0")
}

/// Whether the kernel lets one of the command's user look into a process (ptrace(2), PTRACE_MODE_READ_FSCREDS).
pub fn is_traceable(pid: i32) -> Result<(), Errno> {
    match nix::fcntl::readlink(format!("/proc/{pid}/cwd").as_str()) {
        Err(Errno::EACCES | Errno::EPERM) => Err(Errno::EPERM),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Calls whose success is a new descriptor of ours, to be closed. Of bpf(2)'s commands those that make one are refused to
/// whoever may not, and what else may succeed gives 0.
fn makes_descriptor(number: libc::c_long) -> bool {
    [
        libc::SYS_socket,
        libc::SYS_perf_event_open,
        libc::SYS_open_by_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_userfaultfd,
        libc::SYS_fsopen,
    ]
    .contains(&number)
}

/// A port below 1024 is bound by a socket of ours for a moment, unless it is refused.
pub fn bind_port(address: &[u8]) -> Answer {
    let family = address.first_chunk().map_or(0, |family| u16::from_ne_bytes(*family));
    let kind = number(libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
    let Ok(socket) = call_for_fd(libc::SYS_socket, [number(family), kind, number(0)]) else {
        return Answer::Untouched;
    };
    let mut address = address.to_vec();
    let size = number(address.len() as u64);
    let bound = call(libc::SYS_bind, [Argument::Fd(socket.as_fd()), Argument::Memory(&mut address), size]);
    refused_or_untouched(bound.map(drop))
}
