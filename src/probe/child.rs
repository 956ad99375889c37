//! Processes that a probe starts, and the words in which probes say what they saw.

use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid, setsid};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `ok`, or the errno's name.
pub fn errno_of<T>(outcome: Result<T, Errno>) -> String {
    outcome.map_or_else(name_of, |_| "ok".into())
}

/// The errno's name.
pub fn name_of(errno: Errno) -> String {
    format!("{errno:?}")
}

/// The errno behind an I/O error.
pub fn of_io(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The same as [`errno_of`] for calls of the standard library.
pub fn io_outcome<T>(outcome: std::io::Result<T>) -> String {
    errno_of(outcome.map_err(|e| of_io(&e)))
}

/// Tries a system call by number.
pub fn attempt(call: libc::c_long, arguments: [u64; 6]) -> String {
    errno_of(sys::attempt(call, arguments))
}

/// A child at work.
pub struct Working {
    child: Pid,
    report: OwnedFd,
}

impl Working {
    /// Starts `work` in a child, which reports what it returns.
    pub fn begin(work: impl FnOnce() -> Vec<u8>) -> Result<Working, Errno> {
        let (report, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        match sys::fork_single_threaded()? {
            Fork::Child => {
                let done = std::fs::File::from(write).write_all(&work());
                sys::exit_now(i32::from(done.is_err()));
            }
            Fork::Parent(child) => Ok(Working { child, report }),
        }
    }

    /// Waits for the report. An error says how the child ended instead.
    pub fn end(self) -> Result<Vec<u8>, String> {
        let mut report = Vec::new();
        let read = std::fs::File::from(self.report).read_to_end(&mut report);
        match (read, waitpid(self.child, None)) {
            (Ok(_), Ok(WaitStatus::Exited(_, 0))) => Ok(report),
            (_, ended) => Err(format!("the child ended with {ended:?}")),
        }
    }
}

/// Runs `work` in a child of its own and returns what it saw.
pub fn in_child(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let (mut work, mut seen) = (Some(work), None);
    let child = match sys::fork_in_same_memory(|| seen = work.take().map(|work| work())) {
        Ok(child) => child,
        Err(errno) => return vec![format!("fork: {}", name_of(errno))],
    };
    match (waitpid(child, None), seen) {
        (Ok(WaitStatus::Exited(_, 0)), Some(seen)) => seen,
        (ended, _) => vec![format!("the child ended with {ended:?}")],
    }
}

/// The same in a child with memory of its own, for what outlives it or has threads.
pub fn in_fork(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    match Working::begin(|| work().join("\n").into_bytes()).map(Working::end) {
        Ok(Ok(report)) => String::from_utf8_lossy(&report).lines().map(str::to_owned).collect(),
        Ok(Err(ended)) => vec![ended],
        Err(errno) => vec![format!("fork: {}", name_of(errno))],
    }
}

/// The same two generations down, in a session of its own.
pub fn in_grandchild(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    in_child(|| {
        let session = nix::unistd::setsid();
        if session.is_err() {
            return vec![errno_of(session)];
        }
        in_child(work)
    })
}

/// The same in a process whose parent has ended, in a session of its own: a daemon.
pub fn in_daemon(work: impl FnOnce() -> Vec<String>) -> Vec<String> {
    in_fork(|| {
        let Ok((report, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else { return vec!["no pipe".into()] };
        // Between this process, which waits, and the daemon stands one that ends at once.
        let between = in_fork(|| {
            let parent = getpid();
            match setsid().and_then(|_| sys::fork_single_threaded()) {
                Ok(Fork::Child) => {
                    while getppid() == parent {
                        std::thread::yield_now();
                    }
                    let done = std::fs::File::from(write).write_all(work().join("\n").as_bytes());
                    sys::exit_now(i32::from(done.is_err()));
                }
                Ok(Fork::Parent(_)) => Vec::new(),
                Err(errno) => vec![format!("setsid and fork: {}", name_of(errno))],
            }
        });
        let mut text = String::new();
        match std::fs::File::from(report).read_to_string(&mut text) {
            Ok(_) if between.is_empty() => text.lines().map(str::to_owned).collect(),
            Ok(_) => between,
            Err(cause) => vec![of_io(&cause).to_string()],
        }
    })
}

/// The same in a thread of a child.
pub fn in_thread(work: impl FnOnce() -> Vec<String> + Send) -> Vec<String> {
    in_fork(|| {
        std::thread::scope(|scope| {
            let started = std::thread::Builder::new().spawn_scoped(scope, work);
            let ended = started.map(|thread| thread.join());
            match ended {
                Ok(Ok(seen)) => seen,
                Ok(Err(_)) => vec!["the thread panicked".into()],
                Err(cause) => vec![format!("clone: {}", name_of(of_io(&cause)))],
            }
        })
    })
}

/// Executes a program of the bait, whose exit status tells what it gained. A refused exec gains nothing either.
pub fn gained(path: &Path) -> String {
    match status_of(path) {
        Ok(Ok(0)) | Ok(Err(Errno::EPERM)) => "nothing gained".into(),
        Ok(Ok(bits)) => format!("status {bits}"),
        Ok(Err(errno)) => name_of(errno),
        Err(other) => other,
    }
}

/// Executes an ordinary program of the bait.
pub fn executed(path: &Path) -> String {
    match status_of(path) {
        Ok(Ok(0)) => "ok".into(),
        Ok(Ok(bits)) => format!("status {bits}"),
        Ok(Err(errno)) => name_of(errno),
        Err(other) => other,
    }
}

/// The bits that the bait's programs set in their exit status stay below this; above it stands the errno of execve(2).
const NOT_EXECUTED: i32 = 0x40;

fn status_of(path: &Path) -> Result<Result<i32, Errno>, String> {
    let argv = [CString::new(path.as_os_str().as_bytes()).unwrap_or_default()];
    let executed = sys::fork_in_same_memory(|| {
        let Err(errno) = nix::unistd::execve(&argv[0], &argv, &argv[..0]);
        sys::exit_now(NOT_EXECUTED + errno as i32);
    });
    let child = executed.map_err(|errno| format!("fork: {}", name_of(errno)))?;
    match waitpid(child, None) {
        Ok(WaitStatus::Exited(_, status)) if status < NOT_EXECUTED => Ok(Ok(status)),
        Ok(WaitStatus::Exited(_, status)) => Ok(Err(Errno::from_raw(status - NOT_EXECUTED))),
        other => Err(format!("{other:?}")),
    }
}
