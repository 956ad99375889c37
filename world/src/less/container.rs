//! What a default container leaves to root: the capabilities and the filter of Docker's default profile, by its published
//! facts (github.com/moby/profiles, seccomp/default.json; as in environments where `process_vm_readv` is refused too).

use super::filter::{Refusal, When};
use nix::errno::Errno;

/// CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE
/// SETFCAP.
pub const CAPABILITIES: [u32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

/// Calls that are refused whatever their arguments are.
const REFUSED: &[&str] = &[
    // For SYS_ADMIN.
    "bpf",
    "fanotify_init",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "perf_event_open",
    "quotactl",
    "quotactl_fd",
    "setdomainname",
    "sethostname",
    "setns",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    // For SYS_PTRACE.
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    // For DAC_READ_SEARCH, SYS_BOOT, SYS_MODULE, SYS_PACCT, SYS_RAWIO, SYS_TIME, SYS_TTY_CONFIG, SYS_NICE.
    "open_by_handle_at",
    "reboot",
    "delete_module",
    "init_module",
    "finit_module",
    "acct",
    "iopl",
    "ioperm",
    "settimeofday",
    "stime",
    "clock_settime",
    "clock_settime64",
    "vhangup",
    "get_mempolicy",
    "mbind",
    "set_mempolicy",
    "set_mempolicy_home_node",
    // For nobody.
    "add_key",
    "keyctl",
    "request_key",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kexec_file_load",
    "kexec_load",
    "migrate_pages",
    "move_pages",
    "nfsservctl",
    "pivot_root",
    "swapoff",
    "swapon",
    "_sysctl",
    "sysfs",
    "uselib",
    "userfaultfd",
    "ustat",
    "vm86",
    "vm86old",
];

/// What a personality may consist of (personality(2)): PER_LINUX32, UNAME26. All bits at once are the question for it.
const PERSONALITIES: u64 = 0x8 | 0x2_0000;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
pub(super) const NEW_NAMESPACES: [u64; 7] =
    [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

/// Everything that is refused.
pub(super) fn refusals() -> Vec<Refusal> {
    let refusal = |call: &str, when: Vec<When>, errno: Errno| Refusal { call: call.to_owned(), when, errno };
    let always = REFUSED.iter().map(|call| refusal(call, Vec::new(), Errno::EPERM));
    let clone = NEW_NAMESPACES.iter().map(|bit| refusal("clone", vec![When::Has(0, *bit)], Errno::EPERM));
    let families = [family::ALG, family::VSOCK];
    let sockets = families.iter().map(|family| refusal("socket", vec![When::Is(0, *family)], Errno::EPERM));
    // Without the highest bit no other one may be there, and with it none may lack.
    const HIGHEST: u64 = 1 << 31;
    let bits = (0..31).map(|at| 1u64 << at);
    let odd = bits.clone().filter(|bit| bit & PERSONALITIES == 0).map(|bit| When::Masked(0, bit | HIGHEST, bit));
    let personality = odd.chain(bits.map(|bit| When::Masked(0, bit | HIGHEST, HIGHEST)));
    let personality = personality.map(|when| refusal("personality", vec![when], Errno::EPERM));
    always
        .chain(clone)
        .chain(sockets)
        .chain(personality)
        // Its flags lie in memory, so that the C library has to fall back on clone(2).
        .chain([refusal("clone3", Vec::new(), Errno::ENOSYS)])
        .collect()
}

/// Address families (linux/socket.h).
mod family {
    pub const ALG: u64 = 38;
    pub const VSOCK: u64 = 40;
}
