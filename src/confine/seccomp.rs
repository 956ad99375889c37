//! The seccomp filter: what no credential check of the kernel's refuses by itself, decided on register arguments only.

use crate::mutation;
use crate::policy::Posture;
use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use nix::libc;
use std::io::{Read, Seek};

/// The filter could not be built.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// libseccomp refused a rule.
    #[error("seccomp filter, rule for {call}: {source}")]
    Rule {
        /// The system call.
        call: &'static str,
        /// The cause.
        source: SeccompError,
    },
    /// The program could not be exported.
    #[error("seccomp filter, export: {0}")]
    Export(String),
}

/// Namespaces by which a process would get capabilities, mounts or a network that the wall does not see (case P04).
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64
    | CLONE_NEWTIME;
const CLONE_NEWTIME: u64 = 0x80;

/// The mount family: EPERM, as the kernel answers one without SYS_ADMIN.
const MOUNTS: &[&str] = &[
    "mount",
    "umount2",
    "pivot_root",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
];

/// io_uring makes calls that no filter sees; clone3 hides its flags behind a pointer, and C libraries fall back to clone.
const ABSENT: &[&str] = &["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"];

/// Socket families that the firewall can judge, or that reach nothing by themselves. All others pass netfilter by: vsock,
/// packet, Bluetooth, CAN, TIPC, RDS, XDP and what is still to come (case N15).
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The kernel reads the request of ioctl(2) as 32 bits, so the comparison must as well (CVE-2019-7303).
const REQUEST_MASK: u64 = 0xffff_ffff;

struct Builder(ScmpFilterContext);

impl Builder {
    fn refuse(&mut self, call: &'static str, errno: i32, conditions: &[ScmpArgCompare]) -> Result<(), FilterError> {
        let rule = |source| FilterError::Rule { call, source };
        let number = ScmpSyscall::from_name(call).map_err(rule)?;
        self.0.add_rule_conditional(ScmpAction::Errno(errno), number, conditions).map(|_| ()).map_err(rule)
    }
}

/// Builds the program for the given postures, ready for seccomp(2).
pub fn program(privilege: Posture, network: Posture) -> Result<Vec<u8>, FilterError> {
    let start = |source| FilterError::Rule { call: "(default)", source };
    let mut context = ScmpFilterContext::new(ScmpAction::Allow).map_err(start)?;
    // The i386 and x32 entries have other numbers and would pass the rules by.
    context.set_act_badarch(ScmpAction::Errno(libc::ENOSYS)).map_err(start)?;
    // no_new_privs is a step of its own in the order; the library must not set it behind our back.
    context.set_ctl_nnp(false).map_err(start)?;
    let mut filter = Builder(context);

    // A shared terminal is the caller's: what is pushed into it runs in the caller's shell afterwards (case P07).
    for request in [libc::TIOCSTI, libc::TIOCLINUX].iter().filter(|_| !mutation::left_out("terminal-input")) {
        filter.refuse("ioctl", libc::EPERM, &[masked(1, REQUEST_MASK, *request)])?;
    }
    if privilege == Posture::Locked {
        for call in ABSENT.iter().filter(|_| !mutation::left_out("absent-calls")) {
            filter.refuse(call, libc::ENOSYS, &[])?;
        }
        for call in MOUNTS.iter().filter(|_| !mutation::left_out("mount-calls")) {
            filter.refuse(call, libc::EPERM, &[])?;
        }
        // One rule a flag: any of them set is a refusal.
        let flags = (0..u64::BITS).map(|bit| 1u64 << bit).filter(|flag| NAMESPACES & flag != 0);
        for flag in flags.filter(|_| !mutation::left_out("namespaces")) {
            filter.refuse("unshare", libc::EPERM, &[masked(0, flag, flag)])?;
            // In clone's flags the low byte is the exit signal, so the time namespace cannot be asked for there.
            if flag != CLONE_NEWTIME {
                filter.refuse("clone", libc::EPERM, &[masked(0, flag, flag)])?;
            }
        }
    }
    if network > Posture::Open {
        if !mutation::left_out("socket-families") {
            refuse_other_families(&mut filter)?;
        }
        // The first subflow of a multipath connection is judged by the firewall; the kernel opens further ones by itself.
        // The answer is that of a kernel without it, upon which programs take TCP.
        if !mutation::left_out("multipath") {
            filter.refuse("socket", libc::EPROTONOSUPPORT, &[masked(2, REQUEST_MASK, libc::IPPROTO_MPTCP as u64)])?;
        }
    }
    export(&filter.0)
}

