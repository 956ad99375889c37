//! What probes try on the file system.

use super::Surroundings;
use super::arena;
use super::changes;
use super::child::{errno_of, in_grandchild, io_outcome, name_of, of_io};
use super::shielded;
use super::watched;
use crate::install::{mountinfo, mounts};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, lstat};
use nix::unistd::{AccessFlags, access, chdir, geteuid, mkdir, unlink};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a probe tries on the file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Creates a file in each protected tree and in each mount beneath one.
    CreateInProtected,
    /// The same by way of /proc/self/root, through a symbolic link in a writable place, and wherever else a mount shows a
    /// protected tree.
    CreateByAlias,
    /// The same from a grandchild in a session of its own.
    CreateFromGrandchild,
    /// Makes a directory, a link and a fifo in each protected tree, links a file of it, moves and removes a name.
    NamesInProtected,
    /// Sets mode, owner and times in each protected tree to what they are.
    AttributesInProtected,
    /// The same by a descriptor that is open for reading, and by its name in /proc.
    AttributesByDescriptor,
    /// Creates a file in each of these directories and removes it.
    CreateIn(Vec<PathBuf>),
    /// Opens each of these for reading.
    OpenForReading(Vec<PathBuf>),
    /// Mounts a file system over each protected tree.
    MountOverProtected,
    /// Lists each protected tree whose own mode lets the command.
    ListProtected,
    /// Creates, writes, renames and removes a file in each path of the writable set.
    WriteInWritable,
    /// Looks for propagation in the mount table.
    Propagation,
    /// Looks for mounts on which set-id bits count.
    SetIdMounts,
    /// Looks at the mode of each masked path.
    Masked,
    /// Opens each masked path, by its name and by way of /proc/self/root.
    OpenMasked,
    /// Looks at each shield, opens it and executes it, by its name and by way of /proc/self/root.
    ReachShielded,
    /// Lists the directory of each shield, if its mode lets the command.
    ListBesideShielded,
    /// Reads each shield as the stage, for which no observer answers.
    ReadShieldedAsStage,
    /// Opens each watched path for reading, and from a grandchild by way of /proc/self/root.
    ReadWatched,
    /// Looks for what is in a covered git directory alone, by its name and by way of /proc/self/root.
    ReachHiddenGit,
    /// The same as the stage.
    ReachHiddenGitAsStage,
    /// Reads HEAD in what covers a git directory, and makes a file there if that is the command's to write.
    WorkInGit,
    /// Changes the mode of a file of its own.
    ChangeOwnFile,
    /// Enters HOME and lists it.
    EnterHome,
    /// Reads the files that are mounted over the image's.
    Accounts,
    /// Creates a directory in each protected tree as the stage, for which no observer answers.
    CreateAsStage,
}

/// Tries an operation; what it saw, one word a try.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    match operation {
        Operation::CreateInProtected => create_in(&protected_places(run)),
        Operation::CreateByAlias => create_by_alias(run),
        Operation::CreateFromGrandchild => in_grandchild(|| create_in(&run.protected)),
        Operation::NamesInProtected => each_tree(run, changes::names_in),
        Operation::AttributesInProtected => each_tree(run, changes::attributes_in),
        Operation::AttributesByDescriptor => each_tree(run, changes::attributes_by_descriptor),
        Operation::CreateIn(places) => places.iter().map(|place| made_and_removed(place)).collect(),
        Operation::OpenForReading(paths) => paths.iter().map(|path| opened(path)).collect(),
        Operation::MountOverProtected => run.protected.iter().map(|p| errno_of(mount_tmpfs(p))).collect(),
        Operation::ListProtected => run.protected.iter().filter(|p| !p.is_file()).map(|p| listed(p)).collect(),
        Operation::WriteInWritable => run.writable.iter().map(|p| written(p)).collect(),
        Operation::Propagation => mount_faults(run, |m| !m.propagation.is_empty(), "private"),
        Operation::SetIdMounts => {
            mount_faults(run, |m| !m.has("nosuid") && m.point != Path::new(arena::MOUNT_POINT), "nosuid")
        }
        Operation::Masked => run.masked.iter().map(|p| mode_of(p)).collect(),
        Operation::OpenMasked => run.masked.iter().flat_map(|p| [opened(p), opened(&by_alias(p))]).collect(),
        Operation::ReachShielded => run.shielded.iter().flat_map(|p| shielded::reached(p)).collect(),
        Operation::ListBesideShielded => run.shielded.iter().filter_map(|p| p.parent()).map(listed).collect(),
        Operation::ReadShieldedAsStage => run.shielded.iter().map(|p| shielded::read(p)).collect(),
        Operation::ReadWatched => watched::read(&run.watched),
        Operation::ReachHiddenGit | Operation::ReachHiddenGitAsStage => {
            run.git.iter().flat_map(|git| &git.hidden).flat_map(|path| shielded::looked_for(path)).collect()
        }
        Operation::WorkInGit => run.git.iter().flat_map(shielded::worked_in).collect(),
        Operation::ChangeOwnFile => change_own_file(run),
        Operation::EnterHome => {
            run.home.iter().map(|home| io_outcome(enter(home).and_then(|()| std::fs::read_dir(".")))).collect()
        }
        Operation::Accounts => accounts(run),
        Operation::CreateAsStage => {
            // An ordinary user's stage could make a name in little else than its HOME.
            let home = run.home.iter().filter(|home| !run.writable.iter().any(|place| home.starts_with(place)));
            run.protected.iter().chain(home).filter(|tree| tree.is_dir()).map(|tree| made_in(tree)).collect()
        }
    }
}

