//! Calls on sockets that are made here: tried at once, and answered when they are done.

use super::{Served, Service};
use crate::observe::sockets::Sockets;
use crate::observe::sockets::waiting::{Caller, Later, Outcome};
use crate::sys::notify;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The caller of such a call.
struct Stopped {
    service: Arc<Service>,
    served: Arc<Served>,
    sockets: Arc<Sockets>,
    tid: Pid,
    id: u64,
}

impl Service {
    /// Tries a call, and has it wait where it must.
    pub(super) fn answer_later(self: &Arc<Self>, served: &Arc<Served>, id: u64, mut later: Later) -> bool {
        let Some(sockets) = served.judge.sockets.clone() else { return false };
        let (service, served, tid) = (self.clone(), served.clone(), later.tid);
        let caller = Stopped { service, served, sockets, tid, id };
        // What is done from here on is done with what was read, for whom it was read of.
        if !caller.waits() {
            return true;
        }
        let noted = later.note.take().is_none_or(|note| self.note(&caller.served, &note));
        if !noted {
            return false;
        }
        match (later.attempt)() {
            Outcome::Blocked => caller.sockets.clone().wait(later, Box::new(caller)).is_ok(),
            outcome => {
                // A duplicate that is not needed any more is closed before anyone is told.
                drop(later);
                caller.answer(outcome)
            }
        }
    }
}

impl Caller for Stopped {
    fn waits(&self) -> bool {
        notify::is_waiting(self.served.listener.as_fd(), self.id)
    }

    fn answer(&self, outcome: Outcome) -> bool {
        let (listener, id) = (self.served.listener.as_fd(), self.id);
        let answered = match outcome {
            Outcome::Done(value) => notify::succeed(listener, id, value),
            Outcome::Failed(errno) => notify::refuse(listener, id, errno),
            Outcome::Interrupted => notify::interrupt(listener, id),
            // It is nobody's answer, and tried again by who can.
            Outcome::Blocked => notify::refuse(listener, id, Errno::EAGAIN),
            Outcome::Refused(errno, refusal) => {
                if self.waits() && !self.service.record(&self.served, &refusal) {
                    return false;
                }
                notify::refuse(listener, id, errno)
            }
            Outcome::GoesOn => {
                let gone_on = notify::let_go_on(listener, id);
                self.sockets.gone_on(self.tid, id);
                gone_on
            }
            Outcome::Made(held, close_on_exec) => {
                match held.with(|file| notify::succeed_with_file(listener, id, file, close_on_exec)) {
                    Ok(fd) => self.sockets.given(&held, self.tid, fd),
                    Err(errno) => {
                        self.sockets.not_given(&held);
                        // The caller's table of descriptors is full (EMFILE), which is for the caller to hear.
                        if errno == Errno::ENOENT { Err(errno) } else { notify::refuse(listener, id, errno) }
                    }
                }
            }
        };
        // ENOENT: its caller was killed.
        matches!(answered, Ok(()) | Err(Errno::ENOENT))
    }
}
