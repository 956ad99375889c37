//! What the seccomp filter refuses, as data: the filter is built from it, and whoever answers for the filter tells by it
//! which rule a call met. Register arguments decide, of which the kernel has its own copy.

use crate::mutation;
use crate::plan::means::Terms;
use crate::policy::{Axis, Posture};
use crate::sys::capability::{NET_RAW, SYS_ADMIN};
use nix::libc;

/// A look at one register argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The masked argument is this value.
    Is {
        /// Which argument, from 0.
        argument: u32,
        /// The bits that are compared.
        mask: u64,
        /// What they must be.
        value: u64,
    },
    /// The argument is not this value, compared as 64 bits.
    IsNot {
        /// Which argument, from 0.
        argument: u32,
        /// What it must not be.
        value: u64,
    },
}

impl Condition {
    /// The argument's bit or bits are set, all of them.
    pub const fn has(argument: u32, bits: u64) -> Condition {
        Condition::Is { argument, mask: bits, value: bits }
    }

    /// The argument is this number, as the kernel reads it: 32 bits (CVE-2019-7303).
    pub const fn equals(argument: u32, value: u64) -> Condition {
        Condition::Is { argument, mask: WORD, value }
    }

    /// Whether it holds for these registers.
    pub fn holds(&self, arguments: &[u64; 6]) -> bool {
        match *self {
            Condition::Is { argument, mask, value } => arguments[argument as usize] & mask == value,
            Condition::IsNot { argument, value } => arguments[argument as usize] != value,
        }
    }
}

/// The bits of a 32-bit argument.
pub const WORD: u64 = 0xffff_ffff;

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The system call.
    pub call: &'static str,
    /// All must hold; none is always.
    pub conditions: Vec<Condition>,
    /// The answer.
    pub errno: i32,
    /// The axis whose restriction it is; `None` for what is answered as by a kernel without it and is no denial.
    pub axis: Option<Axis>,
    /// Its name in records.
    pub name: &'static str,
    /// The capability without which the kernel refuses it by itself: to a caller that never had it, it is no denial.
    pub capability: Option<u32>,
}