/// The protected trees and every mount beneath one that a path leads to, less the writable set.
fn protected_places(run: &Surroundings) -> Vec<PathBuf> {
    // What /proc takes in is no file.
    let exempt = |path: &Path| path.starts_with("/proc") || run.writable.iter().any(|w| path.starts_with(w));
    let mut places = run.protected.clone();
    if let Ok(mounts) = mounts_seen(run) {
        for mount in mounts {
            let below = run.protected.iter().any(|tree| mount.point.starts_with(tree) && mount.point != *tree);
            // A mount on a file cannot have a file created in it; one that the command may not search answers for itself.
            let hidden = run.masked.iter().chain(&run.shielded).any(|hidden| *hidden == mount.point);
            if below && !exempt(&mount.point) && mount.point.is_dir() && !hidden {
                places.push(mount.point.clone());
            }
        }
    }
    places
}

fn each_tree(run: &Surroundings, tried: fn(&Path) -> Vec<String>) -> Vec<String> {
    run.protected.iter().filter(|tree| tree.is_dir()).flat_map(|tree| tried(tree)).collect()
}

/// What the name of all that a probe makes begins with.
pub const SCRATCH: &str = ".preflight-";

/// A name that nobody else gives.
pub fn scratch_name() -> String {
    format!("{SCRATCH}{}", std::process::id())
}

fn create_in(places: &[PathBuf]) -> Vec<String> {
    places
        .iter()
        .map(|place| match access(place, AccessFlags::X_OK) {
            _ if place.is_file() => mode_set_again(place),
            // The kernel looks at the directory's mode before it looks at the mount.
            Err(Errno::EACCES) => "not to be searched".into(),
            _ => created(&place.join(scratch_name())),
        })
        .collect()
}

/// What is asked of a protected file: its mode, as it is, again. The kernel looks at the mount before the owner.
fn mode_set_again(path: &Path) -> String {
    let again = lstat(path).and_then(|stat| {
        let mode = Mode::from_bits_truncate(stat.st_mode);
        fchmodat(AT_FDCWD, path, mode, FchmodatFlags::FollowSymlink)
    });
    errno_of(again)
}

fn created(path: &Path) -> String {
    match open(path, OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::S_IRWXU) {
        Ok(_) => {
            let removed = if unlink(path).is_ok() { "" } else { " and left there" };
            format!("{}: created{removed}", path.display())
        }
        Err(Errno::EROFS) => "EROFS".into(),
        Err(errno) => format!("{}: {errno:?}", path.display()),
    }
}

pub(super) fn made_and_removed(place: &Path) -> String {
    let path = place.join(scratch_name());
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    errno_of(open(&path, flags, Mode::S_IRWXU).and_then(|_| unlink(&path)))
}

fn made_in(tree: &Path) -> String {
    let path = tree.join(scratch_name());
    match mkdir(&path, Mode::empty()) {
        Ok(()) => format!(
            "{}: created{}",
            path.display(),
            if std::fs::remove_dir(&path).is_ok() { "" } else { " and left there" }
        ),
        Err(errno) => name_of(errno),
    }
}

pub(super) fn by_alias(path: &Path) -> PathBuf {
    Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap_or(path))
}

fn create_by_alias(run: &Surroundings) -> Vec<String> {
    let Some(tree) = run.protected.first() else {
        return Vec::new();
    };
    let mut seen = vec![created(&by_alias(tree).join(scratch_name()))];
    seen.extend(create_in(&other_names(run)));
    if let Some(place) = run.writable.iter().find(|w| w.is_dir()) {
        let link = place.join(scratch_name());
        // Whether the place can be written is another probe's matter.
        if std::os::unix::fs::symlink(tree, &link).is_ok() {
            seen.push(created(&link.join("file")));
            if let Err(error) = std::fs::remove_file(&link) {
                seen.push(format!("{}: left there, {:?}", link.display(), of_io(&error)));
            }
        }
    }
    seen
}

/// Mounts that show a protected tree, or a part of one, under another name.
fn other_names(run: &Surroundings) -> Vec<PathBuf> {
    let Ok(mounts) = mounts_seen(run) else {
        return Vec::new();
    };
    let mut names = mountinfo::aliases(&mounts.iter().collect::<Vec<_>>(), &run.protected);
    let exempt = |name: &PathBuf| run.writable.iter().chain(&run.masked).any(|place| name.starts_with(place));
    names.retain(|name| name.is_dir() && !exempt(name));
    names
}

