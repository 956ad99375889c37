//! sendto(2), sendmsg(2) and sendmmsg(2).

use super::Sockets;
use super::address::{Destination, destination};
use super::calls::{Behind, is_abstract, refuse, write_whole};
use super::connect::refused_or_failed;
use super::held::{Held, Kind, Tcp};
use super::rules::{Transport, meant};
use super::table::Known;
use super::waiting::{Later, Outcome};
use crate::install::firewall::rules::DEFAULT_DENY;
use crate::install::firewall::rules::LO;
use crate::observe::act::Sent;
use crate::observe::caller::Unread;
use crate::observe::calls::Structures;
use crate::observe::connectors::Note;
use crate::observe::decode::messages::{Control, Fault, Layout, Message, message, native, piece};
use crate::observe::judge::{Looked, Verdict};
use crate::observe::threads;
use crate::observe::told::Target;
use crate::sys::message::{send_message, signal_thread};
use nix::errno::Errno;
use nix::libc;
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `UIO_MAXIOV`: sendmmsg(2) sends no more at once.
const MESSAGES_MAX: u32 = 1024;
/// Most data of one sendmmsg(2), in bytes; what is beyond is sent by the next call.
const TOGETHER_MAX: usize = 4 << 20;
/// asm-generic/socket.h: without SO_ZEROCOPY it means nothing, and that option is refused.
const MSG_ZEROCOPY: i32 = 0x400_0000;

/// One message as it is sent from here.
#[derive(Default)]
struct Ready {
    name: Vec<u8>,
    data: Vec<u8>,
    control: Vec<u8>,
    /// Who is to be told of before it is sent.
    note: Option<Note>,
    /// What is told if the name is refused.
    refusal: Option<Box<crate::observe::told::Refusal>>,
    /// Keeps what the name goes through.
    _named: Option<super::connect::Named>,
}

/// Where the lengths of the messages of sendmmsg(2) are written.
struct Lengths {
    memory: OwnedFd,
    first: u64,
    stride: u64,
}

