//! The entries to the kernel: by which numbers the calls of the tables are made, and how a foreign entry's registers become
//! those of the native call that does the same. What is refused and what is looked at is said once, in native terms.

use crate::policy::Abi;
use libseccomp::error::SeccompError;
use libseccomp::{ScmpArch, ScmpSyscall};

/// An entry to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// This program's own.
    Native,
    /// That of 32-bit programs on x86_64.
    I386,
}

/// The tables that a policy allows, the native one first. A machine without the i386 entry has nothing to allow.
pub fn tables(allowed: &[Abi]) -> Vec<Table> {
    let i386 = cfg!(target_arch = "x86_64") && allowed.contains(&Abi::I386);
    if i386 { vec![Table::Native, Table::I386] } else { vec![Table::Native] }
}

impl Table {
    /// `AUDIT_ARCH_*` (linux/audit.h).
    pub const fn audit_arch(self) -> u32 {
        match self {
            Table::Native if cfg!(target_arch = "x86_64") => 0xc000_003e,
            Table::Native => 0xc000_00b7,
            Table::I386 => 0x4000_0003,
        }
    }
}

/// How a foreign call differs from the native one beside its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By its structures, if it has any.
    Same,
    /// In nothing: its times are of 64 bits.
    Time64,
    /// So many registers from the first on are ids of 16 bits, of which all ones mean what 32 of them do.
    ShortIds {
        /// The first one.
        first: usize,
        /// How many.
        count: usize,
    },
    /// It has no flags.
    NoFlags,
    /// The length is a signed number of 32 bits.
    ShortLength,
    /// The length is in two registers, the lower half first.
    SplitLength,
    /// So is the third argument.
    SplitThird,
}

impl Form {
    /// The registers of the native call.
    pub fn native(self, mut registers: [u64; 6]) -> [u64; 6] {
        match self {
            Form::Same | Form::Time64 => {}
            Form::ShortIds { first, count } => {
                for register in &mut registers[first..first + count] {
                    *register = match *register as u16 {
                        u16::MAX => u64::from(u32::MAX),
                        id => u64::from(id),
                    };
                }
            }
            Form::NoFlags => registers[1] = 0,
            Form::ShortLength => registers[1] = i64::from(registers[1] as i32) as u64,
            Form::SplitLength => registers[1] = registers[1] & 0xffff_ffff | registers[2] << 32,
            Form::SplitThird => {
                registers[2] = registers[2] & 0xffff_ffff | registers[3] << 32;
                registers.copy_within(4.., 3);
            }
        }
        registers
    }

    /// Whether conditions on the native call's registers hold on these as well.
    pub fn keeps_registers(self) -> bool {
        matches!(self, Form::Same | Form::Time64)
    }
}

/// One way to make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The number in its table.
    pub number: i32,
    /// The native call that asks the kernel for the same, where there is one.
    pub native: Option<i32>,
    /// How it differs.
    pub form: Form,
}

