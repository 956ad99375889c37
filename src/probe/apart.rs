//! Trying a suite in a child where no run is in force: whatever a probe starts ends with it, also what has left its session
//! and its parent.

use super::external::ExternalError;
use super::spec::Spec;
use crate::ledger::record::Probe;
use crate::supervise::descendants;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::pipe2;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Where a confined child reports, as in a run: what lies above it is looked for as stray.
pub const REPORT: i32 = 3;

/// How long the end of all that the probes have started may take.
const ENDING: Duration = Duration::from_secs(10);
/// The keeper's exit status where something is left; what lies above it is the errno of a start that failed.
const LEFT: i32 = 1;
/// How often it is looked whether the probes are through.
const LOOKING: u16 = 20;

fn failed(call: &'static str) -> impl FnOnce(Errno) -> ExternalError {
    move |errno| ExternalError::Call { call, errno }
}

/// Has a child try each of `specs` by `tried`, which is told whether a stray descriptor has the report's number, and ends all
/// that is left of it after that, or once `patience` is over.
///
/// Between this process and the child that tries stands a keeper, a subreaper (PR_SET_CHILD_SUBREAPER(2const)): all its
/// descendants are the probes', which cannot be said of this process, whose program may have been started in the place of
/// one that had children.
pub fn try_all(
    specs: &[&Spec],
    tried: impl Fn(&Spec, bool) -> Probe,
    patience: Duration,
) -> Result<Vec<Probe>, ExternalError> {
    // The number is taken for the report, so that a stray descriptor there would go unseen.
    let stray = sys::is_open(REPORT);
    let (report, write) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    let (leash, held) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
    match sys::fork_single_threaded().map_err(failed("fork"))? {
        Fork::Child => {
            drop((report, held));
            sys::exit_now(keep(leash, write, |report| {
                specs.iter().all(|spec| {
                    let line = serde_json::to_vec(&tried(spec, stray)).unwrap_or_default();
                    report.write_all(&line).and_then(|()| report.write_all(b"\n")).is_ok()
                })
            }))
        }
        Fork::Parent(keeper) => {
            drop((write, leash));
            let heard = hear(&File::from(report), Instant::now() + patience);
            // At its other end that says that it is over.
            drop(held);
            let ended = waitpid(keeper, None).map_err(failed("waitpid"))?;
            match ended {
                WaitStatus::Exited(_, 0) => {}
                WaitStatus::Exited(_, status) if status > LEFT => {
                    return Err(failed("fork")(Errno::from_raw(status - LEFT)));
                }
                _ => return Err(ExternalError::Left),
            }
            let (text, late) = match heard {
                Ok(text) => (text, false),
                Err(Unheard::Late(text)) => (text, true),
                Err(Unheard::Call(call, errno)) => return Err(failed(call)(errno)),
            };
            let made: Vec<Probe> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            match specs.get(made.len()).map(|spec| spec.id.clone()) {
                None => Ok(made),
                Some(id) if late => Err(ExternalError::Late { id, patience }),
                Some(id) => Err(ExternalError::Ended { id }),
            }
        }
    }
}

/// The keeper: starts the child, waits until that has ended or `leash` is let go, and ends whatever is left. Returns its exit
/// status: 0, [`LEFT`], or that and an errno.
fn keep(leash: OwnedFd, write: OwnedFd, work: impl FnOnce(&mut File) -> bool) -> i32 {
    let fork = set_child_subreaper(true).and_then(|()| sys::fork_single_threaded());
    let child = match fork {
        Ok(Fork::Child) => {
            drop(leash);
            let Ok(write) = sys::move_to(write, REPORT) else { sys::exit_now(1) };
            sys::exit_now(i32::from(!work(&mut File::from(write))));
        }
        Ok(Fork::Parent(child)) => child,
        Err(errno) => return LEFT + errno as i32,
    };
    drop(write);
    // What a terminal sends to all of the group must not take the keeper from what has left the group.
    let blocked = SigSet::all().thread_block();
    let mut alive = true;
    while alive && !is_let_go(&leash) {
        alive = waitpid(child, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
    }
    // Without /proc this is the one process that is known.
    let gone = !alive || kill(child, Signal::SIGKILL).is_ok() && waitpid(child, None).is_ok();
    let ended = descendants::end_strays(None, &[], ENDING);
    if blocked.is_ok() && gone && ended { 0 } else { LEFT }
}

/// Whether this process's parent has let go, or has ended; waits a moment for it.
fn is_let_go(leash: &OwnedFd) -> bool {
    match poll(&mut [PollFd::new(leash.as_fd(), PollFlags::POLLIN)], PollTimeout::from(LOOKING)) {
        Ok(0) | Err(Errno::EINTR) => false,
        Ok(_) | Err(_) => true,
    }
}

/// Why a report was not heard to its end.
enum Unheard {
    /// Time is up; what was said until then.
    Late(String),
    /// A call failed.
    Call(&'static str, Errno),
}

fn hear(mut report: &File, deadline: Instant) -> Result<String, Unheard> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(report.as_fd(), PollFlags::POLLIN)], time) {
            Ok(0) => return Err(Unheard::Late(String::from_utf8_lossy(&text).into_owned())),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(Unheard::Call("poll", errno)),
        }
        match report.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(cause) => return Err(Unheard::Call("read", super::child::of_io(&cause))),
        }
    }
}
