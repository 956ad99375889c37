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

/// seccomp_attr_set(3), SCMP_FLTATR_CTL_OPTIMIZE.
const BINARY_TREE: u32 = 2;

impl Builder {
    fn new(table: Table, bad_architecture: ScmpAction) -> Result<Builder, FilterError> {
        let mut context = ScmpFilterContext::new(ScmpAction::Allow).map_err(failed("(default)"))?;
        // Another architecture's and the x32 entry have other numbers and would pass the rules by.
        context.set_act_badarch(bad_architecture).map_err(failed("(architecture)"))?;
        // no_new_privs is a step of its own in the order; the library must not set it behind our back.
        context.set_ctl_nnp(false).map_err(failed("(no_new_privs)"))?;
        // By halves instead of one after another: a few comparisons where there would be a hundred.
        context.set_ctl_optimize(BINARY_TREE).map_err(failed("(order)"))?;
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
            for conditions in entry.conditions() {
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
            for conditions in entry.conditions() {
                filter.add(ScmpAction::Notify, entry.call, conditions)?;
            }
        }
        export(&filter.context)
    })
}

/// The program of a shadow: all that [`program_with_listener`] hands over, and nothing that it answers by itself.
pub fn program_of_shadow(rules: &[Rule], watched: &[Watched], tables: &[Table]) -> Result<Vec<u8>, FilterError> {
    let recorded: Vec<Rule> = rules.iter().filter(|rule| rule.axis.is_some()).cloned().collect();
    program_with_listener(&recorded, watched, tables)
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

/// What the proxy may call: sockets and pipes between them, memory, time, and no file by name. Everything else is EPERM, which
/// the proxy's own code never meets.
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
#[path = "seccomp_tests.rs"]
mod tests;
