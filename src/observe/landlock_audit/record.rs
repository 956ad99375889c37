//! The kernel's audit records, as far as they tell of Landlock (Documentation/admin-guide/LSM/landlock.rst): text of
//! `name=value` fields behind a time and the event's serial number.
//!
//! Values that a process chooses stand in quotes, or in hexadecimal where they hold a quote, a space, a control byte or a
//! byte beyond ASCII; so no value can look like a further field.

/// The kernel changed audit's own settings or rules (linux/audit.h).
pub const CONFIG_CHANGE: u16 = 1305;
/// A call that an event belongs to.
pub const SYSCALL: u16 = 1300;
/// The last record of an event that has several.
pub const END_OF_EVENT: u16 = 1320;
/// What a Landlock domain has refused.
pub const LANDLOCK_ACCESS: u16 = 1423;
/// A Landlock domain's beginning or end.
pub const LANDLOCK_DOMAIN: u16 = 1424;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The event's number: all records of one call have the same.
    pub serial: u64,
    /// What it tells.
    pub tells: Tells,
}

/// What a record tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tells {
    /// A domain has refused something.
    Refused {
        /// The domain.
        domain: u64,
        /// What it was tried on, by what stood against it.
        what: Refused,
    },
    /// A domain is told of for the first time.
    Allocated {
        /// The domain.
        domain: u64,
        /// The process that made it, in the initial PID namespace.
        pid: u32,
        /// That process's uid when it did.
        uid: u32,
    },
    /// A domain that was told of is no more.
    Deallocated {
        /// The domain.
        domain: u64,
        /// How often it has refused anything, told or not.
        denials: u64,
    },
    /// Who made the call.
    Caller(Caller),
    /// The event has no further record.
    End,
    /// Audit's settings or rules were changed.
    ConfigChange,
}

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A signal to a process.
    Signal {
        /// Its id in the initial PID namespace.
        pid: Option<u32>,
        /// The name of its main thread.
        comm: Option<Vec<u8>>,
    },
    /// A connection or a message to an abstract unix socket.
    AbstractSocket {
        /// Its name, without the NUL in front.
        name: Option<Vec<u8>>,
    },
    /// Something else, by the blockers' names.
    Other(Vec<u8>),
}

/// Who made a call, as far as the kernel tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The process id in the initial PID namespace.
    pub pid: Option<u32>,
    /// The real uid.
    pub uid: Option<u32>,
    /// The thread's name.
    pub comm: Option<Vec<u8>>,
    /// The executable's path.
    pub exe: Option<Vec<u8>>,
}

impl Record {
    /// Reads a record of type `kind`; `None` for one that tells nothing of interest here, or that cannot be read.
    pub fn parse(kind: u16, text: &[u8]) -> Option<Record> {
        if ![CONFIG_CHANGE, SYSCALL, END_OF_EVENT, LANDLOCK_ACCESS, LANDLOCK_DOMAIN].contains(&kind) {
            return None;
        }
        let stamp = text.strip_prefix(b"audit(")?;
        let (stamp, rest) = cut(stamp, b')')?;
        let (_, serial) = cut(stamp, b':')?;
        let fields = Fields(rest.strip_prefix(b":")?);
        let tells = match kind {
            CONFIG_CHANGE => Tells::ConfigChange,
            END_OF_EVENT => Tells::End,
            SYSCALL => Tells::Caller(fields.caller()),
            LANDLOCK_ACCESS => Tells::Refused { domain: fields.domain()?, what: fields.refused()? },
            _ => match fields.raw("status")? {
                b"allocated" => Tells::Allocated {
                    domain: fields.domain()?,
                    pid: fields.number("pid")?,
                    uid: fields.number("uid")?,
                },
                b"deallocated" => Tells::Deallocated { domain: fields.domain()?, denials: fields.number("denials")? },
                _ => return None,
            },
        };
        Some(Record { serial: number(serial)?, tells })
    }
}

/// The fields of a record, in the kernel's order; of a name that comes twice the first counts.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let mut fields = self.0.split(|byte| matches!(byte, b' ' | b'\0' | b'\n'));
        fields.find_map(|field| field.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        number(self.raw(name)?)
    }

    /// A value that a process could choose.
    fn text(&self, name: &str) -> Option<Vec<u8>> {
        let raw = self.raw(name)?;
        match raw.strip_prefix(b"\"") {
            Some(quoted) => Some(quoted.strip_suffix(b"\"")?.to_vec()),
            None => hexadecimal(raw),
        }
    }

    fn domain(&self) -> Option<u64> {
        let digits = std::str::from_utf8(self.raw("domain")?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    }

    fn refused(&self) -> Option<Refused> {
        Some(match self.raw("blockers")? {
            b"scope.signal" => Refused::Signal { pid: self.number("opid"), comm: self.text("ocomm") },
            b"scope.abstract_unix_socket" => Refused::AbstractSocket {
                name: self.text("path").and_then(|path| path.strip_prefix(b"\0").map(<[u8]>::to_vec)),
            },
            other => Refused::Other(other.to_vec()),
        })
    }

    fn caller(&self) -> Caller {
        Caller { pid: self.number("pid"), uid: self.number("uid"), comm: self.text("comm"), exe: self.text("exe") }
    }
}

