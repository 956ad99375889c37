//! `leftovers = "keep"`: the caller gets its status while what the command left behind lives on, confined as before, under a
//! supervisor that stays and seals when the last of it has ended.

use super::session::{self, Session};
use crate::error::{Error, call};
use crate::ledger::record::Outcome;
use crate::ledger::{SealInput, Status};
use crate::stage::{Ended, release_stdio};
use crate::sys::{self, Fork};
use nix::unistd::{chdir, setsid};

/// Forks the supervisor that stays; in the caller's process, returns the command's status.
///
/// The process that stays inherits the ledger, the sockets of the evidence and the channel to the stage. The other one
/// lets its copies go: neither the stage nor the proxy sees an end, for that comes with the last copy.
pub fn hand_over(mut session: Session, how: Ended) -> Result<i32, Error> {
    let status = session.take_status();
    match sys::fork_single_threaded() {
        Ok(Fork::Child) => {
            drop(status);
            let outcome = stay(session, how);
            sys::exit_now(i32::from(outcome.is_err()));
        }
        Ok(Fork::Parent(_)) => {
            drop(session);
            let outcome = match how {
                Ended::Exited(_) => Outcome::Exited,
                Ended::Signaled(_) => Outcome::Signaled,
            };
            // The ledger is not sealed yet, so there is no head to give.
            let end = SealInput { started: true, outcome, exit_code: Some(how.status()) };
            session::tell(status, &Status::unsealed(end));
            Ok(how.status())
        }
        Err(errno) => Err(session.fail(call("fork")(errno))),
    }
}

fn stay(mut session: Session, how: Ended) -> Result<(), Error> {
    let detached = setsid().map(|_| ()).and_then(|()| release_stdio()).and_then(|()| chdir("/"));
    if let Err(errno) = detached {
        return Err(session.fail(call("detach")(errno)));
    }
    match session.await_empty() {
        Ok(()) => session.seal(how),
        Err(error) => Err(session.fail(error)),
    }
}
