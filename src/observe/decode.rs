//! From the registers of a stopped call to what it asks for.

use super::act::{Act, Address, Base, Change, Made, Place, Value};
use super::caller::{Memory, PATH_MAX, Unread, asks_for_base};
use super::calls::Structures;
use nix::libc;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

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
/// The longest value of an extended attribute (xattr(7)), and the longest name.
const XATTR_SIZE_MAX: usize = 65_536;
const XATTR_NAME_MAX: usize = 256;

impl Call<'_> {
    fn int(&self, argument: usize) -> i32 {
        self.arguments[argument] as i32
    }

    fn word(&self, argument: usize) -> u32 {
        self.arguments[argument] as u32
    }

    fn text(&self, argument: usize) -> Result<Vec<u8>, Unread> {
        self.caller.string(self.arguments[argument], PATH_MAX)
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
        if length < 2 || length > ADDRESS_MAX {
            return Err(Unread::Form);
        }
        self.caller.bytes(self.arguments[pointer], length)
    }
}

/// A path; an empty one is ENOENT, which is no denial.
fn place(relative_to: Base, given: Vec<u8>, follow: bool) -> Result<Place, Unread> {
    match given.first() {
        None => Err(Unread::Form),
        Some(b'/') => Ok(Place { base: Base::Root, given, follow }),
        Some(_) => Ok(Place { base: relative_to, given, follow }),
    }
}

fn opened(at: Place, flags: u64, mode: u64, resolve: u64) -> Decoded {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW as u64 == 0 && flags & exclusive as u64 != exclusive as u64;
    Ok(Act::Open { at: Place { follow, ..at }, flags, mode, resolve })
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
    const SIZE: usize = 24;
    if (call.arguments[3] as usize) < SIZE {
        return Err(Unread::Form);
    }
    let how = call.caller.bytes(call.arguments[2], SIZE)?;
    let field = |index: usize| how[index * 8..][..8].try_into().map_or(0, u64::from_ne_bytes);
    let flags = field(0);
    if flags & !u64::from(u32::MAX) != 0 || !writes(flags) {
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
    Ok(Act::Link(call.path(0, false)?, call.path(1, false)?))
}

/// linkat(2).
pub fn linkat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
    let follow = flags & libc::AT_SYMLINK_FOLLOW as u64 != 0;
    // Of an empty path the kernel asks for a capability or the very credentials of the opener, and says ENOENT.
    if asks_for_base(flags) {
        return Ok(Act::Plain);
    }
    Ok(Act::Link(call.path_at(0, 1, follow, false)?, call.path_at(2, 3, false, false)?))
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

fn changed(at: Place, change: Change) -> Decoded {
    Ok(Act::Change(at, change))
}

/// The flags of an *at call, if it knows them all: others are EINVAL before anything is looked at.
fn known(flags: u64, all: i32) -> Result<u64, Unread> {
    if flags as u32 & !(all as u32) == 0 { Ok(flags) } else { Err(Unread::Form) }
}

/// The flags that most of them take.
const AT_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;

fn follows(flags: u64) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW as u64 == 0
}

/// chmod(2).
pub fn chmod(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Mode(call.word(1)))
}

/// fchmod(2).
pub fn fchmod(call: &Call<'_>) -> Decoded {
    changed(call.descriptor(0), Change::Mode(call.word(1)))
}

/// fchmodat(2), whose system call has no flags.
pub fn fchmodat(call: &Call<'_>) -> Decoded {
    changed(call.path_at(0, 1, true, false)?, Change::Mode(call.word(2)))
}

/// fchmodat2, Linux 6.6.
pub fn fchmodat2(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[3], AT_FLAGS)?;
    changed(call.path_at(0, 1, follows(flags), asks_for_base(flags))?, Change::Mode(call.word(2)))
}

/// chown(2).
pub fn chown(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Owner(call.word(1), call.word(2)))
}