fn cut(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The kernel's own, of 6.18.
    const SOCKET: &[u8] =
        b"audit(1796039552.593:3): domain=182b19bc2 blockers=scope.abstract_unix_socket path=006F757420736964650AFF";
    const SIGNAL: &[u8] =
        b"audit(1796039552.593:4): domain=182b19bc2 blockers=scope.signal opid=30576 ocomm=\"python3\"";
    const ALLOCATED: &[u8] = b"audit(1796039552.593:3): domain=182b19bc2 status=allocated mode=enforcing pid=30645 uid=0 exe=\"/root/.pyenv/versions/3.11.7/bin/python3.11\" comm=\"python3\"";
    const DEALLOCATED: &[u8] = b"audit(1796039553.437:17): domain=182b19bc2 status=deallocated denials=4";
    const CALL: &[u8] = b"audit(1796039552.593:5): arch=c000003e syscall=62 success=no exit=-1 a0=7770 a1=0 a2=0 a3=7fadade93ac0 items=0 ppid=30576 pid=30645 auid=4294967295 uid=10427 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=(none) ses=4294967295 comm=\"bash\" exe=\"/usr/bin/bash\" key=(null)";

    fn tells(kind: u16, text: &[u8]) -> Option<Tells> {
        Record::parse(kind, text).map(|record| record.tells)
    }

    #[test]
    fn records_of_a_real_kernel_are_read() {
        let domain = 0x182b19bc2;
        let name = Some(b"out side\n\xff".to_vec());
        let socket = Record { serial: 3, tells: Tells::Refused { domain, what: Refused::AbstractSocket { name } } };
        assert_eq!(Record::parse(LANDLOCK_ACCESS, SOCKET), Some(socket));
        let what = Refused::Signal { pid: Some(30576), comm: Some(b"python3".to_vec()) };
        assert_eq!(tells(LANDLOCK_ACCESS, SIGNAL), Some(Tells::Refused { domain, what }));
        assert_eq!(tells(LANDLOCK_DOMAIN, ALLOCATED), Some(Tells::Allocated { domain, pid: 30645, uid: 0 }));
        assert_eq!(tells(LANDLOCK_DOMAIN, DEALLOCATED), Some(Tells::Deallocated { domain, denials: 4 }));
        let caller = Caller {
            pid: Some(30645),
            uid: Some(10427),
            comm: Some(b"bash".to_vec()),
            exe: Some(b"/usr/bin/bash".to_vec()),
        };
        assert_eq!(Record::parse(SYSCALL, CALL), Some(Record { serial: 5, tells: Tells::Caller(caller) }));
        assert_eq!(tells(END_OF_EVENT, b"audit(1796039552.593:5): "), Some(Tells::End));
        let change = b"audit(1796039552.593:2): op=set audit_enabled=0 old=1 auid=4294967295 ses=4294967295 res=1";
        assert_eq!(tells(CONFIG_CHANGE, change), Some(Tells::ConfigChange));
    }

    #[test]
    fn a_chosen_name_cannot_pass_for_another_field() {
        let hexed = b"audit(1.000:9): pid=7 uid=5 comm=78207069643D3120757365723D30 exe=(null)";
        let Some(Tells::Caller(caller)) = tells(SYSCALL, hexed) else { panic!("no caller") };
        assert_eq!((caller.pid, caller.uid, caller.exe), (Some(7), Some(5), None));
        assert_eq!(caller.comm.as_deref(), Some(&b"x pid=1 user=0"[..]));
    }

    #[test]
    fn what_is_no_such_record_is_none() {
        assert_eq!(Record::parse(1327, CALL), None, "another type");
        for text in
            [&b""[..], b"audit(", b"audit(1.0:x): ", b"audit(1.0:3)", b"audit(1.0:3): domain=zz blockers=scope.signal"]
        {
            assert_eq!(Record::parse(LANDLOCK_ACCESS, text), None, "{text:?}");
        }
        for end in 0..ALLOCATED.len() {
            // A record cut short is read or not, and nothing worse.
            Record::parse(LANDLOCK_DOMAIN, &ALLOCATED[..end]);
        }
    }
}
