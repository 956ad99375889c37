//! What [`Less`] says that it takes away is gone, and was there before: each act is tried with and without.

use nix::errno::Errno;
use std::process::{Command, Stdio};
use world::less::container;
use world::{Image, Less, Said, World};

/// Acts in Python, each in a process of its own. `sc` makes a call by number.
const PRELUDE: &str = r#"
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def sc(number, *arguments):
    got = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if got < 0:
        raise OSError(ctypes.get_errno(), "")
    return got
NEWNS, NEWUSER, NEWNET = 0x20000, 0x10000000, 0x40000000
def unshare(flags): return sc(272, flags)
def mount(): return sc(165, b"none", b"/tmp", b"tmpfs", 0, 0)
def capbset(number): return libc.prctl(23, number, 0, 0, 0)
def prctl(*arguments):
    got = libc.prctl(*(ctypes.c_ulong(a) for a in arguments))
    if got < 0:
        raise OSError(ctypes.get_errno(), "")
    return got
def clone(flags):
    pid = sc(56, flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
def listener():
    prctl(38, 1, 0, 0, 0)
    allow = (ctypes.c_uint64 * 1)(0x7fff0000 << 32 | 6)
    program = Filter(1, ctypes.cast(allow, ctypes.c_void_p))
    return sc(317, 1, 8, ctypes.byref(program))
for act in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        try:
            got = eval(act)
            said = got if isinstance(got, str) else "ok"
        except OSError as cause:
            said = errno.errorcode.get(cause.errno, str(cause.errno))
        os.write(1, f"{said}\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)
"#;

fn outcomes(less: &Less, acts: &[&str]) -> Vec<String> {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", PRELUDE]).args(acts).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = less.spawn(command).expect("python starts");
    let said = Said::from(child.wait_with_output().expect("python ends"));
    assert!(said.code == Some(0) && said.err.is_empty(), "{said}");
    said.out.lines().map(str::to_owned).collect()
}

/// Each act gives the first outcome as it is, and the second with less. Those that would change what is the machine's are
/// made on nothing.
#[track_caller]
fn assert_taken(from: &Less, less: &Less, acts: &[(&str, &str, &str)]) {
    let names: Vec<&str> = acts.iter().map(|(act, ..)| *act).collect();
    let (before, after) = (outcomes(from, &names), outcomes(less, &names));
    for (at, (act, there, gone)) in acts.iter().enumerate() {
        assert_eq!((before[at].as_str(), after[at].as_str()), (*there, *gone), "{act}");
    }
}

/// The line of `/proc/self/status`.
fn status(less: &Less, key: &str) -> String {
    let act = format!("next(l for l in open('/proc/self/status') if l.startswith('{key}:')).split(':')[1].strip()");
    outcomes(less, &[&act]).remove(0).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn capabilities_are_those_that_are_named() {
    let mask = container::CAPABILITIES.iter().fold(0u64, |mask, number| mask | 1 << number);
    assert_eq!(mask, 0xa804_25fb, "Docker's own");
    for (less, permitted, bounding) in [
        (Less::new().container(), mask, mask),
        (Less::new().capabilities(&[5, 21]), 1 << 5 | 1 << 21, 1 << 5 | 1 << 21),
        (Less::new().capabilities(&[5, 21]).uid(1000, 1000), 0, 1 << 5 | 1 << 21),
        (Less::new().container_user(1000, 1000), 0, 0),
    ] {
        let (permitted, bounding, none) =
            (format!("{permitted:016x}"), format!("{bounding:016x}"), format!("{:016x}", 0));
        for (key, expected) in [
            ("CapInh", &none),
            ("CapPrm", &permitted),
            ("CapEff", &permitted),
            ("CapBnd", &bounding),
            ("CapAmb", &none),
        ] {
            assert_eq!(status(&less, key), *expected, "{key} of {less:?}");
        }
    }
    let bounding = u64::from_str_radix(&status(&Less::new(), "CapBnd"), 16).expect("a number");
    let without = u64::from_str_radix(&status(&Less::new().no_setpcap(), "CapEff"), 16).expect("a number");
    assert_eq!((bounding >> 8 & 1, without), (1, bounding & !(1 << 8)));
    // PR_CAPBSET_DROP of CAP_SYS_BOOT.
    assert_taken(&Less::new(), &Less::new().no_setpcap(), &[("prctl(24, 22, 0, 0, 0)", "ok", "EPERM")]);
}

#[test]
fn ids_groups_and_no_new_privs_are_as_named() {
    let user = Less::new().container_user(1000, 1001);
    for (key, expected) in [
        ("Uid", "1000 1000 1000 1000"),
        ("Gid", "1001 1001 1001 1001"),
        ("Groups", ""),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        assert_eq!(status(&user, key), expected, "{key}");
    }
    let root = Less::new().container();
    for (key, expected) in [("Uid", "0 0 0 0"), ("NoNewPrivs", "0"), ("Seccomp", "2")] {
        assert_eq!(status(&root, key), expected, "{key}");
    }
    for (key, expected) in [("Uid", "0 0 0 0"), ("NoNewPrivs", "0"), ("Seccomp", "0")] {
        assert_eq!(status(&Less::new(), key), expected, "{key}");
    }
    let dropped = Less::new().uid(1000, 1000);
    assert_taken(&Less::new(), &dropped, &[("open('/etc/shadow') and 0", "ok", "EACCES")]);
    // This process is as it was: its own ids, its memory open to others of the machine.
    assert_eq!(nix::unistd::getresuid().expect("getresuid").saved, nix::unistd::ROOT);
    assert!(nix::sys::prctl::get_dumpable().expect("prctl"));
}

#[test]
fn a_container_refuses_what_docker_s_default_refuses() {
    let acts = [
        ("unshare(NEWNS)", "ok", "EPERM"),
        ("unshare(NEWUSER)", "ok", "EPERM"),
        ("unshare(0)", "ok", "EPERM"),
        ("clone(NEWUSER)", "ok", "EPERM"),
        ("clone(NEWNET)", "ok", "EPERM"),
        ("clone(0)", "ok", "ok"),
        // clone3(NULL, 0).
        ("sc(435, 0, 0)", "EINVAL", "ENOSYS"),
        ("sc(308, -1, 0)", "EBADF", "EPERM"),
        ("sc(165, 0, 0, 0, 0, 0)", "EFAULT", "EPERM"),
        ("sc(166, 0, 0)", "EFAULT", "EPERM"),
        ("sc(442, -1, b'', 0x1000, 0, 0)", "EINVAL", "EPERM"),
        ("sc(428, -1, b'x', 0)", "EBADF", "EPERM"),
        ("sc(429, -1, b'x', -1, b'x', 0)", "EBADF", "EPERM"),
        ("sc(430, b'tmpfs', 0)", "ok", "EPERM"),
        ("sc(155, 0, 0)", "EFAULT", "EPERM"),
        ("sc(438, -1, 0, 0)", "EBADF", "EPERM"),
        ("sc(312, 0, 0, 0, 0, 0)", "ESRCH", "EPERM"),
        ("sc(310, 0, 0, 0, 0, 0, 1)", "EINVAL", "EPERM"),
        ("sc(323, 0)", "ok", "EPERM"),
        ("sc(250, 0, -3, 1)", "ok", "EPERM"),
        ("sc(321, -1, 0, 0)", "EINVAL", "EPERM"),
        ("sc(298, 0, 0, 0, 0, 0)", "EFAULT", "EPERM"),
        ("sc(304, -1, 0, 0)", "EFAULT", "EPERM"),
        ("sc(103, 10, 0, 0)", "ok", "EPERM"),
        // personality(2): the question, and ADDR_NO_RANDOMIZE.
        ("sc(135, 0xffffffff)", "ok", "ok"),
        ("sc(135, 0x40000)", "ok", "EPERM"),
        ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and 0", "ok", "ok"),
        ("socket.socket(socket.AF_INET) and 0", "ok", "ok"),
        ("os.chroot('/')", "ok", "ok"),
        // pidfd_open and Landlock's version are for all.
        ("sc(434, os.getpid(), 0)", "ok", "ok"),
        ("sc(444, 0, 0, 1)", "ok", "ok"),
    ];
    assert_taken(&Less::new(), &Less::new().container(), &acts);
    // What the machine lacks can't be told from what is refused by trying; the filter's errno is not the machine's.
    let absent = [
        ("socket.socket(40, socket.SOCK_STREAM) and 0", "EPERM"),
        ("socket.socket(38, 5) and 0", "EPERM"),
        ("sc(425, 0, 0)", "EPERM"),
    ];
    for (act, expected) in absent {
        let before = outcomes(&Less::new(), &[act]).remove(0);
        assert_ne!(before, expected, "{act} is no vector");
        assert_eq!(outcomes(&Less::new().container(), &[act]), [expected], "{act}");
    }
    // A user of the same container is refused by the same filter, not by the lack of a capability only.
    let user = Less::new().uid(1000, 1000);
    let acts = [
        ("unshare(NEWUSER)", "ok", "EPERM"),
        ("clone(NEWUSER)", "ok", "EPERM"),
        ("sc(435, 0, 0)", "EINVAL", "ENOSYS"),
        ("sc(250, 0, -3, 1)", "ok", "EPERM"),
        ("sc(444, 0, 0, 1)", "ok", "ok"),
    ];
    assert_taken(&user, &Less::new().container_user(1000, 1000), &acts);
}

#[test]
fn single_facts_are_taken_away() {
    let root = Less::new();
    let taken = |less: Less, acts: &[(&str, &str, &str)]| assert_taken(&root, &less, acts);
    taken(Less::new().no_landlock(), &[("sc(444, 0, 0, 1)", "ok", "ENOSYS"), ("sc(446, -1, 0)", "EBADF", "ENOSYS")]);
    taken(Less::new().no_notifier(), &[("listener()", "ok", "EINVAL")]);
    taken(Less::new().busy_notifier(), &[("listener()", "ok", "EBUSY")]);
    // SECCOMP_IOCTL_NOTIF_ADDFD on no listener.
    taken(Less::new().no_addfd(), &[("sc(16, 1, 0x40182103, 0)", "ENOTTY", "EINVAL")]);
    taken(
        Less::new().no_userns(),
        &[("unshare(NEWUSER)", "ok", "EPERM"), ("clone(NEWUSER)", "ok", "EPERM"), ("unshare(NEWNS)", "ok", "ok")],
    );
    taken(
        Less::new().no_nft(),
        &[("socket.socket(16, 3, 12) and 0", "ok", "EPROTONOSUPPORT"), ("socket.socket(16, 3, 0) and 0", "ok", "ok")],
    );
    taken(
        Less::new().no_inet6(),
        &[("socket.socket(10) and 0", "ok", "EAFNOSUPPORT"), ("socket.socket(2) and 0", "ok", "ok")],
    );
    taken(Less::new().no_mount_setattr(), &[("sc(442, -1, b'', 0x1000, 0, 0)", "EINVAL", "ENOSYS")]);
    taken(
        Less::new().no_pidfd(),
        &[("sc(434, os.getpid(), 0)", "ok", "ENOSYS"), ("sc(438, -1, 0, 0)", "EBADF", "ENOSYS")],
    );
    taken(Less::new().refuse("getppid", Errno::EXDEV), &[("sc(110)", "ok", "EXDEV"), ("sc(39)", "ok", "ok")]);
    taken(Less::new().no_proc(), &[("os.stat('/proc/self/stat') and 0", "ok", "ENOENT")]);
    // Its own memory, which otherwise is to be read.
    let memory = "os.pread(os.open('/proc/self/mem', 0), 4, ctypes.addressof(ctypes.c_uint(0))) and 0";
    let scope = "open('/proc/sys/kernel/yama/ptrace_scope').read().strip()";
    let there = outcomes(&root, &[scope]).remove(0);
    taken(Less::new().yama(1), &[(memory, "ok", "ok"), (scope, &there, "1")]);
    taken(Less::new().yama(3), &[(memory, "ok", "EPERM"), (scope, &there, "3")]);
    taken(
        Less::new().read_only_root(),
        &[
            ("os.open('/etc', os.O_TMPFILE | os.O_WRONLY)", "ok", "EROFS"),
            ("os.stat('/proc/self/stat') and 0", "ok", "ok"),
        ],
    );
}

#[test]
fn a_user_namespace_may_come_without_capabilities() {
    let act = "(unshare(NEWUSER), unshare(NEWNS | NEWNET), mount()) and 'made'";
    let maps = "unshare(NEWUSER)";
    let user = Less::new().uid(1000, 1000);
    let without = user.clone().userns_without_capabilities();
    assert_taken(&user, &without, &[(act, "made", "EPERM"), (maps, "ok", "ok"), ("mount()", "EPERM", "EPERM")]);
}

#[test]
fn what_an_outer_listener_is_told_of_goes_on() {
    let less = Less::new().busy_notifier();
    let sysinfo = "sc(99, ctypes.create_string_buffer(256))";
    // Two at once, each with a listener of its own.
    let at_once: Vec<_> = (0..2)
        .map(|_| {
            let less = less.clone();
            std::thread::spawn(move || outcomes(&less, &[sysinfo, "listener()", sysinfo]))
        })
        .collect();
    for one in at_once {
        assert_eq!(one.join().expect("no panic"), ["ok", "EBUSY", "ok"]);
    }
    assert_eq!(outcomes(&Less::new(), &[sysinfo, "listener()"]), ["ok", "ok"]);
}

#[test]
fn a_command_in_the_box_starts_with_less() {
    let world = World::with(Image::Machine).expect("a world");
    let script = "grep CapEff /proc/self/status; touch /x && echo written";
    let mut command = world.command("sh");
    command.args(["-c", script]);
    let said = Said::from(world.output_with(&Less::new().container().read_only_root(), command));
    assert_eq!(said.out, "CapEff:\t00000000a80425fb\n", "{said}");
    assert!(said.err.contains("Read-only file system"), "{said}");
    let said = world.shell(script);
    assert!(said.out.ends_with("written\n") && !said.out.contains("a80425fb"), "{said}");
}
