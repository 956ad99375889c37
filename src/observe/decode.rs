//! From the registers of a stopped call to what it asks for.

mod again;
mod attributes;
mod changes;
mod looks;
pub mod messages;
mod sockets;
mod steering;

pub use again::{AGAIN_MAX, Again, again};
pub use attributes::{
    FILE_SYSTEM_REQUESTS, INODE_REQUESTS, file_setattr, fremovexattr, fsetxattr, ioctl, ioctl_of_file_system,
    lremovexattr, lsetxattr, removexattr, removexattrat, setxattr, setxattrat,
};
use changes::changed;
pub use changes::{
    access, chmod, chown, faccessat, faccessat2, fchmod, fchmodat, fchmodat2, fchown, fchownat, futimesat, lchown,
    truncate, utime, utimensat, utimes,
};
pub use looks::{
    look, look_at, look_at_link, look_at_link_at, look_flags_fifth, look_flags_fourth, look_flags_third,
    look_for_handle, look_second, look_to_mark,
};
pub use sockets::{address, bind, connect, made, sendmsg, sendto};
pub use steering::{ioprio_set, of_first, setpriority};

use super::act::{Act, Base, Made, Place};
use super::caller::{Memory, PATH_MAX, Unread, asks_for_base};
use super::calls::Structures;
use nix::errno::Errno;
use nix::libc;

/// A stopped call's registers and its caller's memory.
#[derive(Debug)]
pub struct Call<'a> {
    /// Who is stopped.
    pub caller: &'a dyn Memory,
    /// The registers of the native call.
    pub arguments: [u64; 6],
    /// What the pointers point to.
    pub structures: Structures,
}

/// What came of reading a call.
pub type Decoded = Result<Act, Unread>;

/// The longest socket address (socket(7), `sockaddr_storage`).
const ADDRESS_MAX: usize = 128;

impl Call<'_> {
    fn int(&self, argument: usize) -> i32 {
        self.arguments[argument] as i32
    }

    fn word(&self, argument: usize) -> u32 {
        self.arguments[argument] as u32
    }

    fn text(&self, argument: usize) -> Result<Vec<u8>, Unread> {
        self.string(argument, PATH_MAX, Errno::ENAMETOOLONG)
    }

    /// A string, without its NUL, which must come within `limit` bytes; `too_long` where it does not.
    fn string(&self, argument: usize, limit: usize, too_long: Errno) -> Result<Vec<u8>, Unread> {
        let address = self.arguments[argument];
        match self.caller.string(address, limit) {
            Err(Unread::Form) if self.caller.bytes(address, limit).is_ok() => Err(Unread::Fails(too_long)),
            read => read,
        }
    }

    /// A path relative to the working directory.
    fn path(&self, argument: usize, follow: bool) -> Result<Place, Unread> {
        place(Base::Cwd, self.text(argument)?, follow)
    }

    /// A path relative to a descriptor. With `may_be_base` an empty one, or none at all, is the descriptor's own object.
    fn path_at(&self, directory: usize, path: usize, follow: bool, may_be_base: bool) -> Result<Place, Unread> {
        let base = match self.int(directory) {
            libc::AT_FDCWD => Base::Cwd,
            fd => Base::Fd(fd),
        };
        if may_be_base && self.arguments[path] == 0 {
            return Ok(Place { base, given: Vec::new(), follow });
        }
        let given = self.text(path)?;
        if given.is_empty() && may_be_base {
            return Ok(Place { base, given, follow });
        }
        place(base, given, follow)
    }

    /// [`Call::path_at`] for calls to which an empty path is the descriptor itself, which must be open for more than its place.
    fn path_or_file(&self, directory: usize, path: usize, flags: u64) -> Result<Place, Unread> {
        let at = self.path_at(directory, path, follows(flags), asks_for_base(flags))?;
        Ok(match at.base {
            Base::Fd(fd) if at.given.is_empty() => Place { base: Base::File(fd), ..at },
            _ => at,
        })
    }

    /// What a descriptor refers to.
    fn descriptor(&self, argument: usize) -> Place {
        Place { base: Base::File(self.int(argument)), given: Vec::new(), follow: true }
    }

    /// The longs behind a pointer, in the caller's own size, extended as the kernel does.
    fn longs<const N: usize>(&self, argument: usize) -> Result<[i64; N], Unread> {
        let narrow = self.structures == Structures::Narrow;
        let size = if narrow { 4 } else { 8 };
        let bytes = self.caller.bytes(self.arguments[argument], N * size)?;
        Ok(std::array::from_fn(|index| {
            let field = &bytes[index * size..][..size];
            match narrow {
                true => field.try_into().map_or(0, |field| i64::from(i32::from_ne_bytes(field))),
                false => field.try_into().map_or(0, i64::from_ne_bytes),
            }
        }))
    }

    /// Seconds and a fraction, of which 32-bit programs give 32 bits in any event.
    fn time(&self, seconds: i64, fraction: i64) -> (i64, i64) {
        match self.structures {
            Structures::Time64 => (seconds, i64::from(fraction as u32)),
            Structures::Native | Structures::Narrow => (seconds, fraction),
        }
    }

    fn two_times(&self, argument: usize) -> Result<Option<[(i64, i64); 2]>, Unread> {
        if self.arguments[argument] == 0 {
            return Ok(None);
        }
        let [a, b, c, d] = self.longs(argument)?;
        Ok(Some([self.time(a, b), self.time(c, d)]))
    }

    fn address(&self, pointer: usize, length: usize) -> Result<Vec<u8>, Unread> {
        let length = self.word(length) as usize;
        if !(2..=ADDRESS_MAX).contains(&length) {
            return Err(Unread::Form);
        }
        self.caller.bytes(self.arguments[pointer], length)
    }
}

