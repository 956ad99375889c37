//! The verdict on a call on a socket.

use super::Sockets;
use super::address::{Destination, destination, names_device, on};
use super::held::{Held, Kind, Led};
use super::rules::{Transport, axis, meant};
use super::table::{Known, Way};
use super::waiting::{Later, Outcome};
use super::{living, make};
use crate::install::firewall::rules::DEFAULT_DENY;
use crate::ledger::escape::{TEXT_LIMIT, escape};
use crate::mutation;
use crate::observe::act::{Act, Address, Made, Place, SocketCall};
use crate::observe::caller::Unread;
use crate::observe::connectors::Note;
use crate::observe::decode;
use crate::observe::judge::{Looked, Verdict};
use crate::observe::told::{Refusal, Target};
use crate::policy::Axis;
use crate::procfs::{self, field};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlink};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::uio::pwrite;
use nix::unistd::Pid;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is behind one of the caller's descriptors.
pub(super) enum Behind {
    /// A socket with its duplicate.
    Held(Arc<Held>),
    /// One that needs none.
    Known(Known),
    /// One that nothing is known of.
    Unknown,
}

/// A refusal that is recorded.
pub(super) fn refuse(errno: Errno, refusal: Refusal) -> Verdict {
    Verdict::Refuse(errno, refusal)
}

/// Whether a process has one thread only: nothing can change its table of descriptors while that one is stopped.
pub(super) fn has_one_thread(tid: Pid) -> bool {
    let status = procfs::read(&format!("/proc/{tid}/status")).unwrap_or_default();
    field(&status, "Threads:") == Some("1")
}

/// Whether a unix socket's address is an abstract name, or asks for one (unix(7)).
pub(super) fn is_abstract(address: &[u8]) -> bool {
    address.first_chunk() == Some(&(libc::AF_UNIX as u16).to_ne_bytes())
        && address.get(2).is_none_or(|first| *first == 0)
}

/// How long a message may wait for a datagram socket that is about to be made.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it may wait for a look-up's to be closed.
const LOOK_UP: Duration = Duration::from_millis(800);
/// How often it is looked meanwhile whether any is in use.
const SWEPT_EVERY: Duration = Duration::from_millis(20);

