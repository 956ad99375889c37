//! What a run that is killed could not put back: written before it is changed, to a file of root's beside the default ledger,
//! removed at the seal, and acted on by the next run that finds it.

use super::git;
use super::reserve::{self, Busy, ReserveError};
use super::workspace::{self, Owners, WorkspaceError};
use crate::git::GitError;
use crate::ledger::record::GitEnd;
use crate::ledger::target::{self, Made};
use crate::ledger::{LedgerError, UnsafePath, control_path_is_safe};
use nix::unistd::{Gid, Uid, geteuid};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of root's default ledgers, where the files of all runs are looked for.
pub const DIRECTORY: &str = "/var/log/ringfence";
/// How a run's file ends.
const EXTENSION: &str = "owners";
/// The first entry; a file that starts otherwise was written by another version, or torn before anything was changed.
const FORM: &[u8] = b"ringfence owners 1";

/// The file could not be written, or not be acted on.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// It could not be made or removed.
    #[error("prior owners: {0}")]
    File(#[from] LedgerError),
    /// The command could write it.
    #[error("prior owners: {0}")]
    Unsafe(#[from] UnsafePath),
    /// It could not be written or read.
    #[error("prior owners: {call} {path}: {cause}", path = path.display())]
    Io {
        /// What was done.
        call: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: std::io::Error,
    },
    /// What it says could not be put back.
    #[error("put back what the run of {path} left: {cause}", path = path.display())]
    PutBack {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: WorkspaceError,
    },
    /// What a command has committed could not be carried back.
    #[error("shield-git: {0}")]
    Git(#[from] GitError),
    /// Whether its run lives could not be found out.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
}

fn io(call: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> UndoError {
    let path = path.to_owned();
    move |cause| UndoError::Io { call, path, cause }
}

/// What one run changes on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undo {
    /// The command's uid: only what it owns is given back.
    pub uid: u32,
    /// When the run began, in seconds since the epoch.
    pub started: i64,
    /// Trees whose owner was changed.
    pub owners: Vec<Owners>,
    /// Copies of parts of repositories, each in the real git directory.
    pub git: Vec<PathBuf>,
    /// Trees in which the command acts as root, so that it could leave set-id programs of root's.
    pub idmapped: Vec<PathBuf>,
}

/// The file while the run lives.
#[derive(Debug)]
pub struct UndoFile {
    /// Where it is.
    pub path: PathBuf,
    file: OwnedFd,
    made: Made,
}

impl Undo {
    /// Whether there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.idmapped.is_empty() && self.git.is_empty()
    }

    /// Writes the file of a run; what it speaks of is not to be changed before this has returned.
    pub fn write(&self, run: &str, gid: Gid) -> Result<UndoFile, UndoError> {
        let path = Path::new(DIRECTORY).join(run).with_extension(EXTENSION);
        control_path_is_safe(&path, self.uid, gid.as_raw())?;
        let (file, made) = target::create(&path)?;
        let undo = UndoFile { path, file, made };
        let written = undo.file.try_clone().and_then(|fd| std::fs::File::from(fd).write_all(&self.to_bytes()));
        match written {
            Ok(()) => Ok(undo),
            Err(cause) => {
                let error = io("write", &undo.path)(cause);
                undo.remove()?;
                Err(error)
            }
        }
    }

    /// Puts everything back. What is gone meanwhile is no fault.
    pub fn put_back(&self) -> Result<(), WorkspaceError> {
        for owners in &self.owners {
            owners.restore(Uid::from_raw(self.uid))?;
        }
        for path in &self.idmapped {
            workspace::clear_new_set_ids(path, self.started)?;
        }
        Ok(())
    }

    /// Carries back what commands have committed. What is gone meanwhile is no fault.
    fn carry_back(&self) -> Result<Vec<GitEnd>, UndoError> {
        let mut ends = Vec::new();
        for copy in self.git.iter().filter(|copy| copy.exists()) {
            if let Some(directory) = copy.parent() {
                ends.push(git::carry_back(directory, copy)?);
            }
        }
        Ok(ends)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = FORM.to_vec();
        out.extend_from_slice(format!(" {} {}\0", self.uid, self.started).as_bytes());
        let mut entry = |kind: &str, path: &[u8], (uid, gid): (u32, u32)| {
            out.extend_from_slice(format!("{kind} {uid} {gid} ").as_bytes());
            out.extend_from_slice(path);
            out.push(0);
        };
        for path in &self.idmapped {
            entry("map", path.as_os_str().as_bytes(), (0, 0));
        }
        for path in &self.git {
            entry("git", path.as_os_str().as_bytes(), (0, 0));
        }
        for owners in &self.owners {
            entry("top", owners.top.as_os_str().as_bytes(), owners.of_top);
            for (path, owner) in &owners.exceptions {
                entry("own", path.as_bytes(), *owner);
            }
        }
        out.extend_from_slice(b"end\0");
        out
    }

    fn parse(bytes: &[u8]) -> Option<Undo> {
        let mut entries = bytes.strip_suffix(b"end\0")?.strip_suffix(&[0])?.split(|b| *b == 0);
        let head = std::str::from_utf8(entries.next()?.strip_prefix(FORM)?).ok()?;
        let (uid, started) = head.strip_prefix(' ')?.split_once(' ')?;
        let mut undo = Undo { uid: uid.parse().ok()?, started: started.parse().ok()?, ..Undo::default() };
        for entry in entries {
            let mut fields = entry.splitn(4, |b| *b == b' ');
            let kind = fields.next()?;
            let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u32>().ok();
            let owner = (number()?, number()?);
            let path = OsString::from_vec(fields.next()?.to_vec());
            match kind {
                b"map" => undo.idmapped.push(path.into()),
                b"git" => undo.git.push(path.into()),
                b"top" => undo.owners.push(Owners { top: path.into(), of_top: owner, ..Owners::default() }),
                b"own" => {
                    undo.owners.last_mut()?.exceptions.insert(path, owner);
                }
                _ => return None,
            }
        }
        Some(undo)
    }
}

impl UndoFile {
    /// Removes the file, and the directory with it if the run made it and it is empty.
    pub fn remove(self) -> Result<(), UndoError> {
        Ok(self.made.remove(&self.file)?)
    }
}

/// Puts back what runs that are over have left, and says what has become of what they committed. A run whose processes live is
/// left alone: they work in these trees.
pub fn put_back_for_the_dead(busy: &mut Busy) -> Result<Vec<GitEnd>, UndoError> {
    let (directory, mut ends) = (Path::new(DIRECTORY), Vec::new());
    let ours = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|m| m.uid() == geteuid().as_raw());
    // Whoever else owns the directory could have put anything there.
    if !ours(directory) {
        return Ok(ends);
    }
    for entry in std::fs::read_dir(directory).map_err(io("open", directory))? {
        let path = entry.map_err(io("read", directory))?.path();
        let Some(run) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if path.extension() != Some(EXTENSION.as_ref()) || !ours(&path) {
            continue;
        }
        // Held until the file is gone, so that only one of two runs that start together puts back.
        let Some(_held) = reserve::run(run)? else { continue };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(io("read", &path)(cause)),
        };
        // A torn file is one whose run ended while it wrote it, before it changed anything.
        if let Some(undo) = Undo::parse(&bytes) {
            if busy.contains(undo.uid) {
                continue;
            }
            undo.put_back().map_err(|cause| UndoError::PutBack { path: path.clone(), cause })?;
            ends.extend(undo.carry_back()?);
        }
        std::fs::remove_file(&path).map_err(io("unlink", &path))?;
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut owners = Owners { top: "/app".into(), of_top: (0, 5), ..Owners::default() };
        owners.exceptions.insert(OsString::from_vec(b"/app/a b\xff\n".to_vec()), (7, 8));
        let second = Owners { top: "/srv/x".into(), of_top: (1, 1), ..Owners::default() };
        let undo = Undo {
            uid: 10001,
            started: 1_700_000_000,
            owners: vec![owners, second],
            idmapped: vec!["/w".into()],
            git: vec!["/app/.git/ringfence-x".into()],
        };
        let bytes = undo.to_bytes();
        assert_eq!(Undo::parse(&bytes).as_ref(), Some(&undo));
        for length in 0..bytes.len() {
            assert_eq!(Undo::parse(&bytes[..length]), None, "torn at {length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _outcome = Undo::parse(&bytes);
        }
    }
}