/// A path; an empty one is no denial.
fn place(relative_to: Base, given: Vec<u8>, follow: bool) -> Result<Place, Unread> {
    match given.first() {
        None => Err(Unread::Fails(Errno::ENOENT)),
        Some(b'/') => Ok(Place { base: Base::Root, given, follow }),
        Some(_) => Ok(Place { base: relative_to, given, follow }),
    }
}

fn opened(at: Place, flags: u64, mode: u64, resolve: u64) -> Decoded {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW as u64 == 0 && flags & exclusive as u64 != exclusive as u64;
    let at = Place { follow, ..at };
    // What is to be made is no directory.
    let at = if flags & libc::O_CREAT as u64 == 0 { slashed(at) } else { at };
    Ok(Act::Open { at, flags, mode, resolve })
}

/// open(2).
pub fn open(call: &Call<'_>) -> Decoded {
    opened(call.path(0, true)?, u64::from(call.word(1)), u64::from(call.word(2)), 0)
}

/// openat(2).
pub fn openat(call: &Call<'_>) -> Decoded {
    opened(call.path_at(0, 1, true, false)?, u64::from(call.word(2)), u64::from(call.word(3)), 0)
}

/// creat(2).
pub fn creat(call: &Call<'_>) -> Decoded {
    let flags = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
    opened(call.path(0, true)?, flags, u64::from(call.word(1)), 0)
}

/// openat2(2): `struct open_how` is three words of 64 bits for every program.
pub fn openat2(call: &Call<'_>) -> Decoded {
    openat2_for(call, false)
}

/// openat2(2), opens for reading among them.
pub fn openat2_whole(call: &Call<'_>) -> Decoded {
    openat2_for(call, true)
}

fn openat2_for(call: &Call<'_>, for_reading: bool) -> Decoded {
    const SIZE: usize = 24;
    if (call.arguments[3] as usize) < SIZE {
        return Err(Unread::Form);
    }
    let how = call.caller.bytes(call.arguments[2], SIZE)?;
    let field = |index: usize| how[index * 8..][..8].try_into().map_or(0, u64::from_ne_bytes);
    let flags = field(0);
    if flags & !u64::from(u32::MAX) != 0 || !(for_reading || writes(flags)) {
        return Ok(Act::Plain);
    }
    let (mode, resolve) = (field(1), field(2));
    let at = call.path_at(0, 1, true, false)?;
    let base = match call.int(0) {
        libc::AT_FDCWD => Base::Cwd,
        fd => Base::Fd(fd),
    };
    // There an absolute path begins at the base as well.
    let base = if resolve & RESOLVE_IN_ROOT != 0 { base } else { at.base };
    opened(Place { base, ..at }, flags, mode, resolve)
}

/// linux/openat2.h.
const RESOLVE_IN_ROOT: u64 = 0x10;

/// Whether the flags of an open ask for more than reading.
pub fn writes(flags: u64) -> bool {
    let writing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_NOATIME | TMPFILE;
    flags & writing as u64 != 0
}

/// `__O_TMPFILE`, the bit that `O_TMPFILE` has beside O_DIRECTORY.
pub const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// mkdir(2).
pub fn mkdir(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path(0, false)?, Made::Directory(call.word(1))))
}

/// mkdirat(2).
pub fn mkdirat(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path_at(0, 1, false, false)?, Made::Directory(call.word(2))))
}

/// mknod(2).
pub fn mknod(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path(0, false)?, Made::Node(call.word(1), call.arguments[2])))
}

/// mknodat(2).
pub fn mknodat(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path_at(0, 1, false, false)?, Made::Node(call.word(2), call.arguments[3])))
}

/// symlink(2).
pub fn symlink(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path(1, false)?, Made::Symlink(call.text(0)?)))
}

/// symlinkat(2).
pub fn symlinkat(call: &Call<'_>) -> Decoded {
    Ok(Act::Make(call.path_at(1, 2, false, false)?, Made::Symlink(call.text(0)?)))
}

/// link(2).
pub fn link(call: &Call<'_>) -> Decoded {
    Ok(Act::Link(slashed(call.path(0, false)?), call.path(1, false)?))
}

