//! What probes try on what is shielded.

use super::GitSeen;
use super::child::{errno_of, name_of, of_io};
use super::filesystem::{by_alias, made_and_removed, opened};
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, lstat};
use nix::unistd::{AccessFlags, faccessat};
use std::io::Read;
use std::path::Path;

/// Each way to a shield, by its name and by way of /proc/self/root; what each gave.
pub(super) fn reached(shield: &Path) -> Vec<String> {
    let ways = [shield.to_owned(), by_alias(shield)];
    let each = ways.iter().flat_map(|path| {
        let within = path.join(super::filesystem::scratch_name());
        let executes = faccessat(nix::fcntl::AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS);
        [opened(path), opened(&within), errno_of(lstat(path)), errno_of(executes)]
    });
    each.collect()
}

/// Each way to what a covered git directory has alone; what each gave.
pub(super) fn looked_for(path: &Path) -> Vec<String> {
    [path.to_owned(), by_alias(path)].iter().flat_map(|path| [opened(path), errno_of(lstat(path))]).collect()
}

/// What came of reading HEAD in what covers a git directory, and of writing there.
pub(super) fn worked_in(git: &GitSeen) -> Vec<String> {
    let read = opened(&git.directory.join("HEAD"));
    if git.writable {
        return vec![read, made_and_removed(&git.directory)];
    }
    // Where the directory is closed to the command, what covers it is closed alike.
    vec![if read == "EACCES" { "closed by its mode".into() } else { read }]
}

/// What there is to be read at a shield: `empty`, an errno, or what should not be there.
pub(super) fn read(shield: &Path) -> String {
    let shown = |what: String| format!("{}: {what}", shield.display());
    match open(shield, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty()) {
        Err(errno) => name_of(errno),
        Ok(_) if shield.is_dir() => match std::fs::read_dir(shield).map(|mut entries| entries.next().is_none()) {
            Ok(true) => "empty".into(),
            Ok(false) => shown("listed".into()),
            Err(cause) => shown(format!("{:?}", of_io(&cause))),
        },
        Ok(file) => match std::fs::File::from(file).read(&mut [0; 1]) {
            Ok(0) => "empty".into(),
            Ok(_) => shown("read".into()),
            Err(cause) => shown(format!("{:?}", of_io(&cause))),
        },
    }
}
