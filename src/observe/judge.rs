//! The verdict on one stopped call.
//!
//! What the filter refuses is decided by registers, and refused here in any event. Everything else goes on to the kernel,
//! whose barriers hold whether or not anyone looks; what the kernel would refuse is told first, with the kernel's own errno.

mod at_sight;
mod execute;
mod file_capabilities;
mod kept;
mod metadata;
mod mounted;
mod paths;
mod privileged;
mod reached;
mod read_only;
mod shadowed;
mod steering;
mod ways;

use super::act::{Act, Address, Whom};
use super::ask::{self, Answer};
use super::caller::{Caller, Unread, lay_down_ptrace, with_ptrace};
use super::calls::{Calls, Found as Known, InNative};
use super::connectors::Note;
use super::decode::{Call, again};
use super::shadow::Shadow;
use super::socketcall;
use super::sockets::Sockets;
use super::sockets::waiting::Later;
use super::subject;
use super::told::{PathRead, Refusal, Target};
use super::watched::{Ids, PERMISSION, PORT_CAPABILITY, Reading, Watched};
use crate::confine::landlock::Barrier;
use crate::confine::rules::Rule;
use crate::install::firewall::rules::DNS_PORTS;
use crate::ledger::record::Subject;
use crate::policy::Axis;
use crate::sys::notify::Notification;
use nix::errno::Errno;
use nix::fcntl::readlink;
use nix::unistd::Pid;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use kept::Kept;
pub use mounted::Mounted;
pub(super) use read_only::gives_names;
pub(super) use steering::is_inside;
pub use ways::Ways;

/// What is answered.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on into the kernel.
    GoOn,
    /// It goes on, and this is told first.
    Tell(Note),
    /// It goes on, although this part of it has no effect, which is recorded first.
    GoOnRecorded(Refusal),
    /// It goes on, and this read of a watched path is recorded first.
    GoOnRead(PathRead),
    /// It is refused, which is recorded first.
    Refuse(Errno, Refusal),
    /// It is refused, which is no denial.
    RefuseSilently(Errno),
    /// It is done.
    Done(i64),
    /// It is done, and this is the file.
    Opened(OwnedFd, bool),
    /// It is done, this is the file, and this read of a watched path is recorded first.
    OpenedRead(OwnedFd, bool, PathRead),
    /// It goes on, and what became of it is not known.
    Unknown(String),
    /// It goes on, on a socket that no other can take the place of.
    Passes,
    /// It is done here, on a socket that was made here, now or later.
    Later(Box<Later>),
}

/// Who judges.
#[derive(Debug, Clone)]
pub struct Judge {
    /// The calls, by number.
    pub calls: Arc<Calls>,
    /// The command's ids.
    pub ids: Ids,
    /// Whether a caller that is not dumpable can be read: SYS_PTRACE is held.
    pub may_open: bool,
    /// Whether callers may be other than the command's own user without capabilities: set-id programs and user namespaces
    /// are not void.
    pub mixed: bool,
    /// Where connections go that nothing refuses.
    pub unnoted: Unnoted,
    /// Where the ancestors of a caller end: the stage.
    pub stage: Pid,
    /// Whether it matters who calls.
    pub names: bool,
    /// What is kept from being written where no mount does.
    pub barrier: Option<Arc<Barrier>>,
    /// The mounts that stand in what the command may write.
    pub mounted: Option<Arc<Mounted>>,
    /// What is kept from being read, or watched.
    pub kept: Option<Arc<Kept>>,
    /// The directories above the shields.
    pub ways: Arc<Ways>,
    /// The command's sockets, where they are made for it.
    pub sockets: Option<Arc<Sockets>>,
    /// What is known beside where nothing is refused and all is recorded.
    pub shadow: Option<Arc<Shadow>>,
}

/// Loopback, where all of it is the command's to reach, less what the wall refuses there and less the proxy, which wants to
/// know who asks it.
#[derive(Debug, Clone, Default)]
pub struct Unnoted {
    /// Whether there is any such place.
    pub loopback: bool,
    /// Addresses that are noted all the same.
    pub but_addresses: Vec<IpAddr>,
    /// Ports that are.
    pub but_ports: Vec<u16>,
}

