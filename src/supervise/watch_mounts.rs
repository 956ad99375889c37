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
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

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
const WITH_SUBMOUNTS: [&str; 5] = ["nfs", "nfs4", "cifs", "smb3", "afs"];

/// The table, and what it has shown.
#[derive(Debug)]
pub struct MountWatch {
    table: File,
    plan: MountPlan,
    known: Vec<Mount>,
    /// The mounts that keep the command from what is below them, by id.
    placed: BTreeMap<u32, PathBuf>,
    armed: bool,
}

impl MountWatch {
    /// Takes the table that was given by [`give_table`], and holds what it shows against the plan: what happened between the
    /// plan's own comparison and this one is not taken for installed.
    pub fn begin(from: &Channel, plan: MountPlan) -> Result<MountWatch, MountWatchError> {
        let ((), descriptors) = from.receive_with()?;
        let table = descriptors.into_iter().next().ok_or(ChannelError::Closed)?;
        let mut watch =
            MountWatch { table: table.into(), plan, known: Vec::new(), placed: BTreeMap::new(), armed: false };
        watch.known = watch.read()?;
        mounts::compare(&watch.plan, &watch.known)?;
        watch.placed = placed(&watch.plan, &watch.known);
        Ok(watch)
    }

    /// From here on every change counts, those included that the probes have left behind, who mount a file system of their own
    /// while they run. What has changed for the worse by now, in one line.
    pub fn arm(&mut self) -> Result<Option<String>, MountWatchError> {
        self.armed = true;
        self.look()
    }

    /// The table, once it is armed: it has POLLPRI and POLLERR, once, when it has changed.
    pub fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.armed.then(|| self.table.as_fd())
    }

    /// Reads the table anew; what has changed for the worse, in one line.
    pub fn look(&mut self) -> Result<Option<String>, MountWatchError> {
        let now = self.read()?;
        let found = difference(&self.known, &now, &self.placed).map(|(what, path)| {
            let path = path.to_string_lossy();
            format!("{what} {}", escape::printable(&path))
        });
        let reachable = mountinfo::reachable(&now);
        let against_plan = || mounts::compare_options(&self.plan, &reachable).err().map(|fault| fault.to_string());
        let found = found.or_else(against_plan);
        self.known = now;
        Ok(found)
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

/// The first difference that nothing explains: what, and where.
///
/// A mount that is gone is none unless it kept the command from something: what it has covered is no more writable than
/// before, as the comparison with the plan says. So goes a writable place that another run of the user's has made and
/// removes. Where a mount is attached, and which directory it shows, changes with a
/// rename outside.
fn difference<'a>(
    before: &'a [Mount],
    now: &'a [Mount],
    placed: &'a BTreeMap<u32, PathBuf>,
) -> Option<(&'static str, &'a Path)> {
    let known: BTreeMap<u32, &Mount> = before.iter().map(|mount| (mount.id, mount)).collect();
    let present: BTreeMap<u32, &Mount> = now.iter().map(|mount| (mount.id, mount)).collect();
    let changed = now.iter().find_map(|mount| {
        let what = match known.get(&mount.id) {
            None if is_submount(mount, &present) => return None,
            None => "something was mounted at",
            // A number that is free again is the next one's.
            Some(was) if (&was.device, &was.fs_type) != (&mount.device, &mount.fs_type) => "something was mounted at",
            Some(was) if was.read_only() && !mount.read_only() => "a mount was made writable at",
            Some(was) if was.parent != mount.parent => "a mount was moved to",
            Some(was) if (&was.options, &was.propagation) != (&mount.options, &mount.propagation) => {
                "a mount was changed at"
            }
            Some(_) => return None,
        };
        Some((what, mount.point.as_path()))
    });
    let gone = || {
        let gone = placed.iter().find(|(id, _)| !present.contains_key(id));
        gone.map(|(_, path)| ("nothing of the run's is mounted any more at", path.as_path()))
    };
    changed.or_else(gone)
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
        let placed = [(2, "/usr".into()), (4, "/run/secret".into())].into();
        let (before, now) = (table(BEFORE), table(now));
        difference(&before, &now, &placed).map(|(what, path)| format!("{what} {}", path.display()))
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
        assert_eq!(with("0:3 /m", "0:9 /m"), "something was mounted at /run/secret");
        assert_eq!(with("2 1 0:1", "2 3 0:1"), "a mount was moved to /usr");
        assert_eq!(with("/ / rw -", "/ / rw shared:1 -"), "a mount was changed at /");
        let last = BEFORE.lines().nth(3).unwrap().to_owned() + "\n";
        assert_eq!(with(&last, ""), "nothing of the run's is mounted any more at /run/secret");
    }

    #[test]
    fn what_happens_outside_by_itself_is_no_difference() {
        assert_eq!(said(BEFORE), None);
        let container = BEFORE.lines().nth(2).unwrap().to_owned() + "\n";
        assert_eq!(said(&BEFORE.replace(&container, "")), None, "a copy of another container's mount");
        assert_eq!(said(&BEFORE.replace("/var/lib/c/merged", "/var/lib/d/merged")), None, "a rename");
        assert_eq!(said(&format!("{BEFORE}9 5 0:9 / /work/sub rw - nfs4 s rw\n")), None, "a submount");
    }
}
