//! The other entries to the kernel: refused and recorded where the policy does not allow them, and filtered alike where it
//! allows that of 32-bit programs. The kernel must have it (CONFIG_IA32_EMULATION); x32 it need not have.
#![cfg(target_arch = "x86_64")]

mod attempts;
mod common;

use common::{Ended, Fence, as_root};
use ringfence::policy::Axis;
use std::sync::OnceLock;
use world::address::PUBLIC4;
use world::internet::everywhere;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
const ALLOWED: [&str; 4] = ["--policy", "nist-high", "--abi", "i386"];
/// Where the sinks outside listen, which the program of acts knows.
const PORT: u16 = 4444;
const I386: u32 = 0x4000_0003;
const X86_64: u32 = 0xc000_003e;

/// Acts on a directory, which all go through where it is writable.
const ON_FILES: &str = "open openat unlink openat2 unlink creat mkdir rmdir mkdirat unlinkat mknod unlink symlink \
    symlink-gone link link-gone rename rename-back chmod fchmodat chown16 chown32 lchown16 lchown32 truncate truncate64 utime \
    utimes futimesat utimensat utimensat64 fchmod futimens bind-path unlink";
/// What the command cannot do anywhere.
const PRIVILEGED: &str = "security-xattr chown-16 chown-32 fchown-16 flags set-id setuid16 setuid32 setresuid16 setresuid32 \
    setregid32 setfsuid32 setgroups16 setgroups32 capset settimeofday stime clock_settime clock_settime64 adjtimex \
    clock_adjtime clock_adjtime64 mount umount umount2 unshare clone clone3 io_uring keyctl chroot swapon sethostname bpf ptrace \
    terminal-input raw vsock mptcp raw-call vsock-call mptcp-call pair-call upper-call connect-path";
/// Acts on sockets of the command's own.
const ON_SOCKETS: &str = "reuse waits converse too-many";

/// The program of acts in 32 and in 64 bits, and the one of 64 bits that uses the other entries.
fn programs() -> &'static [Vec<u8>; 3] {
    static PROGRAMS: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let bare = ["-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector"];
        let of = |size: &'static str| {
            // The kernel's own headers are in the directory of the other architecture.
            let headers = ["-idirafter", "/usr/include/x86_64-linux-gnu", size];
            attempts::compile_with(&[&bare[..], &headers].concat(), "tests/fixtures/acts.c")
        };
        [of("-m32"), of("-m64"), attempts::compile("tests/fixtures/int80.c")]
    })
}

/// A box with the programs, and a directory for the acts that is read-only to the command as `directory` is.
fn fence() -> Fence {
    let fence = Fence::new();
    for (program, path) in programs().iter().zip(["acts32", "acts64", "int80"]) {
        fence.world.write(&format!("/usr/local/bin/{path}"), program.as_slice(), 0o755);
    }
    let make = "for d in /opt/acts /opt/live; do
        mkdir -m 777 $d $d/sub; echo file >$d/file; echo other >$d/other; chmod 666 $d/file
        cp /usr/local/bin/acts64 $d/set-id; chmod 4755 $d/set-id; done";
    as_root(&fence, make);
    fence
}

/// A script that makes a directory for the acts as [`fence`] does, of the command's own, and does them there.
fn on_own(program: &str, acts: &str) -> String {
    format!(
        "d=/tmp/{program}; mkdir -p $d/sub; echo file >$d/file; echo other >$d/other; cp /bin/true $d/set-id; {program} $d {acts}"
    )
}

/// What a run recorded, less what differs between runs and, of one call that 64 bits do without, its name.
fn records(ended: &Ended) -> Vec<String> {
    let one = |denial: &&ringfence::ledger::record::Denial| {
        let object = &denial.object;
        let what = object.path.as_ref().or(object.text.as_ref());
        let text = format!(
            "{} {what:?} {:?} {} {} {} {:?}",
            denial.operation, denial.errno, denial.axis, denial.rule, denial.count, denial.subject.argv
        );
        text.replace("stime", "settimeofday").replace("acts64", "acts32")
    };
    ended.denials().iter().map(one).collect()
}