impl Rule {
    /// Whether it refuses a call of that name with these registers.
    pub fn refuses(&self, arguments: &[u64; 6]) -> bool {
        self.conditions.iter().all(|condition| condition.holds(arguments))
    }
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

/// A table of descriptors that is shared, and whether by threads of one process.
const SHARED_TABLE: u64 = (libc::CLONE_FILES | libc::CLONE_THREAD) as u64;

/// The mount family: EPERM, as the kernel answers one without SYS_ADMIN.
const MOUNTS: &[&str] = &[
    "mount",
    "umount2",
    "pivot_root",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
];

/// Of the same family, what opens a place, and makes a mount of it where this flag asks for that (open_tree(2)): SYS_ADMIN is
/// needed for that alone.
const TREES: &[&str] = &["open_tree", "open_tree_attr"];
const OPEN_TREE_CLONE: u64 = 1;

/// What a kernel may be built without, and what programs do without when it is: io_uring makes calls that no filter sees;
/// clone3 hides its flags behind a pointer, and C libraries fall back to clone, at each thread that they start.
const ABSENT: &[&str] = &["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"];

/// Keys are shared by all processes of a uid on the machine, containers or not, and a request for one that is missing
/// starts a program of root's outside of the sandbox, to resolve a name for one (request-key(8), key type dns_resolver).
const KEYS: &[&str] = &["add_key", "request_key", "keyctl"];

/// Socket families that the firewall can judge, or that reach nothing by themselves. All others pass netfilter by: vsock,
/// packet, Bluetooth, CAN, TIPC, RDS, XDP and what is still to come (case N15).
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Families are compared one by one up to here, which is one less than a power of two.
const AF_TRIED: i32 = 63;

struct Rules(Vec<Rule>);

impl Rules {
    fn refuse(
        &mut self,
        calls: &[&'static str],
        conditions: &[Condition],
        errno: i32,
        axis: Option<Axis>,
        name: &'static str,
    ) {
        for call in calls {
            self.0.push(Rule { call, conditions: conditions.to_vec(), errno, axis, name, capability: None });
        }
    }

    /// The same of what takes a capability.
    fn refuse_capable(
        &mut self,
        calls: &[&'static str],
        conditions: &[Condition],
        axis: Axis,
        name: &'static str,
        capability: u32,
    ) {
        let errno = libc::EPERM;
        for call in calls {
            let (conditions, axis, capability) = (conditions.to_vec(), Some(axis), Some(capability));
            self.0.push(Rule { call, conditions, errno, axis, name, capability });
        }
    }
}

/// All refusals on the given terms.
pub fn rules(terms: &Terms) -> Vec<Rule> {
    let Terms { privilege, network, .. } = *terms;
    let mut rules = Rules(Vec::new());
    let of_privilege = Some(Axis::Privilege);
    // A shared terminal is the caller's: what is pushed into it runs in the caller's shell afterwards (case P07).
    for request in [libc::TIOCSTI, libc::TIOCLINUX].iter().filter(|_| !mutation::left_out("terminal-input")) {
        rules.refuse(&["ioctl"], &[Condition::equals(1, *request)], libc::EPERM, of_privilege, "terminal-input");
    }
    // Under the caller's own uid the caller's keys are the command's to use by their numbers.
    let keys = privilege == Posture::Locked || privilege > Posture::Open && terms.means.one_uid;
    if keys && !mutation::left_out("absent-calls") {
        rules.refuse(KEYS, &[], libc::ENOSYS, of_privilege, "keyring");
    }
    if privilege == Posture::Locked {
        if !mutation::left_out("absent-calls") {
            rules.refuse(ABSENT, &[], libc::ENOSYS, None, "absent");
        }
        if !mutation::left_out("mount-calls") {
            rules.refuse_capable(MOUNTS, &[], Axis::Privilege, "mount", SYS_ADMIN);
            let clones = Condition::has(2, OPEN_TREE_CLONE);
            let opens = Condition::Is { argument: 2, mask: OPEN_TREE_CLONE, value: 0 };
            rules.refuse_capable(TREES, &[clones], Axis::Privilege, "mount", SYS_ADMIN);
            rules.refuse(TREES, &[opens], libc::EPERM, of_privilege, "mount");
        }
        if !mutation::left_out("namespaces") {
            namespaces(&mut rules);
        }
    }
    if network > Posture::Open {
        if !mutation::left_out("socket-families") {
            other_families(&mut rules);
        }
        if !mutation::left_out("multipath") {
            sockets_of_the_kernel(&mut rules);
        }
    }
    if terms.makes_sockets() {
        // Who shares a table of descriptors with another process can have one of its sockets take another's place.
        let shares = Condition::Is { argument: 0, mask: SHARED_TABLE, value: libc::CLONE_FILES as u64 };
        rules.refuse(&["clone"], &[shares], libc::EPERM, Some(Axis::Network), "shared-descriptors");
        of_made_sockets(&mut rules);
    }
    rules.0
}

/// Refuses new namespaces: one rule a flag, any of them set is a refusal. By a user namespace, which is told of first, any
/// user may have the others too.
fn namespaces(rules: &mut Rules) {
    let user = libc::CLONE_NEWUSER as u64;
    rules.refuse(&["unshare", "clone"], &[Condition::has(0, user)], libc::EPERM, Some(Axis::Privilege), "namespaces");
    let others = (0..u64::BITS).map(|bit| 1u64 << bit).filter(|flag| NAMESPACES & !user & flag != 0);
    for flag in others {
        // In clone's flags the low byte is the exit signal, so the time namespace cannot be asked for there.
        let calls: &[&'static str] = if flag == CLONE_NEWTIME { &["unshare"] } else { &["unshare", "clone"] };
        rules.refuse_capable(calls, &[Condition::has(0, flag)], Axis::Privilege, "namespaces", SYS_ADMIN);
    }
}

/// Refuses every family but [`FAMILIES`]: the number is compared as 32 bits, as the kernel reads it.
fn other_families(rules: &mut Rules) {
    let calls = ["socket", "socketpair"];
    let refuse = |rules: &mut Rules, condition, axis| {
        rules.refuse(&calls, &[condition], libc::EPERM, Some(axis), "socket-family");
    };
    // Packet sockets are what NET_RAW is for; of the others every user may open some.
    let packet = Condition::equals(0, libc::AF_PACKET as u64);
    rules.refuse_capable(&calls, &[packet], Axis::Privilege, "socket-family", NET_RAW);
    let others = (0..=AF_TRIED).filter(|family| !FAMILIES.contains(family) && *family != libc::AF_PACKET);
    for family in others {
        refuse(rules, Condition::equals(0, family as u64), Axis::Network);
    }
    // Above the last number tried, any bit of the higher ones is enough.
    for bit in (AF_TRIED + 1).trailing_zeros()..u32::BITS {
        refuse(rules, Condition::has(0, 1 << bit), Axis::Network);
    }
}

/// What sockets that are bound to `lo` may not be asked for.
fn of_made_sockets(rules: &mut Rules) {
    let network = Some(Axis::Network);
    let option = |level: i32, option: i32| [Condition::equals(1, level as u64), Condition::equals(2, option as u64)];
    // A socket that has no device for a moment could be given another: who has NET_RAW may, says the kernel of all others.
    for device in [libc::SO_BINDTODEVICE, SO_BINDTOIFINDEX] {
        rules.refuse(&["setsockopt"], &option(libc::SOL_SOCKET, device), libc::EPERM, network, "socket-device");
    }
    // A packet with options takes its own way (RFC 791, source routes): as the firewall, nobody sends one.
    let options = option(libc::IPPROTO_IP, libc::IP_OPTIONS);
    rules.refuse(&["setsockopt"], &options, libc::EPERM, network, "header-options");
    // A connect that is made by a send, or later. The answer is that of a kernel where it is switched off (ip-sysctl,
    // tcp_fastopen), upon which programs connect.
    for fast_open in FAST_OPEN {
        rules.refuse(&["setsockopt"], &option(libc::IPPROTO_TCP, fast_open), libc::EOPNOTSUPP, network, "fast-open");
    }
    for (call, flags) in [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)] {
        let asked = Condition::has(flags, libc::MSG_FASTOPEN as u64);
        rules.refuse(&[call], &[asked], libc::EOPNOTSUPP, network, "fast-open");
    }
    // The kernel would read the caller's memory after it was looked at, and tell of it on the caller's socket.
    rules.refuse(&["setsockopt"], &option(libc::SOL_SOCKET, SO_ZEROCOPY), libc::EOPNOTSUPP, None, "zero-copy");
}

/// asm-generic/socket.h.
const SO_ZEROCOPY: i32 = 60;
const SO_BINDTOIFINDEX: i32 = 62;
/// TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE (linux/tcp.h).
const FAST_OPEN: [i32; 4] = [23, 30, 33, 34];

/// Refuses sockets of the inet families for which the kernel opens others that have no file, so that the firewall sees no
/// opener.
fn sockets_of_the_kernel(rules: &mut Rules) {
    // A protocol of IP is a number of one byte. Those above are the kernel's own: SMC over a TCP socket of its own, further
    // subflows of MPTCP, QUIC. The answer is that of a kernel without them, upon which programs take TCP.
    for bit in u8::BITS..u32::BITS {
        let high = Condition::has(2, 1 << bit);
        rules.refuse(&["socket"], &[high], libc::EPROTONOSUPPORT, Some(Axis::Network), "socket-protocol");
    }
    // An upper layer protocol may take the TCP socket away from its file (smc). The answer is that of a kernel without it.
    let level = Condition::equals(1, libc::IPPROTO_TCP as u64);
    let option = Condition::equals(2, libc::TCP_ULP as u64);
    rules.refuse(&["setsockopt"], &[level, option], libc::ENOENT, Some(Axis::Network), "socket-protocol");
}
