//! What the stage does between its entry and its end: it obeys the supervisor, and sees to its children.

use super::child::{Child, Unheard, confine, place};
use super::{Notice, Order, Stage, ended, release_stdio};
use crate::channel::{Channel, ChannelError};
use crate::confine::exec::{Command, ExecFailure};
use crate::document;
use crate::ledger::record::Probe;
use crate::observe::process::{Of, probes_are_over};
use crate::supervise::descendants;
use crate::supervise::terminal::Placement;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

pub(super) struct Attendance<C> {
    stage: Stage,
    pub(super) supervisor: Channel,
    children: SignalFd,
    /// What there was no room for yet on the way to the supervisor: it may be waiting for this process to read its orders.
    unsaid: VecDeque<Notice>,
    /// Whether children may have changed state that have not been waited for yet.
    to_reap: bool,
    /// Where listeners are handed over to the observer.
    observer: Option<OwnedFd>,
    /// Commands whose processes have not executed them yet.
    launching: Vec<Launching>,
    commands: Vec<Running>,
    launched: bool,
    /// Mounts again what is to be seen at some paths, and goes into a namespace apart for it.
    cover: C,
    /// The child that does so, and what it has reported so far.
    covering: Option<(Child, Vec<u8>)>,
}

struct Launching {
    id: u64,
    child: Child,
    /// The command's own process group, if it will have one.
    group: Option<Pid>,
    /// What the child has reported so far.
    report: Vec<u8>,
    /// Signals that have come for the command before it is one: number, and whether they are for all of its group.
    signals: Vec<(i32, bool)>,
}

#[derive(Clone, Copy)]
struct Running {
    id: u64,
    pid: Pid,
    group: Option<Pid>,
}

/// How many notices may wait before children are waited for again: each that has stopped or ended makes one.
const UNSAID: usize = 256;
/// How many children are waited for before orders are looked at again: some may stop and go on without end.
const REAPED_AT_ONCE: usize = 256;

/// Descriptors beside [`Order::Launch`]: the document and stdio.
const OF_LAUNCH: usize = 4;
/// The least number that they get here: a child of the stage's gives lower ones a meaning.
const ABOVE_CHILDRENS: RawFd = 16;

fn failed(call: &'static str) -> impl FnOnce(Errno) -> ChannelError {
    move |errno| ChannelError::Call { call, errno }
}

fn ours(message: String) -> ExecFailure {
    ExecFailure { status: 125, message }
}

impl<C: Fn(&[PathBuf]) -> Result<(), String>> Attendance<C> {
    pub(super) fn new(
        stage: Stage,
        supervisor: Channel,
        children: SignalFd,
        observer: Option<OwnedFd>,
        cover: C,
    ) -> Self {
        let (launching, commands) = (Vec::new(), Vec::new());
        Attendance {
            stage,
            supervisor,
            children,
            unsaid: VecDeque::new(),
            to_reap: false,
            observer,
            launching,
            commands,
            launched: false,
            cover,
            covering: None,
        }
    }

