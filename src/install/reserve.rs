//! Numbers that belong to one run at a time. A run holds an abstract unix socket of its network namespace for each: the
//! name goes with its last holder, so a run that was killed leaves nothing to clean.

use super::account::{AccountError, Databases, FIRST_UID, LAST_UID};
use super::firewall::{self, FirewallError};
use super::names;
pub use super::names::Name as Reservation;
use crate::procfs;
use crate::sys;
use crate::sys::capability::NET_ADMIN;
use nix::errno::Errno;
use nix::unistd::{Gid, getgroups, setgroups};
use std::collections::BTreeSet;

/// The first uid given to processes of ours, in a range of its own so that it is never the command's.
const FIRST_OWN_UID: u32 = 11001;
const LAST_OWN_UID: u32 = 11999;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// A system call.
    #[error("{call} to reserve {name}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// The name.
        name: String,
        /// Its errno.
        errno: Errno,
    },
    /// Another run has the uid.
    #[error("uid {uid} is that of another run's command; accepted: a user without a run")]
    UidIsTaken {
        /// The uid.
        uid: u32,
    },
    /// No number is free.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The tables of earlier runs could not be looked at.
    #[error(transparent)]
    Firewall(#[from] FirewallError),
}

/// Takes a name; `None` when another run holds it.
fn take(name: &str) -> Result<Option<Reservation>, ReserveError> {
    names::take(name).map_err(|(call, errno)| ReserveError::Call { call, name: name.into(), errno })
}

fn run_name(run: &str) -> String {
    format!("ringfence/run/{run}")
}

/// Marks a run as living; `None` if it is marked already.
pub fn run(run: &str) -> Result<Option<Reservation>, ReserveError> {
    take(&run_name(run))
}

fn uid_name(uid: u32) -> String {
    format!("ringfence/uid/{uid}")
}

/// Marks a tree as one whose owner this run changes, by its device and inode number; `None` if another run has it.
pub fn tree(device: u64, inode: u64) -> Result<Option<Reservation>, ReserveError> {
    take(&format!("ringfence/tree/{device}:{inode}"))
}

/// Takes the uid that the caller has named: the wall judges by uid, so that of two runs with one each would use the
/// other's proxy.
pub fn named_uid(uid: u32) -> Result<Reservation, ReserveError> {
    take(&uid_name(uid))?.ok_or(ReserveError::UidIsTaken { uid })
}

/// The uids that are a run's alone.
#[derive(Debug, Default)]
pub struct Numbers {
    /// The command's, of a dedicated account.
    pub command: Option<u32>,
    /// That of our own unprivileged processes: all of the proxy's, the observer's real one.
    pub own: u32,
    /// What holds them.
    pub held: Vec<Reservation>,
}

/// Numbers that are no run's to take. Those of processes are read when one is asked about: reading the table is what a run's
/// start costs most on a machine with many processes.
#[derive(Debug, Default)]
pub struct Busy {
    walls: BTreeSet<u32>,
    processes: Option<BTreeSet<u32>>,
}

impl Busy {
    /// Whether the number is that of a wall which must stay, of a process, or marked by another run.
    pub fn contains(&mut self, number: u32) -> bool {
        self.walls.contains(&number) || self.processes.get_or_insert_with(taken_by_others).contains(&number)
    }

    /// Whether that is known of it without a look at the processes.
    fn is_known(&self, number: u32) -> bool {
        self.walls.contains(&number) || self.processes.as_ref().is_some_and(|taken| taken.contains(&number))
    }

    /// Reads the processes anew.
    fn look(&mut self) {
        self.processes = Some(taken_by_others());
    }
}

/// Takes the numbers that a run wants: known to no database, without a process, and not in use by another run. The first that
/// may be free are marked, then the processes are looked at: so one look does for both what others had before and what they
/// have taken since.
pub fn numbers(databases: &Databases, busy: &mut Busy, command: bool) -> Result<Numbers, ReserveError> {
    loop {
        let mut numbers = Numbers::default();
        if command {
            numbers.command = Some(first_free(FIRST_UID..=LAST_UID, databases, busy, &mut numbers.held)?);
        }
        numbers.own = first_free(FIRST_OWN_UID..=LAST_OWN_UID, databases, busy, &mut numbers.held)?;
        let chosen: Vec<u32> = numbers.command.into_iter().chain([numbers.own]).collect();
        let before = mark(&chosen)?;
        busy.look();
        if !chosen.iter().any(|number| busy.contains(*number)) {
            return Ok(numbers);
        }
        before.map_or(Ok(()), |before| setgroups(&before)).map_err(failed("setgroups", &chosen))?;
    }
}

