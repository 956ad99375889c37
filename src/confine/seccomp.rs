//! The seccomp filters: what no credential check of the kernel's refuses by itself, and what is looked at, decided on register
//! arguments only.

use super::abi::{Table, entries};
use super::rules::{Condition, Rule, WORD};
use crate::observe::watched::Watched;
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

fn failed(call: &'static str) -> impl FnOnce(SeccompError) -> FilterError {
    move |source| FilterError::Rule { call, source }
}

/// The filter of one table. libseccomp compares numbers and registers, whose meaning is ours: it is told of the native
/// architecture only, and takes the numbers of another table as they are.
struct Builder {
    context: ScmpFilterContext,
    table: Table,
}

impl Builder {
    fn new(table: Table, bad_architecture: ScmpAction) -> Result<Builder, FilterError> {
        let mut context = ScmpFilterContext::new(ScmpAction::Allow).map_err(failed("(default)"))?;
        // Another architecture's and the x32 entry have other numbers and would pass the rules by.
        context.set_act_badarch(bad_architecture).map_err(failed("(architecture)"))?;
        // no_new_privs is a step of its own in the order; the library must not set it behind our back.
        context.set_ctl_nnp(false).map_err(failed("(no_new_privs)"))?;
        Ok(Builder { context, table })
    }

    /// Adds a rule for each way to make the call by this table.
    fn add(&mut self, action: ScmpAction, call: &'static str, conditions: &[Condition]) -> Result<(), FilterError> {
        for entry in entries(self.table, call).map_err(failed(call))? {
            // Where registers mean something else, it is for the listener to look at them.
            let kept = if entry.form.keeps_registers() { conditions } else { &[] };
            let compared: Vec<ScmpArgCompare> = kept.iter().map(compared).collect();
            self.context
                .add_rule_conditional(action, ScmpSyscall::from(entry.number), &compared)
                .map_err(failed(call))?;
        }
        Ok(())
    }
}

fn compared(condition: &Condition) -> ScmpArgCompare {
    match *condition {
        Condition::Is { argument, mask, value } => masked(argument, mask, value),
        Condition::IsNot { argument, value } => ScmpArgCompare::new(argument, ScmpCompareOp::NotEqual, value),
    }
}

/// The program that refuses by itself, ready for seccomp(2). What only a look at a caller's memory could let through is
/// refused as well.
pub fn program(rules: &[Rule], watched: &[Watched], tables: &[Table]) -> Result<Vec<u8>, FilterError> {
    joined(tables, |table| {
        let mut filter = Builder::new(table, ScmpAction::Errno(libc::ENOSYS))?;
        for rule in rules {
            filter.add(ScmpAction::Errno(rule.errno), rule.call, &rule.conditions)?;
        }
        for entry in watched.iter().filter(|entry| entry.decides) {
            for conditions in &entry.when {
                filter.add(ScmpAction::Errno(libc::EPERM), entry.call, conditions)?;
            }
        }
        export(&filter.context)
    })
}

/// The program that hands what it would refuse, and the calls that are looked at, to the listener, and answers by itself
/// only what is no denial.
pub fn program_with_listener(rules: &[Rule], watched: &[Watched], tables: &[Table]) -> Result<Vec<u8>, FilterError> {
    joined(tables, |table| {
        let mut filter = Builder::new(table, ScmpAction::Notify)?;
        for rule in rules {
            let action = if rule.axis.is_some() { ScmpAction::Notify } else { ScmpAction::Errno(rule.errno) };
            filter.add(action, rule.call, &rule.conditions)?;
        }
        for entry in watched {
            let always = [Vec::new()];
            for conditions in if entry.when.is_empty() { &always[..] } else { &entry.when } {
                filter.add(ScmpAction::Notify, entry.call, conditions)?;
            }
        }
        export(&filter.context)
    })
}

/// One instruction, `struct sock_filter` (linux/filter.h).
const INSTRUCTION: usize = 8;
/// The longest program that the kernel takes (linux/bpf_common.h, BPF_MAXINSNS).
const LONGEST: usize = 4096;

