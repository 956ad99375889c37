//! Sockets where there is no firewall: each socket of the command is made for it, those of the inet families bound to the
//! device `lo`, which takes NET_RAW to undo; a duplicate is held, on which it is bound, connected and sent from.
//!
//! ```text
//! socket(2)                    made here, given by ADDFD                 (families that the filter lets through)
//! bind, connect, addressed or  made here on the duplicate, which is found by the inode behind the caller's descriptor;
//! described sends              the destination is judged by `rules`, and what was read is what the kernel is given
//! listen                       made here, or goes on for unix sockets; the duplicate of what listens is dropped
//! unix and netlink sockets     go on for a process of one thread, but for abstract names and where names are masked
//! sends on what is connected,  go on where nothing can take the socket's place meanwhile: see `Table::ask_way`
//! accepted, made in pairs
//! ```
//!
//! # Why no call goes on that an address decides
//! What a descriptor is, and what is behind a pointer, is the caller's to change until the kernel looks. For TCP the device
//! holds against that; for datagrams it does not: IP_PKTINFO names another one for a single message, and connect(2) with
//! AF_UNSPEC takes the binding away. So nothing goes on by which a datagram socket could be used that was put in the place
//! of another socket. A process of one thread can't have that done to it while it is stopped: its table of descriptors is
//! its own (the filter refuses CLONE_FILES to all but threads).
//!
//! # How long a duplicate is held
//! A socket that a duplicate is held of does not close. So that of TCP goes as soon as it is connected or listens, before
//! its caller hears of it; those of datagrams, of unix and netlink sockets stay as long as some process has the socket,
//! which is looked up once a second, and whenever a port is asked for that one of them has.

pub mod address;
mod calls;
mod connect;
pub mod held;
mod living;
mod make;
mod receive;
pub mod rules;
mod send;
mod table;
pub mod waiting;

use held::Held;
use nix::errno::Errno;
use nix::unistd::Pid;
use rules::SocketRules;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use table::Table;
use waiting::{Caller, Later, Line};

/// The sockets of a run.
#[derive(Debug)]
pub struct Sockets {
    rules: SocketRules,
    table: Table,
    line: Line,
}

/// What the thread that waits for all needs, in bytes.
const STACK: usize = 512 << 10;
/// From so many sockets on it is looked which are in use before more are made.
const MANY: usize = 256;

impl Sockets {
    /// The sockets of a run, with the thread that waits for all its calls. It ends the process where it fails: callers that
    /// nobody answers would wait for ever.
    ///
    /// # Errors
    /// No thread can be had, or no descriptor to wake it by.
    pub fn start(rules: SocketRules) -> Result<Arc<Sockets>, Errno> {
        let sockets = Arc::new(Sockets { rules, table: Table::default(), line: Line::new()? });
        let served = sockets.clone();
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| served.line.serve(&served.table)));
            drop(ended);
            crate::sys::exit_now(1);
        });
        match thread {
            Ok(_) => Ok(sockets),
            Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EAGAIN))),
        }
    }

    /// A call waits until it can be answered.
    pub fn wait(&self, later: Later, caller: Box<dyn Caller>) -> Result<(), Errno> {
        self.line.join(later, caller)
    }

    /// The command has been given a socket, as this descriptor of a thread's.
    pub fn given(&self, held: &Held, tid: Pid, fd: RawFd) -> Result<(), Errno> {
        held.is_at(format!("/proc/{tid}/fd/{fd}"));
        held.given.store(true, Relaxed);
        self.line.wake()
    }

    /// The command could not be given it.
    pub fn not_given(&self, held: &Held) {
        self.table.forget(held);
    }

    /// A message whose way was asked for has been let into the kernel.
    pub fn gone_on(&self, tid: Pid, id: u64) {
        self.table.gone_on(tid, id);
    }

    /// Looks which sockets are in use, if there are many.
    fn make_room(&self) {
        if self.table.len() >= MANY {
            self.table.sweep(0, |_| true);
        }
    }
}