#[test]
fn what_the_policy_does_not_allow_does_nothing_and_is_recorded_call_by_call() {
    let fence = fence();
    let live = as_root(&fence, "acts32 /opt/acts mkdir rmdir; int80 int80 mkdir /opt/acts/made; rmdir /opt/acts/made");
    assert_eq!(live, "mkdir=0\nrmdir=0\n0\n", "the kernel has the i386 entry");
    let script = "mkdir -p /tmp/d; acts64 /tmp/d mkdir rmdir; acts32 /tmp/d mkdir 2>/dev/null; echo status=$?
        int80 int80 mkdir /tmp/d/int80; int80 x32 mkdir /tmp/d/x32; ls /tmp/d";
    let ended = fence.run(&FLAGS, script);
    // A program that cannot even end is ended by what comes after its last call.
    assert_eq!(ended.said.out, "mkdir=0\nrmdir=0\nstatus=132\nENOSYS\nENOSYS\n", "{ended}");
    let found: Vec<String> = ended
        .denials()
        .iter()
        .map(|denial| {
            assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("abi", "abi"), "{ended}");
            assert_eq!((denial.axis, denial.errno.as_deref()), (Axis::Privilege, Some("ENOSYS")), "{ended}");
            format!("{:?} {}", denial.subject.comm, denial.object.text.as_deref().unwrap_or_default())
        })
        .collect();
    let one = |comm: &str, number: u32, arch: u32| format!("Some({comm:?}) call {number} of {arch:#x}");
    let expected = [
        // mkdir, write, exit.
        one("acts32", 39, I386),
        one("acts32", 4, I386),
        one("acts32", 1, I386),
        one("int80", 39, I386),
        one("int80", 0x4000_0000 + 83, X86_64),
    ];
    assert_eq!(found, expected, "{ended}");
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn where_it_is_allowed_forbidden_acts_are_refused_and_recorded_as_native_ones_are() {
    let fence = fence();
    let live = as_root(&fence, &format!("acts32 /opt/live {ON_FILES}; acts32 /opt/live {ON_SOCKETS}"));
    assert!(live.lines().all(|line| line.ends_with("=0") || line == "too-many=24"), "the acts are live: {live}");
    let of = |program: &str| fence.run(&ALLOWED, &format!("{program} /opt/acts {ON_FILES} {PRIVILEGED} </dev/null"));
    let (narrow, native) = (of("acts32"), of("acts64"));
    assert_eq!(narrow.said.code, Some(0), "{narrow}");
    assert_eq!(narrow.said.out, native.said.out, "{narrow}\n{native}");
    for (one, other) in records(&narrow).iter().zip(&records(&native)) {
        assert_eq!(one, other);
    }
    assert_eq!(narrow.denials().len(), native.denials().len(), "{narrow}");
    // What a kernel may be built without, and a call of bad form, are no denials; every other act is one record.
    let acts = format!("{ON_FILES} {PRIVILEGED}");
    let acts = acts.split_whitespace().filter(|act| !["clone3", "io_uring", "bpf"].contains(act)).count();
    assert_eq!(narrow.denials().len(), acts, "{narrow}");
    let said: Vec<&str> = narrow.said.out.lines().collect();
    for act in ["open=30", "utimensat64=30", "truncate64=30", "setuid16=1", "stime=1", "vsock-call=1", "raw-call=1"] {
        assert!(said.contains(&act), "{act}: {narrow}");
    }
    let seal = narrow.seal();
    assert!(seal.complete, "{narrow}");
    // In the terms of the other entry nothing is refused for being made there.
    assert!(narrow.denials().iter().all(|denial| denial.rule != "abi"), "{narrow}");
}

#[test]
fn where_it_is_allowed_allowed_acts_go_through_and_leave_no_record() {
    let fence = fence();
    let acts = format!("{ON_FILES} {ON_SOCKETS}");
    for program in ["acts32", "acts64"] {
        let ended = fence.run(&ALLOWED, &on_own(program, &acts));
        let lines: Vec<&str> = ended.said.out.lines().collect();
        assert_eq!(lines.len(), acts.split_whitespace().count(), "{ended}");
        for line in lines {
            // No more descriptors than the command allows itself.
            assert!(line.ends_with("=0") || line == "too-many=24", "{line}: {ended}");
        }
        assert!(ended.denials().is_empty(), "{ended}");
        assert!(ended.seal().complete, "{ended}");
    }
}

#[test]
fn socketcall_gives_no_socket_that_the_filter_refuses_however_its_arguments_change() {
    let fence = fence();
    let race = "int80 race 1";
    let number = |said: &world::Said, key: &str| common::value(said, key).parse::<u64>().expect("a number");
    let live = fence.as_nobody(race);
    assert!(number(&live, "other") > 0 && number(&live, "inet") > 0, "the race is live: {live}");
    let ended = fence.run(&ALLOWED, race);
    assert_eq!(number(&ended.said, "other"), 0, "{ended}");
    assert!(number(&ended.said, "inet") > 0 && number(&ended.said, "refused") > 0, "{ended}");
    assert!(ended.denials().iter().all(|denial| denial.rule == "socket-family" && denial.operation == "socket"));
    let recorded: u64 = ended.denials().iter().map(|denial| denial.count).sum();
    assert_eq!(recorded, number(&ended.said, "refused"), "{ended}");
    // What cannot be made for the caller is refused, and arguments that are not there are none.
    let ended = fence.run(&ALLOWED, "acts32 /tmp own-pair unreadable; acts64 /tmp own-pair");
    assert_eq!(ended.said.out, "own-pair=1\nunreadable=14\nown-pair=0\n", "{ended}");
    let [denial] = ended.denials()[..] else { panic!("{ended}") };
    assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("socketpair", "abi"), "{ended}");
    assert_eq!((denial.axis, denial.errno.as_deref()), (Axis::Network, Some("EPERM")), "{ended}");
    assert_eq!(denial.object.text.as_deref(), Some("family 1 type 1 protocol 0"), "{ended}");
}

