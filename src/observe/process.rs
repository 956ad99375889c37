//! The observer process: the command's own confinement, less the listener and less the end of the namespaces' say about who
//! may signal whom. It takes the listener of each confined child and answers it to its end.
//!
//! It holds no privilege but SYS_PTRACE, which is effective only while it looks at a caller, and from then on as long as it asks
//! nothing whose answer that could change. Its file system ids are the command's, by which the kernel judges access to files; its other uids are the run's own, so that the command can neither signal, trace,
//! limit nor reschedule it (kill(2), ptrace(2), prlimit(2), sched_setaffinity(2)).

mod later;
mod probes;

use super::caller::lay_down_ptrace;
use super::calls::Calls;
use super::judge::{Judge, Verdict};
pub use super::judge::{Kept, Mounted, Unnoted, Ways};
use super::shadow::Shadow;
use super::sockets::Sockets;
use super::sockets::rules::SocketRules;
use super::told::{Heard, ToProbe, Told};
use super::watched::Ids;
use crate::channel::Channel;
use crate::confine::landlock::Barrier;
use crate::confine::{ConfineError, Confinement};
use crate::install::mounts::MountPlan;
use crate::mutation;
use crate::policy::Posture;
use crate::stage::release_stdio;
use crate::sys;
use crate::sys::notify::{self, Notification};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};
use nix::unistd::{Pid, chdir};
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub use probes::probes_are_over;

/// What the observer needs to know of the run.
#[derive(Debug, Clone)]
pub struct ObserverSpec {
    /// The command's confinement.
    pub confinement: Confinement,
    /// The real and saved uid of the process.
    pub own_uid: u32,
    /// The calls.
    pub calls: Calls,
    /// The command's ids.
    pub ids: Ids,
    /// Where connections go that nothing refuses.
    pub unnoted: Unnoted,
    /// What is kept from being written where no mount does.
    pub view: Option<MountPlan>,
    /// The mounts that stand in what the command may write.
    pub mounted: Option<Mounted>,
    /// What is kept from being read, or watched.
    pub kept: Option<Kept>,
    /// What the command's sockets are held to, where they are made for it.
    pub sockets: Option<SocketRules>,
    /// Where nothing is refused: the trees that would have become the command's own.
    pub shadow: Option<Vec<PathBuf>>,
}

/// Whose listener it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The probing child's, of whose calls it is only told that they were refused.
    Probes = 1,
    /// A command's.
    Command = 2,
}

/// What the stage hands over, by the byte that tells it.
#[derive(Debug)]
pub enum Handed {
    /// A listener.
    Listener(OwnedFd, Of),
    /// Nothing: the probing child and all that it has started have ended.
    ProbesAreOver,
}

/// The byte of [`Handed::ProbesAreOver`], which is no one's listener's.
const PROBES_ARE_OVER: u8 = 0;

/// Threads that answer one listener, at the most and at the least: one that waits for a file system must not hold up all.
const THREADS: usize = 4;
const LEAST: usize = 2;
/// Their stacks, in bytes.
const STACK: usize = 512 << 10;
/// The least number of the descriptor by which listeners are handed over: confined children give lower ones a meaning.
const ABOVE_CHILDRENS: RawFd = 16;

/// The two ends of the way by which listeners are handed over: the stage's, and the observer's.
pub fn handover() -> Result<(OwnedFd, OwnedFd), (&'static str, Errno)> {
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (stages, observers) = pair.map_err(|errno| ("socketpair", errno))?;
    let stages = sys::duplicate_above(stages.as_fd(), ABOVE_CHILDRENS).map_err(|errno| ("fcntl F_DUPFD", errno))?;
    Ok((stages, observers))
}

