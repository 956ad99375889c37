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

/// What a kernel may be built without. io_uring makes calls that no filter sees; clone3 hides its flags behind a pointer,
/// and C libraries fall back to clone. Keys are shared by all processes of a uid on the machine, containers or not, and a
/// request for one that is missing starts a program of root's outside of the sandbox, to resolve a name for one
/// (request-key(8), key type dns_resolver).
const ABSENT: &[&str] =
    &["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "add_key", "request_key", "keyctl"];

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
        if !mutation::left_out("multipath") {
            refuse_sockets_of_the_kernel(&mut filter)?;
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

/// Sockets of the inet families for which the kernel opens others that have no file, so that the firewall sees no opener.
fn refuse_sockets_of_the_kernel(filter: &mut Builder) -> Result<(), FilterError> {
    // A protocol of IP is a number of one byte. Those above are the kernel's own: SMC over a TCP socket of its own, further
    // subflows of MPTCP, QUIC. The answer is that of a kernel without them, upon which programs take TCP.
    for bit in u8::BITS..u32::BITS {
        filter.refuse("socket", libc::EPROTONOSUPPORT, &[masked(2, 1 << bit, 1 << bit)])?;
    }
    // An upper layer protocol may take the TCP socket away from its file (smc). The answer is that of a kernel without it.
    let tcp = masked(1, REQUEST_MASK, libc::IPPROTO_TCP as u64);
    filter.refuse("setsockopt", libc::ENOENT, &[tcp, masked(2, REQUEST_MASK, libc::TCP_ULP as u64)])
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

    /// What a program of [`program`] answers to a call of the native entry: the classic BPF that libseccomp writes.
    fn verdict(program: &[u8], call: libc::c_long, arguments: [u64; 6]) -> u32 {
        const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        let mut data = Vec::new();
        data.extend_from_slice(&(call as u32).to_ne_bytes());
        data.extend_from_slice(&ARCH.to_ne_bytes());
        data.extend_from_slice(&0u64.to_ne_bytes());
        arguments.iter().for_each(|a| data.extend_from_slice(&a.to_ne_bytes()));
        let (mut accumulator, mut at) = (0u32, 0);
        loop {
            let [c0, c1, jt, jf, k @ ..] = *program[at * 8..].first_chunk::<8>().expect("an instruction");
            let k = u32::from_ne_bytes(k);
            at += 1;
            let jump = |taken: bool| usize::from(if taken { jt } else { jf });
            match u16::from_ne_bytes([c0, c1]) {
                0x20 => accumulator = u32::from_ne_bytes(*data[k as usize..].first_chunk().expect("a field")),
                0x54 => accumulator &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(accumulator == k),
                0x25 => at += jump(accumulator > k),
                0x35 => at += jump(accumulator >= k),
                0x45 => at += jump(accumulator & k != 0),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn errno(number: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | number as u32
    }

    #[test]
    fn sockets_that_the_kernel_opens_by_itself_are_refused() {
        const SMC: u64 = 256;
        const QUIC: u64 = 261;
        let full = program(Posture::Locked, Posture::Restricted).unwrap();
        let open = program(Posture::Locked, Posture::Open).unwrap();
        let socket = |program: &[u8], family: i32, protocol: u64| {
            verdict(program, libc::SYS_socket, [family as u64, libc::SOCK_STREAM as u64, protocol, 0, 0, 0])
        };
        let high_bits = 0xdead_0000_0000;
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [0, 6, 17, 1, 58, 136, 255] {
                assert_eq!(socket(&full, family, protocol), libc::SECCOMP_RET_ALLOW, "{family} {protocol}");
            }
            for protocol in [SMC, QUIC, libc::IPPROTO_MPTCP as u64, 1 << 31, high_bits | SMC] {
                assert_eq!(socket(&full, family, protocol), errno(libc::EPROTONOSUPPORT), "{family} {protocol}");
                assert_eq!(socket(&open, family, protocol), libc::SECCOMP_RET_ALLOW, "{family} {protocol}");
            }
        }
        assert_eq!(socket(&full, libc::AF_NETLINK, libc::NETLINK_GENERIC as u64), libc::SECCOMP_RET_ALLOW);
        let option = |level: u64, option: u64| verdict(&full, libc::SYS_setsockopt, [3, level, option, 0, 0, 0]);
        let (tcp, ulp) = (libc::IPPROTO_TCP as u64, libc::TCP_ULP as u64);
        assert_eq!(option(tcp, ulp), errno(libc::ENOENT));
        assert_eq!(option(high_bits | tcp, high_bits | ulp), errno(libc::ENOENT));
        assert_eq!(option(tcp, libc::TCP_NODELAY as u64), libc::SECCOMP_RET_ALLOW);
        assert_eq!(option(libc::SOL_SOCKET as u64, ulp), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn keys_are_refused_where_privilege_is_locked() {
        let locked = program(Posture::Locked, Posture::Open).unwrap();
        let restricted = program(Posture::Restricted, Posture::Open).unwrap();
        for call in [libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl] {
            assert_eq!(verdict(&locked, call, [0; 6]), errno(libc::ENOSYS));
            assert_eq!(verdict(&restricted, call, [0; 6]), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn every_posture_has_a_program() {
        let bare = program(Posture::Restricted, Posture::Open).unwrap();
        let full = program(Posture::Locked, Posture::Restricted).unwrap();
        assert!(!bare.is_empty() && bare.len().is_multiple_of(8) && full.len() > bare.len());
        assert!(full.len() / 8 < 4096, "BPF_MAXINSNS");
    }
}
