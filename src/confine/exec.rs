//! From a confined child to the command: working directory, stdio and signal state as the caller had them, and exec with a
//! shell's rules (POSIX.1-2024, Shell Command Language, 2.9.1.6 and 2.8.2).

use crate::sys;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{AccessFlags, access, chdir, execve};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The caller's signal state, which the command gets back as it was (case E05).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "SignalNumbers", into = "SignalNumbers")]
pub struct SignalState {
    /// The mask.
    pub mask: SigSet,
    /// Signals that the caller had set to be ignored; the real-time ones are left as they are.
    pub ignored: Vec<Signal>,
}

/// The same by numbers.
#[derive(Serialize, Deserialize)]
struct SignalNumbers {
    mask: Vec<i32>,
    ignored: Vec<i32>,
}

impl From<SignalState> for SignalNumbers {
    fn from(state: SignalState) -> SignalNumbers {
        let ignored = state.ignored.into_iter().map(|signal| signal as i32).collect();
        SignalNumbers { mask: sys::signal_numbers(&state.mask), ignored }
    }
}

impl From<SignalNumbers> for SignalState {
    fn from(numbers: SignalNumbers) -> SignalState {
        let ignored = numbers.ignored.into_iter().filter_map(|number| Signal::try_from(number).ok()).collect();
        SignalState { mask: sys::signal_set(&numbers.mask), ignored }
    }
}

impl SignalState {
    /// Blocks every signal and returns what was in force, so that none is lost before it can be forwarded (case E03).
    pub fn block_all() -> Result<SignalState, Errno> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask))?;
        let changed = [Signal::SIGPIPE, Signal::SIGCHLD];
        let others = Signal::iterator().filter(|signal| !changed.contains(signal));
        let mut ignored: Vec<Signal> = others.filter(|signal| sys::is_ignored(*signal as i32)).collect();
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

    /// Unblocks what was not blocked before, for a program that will start nothing.
    pub fn unblock(&self) -> Result<(), Errno> {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }

    fn restore(&self) -> Result<(), Errno> {
        let fixed = [Signal::SIGKILL, Signal::SIGSTOP];
        for signal in Signal::iterator().filter(|signal| !fixed.contains(signal)) {
            sys::set_disposition(signal, self.ignored.contains(&signal))?;
        }
        self.unblock()
    }
}

/// What to execute, and in which surroundings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// The command and its arguments; never empty.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=VALUE`.
    pub environment: Vec<CString>,
    /// The working directory.
    #[serde(with = "as_text")]
    pub workdir: PathBuf,
    /// The caller's signal state.
    pub signals: SignalState,
    /// Which of the descriptors 0 to 2 the caller had closed.
    pub closed: Vec<RawFd>,
}

/// A path need not be UTF-8, which serde wants of one.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
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
        for number in self.closed.iter().copied() {
            if let Err(errno) = sys::close_stdio(number) {
                return failure(125, format!("close descriptor {number}, as the caller had it: {errno}"));
            }
        }
        if let Err(errno) = self.signals.restore() {
            return failure(125, format!("restore the signal state: {errno}"));
        }
        let Some(name) = self.argv.first() else {
            return failure(125, "no command".into());
        };
        let mut refused = None;
        for candidate in self.candidates(name.as_bytes()) {
            let Refused { errno, found } = self.execute_at(&candidate);
            if !found {
                continue;
            }
            refused.get_or_insert((candidate, errno));
            // A shell searches on after EACCES only.
            if errno != Errno::EACCES {
                break;
            }
        }
        match refused {
            Some((path, errno)) => explain(Path::new(OsStr::from_bytes(path.as_bytes())), errno),
            None => failure(127, format!("{}: command not found", name.to_string_lossy())),
        }
    }

    fn candidates(&self, name: &[u8]) -> Vec<CString> {
        if name.contains(&b'/') || name.is_empty() {
            return CString::new(name).into_iter().filter(|name| !name.is_empty()).collect();
        }
        let path = self.environment.iter().find_map(|v| v.as_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
        path.split(|b| *b == b':')
            .filter_map(|dir| {
                let dir: &[u8] = if dir.is_empty() { b"." } else { dir };
                CString::new([dir, b"/", name].concat()).ok()
            })
            .collect()
    }

    fn execute_at(&self, path: &CStr) -> Refused {
        let Err(errno) = execve(path, &self.argv, &self.environment);
        match errno {
            // ENOENT is the interpreter's, or the loader's, where the file itself is there.
            Errno::ENOENT | Errno::ENOTDIR => Refused { errno, found: access(path, AccessFlags::F_OK).is_ok() },
            // A file without a format the kernel knows is a script for sh, unless it is no text.
            Errno::ENOEXEC if !is_binary(Path::new(OsStr::from_bytes(path.to_bytes()))) => {
                let mut argv = vec![CString::from(c"/bin/sh"), path.to_owned()];
                argv.extend_from_slice(&self.argv[1..]);
                // Without a shell the answer stays that of the file.
                let Err(_) = execve(c"/bin/sh", &argv, &self.environment);
                Refused { errno, found: true }
            }
            errno => Refused { errno, found: true },
        }
    }
}

/// One file that was tried.
struct Refused {
    errno: Errno,
    found: bool,
}

/// Says why a file that is there cannot be executed, naming the part of it that the command's user meets.
fn explain(path: &Path, errno: Errno) -> ExecFailure {
    let shown = path.display();
    match errno {
        // Resources are ours to provide; the file is none the worse.
        Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => {
            return failure(125, format!("execve of {shown}: {errno}"));
        }
        _ => {}
    }
    if let Some(component) = blocked_component(path) {
        return failure(
            126,
            format!("cannot execute {shown}: {}: {errno} for the command's user", component.display()),
        );
    }
    let interpreter = match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP => interpreter(path),
        _ => None,
    };
    let part = match (&interpreter, errno) {
        (Some(interpreter), _) => {
            let at = blocked_component(interpreter).unwrap_or_else(|| interpreter.clone());
            format!("its interpreter {}: {}", interpreter.display(), at.display())
        }
        (None, Errno::ENOENT | Errno::ENOTDIR) => "a loader or an interpreter that it names".to_owned(),
        (None, _) => shown.to_string(),
    };
    failure(126, format!("cannot execute {shown}: {part}: {errno} for the command's user"))
}

/// What the kernel reads of a file to tell its format (BINPRM_BUF_SIZE).
const HEAD: u64 = 256;

fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)) {
        Ok(_) => head,
        // A file that may be executed and not read tells nothing; no shell could read it either.
        Err(_) => Vec::new(),
    }
}

/// A NUL in the first line: no text, so no script.
fn is_binary(path: &Path) -> bool {
    head(path).split(|b| *b == b'\n').next().is_some_and(|line| line.contains(&0))
}

/// The program that a script's first line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let head = head(path);
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let name = line.trim_ascii().split(|b| matches!(b, b' ' | b'\t')).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// The first component of `path` that the calling user may not search (or, for the last one, execute).
fn blocked_component(path: &Path) -> Option<PathBuf> {
    let mut so_far = PathBuf::new();
    path.components().find_map(|component| {
        so_far.push(component);
        access(&so_far, AccessFlags::X_OK).is_err().then(|| so_far.clone())
    })
}
