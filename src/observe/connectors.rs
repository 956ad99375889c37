//! Who connected where: what the notifier saw of connects and addressed sends, kept for the records that follow them.
//!
//! A note is taken while the caller is stopped, so it comes before the packet, and before the request to the proxy. Whoever asks
//! here for a record must have taken in every note that was there *after* the record was read: the note of a packet that
//! is in the firewall's log is on its way by then.
//!
//! The answer is a process, or that it cannot be told; never the likeliest one.

use crate::ledger::escape::printable;
use crate::ledger::record::Subject;
use crate::observe::socket_owner::{Owner, plain};
use crate::observe::subject::{ANCESTOR_LIMIT, ARGUMENT_LIMIT};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most notes that are kept; the oldest goes first.
pub const NOTE_LIMIT: usize = 4096;
/// Most bytes that the kept notes take, about.
pub const NOTES_SIZE_LIMIT: usize = 8 << 20;
/// How long a note can stand for a packet by its destination alone. The packet of a call follows its note at once; what has
/// not come by then was never sent, and a later packet to the same place is another call's.
pub const FRESH: Duration = Duration::from_secs(5);

/// One `connect`, or one send with an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Who calls.
    pub subject: Subject,
    /// The inode of the socket that is called on; `None` when it could not be read.
    pub inode: Option<u64>,
    /// The transport protocol's number (IANA), where it is known.
    pub protocol: Option<u8>,
    /// Where to, as the caller gave it.
    pub destination: SocketAddr,
}

/// What the notes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// This process.
    One(Box<Subject>),
    /// It may have been any of several.
    Several,
    /// No note is of it.
    Nobody,
}

/// A note as it is kept. Notes of one process to one destination share their subject.
#[derive(Debug, Clone)]
struct Kept {
    number: u64,
    subject: Rc<Subject>,
    inode: Option<u64>,
    protocol: Option<u8>,
    destination: SocketAddr,
    taken: Instant,
    size: usize,
}

/// The notes to one destination, and how many of their packets have been seen that could not be told apart.
#[derive(Debug, Default)]
struct Pending {
    notes: VecDeque<Kept>,
    owed: usize,
}

/// The notes of a run.
#[derive(Debug, Default)]
pub struct Connectors {
    kept: BTreeMap<u64, Kept>,
    pending: HashMap<SocketAddr, Pending>,
    next: u64,
    size: usize,
    /// Until then there may be packets on their way whose notes are missing.
    incomplete: Option<Instant>,
}

impl Connectors {
    /// Takes a note. Its sender shares the command's uid: nothing of it is trusted to be printable or short.
    pub fn take(&mut self, note: Note, now: Instant) {
        let Note { subject, inode, protocol, destination } = note;
        let (subject, destination) = (own(subject), reached(destination));
        let pending = self.pending.entry(destination).or_default();
        let before = pending.notes.back().map(|kept| &kept.subject).filter(|before| ***before == subject).cloned();
        let size = size(Some(&subject).filter(|_| before.is_none()));
        let subject = before.unwrap_or_else(|| Rc::new(subject));
        let number = self.next;
        let kept = Kept { number, subject, inode, protocol, destination, taken: now, size };
        pending.notes.push_back(kept.clone());
        self.kept.insert(number, kept);
        self.next += 1;
        self.size += size;
        while self.kept.len() > NOTE_LIMIT || self.size > NOTES_SIZE_LIMIT {
            let Some((oldest, kept)) = self.kept.first_key_value() else { break };
            if now.saturating_duration_since(kept.taken) <= FRESH {
                self.incomplete = Some(now + FRESH);
            }
            self.forget(*oldest);
        }
    }

    /// Some notes have not come: for a while only sockets tell whose a packet is.
    pub fn missed(&mut self, now: Instant) {
        self.incomplete = Some(now + FRESH);
    }

    /// Forgets everything: what the probes did is none of the command's.
    pub fn clear(&mut self) {
        (self.kept, self.pending, self.size) = Default::default();
    }

    /// Who called on the socket with this inode, for this destination.
    pub fn by_socket(&self, inode: u64, destination: SocketAddr) -> Found {
        let destination = reached(destination);
        one_of(self.kept.values().filter(|kept| kept.inode == Some(inode) && kept.destination == destination))
    }

    /// Who called on the socket with this inode, to have it ask a resolver. Which one is not told: what is caught arrives where
    /// the proxy is.
    pub fn by_question(&self, inode: u64) -> Found {
        const PORT: u16 = 53;
        one_of(self.kept.values().filter(|kept| kept.inode == Some(inode) && kept.destination.port() == PORT))
    }

    /// Who sent the datagrams to this destination of late, and the sockets that they called on.
    pub fn by_destination(&self, protocol: u8, destination: SocketAddr, now: Instant) -> (Found, Vec<Option<u64>>) {
        let fresh = || self.fresh(protocol, reached(destination), now);
        (self.if_complete(one_of(fresh()), now), fresh().map(|kept| kept.inode).collect())
    }