impl Unnoted {
    fn contains(&self, to: SocketAddr) -> bool {
        let loopback = self.loopback && to.ip().is_loopback() && !self.but_addresses.contains(&to.ip());
        loopback && !self.but_ports.contains(&to.port()) && !DNS_PORTS.contains(&to.port())
    }
}

impl Judge {
    /// Judges one call.
    pub fn judge(&self, listener: BorrowedFd<'_>, notification: &Notification) -> Verdict {
        let caller = Caller::new(listener, notification, self.may_open);
        match &self.shadow {
            None => self.judge_call(caller, notification),
            Some(shadow) => {
                let caller = caller.apart();
                if shadow.is_at_home(&caller) {
                    Shadow::let_go(self.judge_call(caller, notification))
                } else {
                    Verdict::GoOn
                }
            }
        }
    }

    fn judge_call(&self, caller: Caller<'_>, notification: &Notification) -> Verdict {
        let tid = caller.tid;
        let known = self.calls.find(&notification.call);
        if self.mixed || !matches!(known, Known::Watched(..)) {
            lay_down_ptrace();
        }
        match known {
            Known::Abi => {
                let object = format!("call {} of {:#x}", notification.call.number, notification.call.arch);
                self.refused_as_abi(Axis::Privilege, "abi", Errno::ENOSYS, &object, tid)
            }
            Known::Refused(rule) => self.refused_by(rule, &notification.call.arguments, tid),
            Known::Watched(watched, native) => {
                let verdict = if tid.as_raw() == 0 {
                    Verdict::Unknown(format!("{}: its caller is in no PID namespace seen here", watched.call))
                } else if self.mixed && self.shadow.is_none() && !self.is_commands(&caller) {
                    Verdict::GoOn
                } else {
                    self.look(&Looked::new(self, &caller, watched, native))
                };
                match verdict {
                    // What is not decided here is decided by nobody.
                    Verdict::GoOn | Verdict::Tell(_) | Verdict::GoOnRecorded(_) | Verdict::Unknown(_)
                        if self.decides(watched) =>
                    {
                        let object = "arguments that cannot be judged";
                        let axis = if watched.changes_metadata() { Axis::Filesystem } else { Axis::Network };
                        self.refused_as_abi(axis, watched.call, Errno::EPERM, object, tid)
                    }
                    verdict => verdict,
                }
            }
            Known::Nothing => Verdict::GoOn,
        }
    }

    /// Whether the verdict on a call is the barrier itself, so that it never goes on.
    fn decides(&self, watched: &Watched) -> bool {
        watched.decides || self.barrier.is_some() && watched.changes_metadata()
    }

    fn look(&self, looked: &Looked<'_>) -> Verdict {
        let read = || match looked.watched.reading {
            Reading::Act(reading) => reading(&looked.call),
            Reading::Again(shape) => again(&looked.call, shape),
        };
        let act = looked.caller.read_memory(read);
        if act.as_ref().is_ok_and(|act| looked.passes_at_sight(act)) {
            return Verdict::GoOn;
        }
        lay_down_ptrace();
        match act.and_then(|act| looked.verdict(act)) {
            Ok(verdict) => verdict,
            Err(Unread::Fails(errno)) if self.decides(looked.watched) => Verdict::RefuseSilently(errno),
            Err(Unread::Form) if self.decides(looked.watched) => Verdict::RefuseSilently(Errno::EFAULT),
            Err(Unread::Form | Unread::Fails(_) | Unread::Gone) => Verdict::GoOn,
            // The kernel's permission to look is the kernel's own for a caller who may not be looked at (ptrace(2)).
            Err(Unread::Closed) => {
                let refusal =
                    self.refusal(looked.watched.call, Errno::EACCES, Target::None, "unreadable", looked.caller.tid);
                Verdict::Refuse(Errno::EACCES, Refusal { axis: Some(Axis::Privilege), ..refusal })
            }
            Err(Unread::Failed(call, errno)) => Verdict::Unknown(format!("{}: {call}: {errno}", looked.watched.call)),
        }
    }

