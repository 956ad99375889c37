//! Reads of watched paths, told by the kernel itself (fanotify(7)): a process of root's, the witness, that the kernel asks before
//! each open of what it has marked. The marks are on inodes, so that no name, no race and no change of names leads past them.
//!
//! Permission events are used though nothing is refused by them: they are never merged, so that each open is one, and whoever
//! opens waits, so that who it is can be read and is on record before the open goes on. The process is apart from the
//! supervisor for the sake of those outside the sandbox: they wait for it too, and must not wait for a supervisor that is
//! stopped with its command, or busy.

mod marks;
mod opening;
mod sandbox;

use super::subject;
use super::told::{Heard, PathRead, Told};
use crate::channel::{Channel, ChannelError};
use crate::ledger::record::Subject;
use crate::sys::{self, CapabilitySets, capability};
use marks::{Known, Marked, Marks};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::chdir;
pub use sandbox::Sandbox;
use sandbox::Side;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// Records that are under way to the supervisor at one time.
const UNDER_WAY: usize = 16;
/// Most causes of losses that are told apart.
const CAUSES: usize = 64;
/// Most threads of the outside that are remembered by an open of theirs.
const OUTSIDERS: usize = 1024;

/// What the witness needs to know of the run.
#[derive(Debug, Clone)]
pub struct WitnessSpec {
    /// What is watched, by its paths in the sandbox, free of symbolic links.
    pub tripwires: Vec<PathBuf>,
    /// Whose reads are told of.
    pub sandbox: Sandbox,
}

/// Makes a group of the kind that the witness needs, which takes SYS_ADMIN in the initial user namespace, and a kernel with
/// permission events (fanotify_init(2), CONFIG_FANOTIFY_ACCESS_PERMISSIONS).
///
/// # Errors
/// The errno of fanotify_init(2).
fn group() -> Result<Fanotify, Errno> {
    let flags = InitFlags::FAN_CLASS_CONTENT
        | InitFlags::FAN_CLOEXEC
        | InitFlags::FAN_NONBLOCK
        | InitFlags::FAN_UNLIMITED_QUEUE
        | InitFlags::FAN_UNLIMITED_MARKS
        | InitFlags::FAN_REPORT_TID;
    // What is opened for an event may be a FIFO.
    let of_events = EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC | EventFFlags::O_NONBLOCK;
    Fanotify::init(flags, of_events)
}

/// Tries whether there is a group to be had, and a mark for permission events.
///
/// # Errors
/// The call that failed and its errno.
pub fn try_it() -> Result<(), String> {
    let group = group().map_err(|errno| format!("fanotify_init: {errno}"))?;
    // Nothing comes of it: opens of a directory are events only where they are asked for (FAN_ONDIR).
    let root =
        open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(|errno| format!("open /: {errno}"))?;
    group
        .mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_PERM, root, Some("."))
        .map_err(|errno| format!("fanotify_mark: {errno}"))
}

/// Lives the witness's life in the calling process, which has one thread and no descriptors but the channel. Returns the
/// exit status.
pub fn live(spec: WitnessSpec, told: Channel) -> i32 {
    match begin(spec, &told) {
        Ok(mut witness) => i32::from(witness.serve(&told).is_err()),
        Err(cause) => i32::from(told.send(&Told::Failed(cause)).is_err()) + 1,
    }
}

fn begin(spec: WitnessSpec, told: &Channel) -> Result<Witness, String> {
    let failed = |call: &'static str| move |errno: Errno| format!("witness: {call}: {errno}");
    // The sandbox's own mounts: what its paths lead to is what is marked.
    let view = format!("/proc/{}/ns/mnt", spec.sandbox.stage);
    let view =
        open(view.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed("open of a view"))?;
    setns(view, CloneFlags::CLONE_NEWNS).map_err(failed("setns"))?;
    chdir("/").map_err(failed("chdir"))?;
    let group = Arc::new(group().map_err(failed("fanotify_init"))?);
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed("getrlimit"))?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).map_err(failed("setrlimit"))?;
    drop_privilege().map_err(failed("capset"))?;
    let (ours, theirs) = Channel::pair().map_err(|error| format!("witness: {error}"))?;
    let known = Arc::new(Known::default());
    let marks = Marks::new(spec.tripwires.clone(), group.clone(), known.clone())?;
    // Opens of its own are events as well, and answered by this thread.
    let marking = std::thread::Builder::new().spawn(move || marks.live(&theirs));
    marking.map_err(|error| format!("witness: thread: {error}"))?;
    let mut witness = Witness {
        group,
        known,
        tripwires: spec.tripwires,
        sandbox: spec.sandbox,
        marked: ours,
        pending: VecDeque::new(),
        under_way: 0,
        opened: BTreeSet::new(),
        outsiders: VecDeque::new(),
        trial: BTreeSet::new(),
        on_trial: true,
        missed: Vec::new(),
    };
    // What is read while the marks are made is answered, and told of once all are.
    loop {
        witness.wait(None)?;
        match witness.marked.receive_now::<Marked>().map_err(|error| format!("witness: {error}"))? {
            Some(Marked::All { thread, opened }) => {
                match opened.iter().all(|id| witness.trial.contains(&(thread, *id))) {
                    true => break,
                    false => return Err("witness: an open of what is watched was no event".into()),
                }
            }
            Some(Marked::Failed(cause) | Marked::Missed(cause)) => return Err(cause),
            None => {}
        }
        witness.take_events().map_err(|error| format!("witness: {error}"))?;
    }
    (witness.trial, witness.on_trial) = (BTreeSet::new(), false);
    told.send(&Told::Ready).map_err(|error| format!("witness: {error}"))?;
    Ok(witness)
}

