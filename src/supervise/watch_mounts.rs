//! The sandbox's mounts while the command runs: the kernel says that its namespace's table has changed (proc_pid_mountinfo(5)),
//! and the table is held against the one that was installed.
//!
//! The command can mount nothing, and nothing propagates in from outside. What can change the table is root with the
//! namespace entered; and whoever removes or replaces, outside, a file on which something is mounted here: the kernel then
//! takes the mount away (as when a container of the host's ends, of whose mounts there are copies here).

use crate::channel::{Channel, ChannelError};
use crate::install::mountinfo::{self, Mount};
use crate::install::mounts::{self, MountError, MountPlan};
use crate::ledger::escape;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The table cannot be looked at, or is not as planned from the start.
#[derive(Debug, thiserror::Error)]
pub enum MountWatchError {
    /// It cannot be read.
    #[error("the sandbox's mountinfo: {0}")]
    Read(#[from] io::Error),
    /// A line has not the form of proc(5).
    #[error("the sandbox's mountinfo: a line has an unknown form")]
    Form,
    /// It did not come.
    #[error("the sandbox's mountinfo: {0}")]
    Channel(#[from] ChannelError),
    /// What it shows at first is not the plan.
    #[error(transparent)]
    NotAsPlanned(#[from] MountError),
}

/// Gives the table of the calling process's mount namespace to the supervisor, who may not open that of another process
/// where it has no privilege.
pub fn give_table(to: Channel) -> Result<(), MountWatchError> {
    let table = File::open("/proc/self/mountinfo")?;
    Ok(to.send_with(&(), &[table.as_fd()])?)
}

/// File systems that add and drop mounts of their own, below one of theirs and with its options, as paths are walked.
const WITH_SUBMOUNTS: [&str; 6] = ["nfs", "nfs4", "cifs", "smb3", "afs", "virtiofs"];

/// The table, and what it has shown.
#[derive(Debug)]
pub struct MountWatch {
    table: File,
    plan: MountPlan,
    known: Vec<Mount>,
    /// The mounts that keep the command from what is below them, by id.
    placed: BTreeMap<u32, PathBuf>,
    armed: bool,
    uncovered: Option<Uncovered>,
}

/// Paths at which nothing of the run's is mounted any more, and may be mounted again.
#[derive(Debug)]
struct Uncovered {
    paths: BTreeSet<PathBuf>,
    since: Instant,
    /// When the stage is asked next; `None` while its answer is awaited.
    next: Option<Instant>,
    /// Why it could not do it so far.
    cause: String,
}

/// How long something may stay uncovered: who replaces a file may first remove it.
const PATIENCE: Duration = Duration::from_millis(800);
/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// What a look at the table has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing that is to be acted on.
    AsBefore,
    /// Someone outside has replaced what was covered at these paths: the stage has to mount it again.
    Cover(Vec<PathBuf>),
    /// It has, and all is as planned.
    Restored(Vec<PathBuf>),
    /// What has changed for the worse, in one line.
    Altered(String),
}

impl MountWatch {
    /// Takes the table that was given by [`give_table`], and holds what it shows against the plan: what happened between the
    /// plan's own comparison and this one is not taken for installed.
    pub fn begin(from: &Channel, plan: MountPlan) -> Result<MountWatch, MountWatchError> {
        let ((), descriptors) = from.receive_with()?;
        let table = descriptors.into_iter().next().ok_or(ChannelError::Closed)?;
        let mut watch = MountWatch {
            table: table.into(),
            plan,
            known: Vec::new(),
            placed: BTreeMap::new(),
            armed: false,
            uncovered: None,
        };
        watch.known = watch.read()?;
        mounts::compare(&watch.plan, &watch.known)?;
        watch.placed = placed(&watch.plan, &watch.known);
        Ok(watch)
    }

    /// From here on every change counts, those included that the probes have left behind, who mount a file system of their own
    /// while they run. What is seen by now.
    pub fn arm(&mut self) -> Result<Seen, MountWatchError> {
        self.armed = true;
        self.look()
    }

    /// The table, once it is armed: it has POLLPRI and POLLERR, once, when it has changed.
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.armed.then(|| self.table.as_fd())
    }

    /// Reads the table anew.
    pub fn look(&mut self) -> Result<Seen, MountWatchError> {
        let now = self.read()?;
        let to_come = |path: &Path| self.uncovered.as_ref().is_some_and(|uncovered| uncovered.paths.contains(path));
        let found = difference(&self.known, &now, to_come).map(|(what, path)| told(what, path));
        let reachable = mountinfo::reachable(&now);
        let against_plan = || mounts::compare_options(&self.plan, &reachable).err().map(|fault| fault.to_string());
        let found = found.or_else(against_plan);
        let present: BTreeSet<u32> = now.iter().map(|mount| mount.id).collect();
        let (placed, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.placed).into_iter().partition(|(id, _)| present.contains(id));
        self.placed = placed;
        self.known = now;
        Ok(found.map_or_else(|| self.miss(gone.into_values().collect()), Seen::Altered))
    }

    /// Nothing is mounted at these paths any more.
    fn miss(&mut self, gone: Vec<PathBuf>) -> Seen {
        if let Some(path) = gone.iter().find(|path| !self.plan.can_cover_again(path)) {
            return Seen::Altered(told(GONE, path));
        }
        if gone.is_empty() {
            return Seen::AsBefore;
        }
        let now = Instant::now();
        let fresh = || Uncovered { paths: BTreeSet::new(), since: now, next: Some(now), cause: String::new() };
        self.uncovered.get_or_insert_with(fresh).paths.extend(gone);
        self.ask()
    }

    /// When [`MountWatch::ask`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.uncovered.as_ref().map(|uncovered| uncovered.next.unwrap_or(uncovered.since + PATIENCE))
    }