/// What the proxy may call: sockets, memory, time, and no file by name. Everything else is EPERM, which the proxy's own
/// code never meets.
const PROXY: &[&str] = &[
    "accept4",
    "bind",
    "brk",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "connect",
    "dup",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "eventfd2",
    "exit",
    "exit_group",
    "fcntl",
    "futex",
    "getpeername",
    "getpid",
    "getrandom",
    "getrlimit",
    "getsockname",
    "getsockopt",
    "gettid",
    "ioctl",
    "listen",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "nanosleep",
    "pipe2",
    "poll",
    "ppoll",
    "prlimit64",
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "restart_syscall",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "sigaltstack",
    "socketpair",
    "splice",
    "write",
    "writev",
];

/// The proxy's own filter: an allowlist, with sockets of the inet families and of no other.
pub fn proxy_program() -> Result<Vec<u8>, FilterError> {
    let start = |source| FilterError::Rule { call: "(default)", source };
    let mut context = ScmpFilterContext::new(ScmpAction::Errno(libc::EPERM)).map_err(start)?;
    context.set_ctl_nnp(false).map_err(start)?;
    for call in PROXY {
        let rule = |source| FilterError::Rule { call, source };
        let number = ScmpSyscall::from_name(call).map_err(rule)?;
        context.add_rule(ScmpAction::Allow, number).map_err(rule)?;
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        let rule = |source| FilterError::Rule { call: "socket", source };
        let number = ScmpSyscall::from_name("socket").map_err(rule)?;
        context
            .add_rule_conditional(ScmpAction::Allow, number, &[masked(0, REQUEST_MASK, family as u64)])
            .map_err(rule)?;
    }
    export(&context)
}

fn masked(argument: u32, mask: u64, value: u64) -> ScmpArgCompare {
    ScmpArgCompare::new(argument, ScmpCompareOp::MaskedEqual(mask), value)
}

/// Refuses every family but [`FAMILIES`], by the ranges between them: the number is compared as 32 bits, as the kernel reads it.
fn refuse_other_families(filter: &mut Builder) -> Result<(), FilterError> {
    for call in ["socket", "socketpair"] {
        for family in (0..=AF_TRIED).filter(|family| !FAMILIES.contains(family)) {
            filter.refuse(call, libc::EPERM, &[masked(0, REQUEST_MASK, family as u64)])?;
        }
        // Above the last number tried, any bit of the higher ones is enough.
        for bit in (AF_TRIED + 1).trailing_zeros()..u32::BITS {
            filter.refuse(call, libc::EPERM, &[masked(0, 1 << bit, 1 << bit)])?;
        }
    }
    Ok(())
}

/// Families are compared one by one up to here, which is one less than a power of two.
const AF_TRIED: i32 = 63;

fn export(context: &ScmpFilterContext) -> Result<Vec<u8>, FilterError> {
    let export = |cause: String| FilterError::Export(cause);
    let memory = nix::sys::memfd::memfd_create(c"filter", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
        .map_err(|e| export(e.to_string()))?;
    let mut file = std::fs::File::from(memory);
    context.export_bpf(&file).map_err(|e| export(e.to_string()))?;
    let mut program = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut program)).map_err(|e| export(e.to_string()))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_posture_has_a_program() {
        let bare = program(Posture::Restricted, Posture::Open).unwrap();
        let full = program(Posture::Locked, Posture::Restricted).unwrap();
        assert!(!bare.is_empty() && bare.len().is_multiple_of(8) && full.len() > bare.len());
        assert!(full.len() / 8 < 4096, "BPF_MAXINSNS");
    }
}
