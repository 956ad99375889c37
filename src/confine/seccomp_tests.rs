use super::*;
use crate::confine::rules::rules;
use crate::observe::calls::{Calls, Found};
use crate::observe::watched::{Ids, watched};
use crate::plan::means::{Means, Reads, Terms};
use crate::policy::Posture;
use crate::sys::notify::CallData;
use proptest::prelude::*;
use std::sync::LazyLock;

const NATIVE: [Table; 1] = [Table::Native];
const BOTH: [Table; 2] = [Table::Native, Table::I386];
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

fn program(privilege: Posture, network: Posture) -> Result<Vec<u8>, FilterError> {
    let watched = watched(&Terms::full(privilege, network), IDS);
    super::program(&rules(&Terms::full(privilege, network)), &watched, &NATIVE)
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
    let rules = rules(&Terms::full(Posture::Locked, Posture::Restricted));
    let watched = watched(&Terms::full(Posture::Locked, Posture::Restricted), IDS);
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
    for call in [libc::SYS_mount, libc::SYS_keyctl, libc::SYS_unlinkat, libc::SYS_execve, libc::SYS_bpf, 452, 463, 467]
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
    let socket = |family: i32, kind: i32| verdict(&program, libc::SYS_socket, [family as u64, kind as u64, 0, 0, 0, 0]);
    assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC), libc::SECCOMP_RET_ALLOW);
    assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC), NOTIFY);
    assert_eq!(socket(libc::AF_VSOCK, libc::SOCK_STREAM), NOTIFY);
}

