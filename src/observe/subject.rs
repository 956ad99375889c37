//! Who: what /proc says of the thread or the process behind a denial.
//!
//! The directory of the thread is opened once and everything is read through it, so that another thread that gets its
//! number meanwhile is never read (`procfs::directory`). What an exec in between would mix is found by reading
//! /proc/TID/stat before and after. Everything that a process can choose itself is escaped, once, here.

use crate::ledger::escape::{TEXT_LIMIT, escape};
use crate::ledger::record::Subject;
use crate::procfs;
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Most ancestors that a subject names.
pub const ANCESTOR_LIMIT: usize = 16;
/// Most arguments that a subject shows.
pub const ARGUMENT_LIMIT: usize = 64;
/// Most bytes of all arguments together, escaped.
pub const ARGUMENTS_TEXT_LIMIT: usize = 4096;
/// Most bytes of one argument, escaped.
pub const ARGUMENT_TEXT_LIMIT: usize = 2048;
/// Most bytes of an argument vector that are read.
const CMDLINE_LIMIT: usize = 64 * 1024;
/// Stands for what is left out of an argument vector where its length is not known. No argument can look like it, as
/// [`escape`] doubles a backslash.
const REST: &str = "\\[+]";
/// How often something is read again that an exec or an ended ancestor has changed under the reader.
const TRIES: usize = 3;
/// Most threads whose names are compared.
const THREAD_LIMIT: usize = 64;

/// Who a stopped thread is, without its arguments and ancestors: pid, real uid, the thread's name, its executable.
///
/// `None` when the thread is gone, or /proc does not show it.
pub fn brief(tid: u32) -> Option<Subject> {
    Thread::open(tid)?.subject(|thread, subject| subject.comm = Some(thread.name()))
}

/// [`brief`], with the arguments and the names of the ancestors up to one of `above`, which is not named, or to process 1.
pub fn whole(tid: u32, above: &[u32]) -> Option<Subject> {
    Thread::open(tid)?.subject(|thread, subject| {
        subject.comm = Some(thread.name());
        subject.argv = thread.arguments();
        subject.ancestors = thread.ancestors(above);
    })
}

/// A process of which it is not known which of its threads is meant: its `comm` is given where all threads have one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Who.
    pub subject: Subject,
    image: Image,
}

impl Process {
    /// Who a process is, as [`whole`].
    pub fn whole(pid: u32, above: &[u32]) -> Option<Process> {
        let mut thread = Thread::open(pid)?;
        let subject = thread.subject(|thread, subject| {
            subject.comm = (thread.stat.threads == 1 || thread.all_named_alike(pid)).then(|| thread.name());
            subject.argv = thread.arguments();
            subject.ancestors = thread.ancestors(above);
        })?;
        Some(Process { subject, image: thread.stat.image })
    }

    /// Whether the process still is the one that was read, and has not called exec since.
    pub fn is_unchanged(&self) -> bool {
        let now = self.subject.pid.and_then(Thread::open);
        now.is_some_and(|thread| thread.stat.image == self.image)
    }
}

/// A thread with its directory held open.
struct Thread {
    directory: OwnedFd,
    stat: Stat,
}

impl Thread {
    fn open(tid: u32) -> Option<Thread> {
        let directory = procfs::directory(tid).ok()?;
        let stat = Stat::read(directory.as_fd())?;
        Some(Thread { directory, stat })
    }

    /// Reads what every subject has and, by `more`, what this one has beside it, again where the thread was not the same
    /// before and after; leaves what an exec could have mixed unknown where that does not end.
    fn subject(&mut self, mut more: impl FnMut(&Thread, &mut Subject)) -> Option<Subject> {
        let mut subject = Subject::default();
        for _ in 0..TRIES {
            let mut buffer = [0; 8192];
            let status = Status::parse(procfs::read_at(self.directory.as_fd(), "status", &mut buffer).ok()?)?;
            subject = Subject { pid: Some(status.process), uid: Some(status.uid), ..Subject::default() };
            subject.exe = self.executable();
            more(self, &mut subject);
            let before = std::mem::replace(&mut self.stat, Stat::read(self.directory.as_fd())?);
            if (before.image, &before.name) == (self.stat.image, &self.stat.name) {
                return Some(subject);
            }
        }
        Some(Subject { comm: None, exe: None, argv: None, ..subject })
    }

    fn name(&self) -> String {
        escape(&self.stat.name, TEXT_LIMIT)
    }

    /// The link is refused to whoever may not trace the process (proc_pid_exe(5)).
    fn executable(&self) -> Option<String> {
        let path = readlinkat(&self.directory, "exe").ok()?;
        Some(escape(path.as_bytes(), TEXT_LIMIT))
    }

    fn arguments(&self) -> Option<Vec<String>> {
        let mut most = [0; 2048];
        let bytes = procfs::read_at(self.directory.as_fd(), "cmdline", &mut most).ok()?;
        if bytes.len() < 2048 {
            return arguments(bytes, true);
        }
        let mut large = vec![0; CMDLINE_LIMIT];
        let bytes = procfs::read_at(self.directory.as_fd(), "cmdline", &mut large).ok()?;
        arguments(bytes, bytes.len() < CMDLINE_LIMIT)
    }