#[test]
fn what_32_bit_programs_send_meets_the_wall_and_is_recorded_with_its_sender() {
    let fence = fence();
    let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
    let arrived = || (tcp.arrivals().len(), udp.arrivals().len());
    let sends = |program: &str| format!("{program} /tmp tcp tcp-call udp udp-call");
    let live = fence.as_nobody(&sends("acts32"));
    assert_eq!(live.out, "tcp=0\ntcp-call=0\nudp=0\nudp-call=0\n", "the attempts are live: {live}");
    tcp.wait_for(2);
    udp.wait_for(2);
    let before = arrived();
    let of = |program: &str| fence.run(&ALLOWED, &sends(program));
    let (narrow, native) = (of("acts32"), of("acts64"));
    assert_eq!(narrow.said.out, "tcp=111\ntcp-call=111\nudp=1\nudp-call=1\n", "{narrow}");
    assert_eq!(narrow.said.out, native.said.out, "{native}");
    let found = |ended: &Ended| {
        let mut found: Vec<String> = Vec::new();
        for denial in ended.denials() {
            let (what, object) = (&denial.operation, &denial.object);
            let comm = denial.subject.comm.as_deref().unwrap_or("nobody").replace("64", "32");
            found.extend(
                (0..denial.count)
                    .map(|_| format!("{what} {:?} {:?} {} {comm}", object.addrs, object.port, denial.rule)),
            );
        }
        found
    };
    let one = |what: &str| format!("{what} [{PUBLIC4}] Some({PORT}) default-deny acts32");
    assert_eq!(found(&narrow), [one("tcp"), one("tcp"), one("udp"), one("udp")], "{narrow}");
    assert_eq!(found(&narrow), found(&native), "{native}");
    assert!(narrow.seal().complete, "{narrow}");
    assert_eq!(arrived(), before);
}

#[test]
fn a_program_of_64_bits_may_use_the_entry_and_x32_stays_shut() {
    let fence = fence();
    let script =
        "int80 int80 mkdir /usr/local/made; int80 int80 mkdir /tmp/made && ls -d /tmp/made; int80 x32 mkdir /tmp/other";
    let ended = fence.run(&ALLOWED, script);
    assert_eq!(ended.said.out, "EROFS\n0\n/tmp/made\nENOSYS\n", "{ended}");
    let found: Vec<_> = ended.denials().iter().map(|one| (one.operation.as_str(), one.rule.as_str())).collect();
    assert_eq!(found, [("mkdir", "read-only"), ("abi", "abi")], "{ended}");
}

#[test]
fn with_the_network_open_socketcall_goes_on() {
    let fence = fence();
    let flags = ["--policy", "non-root", "--abi", "i386"];
    let ended = fence.run(&flags, &format!("acts32 /tmp own-pair vsock-call raw-call {ON_SOCKETS}"));
    let expected = "own-pair=0\nvsock-call=0\nraw-call=1\nreuse=0\nwaits=0\nconverse=0\ntoo-many=24\n";
    assert_eq!(ended.said.out, expected, "{ended}");
    let [denial] = ended.denials()[..] else { panic!("{ended}") };
    assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("socket", "capability"), "{ended}");
}

#[test]
fn a_compiler_of_32_bit_programs_works() {
    let fence = fence();
    let source = r#"
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/stat.h>
        int main(void) {
            FILE *file = fopen("/usr/local/x", "w");
            printf("%zu bits, %s\n", sizeof(void *) * 8, file ? "written" : strerror(errno));
            return 0;
        }"#;
    fence.world.write("/tmp/hello.c", source, 0o644);
    let script = "cd /tmp && mkdir -p out && cd out && gcc -m32 -o hello ../hello.c && ./hello
        gcc -m32 -static -o still ../hello.c && ./still";
    let ended = fence.run(&ALLOWED, script);
    assert_eq!(ended.said.out, "32 bits, Read-only file system\n32 bits, Read-only file system\n", "{ended}");
    let found: Vec<_> = ended
        .denials()
        .iter()
        .map(|denial| (denial.operation.clone(), denial.object.path.clone(), denial.subject.comm.clone()))
        .collect();
    let one = |comm: &str| ("openat".to_owned(), Some("/usr/local/x".to_owned()), Some(comm.to_owned()));
    assert_eq!(found, [one("hello"), one("still")], "{ended}");
    let shut = fence.run(&FLAGS, script);
    assert!(!shut.said.out.contains("32 bits"), "{shut}");
}