/// i386 calls whose name or form is not the native call's: their name, and the name of the call whose place in the tables
/// they have. A name that stands here twice over is one by which different things are asked for.
const I386: &[(&str, &str, Form)] = &[
    ("chown", "chown", Form::ShortIds { first: 1, count: 2 }),
    ("lchown", "lchown", Form::ShortIds { first: 1, count: 2 }),
    ("fchown", "fchown", Form::ShortIds { first: 1, count: 2 }),
    ("setuid", "setuid", Form::ShortIds { first: 0, count: 1 }),
    ("setreuid", "setreuid", Form::ShortIds { first: 0, count: 2 }),
    ("setresuid", "setresuid", Form::ShortIds { first: 0, count: 3 }),
    ("setfsuid", "setfsuid", Form::ShortIds { first: 0, count: 1 }),
    ("setgid", "setgid", Form::ShortIds { first: 0, count: 1 }),
    ("setregid", "setregid", Form::ShortIds { first: 0, count: 2 }),
    ("setresgid", "setresgid", Form::ShortIds { first: 0, count: 3 }),
    ("setfsgid", "setfsgid", Form::ShortIds { first: 0, count: 1 }),
    ("chown32", "chown", Form::Same),
    ("lchown32", "lchown", Form::Same),
    ("fchown32", "fchown", Form::Same),
    ("setuid32", "setuid", Form::Same),
    ("setreuid32", "setreuid", Form::Same),
    ("setresuid32", "setresuid", Form::Same),
    ("setfsuid32", "setfsuid", Form::Same),
    ("setgid32", "setgid", Form::Same),
    ("setregid32", "setregid", Form::Same),
    ("setresgid32", "setresgid", Form::Same),
    ("setfsgid32", "setfsgid", Form::Same),
    ("setgroups32", "setgroups", Form::Same),
    ("umount", "umount2", Form::NoFlags),
    ("truncate", "truncate", Form::ShortLength),
    ("truncate64", "truncate", Form::SplitLength),
    ("utimensat_time64", "utimensat", Form::Time64),
    ("clock_settime64", "clock_settime", Form::Time64),
    ("clock_adjtime64", "clock_adjtime", Form::Time64),
    ("oldstat", "stat", Form::Same),
    ("oldlstat", "lstat", Form::Same),
    ("statfs64", "statfs", Form::Same),
    ("fanotify_mark", "fanotify_mark", Form::SplitThird),
];

/// The i386 numbers of calls on sockets, for which libseccomp answers with others of its own making, because they are also
/// made by socketcall(2).
const SOCKETS: [(&str, i32); 9] = [
    ("socket", 359),
    ("socketpair", 360),
    ("bind", 361),
    ("connect", 362),
    ("listen", 363),
    ("setsockopt", 366),
    ("sendto", 369),
    ("sendmsg", 370),
    ("sendmmsg", 345),
];

/// Calls that libseccomp may be too old to know, by their number, which is the same in every table since 424.
const NEW: [(&str, i32); 8] = [
    ("fchmodat2", 452),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
];

/// A call's number in a table; `None` where it has none of that name.
fn number(table: Table, call: &str) -> Result<Option<i32>, SeccompError> {
    let of = |list: &[(&str, i32)]| list.iter().find(|(name, _)| *name == call).map(|(_, number)| *number);
    let (arch, by_list) = match table {
        Table::Native => (ScmpArch::Native, None),
        Table::I386 => (ScmpArch::X86, of(&SOCKETS)),
    };
    if let Some(number) = by_list {
        return Ok(Some(number));
    }
    match (ScmpSyscall::from_name_by_arch(call, arch), of(&NEW)) {
        (Ok(number), _) => Ok(Some(number.as_raw_syscall()).filter(|number| *number >= 0)),
        (Err(_), Some(number)) => Ok(Some(number)),
        (Err(error), None) => Err(error),
    }
}