impl Looked<'_> {
    pub(super) fn send(&self, sockets: &Arc<Sockets>, fd: i32, flags: i32, sent: &Sent) -> Result<Verdict, Unread> {
        let held = match self.behind(sockets, fd)? {
            Err(verdict) => return Ok(verdict),
            Ok(Behind::Held(held)) => held,
            Ok(Behind::Known(Known::Unix)) if !sockets.rules.masked.is_empty() && !self.is_unaddressed(sent)? => {
                return Ok(self.unknown());
            }
            Ok(Behind::Known(_)) => return Ok(self.unaddressed(sockets)),
            Ok(Behind::Unknown) => return Ok(self.unknown()),
        };
        if held.kind.is_tcp() && held.tcp() == Tcp::Beyond {
            sockets.table.release(&held);
            return Ok(self.unaddressed(sockets));
        }
        let layout = self.layout();
        let messages = match self.messages(sent, layout) {
            Ok(messages) => messages,
            Err(Fault::Errno(errno)) => return Ok(Verdict::RefuseSilently(errno)),
            Err(Fault::Unread(unread)) => return Err(unread),
        };
        if !held.kind.is_inet() && messages.iter().all(|message| self.is_own(sockets, held.kind, &message.name)) {
            // Of one that the kernel will refuse it is told, as on every rung; with those before it sent, at the next call.
            let first = messages.first().map_or(&[][..], |message| &message.name);
            return Ok(self.refused_path(fd, first)?.unwrap_or(Verdict::Passes));
        }
        let mut ready = Vec::new();
        for message in messages {
            match self.ready(sockets, fd, &held, message)? {
                Ok(one) => ready.push(one),
                // What comes before it is sent; the refusal is for the next call.
                Err(_) if !ready.is_empty() => break,
                Err(Refusal::Verdict(verdict)) => return Ok(*verdict),
                Err(Refusal::HasDescriptors) => return Ok(self.unaddressed(sockets)),
            }
        }
        let lengths = match sent {
            Sent::Messages { at, .. } => match self.lengths(*at, layout)? {
                Some(lengths) => Some(lengths),
                // Where the caller's memory can't be written to there is no such call: programs send one by one then.
                None => return Ok(Verdict::RefuseSilently(Errno::ENOSYS)),
            },
            Sent::Piece { .. } | Sent::Message { .. } => None,
        };
        Ok(self.sending(held, flags, ready, lengths))
    }

    fn layout(&self) -> Layout {
        Layout::new(self.call.structures != Structures::Native)
    }

    fn is_unaddressed(&self, sent: &Sent) -> Result<bool, Unread> {
        match self.messages(sent, self.layout()) {
            Ok(messages) => Ok(messages.iter().all(|message| message.name.is_empty())),
            Err(Fault::Errno(_)) => Ok(true),
            Err(Fault::Unread(unread)) => Err(unread),
        }
    }

    fn messages(&self, sent: &Sent, layout: Layout) -> Result<Vec<Message>, Fault> {
        let memory = self.call.caller;
        let read = || -> Result<Result<Vec<Message>, Fault>, Unread> {
            Ok(match sent {
                Sent::Piece { data, length, address } => {
                    piece(memory, *data, *length, address.clone()).map(|one| vec![one])
                }
                Sent::Message { at } => message(memory, *at, layout).map(|one| vec![one]),
                Sent::Messages { at, count } => {
                    let mut messages: Vec<Message> = Vec::new();
                    let mut size = 0;
                    for index in 0..(*count).min(MESSAGES_MAX) {
                        let at = at.wrapping_add(u64::from(index) * layout.many().0);
                        match message(memory, at, layout) {
                            Ok(one) => {
                                size += one.data.len();
                                messages.push(one);
                            }
                            Err(fault) if messages.is_empty() => return Ok(Err(fault)),
                            Err(_) => break,
                        }
                        if size > TOGETHER_MAX {
                            break;
                        }
                    }
                    Ok(messages)
                }
            })
        };
        self.caller.with_memory(read).map_err(Fault::Unread)?
    }

    /// A message as it can be sent from here, or why not.
    fn ready(
        &self,
        sockets: &Arc<Sockets>,
        fd: i32,
        held: &Held,
        message: Message,
    ) -> Result<Result<Ready, Refusal>, Unread> {
        let Message { name, data, mut control, cut } = message;
        let silently = |errno| Ok(Err(Refusal::of(Verdict::RefuseSilently(errno))));
        match held.kind {
            // A socket that is not connected has nowhere to send to, whatever the message says.
            Kind::Inet(Transport::Tcp, _) => Ok(Ok(Ready { data, ..Ready::default() })),
            Kind::Inet(transport, _) => {
                if cut {
                    return silently(Errno::EMSGSIZE);
                }
                let (name, to) = match destination(held.kind, &name, true) {
                    _ if name.is_empty() => (name, None),
                    Destination::To(to, bytes) => (bytes, Some(to)),
                    Destination::Nowhere => (Vec::new(), None),
                    Destination::Malformed => return silently(Errno::EINVAL),
                };
                let (name, note, to) = match to.and_then(|to| self.lead(sockets, held, transport, to)) {
                    Some((name, note)) => (name, Some(note), None),
                    None => (name, None, to),
                };
                if let Some(refusal) = to.and_then(|to| self.refused(sockets, held, transport, to)) {
                    return Ok(Err(Refusal::of(refuse(transport.refusal(), refusal))));
                }
                // The kernel passes over descriptors here.
                control.retain(|one| one.level != libc::SOL_SOCKET || one.kind != libc::SCM_RIGHTS);
                if control.iter().any(leads_away) {
                    let errno = transport.refusal();
                    let verdict = match to.map(meant) {
                        Some(to) => {
                            let ports = transport.has_ports();
                            refuse(errno, self.refusal_of(transport.operation(), errno, to, ports, DEFAULT_DENY))
                        }
                        None => {
                            let object = Target::Text("a message by another device".into());
                            self.refused_on_network(errno, object, DEFAULT_DENY)
                        }
                    };
                    return Ok(Err(Refusal::of(verdict)));
                }
                Ok(Ok(Ready { name, data, control: native(&control), note, ..Ready::default() }))
            }
            Kind::Unix | Kind::Netlink => {
                if cut {
                    return silently(Errno::EMSGSIZE);
                }
                if control.iter().any(|one| one.level == libc::SOL_SOCKET && one.kind == libc::SCM_RIGHTS) {
                    // They are the caller's to send, and where to is not to be changed.
                    let free = name.is_empty() && sockets.rules.masked.is_empty();
                    return Ok(Err(if free { Refusal::HasDescriptors } else { Refusal::of(self.unknown()) }));
                }
                self.as_ours(&mut control);
                if let Some(verdict) = self.refused_path(fd, &name)? {
                    return Ok(Err(Refusal::of(verdict)));
                }
                let is_path = held.kind == Kind::Unix && !name.is_empty() && !is_abstract(&name);
                let named = if is_path { self.named(sockets, &name)? } else { Ok(None) };
                Ok(match named {
                    Ok(Some(named)) => {
                        let name = named.address.clone();
                        Ok(Ready { name, data, control: native(&control), _named: Some(named), ..Ready::default() })
                    }
                    Ok(None) => {
                        let refusal = self.refusal_of_name(&name);
                        Ok(Ready { name, data, control: native(&control), refusal, ..Ready::default() })
                    }
                    Err(verdict) => Err(Refusal::of(verdict)),
                })
            }
        }
    }

    /// Whom a message says to be from (unix(7), SCM_CREDENTIALS): a process may name itself only, and it is this one that sends.
    fn as_ours(&self, control: &mut [Control]) {
        let process = threads::process_of(self.caller.tid).map_or(0, Pid::as_raw);
        for one in control.iter_mut() {
            let is_credentials = one.level == libc::SOL_SOCKET && one.kind == libc::SCM_CREDENTIALS;
            if let (true, Some(pid)) = (is_credentials, one.data.first_chunk_mut::<4>())
                && i32::from_ne_bytes(*pid) == process
            {
                *pid = nix::unistd::getpid().as_raw().to_ne_bytes();
            }
        }
    }

    fn lengths(&self, at: u64, layout: Layout) -> Result<Option<Lengths>, Unread> {
        let memory = self.memory_to_write()?;
        let (stride, offset) = layout.many();
        Ok(memory.map(|memory| Lengths { memory, first: at.wrapping_add(offset), stride }))
    }

    fn sending(&self, held: Arc<Held>, flags: i32, ready: Vec<Ready>, lengths: Option<Lengths>) -> Verdict {
        let tid = self.caller.tid;
        let blocks = held.blocks() && flags & libc::MSG_DONTWAIT == 0;
        let deadline = held.send_timeout().map(|wait| (wait, Errno::EAGAIN));
        // A unix socket can be written to when its peer has room, which is not always whom it sends to.
        let on = held.kind.is_inet().then(|| (held.clone(), PollFlags::POLLOUT));
        let raises = held.kind.is_tcp() && flags & libc::MSG_NOSIGNAL == 0;
        let ours = flags & !MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let note = ready.iter().find_map(|one| one.note.clone());
        let mut done = 0;
        let attempt = move || {
            while let Some(one) = ready.get(done) {
                let sent = {
                    let _alone = held.alone();
                    held.with(|file| send_message(file, &one.name, &one.data, &one.control, ours))
                };
                match (sent, &lengths) {
                    (Ok(sent), None) => return Outcome::Done(sent as i64),
                    (Ok(sent), Some(lengths)) => {
                        if !lengths.write(done, sent) {
                            return if done == 0 { Outcome::Failed(Errno::EFAULT) } else { Outcome::Done(done as i64) };
                        }
                        done += 1;
                    }
                    (Err(_), _) if done > 0 => return Outcome::Done(done as i64),
                    (Err(Errno::EAGAIN), _) if blocks => return Outcome::Blocked,
                    (Err(Errno::EPIPE), _) if raises => return broken(tid),
                    (Err(errno), _) => return refused_or_failed(errno, one.refusal.as_deref()),
                }
            }
            Outcome::Done(done as i64)
        };
        self.later(Later { note, on, deadline, interruptible: true, ..Later::once(tid, attempt) })
    }
}

