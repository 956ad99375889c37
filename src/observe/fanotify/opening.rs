//! What an open asks for, by the system call in which its thread waits (proc_pid_syscall(5)). The registers are the kernel's
//! copy: no other thread changes them.

use crate::procfs;
use nix::libc;

/// An open that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The system call.
    pub call: &'static str,
    /// Whether the file can be read by it.
    pub reads: bool,
}

/// Where a call has its flags.
#[derive(Debug, Clone, Copy)]
enum Flags {
    /// In this register.
    In(usize),
    /// In memory, which another thread may change: taken to be for reading.
    Elsewhere,
    /// It is for writing alone.
    Writes,
    /// It is for execution, for which a file is read.
    Executes,
}

/// The calls by which files are opened, by their numbers. Those of i386 have other numbers, by which nothing native opens a
/// file, so that one table does for both.
const CALLS: &[(i64, &str, Flags)] = &[
    (libc::SYS_openat, "openat", Flags::In(2)),
    (libc::SYS_openat2, "openat2", Flags::Elsewhere),
    (libc::SYS_execve, "execve", Flags::Executes),
    (libc::SYS_execveat, "execveat", Flags::Executes),
    (libc::SYS_open_by_handle_at, "open_by_handle_at", Flags::In(2)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", Flags::In(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, "creat", Flags::Writes),
    #[cfg(target_arch = "x86_64")]
    (5, "open", Flags::In(1)),
    #[cfg(target_arch = "x86_64")]
    (8, "creat", Flags::Writes),
    #[cfg(target_arch = "x86_64")]
    (11, "execve", Flags::Executes),
    #[cfg(target_arch = "x86_64")]
    (295, "openat", Flags::In(2)),
    #[cfg(target_arch = "x86_64")]
    (342, "open_by_handle_at", Flags::In(2)),
    #[cfg(target_arch = "x86_64")]
    (358, "execveat", Flags::Executes),
];

/// What is not known, and so taken to be for reading.
const UNKNOWN: Opening = Opening { call: "open", reads: true };

/// The open in which a thread waits.
pub fn of_thread(tid: i32) -> Opening {
    procfs::read(&format!("/proc/{tid}/syscall")).map_or(UNKNOWN, |text| parse(&text))
}

fn parse(text: &str) -> Opening {
    let mut fields = text.split_ascii_whitespace();
    let number = fields.next().and_then(|number| number.parse::<i64>().ok());
    let Some((_, call, flags)) = CALLS.iter().find(|(each, ..)| Some(*each) == number) else { return UNKNOWN };
    let register = |at: usize| {
        let text = fields.clone().nth(at)?.strip_prefix("0x")?;
        u64::from_str_radix(text, 16).ok()
    };
    let reads = match flags {
        Flags::In(at) => register(*at).is_none_or(|flags| flags as i32 & libc::O_ACCMODE != libc::O_WRONLY),
        Flags::Elsewhere | Flags::Executes => true,
        Flags::Writes => false,
    };
    Opening { call, reads }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_for_reading_unless_it_can_only_write() {
        let openat = libc::SYS_openat;
        for (text, call, reads) in [
            (format!("{openat} 0xffffff9c 0x7ffd 0x80000 0x0 0x0 0x0 0x7ffd 0x7f5b\n"), "openat", true),
            (format!("{openat} 0xffffff9c 0x7ffd 0x241 0x1b6 0x0 0x0 0x7ffd 0x7f5b\n"), "openat", false),
            (format!("{openat} 0xffffff9c 0x7ffd 0x2 0x1b6 0x0 0x0 0x7ffd 0x7f5b\n"), "openat", true),
            (format!("{} 0xffffff9c 0x7ffd 0x1 0x18 0x0 0x0 0x7ffd 0x7f5b\n", libc::SYS_openat2), "openat2", true),
            (format!("{} 0x1 0x1 0x1 0x1 0x0 0x0 0x7ffd 0x7f5b\n", libc::SYS_execve), "execve", true),
            ("running\n".into(), "open", true),
            ("-1 0x7ffd 0x7f5b\n".into(), "open", true),
            (format!("{openat}\n"), "openat", true),
            (String::new(), "open", true),
        ] {
            assert_eq!(parse(&text), Opening { call, reads }, "{text}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_both_tables_are_told_apart_by_their_numbers() {
        let flags = |number: i64, at: usize| {
            let registers: Vec<&str> = (0..6).map(|each| if each == at { "0x1" } else { "0x0" }).collect();
            parse(&format!("{number} {} 0x0 0x0", registers.join(" ")))
        };
        for (number, at, call) in [(2, 1, "open"), (5, 1, "open"), (257, 2, "openat"), (295, 2, "openat")] {
            assert_eq!(flags(number, at), Opening { call, reads: false }, "{number}");
            assert!(flags(number, 5).reads, "{number}");
        }
        for (number, call) in [(85, "creat"), (8, "creat")] {
            assert_eq!(flags(number, 5), Opening { call, reads: false });
        }
        for (number, call) in [(59, "execve"), (11, "execve"), (322, "execveat"), (358, "execveat")] {
            assert_eq!(flags(number, 5), Opening { call, reads: true });
        }
        let numbers: BTreeSet<i64> = CALLS.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers.len(), CALLS.len());
    }

    use std::collections::BTreeSet;
}
