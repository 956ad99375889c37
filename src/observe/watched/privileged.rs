//! The calls that take an identity, a capability or another's process.

use super::{CAPABILITY, Ids, OUTSIDE, Read, Table};
use crate::confine::rules::Condition;
use crate::observe::decode::{self, Again};
use crate::sys::capability;

pub(super) fn identities(table: &mut Table, ids: Ids) {
    let others = |count: u32, own: u32| {
        (0..count).map(|argument| vec![Condition::IsNot { argument, value: u64::from(own) }]).collect()
    };
    let rest: [(&'static str, u32, bool, Read); 8] = [
        ("setuid", 1, false, decode::setuid),
        ("setreuid", 2, false, decode::setreuid),
        ("setresuid", 3, false, decode::setresuid),
        ("setfsuid", 1, false, decode::setfsuid),
        ("setgid", 1, true, decode::setgid),
        ("setregid", 2, true, decode::setregid),
        ("setresgid", 3, true, decode::setresgid),
        ("setfsgid", 1, true, decode::setfsgid),
    ];
    for (call, count, group, reading) in rest {
        let (own, capability) = if group { (ids.gid, capability::SETGID) } else { (ids.uid, capability::SETUID) };
        table.act(call, others(count, own), reading, Some(capability), "identity");
    }
    table.again("setgroups", &[Again::Number, Again::Null], capability::SETGID);
    table.act("capset", Vec::new(), decode::capset, Some(capability::SETPCAP), CAPABILITY);
    // PTRACE_ATTACH and PTRACE_SEIZE: all else is for who traces already.
    let attaching = [16, 0x4206].map(|request| vec![Condition::equals(0, request)]);
    table.act("ptrace", attaching.into(), decode::ptrace, Some(capability::SYS_PTRACE), "trace");
    for call in ["process_vm_readv", "process_vm_writev"] {
        table.act(call, Vec::new(), decode::of_process, Some(capability::SYS_PTRACE), "trace");
    }
}

/// What the kernel leaves open between processes of one uid, and Landlock's scopes with it.
pub(super) fn steering(table: &mut Table) {
    let anothers = |argument: u32| vec![Condition::IsNot { argument, value: 0 }];
    let limits = [anothers(0), anothers(2)].concat();
    table.act("prlimit64", vec![limits], decode::of_first, None, OUTSIDE);
    for call in ["sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"] {
        table.act(call, vec![anothers(0)], decode::of_first, None, OUTSIDE);
    }
    // Of a user's processes 0 means the caller's.
    let of_user = |kind: u64| vec![Condition::equals(0, kind)];
    table.act("setpriority", vec![anothers(1), of_user(2)], decode::setpriority, None, OUTSIDE);
    table.act("ioprio_set", vec![anothers(1), of_user(3)], decode::ioprio_set, None, OUTSIDE);
}

pub(super) fn privileged(table: &mut Table) {
    use Again::{Handle, MaybeText, Memory, Null, Number, Path, PerfEvent, Seconds, Sized, Text, Time, Timex};
    table.again("reboot", &[Number, Number, Number, Null], capability::SYS_BOOT);
    table.again("kexec_load", &[Number, Number, Null, Number], capability::SYS_BOOT);
    table.again("kexec_file_load", &[Number, Number, Number, Null, Number], capability::SYS_BOOT);
    table.again("swapon", &[Text, Number], capability::SYS_ADMIN);
    table.again("swapoff", &[Text], capability::SYS_ADMIN);
    table.again("init_module", &[Null, Null, Null], capability::SYS_MODULE);
    table.again("finit_module", &[Number, Null, Number], capability::SYS_MODULE);
    table.again("delete_module", &[Text, Number], capability::SYS_MODULE);
    table.again("acct", &[MaybeText], capability::SYS_PACCT);
    table.again("chroot", &[Path], capability::SYS_CHROOT);
    table.again("sethostname", &[Null, Number], capability::SYS_ADMIN);
    table.again("setdomainname", &[Null, Number], capability::SYS_ADMIN);
    table.again("settimeofday", &[Time, Memory(8)], capability::SYS_TIME);
    // Of i386 only.
    table.again("stime", &[Seconds, Null], capability::SYS_TIME);
    table.again("clock_settime", &[Number, Time], capability::SYS_TIME);
    table.again("clock_adjtime", &[Number, Timex], capability::SYS_TIME);
    table.again("adjtimex", &[Timex], capability::SYS_TIME);
    table.again("quotactl", &[Number, MaybeText, Number, Null], capability::SYS_ADMIN);
    table.again("vhangup", &[], capability::SYS_TTY_CONFIG);
    table.again("iopl", &[Number], capability::SYS_RAWIO);
    table.again("ioperm", &[Number, Number, Number], capability::SYS_RAWIO);
    table.again("syslog", &[Number, Null, Null], capability::SYSLOG);
    table.again("bpf", &[Number, Sized(2), Number], capability::BPF);
    table.again("perf_event_open", &[PerfEvent, Number, Number, Number, Number], capability::PERFMON);
    // The handle's head, its size and type, is all that is looked at before the capability.
    table.again("open_by_handle_at", &[Number, Handle, Number], capability::DAC_READ_SEARCH);
    table.again("fanotify_init", &[Number, Number], capability::SYS_ADMIN);
    table.again("userfaultfd", &[Number], capability::SYS_PTRACE);
}

pub(super) fn mounts(table: &mut Table) {
    use Again::{MaybeText, Null, Number, Path, Text};
    table.again("mount", &[MaybeText, Path, MaybeText, Number, Null], capability::SYS_ADMIN);
    table.again("umount2", &[Path, Number], capability::SYS_ADMIN);
    table.again("pivot_root", &[Text, Text], capability::SYS_ADMIN);
    table.again("fsopen", &[Text, Number], capability::SYS_ADMIN);
}