/// lchown(2).
pub fn lchown(call: &Call<'_>) -> Decoded {
    changed(call.path(0, false)?, Change::Owner(call.word(1), call.word(2)))
}

/// fchown(2).
pub fn fchown(call: &Call<'_>) -> Decoded {
    changed(call.descriptor(0), Change::Owner(call.word(1), call.word(2)))
}

/// fchownat(2).
pub fn fchownat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], AT_FLAGS)?;
    let at = call.path_at(0, 1, follows(flags), asks_for_base(flags))?;
    changed(at, Change::Owner(call.word(2), call.word(3)))
}

/// truncate(2).
pub fn truncate(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Length(call.arguments[1]))
}

/// utime(2): whole seconds.
pub fn utime(call: &Call<'_>) -> Decoded {
    let at = call.path(0, true)?;
    if call.arguments[1] == 0 {
        return changed(at, Change::Times(None));
    }
    let [access, modification] = call.longs(1)?;
    changed(at, Change::Times(Some([(access, 0), (modification, 0)])))
}

fn microseconds(times: Option<[(i64, i64); 2]>) -> Change {
    Change::Times(times.map(|times| times.map(|(seconds, fraction)| (seconds, fraction.saturating_mul(1000)))))
}

/// utimes(2): microseconds.
pub fn utimes(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, microseconds(call.two_times(1)?))
}

/// futimesat(2): microseconds.
pub fn futimesat(call: &Call<'_>) -> Decoded {
    let at = match call.arguments[1] {
        0 => call.descriptor(0),
        _ => call.path_at(0, 1, true, false)?,
    };
    changed(at, microseconds(call.two_times(2)?))
}

/// utimensat(2): nanoseconds; without a path the descriptor's own file.
pub fn utimensat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[3], AT_FLAGS)?;
    let is_base = call.arguments[1] == 0 && flags == 0 && call.int(0) != libc::AT_FDCWD;
    let at = match is_base {
        true => call.descriptor(0),
        false => call.path_at(0, 1, follows(flags), asks_for_base(flags))?,
    };
    changed(at, Change::Times(call.two_times(2)?))
}

fn set_xattr(call: &Call<'_>, at: Place) -> Decoded {
    let name = call.caller.string(call.arguments[1], XATTR_NAME_MAX)?;
    let size = call.arguments[3] as usize;
    if size > XATTR_SIZE_MAX {
        return Err(Unread::Form);
    }
    let value = if size == 0 { Vec::new() } else { call.caller.bytes(call.arguments[2], size)? };
    changed(at, Change::SetXattr(name, value, call.int(4)))
}

/// setxattr(2).
pub fn setxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.path(0, true)?)
}

/// lsetxattr(2).
pub fn lsetxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.path(0, false)?)
}

/// fsetxattr(2).
pub fn fsetxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.descriptor(0))
}

/// setxattrat, Linux 6.13: value, size and flags stand in a structure.
pub fn setxattrat(call: &Call<'_>) -> Decoded {
    const SIZE: usize = 16;
    let flags = known(call.arguments[2], AT_FLAGS)?;
    let at = call.path_at(0, 1, follows(flags), asks_for_base(flags))?;
    let name = call.caller.string(call.arguments[3], XATTR_NAME_MAX)?;
    if (call.arguments[5] as usize) < SIZE {
        return Err(Unread::Form);
    }
    let how = call.caller.bytes(call.arguments[4], SIZE)?;
    let (value, rest) = how.split_at(8);
    let address = value.try_into().map_or(0, u64::from_ne_bytes);
    let size = rest[..4].try_into().map_or(0, u32::from_ne_bytes) as usize;
    let how = rest[4..].try_into().map_or(0, i32::from_ne_bytes);
    if size > XATTR_SIZE_MAX {
        return Err(Unread::Form);
    }
    let value = if size == 0 { Vec::new() } else { call.caller.bytes(address, size)? };
    changed(at, Change::SetXattr(name, value, how))
}

