//! Those who speak to a session's supervisor, and the commands that they have started.

use super::super::inherited;
use super::super::session::Session;
use crate::channel::{Channel, ChannelError};
use crate::document;
use crate::error::{Error, OURS, call};
use crate::install::Invocation;
use crate::ledger::escape;
use crate::plan::Plan;
use crate::policy::ParentProxy;
use crate::proxy::descriptors;
use crate::session::place::Claimed;
use crate::session::wire::{self, Answer, Ask};
use crate::stage::{Notice, Order};
use crate::supervise::terminal::Placement;
use crate::supervise::{AbortCause, ENDING_ALL};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{fchown, geteuid, getpid, isatty};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// A command, from its order to its end.
struct Command {
    id: u64,
    /// `None` before it runs.
    pid: Option<i32>,
    argv: Vec<String>,
    /// Who has started it; `None` once that client has gone.
    client: Option<Channel>,
}

/// Descriptors for all but clients: the channels, the record, /proc, and what comes with a question.
const OTHERWISE: usize = 64;

/// What a session's supervisor knows beside the run.
pub(super) struct Clients<'a> {
    run: &'a str,
    claimed: &'a Claimed,
    plan: &'a Plan,
    invocation: &'a Invocation,
    /// Clients that have not asked yet.
    fresh: Vec<Channel>,
    commands: Vec<Command>,
    /// How many clients there are descriptors for.
    room: usize,
    /// The number of the last command.
    last: u64,
    started: u64,
    /// Those who wait for the end.
    waiting: Vec<Channel>,
    /// Until when the stage may take to end what is left; `None` where nobody has asked for the end.
    ending: Option<Instant>,
}