/// Lives the observer's life in the calling process, which has forked the stage: it is an ancestor of all that it looks at,
/// as Yama wants it of one without SYS_PTRACE (ptrace(2), `ptrace_scope` 1). Returns the exit status.
///
/// A shadow's observer enters, by `enter`, a view that the stage does not have.
pub fn live(
    spec: &ObserverSpec,
    stage: Pid,
    told: Channel,
    handover: OwnedFd,
    ways: Ways,
    enter: impl FnOnce() -> Result<(), String>,
) -> i32 {
    if let Err(cause) = enter() {
        return i32::from(told.send(&Told::Failed(format!("observer: {cause}"))).is_err()) + 1;
    }
    let view = spec.view.as_ref().filter(|_| !mutation::left_out("barrier"));
    let barrier = match view.map(Barrier::of).transpose() {
        Ok(barrier) => barrier.map(Arc::new),
        Err(cause) => return i32::from(told.send(&Told::Failed(format!("observer: {cause}"))).is_err()) + 1,
    };
    let own = [told.as_fd().as_raw_fd(), handover.as_raw_fd()];
    if sys::close_all_but(&own.into_iter().chain(ways.descriptors()).collect::<Vec<_>>()).is_err() {
        return 1;
    }
    let confined = release_stdio()
        .and_then(|()| chdir("/"))
        .map_err(|errno| format!("observer: {errno}"))
        .and_then(|()| spec.confinement.enter_as_observer(spec.own_uid).map_err(|e: ConfineError| e.to_string()));
    let may_open = match confined {
        Ok(may_open) => may_open,
        Err(cause) => return i32::from(told.send(&Told::Failed(cause)).is_err()) + 1,
    };
    let sockets = match spec.sockets.clone().map(Sockets::start).transpose() {
        Ok(sockets) => sockets,
        Err(errno) => {
            let failed = Told::Failed(format!("observer: the thread for calls that wait: {errno}"));
            return i32::from(told.send(&failed).is_err()) + 1;
        }
    };
    let shadow = spec.shadow.clone().map(|trees| match may_open {
        true => Shadow::begin(spec.ids.uid, trees, stage),
        false => Err("SYS_PTRACE is missing".to_owned()),
    });
    let shadow = match shadow.transpose() {
        Ok(shadow) => shadow,
        Err(cause) => return i32::from(told.send(&Told::Failed(format!("observer: {cause}"))).is_err()) + 1,
    };
    // At `locked` nobody can become another user, unless the step is left out that makes everyone the command's.
    let mixed = spec.confinement.privilege != Posture::Locked || mutation::left_out("ids");
    let judge = Judge {
        calls: Arc::new(spec.calls.clone()),
        ids: spec.ids,
        unnoted: spec.unnoted.clone(),
        may_open,
        mixed,
        stage,
        names: true,
        barrier,
        mounted: spec.mounted.clone().map(Arc::new),
        kept: spec.kept.clone().map(Arc::new),
        ways: Arc::new(ways),
        sockets,
        shadow: shadow.map(Arc::new),
    };
    let service = Arc::new(Service { told: Mutex::new(()), to_probes: Mutex::default(), channel: told });
    if service.channel.send(&Told::Ready).is_err() {
        return 1;
    }
    service.take_listeners(&handover, &judge)
}

/// A listener, and who judges what comes from it.
#[derive(Debug)]
struct Served {
    listener: OwnedFd,
    judge: Judge,
    of: Of,
}

/// What is to be done with a listener next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There may be more calls.
    Wait,
    /// No process is left that could make one.
    Over,
    /// Something of ours has failed.
    Failed,
}

/// What the threads share.
#[derive(Debug)]
struct Service {
    /// One question at a time is under way to the supervisor.
    told: Mutex<()>,
    /// What was refused to the probes, to be told at once when they are over.
    to_probes: Mutex<BTreeSet<ToProbe>>,
    channel: Channel,
}