fn remove_xattr(call: &Call<'_>, at: Place, name: usize) -> Decoded {
    changed(at, Change::RemoveXattr(call.caller.string(call.arguments[name], XATTR_NAME_MAX)?))
}

/// removexattr(2).
pub fn removexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.path(0, true)?, 1)
}

/// lremovexattr(2).
pub fn lremovexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.path(0, false)?, 1)
}

/// fremovexattr(2).
pub fn fremovexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.descriptor(0), 1)
}

/// removexattrat, Linux 6.13.
pub fn removexattrat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[2], AT_FLAGS)?;
    remove_xattr(call, call.path_at(0, 1, follows(flags), asks_for_base(flags))?, 3)
}

/// FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS and FS_IOC_FSSETXATTR (linux/fs.h).
pub const INODE_REQUESTS: [(u64, usize); 3] = [(0x4008_6602, 4), (0x4004_6602, 4), (0x401c_5820, 28)];

/// ioctl(2) with one of [`INODE_REQUESTS`].
pub fn ioctl(call: &Call<'_>) -> Decoded {
    let request = u64::from(call.word(1));
    match INODE_REQUESTS.iter().find(|(known, _)| *known == request) {
        Some((request, size)) => {
            let bytes = call.caller.bytes(call.arguments[2], *size)?;
            // A 32-bit program's request has another number for the same.
            let narrow = call.structures != Structures::Native && *request == INODE_REQUESTS[1].0;
            let request = if narrow { INODE_REQUESTS[0].0 } else { *request };
            changed(call.descriptor(0), Change::Inode(request, bytes))
        }
        None => Ok(Act::Plain),
    }
}

/// file_setattr, Linux 6.17.
pub fn file_setattr(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], AT_FLAGS)?;
    let at = call.path_at(0, 1, follows(flags), asks_for_base(flags))?;
    match call.arguments[3] as usize {
        size @ 1..=AGAIN_MAX => changed(at, Change::FileAttributes(call.caller.bytes(call.arguments[2], size)?)),
        _ => Err(Unread::Form),
    }
}

/// bind(2).
pub fn bind(call: &Call<'_>) -> Decoded {
    let bytes = call.address(1, 2)?;
    Ok(match address(&bytes) {
        Address::Unix(at) => Act::Make(Place { follow: false, ..at }, Made::Socket(call.int(0))),
        Address::Inet(to) => Act::BindPort { socket: call.int(0), port: to.port(), address: bytes },
        Address::Other => Act::Plain,
    })
}

/// connect(2).
pub fn connect(call: &Call<'_>) -> Decoded {
    Ok(Act::Reach { socket: call.int(0), address: address(&call.address(1, 2)?) })
}

/// sendto(2) with an address.
pub fn sendto(call: &Call<'_>) -> Decoded {
    if call.arguments[4] == 0 {
        return Ok(Act::Plain);
    }
    Ok(Act::Reach { socket: call.int(0), address: address(&call.address(4, 5)?) })
}

/// A socket address as the kernel reads it (ip(7), ipv6(7), unix(7)).
pub fn address(bytes: &[u8]) -> Address {
    let port = || bytes.get(2..4).map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
    let family = bytes.first_chunk().map_or(0, |family| i32::from(u16::from_ne_bytes(*family)));
    match family {
        libc::AF_INET => match bytes.get(4..8) {
            Some(&[a, b, c, d]) => Address::Inet(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port())),
            _ => Address::Other,
        },
        libc::AF_INET6 => match bytes.get(8..24).and_then(|ip| <[u8; 16]>::try_from(ip).ok()) {
            Some(ip) => Address::Inet(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port())),
            None => Address::Other,
        },
        libc::AF_UNIX => {
            let name = bytes[2..].split(|byte| *byte == 0).next().unwrap_or_default();
            match place(Base::Cwd, name.to_vec(), true) {
                Ok(at) => Address::Unix(at),
                // An abstract one, or one that asks the kernel for a name.
                Err(_) => Address::Other,
            }
        }
        _ => Address::Other,
    }
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