/// What is left is what opens files for events and lets it see who is behind one (capabilities(7)).
fn drop_privilege() -> Result<(), Errno> {
    nix::sys::prctl::set_no_new_privs()?;
    let kept = 1 << capability::DAC_READ_SEARCH | 1 << capability::SYS_PTRACE;
    let kept = kept & sys::capget()?.permitted;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: 0 };
    sys::ambient_clear()?;
    sys::capset(sets)?;
    if sys::capget()? == sets { Ok(()) } else { Err(Errno::EPERM) }
}

/// A read that is to be recorded, and whoever waits for that.
#[derive(Debug)]
struct Pending {
    event: FanotifyEvent,
    read: PathRead,
}

/// The witness at work.
#[derive(Debug)]
struct Witness {
    group: Arc<Fanotify>,
    known: Arc<Known>,
    tripwires: Vec<PathBuf>,
    sandbox: Sandbox,
    /// What the thread that marks says.
    marked: Channel,
    /// In the order of their events; the first `under_way` of them are told.
    pending: VecDeque<Pending>,
    under_way: usize,
    /// Files that the sandbox has opened or read: of these its opens alone are told of.
    opened: BTreeSet<(u64, u64)>,
    /// Threads of the outside, as told at their opens: when their reads are told they may have ended.
    outsiders: VecDeque<i32>,
    /// What others have opened while the marks were made.
    trial: BTreeSet<(i32, (u64, u64))>,
    on_trial: bool,
    /// Losses that are not told yet: why, and how many reads.
    missed: Vec<(String, u64)>,
}

impl Witness {
    /// Answers until the supervisor has ended or ends this process. Whoever still waits is then refused.
    fn serve(&mut self, told: &Channel) -> Result<(), ChannelError> {
        let served = self.answer_all(told);
        self.take_events().ok();
        while let Some(Pending { event, .. }) = self.pending.pop_front() {
            self.answer(&event, Response::FAN_DENY).ok();
        }
        match served {
            Err(ChannelError::Closed) => Ok(()),
            other => other,
        }
    }

    fn answer_all(&mut self, told: &Channel) -> Result<(), ChannelError> {
        loop {
            self.wait(Some(told)).map_err(ChannelError::Form)?;
            match self.marked.receive_now::<Marked>()? {
                None | Some(Marked::All { .. }) => {}
                Some(Marked::Failed(cause) | Marked::Missed(cause)) => self.miss(0, &cause),
            }
            while let Some(Heard { of_command }) = told.receive_now::<Heard>()? {
                self.under_way = self.under_way.saturating_sub(1);
                if let Some(Pending { event, .. }) = self.pending.pop_front() {
                    // What the probes alone have opened is as if nobody had.
                    if let Some(file) = event.fd().filter(|_| of_command)
                        && self.is_first(file)
                    {
                        self.silence(file);
                    }
                    self.answer(&event, Response::FAN_ALLOW)?;
                }
            }
            self.take_events()?;
            // Never so that this process would wait for room: others wait for it, the supervisor among them.
            while let Some((cause, calls)) = self.missed.first()
                && told.offer(&Told::Lost { calls: *calls, cause: cause.clone() })?
            {
                self.missed.remove(0);
            }
            while self.under_way < UNDER_WAY
                && let Some(next) = self.pending.get(self.under_way)
                && told.offer(&Told::Read(next.read.clone()))?
            {
                self.under_way += 1;
            }
        }
    }