const fn instruction(code: u16, jump_if: u8, jump_else: u8, value: u32) -> [u8; INSTRUCTION] {
    let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), value.to_ne_bytes());
    [a, b, jump_if, jump_else, c, d, e, f]
}

/// Loads a word of `struct seccomp_data`, jumps if it equals, jumps always.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
/// Where the architecture is in it.
const ARCHITECTURE: u32 = 4;

/// One program for all tables: which part judges a call is told by its architecture, and the first part judges those that
/// are of none.
fn joined(
    tables: &[Table],
    mut part: impl FnMut(Table) -> Result<Vec<u8>, FilterError>,
) -> Result<Vec<u8>, FilterError> {
    let mut program = Vec::new();
    for table in tables.iter().rev() {
        let mut own = part(*table)?;
        if *table != Table::Native {
            be_for(&mut own, *table)?;
            // What is not of its architecture goes on behind it.
            let over = u32::try_from(own.len() / INSTRUCTION).map_err(|e| FilterError::Export(e.to_string()))?;
            let head = [
                instruction(LOAD, 0, 0, ARCHITECTURE),
                instruction(JUMP_IF_EQUAL, 1, 0, table.audit_arch()),
                instruction(JUMP, 0, 0, over),
            ];
            own.splice(..0, head.concat());
        }
        program.splice(program.len().., own);
    }
    if program.len() / INSTRUCTION > LONGEST {
        return Err(FilterError::Export(format!("{} instructions", program.len() / INSTRUCTION)));
    }
    Ok(program)
}

/// Has a part check for its own architecture instead of the native one, for which it was built.
fn be_for(part: &mut [u8], table: Table) -> Result<(), FilterError> {
    let ([load, compare, ..], _) = part.as_chunks_mut::<INSTRUCTION>() else {
        return Err(FilterError::Export("an empty program".into()));
    };
    let for_arch = |jumps: [u8; 2], table: Table| instruction(JUMP_IF_EQUAL, jumps[0], jumps[1], table.audit_arch());
    let jumps = [compare[2], compare[3]];
    if *load != instruction(LOAD, 0, 0, ARCHITECTURE) || *compare != for_arch(jumps, Table::Native) {
        return Err(FilterError::Export("it does not begin by a look at the architecture".into()));
    }
    *compare = for_arch(jumps, table);
    Ok(())
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
    let mut context = ScmpFilterContext::new(ScmpAction::Errno(libc::EPERM)).map_err(failed("(default)"))?;
    context.set_ctl_nnp(false).map_err(failed("(no_new_privs)"))?;
    for call in PROXY {
        let number = ScmpSyscall::from_name(call).map_err(failed(call))?;
        context.add_rule(ScmpAction::Allow, number).map_err(failed(call))?;
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        let number = ScmpSyscall::from_name("socket").map_err(failed("socket"))?;
        context
            .add_rule_conditional(ScmpAction::Allow, number, &[masked(0, WORD, family as u64)])
            .map_err(failed("socket"))?;
    }
    export(&context)
}

