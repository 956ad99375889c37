//! What a stopped call asks for, read from its registers and its caller's memory.

use std::net::SocketAddr;

/// Where a path starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// At the caller's root: the path is absolute.
    Root,
    /// At the caller's working directory.
    Cwd,
    /// At one of the caller's descriptors.
    Fd(i32),
    /// At one that must be open for more than its place (open(2), `O_PATH`).
    File(i32),
}

/// An object as the caller names it: a path, or without one what the base itself is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where the path starts.
    pub base: Base,
    /// The path, without a NUL byte.
    pub given: Vec<u8>,
    /// Whether a symbolic link in the last component is followed.
    pub follow: bool,
}

/// What is made of a name that is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// A directory, with this mode.
    Directory(u32),
    /// What mknod(2) makes: mode and type, and the device number.
    Node(u32, u64),
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// The name of this socket of the caller's, by bind(2).
    Socket(i32),
}

/// A change of what a file is, beside its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its mode.
    Mode(u32),
    /// Its owner and group; all ones leave one as it is.
    Owner(u32, u32),
    /// Its length.
    Length(u64),
    /// Its times; `None` is now.
    Times(Option<[(i64, i64); 2]>),
    /// An extended attribute: name, value and flags of setxattr(2).
    SetXattr(Vec<u8>, Vec<u8>, i32),
    /// An extended attribute is taken away.
    RemoveXattr(Vec<u8>),
    /// The attributes of FS_IOC_SETFLAGS (ioctl_iflags(2)), or what FS_IOC_FSSETXATTR takes, as raw bytes.
    Inode(u64, Vec<u8>),
    /// The attributes of file_setattr, Linux 6.17.
    FileAttributes(Vec<u8>),
    /// What a request of its file system's own does (ioctl(2)), which nobody makes for another.
    OfFileSystem,
}

/// One argument of a call that is made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number, or a pointer to nothing.
    Number(u64),
    /// A string.
    Text(Vec<u8>),
    /// A path.
    Path(Place),
    /// Memory.
    Memory(Vec<u8>),
}

/// Whose scheduling or limits are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A process's or a thread's, by its id.
    Process(i32),
    /// Those of a process group.
    Group(i32),
    /// Those of all of a user's processes.
    User,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// open(2) and its kin; `resolve` is openat2(2)'s.
    Open {
        /// The file.
        at: Place,
        /// `O_*`.
        flags: u64,
        /// The mode of a new file.
        mode: u64,
        /// `RESOLVE_*`.
        resolve: u64,
    },
    /// A new name for a new object.
    Make(Place, Made),
    /// A new name for an object that is there; with an empty path, for a descriptor's own.
    Link(Place, Place),
    /// rename(2) and its kin, with `RENAME_*`.
    Rename(Place, Place, u32),
    /// unlink(2), or rmdir(2) if true.
    Remove(Place, bool),
    /// A change of a file.
    Change(Place, Change),
    /// access(2) and its kin, with `R_OK`, `W_OK` and `X_OK`.
    Access(Place, i32),
    /// A look at what has a name, which changes nothing: stat(2), readlink(2) and their kin.
    Look(Place),
    /// connect(2), or a send with an address.
    Reach {
        /// The caller's socket.
        socket: i32,
        /// Where to.
        address: Address,
    },
    /// bind(2) to an address of the inet families.
    BindPort {
        /// The caller's socket.
        socket: i32,
        /// The port.
        port: u16,
        /// The address, as the kernel reads it.
        address: Vec<u8>,
    },
    /// execve(2).
    Execute(Place),
    /// setuid(2), setgid(2) and their kin: the ids that are asked for.
    Ids {
        /// Whether they are group ids.
        group: bool,
        /// The ids; all ones leave one as it is.
        wanted: Vec<u32>,
        /// Whether the call tells of a refusal: setfsuid(2) and setfsgid(2) do not.
        tells: bool,
    },
    /// capset(2): whether it asks for any capability.
    Capabilities(bool),
    /// ptrace(2) and its kin on this process.
    Trace(i32),
    /// A change of how processes are scheduled or limited.
    Steer(Whom),
    /// What socketcall(2) asks for, where the call proper is refused or looked at for its arguments.
    Socket {
        /// The number of the call proper.
        number: nix::libc::c_long,
        /// Its arguments.
        arguments: [u64; 6],
        /// The value of setsockopt(2).
        value: Vec<u8>,
    },
    /// A call on a socket that is made for its caller.
    OnSocket(SocketCall),
    /// A call that needs a capability, as it can be made again.
    Privileged(Vec<Value>),
    /// What the kernel decides by the call's own form, or what can be no denial.
    Plain,
}

/// A call on a socket, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketCall {
    /// socket(2).
    Make {
        /// `AF_*`.
        family: i32,
        /// `SOCK_*`, with flags.
        kind: i32,
        /// The protocol's number.
        protocol: i32,
    },
    /// bind(2).
    Bind {
        /// The caller's socket.
        socket: i32,
        /// The address; empty where its length is none that the kernel takes.
        address: Vec<u8>,
    },
    /// connect(2).
    Connect {
        /// The caller's socket.
        socket: i32,
        /// The address, likewise.
        address: Vec<u8>,
    },
    /// listen(2).
    Listen {
        /// The caller's socket.
        socket: i32,
        /// How many may wait to be accepted.
        backlog: i32,
    },
    /// sendto(2), sendmsg(2), sendmmsg(2).
    Send {
        /// The caller's socket.
        socket: i32,
        /// `MSG_*`.
        flags: i32,
        /// What is sent.
        sent: Sent,
    },
    /// recvfrom(2) with room for the sender's address, recvmsg(2).
    Receive {
        /// The caller's socket.
        socket: i32,
        /// `MSG_*`.
        flags: i32,
        /// Where it is received to.
        into: Received,
    },
}

/// Where a message is received to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// recvfrom(2).
    Piece {
        /// Where the data goes.
        data: u64,
        /// Room for it, in bytes.
        length: u64,
        /// Where the address goes.
        address: u64,
        /// Where its length is, before and after.
        address_length: u64,
    },
    /// recvmsg(2).
    Message {
        /// Where the `struct msghdr` is.
        at: u64,
    },
}

/// What is sent, where it lies in the caller's memory: it is read once it is known who sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// By sendto(2).
    Piece {
        /// The data's address.
        data: u64,
        /// Its length in bytes.
        length: u64,
        /// Where to; empty for nowhere.
        address: Vec<u8>,
    },
    /// By sendmsg(2): `struct msghdr`.
    Message {
        /// Its address.
        at: u64,
    },
    /// By sendmmsg(2): so many of `struct mmsghdr`.
    Messages {
        /// The first one's address.
        at: u64,
        /// How many.
        count: u32,
    },
}

/// A socket's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Of the inet families.
    Inet(SocketAddr),
    /// A unix socket that has a path.
    Unix(Place),
    /// Any other.
    Other,
}
