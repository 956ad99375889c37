//! Who caused what the proxy and the firewall refused: the proxy knows the client's address, the firewall a packet's. From
//! there the way goes by the socket, by what the notifier saw, and by the descriptors of the run's processes.
//!
//! It runs in the supervisor, while the proxy waits for an answer, so it may take a share of the time and no more.

use crate::ledger::record::Subject;
use crate::observe::connectors::{Connectors, Found, Note};
use crate::observe::nflog::{Logged, Packet};
use crate::observe::socket_owner::{Flow, Holder, Owner, Search, SocketOwner, TCP, UDP};
use crate::observe::subject::Process;
use crate::proxy::record::Connection;
use nix::unistd::{Pid, getpid};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the result of a search for a socket's holder is good for.
const HOLDER_GOOD_FOR: Duration = Duration::from_millis(250);
/// Most results that are kept.
const HOLDER_LIMIT: usize = 1024;
/// Most sockets of one process that are looked for before its datagrams are left unattributed.
const SOCKET_LIMIT: usize = 8;

/// Whose acts the records are of.
#[derive(Debug, Clone, Copy)]
struct Command {
    uid: u32,
    stage: u32,
}

/// A process that was found to hold a socket, or that none could be named.
#[derive(Debug)]
struct Held {
    searched: Instant,
    by: Option<(Holder, Process)>,
}

/// Names the process behind a denial of the network.
#[derive(Debug, Default)]
pub struct Attribution {
    command: Option<Command>,
    notes: Connectors,
    sockets: SocketOwner,
    held: HashMap<u64, Held>,
    budget: Budget,
}

impl Attribution {
    /// The command's uid, and the process that all of its processes descend from.
    pub fn command(&mut self, uid: u32, stage: Pid) {
        self.command = Some(Command { uid, stage: stage.as_raw().unsigned_abs() });
    }

    /// The command's sockets are in the network namespace in which this socket of the monitor (sock_diag(7)) was opened.
    pub fn sockets_of(&mut self, monitor: OwnedFd) {
        self.sockets = SocketOwner::elsewhere(monitor);
    }

    /// Forgets what was noted so far.
    pub fn begin(&mut self) {
        self.notes.clear();
        self.held.clear();
    }

    /// Takes what the notifier saw.
    pub fn note(&mut self, note: Note) {
        self.notes.take(note, Instant::now());
    }

    /// Some notes were lost.
    pub fn missed_notes(&mut self) {
        self.notes.missed(Instant::now());
    }

    /// Who asked the proxy on this connection, which must still be open.
    pub fn of_client(&mut self, on: Option<Connection>) -> Subject {
        let Some(on) = on else { return Subject::default() };
        let begun = Instant::now();
        if !self.budget.allows(begun) {
            return Subject::default();
        }
        let protocol = if on.datagram { UDP } else { TCP };
        let found = match self.sockets.of(Flow { protocol, local: on.client, remote: on.proxy }) {
            Owner::Socket(inode) if on.datagram => match self.notes.by_question(inode) {
                Found::One(subject) => Some(*subject),
                Found::Several => None,
                Found::Nobody => self.of_socket(inode, on.proxy),
            },
            Owner::Socket(inode) => self.of_socket(inode, on.proxy),
            Owner::NoSocket | Owner::Undecided => None,
        };
        self.budget.spend(begun.elapsed());
        found.unwrap_or_default()
    }

    /// Who sent the packet. What is not known of it beside the uid that opened its socket is null.
    pub fn of_packet(&mut self, logged: &Logged) -> Subject {
        let begun = Instant::now();
        let found = logged.packet.and_then(|packet| {
            let destination = SocketAddr::new(packet.dst, packet.dport?);
            match packet.protocol {
                TCP => self.of_connection(&packet, destination, begun),
                UDP => self.of_datagram(&packet, destination, begun),
                _ => None,
            }
        });
        self.budget.spend(begun.elapsed());
        found.unwrap_or_else(|| Subject { uid: logged.uid, ..Subject::default() })
    }