    /// Whether the stage is to be asked now, or is asked in vain.
    pub fn ask(&mut self) -> Seen {
        let Some(uncovered) = &mut self.uncovered else { return Seen::AsBefore };
        let now = Instant::now();
        if now >= uncovered.since + PATIENCE {
            let paths: Vec<_> =
                uncovered.paths.iter().map(|path| escape::printable(&path.to_string_lossy()).into_owned()).collect();
            return Seen::Altered(format!("{GONE} {}: {}", paths.join(", "), uncovered.cause));
        }
        match uncovered.next {
            Some(due) if due <= now => {
                uncovered.next = None;
                Seen::Cover(uncovered.paths.iter().cloned().collect())
            }
            _ => Seen::AsBefore,
        }
    }

    /// The stage has answered: the table is held against the whole plan.
    pub fn answered(&mut self, answer: Result<(), String>) -> Result<Seen, MountWatchError> {
        let looked = self.look()?;
        let Some(uncovered) = &mut self.uncovered else { return Ok(looked) };
        if let Seen::Altered(_) = looked {
            return Ok(looked);
        }
        // Of what has been replaced once more meanwhile, nothing is mounted again.
        let reachable = mountinfo::reachable(&self.known);
        let whole =
            answer.and_then(|()| mounts::compare_guards(&self.plan, &reachable).map_err(|fault| fault.to_string()));
        match whole {
            Ok(()) => {
                let restored = std::mem::take(&mut uncovered.paths).into_iter().collect();
                self.uncovered = None;
                self.placed = placed(&self.plan, &self.known);
                Ok(Seen::Restored(restored))
            }
            Err(cause) => {
                uncovered.cause = cause;
                uncovered.next = Some(Instant::now() + PAUSE);
                Ok(Seen::AsBefore)
            }
        }
    }

    fn read(&mut self) -> Result<Vec<Mount>, MountWatchError> {
        let mut content = Vec::new();
        self.table.seek(SeekFrom::Start(0))?;
        self.table.read_to_end(&mut content)?;
        mountinfo::parse(&content).ok_or(MountWatchError::Form)
    }
}

fn placed(plan: &MountPlan, mounts: &[Mount]) -> BTreeMap<u32, PathBuf> {
    let points = mounts::guarded(plan);
    let reachable = mountinfo::reachable(mounts);
    reachable.iter().filter(|m| points.contains(&m.point)).map(|m| (m.id, m.point.clone())).collect()
}

const GONE: &str = "nothing of the run's is mounted any more at";

fn told(what: &str, path: &Path) -> String {
    format!("{what} {}", escape::printable(&path.to_string_lossy()))
}

