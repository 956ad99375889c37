//! What a run could leave where its caller is: looked at before and after, from the supervisor, which stays in the caller's
//! namespaces.

use super::left::{Files, Mounts};
use crate::install::firewall;
use crate::ledger::record::Probe;
use crate::plan::Plan;
use crate::policy::Axis;
use crate::supervise::processes;
use crate::sys;
use crate::sys::capability::NET_ADMIN;
use nix::unistd::{Pid, getpid};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One thing that is compared.
#[derive(Debug)]
pub struct Trace {
    /// Its id, as a probe's.
    pub id: &'static str,
    /// What holds if nothing is left.
    pub title: &'static str,
    /// The axis that it stands under.
    pub axis: Axis,
    /// Why it is looked at.
    pub why: &'static str,
}

/// The class of what is compared, beside those of probes.
pub const CLASS: &str = "trace";
const NOTHING: &str = "nothing left";

/// What is compared, in the order in which it is printed.
pub const TRACES: [Trace; 7] = [
    Trace {
        id: "trace.taken-down",
        title: "Everything was taken down",
        axis: Axis::Privilege,
        why: "What could not be undone is still in force.",
    },
    Trace {
        id: "trace.processes",
        title: "No process is left",
        axis: Axis::Privilege,
        why: "A process that is left goes on with what it was given.",
    },
    Trace {
        id: "trace.keyring",
        title: "The session keyring is the caller's as before",
        axis: Axis::Privilege,
        why: "The caller's keys must be there afterwards.",
    },
    Trace {
        id: "trace.mounts",
        title: "No mount of the run's is left to the caller",
        axis: Axis::Filesystem,
        why: "The private mounts of the sandbox must not come out.",
    },
    Trace {
        id: "trace.files",
        title: "No file and no change of owner is left",
        axis: Axis::Filesystem,
        why: "The image is left as it was, the record aside.",
    },
    Trace {
        id: "trace.rules",
        title: "No firewall table is left",
        axis: Axis::Network,
        why: "A table that is left refuses what the next user of the uid does.",
    },
    Trace {
        id: "trace.sockets",
        title: "No abstract socket is left",
        axis: Axis::Network,
        why: "A name that is left keeps the next run from its number.",
    },
];

/// What was there before.
#[derive(Debug)]
pub struct Before {
    children: Vec<Pid>,
    keyring: String,
    mounts: Mounts,
    files: Files,
}

impl Before {
    /// Looks at everything; `plan` says where files could be left.
    pub fn look(plan: &Plan) -> Before {
        Before {
            children: processes::children_of(getpid()),
            keyring: keyring(),
            mounts: Mounts::look(plan),
            files: Files::look(plan),
        }
    }

    /// Looks again, and says for each of [`TRACES`] what is left of the run. `faults` are what could not be undone; `run` and
    /// `uid` are the run's and its command's, where that has one of its own, and `bait` is what the probes' bait is known by.
    pub fn compare(&self, faults: &[String], run: &str, bait: &str, uid: Option<u32>) -> Vec<Probe> {
        let seen = |trace: &Trace| match trace.id {
            "trace.taken-down" => faults.first().cloned(),
            "trace.processes" => self.process(uid),
            "trace.keyring" => Some(keyring()).filter(|now| *now != self.keyring),
            "trace.mounts" => self.mounts.left(),
            "trace.files" => self.files.left(bait),
            "trace.rules" => table(run),
            _ => socket(run),
        };
        let row = |trace: &Trace| {
            let seen = seen(trace);
            Probe {
                id: trace.id.to_owned(),
                axis: trace.axis,
                class: CLASS.to_owned(),
                expected: NOTHING.to_owned(),
                passed: seen.is_none(),
                seen: seen.unwrap_or_else(|| NOTHING.to_owned()),
            }
        };
        TRACES.iter().map(row).collect()
    }

    fn process(&self, uid: Option<u32>) -> Option<String> {
        let table = processes::all();
        let ours = processes::descendants(&table, getpid(), &self.children);
        let of_uid = table.iter().filter(|process| uid == Some(process.uid.as_raw()) && !process.ended);
        let left = ours.iter().chain(of_uid).next()?;
        Some(format!("process {} of uid {}", left.pid, left.uid))
    }
}

fn keyring() -> String {
    sys::session_keyring().map_or_else(|errno| format!("{errno:?}"), |serial| format!("keyring {serial}"))
}

/// What lies in a directory.
pub(super) fn names(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Without NET_ADMIN no table could be made in the caller's network namespace, and none can be listed.
fn table(run: &str) -> Option<String> {
    let has = sys::capget().is_ok_and(|sets| sets.effective >> NET_ADMIN & 1 == 1);
    if !has {
        return None;
    }
    match firewall::stale_tables() {
        Ok(tables) => tables.into_iter().find(|table| table.run == run).map(|table| format!("table {}", table.name)),
        // A kernel without netfilter's netlink has no tables.
        Err(firewall::FirewallError::Socket { source, .. }) if source.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

/// A name that carries the run's id, or a socket with a name of ours that this process holds.
fn socket(run: &str) -> Option<String> {
    let text = match std::fs::read_to_string("/proc/net/unix") {
        Ok(text) => text,
        Err(cause) => return Some(format!("/proc/net/unix: {cause}")),
    };
    let held: BTreeSet<String> = names(Path::new("/proc/self/fd"))
        .filter_map(|fd| Some(fd.read_link().ok()?.to_string_lossy().into_owned()))
        .collect();
    // Num, RefCount, Protocol, Flags, Type, St, Inode, Path.
    text.lines().find_map(|line| {
        let name = line.split_whitespace().nth(7)?.strip_prefix('@')?;
        let inode = line.split_whitespace().nth(6)?;
        let ours = ["ringfence/", "preflight/"].iter().any(|prefix| name.starts_with(prefix));
        let left = name.contains(run) || ours && held.contains(&format!("socket:[{inode}]"));
        left.then(|| format!("abstract socket {name}"))
    })
}