impl Looked<'_> {
    pub(in crate::observe) fn on_socket(&self, asked: SocketCall) -> Result<Verdict, Unread> {
        let Some(sockets) = &self.judge.sockets else { return Ok(Verdict::GoOn) };
        sockets.table.landed(self.caller.tid);
        match asked {
            SocketCall::Make { family, kind, protocol } => Ok(self.make(sockets, [family, kind, protocol])),
            SocketCall::Bind { socket, address } => self.bind(sockets, socket, address),
            SocketCall::Connect { socket, address } => self.connect(sockets, socket, address),
            SocketCall::Listen { socket, backlog } => self.listen(sockets, socket, backlog),
            SocketCall::Send { socket, flags, sent } => self.send(sockets, socket, flags, &sent),
            SocketCall::Receive { socket, flags, into } => self.receive(sockets, socket, flags, &into),
        }
    }

    fn make(&self, sockets: &Arc<Sockets>, asked: [i32; 3]) -> Verdict {
        let [family, kind, protocol] = asked;
        match make::kind(family, kind, protocol) {
            Ok(what) => self.later(make::make(sockets, self.caller.tid, what, asked)),
            Err(make::Not::Such(errno)) => Verdict::RefuseSilently(errno),
            Err(make::Not::Judged(errno)) => {
                let registers = asked.map(|number| u64::from(number as u32));
                let [a, b, c] = registers;
                let object = Target::Text(crate::observe::describe::registers("socket", &[a, b, c, 0, 0, 0]));
                self.refused_on_network(errno, object, "socket-protocol")
            }
        }
    }

    /// What is behind a descriptor of the caller's, or the verdict where it is no socket.
    pub(super) fn behind(&self, sockets: &Sockets, fd: i32) -> Result<Result<Behind, Verdict>, Unread> {
        let link = format!("/proc/{}/fd/{fd}", self.caller.tid);
        let inode = match self.caller.with_sight(|| readlink(link.as_str()))? {
            Ok(link) => living::inode_of(link.to_str().unwrap_or_default()),
            Err(Errno::ENOENT) => return Ok(Err(Verdict::RefuseSilently(Errno::EBADF))),
            Err(Errno::EACCES | Errno::EPERM) => return Err(Unread::Closed),
            Err(errno) => return Err(Unread::Failed("readlink", errno)),
        };
        let Some(inode) = inode else {
            let errno = if self.caller.has_file(fd)? { Errno::ENOTSOCK } else { Errno::EBADF };
            return Ok(Err(Verdict::RefuseSilently(errno)));
        };
        if let Some(held) = sockets.table.get(inode) {
            return Ok(Ok(Behind::Held(held)));
        }
        if let Some(known) = sockets.table.known(inode) {
            return Ok(Ok(Behind::Known(known)));
        }
        Ok(Ok(match living::listed(inode) {
            Some(known) => {
                sockets.table.remember(inode, known);
                Behind::Known(known)
            }
            None => Behind::Unknown,
        }))
    }

    /// The duplicate of one of the caller's sockets, where there is one.
    pub(in crate::observe) fn held_socket(&self, fd: i32) -> Result<Option<Arc<Held>>, Unread> {
        let Some(sockets) = &self.judge.sockets else { return Ok(None) };
        Ok(match self.behind(sockets, fd)? {
            Ok(Behind::Held(held)) => Some(held),
            _ => None,
        })
    }

    pub(super) fn later(&self, later: Later) -> Verdict {
        Verdict::Later(Box::new(later))
    }

    /// A note of who sends, for the proxy's record of what comes there.
    pub(super) fn note(&self, held: &Held, transport: Transport, to: SocketAddr) -> Note {
        Note {
            subject: self.judge.subject(self.caller.tid),
            inode: Some(held.inode),
            protocol: Some(if transport == Transport::Tcp { libc::IPPROTO_TCP as u8 } else { libc::IPPROTO_UDP as u8 }),
            destination: to,
        }
    }

    /// Leads a socket of the inet families that is to go to `to` elsewhere, if that is caught: the address that the kernel is
    /// told, and the note of who sends. What names further hops in its header is not.
    pub(super) fn lead(
        &self,
        sockets: &Sockets,
        held: &Held,
        transport: Transport,
        to: SocketAddr,
    ) -> Option<(Vec<u8>, Note)> {
        let asked = meant(to);
        let there = sockets.rules.leads(transport, asked).filter(|_| !mutation::left_out("catch"))?;
        if held.has_header_options() {
            return None;
        }
        if transport != Transport::Tcp {
            held.lead(Led { asked, to: there });
        }
        Some((on(held.kind, there), self.note(held, transport, there)))
    }

    /// The caller's memory, open to be written to (proc_pid_mem(5)); `None` where it cannot be.
    pub(super) fn memory_to_write(&self) -> Result<Option<OwnedFd>, Unread> {
        let path = format!("/proc/{}/mem", self.caller.tid);
        let opened = || Ok(open(path.as_str(), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).ok());
        let memory = self.caller.with_memory(opened)?;
        self.caller.still_waits()?;
        Ok(memory)
    }

    /// The refusal of a destination.
    pub(super) fn refusal_of(&self, operation: &str, errno: Errno, to: SocketAddr, ports: bool, rule: &str) -> Refusal {
        let object = Target::Address(to.ip(), ports.then_some(to.port()));
        Refusal { operation: operation.to_owned(), axis: Some(axis(rule)), ..self.refusal(errno, object, rule) }
    }

    /// The refusal of where a socket of the inet families is to go, if it is refused. What names further hops in its header
    /// goes nowhere, as with the firewall.
    pub(super) fn refused(
        &self,
        sockets: &Sockets,
        held: &Held,
        transport: Transport,
        to: SocketAddr,
    ) -> Option<Refusal> {
        let to = meant(to);
        if mutation::left_out("socket-rules") {
            return None;
        }
        let rule = sockets.rules.refuses(transport, to);
        let rule = rule.or_else(|| held.has_header_options().then_some(DEFAULT_DENY))?;
        Some(self.refusal_of(transport.operation(), transport.refusal(), to, transport.has_ports(), rule))
    }

    pub(super) fn refused_on_network(&self, errno: Errno, object: Target, rule: &str) -> Verdict {
        refuse(errno, Refusal { axis: Some(Axis::Network), ..self.refusal(errno, object, rule) })
    }

    /// The refusal of an abstract name by this process's Landlock domain, which answers for the command's; as the kernel's
    /// audit tells it where it is read.
    pub(super) fn refusal_of_name(&self, address: &[u8]) -> Option<Box<Refusal>> {
        if !is_abstract(address) || address.len() < 3 {
            return None;
        }
        let object = Target::Text(escape(&address[3..], TEXT_LIMIT));
        let refusal = self.refusal(Errno::EPERM, object, "scope");
        Some(Box::new(Refusal { axis: Some(Axis::Privilege), operation: "connect".to_owned(), ..refusal }))
    }

    /// A socket that did not come from here.
    pub(super) fn unknown(&self) -> Verdict {
        self.refused_on_network(Errno::EPERM, Target::Text("a socket that was not made here".into()), DEFAULT_DENY)
    }

    /// Whether a call on a socket of the unix or netlink family may be left to its caller: no other thread can put another
    /// socket in its place, and where it can go by its address is for the kernel to say.
    pub(super) fn is_own(&self, sockets: &Sockets, kind: Kind, address: &[u8]) -> bool {
        let free = match kind {
            Kind::Inet(..) => false,
            Kind::Netlink => true,
            // Who listens at an abstract name has its socket from here, out of the caller's own Landlock domain.
            Kind::Unix => sockets.rules.masked.is_empty() && !is_abstract(address),
        };
        free && has_one_thread(self.caller.tid)
    }

    fn bind(&self, sockets: &Arc<Sockets>, fd: i32, address: Vec<u8>) -> Result<Verdict, Unread> {
        if address.len() < 2 {
            return Ok(Verdict::RefuseSilently(Errno::EINVAL));
        }
        let behind = match self.behind(sockets, fd)? {
            Ok(behind) => behind,
            Err(verdict) => return Ok(verdict),
        };
        let held = match behind {
            Behind::Held(held) => held,
            Behind::Known(Known::Tcp) => return Ok(Verdict::RefuseSilently(Errno::EINVAL)),
            Behind::Known(Known::Unix) if has_one_thread(self.caller.tid) => return Ok(Verdict::Passes),
            Behind::Known(Known::Netlink) if has_one_thread(self.caller.tid) => return Ok(Verdict::Passes),
            Behind::Known(_) => return Ok(Verdict::RefuseSilently(Errno::EINVAL)),
            Behind::Unknown => return Ok(self.unknown()),
        };
        if let Some(verdict) = self.refused_name(fd, &address)? {
            return Ok(verdict);
        }
        match held.kind {
            Kind::Unix if self.is_own(sockets, held.kind, &address) => Ok(Verdict::Passes),
            Kind::Netlink if self.is_own(sockets, held.kind, &address) => Ok(Verdict::Passes),
            Kind::Unix => self.bind_unix(&held, address),
            Kind::Inet(transport, _) if names_device(held.kind, &address) => {
                let Destination::To(at, _) = destination(held.kind, &address, false) else {
                    return Ok(Verdict::RefuseSilently(Errno::EINVAL));
                };
                let errno = Errno::EADDRNOTAVAIL;
                Ok(refuse(errno, self.refusal_of("bind", errno, at, transport.has_ports(), DEFAULT_DENY)))
            }
            Kind::Inet(..) | Kind::Netlink => {
                let (sockets, tid) = (sockets.clone(), self.caller.tid);
                Ok(self.later(Later::once(tid, move || {
                    if let Some(port) = address.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]])) {
                        free_port(&sockets, &held, port);
                    }
                    done(held.bind(&address))
                })))
            }
        }
    }

    /// The verdict on the name or the port that a socket is to have, by what is asked of the kernel on every rung; `None` where
    /// nothing is refused.
    fn refused_name(&self, socket: i32, address: &[u8]) -> Result<Option<Verdict>, Unread> {
        let act = match decode::address(address) {
            Address::Unix(at) => Act::Make(Place { follow: false, ..at }, Made::Socket(socket)),
            Address::Inet(to) => Act::BindPort { socket, port: to.port(), address: address.to_vec() },
            Address::Other => return Ok(None),
        };
        Ok(Some(self.verdict(act)?).filter(|verdict| matches!(verdict, Verdict::Refuse(..))))
    }

    fn listen(&self, sockets: &Arc<Sockets>, fd: i32, backlog: i32) -> Result<Verdict, Unread> {
        Ok(match self.behind(sockets, fd)? {
            Err(verdict) => verdict,
            Ok(Behind::Held(held)) if held.kind.is_inet() => {
                let sockets = sockets.clone();
                self.later(Later::once(self.caller.tid, move || {
                    let outcome = held.listen(backlog);
                    if outcome.is_ok() {
                        sockets.table.release(&held);
                    }
                    done(outcome)
                }))
            }
            // Whom a unix socket's peers see is who has listened. Nothing comes of listening on another one than was meant.
            Ok(Behind::Held(held)) => {
                sockets.table.release(&held);
                Verdict::Passes
            }
            Ok(Behind::Known(_)) => Verdict::Passes,
            Ok(Behind::Unknown) => self.unknown(),
        })
    }

    /// A message on a socket of which there is no duplicate: it goes on if nothing can take the socket's place.
    pub(super) fn unaddressed(&self, sockets: &Arc<Sockets>) -> Verdict {
        if has_one_thread(self.caller.tid) {
            return Verdict::Passes;
        }
        let (sockets, tid, id) = (sockets.clone(), self.caller.tid, self.caller.cookie());
        let object = Target::Text("a message while datagram sockets are open".into());
        let refusal = self.refusal(Errno::EPERM, object, DEFAULT_DENY);
        let refusal = Refusal { axis: Some(Axis::Network), ..refusal };
        // Where names are answered a datagram socket may be that of a look-up, which is over soon.
        let waits = if sockets.rules.caught.is_some() { LOOK_UP } else { Duration::ZERO };
        let (since, mut swept) = (Instant::now(), None);
        let attempt = move || {
            let now = Instant::now();
            let way = match sockets.table.ask_way(tid, id) {
                Way::Barred if swept.is_none_or(|swept| now.duration_since(swept) >= SWEPT_EVERY) => {
                    sweep_datagrams(&sockets);
                    swept = Some(now);
                    sockets.table.ask_way(tid, id)
                }
                way => way,
            };
            match way {
                Way::Free => Outcome::GoesOn,
                Way::NotYet => Outcome::Blocked,
                Way::Barred if now.duration_since(since) < waits => Outcome::Blocked,
                Way::Barred => Outcome::Refused(Errno::EPERM, Box::new(refusal.clone())),
            }
        };
        self.later(Later { deadline: Some((PATIENCE, Errno::ENOBUFS)), ..Later::once(tid, attempt) })
    }
}

/// Looks twice whether datagram sockets are in use: what is moved from one descriptor to another may be missed once.
fn sweep_datagrams(sockets: &Sockets) {
    (0..2).for_each(|_| sockets.table.sweep(1, |held| held.kind.is_inet_datagram()));
}

/// A port is free again when the command's last descriptor of its socket is closed, which is looked for here.
fn free_port(sockets: &Sockets, but: &Held, port: u16) {
    let has = |held: &Held| port != 0 && held.inode != but.inode && held.port() == Some(port);
    if sockets.table.any(has) {
        (0..2).for_each(|_| sockets.table.sweep(1, has));
    }
}

/// Writes all of it into a caller's memory.
pub(super) fn write_whole(memory: &OwnedFd, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let at = i64::try_from(at).map_err(|_| Errno::EFAULT)?;
    match pwrite(memory, bytes, at) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) | Err(_) => Err(Errno::EFAULT),
    }
}

pub(super) fn done(outcome: Result<(), Errno>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Done(0),
        Err(errno) => Outcome::Failed(errno),
    }
}