impl Service {
    /// Takes listeners until the stage has ended, and stays until the supervisor has or ends this process: what the stage
    /// leaves behind when it is killed is refused and recorded until it is ended too.
    fn take_listeners(self: &Arc<Self>, handover: &OwnedFd, judge: &Judge) -> i32 {
        let mut stage_lives = true;
        // Those that no thread could be had for, as the caller's limit on processes may leave none.
        let mut own: Vec<Arc<Served>> = Vec::new();
        loop {
            // Answers from the supervisor are for whoever has asked; here only its end matters.
            let stages = if stage_lives { handover.as_fd() } else { self.channel.as_fd() };
            let mut fds = vec![
                PollFd::new(stages, if stage_lives { PollFlags::POLLIN } else { PollFlags::empty() }),
                PollFd::new(self.channel.as_fd(), PollFlags::empty()),
            ];
            fds.extend(own.iter().map(|served| PollFd::new(served.listener.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return 1,
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
            if ready[1] {
                return 1;
            }
            let mut over = Vec::new();
            for (index, served) in own.iter().enumerate().filter(|(index, _)| ready[index + 2]) {
                match self.answer_one(served) {
                    Next::Wait => {}
                    Next::Over => over.push(index),
                    Next::Failed => return 1,
                }
            }
            over.into_iter().rev().for_each(|index| drop(own.remove(index)));
            if !ready[0] {
                continue;
            }
            match receive_handed(handover.as_fd()) {
                Ok(Some(Handed::Listener(listener, of))) => {
                    // Threads begin with the capabilities of who starts them.
                    lay_down_ptrace();
                    let judge = Judge { names: of == Of::Command, ..judge.clone() };
                    match self.clone().serve(Served { listener, judge, of }) {
                        Ok(unserved) => own.extend(unserved),
                        Err(_) => return 1,
                    }
                    if of == Of::Command {
                        sys::release_start_pages();
                    }
                }
                Ok(Some(Handed::ProbesAreOver)) => {
                    if !self.tell_of_probes() {
                        return 1;
                    }
                }
                Ok(None) => stage_lives = false,
                Err(_) => return 1,
            }
        }
    }

    /// Starts the threads that answer a listener. Gives it back where there can be none.
    fn serve(self: Arc<Self>, served: Served) -> Result<Option<Arc<Served>>, Errno> {
        match notify::wake_synchronously(served.listener.as_fd()) {
            // A kernel before 6.6: it takes longer.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOTTY) => {}
            Err(errno) => return Err(errno),
        }
        let served = Arc::new(served);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(LEAST, THREADS);
        for started in 0..threads {
            let (service, answered) = (self.clone(), served.clone());
            let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
                // A listener that nobody answers would hold its callers for ever: closed, it gives them ENOSYS.
                let ended = catch_unwind(AssertUnwindSafe(|| service.answer_all(&answered)));
                if !ended.unwrap_or(false) {
                    sys::exit_now(1);
                }
            });
            match thread {
                Ok(_) => {}
                Err(_) if started == 0 => return Ok(Some(served)),
                // Fewer do as well.
                Err(_) => break,
            }
        }
        Ok(None)
    }

    /// Answers each call until no process is left that could make one. False: something of ours has failed.
    fn answer_all(self: &Arc<Self>, served: &Arc<Served>) -> bool {
        loop {
            match self.answer_one(served) {
                Next::Wait => {}
                Next::Over => return true,
                Next::Failed => return false,
            }
        }
    }

    /// Waits for the next call and answers it.
    fn answer_one(self: &Arc<Self>, served: &Arc<Served>) -> Next {
        match notify::receive(served.listener.as_fd()) {
            Ok(notification) if !self.answer(served, &notification) => Next::Failed,
            Ok(_) | Err(Errno::EINTR) => Next::Wait,
            // Its caller was killed meanwhile, or there is none left.
            Err(Errno::ENOENT) if has_ended(served.listener.as_fd()) => Next::Over,
            Err(Errno::ENOENT) => Next::Wait,
            Err(_) => Next::Failed,
        }
    }

    fn answer(self: &Arc<Self>, served: &Arc<Served>, notification: &Notification) -> bool {
        let (listener, id) = (served.listener.as_fd(), notification.id);
        let verdict = served.judge.judge(listener, notification);
        // What was read is the caller's own only if it still waits; a caller that was killed was refused nothing.
        let recorded = match &verdict {
            Verdict::GoOn
            | Verdict::Passes
            | Verdict::RefuseSilently(_)
            | Verdict::Done(_)
            | Verdict::Opened(..)
            | Verdict::Later(_) => true,
            _ if !notify::is_waiting(listener, id) => return true,
            Verdict::Tell(reaches) => self.note(served, reaches),
            Verdict::GoOnRecorded(refusal) | Verdict::Refuse(_, refusal) => self.record(served, refusal),
            Verdict::GoOnRead(read) | Verdict::OpenedRead(_, _, read) => self.ask(&Told::Read(read.clone())),
            Verdict::Unknown(cause) => self.tell(&Told::Lost { calls: 1, cause: cause.clone() }),
        };
        if !recorded {
            return false;
        }
        let answered = match verdict {
            Verdict::Later(later) => return self.answer_later(served, id, *later),
            Verdict::GoOn
            | Verdict::Passes
            | Verdict::Tell(_)
            | Verdict::GoOnRecorded(_)
            | Verdict::GoOnRead(_)
            | Verdict::Unknown(_) => notify::let_go_on(listener, id),
            Verdict::Refuse(errno, _) | Verdict::RefuseSilently(errno) => notify::refuse(listener, id, errno),
            Verdict::Done(value) => notify::succeed(listener, id, value),
            Verdict::Opened(file, close_on_exec) | Verdict::OpenedRead(file, close_on_exec, _) => {
                match notify::succeed_with_file(listener, id, file.as_fd(), close_on_exec) {
                    // The caller's table of descriptors is full (EMFILE), which is for the caller to hear.
                    Err(errno) if errno != Errno::ENOENT => notify::refuse(listener, id, errno),
                    given => given.map(|_| ()),
                }
            }
        };
        // ENOENT: its caller was killed.
        matches!(answered, Ok(()) | Err(Errno::ENOENT))
    }

    fn tell(&self, told: &Told) -> bool {
        self.channel.send(told).is_ok()
    }

    /// Tells, and waits until it is recorded.
    fn ask(&self, told: &Told) -> bool {
        let _one = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(told) && self.channel.receive::<Heard>().is_ok()
    }
}

fn has_ended(listener: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
    let hung_up = |fds: &[PollFd<'_>; 1]| fds[0].revents().is_some_and(|r| r.contains(PollFlags::POLLHUP));
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1)) && hung_up(&fds)
}

/// Sends a listener to the observer, by the number that it has in a table of descriptors that this process shares.
pub fn hand_over(handover: BorrowedFd<'_>, listener: RawFd, of: Of) -> Result<(), Errno> {
    let control = [ControlMessage::ScmRights(&[listener])];
    let word = [of as u8];
    sendmsg::<()>(handover.as_raw_fd(), &[IoSlice::new(&word)], &control, MsgFlags::MSG_NOSIGNAL, None).map(|_| ())
}

/// Takes what is handed over next; `None` when whoever could hand something over has ended.
pub fn receive_handed(handover: BorrowedFd<'_>) -> Result<Option<Handed>, Errno> {
    let mut space = cmsg_space!([RawFd; 1]);
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg::<()>(handover.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            let listener = numbers.first().map(|number| sys::adopt_inherited(*number)).transpose()?;
            let of = if byte[0] == Of::Probes as u8 { Of::Probes } else { Of::Command };
            return Ok(listener.map(|listener| Handed::Listener(listener, of)));
        }
    }
    if byte[0] == PROBES_ARE_OVER { Ok(Some(Handed::ProbesAreOver)) } else { Err(Errno::EBADMSG) }
}