fn listed(tree: &Path) -> String {
    match std::fs::read_dir(tree).map_err(|e| of_io(&e)) {
        Ok(_) => "ok".into(),
        // Closed by its own mode, as /root is; a mode that is open to all says that something else closes it.
        Err(Errno::EACCES) if lstat(tree).is_ok_and(|s| s.st_mode & 0o005 != 0o005) => "closed by its mode".into(),
        Err(errno) => format!("{}: {errno:?}", tree.display()),
    }
}

fn written(place: &Path) -> String {
    if !place.is_dir() {
        return errno_of(open(place, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()));
    }
    let (directory, moved) = (place.join(scratch_name()), place.join(format!("{}-moved", scratch_name())));
    let tried = mkdir(&directory, Mode::S_IRWXU).and_then(|()| {
        let file = directory.join("file");
        let outcome = std::fs::write(&file, "x")
            .and_then(|()| std::fs::remove_file(&file))
            .and_then(|()| std::fs::rename(&directory, &moved))
            .and_then(|()| std::fs::remove_dir(&moved));
        outcome.map_err(|e| of_io(&e))
    });
    match tried {
        Ok(()) => "ok".into(),
        Err(errno) => format!("{}: {errno:?}", place.display()),
    }
}

fn change_own_file(run: &Surroundings) -> Vec<String> {
    // Where the trees are open nothing is named, and what everyone may write will do.
    let everyones = ["/tmp", "/dev/shm"].map(PathBuf::from);
    let shared = everyones.iter().filter(|place| access(*place, AccessFlags::W_OK).is_ok());
    let places = run.writable.iter().filter(|w| w.is_dir()).chain(&run.home).chain(shared);
    let change = |place: &PathBuf| {
        let path = place.join(scratch_name());
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let changed = open(&path, flags, Mode::S_IRUSR).and_then(|file| {
            let outcome = fchmod(&file, Mode::S_IRWXU);
            unlink(&path).and(outcome)
        });
        errno_of(changed)
    };
    places.take(1).map(change).collect()
}

fn enter(home: &Path) -> std::io::Result<()> {
    chdir(home).map_err(std::io::Error::from)
}

pub(super) fn opened(path: &Path) -> String {
    // A fifo without a writer would hold up everything.
    errno_of(open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty()))
}

/// Mounts an in-memory file system.
pub fn mount_tmpfs(onto: &Path) -> Result<(), Errno> {
    mount(Some("tmpfs"), onto, Some("tmpfs"), MsFlags::empty(), None::<&str>)
}

/// The mounts that a path leads to. Nothing that the probes try changes them, unless it fails.
fn mounts_seen(run: &Surroundings) -> Result<&[mountinfo::Mount], &str> {
    let look = || {
        let mounts = mounts::read_mountinfo().map_err(|error| error.to_string())?;
        Ok(mountinfo::reachable(&mounts).into_iter().cloned().collect())
    };
    run.mounts.get_or_init(look).as_deref().map_err(String::as_str)
}

fn mount_faults(run: &Surroundings, fault: impl Fn(&mountinfo::Mount) -> bool, sound: &str) -> Vec<String> {
    let mounts = match mounts_seen(run) {
        Ok(mounts) => mounts,
        Err(error) => return vec![error.to_owned()],
    };
    let faulty = mounts.iter().find(|m| fault(m));
    vec![faulty.map_or_else(|| sound.into(), |m| format!("{}: not {sound}", m.point.display()))]
}

fn mode_of(path: &Path) -> String {
    let stat = match lstat(path) {
        Ok(stat) => stat,
        Err(errno) => return name_of(errno),
    };
    let mode = stat.st_mode & 0o777;
    if stat.st_uid != geteuid().as_raw() {
        return format!("mode {mode:03o} uid {}", stat.st_uid);
    }
    // Its owner could open it to itself, were it not for the mount.
    match fchmodat(AT_FDCWD, path, Mode::S_IRWXU, FchmodatFlags::FollowSymlink) {
        Err(Errno::EROFS) => format!("mode {mode:03o} for good"),
        outcome => format!("mode {mode:03o}, to be changed: {}", errno_of(outcome)),
    }
}

fn accounts(run: &Surroundings) -> Vec<String> {
    run.overlays
        .iter()
        .map(|(path, content)| match std::fs::read(path) {
            Ok(seen) if seen == *content => "as planned".into(),
            Ok(_) => format!("{}: the image's own", path.display()),
            // Not readable for the command: then its size must be the planned one's.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => match lstat(path) {
                Ok(stat) if stat.st_size as usize == content.len() => "as planned".into(),
                Ok(_) => format!("{}: the image's own", path.display()),
                Err(errno) => name_of(errno),
            },
            Err(e) => format!("{}: {e}", path.display()),
        })
        .collect()
}