fn masked(argument: u32, mask: u64, value: u64) -> ScmpArgCompare {
    ScmpArgCompare::new(argument, ScmpCompareOp::MaskedEqual(mask), value)
}

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
    use crate::confine::rules::rules;
    use crate::observe::watched::{Ids, watched};
    use crate::policy::Posture;

    const NATIVE: [Table; 1] = [Table::Native];
    const BOTH: [Table; 2] = [Table::Native, Table::I386];
    const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

    fn program(privilege: Posture, network: Posture) -> Result<Vec<u8>, FilterError> {
        let watched = watched(privilege, network, IDS);
        super::program(&rules(privilege, network), &watched, &NATIVE)
    }

    const IDS: Ids = Ids { uid: 10001, gid: 10002 };

    /// What a program of [`program`] answers to a call of the native entry: the classic BPF that libseccomp writes.
    fn verdict(program: &[u8], call: libc::c_long, arguments: [u64; 6]) -> u32 {
        verdict_of(program, Table::Native.audit_arch(), call as u32, arguments)
    }

    fn verdict_of(program: &[u8], architecture: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&call.to_ne_bytes());
        data.extend_from_slice(&architecture.to_ne_bytes());
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
    fn what_is_refused_and_what_is_looked_at_goes_to_the_listener_and_nothing_else() {
        let rules = rules(Posture::Locked, Posture::Restricted);
        let watched = watched(Posture::Locked, Posture::Restricted, IDS);
        let program = program_with_listener(&rules, &watched, &NATIVE).unwrap();
        assert!(program.len() / 8 < 4096, "BPF_MAXINSNS: {}", program.len() / 8);
        let open = |flags: i32| verdict(&program, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        for flags in [0, libc::O_CLOEXEC, libc::O_DIRECTORY, libc::O_PATH | libc::O_NOFOLLOW, libc::O_NONBLOCK] {
            assert_eq!(open(flags), libc::SECCOMP_RET_ALLOW, "{flags:o}");
        }
        let writing = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_NOATIME, libc::O_TMPFILE];
        for flags in writing {
            assert_eq!(open(flags | libc::O_CLOEXEC), NOTIFY, "{flags:o}");
        }
        let all = |call| verdict(&program, call, [0; 6]);
        for call in
            [libc::SYS_read, libc::SYS_write, libc::SYS_fstat, libc::SYS_close, libc::SYS_futex, libc::SYS_ftruncate]
        {
            assert_eq!(all(call), libc::SECCOMP_RET_ALLOW);
        }
        for call in
            [libc::SYS_mount, libc::SYS_keyctl, libc::SYS_unlinkat, libc::SYS_execve, libc::SYS_bpf, 452, 463, 467]
        {
            assert_eq!(all(call), NOTIFY);
        }
        assert_eq!(all(libc::SYS_io_uring_setup), errno(libc::ENOSYS));
        assert_eq!(all(libc::SYS_clone3), errno(libc::ENOSYS));
        let sendto = |address: u64| verdict(&program, libc::SYS_sendto, [3, 1, 1, 0, address, 16]);
        assert_eq!((sendto(0), sendto(1)), (libc::SECCOMP_RET_ALLOW, NOTIFY));
        let setresuid = |ids: [u64; 3]| verdict(&program, libc::SYS_setresuid, [ids[0], ids[1], ids[2], 0, 0, 0]);
        assert_eq!(setresuid([10001; 3]), libc::SECCOMP_RET_ALLOW);
        assert_eq!((setresuid([10001, 0, 10001]), setresuid([10001, 10001, 0])), (NOTIFY, NOTIFY));
        let socket =
            |family: i32, kind: i32| verdict(&program, libc::SYS_socket, [family as u64, kind as u64, 0, 0, 0, 0]);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC), libc::SECCOMP_RET_ALLOW);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC), NOTIFY);
        assert_eq!(socket(libc::AF_VSOCK, libc::SOCK_STREAM), NOTIFY);
    }

    #[test]
    fn the_i386_entry_is_filtered_alike_where_it_is_allowed() {
        let rules = rules(Posture::Locked, Posture::Restricted);
        let watched = watched(Posture::Locked, Posture::Restricted, IDS);
        let make = |tables: &[Table]| program_with_listener(&rules, &watched, tables).unwrap();
        let (without, with) = (make(&NATIVE), make(&BOTH));
        assert!(with.len() / INSTRUCTION < LONGEST, "{}", with.len() / INSTRUCTION);
        let i386 = |program: &[u8], call: u32, arguments: [u64; 6]| {
            verdict_of(program, Table::I386.audit_arch(), call, arguments)
        };
        let on = |call: u32, argument: usize, value: u64| {
            let mut arguments = [0; 6];
            arguments[argument] = value;
            i386(&with, call, arguments)
        };
        // Where it is not allowed, all of it goes to the listener, which says ENOSYS, or is refused by the filter itself.
        let alone = super::program(&rules, &watched, &NATIVE).unwrap();
        for call in [4, 5, 20, 102, 359] {
            assert_eq!(i386(&without, call, [0; 6]), NOTIFY, "{call}");
            assert_eq!(i386(&alone, call, [0; 6]), errno(libc::ENOSYS), "{call}");
        }
        // read, write, getpid, stat64, mmap2, futex, ftruncate64, listen by socketcall.
        for call in [3, 4, 20, 195, 192, 240, 194] {
            assert_eq!(i386(&with, call, [0; 6]), libc::SECCOMP_RET_ALLOW, "{call}");
        }
        let write = libc::O_WRONLY as u64;
        assert_eq!((on(5, 1, 0), on(5, 1, write)), (libc::SECCOMP_RET_ALLOW, NOTIFY), "open");
        assert_eq!((on(295, 2, 0), on(295, 2, write)), (libc::SECCOMP_RET_ALLOW, NOTIFY), "openat");
        // unlink, execve, mount, umount, umount2, chown and chown32, fchmodat2, keyctl, stime, clock_settime64, truncate64.
        for call in [10, 11, 21, 22, 52, 182, 212, 452, 288, 25, 404, 193] {
            assert_eq!(i386(&with, call, [0; 6]), NOTIFY, "{call}");
        }
        assert_eq!((on(213, 0, 10001), on(213, 0, 0)), (libc::SECCOMP_RET_ALLOW, NOTIFY), "setuid32");
        assert_eq!((on(23, 0, 10001), on(23, 0, 0)), (NOTIFY, NOTIFY), "setuid of 16 bits");
        assert_eq!((on(425, 0, 0), on(435, 0, 0)), (errno(libc::ENOSYS), errno(libc::ENOSYS)), "io_uring, clone3");
        let (user, fork) = (libc::CLONE_NEWUSER as u64, libc::SIGCHLD as u64);
        assert_eq!((on(120, 0, fork), on(120, 0, user)), (libc::SECCOMP_RET_ALLOW, NOTIFY), "clone");
        assert_eq!(on(359, 0, libc::AF_INET as u64), libc::SECCOMP_RET_ALLOW, "socket");
        assert_eq!(on(359, 0, libc::AF_VSOCK as u64), NOTIFY, "socket");
        // socketcall: socket, bind, connect, socketpair, sendto and setsockopt are looked at.
        for number in 1..=20 {
            let seen = [1, 2, 3, 8, 11, 14].contains(&number);
            assert_eq!(on(102, 0, number), if seen { NOTIFY } else { libc::SECCOMP_RET_ALLOW }, "{number}");
        }
        // The other entries stay shut.
        assert_eq!(verdict_of(&with, 0x4000_0028, 5, [0; 6]), NOTIFY, "arm");
        assert_eq!(i386(&with, 0x4000_0005, [0; 6]), NOTIFY);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(verdict(&with, 0x4000_0000 | libc::SYS_getpid, [0; 6]), NOTIFY, "x32");
        }
        // And the native one is judged as ever.
        for number in 0..470 {
            for arguments in [[0; 6], [2, write, write, 0, 1, 0], [user, 16, 3, 1, 0, 0]] {
                let [one, other] = [&without, &with].map(|program| verdict(program, number, arguments));
                assert_eq!(one, other, "{number} {arguments:?}");
            }
        }
    }

    #[test]
    fn without_a_listener_what_needs_one_is_refused() {
        let make = |network: Posture| {
            let watched = watched(Posture::Locked, network, IDS);
            super::program(&rules(Posture::Locked, network), &watched, &BOTH).unwrap()
        };
        let socketcall =
            |program: &[u8], number: u64| verdict_of(program, Table::I386.audit_arch(), 102, [number, 0, 0, 0, 0, 0]);
        let (open, restricted) = (make(Posture::Open), make(Posture::Restricted));
        for number in 1..=20 {
            let decided = [1, 8, 14].contains(&number);
            let expected = if decided { errno(libc::EPERM) } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(socketcall(&restricted, number), expected, "{number}");
            assert_eq!(socketcall(&open, number), libc::SECCOMP_RET_ALLOW, "{number}");
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
