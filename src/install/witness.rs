//! The start of the witness, which fanotify asks before what is watched is opened.

use super::InstallError;
use crate::channel::Channel;
use crate::observe::fanotify::{self, Sandbox, WitnessSpec};
use crate::stage::release_stdio;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::unistd::{Pid, getpid, setpgid};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Starts it for the sandbox of a stage that is in its namespaces, with the command's uid. It says when all is marked.
pub(super) fn start(tripwires: Vec<PathBuf>, uid: u32, stage: Pid) -> Result<(Pid, Channel), InstallError> {
    let failed = |call: &'static str| move |errno: Errno| InstallError::Call { call, errno };
    let number = |pid: Pid| pid.as_raw().unsigned_abs();
    let sandbox = Sandbox { uid, stage: number(stage), supervisor: number(getpid()) };
    let (ours, theirs) = Channel::pair()?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            // What lies further up the stack owns descriptors that are closed now, and must not run here.
            let lived = catch_unwind(AssertUnwindSafe(|| {
                // Out of the caller's process group: whoever is outside waits for this process, and it must not be stopped
                // with the command.
                let apart = setpgid(Pid::from_raw(0), Pid::from_raw(0)).and_then(|()| release_stdio());
                match apart.and_then(|()| sys::close_all_but(&[theirs.as_fd().as_raw_fd()])) {
                    Ok(()) => fanotify::live(WitnessSpec { tripwires, sandbox }, theirs),
                    Err(_) => 1,
                }
            }));
            sys::exit_now(lived.unwrap_or(1));
        }
        Fork::Parent(pid) => Ok((pid, ours)),
    }
}