    /// Who made the connection to this destination whose first packet was refused. Each note stands for one packet.
    ///
    /// `socket` tells which socket sent it, where several processes come into question and the kernel still knows.
    pub fn refused(
        &mut self,
        protocol: u8,
        destination: SocketAddr,
        now: Instant,
        socket: impl FnOnce() -> Owner,
    ) -> Found {
        let destination = reached(destination);
        self.forget_answered(protocol, destination, now);
        let mut used = self.fresh(protocol, destination, now).next().map(|kept| kept.number);
        let mut found = self.if_complete(one_of(self.fresh(protocol, destination, now)), now);
        if found == Found::Several {
            used = None;
            if let Owner::Socket(inode) = socket() {
                let of_socket = || self.fresh(protocol, destination, now).filter(|kept| kept.inode == Some(inode));
                if let by_socket @ Found::One(_) = one_of(of_socket()) {
                    found = by_socket;
                    used = of_socket().next().map(|kept| kept.number);
                }
            }
        }
        match (used, self.pending.get_mut(&destination)) {
            (Some(number), _) => self.forget(number),
            // Which note it was is unknown, and stays so for the others: one of them is void.
            (None, Some(pending)) => pending.owed += 1,
            (None, None) => {}
        }
        self.forget_answered(protocol, destination, now);
        found
    }

    /// What the notes say by their destination holds only if none is missing.
    fn if_complete(&self, found: Found, now: Instant) -> Found {
        match found {
            Found::One(_) if self.incomplete.is_some_and(|until| now <= until) => Found::Several,
            found => found,
        }
    }

    fn fresh(&self, protocol: u8, destination: SocketAddr, now: Instant) -> impl Iterator<Item = &Kept> {
        let notes = self.pending.get(&destination).into_iter().flat_map(|pending| &pending.notes);
        notes.filter(move |kept| {
            kept.protocol.is_none_or(|noted| noted == protocol) && now.saturating_duration_since(kept.taken) <= FRESH
        })
    }

    /// Once as many packets have been seen as there are notes left, none of them stands for another one.
    fn forget_answered(&mut self, protocol: u8, destination: SocketAddr, now: Instant) {
        let owed = self.pending.get(&destination).map_or(0, |pending| pending.owed);
        if owed == 0 {
            return;
        }
        let fresh: Vec<u64> = self.fresh(protocol, destination, now).map(|kept| kept.number).take(owed + 1).collect();
        if fresh.len() > owed {
            return;
        }
        if let Some(pending) = self.pending.get_mut(&destination) {
            pending.owed = 0;
        }
        fresh.into_iter().for_each(|number| self.forget(number));
        if self.pending.get(&destination).is_some_and(|pending| pending.notes.is_empty()) {
            self.pending.remove(&destination);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(kept) = self.kept.remove(&number) else { return };
        self.size -= kept.size;
        if let Some(pending) = self.pending.get_mut(&kept.destination) {
            // They are in the order of their numbers.
            if let Ok(at) = pending.notes.binary_search_by_key(&number, |kept| kept.number) {
                pending.notes.remove(at);
            }
            if pending.notes.is_empty() {
                self.pending.remove(&kept.destination);
            }
        }
    }
}

/// The one process that all notes are of. What differs between its calls, as two threads' names do, is left unknown.
fn one_of<'n>(notes: impl IntoIterator<Item = &'n Kept>) -> Found {
    let mut notes = notes.into_iter().map(|kept| &kept.subject);
    let Some(mut last) = notes.next() else { return Found::Nobody };
    let mut one = Subject::clone(last);
    for other in notes {
        if other.pid.is_some() && Rc::ptr_eq(last, other) {
            continue;
        }
        // A number alone may have been given to another process, and the same one may run another program by now.
        if other.pid.is_none() || (other.pid, &other.exe, &other.argv) != (one.pid, &one.exe, &one.argv) {
            return Found::Several;
        }
        one.comm = one.comm.filter(|comm| other.comm.as_ref() == Some(comm));
        one.uid = one.uid.filter(|uid| other.uid == Some(*uid));
        one.ancestors = one.ancestors.filter(|names| other.ancestors.as_ref() == Some(names));
        last = other;
    }
    Found::One(Box::new(one))
}

/// The address that packets to `address` have: of a connection to no address at all it is the loopback one.
fn reached(address: SocketAddr) -> SocketAddr {
    let mut address = plain(address);
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn own(subject: Subject) -> Subject {
    let text = |text: String| printable(&text).into_owned();
    let list = |texts: Vec<String>, limit: usize| texts.into_iter().take(limit).map(text).collect();
    Subject {
        pid: subject.pid,
        uid: subject.uid,
        comm: subject.comm.map(text),
        exe: subject.exe.map(text),
        argv: subject.argv.map(|argv| list(argv, ARGUMENT_LIMIT + 1)),
        ancestors: subject.ancestors.map(|names| list(names, ANCESTOR_LIMIT)),
    }
}

/// About what a note takes, with its subject where it is not another's too.
fn size(subject: Option<&Subject>) -> usize {
    const PLACE: usize = 400;
    const TEXT: usize = 24;
    let texts = subject.into_iter().flat_map(|subject| {
        let names = subject.comm.iter().chain(&subject.exe);
        names.chain(subject.argv.iter().flatten()).chain(subject.ancestors.iter().flatten())
    });
    PLACE + texts.map(|text| TEXT + text.len()).sum::<usize>()
}

#[cfg(test)]
#[path = "connectors_tests.rs"]
mod tests;