/// linkat(2).
pub fn linkat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
    let follow = flags & libc::AT_SYMLINK_FOLLOW as u64 != 0;
    let from = slashed(call.path_at(0, 1, follow, asks_for_base(flags))?);
    Ok(Act::Link(from, call.path_at(2, 3, false, false)?))
}

/// rename(2).
pub fn rename(call: &Call<'_>) -> Decoded {
    Ok(Act::Rename(call.path(0, false)?, call.path(1, false)?, 0))
}

/// renameat(2).
pub fn renameat(call: &Call<'_>) -> Decoded {
    Ok(Act::Rename(call.path_at(0, 1, false, false)?, call.path_at(2, 3, false, false)?, 0))
}

/// renameat2(2).
pub fn renameat2(call: &Call<'_>) -> Decoded {
    Ok(Act::Rename(call.path_at(0, 1, false, false)?, call.path_at(2, 3, false, false)?, call.word(4)))
}

/// unlink(2).
pub fn unlink(call: &Call<'_>) -> Decoded {
    Ok(Act::Remove(call.path(0, false)?, false))
}

/// rmdir(2).
pub fn rmdir(call: &Call<'_>) -> Decoded {
    Ok(Act::Remove(call.path(0, false)?, true))
}

/// unlinkat(2).
pub fn unlinkat(call: &Call<'_>) -> Decoded {
    known(call.arguments[2], libc::AT_REMOVEDIR)?;
    Ok(Act::Remove(call.path_at(0, 1, false, false)?, call.int(2) & libc::AT_REMOVEDIR != 0))
}

/// A slash at the end of a path to an object has a link followed, whatever the flags say (path_resolution(7)).
fn slashed(at: Place) -> Place {
    Place { follow: at.follow || at.given.ends_with(b"/"), ..at }
}

/// The flags of an *at call, if it knows them all: others are EINVAL before anything is looked at.
fn known(flags: u64, all: i32) -> Result<u64, Unread> {
    if flags as u32 & !(all as u32) == 0 { Ok(flags) } else { Err(Unread::Fails(Errno::EINVAL)) }
}

/// The flags that most of them take.
const AT_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;

fn follows(flags: u64) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW as u64 == 0
}

/// execve(2).
pub fn execve(call: &Call<'_>) -> Decoded {
    Ok(Act::Execute(call.path(0, true)?))
}

/// Linux 6.14: whether it could be executed is all that is asked.
const AT_EXECVE_CHECK: i32 = 0x10000;

/// execveat(2).
pub fn execveat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], AT_FLAGS | AT_EXECVE_CHECK)?;
    Ok(Act::Execute(call.path_at(0, 1, follows(flags), asks_for_base(flags))?))
}

fn ids(call: &Call<'_>, group: bool, count: usize, tells: bool) -> Decoded {
    Ok(Act::Ids { group, wanted: (0..count).map(|argument| call.word(argument)).collect(), tells })
}

/// setuid(2).
pub fn setuid(call: &Call<'_>) -> Decoded {
    ids(call, false, 1, true)
}

/// setreuid(2).
pub fn setreuid(call: &Call<'_>) -> Decoded {
    ids(call, false, 2, true)
}

/// setresuid(2).
pub fn setresuid(call: &Call<'_>) -> Decoded {
    ids(call, false, 3, true)
}

/// setfsuid(2).
pub fn setfsuid(call: &Call<'_>) -> Decoded {
    ids(call, false, 1, false)
}

/// setgid(2).
pub fn setgid(call: &Call<'_>) -> Decoded {
    ids(call, true, 1, true)
}

/// setregid(2).
pub fn setregid(call: &Call<'_>) -> Decoded {
    ids(call, true, 2, true)
}

/// setresgid(2).
pub fn setresgid(call: &Call<'_>) -> Decoded {
    ids(call, true, 3, true)
}

/// setfsgid(2).
pub fn setfsgid(call: &Call<'_>) -> Decoded {
    ids(call, true, 1, false)
}

/// capset(2): version and process, then effective, permitted and inheritable bits, once or twice.
pub fn capset(call: &Call<'_>) -> Decoded {
    let header = call.caller.bytes(call.arguments[0], 8)?;
    let version = header[..4].try_into().map_or(0, u32::from_ne_bytes);
    let words = match version {
        0x1998_0330 => 1,
        0x2007_1026 | 0x2008_0522 => 2,
        _ => return Ok(Act::Plain),
    };
    let bits = call.caller.bytes(call.arguments[1], words * 12)?;
    Ok(Act::Capabilities(bits.iter().any(|byte| *byte != 0)))
}

/// ptrace(2).
pub fn ptrace(call: &Call<'_>) -> Decoded {
    Ok(Act::Trace(call.int(1)))
}

/// process_vm_readv(2), process_vm_writev(2).
pub fn of_process(call: &Call<'_>) -> Decoded {
    Ok(Act::Trace(call.int(0)))
}
