//! A filter that has a notification listener already, as an outer sandbox's may: a second one in its chain is EBUSY.

use super::filter::{context, failed, library, number};
use crate::error::{Doing, Error};
use libseccomp::{ScmpAction, ScmpFilterContext, ScmpNotifReq, ScmpNotifResp, ScmpNotifRespFlags, reset_global_state};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The call that the listener is told of. It lets every one go on.
pub(super) const TOLD_OF: &str = "sysinfo";

/// Starts the thread that holds the listener; it is sent what [`load`] returns, and ends with the last of those who have
/// the filter. It must not be started by one of them.
pub(super) fn hold() -> Result<Sender<OwnedFd>, Error> {
    let (give, take): (Sender<OwnedFd>, Receiver<OwnedFd>) = channel();
    thread::Builder::new()
        .name("outer listener".to_owned())
        .spawn(move || {
            if let Ok(listener) = take.recv() {
                let_all_go_on(&listener);
            }
        })
        .doing("start a thread")?;
    Ok(give)
}

/// Loads the filter for the calling thread and for whom it starts. Returns its listener.
pub(super) fn load() -> Result<OwnedFd, Error> {
    let _one = library();
    let context = filter()?;
    context.load().map_err(failed("load a seccomp filter with a listener"))?;
    let kept = context.get_notify_fd().map_err(failed("the listener of a seccomp filter"))?;
    let process = pidfd_open(getpid(), PidfdFlags::empty()).doing("pidfd_open")?;
    let own = pidfd_getfd(&process, kept, PidfdGetfdFlags::empty()).doing("pidfd_getfd of a listener")?;
    // It closes its own, which would otherwise be taken for the next filter's, and forgets that there are listeners, which
    // a rule makes it find out again.
    reset_global_state().map_err(failed("let go of a listener"))?;
    filter()?;
    Ok(own)
}

fn filter() -> Result<ScmpFilterContext, Error> {
    let mut context = context()?;
    context.add_rule(ScmpAction::Notify, number(TOLD_OF)?).map_err(failed("a seccomp rule that notifies"))?;
    Ok(context)
}

fn let_all_go_on(listener: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue;
        }
        if !fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLIN)) {
            return;
        }
        // One whose caller was killed meanwhile needs no answer; one that another thread's reset took away comes again.
        if let Ok(call) = ScmpNotifReq::receive(listener.as_raw_fd()) {
            let go_on = ScmpNotifResp::new_continue(call.id, ScmpNotifRespFlags::empty());
            if let Err(cause) = go_on.respond(listener.as_raw_fd()) {
                eprintln!("the outer listener can't answer: {cause}");
            }
        }
    }
}
