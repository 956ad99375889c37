//! From a confined child to the command: working directory, signal state as the caller had it, and exec with a shell's rules.

use crate::sys;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{AccessFlags, access, chdir, execve};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The caller's signal state, which the command gets back as it was (case E05).
#[derive(Debug, Clone)]
pub struct SignalState {
    /// The mask.
    pub mask: SigSet,
    /// Signals that the caller had set to be ignored, of those that this program or its runtime changes.
    pub ignored: Vec<Signal>,
}

impl SignalState {
    /// Blocks every signal and returns what was in force, so that none is lost before it can be forwarded (case E03).
    pub fn block_all() -> Result<SignalState, Errno> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask))?;
        let mut ignored = Vec::new();
        if sys::sigpipe_ignored_at_start() {
            ignored.push(Signal::SIGPIPE);
        }
        // An ignored SIGCHLD would have the kernel reap our children before we learn how they ended.
        if sys::is_ignored(Signal::SIGCHLD as i32) {
            ignored.push(Signal::SIGCHLD);
            sys::set_disposition(Signal::SIGCHLD, false)?;
        }
        Ok(SignalState { mask, ignored })
    }

    fn restore(&self) -> Result<(), Errno> {
        for signal in [Signal::SIGPIPE, Signal::SIGCHLD] {
            sys::set_disposition(signal, self.ignored.contains(&signal))?;
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }
}

/// What to execute, and in which surroundings.
#[derive(Debug, Clone)]
pub struct Command {
    /// The command and its arguments; never empty.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=VALUE`.
    pub environment: Vec<CString>,
    /// The working directory.
    pub workdir: PathBuf,
    /// The caller's signal state.
    pub signals: SignalState,
}

/// Why the command did not start, with the exit status that a shell would give.
#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{message}")]
pub struct ExecFailure {
    /// 126 found but not executable, 127 not found, 125 for what is ours.
    pub status: i32,
    /// One line.
    pub message: String,
}

fn failure(status: i32, message: String) -> ExecFailure {
    ExecFailure { status, message }
}

const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Command {
    /// Executes the command in the calling process; returns only on failure.
    pub fn execute(&self) -> ExecFailure {
        if let Err(errno) = chdir(&self.workdir) {
            let place = blocked_component(&self.workdir).unwrap_or_else(|| self.workdir.clone());
            return failure(125, format!("working directory {}: {}: {errno}", self.workdir.display(), place.display()));
        }
        if let Err(errno) = self.signals.restore() {
            return failure(125, format!("restore the signal state: {errno}"));
        }
        let Some(name) = self.argv.first() else {
            return failure(125, "no command".into());
        };
        let mut refused = None;
        for candidate in self.candidates(name.as_bytes()) {
            let errno = self.execute_at(&candidate);
            match errno {
                Errno::ENOENT | Errno::ENOTDIR => {}
                errno => {
                    refused.get_or_insert((candidate, errno));
                    // A shell searches on after EACCES only.
                    if errno != Errno::EACCES {
                        break;
                    }
                }
            }
        }
        let shown = name.to_string_lossy();
        let Some((path, errno)) = refused else {
            return failure(127, format!("{shown}: command not found"));
        };
        let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
        let component = blocked_component(&path).unwrap_or_else(|| path.clone());
        failure(
            126,
            format!("cannot execute {}: {}: {errno} for the command's user", path.display(), component.display()),
        )
    }

    fn candidates(&self, name: &[u8]) -> Vec<CString> {
        if name.contains(&b'/') {
            return CString::new(name).into_iter().collect();
        }
        let path = self.environment.iter().find_map(|v| v.as_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
        path.split(|b| *b == b':')
            .filter_map(|dir| {
                let dir: &[u8] = if dir.is_empty() { b"." } else { dir };
                CString::new([dir, b"/", name].concat()).ok()
            })
            .collect()
    }

    fn execute_at(&self, path: &CStr) -> Errno {
        let Err(errno) = execve(path, &self.argv, &self.environment);
        // A file without a format the kernel knows is a script for sh, as execvp(3) and the shells have it.
        if errno != Errno::ENOEXEC {
            return errno;
        }
        let mut argv = vec![CString::from(c"/bin/sh"), path.to_owned()];
        argv.extend_from_slice(&self.argv[1..]);
        let Err(errno) = execve(c"/bin/sh", &argv, &self.environment);
        errno
    }
}

/// The first component of `path` that the calling user may not search (or, for the last one, execute).
fn blocked_component(path: &Path) -> Option<PathBuf> {
    let mut so_far = PathBuf::new();
    path.components().find_map(|component| {
        so_far.push(component);
        access(&so_far, AccessFlags::X_OK).is_err().then(|| so_far.clone())
    })
}
