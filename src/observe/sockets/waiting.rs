//! Calls that are answered later, by one thread for all of them: none of those that answer the listener ever waits.

use super::held::{Held, Tcp};
use super::table::Table;
use crate::observe::connectors::Note;
use crate::observe::told::Refusal;
use crate::procfs::{self, field};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What came of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// It is done, with this value.
    Done(i64),
    /// The kernel says no.
    Failed(Errno),
    /// It is refused, and recorded.
    Refused(Errno, Box<Refusal>),
    /// The caller is given a duplicate of this socket, which closes on exec if true.
    Made(Arc<Held>, bool),
    /// It goes on into the kernel.
    GoesOn,
    /// A signal has come that the kernel would interrupt it for.
    Interrupted,
    /// It would have to wait.
    Blocked,
}

/// A call that may have to wait.
pub struct Later {
    /// Who is to be told of before it is tried.
    pub note: Option<Note>,
    /// The caller.
    pub tid: Pid,
    /// Tries it, without waiting.
    pub attempt: Box<dyn FnMut() -> Outcome + Send>,
    /// What the waiting is for; without it the attempt is repeated every now and then.
    pub on: Option<(Arc<Held>, PollFlags)>,
    /// When it has waited enough, and what is answered then.
    pub deadline: Option<(Duration, Errno)>,
    /// Whether a signal ends the wait.
    pub interruptible: bool,
}

impl Later {
    /// One that is tried once.
    pub fn once(tid: Pid, attempt: impl FnMut() -> Outcome + Send + 'static) -> Later {
        Later { note: None, tid, attempt: Box::new(attempt), on: None, deadline: None, interruptible: false }
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("tid", &self.tid).field("on", &self.on).finish_non_exhaustive()
    }
}

/// How a call's caller is asked for, and answered.
pub trait Caller: Send {
    /// Whether it still waits.
    fn waits(&self) -> bool;
    /// Answers it. False: something of ours has failed.
    fn answer(&self, outcome: Outcome) -> bool;
}

struct Waiting {
    later: Later,
    caller: Box<dyn Caller>,
    since: Instant,
    until: Option<(Instant, Errno)>,
}

/// How often what cannot be waited for is tried again, and signals are looked for.
const TICK: Duration = Duration::from_millis(10);
/// How often what other threads need only be given their turn for is tried again.
const SOON: Duration = Duration::from_millis(1);
/// From when on a wait ends for a signal that any thread of the process may take.
const LONG: Duration = Duration::from_secs(1);
/// How often sockets are looked for that nobody has any more.
const SWEEP: Duration = Duration::from_secs(1);

/// The calls that wait.
#[derive(Debug)]
pub struct Line {
    come: Mutex<Vec<Waiting>>,
    wake: EventFd,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("later", &self.later).finish_non_exhaustive()
    }
}