    /// What the filter refuses.
    pub(super) fn refused_by(&self, rule: &Rule, arguments: &[u64; 6], tid: Pid) -> Verdict {
        let errno = Errno::from_raw(rule.errno);
        let Some(axis) = rule.axis else { return Verdict::RefuseSilently(errno) };
        let object = Target::Text(super::describe::registers(rule.call, arguments));
        let refusal = self.refusal(rule.call, errno, object, rule.name, tid);
        Verdict::Refuse(errno, Refusal { axis: Some(axis), capability: rule.capability, ..refusal })
    }

    /// What is refused for the entry by which it was made.
    pub(super) fn refused_as_abi(&self, axis: Axis, operation: &str, errno: Errno, object: &str, tid: Pid) -> Verdict {
        let refusal = self.refusal(operation, errno, Target::Text(object.to_owned()), "abi", tid);
        Verdict::Refuse(errno, Refusal { axis: Some(axis), ..refusal })
    }

    fn refusal(&self, operation: &str, errno: Errno, object: Target, rule: &str, tid: Pid) -> Refusal {
        Refusal {
            operation: operation.to_owned(),
            errno: Some(errno as i32),
            object,
            axis: None,
            rule: rule.to_owned(),
            capability: None,
            subject: self.subject(tid),
        }
    }

    pub(super) fn subject(&self, tid: Pid) -> Subject {
        if !self.names {
            return Subject::default();
        }
        let number = |pid: Pid| pid.as_raw().unsigned_abs();
        let whole = || subject::whole(number(tid), &[number(self.stage)]).unwrap_or_default();
        // A shadow's caller is root.
        if self.shadow.is_some() { with_ptrace(whole).unwrap_or_default() } else { whole() }
    }

    /// Whether a caller is the command's own user, without capabilities, in the user and mount namespaces and at the root
    /// that this process has: a set-id program may have given it others.
    fn is_commands(&self, caller: &Caller<'_>) -> bool {
        let tid = caller.tid;
        let status = crate::procfs::read(&format!("/proc/{tid}/status")).unwrap_or_default();
        let uids = crate::procfs::field(&status, "Uid:").unwrap_or_default();
        let own = uids.split_whitespace().all(|uid| uid.parse() == Ok(self.ids.uid));
        let bare = crate::procfs::field(&status, "CapEff:").is_some_and(|bits| bits.bytes().all(|bit| bit == b'0'));
        if uids.is_empty() || !own || !bare {
            return false;
        }
        let entry = |of: &str, entry: &str| readlink(format!("/proc/{of}/{entry}").as_str());
        let shared = |name: &&str| entry(&tid.to_string(), name).is_ok_and(|found| entry("self", name) == Ok(found));
        caller.with_memory(|| Ok(["ns/user", "ns/mnt", "root"].iter().all(shared))).unwrap_or(false)
    }
}

/// Whether a port is bound without a capability (ip(7)).
fn is_for_everyone(port: u16) -> bool {
    port == 0 || port >= 1024
}

/// One call that is looked at.
pub(super) struct Looked<'a> {
    pub(super) judge: &'a Judge,
    pub(super) watched: &'a Watched,
    number: nix::libc::c_long,
    pub(super) caller: &'a Caller<'a>,
    pub(super) call: Call<'a>,
    /// By which ids the kernel answers about the paths of the act.
    pub(super) ids: std::cell::Cell<Ids>,
}