impl<'a> Clients<'a> {
    /// None yet. This process's soft limit on descriptors is raised to the hard one: the stage has been forked, and commands
    /// keep that of `up`'s caller.
    pub(super) fn new(
        run: &'a str,
        claimed: &'a Claimed,
        plan: &'a Plan,
        invocation: &'a Invocation,
    ) -> Result<Clients<'a>, Error> {
        descriptors::raise(0).map_err(call("setrlimit"))?;
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(call("getrlimit"))?;
        let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERWISE).max(1);
        Ok(Clients {
            room,
            run,
            claimed,
            plan,
            invocation,
            fresh: Vec::new(),
            commands: Vec::new(),
            last: 0,
            started: 0,
            waiting: Vec::new(),
            ending: None,
        })
    }

    /// Those who have asked for the end.
    pub(super) fn into_waiting(self) -> Vec<Channel> {
        self.waiting
    }

    /// Lives with the session until nothing of it is left after somebody has asked for the end.
    pub(super) fn serve(&mut self, session: &mut Session) -> Result<(), Error> {
        loop {
            // The rest wait in the listener's queue until there is room for them.
            let listener = Some(self.claimed.as_fd()).filter(|_| self.held() < self.room);
            let listens = listener.is_some();
            let fresh = self.fresh.iter().map(AsFd::as_fd);
            let owners = self.commands.iter().filter_map(|command| command.client.as_ref()).map(AsFd::as_fd);
            let awaited: Vec<BorrowedFd<'_>> = listener.into_iter().chain(fresh).chain(owners).collect();
            let stepped = session.step(self.ending, &awaited)?;
            // Before the stage is heard: after that, other clients may be waited for than those whose flags these are.
            if !stepped.others.is_empty() {
                let (new, rest) = stepped.others.split_at(usize::from(listens));
                self.hear_clients(rest, session)?;
                if new == [true] {
                    let stage = session.installation.stage.as_ref().ok_or(AbortCause::Stage(ChannelError::Closed))?.pid;
                    self.fresh.extend(self.claimed.accept(stage)?.map(Channel::over));
                }
            }
            if let Some(notice) = stepped.notice
                && self.hear_stage(notice, session)?
            {
                return Ok(());
            }
            if session.is_ending() {
                self.ending.get_or_insert_with(|| Instant::now() + ENDING_ALL);
            }
            if self.ending.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(AbortCause::StageSilent(ENDING_ALL).into());
            }
        }
    }

    /// Clients that hold a descriptor.
    fn held(&self) -> usize {
        let of_commands = self.commands.iter().filter(|command| command.client.is_some()).count();
        of_commands + self.fresh.len() + self.waiting.len()
    }

    /// Takes in what the stage says. Returns whether nothing is left after the end was asked for.
    fn hear_stage(&mut self, notice: Notice, session: &mut Session) -> Result<bool, Error> {
        match notice {
            Notice::Launched { id, pid } => {
                self.started += 1;
                if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
                    command.pid = Some(pid);
                    if !command.client.as_ref().is_some_and(|client| tell(client, &Answer::Started)) {
                        hang_up(command, session)?;
                    }
                }
            }
            Notice::NotLaunched { id, failure } => {
                self.answer_last(id, &Answer::Failed { status: failure.status, message: failure.message });
            }
            Notice::Stopped { id, .. } => {
                // One that has gone is found out by its end.
                if let Some(client) = self.commands.iter().find(|c| c.id == id).and_then(|c| c.client.as_ref()) {
                    tell(client, &Answer::Stopped);
                }
            }
            Notice::Ended { id, how, .. } => self.answer_last(id, &Answer::Ended(how.status())),
            Notice::Failed(cause) => return Err(AbortCause::StageFailed(cause).into()),
            // One that comes by itself may have been under way before the last order.
            Notice::Empty { at_the_end } => return Ok(at_the_end),
            Notice::Ready { .. } | Notice::Probed(_) | Notice::Opened | Notice::Covered(_) => {}
        }
        Ok(false)
    }

    /// Gives a command's client the last answer, and forgets both.
    fn answer_last(&mut self, id: u64, answer: &Answer) {
        if let Some(at) = self.commands.iter().position(|command| command.id == id)
            && let Some(client) = self.commands.swap_remove(at).client
        {
            tell(&client, answer);
        }
    }

    /// Takes in what clients say, of whom `ready` has those who do: first the fresh ones, then the commands' own.
    fn hear_clients(&mut self, ready: &[bool], session: &mut Session) -> Result<(), Error> {
        let (fresh, owners) = ready.split_at(self.fresh.len());
        let mut owners = owners.iter();
        for command in self.commands.iter_mut().filter(|command| command.client.is_some()) {
            if owners.next() != Some(&true) {
                continue;
            }
            // Whoever waits for one client lets all others, and the watch, wait.
            match command.client.as_ref().map(Channel::receive_now::<Ask>) {
                Some(Ok(Some(Ask::Signal { number, group }))) if (1..=libc::SIGRTMAX()).contains(&number) => {
                    session.order(&Order::Signal { id: command.id, number, group })?;
                }
                Some(Ok(None)) => {}
                _ => hang_up(command, session)?,
            }
        }
        let asking: Vec<Channel> = {
            let mut at = fresh.iter();
            let (asking, silent) =
                std::mem::take(&mut self.fresh).into_iter().partition(|_| at.next().copied().unwrap_or_default());
            self.fresh = silent;
            asking
        };
        asking.into_iter().try_for_each(|client| self.hear_fresh(client, session))
    }

    fn hear_fresh(&mut self, client: Channel, session: &mut Session) -> Result<(), Error> {
        match client.receive_with_now() {
            Ok(None) => self.fresh.push(client),
            Ok(Some((Ask::Exec { terminal }, descriptors))) => match self.launch(terminal, descriptors, session)? {
                Ok((id, argv)) => self.commands.push(Command { id, pid: None, argv, client: Some(client) }),
                Err(message) => {
                    tell(&client, &Answer::Failed { status: OURS, message });
                }
            },
            Ok(Some((Ask::Status, _))) => {
                let status = document::write(&self.status(session)).map_err(call("memfd_create"))?;
                // One that does not take it has gone.
                let _taken = client.offer_with(&Answer::Status, &[status.as_fd()]);
            }
            Ok(Some((Ask::Down, _))) => {
                self.waiting.push(client);
                if self.ending.is_none() {
                    self.ending = Some(Instant::now() + ENDING_ALL);
                    session.order_end()?;
                }
            }
            // A signal without a command, or nothing that could be read.
            Ok(Some((Ask::Signal { .. }, _))) | Err(_) => {}
        }
        Ok(())
    }

    /// Has the stage start a command. What is wrong with the question is the client's to hear.
    fn launch(
        &mut self,
        terminal: bool,
        descriptors: Vec<OwnedFd>,
        session: &Session,
    ) -> Result<Result<(u64, Vec<String>), String>, Error> {
        let (invocation, stdio) = match self.read(terminal, descriptors) {
            Ok(asked) => asked,
            Err(message) => return Ok(Err(message)),
        };
        self.last += 1;
        let placement = if terminal { Placement::Session } else { Placement::Own { in_foreground: false } };
        let order = Order::Launch { id: self.last, placement };
        match session.order_launch(&order, self.plan, &invocation, stdio.each_ref().map(AsFd::as_fd)) {
            Ok(()) => {}
            Err(Error::Install(error)) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        }
        let argv = escape::escape_args(invocation.argv.iter().map(|a| a.as_bytes()), escape::TEXT_LIMIT);
        Ok(Ok((self.last, argv)))
    }

    /// The command that is asked for, in the session's environment, and its stdio.
    fn read(&self, terminal: bool, descriptors: Vec<OwnedFd>) -> Result<(Invocation, [OwnedFd; 3]), String> {
        if self.ending.is_some() {
            return Err("the session is being ended".into());
        }
        let mut descriptors = descriptors.into_iter();
        let document = descriptors.next().ok_or("the question came without its descriptors")?;
        let stdio: [OwnedFd; 3] =
            descriptors.collect::<Vec<_>>().try_into().map_err(|_| "the question came without its stdio")?;
        let asked: Invocation = document::read(document).map_err(|e| format!("the question cannot be read: {e}"))?;
        for (fd, held) in (0..).zip(&stdio) {
            inherited::check(self.plan, fd, held).map_err(|e| e.to_string())?;
        }
        if let (true, Some(identity)) = (terminal, &self.plan.identity) {
            let [input, ..] = &stdio;
            if !isatty(input).unwrap_or(false) {
                return Err("what was sent as a terminal is none".into());
            }
            // Programs open it by its name.
            match fchown(input, Some(identity.uid), None) {
                Ok(()) => {}
                Err(errno) => return Err(format!("fchown of the terminal: {errno}")),
            }
        }
        let parent = self.plan.proxy.as_ref().and_then(|proxy| proxy.upstream.as_ref());
        let credentials = parent.and_then(ParentProxy::credentials);
        let is_secret = |value: &OsStr| credentials.is_some_and(|held| held.stand_in(value.as_bytes()));
        let mut added = asked.added;
        added.retain(|(_, value)| !is_secret(value));
        Ok((Invocation { environment: self.invocation.environment.clone(), added, ..asked }, stdio))
    }

    fn status(&self, session: &Session) -> wire::Status {
        let running = |command: &Command| Some(wire::Command { pid: command.pid?, argv: command.argv.clone() });
        let ledger = session.ledger.target();
        wire::Status {
            name: self.claimed.place().name().to_string(),
            run: self.run.to_owned(),
            level: self.plan.policy.level_name().to_owned(),
            rung: self.plan.rung.name().to_owned(),
            ledger: ledger.starts_with('/').then(|| ledger.to_owned()),
            supervisor: getpid().as_raw(),
            uid: self.plan.identity.as_ref().map_or_else(geteuid, |identity| identity.uid).as_raw(),
            started: self.started,
            commands: self.commands.iter().filter_map(running).collect(),
        }
    }

    /// Tells everyone why the session ends before anyone has asked for it.
    pub(super) fn tell_of_failure(self, error: &Error) {
        let answer = Answer::Failed { status: OURS, message: error.to_string() };
        let owners = self.commands.iter().filter_map(|command| command.client.as_ref());
        owners.chain(&self.waiting).chain(&self.fresh).for_each(|client| {
            tell(client, &answer);
        });
    }
}

/// Tells those who wait that the session is down.
pub(super) fn tell_of_end(waiting: Vec<Channel>, complete: Option<bool>) {
    waiting.iter().for_each(|client| {
        tell(client, &Answer::Down { complete });
    });
}

/// Whether a client took an answer. Nobody waits for one that does not read.
fn tell(client: &Channel, answer: &Answer) -> bool {
    matches!(client.offer(answer), Ok(true))
}

/// The command's client has gone: what a terminal does then to those who had it.
fn hang_up(command: &mut Command, session: &Session) -> Result<(), Error> {
    command.client = None;
    for signal in [Signal::SIGHUP, Signal::SIGCONT] {
        session.order(&Order::Signal { id: command.id, number: signal as i32, group: true })?;
    }
    Ok(())
}
