//! What probes try of the kernel's interfaces by which a process gains privilege, or reaches what is not its own.

use super::Surroundings;
use super::child::{attempt, errno_of, executed, gained, in_child, in_fork, name_of};
use super::filesystem::mount_tmpfs;
use crate::supervise::processes;
use crate::sys;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a probe tries of the kernel's interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Executes a set-id program of root's.
    SetIdProgram,
    /// Executes a program with a file capability.
    FileCapability,
    /// Executes an ordinary program.
    PlainProgram,
    /// Creates a user namespace.
    UserNamespace,
    /// The same by clone(2).
    UserNamespaceByClone,
    /// Mounts a tmpfs.
    Mount,
    /// Makes calls of the mount family with arguments that the kernel itself would answer with another errno.
    MountCalls,
    /// Makes the calls that pass a filter by, or hide their flags from it.
    AbsentCalls,
    /// Opens a raw socket.
    RawSocket,
    /// Opens sockets of families that the firewall does not see.
    OtherFamily,
    /// Opens a socket of each family that is left.
    KnownFamily,
    /// Opens a multipath TCP socket.
    Multipath,
    /// Pushes a byte into the terminal's input.
    TerminalInput,
    /// The same with high bits set in the request, and by the console's own request.
    TerminalInputDisguised,
    /// Makes an ordinary request of ioctl(2).
    OrdinaryRequest,
    /// Traces the supervisor, and opens its memory.
    TraceSupervisor,
    /// Asks whether the supervisor, the proxy, the stage and the observer could be signalled, without a signal: one that came
    /// through would hold up the run.
    SignalSupervisor,
    /// Forks a child that exits with a status of its own.
    Fork,
}

/// Tries an operation; what it saw, one word a try.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    match operation {
        Operation::SetIdProgram => run.programs.iter().map(|programs| gained(&programs.set_id())).collect(),
        Operation::FileCapability => run.programs.iter().map(|programs| gained(&programs.file_capability())).collect(),
        Operation::PlainProgram => run.programs.iter().map(|programs| executed(&programs.plain())).collect(),
        Operation::UserNamespace => {
            in_child(|| vec![attempt(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0])])
        }
        Operation::UserNamespaceByClone => vec![clone_namespace()],
        Operation::Mount => vec![errno_of(mount_tmpfs(Path::new("/")))],
        Operation::MountCalls => mount_calls(),
        Operation::AbsentCalls => absent_calls(),
        Operation::RawSocket => {
            vec![
                socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
                socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
                socket(libc::AF_PACKET, libc::SOCK_RAW, 0),
            ]
        }
        Operation::OtherFamily => {
            // The last is no family; only its low bits would be one.
            let families = [libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, libc::AF_CAN, libc::AF_TIPC, 1 << 20];
            families.map(|family| socket(family, libc::SOCK_STREAM, 0)).into()
        }
        Operation::KnownFamily => {
            let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_NETLINK];
            // In a child, with which the sockets go.
            in_child(|| families.map(|family| socket(family, libc::SOCK_DGRAM, 0)).into())
        }
        Operation::Multipath => {
            let families = [libc::AF_INET, libc::AF_INET6];
            families.map(|family| socket(family, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)).into()
        }
        Operation::TerminalInput => vec![request(0, libc::TIOCSTI)],
        Operation::TerminalInputDisguised => {
            vec![request(0, libc::TIOCSTI | 0xdead_0000_0000), request(0, u64::from(libc::TIOCLINUX as u32))]
        }
        Operation::OrdinaryRequest => ordinary_request(),
        Operation::TraceSupervisor => trace(run.supervisor),
        Operation::SignalSupervisor => signal_ours(run),
        Operation::Fork => in_fork(|| vec!["ok".into()]),
    }
}

/// A socket that opens is closed when the probing process ends.
fn socket(family: i32, kind: i32, protocol: i32) -> String {
    attempt(libc::SYS_socket, [family as u64, kind as u64, protocol as u64, 0, 0, 0])
}

fn request(descriptor: u64, request: u64) -> String {
    attempt(libc::SYS_ioctl, [descriptor, request, 0, 0, 0, 0])
}

fn ordinary_request() -> Vec<String> {
    match nix::unistd::pipe() {
        Ok((read, _write)) => {
            use std::os::fd::AsRawFd;
            vec![request(read.as_raw_fd() as u64, libc::FIOCLEX)]
        }
        Err(errno) => vec![name_of(errno)],
    }
}

fn clone_namespace() -> String {
    // With CLONE_NEWUSER a success would be a second process here; it ends at once.
    match sys::attempt(libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0]) {
        Ok(0) => sys::exit_now(0),
        outcome => errno_of(outcome),
    }
}

/// Without a filter the kernel looks at these arguments before it looks at capabilities, and says EFAULT, EINVAL or EBADF.
fn mount_calls() -> Vec<String> {
    const NOWHERE: u64 = 1;
    const NONE: u64 = u64::MAX;
    [
        (libc::SYS_mount, [NOWHERE, NOWHERE, NOWHERE, 0, 0, 0]),
        (libc::SYS_umount2, [NOWHERE, 1 << 20, 0, 0, 0, 0]),
        (libc::SYS_open_tree, [NONE, NOWHERE, 1 << 30, 0, 0, 0]),
        (libc::SYS_fsconfig, [NONE, 0, 0, 0, 0, 0]),
        (libc::SYS_mount_setattr, [NONE, NOWHERE, 1 << 30, 0, 0, 0]),
        (libc::SYS_setns, [NONE, 0, 0, 0, 0, 0]),
    ]
    .map(|(call, arguments)| attempt(call, arguments))
    .into()
}

fn absent_calls() -> Vec<String> {
    const NONE: u64 = u64::MAX;
    [
        (libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
        (libc::SYS_io_uring_enter, [NONE, 0, 0, 0, 0, 0]),
        (libc::SYS_io_uring_register, [NONE, 0, 0, 0, 0, 0]),
        (libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
    ]
    .map(|(call, arguments)| attempt(call, arguments))
    .into()
}

/// The stage is this process's parent, and the observer the stage's.
fn signal_ours(run: &Surroundings) -> Vec<String> {
    let stage = getppid();
    let observer = processes::one(stage).map(|stage| stage.parent);
    let known = [Some(run.supervisor), run.proxy_process].into_iter().flatten().map(Pid::from_raw);
    // Where /proc hides them, as with hidepid, they are not known.
    let ours = known.chain([stage]).chain(observer.filter(|pid| pid.as_raw() > 0));
    ours.map(|pid| errno_of(kill(pid, None))).collect()
}

fn trace(pid: i32) -> Vec<String> {
    let traced = attempt(libc::SYS_ptrace, [u64::from(libc::PTRACE_SEIZE), pid as u64, 0, 0, 0, 0]);
    let memory = open(Path::new(&format!("/proc/{pid}/mem")), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
    vec![traced, errno_of(memory)]
}
