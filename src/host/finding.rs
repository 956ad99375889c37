//! What came of trying, and how a child that tries tells of it.

use crate::procfs;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{pipe2, write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// It works, or why it does not: the call and its errno.
pub type Finding = Result<(), String>;

/// The cause where nothing was tried, as nothing needed it.
pub const NOT_TRIED: &str = "not tried";

/// What a child tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Tried {
    SetPcap,
    NoNewPrivs,
    LandlockFiles,
    BindToLo,
    Notification,
    AddFd,
    ReadsCallers,
    UserNamespaces,
    MountSetattr,
    FirewallInside,
}

/// What a child has told.
#[derive(Debug)]
pub(super) struct Findings {
    told: BTreeMap<Tried, Finding>,
    /// Why it has told no more.
    otherwise: String,
}

impl Findings {
    pub(super) fn of(&self, tried: Tried) -> Finding {
        self.told.get(&tried).cloned().unwrap_or_else(|| Err(self.otherwise.clone()))
    }
}

/// The way by which a child, and its own children, tell.
pub(super) struct Teller(OwnedFd);

impl Teller {
    /// Tells, in one write(2) that no other one comes between (pipe(7), PIPE_BUF). What cannot be told counts as not found.
    pub(super) fn tell(&self, tried: Tried, found: Finding) {
        let line = serde_json::to_vec(&(tried, found)).map(|mut line| {
            line.push(b'\n');
            line
        });
        if line.is_ok_and(|line| write(&self.0, &line) == Ok(line.len())) {
            return;
        }
        sys::exit_now(1)
    }
}

impl AsFd for Teller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Has a child try, that ends with it. A child that cannot be had is a finding as well: nothing works then.
pub(super) fn in_child(work: impl FnOnce(&Teller)) -> Findings {
    match forked(work) {
        Ok(findings) => findings,
        Err(cause) => Findings { told: BTreeMap::new(), otherwise: cause },
    }
}

fn forked(work: impl FnOnce(&Teller)) -> Result<Findings, String> {
    let failed = |call: &'static str| move |errno: Errno| format!("{call}: {errno}");
    proc()?;
    let (hear, tell) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            drop(hear);
            let teller = Teller(tell);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                if set_pdeathsig(Signal::SIGKILL).is_ok() {
                    work(&teller);
                }
            }));
            sys::exit_now(i32::from(ended.is_err()));
        }
        Fork::Parent(child) => {
            drop(tell);
            let mut text = String::new();
            // It ends when the last of those who could tell has.
            let read = File::from(hear).read_to_string(&mut text);
            waitpid(child, None).map_err(failed("waitpid"))?;
            read.map_err(|error| format!("read: {error}"))?;
            let told = text.lines().filter_map(|line| serde_json::from_str::<(Tried, Finding)>(line).ok()).collect();
            Ok(Findings { told, otherwise: "the child that tried ended early".into() })
        }
    }
}

/// Whether /proc is there to be read.
pub(super) fn proc() -> Finding {
    procfs::whole("/proc/self/stat").map(drop).map_err(|error| format!("read /proc/self/stat: {error}"))
}