    fn all_named_alike(&self, pid: u32) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
        let mut buffer = [0; 256];
        for (at, thread) in threads.enumerate() {
            let id = thread.ok().and_then(|thread| thread.file_name().into_string().ok());
            let Some(id) = id.filter(|_| at < THREAD_LIMIT) else { return false };
            let comm = format!("task/{id}/comm");
            match procfs::read_at(self.directory.as_fd(), &comm, &mut buffer) {
                Ok(name) if name.strip_suffix(b"\n") == Some(&self.stat.name) => {}
                // It has ended since it was listed: it is none of those that there are.
                Err(Errno::ENOENT | Errno::ESRCH) => {}
                _ => return false,
            }
        }
        true
    }

    fn ancestors(&self, above: &[u32]) -> Option<Vec<String>> {
        let first = self.stat.clone();
        self.ancestors_of(first, above).or_else(|| {
            // The parent has ended meanwhile, say: then there is another one now.
            (1..TRIES).find_map(|_| self.ancestors_of(Stat::read(self.directory.as_fd())?, above))
        })
    }

    /// `None` when an ancestor has ended while they were read.
    fn ancestors_of(&self, mut child: Stat, above: &[u32]) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut held: Option<OwnedFd> = None;
        while child.parent > 1 && !above.contains(&child.parent) && names.len() < ANCESTOR_LIMIT {
            let parent = Thread::open(child.parent)?;
            // Whoever is older than the child had that number already when it was read as the child's parent. Of two that
            // are as old to the tick, the child tells whether its parent is still the same.
            if parent.stat.image.start >= child.image.start {
                let directory = held.as_ref().unwrap_or(&self.directory);
                let again = Stat::read(directory.as_fd())?;
                if parent.stat.image.start > child.image.start || again.parent != child.parent {
                    return None;
                }
            }
            names.push(parent.name());
            (child, held) = (parent.stat, Some(parent.directory));
        }
        Some(names)
    }
}

/// What changes when a number is given to another thread, and at every exec: the start, and where the program, its stack
/// and its arguments lie. The addresses are 0 to whoever may not trace the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Image {
    start: u64,
    addresses: [u64; 4],
}

/// A thread's line of /proc/TID/stat (proc_pid_stat(5)) as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its name, as it is.
    pub name: Vec<u8>,
    /// Its process's parent; 0 where that is none the reader can see.
    pub parent: u32,
    /// The threads of its process.
    pub threads: u64,
    image: Image,
}

impl Stat {
    fn read(directory: BorrowedFd<'_>) -> Option<Stat> {
        let mut buffer = [0; 2048];
        Stat::parse(procfs::read_at(directory, "stat", &mut buffer).ok()?)
    }

    /// Reads the line. The name stands in parentheses and may itself hold any of them, and line feeds; after it come only
    /// numbers and one letter.
    pub fn parse(line: &[u8]) -> Option<Stat> {
        let opened = line.iter().position(|byte| *byte == b'(')?;
        let closed = line.iter().rposition(|byte| *byte == b')').filter(|closed| *closed > opened)?;
        let fields: Vec<&str> = std::str::from_utf8(&line[closed + 1..]).ok()?.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            name: line[opened + 1..closed].to_vec(),
            parent: u32::try_from(number(4)?).ok()?,
            threads: number(20)?,
            image: Image {
                start: number(22)?,
                // startcode, startstack, arg_start, env_end
                addresses: [26, 28, 48, 51].map(|field| number(field).unwrap_or(0)),
            },
        })
    }
}

/// A thread's /proc/TID/status (proc_pid_status(5)) as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The process that the thread belongs to.
    pub process: u32,
    /// Its real, effective, saved and file system uid.
    pub uids: [u32; 4],
    /// Its real uid.
    pub uid: u32,
}

impl Status {
    /// Reads the text. The name comes first: a kernel that did not escape its line feeds could not make it pass for one of the
    /// lines that follow, of which the last counts.
    pub fn parse(text: &[u8]) -> Option<Status> {
        let (mut process, mut uids) = (None, None);
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(value) = line.strip_prefix(b"Tgid:") {
                process = numbers(value).next();
            } else if let Some(value) = line.strip_prefix(b"Uid:") {
                let all: Vec<u32> = numbers(value).collect();
                uids = <[u32; 4]>::try_from(all).ok();
            }
        }
        let uids = uids?;
        Some(Status { process: process?, uids, uid: uids[0] })
    }
}

fn numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|word| word.parse().ok())
}

/// The argument vector that /proc/PID/cmdline holds, escaped and bounded; `entire` tells whether `bytes` are all of it.
/// `None` where there is none: a zombie, or a thread of the kernel.
///
/// Where arguments are left out the last element is `\[+N]`, N being their number, or `\[+]` where that is not known. An
/// argument that is itself cut ends in the same marks, N being bytes.
pub fn arguments(bytes: &[u8], entire: bool) -> Option<Vec<String>> {
    if bytes.is_empty() {
        return None;
    }
    let text = if entire { bytes.strip_suffix(b"\0").unwrap_or(bytes) } else { bytes };
    let mut left = text.split(|byte| *byte == 0).peekable();
    let mut shown = Vec::new();
    let mut room = ARGUMENTS_TEXT_LIMIT;
    while let Some(argument) = left.next() {
        let torn = !entire && left.peek().is_none();
        if shown.len() == ARGUMENT_LIMIT || room == 0 {
            shown.push(if entire { format!("\\[+{}]", 1 + left.count()) } else { REST.to_owned() });
            break;
        }
        let limit = room.min(ARGUMENT_TEXT_LIMIT);
        let text = match torn {
            // No byte takes more than four when it is escaped.
            true => escape(&argument[..argument.len().min(limit / 4)], TEXT_LIMIT) + REST,
            false => escape(argument, limit),
        };
        // An empty argument takes room too.
        room = room.saturating_sub(text.len().max(1));
        shown.push(text);
    }
    Some(shown)
}

#[cfg(test)]
#[path = "subject_tests.rs"]
mod tests;