impl Line {
    /// An empty one.
    pub fn new() -> Result<Line, Errno> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Line { come: Mutex::new(Vec::new()), wake })
    }

    /// A call waits from now on.
    pub fn join(&self, later: Later, caller: Box<dyn Caller>) -> Result<(), Errno> {
        let since = Instant::now();
        let until = later.deadline.map(|(wait, errno)| (since + wait, errno));
        self.come.lock().unwrap_or_else(PoisonError::into_inner).push(Waiting { later, caller, since, until });
        self.wake()
    }

    /// Something has changed that is looked at here: a socket is there, or is about to be connected.
    pub fn wake(&self) -> Result<(), Errno> {
        match self.wake.write(1) {
            // It is awake as it can be.
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Answers the calls as they can be answered, and drops the duplicates that have served, until something of ours fails.
    pub fn serve(&self, table: &Table) {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut swept = Instant::now();
        loop {
            waiting.append(&mut self.come.lock().unwrap_or_else(PoisonError::into_inner));
            let connecting = table.connecting();
            let Ok(ready) = self.look(&waiting, &connecting, table.len() > 0) else { return };
            // A counter that is not read stays as it is, and is no end of waiting.
            if !matches!(self.wake.read(), Ok(_) | Err(Errno::EAGAIN)) {
                return;
            }
            for held in &connecting {
                match held.tcp() {
                    Tcp::Connecting => {}
                    Tcp::Closed => held.connecting.store(false, Relaxed),
                    Tcp::Beyond => table.release(held),
                }
            }
            let mut kept = Vec::new();
            for (one, ready) in waiting.into_iter().zip(ready) {
                match one.step(ready) {
                    Step::Waits(one) => kept.push(*one),
                    Step::Over => {}
                    Step::Failed => return,
                }
            }
            waiting = kept;
            if swept.elapsed() >= SWEEP {
                table.sweep(1, |_| true);
                swept = Instant::now();
            }
        }
    }

    /// Waits until one of them can go on, or it is time to look. Returns which of the waiting ones are to be tried.
    fn look(&self, waiting: &[Waiting], connecting: &[Arc<Held>], any: bool) -> Result<Vec<bool>, Errno> {
        let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        let on = waiting.iter().filter_map(|one| one.later.on.as_ref());
        let on: Vec<_> = on.map(|(held, events)| (held.file(), *events)).collect();
        let connecting: Vec<_> = connecting.iter().map(|held| (held.file(), PollFlags::POLLOUT)).collect();
        for (file, events) in on.iter().chain(&connecting) {
            fds.push(match &**file {
                Some(file) => PollFd::new(file.as_fd(), *events),
                // What was let go is looked at again by who waits for it: this one can be written to.
                None => PollFd::new(self.wake.as_fd(), PollFlags::POLLOUT),
            });
        }
        let timeout = match () {
            () if waiting.iter().any(|one| !one.later.interruptible) => PollTimeout::try_from(SOON),
            () if !waiting.is_empty() => PollTimeout::try_from(TICK),
            () if any => PollTimeout::try_from(SWEEP),
            () => Ok(PollTimeout::NONE),
        };
        match poll(&mut fds, timeout.map_err(|_| Errno::EINVAL)?) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut polled = fds[1..].iter().map(|fd| fd.any() == Some(true));
        Ok(waiting.iter().map(|one| one.later.on.is_none() || polled.next() == Some(true)).collect())
    }
}

enum Step {
    Waits(Box<Waiting>),
    Over,
    Failed,
}

impl Waiting {
    fn step(mut self, ready: bool) -> Step {
        if !self.caller.waits() {
            return Step::Over;
        }
        let outcome = if ready { (self.later.attempt)() } else { Outcome::Blocked };
        let outcome = match outcome {
            Outcome::Blocked => match self.ended() {
                Some(outcome) => outcome,
                None => return Step::Waits(Box::new(self)),
            },
            outcome => outcome,
        };
        // A duplicate that is not needed any more is closed before anyone is told.
        drop(self.later);
        if self.caller.answer(outcome) { Step::Over } else { Step::Failed }
    }

    /// What ends a wait, if anything does.
    fn ended(&self) -> Option<Outcome> {
        if let Some((_, errno)) = self.until.filter(|(until, _)| Instant::now() >= *until) {
            return Some(Outcome::Failed(errno));
        }
        if !self.later.interruptible {
            return None;
        }
        match signal(self.later.tid) {
            // With a limit set a call is not made again (signal(7)).
            Signal::Own if self.until.is_none() => Some(Outcome::Interrupted),
            Signal::Own => Some(Outcome::Failed(Errno::EINTR)),
            // Who will take it the kernel alone knows, and does not say.
            Signal::Shared if self.since.elapsed() >= LONG => Some(Outcome::Failed(Errno::EINTR)),
            Signal::Shared | Signal::None => None,
        }
    }
}

/// A signal that waits for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    None,
    /// No other thread can take it.
    Own,
    /// Another one may.
    Shared,
}

/// What waits for a thread, beside what it blocks (proc_pid_status(5)); what it ignores is never kept for it.
fn signal(tid: Pid) -> Signal {
    let status = procfs::read(&format!("/proc/{tid}/status")).unwrap_or_default();
    let set = |name: &str| field(&status, name).and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
    let open = !set("SigBlk:");
    let alone = field(&status, "Threads:") == Some("1");
    match (set("SigPnd:") & open != 0, set("ShdPnd:") & open != 0) {
        (true, _) => Signal::Own,
        (false, true) if alone => Signal::Own,
        (false, true) => Signal::Shared,
        (false, false) => Signal::None,
    }
}
