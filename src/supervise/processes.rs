//! The process table, from /proc/PID/stat (proc_pid_stat(5)) and the owner of /proc/PID.

use crate::procfs;
use nix::unistd::{Pid, Uid};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// Its parent.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// Its effective uid.
    pub uid: Uid,
    /// Whether all its threads have ended and only its status is left.
    pub ended: bool,
    /// Whether it is stopped by a signal.
    pub stopped: bool,
}

/// Every process that /proc shows. One that ends meanwhile may be missing, as may one that starts.
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| one(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))).collect()
}

/// The process of this id, if /proc shows one.
pub fn one(pid: Pid) -> Option<Process> {
    let directory = format!("/proc/{pid}");
    let uid = Uid::from_raw(std::fs::metadata(&directory).ok()?.uid());
    parse(pid, uid, &procfs::whole(&format!("{directory}/stat")).ok()?)
}

/// The fields after the name, which ends with the line's last parenthesis.
fn parse(pid: Pid, uid: Uid, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
    let state = *fields.first()?;
    Some(Process {
        pid,
        parent: Pid::from_raw(number(4)?),
        group: Pid::from_raw(number(5)?),
        session: Pid::from_raw(number(6)?),
        uid,
        // A process whose first thread has ended shows as a zombie while others of it still run.
        ended: matches!(state, "Z" | "X") && number(20)? <= 1,
        stopped: state == "T",
    })
}

/// Those of `processes` that descend from `root`, without what descends from any of `spared`, or is one of them.
pub fn descendants(processes: &[Process], root: Pid, spared: &[Pid]) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<&Process>> = HashMap::new();
    for process in processes.iter().filter(|process| !spared.contains(&process.pid)) {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = HashSet::new();
    let mut pending = vec![root];
    let mut descendants = Vec::new();
    while let Some(parent) = pending.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if found.insert(child.pid) {
                pending.push(child.pid);
                descendants.push(*child);
            }
        }
    }
    descendants
}

/// The children of a process that has one thread. The kernel lists them (proc_pid_children(5), CONFIG_PROC_CHILDREN); where
/// it doesn't, the whole table is read.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    match std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        Ok(list) => list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect(),
        Err(_) => all().into_iter().filter(|process| process.parent == parent).map(|process| process.pid).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        let pid = Pid::from_raw(pid);
        let parent = Pid::from_raw(parent);
        Process { pid, parent, group: pid, session: pid, uid: Uid::from_raw(7), ended: false, stopped: false }
    }

    #[test]
    fn a_name_cannot_pass_for_fields() {
        let stat = "41 (a) R 1 2 3 (b)) Z 40 39 38 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100";
        let parsed = parse(Pid::from_raw(41), Uid::from_raw(7), stat).unwrap();
        assert_eq!((parsed.parent.as_raw(), parsed.group.as_raw(), parsed.session.as_raw()), (40, 39, 38));
        assert!(parsed.ended);
        let living = stat.replace(" 20 0 1 ", " 20 0 2 ");
        assert!(!parse(Pid::from_raw(41), Uid::from_raw(7), &living).unwrap().ended, "another thread lives");
    }

    #[test]
    fn what_is_spared_is_spared_with_all_below() {
        let table = [process(2, 1), process(3, 2), process(4, 1), process(5, 4), process(6, 3), process(9, 8)];
        let of = |spared: &[i32]| {
            let spared: Vec<Pid> = spared.iter().copied().map(Pid::from_raw).collect();
            let mut found: Vec<i32> =
                descendants(&table, Pid::from_raw(1), &spared).iter().map(|p| p.pid.as_raw()).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(of(&[]), [2, 3, 4, 5, 6]);
        assert_eq!(of(&[2]), [4, 5]);
        assert_eq!(of(&[3, 4]), [2]);
    }
}