impl<'a> Looked<'a> {
    pub(super) fn new(judge: &'a Judge, caller: &'a Caller, watched: &'a Watched, native: InNative) -> Looked<'a> {
        let InNative { number, arguments, structures } = native;
        let ids = std::cell::Cell::new(judge.ids);
        Looked { judge, watched, number, caller, call: Call { caller, arguments, structures }, ids }
    }

    pub(super) fn verdict(&self, act: Act) -> Result<Verdict, Unread> {
        let ids = self.judge.ids;
        if let Some(kept) = &self.judge.kept
            && let Some(verdict) = self.by_keeping(kept, &act)?
        {
            return Ok(verdict);
        }
        Ok(match act {
            Act::Look(_) => Verdict::GoOn,
            Act::Plain => Verdict::GoOn,
            Act::Reach { socket, address: Address::Inet(to) } => return self.reach(socket, to),
            Act::BindPort { port, .. } if is_for_everyone(port) => Verdict::GoOn,
            Act::BindPort { socket, .. } if !self.has_socket(socket, false)? => Verdict::GoOn,
            Act::BindPort { port, address, .. } => match ask::bind_port(&address) {
                Answer::Refused(errno) => {
                    self.denied(errno, Target::Text(format!("port {port}")), PERMISSION, Some(PORT_CAPABILITY))
                }
                _ => Verdict::GoOn,
            },
            Act::Execute(place) => match (self.execute(&place)?, &self.judge.kept) {
                (Verdict::GoOn, Some(kept)) => return self.executed(kept, &place),
                (verdict, _) => verdict,
            },
            Act::OnSocket(asked) => match &self.judge.shadow {
                Some(shadow) => shadow.open_socket(&asked),
                None => return self.on_socket(asked),
            },
            Act::Socket { number, arguments, value } => return socketcall::verdict(self, number, arguments, &value),
            Act::Ids { group, wanted, tells } => {
                // A shadow's command has root's: what programs do to stay who they are they would do there too.
                let has = if self.judge.shadow.is_some() { Ids { uid: 0, gid: 0 } } else { ids };
                let own = if group { has.gid } else { has.uid };
                let Some(other) = wanted.iter().find(|id| ![own, u32::MAX].contains(id)) else {
                    return Ok(Verdict::GoOn);
                };
                let object = Target::Text(format!("{} {other}", if group { "gid" } else { "uid" }));
                if tells { self.by_capability(Errno::EPERM, object) } else { self.without_effect(object) }
            }
            Act::Capabilities(false) => Verdict::GoOn,
            Act::Capabilities(true) => self.by_capability(Errno::EPERM, Target::None),
            // Under the policy it would be the account's own.
            Act::Trace(pid) if self.judge.shadow.is_some() && is_inside(Whom::Process(pid), self.judge.stage) => {
                Verdict::GoOn
            }
            Act::Trace(pid) => match ask::is_traceable(pid) {
                // Of the run's own processes no shield is to be had: under `control` they would be the command's own user's.
                Err(errno) if self.judge.kept.is_some() && pid == self.judge.stage.as_raw() => {
                    self.denied(errno, Target::Text(format!("pid {pid}")), self.watched.rule, None)
                }
                Err(errno) => self.by_capability(errno, Target::Text(format!("pid {pid}"))),
                Ok(()) => Verdict::GoOn,
            },
            Act::Steer(whom) if steering::is_inside(whom, self.judge.stage) => Verdict::GoOn,
            Act::Steer(whom) => self.denied(Errno::EPERM, Target::Text(steering::told(whom)), self.watched.rule, None),
            Act::Privileged(values) => return self.privileged(&values),
            act => match (self.on_paths(&act)?, &self.judge.kept) {
                (verdict, Some(kept)) => return self.opened_to_read(kept, &act, verdict),
                (verdict, None) => verdict,
            },
        })
    }

    fn by_capability(&self, errno: Errno, object: Target) -> Verdict {
        self.denied(errno, object, self.watched.rule, self.watched.capability)
    }

    fn denied(&self, errno: Errno, object: Target, rule: &str, capability: Option<u32>) -> Verdict {
        Verdict::Refuse(errno, Refusal { capability, ..self.refusal(errno, object, rule) })
    }

    /// A call that goes on, and of which nobody is told that a part of it has no effect.
    fn without_effect(&self, object: Target) -> Verdict {
        let refusal = self.refusal(Errno::EPERM, object, self.watched.rule);
        Verdict::GoOnRecorded(Refusal { errno: None, capability: self.watched.capability, ..refusal })
    }

    pub(super) fn refusal(&self, errno: Errno, object: Target, rule: &str) -> Refusal {
        self.judge.refusal(self.watched.call, errno, object, rule, self.caller.tid)
    }

    /// Where a connection or a datagram is to go: to the firewall, which wants to know whose it is.
    fn reach(&self, socket: i32, to: SocketAddr) -> Result<Verdict, Unread> {
        if self.judge.unnoted.contains(to) {
            return Ok(Verdict::GoOn);
        }
        let inode = self.caller.socket(socket)?;
        let subject = self.judge.subject(self.caller.tid);
        Ok(Verdict::Tell(Note { subject, inode, protocol: None, destination: to }))
    }
}
