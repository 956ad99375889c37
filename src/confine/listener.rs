//! Loading the filter with its listener, and giving the listener away.
//!
//! From the load on, this process's notified calls wait for whoever has the listener, so it cannot send the listener away
//! itself: a peer that was forked before, and shares the table of descriptors, does (seccomp_unotify(2)).

use super::{ConfineError, failed, wanted};
use crate::observe::process::{Of, hand_over};
use crate::sys::notify::{close_number, fork_sharing_files, load_seccomp_with_listener, wait_for_peer};
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, pipe2, read, write};
use std::os::fd::{AsFd, OwnedFd, RawFd};

const STEP: &str = "seccomp listener";

/// The way by which a listener is given away.
#[derive(Debug)]
pub struct Handover {
    /// The observer's socket.
    pub observer: OwnedFd,
    /// Whose listener it is.
    pub of: Of,
}

/// A peer that waits for a listener to give away.
pub(super) struct Peer {
    pid: Pid,
    say: OwnedFd,
    /// The peer's end, which closes for both.
    _hear: OwnedFd,
}

impl Peer {
    /// Forks the peer, which keeps the privilege of this moment for its short life: what the caller's limits leave the
    /// command's user is not for it.
    pub(super) fn fork(handover: &Handover) -> Result<Peer, ConfineError> {
        let (hear, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed(STEP, "pipe2"))?;
        let parent = getpid();
        match fork_sharing_files().map_err(failed(STEP, "fork"))? {
            Fork::Child => {
                // It shares the pipe's other end too, and would never see it close.
                let bound = set_pdeathsig(Signal::SIGKILL).is_ok() && getppid() == parent;
                sys::exit_now(i32::from(!bound || pass_on(&hear, handover).is_err()))
            }
            Fork::Parent(pid) => Ok(Peer { pid, say, _hear: hear }),
        }
    }

    /// Loads the program; its listener is the observer's alone when this returns.
    pub(super) fn load(self, program: &[u8]) -> Result<(), ConfineError> {
        let loaded = load_seccomp_with_listener(program);
        let number: RawFd = *loaded.as_ref().unwrap_or(&-1);
        write(&self.say, &number.to_ne_bytes()).map_err(failed(STEP, "write"))?;
        let status = wait_for_peer(self.pid).map_err(failed(STEP, "waitpid"))?;
        loaded.map_err(|errno| match errno {
            Errno::EBUSY => failed(STEP, "seccomp, as another listener is in this process's filter chain")(errno),
            _ => failed(STEP, "seccomp")(errno),
        })?;
        wanted(STEP, status, 0)?;
        wanted(STEP, sys::is_open(number), false)
    }
}

/// In the peer: sends the listener of the number that it hears, and closes it for both.
fn pass_on(hear: &OwnedFd, handover: &Handover) -> Result<(), Errno> {
    let mut number = [0; size_of::<RawFd>()];
    if read(hear, &mut number)? != number.len() {
        return Err(Errno::EPROTO);
    }
    let number = RawFd::from_ne_bytes(number);
    if number < 0 {
        return Ok(());
    }
    let sent = hand_over(handover.observer.as_fd(), number, handover.of);
    close_number(number)?;
    sent
}