    pub(super) fn attend(&mut self) -> Result<(), ChannelError> {
        loop {
            let mut of_supervisor = PollFlags::POLLIN;
            of_supervisor.set(PollFlags::POLLOUT, !self.unsaid.is_empty());
            let mut fds = vec![
                PollFd::new(self.supervisor.as_fd(), of_supervisor),
                PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(self.launching.iter().map(|l| PollFd::new(l.child.as_fd(), PollFlags::POLLIN)));
            fds.extend(self.covering.iter().map(|(child, _)| PollFd::new(child.as_fd(), PollFlags::POLLIN)));
            let due = self.to_reap && self.unsaid.len() < UNSAID;
            match poll(&mut fds, if due { PollTimeout::ZERO } else { PollTimeout::NONE }) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(failed("poll")(errno)),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
            let asked = fds[0].revents().is_some_and(|events| events.intersects(!PollFlags::POLLOUT));
            let covering = 2 + self.launching.len();
            // From the back, for one that is done leaves the list.
            for index in (0..self.launching.len()).rev().filter(|index| ready[index + 2]) {
                self.hear_launching(index)?;
            }
            if ready.get(covering) == Some(&true) {
                self.hear_covering()?;
            }
            if ready[1] {
                while let Ok(Some(_)) = self.children.read_signal() {}
                self.to_reap = true;
            }
            self.say_unsaid()?;
            if self.to_reap && self.unsaid.len() < UNSAID {
                self.reap()?;
            }
            if asked {
                match self.supervisor.receive_with() {
                    Ok((order, descriptors)) => self.obey(order, descriptors)?,
                    Err(ChannelError::Closed) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> Result<(), ChannelError> {
        match order {
            Order::Probe => {
                match self.probe()? {
                    Ok(outcomes) => self.say(Notice::Probed(outcomes))?,
                    Err(cause) => self.say(Notice::Failed(cause))?,
                }
                // Each command has a stdio of its own: whoever waits for the end of its output must not wait for ours.
                release_stdio().map_err(failed("dup2"))
            }
            Order::Open => match self.stage.confinement.share_domain() {
                Ok(()) => self.say(Notice::Opened),
                Err(cause) => self.say(Notice::Failed(cause.to_string())),
            },
            Order::Launch { id, placement } => match self.launch(placement, descriptors) {
                Ok(child) => {
                    let group = Some(child.pid).filter(|_| placement != Placement::Callers);
                    self.launching.push(Launching { id, child, group, report: Vec::new(), signals: Vec::new() });
                    sys::release_start_pages();
                    Ok(())
                }
                Err((call, errno)) => {
                    let failure = ours(format!("launch: {call}: {errno}"));
                    self.say(Notice::NotLaunched { id, failure })
                }
            },
            Order::Signal { id, number, group } => {
                match self.launching.iter_mut().find(|launching| launching.id == id) {
                    // Before it has executed its command it has no use for any, and none may be lost.
                    Some(launching) => launching.signals.push((number, group)),
                    None => self.deliver(id, number, group)?,
                }
                Ok(())
            }
            Order::Continue { id, in_foreground } => {
                let Some(group) = self.running(id).and_then(|running| running.group) else { return Ok(()) };
                if let Some(terminal) = self.stage.terminal.as_ref().filter(|_| in_foreground) {
                    terminal.give_to(group).map_err(failed("tcsetpgrp"))?;
                }
                signal_group(group, Signal::SIGCONT as i32)
            }
            Order::Cover(paths) => match Child::fork(|| (self.cover)(&paths)) {
                Ok(child) => {
                    self.covering = Some((child, Vec::new()));
                    Ok(())
                }
                Err((call, errno)) => self.say(Notice::Covered(Err(format!("{call}: {errno}")))),
            },
            Order::End { grace_ms } => {
                let identity = self.stage.confinement.identity.clone();
                let over = descendants::end_all(Duration::from_millis(grace_ms), identity.as_ref());
                for Running { id, pid, .. } in std::mem::take(&mut self.commands) {
                    if let Some((_, how)) = over.iter().find(|(ended, _)| *ended == pid) {
                        self.say(Notice::Ended { id, how: *how, left: false })?;
                    }
                }
                for Launching { id, .. } in std::mem::take(&mut self.launching) {
                    let failure = ours("launch: the session was ended meanwhile".into());
                    self.say(Notice::NotLaunched { id, failure })?;
                }
                self.say(Notice::Empty { at_the_end: true })
            }
        }
    }

    /// Sends a signal to a command that runs, or to all of its group.
    fn deliver(&self, id: u64, number: i32, to_group: bool) -> Result<(), ChannelError> {
        match self.running(id) {
            Some(Running { group: Some(all), .. }) if to_group => signal_group(all, number),
            Some(running) => signal(running.pid, number),
            None => Ok(()),
        }
    }

    /// Tells the supervisor, who may not be reading just now.
    fn say(&mut self, notice: Notice) -> Result<(), ChannelError> {
        self.unsaid.push_back(notice);
        self.say_unsaid()
    }

    fn say_unsaid(&mut self) -> Result<(), ChannelError> {
        while let Some(notice) = self.unsaid.front() {
            if !self.supervisor.offer(notice)? {
                return Ok(());
            }
            self.unsaid.pop_front();
        }
        Ok(())
    }

    fn running(&self, id: u64) -> Option<Running> {
        self.commands.iter().copied().find(|running| running.id == id)
    }

    /// Takes in every child that has changed state. How a command ended is told together with whether anything is left.
    fn reap(&mut self) -> Result<(), ChannelError> {
        let mut over = Vec::new();
        let mut rounds = 0;
        self.to_reap = false;
        let left = loop {
            if rounds == REAPED_AT_ONCE {
                self.to_reap = true;
                break true;
            }
            rounds += 1;
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
            let status = match waitid(Id::All, flags) {
                Ok(status) => status,
                Err(Errno::ECHILD) => break false,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(failed("waitid")(errno)),
            };
            let by_pid = |pid: Pid, commands: &[Running]| commands.iter().position(|running| running.pid == pid);
            match (status, ended(&status)) {
                (WaitStatus::StillAlive, _) => break true,
                (WaitStatus::Stopped(pid, signal), _) => {
                    if let Some(at) = by_pid(pid, &self.commands) {
                        let id = self.commands[at].id;
                        self.say(Notice::Stopped { id, signal: signal as i32 })?;
                    }
                }
                (_, Some((pid, how))) => {
                    // It may have executed its command, and ended, since its report was last looked at.
                    while let Some(at) = self.launching.iter().position(|launching| launching.child.pid == pid) {
                        self.hear_launching(at)?;
                    }
                    if let Some(at) = by_pid(pid, &self.commands) {
                        over.push((self.commands.swap_remove(at).id, how));
                    }
                }
                _ => {}
            }
        };
        for (id, how) in over {
            self.say(Notice::Ended { id, how, left })?;
        }
        if !left && self.launched && self.commands.is_empty() {
            self.say(Notice::Empty { at_the_end: false })?;
        }
        Ok(())
    }

    /// Reads some of the report of a command that is being launched; its end without a word says that the command runs.
    fn hear_launching(&mut self, at: usize) -> Result<(), ChannelError> {
        let launching = &mut self.launching[at];
        if !launching.child.read_some(&mut launching.report).map_err(failed("read"))? {
            return Ok(());
        }
        let Launching { id, child, group, report, signals } = self.launching.swap_remove(at);
        if report.is_empty() {
            self.commands.push(Running { id, pid: child.pid, group });
            self.launched = true;
            self.say(Notice::Launched { id, pid: child.pid.as_raw() })?;
            return signals.into_iter().try_for_each(|(number, group)| self.deliver(id, number, group));
        }
        let torn = |e: serde_json::Error| ours(format!("launch: the report is torn: {e}"));
        let failure = serde_json::from_slice(&report).unwrap_or_else(torn);
        self.say(Notice::NotLaunched { id, failure })
    }

    /// Runs the suite in a child that takes the command's confinement, and reads its report.
    fn probe(&self) -> Result<Result<Vec<Probe>, String>, ChannelError> {
        let stage = &self.stage;
        let arena = match stage.suite.prepare() {
            Ok(arena) => arena,
            Err(cause) => return Ok(Err(cause)),
        };
        let forked = Child::fork(|| {
            confine(&stage.confinement, self.observer.as_ref(), Of::Probes).and_then(|()| stage.suite.run(&arena))
        });
        let heard = self.hear(&forked)?;
        let status = forked.map(|child| waitpid(child.pid, None));
        // Whatever a probe started is a child of ours now.
        descendants::end_all(Duration::ZERO, stage.confinement.identity.as_ref());
        if let Some(observer) = &self.observer {
            probes_are_over(observer.as_fd()).map_err(failed("sendmsg"))?;
        }
        Ok(stage.suite.clear(arena).and_then(|()| {
            let text = heard.map_err(|(call, errno)| format!("probes: {call}: {errno}"))?;
            if !matches!(status, Ok(Ok(WaitStatus::Exited(_, 0)))) {
                return Err(format!("probes: the probing process did not end well: {status:?}"));
            }
            let outcome: Result<Vec<Probe>, String> =
                serde_json::from_slice(&text).map_err(|e| format!("probes: the report is torn: {e}"))?;
            outcome.map(|seen| [stage.suite.run_as_stage(), seen].concat())
        }))
    }

    /// Reads some of the report of the child that covers paths again.
    fn hear_covering(&mut self) -> Result<(), ChannelError> {
        let Some((child, report)) = &mut self.covering else { return Ok(()) };
        if !child.read_some(report).map_err(failed("read"))? {
            return Ok(());
        }
        let torn = |e: serde_json::Error| Err(format!("the report is torn: {e}"));
        let covered = serde_json::from_slice(report).unwrap_or_else(torn);
        self.covering = None;
        self.say(Notice::Covered(covered))
    }

    fn launch(&self, placement: Placement, descriptors: Vec<OwnedFd>) -> Result<Child, (&'static str, Errno)> {
        let above = |fd: OwnedFd| sys::duplicate_above(fd.as_fd(), ABOVE_CHILDRENS);
        let above: Vec<OwnedFd> =
            descriptors.into_iter().map(above).collect::<Result<_, _>>().map_err(|e| ("dup", e))?;
        let [document, input, output, error]: [OwnedFd; OF_LAUNCH] =
            above.try_into().map_err(|_| ("recvmsg SCM_RIGHTS", Errno::EMFILE))?;
        let stage = &self.stage;
        Child::fork(|| {
            let command: Command = match document::read(document) {
                Ok(command) => command,
                Err(cause) => return ours(format!("launch: read the command: {cause}")),
            };
            let placed = dup2_stdin(&input)
                .and_then(|()| dup2_stdout(&output))
                .and_then(|()| dup2_stderr(&error))
                .map_err(|errno| ("dup2", errno))
                .and_then(|()| place(placement, stage.terminal.as_ref()));
            let ready = placed.map_err(|(call, errno)| format!("launch: {call}: {errno}"));
            match ready.and_then(|()| confine(&stage.confinement, self.observer.as_ref(), Of::Command)) {
                Ok(()) => command.execute(),
                Err(cause) => ours(cause),
            }
        })
    }

    /// Reads a child's report; [`ChannelError::Closed`] when the stage is to end instead.
    fn hear(
        &self,
        child: &Result<Child, (&'static str, Errno)>,
    ) -> Result<Result<Vec<u8>, (&'static str, Errno)>, ChannelError> {
        match child.as_ref().map(|child| child.report(&self.supervisor)) {
            Ok(Ok(text)) => Ok(Ok(text)),
            Ok(Err(Unheard::Dismissed)) => Err(ChannelError::Closed),
            Ok(Err(Unheard::Call(call, errno))) => Ok(Err((call, errno))),
            Err((call, errno)) => Ok(Err((call, *errno))),
        }
    }
}

/// Sends a signal to a command. One that has ended meanwhile has its status on its way.
fn signal(pid: Pid, number: i32) -> Result<(), ChannelError> {
    match sys::send_signal(pid, number) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(failed("kill")(errno)),
    }
}

fn signal_group(group: Pid, number: i32) -> Result<(), ChannelError> {
    signal(Pid::from_raw(-group.as_raw()), number)
}