/// The first difference that nothing explains: what, and where. `to_come` says where something is to be mounted.
///
/// A mount that is gone is none unless it kept the command from something, which is for [`MountWatch::look`] to say: what it
/// has covered is no more writable than before, as the comparison with the plan says. So goes a writable place that another
/// run of the user's has made and removes. Where a mount is attached, and which directory it shows, changes with a
/// rename outside.
fn difference<'a>(
    before: &'a [Mount],
    now: &'a [Mount],
    to_come: impl Fn(&Path) -> bool,
) -> Option<(&'static str, &'a Path)> {
    let known: BTreeMap<u32, &Mount> = before.iter().map(|mount| (mount.id, mount)).collect();
    let present: BTreeMap<u32, &Mount> = now.iter().map(|mount| (mount.id, mount)).collect();
    now.iter().find_map(|mount| {
        // A number that is free again is the next one's.
        let before = known.get(&mount.id).filter(|was| (&was.device, &was.fs_type) == (&mount.device, &mount.fs_type));
        let what = match before {
            None if is_submount(mount, &present) => return None,
            None if to_come(&mount.point) && mount.read_only() => return None,
            None => "something was mounted at",
            Some(was) if was.read_only() && !mount.read_only() => "a mount was made writable at",
            Some(was) if was.parent != mount.parent => "a mount was moved to",
            Some(was) if (&was.options, &was.propagation) != (&mount.options, &mount.propagation) => {
                "a mount was changed at"
            }
            Some(_) => return None,
        };
        Some((what, mount.point.as_path()))
    })
}

fn is_submount(mount: &Mount, present: &BTreeMap<u32, &Mount>) -> bool {
    let like = |parent: &&Mount| parent.fs_type == mount.fs_type && parent.options == mount.options;
    WITH_SUBMOUNTS.contains(&mount.fs_type.as_str())
        && present.get(&mount.parent).is_some_and(|parent| like(parent) && parent.point != mount.point)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "1 0 0:1 / / rw - ext4 d rw\n\
        2 1 0:1 /usr /usr ro - ext4 d rw\n\
        3 1 0:2 / /var/lib/c/merged ro - overlay o rw\n\
        4 1 0:3 /m /run/secret ro - tmpfs t rw\n\
        5 1 0:4 / /work rw - nfs4 s rw\n";

    fn table(text: &str) -> Vec<Mount> {
        mountinfo::parse(text.as_bytes()).unwrap()
    }

    fn said(now: &str) -> Option<String> {
        let (before, now) = (table(BEFORE), table(now));
        difference(&before, &now, |path| path == "/run/secret").map(|(what, path)| told(what, path))
    }

    #[test]
    fn each_change_for_the_worse_is_named() {
        let with = |from: &str, to: &str| {
            assert!(BEFORE.contains(from));
            said(&BEFORE.replace(from, to)).unwrap_or_default()
        };
        let more = |line: &str| said(&format!("{BEFORE}{line}\n")).unwrap_or_default();
        assert_eq!(more("9 2 0:9 / /usr/x rw - tmpfs t rw"), "something was mounted at /usr/x");
        assert_eq!(more("9 5 0:9 / /work/x rw - tmpfs t rw"), "something was mounted at /work/x");
        assert_eq!(more("9 5 0:9 / /work rw - nfs4 s rw"), "something was mounted at /work");
        assert_eq!(more("9 2 0:9 / /usr/x ro - nfs4 s rw"), "something was mounted at /usr/x");
        assert_eq!(with("/usr /usr ro", "/usr /usr rw"), "a mount was made writable at /usr");
        assert_eq!(with("0:1 /usr", "0:9 /usr"), "something was mounted at /usr");
        assert_eq!(more("9 1 0:9 / /run/secret rw - tmpfs t rw"), "something was mounted at /run/secret");
        assert_eq!(with("2 1 0:1", "2 3 0:1"), "a mount was moved to /usr");
        assert_eq!(with("/ / rw -", "/ / rw shared:1 -"), "a mount was changed at /");
    }

    #[test]
    fn what_happens_outside_by_itself_is_no_difference() {
        assert_eq!(said(BEFORE), None);
        let container = BEFORE.lines().nth(2).unwrap().to_owned() + "\n";
        assert_eq!(said(&BEFORE.replace(&container, "")), None, "a copy of another container's mount");
        assert_eq!(said(&BEFORE.replace("/var/lib/c/merged", "/var/lib/d/merged")), None, "a rename");
        let covered_again = "9 1 0:9 / /run/secret ro - tmpfs t rw";
        assert_eq!(said(&format!("{BEFORE}{covered_again}\n")), None, "what the stage was asked for");
        assert_eq!(said(&BEFORE.replace("0:3 /m", "0:9 /m")), None, "the same, under the number of what is gone");
        assert_eq!(said(&format!("{BEFORE}9 5 0:9 / /work/sub rw - nfs4 s rw\n")), None, "a submount");
    }
}