fn first_free(
    mut range: std::ops::RangeInclusive<u32>,
    databases: &Databases,
    busy: &Busy,
    held: &mut Vec<Reservation>,
) -> Result<u32, ReserveError> {
    let free = |uid: &u32| !busy.is_known(*uid) && !databases.knows_number(*uid);
    for uid in range.by_ref().filter(free) {
        if let Some(reservation) = take(&uid_name(uid))? {
            held.push(reservation);
            return Ok(uid);
        }
    }
    Err(AccountError::Exhausted.into())
}

/// Marks numbers as taken for runs in other network namespaces, which do not see the abstract names: as supplementary
/// groups of this process and of all it forks, which the process table shows to all who share it. The command has none of
/// its groups. Returns the groups that there were before; `None` where they could not be changed.
///
/// Who looks at the table after that: of two that set one mark at once at least one sees the other's.
fn mark(numbers: &[u32]) -> Result<Option<Vec<Gid>>, ReserveError> {
    let before = getgroups().map_err(failed("getgroups", numbers))?;
    let marked: Vec<Gid> = before.iter().copied().chain(numbers.iter().copied().map(Gid::from_raw)).collect();
    match setgroups(&marked) {
        Ok(()) => Ok(Some(before)),
        // Who may not take a group may not become the command's user either; the plan says so.
        Err(Errno::EPERM) => Ok(None),
        Err(errno) => Err(failed("setgroups", numbers)(errno)),
    }
}

fn failed(call: &'static str, numbers: &[u32]) -> impl FnOnce(Errno) -> ReserveError {
    move |errno| ReserveError::Call { call, name: format!("gids {numbers:?}"), errno }
}

/// The uids and supplementary groups of every process but this one: those that own it, by any of its four uids, and the numbers
/// that other runs have marked.
fn taken_by_others() -> BTreeSet<u32> {
    let own = std::process::id();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != own);
    let mut taken = BTreeSet::new();
    for pid in pids {
        // It may have ended since the listing.
        let status = procfs::whole(&format!("/proc/{pid}/status")).unwrap_or_default();
        if has_ended(&status) {
            continue;
        }
        let lines = status.lines().filter_map(|l| l.strip_prefix("Uid:").or_else(|| l.strip_prefix("Groups:")));
        taken.extend(lines.flat_map(str::split_whitespace).filter_map(|n| n.parse::<u32>().ok()));
    }
    taken
}

/// Whether a socket of the network namespace has this uid (proc_pid_net(5)). Those of a shadow's command have its account's, and
/// outlive the run with whom it leaves behind, who is root: the table of the firewall, which stays too, says that there may be
/// some. It takes the kernel 2 ms for each of these to go through its own, so nobody else asks.
pub fn has_socket(uid: u32) -> bool {
    const UID: usize = 7;
    let is_its = |line: &str| line.split_ascii_whitespace().nth(UID).is_some_and(|text| text.parse() == Ok(uid));
    SOCKETS.iter().any(|table| procfs::read(table).unwrap_or_default().lines().skip(1).any(is_its))
}

const SOCKETS: [&str; 6] =
    ["/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6", "/proc/net/raw", "/proc/net/raw6"];

/// Whether all of a process has ended, by its /proc/PID/status: where the init does not reap, it stays in the table for ever.
/// One whose first thread alone has ended shows as a zombie too (proc_pid_status(5)).
pub fn has_ended(status: &str) -> bool {
    let state = procfs::field(status, "State:");
    state.is_some_and(|state| state.starts_with(['Z', 'X'])) && procfs::field(status, "Threads:") == Some("1")
}

/// Removes the tables of runs that are over, and adds to `busy` the uids whose wall must stay: those of living runs, and
/// of dead ones that left processes behind.
///
/// Without NET_ADMIN none can be looked at, and none put up: whether that matters is the plan's to say.
pub fn clear_stale_walls(busy: &mut Busy) -> Result<(), ReserveError> {
    let effective =
        sys::capget().map_err(|errno| ReserveError::Call { call: "capget", name: "walls".into(), errno })?;
    if effective.effective >> NET_ADMIN & 1 == 0 {
        return Ok(());
    }
    let tables = match firewall::stale_tables() {
        // A kernel without netfilter's netlink has no walls either.
        Err(FirewallError::Socket { source, .. }) if source.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            return Ok(());
        }
        listed => listed?,
    };
    for table in tables {
        let over = run(&table.run)?.is_some();
        if over && !busy.contains(table.uid) && !has_socket(table.uid) {
            match firewall::remove_table(&table.name) {
                Ok(()) => continue,
                // Another run that starts now has found it as well.
                Err(error) if firewall::stale_tables()?.iter().all(|t| t.name != table.name) => drop(error),
                Err(error) => return Err(error.into()),
            }
        }
        busy.walls.insert(table.uid);
    }
    Ok(())
}