#[test]
fn the_i386_entry_is_filtered_alike_where_it_is_allowed() {
    let rules = rules(&Terms::full(Posture::Locked, Posture::Restricted));
    let watched = watched(&Terms::full(Posture::Locked, Posture::Restricted), IDS);
    let make = |tables: &[Table]| program_with_listener(&rules, &watched, tables).unwrap();
    let (without, with) = (make(&NATIVE), make(&BOTH));
    assert!(with.len() / INSTRUCTION < LONGEST, "{}", with.len() / INSTRUCTION);
    let i386 =
        |program: &[u8], call: u32, arguments: [u64; 6]| verdict_of(program, Table::I386.audit_arch(), call, arguments);
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
        let watched = watched(&Terms::full(Posture::Locked, network), IDS);
        super::program(&rules(&Terms::full(Posture::Locked, network)), &watched, &BOTH).unwrap()
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
fn where_sockets_are_made_no_call_by_which_one_is_used_is_left_to_the_kernel() {
    let terms = Terms { means: Means::CONTAINER, ..Terms::full(Posture::Locked, Posture::Restricted) };
    let (rules, watched) = (rules(&terms), watched(&terms, IDS));
    let heard = program_with_listener(&rules, &watched, &BOTH).unwrap();
    assert!(heard.len() / INSTRUCTION < LONGEST, "{}", heard.len() / INSTRUCTION);
    let alone = super::program(&rules, &watched, &BOTH).unwrap();
    let [family, stream, address] = [libc::AF_INET, libc::SOCK_STREAM, 4096].map(|number| number as u64);
    let calls = [
        (libc::SYS_socket, 359, [family, stream, 0, 0, 0, 0]),
        (libc::SYS_socket, 359, [libc::AF_UNIX as u64, stream, 0, 0, 0, 0]),
        (libc::SYS_socket, 359, [libc::AF_NETLINK as u64, stream, 0, 0, 0, 0]),
        (libc::SYS_bind, 361, [3, address, 16, 0, 0, 0]),
        (libc::SYS_connect, 362, [3, address, 16, 0, 0, 0]),
        (libc::SYS_listen, 363, [3, 1, 0, 0, 0, 0]),
        (libc::SYS_sendto, 369, [3, address, 1, 0, address, 16]),
        (libc::SYS_sendmsg, 370, [3, address, 0, 0, 0, 0]),
        (libc::SYS_sendmmsg, 345, [3, address, 1, 0, 0, 0]),
    ];
    for (native, i386, arguments) in calls {
        let both = |program: &[u8]| {
            let foreign = verdict_of(program, Table::I386.audit_arch(), i386, arguments);
            [verdict(program, native, arguments), foreign]
        };
        assert_eq!(both(&heard), [NOTIFY; 2], "{native} {arguments:?}");
        assert_eq!(both(&alone), [errno(libc::EPERM); 2], "{native} {arguments:?}");
    }
    let socketcall = |number: u64| verdict_of(&heard, Table::I386.audit_arch(), 102, [number, address, 0, 0, 0, 0]);
    let noticed: Vec<u64> = (1..=20).filter(|number| socketcall(*number) == NOTIFY).collect();
    assert_eq!(noticed, [1, 2, 3, 4, 8, 11, 14, 16, 20]);
    // What has no address, and what options do not lead away.
    assert_eq!(verdict(&heard, libc::SYS_sendto, [3, address, 1, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
    let option =
        |level: i32, option: i32| verdict(&heard, libc::SYS_setsockopt, [3, level as u64, option as u64, 0, 0, 0]);
    assert_eq!(option(libc::SOL_SOCKET, libc::SO_REUSEADDR), libc::SECCOMP_RET_ALLOW);
    for (level, number) in [(libc::SOL_SOCKET, libc::SO_BINDTODEVICE), (libc::SOL_SOCKET, 62), (libc::IPPROTO_TCP, 30)]
    {
        assert_eq!(option(level, number), NOTIFY, "{level} {number}");
    }
    assert_eq!(option(libc::SOL_SOCKET, 60), errno(libc::EOPNOTSUPP));
}

#[test]
fn every_posture_has_a_program() {
    let bare = program(Posture::Restricted, Posture::Open).unwrap();
    let full = program(Posture::Locked, Posture::Restricted).unwrap();
    assert!(!bare.is_empty() && bare.len().is_multiple_of(8) && full.len() > bare.len());
    assert!(full.len() / 8 < 4096, "BPF_MAXINSNS");
}

/// Arguments that conditions look at: those of the tables, one bit away from them, and any.
fn argument() -> impl Strategy<Value = u64> {
    let known = prop::sample::select(vec![
        0u64,
        1,
        2,
        3,
        0x40,
        0x80,
        0o100,
        0o1000,
        10001,
        10002,
        0x5412,
        0x541c,
        0x4008_6602,
        u64::from(u32::MAX),
        u64::MAX,
        16,
        0x4206,
    ]);
    let near = (known.clone(), 0u32..64).prop_map(|(value, bit)| value ^ 1 << bit);
    prop_oneof![4 => known, 2 => near, 2 => (0u32..64).prop_map(|bit| 1 << bit), 1 => any::<u64>(), 2 => 0u64..64]
}

/// setuid, setgid, setreuid, setregid, setfsuid, setfsgid, setresuid and setresgid of i386.
const IDS_OF_16_BITS: [u32; 8] = [23, 46, 70, 71, 138, 139, 164, 170];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8_000))]

    /// What the filter hands over is known to whoever answers, and nothing else is: a call that it did not know would go on.
    #[test]
    fn what_the_filter_hands_over_is_known_to_the_observer(
        which in 0..6usize,
        number in prop_oneof![0u32..480, any::<u32>()],
        i386 in any::<bool>(),
        arguments in prop::array::uniform6(argument()),
    ) {
        static ALL: LazyLock<Vec<(Calls, Vec<u8>)>> = LazyLock::new(|| {
            let postures = [
                (Posture::Locked, Posture::Restricted, Means::FULL, Reads::Unseen),
                (Posture::Locked, Posture::Open, Means::FULL, Reads::Names),
                (Posture::Restricted, Posture::Open, Means::FULL, Reads::Opens),
                (Posture::Locked, Posture::Locked, Means::FULL, Reads::Unseen),
                (Posture::Locked, Posture::Restricted, Means::CONTAINER, Reads::Names),
                (Posture::Locked, Posture::Restricted, Means::BARE, Reads::Unseen),
            ];
            let made = postures.map(|(privilege, network, means, reads)| {
                let calls = Calls::new(&Terms { privilege, network, means, reads, caught: means == Means::BARE }, IDS, &[crate::policy::Abi::I386]);
                let program = program_with_listener(&calls.rules, &calls.watched, &calls.tables).unwrap();
                (calls, program)
            });
            made.into()
        });
        let (calls, program) = &ALL[which];
        let architecture = if i386 { Table::I386 } else { Table::Native }.audit_arch();
        let arguments = if i386 { arguments.map(|a| a & u64::from(u32::MAX)) } else { arguments };
        let call = CallData { number: number as i32, arch: architecture, instruction: 0, arguments };
        let answer = verdict_of(program, architecture, number, arguments);
        match calls.find(&call) {
            // So far up no table has a call, which the kernel says as well.
            Found::Nothing if number >= 1 << 30 => {}
            // An id of 16 bits is told from one's own by the observer, not by the filter.
            Found::Nothing if i386 && IDS_OF_16_BITS.contains(&number) && answer == NOTIFY => {}
            Found::Nothing => prop_assert_eq!(answer, libc::SECCOMP_RET_ALLOW),
            Found::Refused(rule) if rule.axis.is_none() => prop_assert_eq!(answer, errno(rule.errno)),
            Found::Refused(_) | Found::Watched(..) => prop_assert_eq!(answer, NOTIFY),
            // -1 is what a tracer leaves behind, and no call (seccomp(2)).
            Found::Abi => prop_assert!(answer == NOTIFY || number == u32::MAX && answer == libc::SECCOMP_RET_ALLOW),
        }
    }
}