/// Why a message is not sent from here.
enum Refusal {
    Verdict(Box<Verdict>),
    /// It hands descriptors over.
    HasDescriptors,
}

impl Refusal {
    fn of(verdict: Verdict) -> Refusal {
        Refusal::Verdict(Box::new(verdict))
    }
}

impl Lengths {
    fn write(&self, index: usize, length: usize) -> bool {
        let at = self.first.wrapping_add(index as u64 * self.stride);
        write_whole(&self.memory, at, &(length as u32).to_ne_bytes()).is_ok()
    }
}

/// What a write to a connection that is none ends with (pipe(7), SIGPIPE).
fn broken(tid: Pid) -> Outcome {
    let raised = threads::process_of(tid).ok_or(Errno::ESRCH);
    match raised.and_then(|process| signal_thread(process, tid, Signal::SIGPIPE)) {
        Ok(()) | Err(_) => Outcome::Failed(Errno::EPIPE),
    }
}

/// Whether a control message has its message leave by a device other than `lo` (ip(7), IP_PKTINFO; ipv6(7), IPV6_PKTINFO), or by
/// further hops.
fn leads_away(control: &Control) -> bool {
    // linux/in.h, linux/in6.h: the index comes first in the one and last in the others.
    const PKTINFO_2292: i32 = 2;
    const EXTENSIONS: [i32; 7] =
        [3, 4, 5, libc::IPV6_HOPOPTS, libc::IPV6_RTHDRDSTOPTS, libc::IPV6_RTHDR, libc::IPV6_DSTOPTS];
    let at = match (control.level, control.kind) {
        // The header's own options, and headers beside it: what they lead by is not judged.
        (libc::IPPROTO_IP, libc::IP_RETOPTS) => return true,
        (libc::IPPROTO_IPV6, kind) if EXTENSIONS.contains(&kind) => return true,
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO | PKTINFO_2292) => 16,
        _ => return false,
    };
    let index = control.data.get(at..).and_then(|rest| rest.first_chunk()).map(|index| u32::from_ne_bytes(*index));
    index.is_none_or(|index| index != 0 && index != LO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_its_index() {
        let control = |level, kind, data: &[u8]| Control { level, kind, data: data.to_vec() };
        let v4 = |index: u32| [&index.to_ne_bytes()[..], &[0; 8]].concat();
        let v6 = |index: u32| [&[0; 16][..], &index.to_ne_bytes()].concat();
        for (index, named) in [(0, false), (LO, false), (2, true), (u32::MAX, true)] {
            assert_eq!(leads_away(&control(libc::IPPROTO_IP, libc::IP_PKTINFO, &v4(index))), named);
            for kind in [libc::IPV6_PKTINFO, 2] {
                assert_eq!(leads_away(&control(libc::IPPROTO_IPV6, kind, &v6(index))), named);
            }
        }
        assert!(leads_away(&control(libc::IPPROTO_IP, libc::IP_PKTINFO, &[0; 2])), "too short to tell");
        assert!(!leads_away(&control(libc::IPPROTO_IP, libc::IP_TTL, &v4(2))));
    }
}