/// What an argument of a call that is made again is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// A number.
    Number,
    /// A string.
    Text,
    /// A string or no string.
    MaybeText,
    /// A path.
    Path,
    /// The head of a `struct file_handle`, with room for the rest.
    Handle,
    /// Memory of this size.
    Memory(usize),
    /// Memory whose size another argument gives.
    Sized(usize),
    /// `struct perf_event_attr`, which holds its own size.
    PerfEvent,
    /// `struct timeval` or `struct timespec`.
    Time,
    /// `time_t`, for the call that takes a `struct timeval`.
    Seconds,
    /// `struct timex`.
    Timex,
    /// Nothing of it matters before the kernel has looked at the capability.
    Null,
}

/// The largest memory that is copied for a call that is made again: bpf(2)'s and perf_event_open(2)'s are a page at most.
pub const AGAIN_MAX: usize = 4096;

/// The sizes of `struct timex` (linux/timex.h) and of a 32-bit program's.
const TIMEX: usize = 208;
const TIMEX_NARROW: usize = 128;

/// The largest handle of a file, beside its head (name_to_handle_at(2)).
const HANDLE_MAX: usize = 128;

/// A call as it can be made again.
pub fn again(call: &Call<'_>, shape: &[Again]) -> Decoded {
    let memory = |argument: usize, size: usize| {
        let address = call.arguments[argument];
        match size {
            0 => Ok(Value::Number(0)),
            _ if address == 0 => Ok(Value::Number(0)),
            // More than the kernel takes, which it says itself.
            _ if size > AGAIN_MAX => Err(Unread::Form),
            _ => call.caller.bytes(address, size).map(Value::Memory),
        }
    };
    let longs = |longs: &[i64]| Value::Memory(longs.iter().copied().flat_map(i64::to_ne_bytes).collect());
    let values: Result<Vec<Value>, Unread> = shape
        .iter()
        .enumerate()
        .map(|(argument, kind)| match *kind {
            Again::Number => Ok(Value::Number(call.arguments[argument])),
            Again::Null => Ok(Value::Number(0)),
            Again::Text => call.text(argument).map(Value::Text),
            Again::MaybeText if call.arguments[argument] == 0 => Ok(Value::Number(0)),
            Again::MaybeText => call.text(argument).map(Value::Text),
            Again::Memory(size) => memory(argument, size),
            Again::Path => call.path(argument, true).map(Value::Path),
            Again::Handle => {
                let mut handle = call.caller.bytes(call.arguments[argument], 8)?;
                handle.resize(8 + HANDLE_MAX, 0);
                Ok(Value::Memory(handle))
            }
            Again::Sized(by) => memory(argument, call.arguments[by] as usize),
            Again::Time | Again::Seconds | Again::Timex if call.arguments[argument] == 0 => Ok(Value::Number(0)),
            Again::Time => call.longs(argument).map(|[seconds, fraction]| {
                let (seconds, fraction) = call.time(seconds, fraction);
                longs(&[seconds, fraction])
            }),
            Again::Seconds => call.longs(argument).map(|[seconds]| longs(&[seconds, 0])),
            // What is to be changed comes first and in one size, and is all that matters before the capability.
            Again::Timex if call.structures == Structures::Narrow => {
                let narrow = call.caller.bytes(call.arguments[argument], TIMEX_NARROW)?;
                let mut native = vec![0; TIMEX];
                native[..4].copy_from_slice(&narrow[..4]);
                Ok(Value::Memory(native))
            }
            Again::Timex => memory(argument, TIMEX),
            Again::PerfEvent => {
                let head = call.caller.bytes(call.arguments[argument], 8)?;
                let size = head[4..].try_into().map_or(0, u32::from_ne_bytes) as usize;
                memory(argument, size.max(64))
            }
        })
        .collect();
    Ok(Act::Privileged(values?))
}
