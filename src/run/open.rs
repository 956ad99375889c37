//! A session: one run that stays open. `up` is `load → claim → plan → install → probe` in a process that stays, and returns
//! when that is done; `exec` launches a command in what is in force; `down` is the seal.

mod clients;

use super::session::{Session, complain};
use super::{Installed, Loaded, Planned, StatusLine};
use crate::cli::UpArgs;
use crate::confine::exec::SignalState;
use crate::error::{Error, OURS, call};
use crate::ledger::SealInput;
use crate::ledger::record::Outcome;
use crate::policy::Leftovers;
use crate::session::client::epitaph;
use crate::session::place::{Claimed, Place, State};
use crate::stage::release_stdio;
use crate::supervise::asks_to_end;
use crate::sys::{self, Fork};
use clients::Clients;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, getpid, pipe2, setsid};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Opens a session. Returns in the caller's process when it is open, or why it is not.
pub fn up(args: &UpArgs, signals: SignalState) -> Result<i32, Error> {
    let mut told = StatusLine::open(args.run.json_status_fd)?;
    let whole = args.as_run();
    let loaded = match Loaded::load(&whole, signals).and_then(keeps_leftovers) {
        Ok(loaded) => loaded,
        Err(error) => {
            told.not_started(&error);
            return Err(error);
        }
    };
    let (says, open) = pipe2(OFlag::O_CLOEXEC).map_err(call("pipe2"))?;
    match sys::fork_single_threaded().map_err(call("fork"))? {
        Fork::Parent(pid) => {
            drop((open, loaded, told));
            await_open(pid, says)
        }
        Fork::Child => {
            drop(says);
            let outcome = stay(args, loaded, &mut told, open);
            if let Err(error) = &outcome {
                told.not_started(error);
                complain(&error.to_string());
            }
            sys::exit_now(outcome.err().map_or(0, |error| error.status()));
        }
    }
}

/// What a command of a session leaves behind is there for the next one.
fn keeps_leftovers(loaded: Loaded<'_>) -> Result<Loaded<'_>, Error> {
    match loaded.policy.leftovers {
        Some(Leftovers::Kill) => Err(Error::SessionKills),
        Some(Leftovers::Keep) | None => Ok(loaded),
    }
}

/// In the caller's process: waits until the other one says that the session is open, or ends. What asks this process to end
/// is for the other one.
fn await_open(supervisor: Pid, says: OwnedFd) -> Result<i32, Error> {
    let asked = SignalFd::with_flags(&asks_to_end(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let asked = asked.map_err(call("signalfd"))?;
    let mut line = String::new();
    loop {
        let mut fds = [PollFd::new(says.as_fd(), PollFlags::POLLIN), PollFd::new(asked.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(call("poll")(errno)),
        }
        let (said, signalled) = (fds[0].any() == Some(true), fds[1].any() == Some(true));
        while signalled && let Some(info) = asked.read_signal().map_err(call("read"))? {
            match sys::send_signal(supervisor, info.ssi_signo as i32) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(call("kill")(errno)),
            }
        }
        if said {
            // It is written at once, and then closed.
            File::from(says).read_to_string(&mut line).map_err(call("read"))?;
            break;
        }
    }
    if !line.is_empty() {
        std::io::stdout().write_all(line.as_bytes()).map_err(call("write"))?;
        return Ok(0);
    }
    // It has said why.
    match waitpid(supervisor, None).map_err(call("waitpid"))? {
        WaitStatus::Exited(_, status) => Ok(status),
        _ => Ok(OURS),
    }
}

/// In the process that stays: from the taking of the name to the seal.
fn stay(args: &UpArgs, loaded: Loaded<'_>, told: &mut StatusLine, open: OwnedFd) -> Result<(), Error> {
    setsid().map_err(call("setsid"))?;
    let (claimed, dead) = Place::of(args.name.name.clone())?.claim()?;
    if let Some(state) = dead {
        complain(&format!("an earlier session {} is over: {}", claimed.place().name(), epitaph(&state)));
    }
    let run = loaded.run.as_str().to_owned();
    let mut planned = loaded.plan()?;
    planned.watch_one_domain();
    planned.session = Some(claimed.place().clone());
    let probed = planned.install(told)?.probe()?;
    let mut opened = Opened { run, claimed, installed: probed.0 };
    match opened.begin(open) {
        Ok(()) => opened.serve(),
        Err(error) => Err(opened.installed.session.fail(error)),
    }
}

impl Planned<'_> {
    /// Of the kernel's audit one domain is read. Where each command has its own, the record says that it isn't.
    fn watch_one_domain(&mut self) {
        if self.plan.rung.means().one_uid && self.plan.audited {
            self.plan.audited = false;
            self.plan.unobserved.push(
                "signals and abstract unix sockets to the outside, which Landlock's scopes refuse: in a session each \
                 command has a domain of its own"
                    .into(),
            );
        }
    }
}

/// A session that is open.
struct Opened {
    run: String,
    claimed: Claimed,
    installed: Installed,
}

impl Opened {
    /// Lets go of the caller, and says that the session is open.
    fn begin(&mut self, open: OwnedFd) -> Result<(), Error> {
        let Opened { run, claimed, installed } = self;
        let ledger = installed.session.ledger.target().to_owned();
        claimed.write_state(&State { run: run.clone(), supervisor: getpid().as_raw(), ledger })?;
        installed.session.opens()?;
        release_stdio().and_then(|()| chdir("/")).map_err(call("detach"))?;
        let line = format!("{} {run}\n", claimed.place().name());
        match File::from(open).write_all(line.as_bytes()) {
            // The caller was killed meanwhile; the session is open all the same.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(call("write")),
        }
    }

    /// Serves clients until one of them, or a signal, asks for the end; then seals.
    fn serve(self) -> Result<(), Error> {
        let Opened { run, claimed, installed } = self;
        let Installed { mut session, plan, invocation, .. } = installed;
        let mut clients = match Clients::new(&run, &claimed, &plan, &invocation) {
            Ok(clients) => clients,
            Err(error) => return Err(session.fail(error)),
        };
        let served = clients.serve(&mut session);
        if let Err(error) = served {
            clients.tell_of_failure(&error);
            let error = session.fail(error);
            return Err(error);
        }
        let waiting = clients.into_waiting();
        // Whoever is told that it is down finds nothing of it any more.
        drop(claimed);
        let sealed = seal(session);
        clients::tell_of_end(waiting, sealed.as_ref().ok().copied());
        sealed.map(drop)
    }
}

/// Takes everything down. Returns whether the record is complete.
fn seal(session: Session) -> Result<bool, Error> {
    session.seal_as(SealInput { started: true, outcome: Outcome::Exited, exit_code: None })
}