    fn wait(&self, told: Option<&Channel>) -> Result<(), String> {
        let mut fds = vec![
            PollFd::new(self.group.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.marked.as_fd(), PollFlags::POLLIN),
        ];
        let room = if !self.missed.is_empty() { PollFlags::POLLOUT } else { PollFlags::empty() };
        fds.extend(told.map(|told| PollFd::new(told.as_fd(), PollFlags::POLLIN | room)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(format!("witness: poll: {errno}")),
        }
    }

    /// Takes in the events that are there, and answers those that are nobody's business.
    fn take_events(&mut self) -> Result<(), ChannelError> {
        let events = match self.group.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            // The kernel has refused it to whoever waited, if someone did (fanotify(7)).
            Err(errno) => {
                self.miss(1, &format!("an event of a watched path could not be taken: {errno}"));
                return Ok(());
            }
        };
        for event in events {
            let Some(file) = event.fd() else {
                self.miss(1, "the kernel's queue of events has overflowed");
                continue;
            };
            let side = self.sandbox.side(event.pid());
            let of_open = event.mask().contains(MaskFlags::FAN_OPEN_PERM);
            let read = match side {
                Side::Inside if of_open => self.opening(file, event.pid()),
                Side::Inside => self.reading(file, event.pid()),
                Side::Outside if of_open => {
                    self.outsiders.push_front(event.pid());
                    self.outsiders.truncate(OUTSIDERS);
                    if self.on_trial {
                        self.trial.extend(identity(file).map(|id| (event.pid(), id)));
                    }
                    None
                }
                Side::Gone if !of_open && self.is_unaccounted(file, event.pid()) => {
                    self.miss(1, "a watched file was read by who had ended before it was known who that was");
                    None
                }
                Side::Outside | Side::Gone => None,
            };
            match read {
                Some(read) => self.pending.push_back(Pending { event, read }),
                None => self.answer(&event, Response::FAN_ALLOW)?,
            }
        }
        Ok(())
    }

    /// An open by one of the sandbox's, where it is for reading.
    fn opening(&self, file: BorrowedFd<'_>, tid: i32) -> Option<PathRead> {
        let opening = opening::of_thread(tid);
        if !opening.reads {
            return None;
        }
        let above = [self.sandbox.stage, self.sandbox.supervisor];
        let who = subject::whole(tid.unsigned_abs(), &above).unwrap_or_default();
        Some(self.read_of(file, opening.call, who))
    }

    /// A read by one of the sandbox's through a descriptor that none of them has opened.
    fn reading(&mut self, file: BorrowedFd<'_>, tid: i32) -> Option<PathRead> {
        self.silence(file);
        // It has gone on, and may be another program by now.
        let known = |subject: Subject| Subject { pid: subject.pid, uid: subject.uid, ..Subject::default() };
        let who = subject::brief(tid.unsigned_abs()).map(known);
        self.is_first(file).then(|| self.read_of(file, "read", who.unwrap_or_default()))
    }

    /// Whether the sandbox has neither opened nor read a file before.
    fn is_first(&mut self, file: BorrowedFd<'_>) -> bool {
        identity(file).is_none_or(|id| self.opened.insert(id))
    }

    /// Reads of a file are no events from here on. Directories have no such mark, nor has a file that is not marked yet: of
    /// these the kernel says ENOENT, and of the others the next read is an event once more.
    fn silence(&self, file: BorrowedFd<'_>) {
        self.group.mark(MarkFlags::FAN_MARK_REMOVE, MaskFlags::FAN_ACCESS, file, None::<&Path>).ok();
    }

    /// So many reads are on no record.
    fn miss(&mut self, reads: u64, cause: &str) {
        let known = self.missed.iter().position(|(other, _)| other == cause);
        match known.or(self.missed.len().checked_sub(1).filter(|last| *last + 1 >= CAUSES)) {
            Some(at) => self.missed[at].1 = self.missed[at].1.saturating_add(reads),
            None => self.missed.push((cause.to_owned(), reads)),
        }
    }

    fn is_unaccounted(&self, file: BorrowedFd<'_>, tid: i32) -> bool {
        !self.outsiders.contains(&tid) && identity(file).is_none_or(|id| !self.opened.contains(&id))
    }

    fn read_of(&self, file: BorrowedFd<'_>, call: &str, subject: Subject) -> PathRead {
        let number = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = nix::fcntl::readlink(number.as_str()).unwrap_or_default();
        let watched = self.tripwires.iter().any(|tripwire| Path::new(&name).starts_with(tripwire));
        let known = identity(file).and_then(|id| {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&id).map(|path| path.clone().into_os_string())
        });
        let (path, by) = match known.filter(|_| !watched) {
            Some(known) => (known, Some(name)),
            None => (name, None),
        };
        PathRead { operation: call.to_owned(), path: path.into_vec(), by: by.map(OsString::into_vec), subject }
    }

    /// Lets whoever waits go on, or not. Events that nobody waits for have no answer.
    fn answer(&self, event: &FanotifyEvent, response: Response) -> Result<(), ChannelError> {
        let Some(file) = event.fd().filter(|_| event.mask().contains(MaskFlags::FAN_OPEN_PERM)) else { return Ok(()) };
        match self.group.write_response(FanotifyResponse::new(file, response)) {
            // It was killed meanwhile.
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(ChannelError::Call { call: "write to the fanotify group", errno }),
        }
    }
}

/// The device and the number of a file.
fn identity(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
