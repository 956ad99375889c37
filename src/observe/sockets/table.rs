//! The sockets that were made for the command, by inode, and the calls that may not have one of them put in their way.

use super::held::{Held, Kind};
use super::living;
use super::rules::Transport;
use crate::procfs;
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A socket of which no duplicate is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// TCP that is connected, was accepted, or listens.
    Tcp,
    /// Of AF_UNIX.
    Unix,
    /// Of AF_NETLINK.
    Netlink,
}

/// Kinds that are remembered, so that the kernel's lists need not be read at each call. Which is no more than that: all are
/// forgotten when there are too many.
const KNOWN_LIMIT: usize = 4096;

/// There is one entry a thread; more of them are looked through for threads that have ended.
const FLIGHT_LIMIT: usize = 1024;

/// A message that has been let into the kernel for a process whose descriptors other threads can change meanwhile.
#[derive(Debug, Clone, Copy)]
struct Flight {
    id: u64,
    /// Whether its caller has been woken.
    gone_on: bool,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<u64, Arc<Held>>,
    known: HashMap<u64, Known>,
    flights: HashMap<i32, Flight>,
    /// Datagram sockets that are about to be made.
    making: usize,
}

/// The sockets of one run.
#[derive(Debug, Default)]
pub struct Table(Mutex<State>);

/// Whether a message may go on whose caller's descriptors can change meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// No datagram socket can take its socket's place, and none is made before it has found it.
    Free,
    /// One is about to be made.
    NotYet,
    /// There is one.
    Barred,
}

impl Table {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a socket, before the command has it.
    pub fn insert(&self, held: &Arc<Held>) {
        let mut state = self.state();
        state.known.remove(&held.inode);
        state.held.insert(held.inode, held.clone());
    }

    /// A socket by its inode.
    pub fn get(&self, inode: u64) -> Option<Arc<Held>> {
        self.state().held.get(&inode).cloned()
    }

    /// Those of which a connection is on its way that nobody waits for. Of no others is anything kept here beyond a call: a
    /// duplicate that is let go closes.
    pub fn connecting(&self) -> Vec<Arc<Held>> {
        let state = self.state();
        state.held.values().filter(|held| held.connecting.load(Relaxed)).cloned().collect()
    }

    /// Whether there is one of which that is true.
    pub fn any(&self, of: impl Fn(&Held) -> bool) -> bool {
        self.state().held.values().any(|held| of(held))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.state().held.len()
    }

    /// The command could not be given it.
    pub fn forget(&self, held: &Held) {
        self.state().held.remove(&held.inode);
        held.let_go();
    }

    /// The duplicate of a socket that is connected or listens is dropped: from here on only the command has it, and its last
    /// close is heard by the peer. It can't be told to go anywhere else.
    pub fn release(&self, held: &Held) {
        let known = match held.kind {
            Kind::Inet(Transport::Tcp, _) => Known::Tcp,
            Kind::Unix => Known::Unix,
            Kind::Netlink => Known::Netlink,
            // Of datagrams there always is a duplicate.
            Kind::Inet(..) => return,
        };
        let mut state = self.state();
        if state.held.remove(&held.inode).is_some() {
            state.remember(held.inode, known);
        }
        drop(state);
        held.let_go();
    }

    /// What is known of a socket that is not among them.
    pub fn known(&self, inode: u64) -> Option<Known> {
        self.state().known.get(&inode).copied()
    }

    /// The kernel has listed it as that, while whoever has it was stopped.
    pub fn remember(&self, inode: u64, known: Known) {
        let mut state = self.state();
        if !state.held.contains_key(&inode) {
            state.remember(inode, known);
        }
    }

    /// Asks for a way for a message of a thread that is stopped in the call with this cookie.
    pub fn ask_way(&self, tid: Pid, id: u64) -> Way {
        let mut state = self.state();
        if state.has_datagrams() {
            return Way::Barred;
        }
        if state.making > 0 {
            return Way::NotYet;
        }
        if state.flights.len() >= FLIGHT_LIMIT {
            state.land();
        }
        state.flights.insert(tid.as_raw(), Flight { id, gone_on: false });
        Way::Free
    }

    /// A message has been let into the kernel, or its caller is gone.
    pub fn gone_on(&self, tid: Pid, id: u64) {
        if let Some(flight) = self.state().flights.get_mut(&tid.as_raw()).filter(|flight| flight.id == id) {
            flight.gone_on = true;
        }
    }

    /// A thread makes another call: what it had sent has found its socket.
    pub fn landed(&self, tid: Pid) {
        self.state().flights.remove(&tid.as_raw());
    }

    /// From here on no message gets a way, until [`Table::made`].
    pub fn begin_making(&self) {
        self.state().making += 1;
    }

    /// Whether no message is under way any more that has yet to find its socket.
    pub fn is_quiet(&self) -> bool {
        let mut state = self.state();
        state.land();
        state.flights.is_empty()
    }

    /// What [`Table::begin_making`] was for is in the table, or will not be made.
    pub fn made(&self) {
        let mut state = self.state();
        state.making = state.making.saturating_sub(1);
    }

    /// Drops what no process has any more, of the sockets that `concerns` is true of. What was missed less than `patience` times
    /// before is only noted: it may be on its way from one process to another.
    pub fn sweep(&self, patience: u32, concerns: impl Fn(&Held) -> bool) {
        let looked_for: HashSet<u64> = {
            let state = self.state();
            let held = state.held.values().filter(|held| held.given.load(Relaxed) && concerns(held));
            held.filter(|held| !held.is_where_it_was()).map(|held| held.inode).collect()
        };
        if looked_for.is_empty() {
            return;
        }
        let living = living::holders(looked_for.clone());
        let mut state = self.state();
        for inode in looked_for {
            let Some(held) = state.held.get(&inode) else { continue };
            if let Some(place) = living.get(&inode) {
                held.is_at(place.clone());
            } else if held.missed.fetch_add(1, Relaxed) >= patience {
                // Should someone have it after all, in a message that nobody has received, it is no way out any more:
                // nothing would be known of it.
                if held.kind.is_inet_datagram() {
                    held.silence();
                }
                state.held.remove(&inode);
            }
        }
    }
}

impl State {
    /// Forgets the messages that have found their socket.
    fn land(&mut self) {
        self.flights.retain(|tid, flight| !flight.gone_on || !is_past(Pid::from_raw(*tid)));
    }

    fn remember(&mut self, inode: u64, known: Known) {
        if self.known.len() >= KNOWN_LIMIT {
            self.known.clear();
        }
        self.known.insert(inode, known);
    }

    fn has_datagrams(&self) -> bool {
        self.held.values().any(|held| held.kind.is_inet_datagram())
    }
}

/// Whether a thread that was woken from its stop has got past the look-up of its descriptor: it sleeps, as it can in the
/// call's own work only, or has ended. A wait for a lock, as there may be one on the way there, is no such sleep.
fn is_past(tid: Pid) -> bool {
    let Ok(stat) = procfs::read(&format!("/proc/{tid}/stat")) else { return true };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('S' | 'T' | 't' | 'Z' | 'X'))
}