/// The ways to make a call by a table: none, where the architecture does without it, one, or several.
///
/// # Errors
/// libseccomp's, where it knows no call of that name.
pub fn entries(table: Table, call: &'static str) -> Result<Vec<Entry>, SeccompError> {
    let native = match (number(Table::Native, call)?, call) {
        // It sets the same clock.
        (None, "stime") => number(Table::Native, "settimeofday")?,
        (native, _) => native,
    };
    let listed = I386.iter().filter(|(_, of, _)| table == Table::I386 && *of == call);
    let own = listed.clone().all(|(name, ..)| *name != call).then_some((call, Form::Same));
    let ways = listed.map(|(name, _, form)| (*name, *form)).chain(own);
    let mut entries = Vec::new();
    for (name, form) in ways {
        if let Some(number) = number(table, name)? {
            entries.push(Entry { number, native, form });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(call: &'static str) -> Vec<(i32, Form)> {
        entries(Table::I386, call).unwrap().iter().map(|entry| (entry.number, entry.form)).collect()
    }

    #[test]
    fn a_call_has_all_its_numbers() {
        let short = |first, count| Form::ShortIds { first, count };
        // asm/unistd_32.h.
        for (call, expected) in [
            ("open", vec![(5, Form::Same)]),
            ("chown", vec![(182, short(1, 2)), (212, Form::Same)]),
            ("setuid", vec![(23, short(0, 1)), (213, Form::Same)]),
            ("setresgid", vec![(170, short(0, 3)), (210, Form::Same)]),
            ("setgroups", vec![(206, Form::Same), (81, Form::Same)]),
            ("umount2", vec![(22, Form::NoFlags), (52, Form::Same)]),
            ("truncate", vec![(92, Form::ShortLength), (193, Form::SplitLength)]),
            ("utimensat", vec![(412, Form::Time64), (320, Form::Same)]),
            ("clock_settime", vec![(404, Form::Time64), (264, Form::Same)]),
            ("socket", vec![(359, Form::Same)]),
            ("sendto", vec![(369, Form::Same)]),
            ("socketcall", vec![(102, Form::Same)]),
            ("stime", vec![(25, Form::Same)]),
            ("clone", vec![(120, Form::Same)]),
            ("clone3", vec![(435, Form::Same)]),
            ("fchmodat2", vec![(452, Form::Same)]),
            ("file_setattr", vec![(469, Form::Same)]),
            ("file_getattr", vec![(468, Form::Same)]),
            ("stat", vec![(18, Form::Same), (106, Form::Same)]),
            ("lstat", vec![(84, Form::Same), (107, Form::Same)]),
            ("statfs", vec![(268, Form::Same), (99, Form::Same)]),
            ("fanotify_mark", vec![(339, Form::SplitThird)]),
            ("kexec_file_load", vec![]),
        ] {
            assert_eq!(numbers(call), expected, "{call}");
        }
        assert!(entries(Table::I386, "no_such_call").is_err());
    }

    #[test]
    fn the_native_table_has_one_number_or_none() {
        for call in ["unlinkat", "setresuid", "fchmodat2"] {
            let [entry] = entries(Table::Native, call).unwrap()[..] else { panic!("{call}") };
            assert_eq!((entry.native, entry.form), (Some(entry.number), Form::Same), "{call}");
        }
        for absent in ["socketcall", "stime"] {
            assert!(entries(Table::Native, absent).unwrap().is_empty(), "{absent}");
        }
        let stime = entries(Table::I386, "stime").unwrap();
        assert_eq!(stime[0].native.map(i64::from), Some(nix::libc::SYS_settimeofday));
    }

    #[test]
    fn registers_become_the_native_calls() {
        let ids = Form::ShortIds { first: 1, count: 2 };
        assert_eq!(ids.native([7, 0xdead_ffff, 0x1_0005, 9, 0, 0]), [7, 0xffff_ffff, 5, 9, 0, 0]);
        assert_eq!(Form::NoFlags.native([1, 2, 3, 0, 0, 0]), [1, 0, 3, 0, 0, 0]);
        assert_eq!(Form::ShortLength.native([1, 0xffff_ffff, 0, 0, 0, 0])[1] as i64, -1);
        assert_eq!(Form::SplitLength.native([1, 0x8000_0000, 1, 0, 0, 0])[1], 0x1_8000_0000);
        assert_eq!(Form::SplitThird.native([3, 1, 0x2000_0000, 1, 5, 6])[..5], [3, 1, 0x1_2000_0000, 5, 6]);
    }

    #[test]
    fn a_machine_has_the_entries_that_it_has() {
        let i386 = cfg!(target_arch = "x86_64");
        assert_eq!(tables(&[]), [Table::Native]);
        assert_eq!(tables(&[Abi::I386]).len(), if i386 { 2 } else { 1 });
    }
}