    fn of_connection(&mut self, packet: &Packet, destination: SocketAddr, now: Instant) -> Option<Subject> {
        let allowed = self.budget.allows(now);
        let Attribution { notes, sockets, .. } = self;
        let mut socket = || if allowed { sender(sockets, packet, destination) } else { Owner::Undecided };
        // A note is used up by its packet even where there is no time for more.
        match notes.refused(TCP, destination, now, &mut socket) {
            Found::One(subject) => Some(*subject),
            Found::Several => None,
            Found::Nobody => match socket() {
                Owner::Socket(inode) => self.of_holder(inode),
                Owner::NoSocket | Owner::Undecided => None,
            },
        }
    }

    fn of_datagram(&mut self, packet: &Packet, destination: SocketAddr, now: Instant) -> Option<Subject> {
        if !self.budget.allows(now) {
            return None;
        }
        match sender(&mut self.sockets, packet, destination) {
            Owner::Socket(inode) => self.of_socket(inode, destination),
            Owner::Undecided => None,
            // The socket is closed; whoever sent there of late has closed it.
            Owner::NoSocket => {
                let (Found::One(subject), mut sockets) = self.notes.by_destination(UDP, destination, now) else {
                    return None;
                };
                sockets.sort_unstable();
                sockets.dedup();
                let pid = subject.pid?;
                let closed =
                    |inode: Option<u64>| inode.is_none_or(|inode| Search::new(inode).in_process(pid) == Some(false));
                (sockets.len() <= SOCKET_LIMIT && sockets.into_iter().any(closed)).then_some(*subject)
            }
        }
    }

    fn of_socket(&mut self, inode: u64, destination: SocketAddr) -> Option<Subject> {
        match self.notes.by_socket(inode, destination) {
            Found::One(subject) => Some(*subject),
            Found::Several => None,
            Found::Nobody => self.of_holder(inode),
        }
    }

    /// The one process of the command's that holds a socket.
    fn of_holder(&mut self, inode: u64) -> Option<Subject> {
        let command = self.command?;
        let now = Instant::now();
        if let Some(held) = self.held.get(&inode)
            && now.saturating_duration_since(held.searched) <= HOLDER_GOOD_FOR
        {
            let Some((holder, process)) = &held.by else { return None };
            if holder.still_holds(inode) && process.is_unchanged() {
                return Some(process.subject.clone());
            }
        }
        let by = find(inode, command);
        let subject = by.as_ref().map(|(_, process)| process.subject.clone());
        if self.held.len() >= HOLDER_LIMIT {
            self.held.clear();
        }
        self.held.insert(inode, Held { searched: now, by });
        subject
    }
}

fn sender(sockets: &mut SocketOwner, packet: &Packet, destination: SocketAddr) -> Owner {
    let Some(port) = packet.sport else { return Owner::Undecided };
    sockets.of(Flow { protocol: packet.protocol, local: SocketAddr::new(packet.src, port), remote: destination })
}

fn find(inode: u64, command: Command) -> Option<(Holder, Process)> {
    let holder = Search::new(inode).among(command.uid);
    let Holder::One { pid, .. } = holder else { return None };
    // After a handover it is another process that asks, so its id is not kept.
    let process = Process::whole(pid, &[command.stage, getpid().as_raw().unsigned_abs()])?;
    // Whoever holds it after it was read held it while it was read: a process's id is not given away before its end.
    (holder.still_holds(inode) && process.is_unchanged()).then_some((holder, process))
}

/// The time that may be spent: a quarter of what passes, and half a second ahead. What is overspent is owed.
#[derive(Debug)]
struct Budget {
    /// In nanoseconds; negative where it is owed.
    left: i64,
    filled: Option<Instant>,
}

/// What may be spent at once, in nanoseconds.
const AHEAD: i64 = 500_000_000;
/// The part of the time that may be spent, as its divisor.
const SHARE: i64 = 4;

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: AHEAD, filled: None }
    }
}

impl Budget {
    fn allows(&mut self, now: Instant) -> bool {
        let passed = self.filled.map_or(Duration::ZERO, |filled| now.saturating_duration_since(filled));
        self.left = self.left.saturating_add(nanoseconds(passed) / SHARE).min(AHEAD);
        self.filled = Some(now);
        self.left > 0
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(nanoseconds(time));
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "attribution_tests.rs"]
mod tests;
