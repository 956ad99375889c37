//! What a run holds from its ledger's opening to its seal, and the two ways out: the seal and the failure.

use crate::channel::ChannelError;
use crate::document;
use crate::error::{Error, call};
use crate::host::Facts;
use crate::install::reserve::Reservation;
use crate::install::shields::Manifest;
use crate::install::{InstallError, Installation, Invocation};
use crate::ledger::record::{Abort, Body, GitEnd, Infrastructure, Object, Outcome, Probe, Shadow, ShieldState, Start};
use crate::ledger::{Ledger, SealInput, Status, escape};
use crate::mutation;
use crate::observe::evidence::Hearing;
use crate::plan::Plan;
use crate::policy::Axis;
use crate::probe::evidence::Heard;
use crate::session::Name;
use crate::stage::{Ended, Notice, Order, release_input_and_output};
use crate::supervise::processes;
use crate::supervise::watch_mounts::MountWatch;
use crate::supervise::{AbortCause, Stepped, Watchman, check_mounts};
use crate::sys;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpid};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the stage may take to enter the sandbox's namespaces.
const ENTERING: Duration = Duration::from_secs(30);

/// Everything that must be taken down and sealed.
#[derive(Debug)]
pub struct Session {
    /// The record.
    pub ledger: Ledger,
    /// What is in force.
    pub installation: Installation,
    watchman: Watchman,
    status: Option<OwnedFd>,
    held: Vec<Reservation>,
    /// What the shields were made of.
    pub shielded: Manifest,
    /// Whether the first record is written.
    recorded: bool,
    /// Whether the command was started.
    started: bool,
}

impl Session {
    /// Begins with an open ledger and nothing in force.
    pub fn begin(ledger: Ledger, mut watchman: Watchman, held: Vec<Reservation>, status: Option<OwnedFd>) -> Session {
        watchman.watch_ledger(&ledger);
        let strangers = processes::children_of(getpid());
        let installation = Installation::beside(strangers);
        Session {
            ledger,
            installation,
            watchman,
            status,
            held,
            shielded: Manifest::default(),
            recorded: false,
            started: false,
        }
    }

    /// Writes the first record.
    pub fn start(
        &mut self,
        plan: &Plan,
        facts: &Facts,
        invocation: &Invocation,
        labels: BTreeMap<String, String>,
        session: Option<&Name>,
    ) -> Result<(), Error> {
        let postures = plan.policy.postures();
        let ids = plan.identity.as_ref().map_or((facts.uid, 0), |i| (i.uid.as_raw(), i.gid.as_raw()));
        let start = Start {
            version: env!("CARGO_PKG_VERSION").into(),
            policy_digest: plan.policy.digest(),
            postures: Axis::ALL.map(|axis| (axis.to_string(), postures.of(axis).to_string())).into(),
            rung: plan.rung.name().into(),
            session: session.map(Name::to_string),
            command: escape::escape_args(invocation.argv.iter().map(|a| a.as_bytes()), escape::TEXT_LIMIT),
            uid: ids.0,
            gid: ids.1,
            host: facts.to_json(),
            restrictions: plan.restrictions.iter().map(|c| (c.restriction.to_string(), c.mechanism.clone())).collect(),
            labels,
            unobserved: plan.unobserved.clone(),
            shadow: plan.shadow.as_ref().map(|stricter| Shadow {
                level: stricter.policy.level_name().into(),
                policy_digest: stricter.policy.digest(),
                postures: Axis::ALL
                    .map(|axis| (axis.to_string(), stricter.policy.postures().of(axis).to_string()))
                    .into(),
            }),
            refusal_nonce: plan.proxy.as_ref().and_then(|p| p.nonce.as_ref()).map(|nonce| nonce.as_str().to_owned()),
            shields: self.shielded.records(&other_names(plan)),
            tripwires: plan.tripwires.iter().map(|path| printable_path(path)).collect(),
            reads_seen_by: plan.reads_seen_by.map(|by| by.name().to_owned()),
            workspaces: plan
                .workspaces
                .iter()
                .map(|(path, how)| (escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT), how.to_string()))
                .collect(),
        };
        self.ledger.append(Body::Start(start))?;
        self.recorded = true;
        Ok(())
    }

    /// Gives the stage an order.
    pub fn order(&self, order: &Order) -> Result<(), Error> {
        let stage = self.installation.stage.as_ref().ok_or(AbortCause::Stage(ChannelError::Closed))?;
        stage.channel.send(order).map_err(|e| AbortCause::Stage(e).into())
    }

    /// Waits until the stage is in the sandbox's namespaces.
    pub fn await_stage(&mut self) -> Result<(), Error> {
        let wanted = |notice| match notice {
            Notice::Ready { stage } => Some(Ok(Pid::from_raw(stage))),
            Notice::Failed(cause) => Some(Err(InstallError::Stage(cause))),
            _ => None,
        };
        // A stage that is there already, or as good as that, has its orders before the wall is looked at again for the notices of
        // its own making: that is done while the probes run.
        let there = match &self.installation.stage {
            Some(stage) => stage.channel.receive_within::<Notice>(Duration::ZERO).map_err(AbortCause::Stage)?,
            None => None,
        };
        let ready = match there.and_then(wanted) {
            Some(ready) => ready,
            None => self.await_notice(Some(ENTERING), wanted)?,
        };
        Ok(self.installation.stage_is_ready(ready?, ENTERING)?)
    }

    /// Has the stage start the command, with this process's own stdio.
    pub fn launch(&mut self, plan: &Plan, invocation: &Invocation) -> Result<(), Error> {
        let order = self.watchman.launch_order();
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        self.order_launch(&order, plan, invocation, [input.as_fd(), output.as_fd(), error.as_fd()])
    }

    /// Gives the stage an order to launch a command with this stdio.
    pub fn order_launch(
        &self,
        order: &Order,
        plan: &Plan,
        invocation: &Invocation,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<(), Error> {
        let command = self.installation.command(plan, invocation)?;
        let document = document::write(&command).map_err(call("memfd_create"))?;
        let stage = self.installation.stage.as_ref().ok_or(AbortCause::Stage(ChannelError::Closed))?;
        let [input, output, error] = stdio;
        let sent = stage.channel.send_with(order, &[document.as_fd(), input, output, error]);
        sent.map_err(|e| AbortCause::Stage(e).into())
    }

    /// Waits for a notice of the stage; see [`Watchman::await_notice`].
    pub fn await_notice<T>(
        &mut self,
        patience: Option<Duration>,
        wanted: impl FnMut(Notice) -> Option<T>,
    ) -> Result<T, Error> {
        Ok(self.watchman.await_notice(&mut self.installation, &mut self.ledger, patience, wanted)?)
    }

    /// What the enforcing parts have told of what the probes had refused; from here on what they tell is recorded.
    pub fn begin_recording(&mut self) -> Result<Heard, Error> {
        let Installation { evidence, wall, .. } = &mut self.installation;
        // Without probes nobody tells of them.
        if !mutation::left_out(mutation::PROBING) {
            evidence.await_probes(&mut self.ledger).map_err(AbortCause::from)?;
        }
        evidence.collect_all(&mut self.ledger).map_err(AbortCause::from)?;
        let counters = match wall {
            Some(wall) => wall.counters().map_err(AbortCause::from)?,
            None => Vec::new(),
        };
        let refused: u64 = counters.iter().map(|c| c.packets).sum();
        let told: u64 = evidence.logged().values().sum();
        let heard = Heard {
            firewall: evidence.log().map(|_| (refused, told)),
            connects: evidence.connects().clone(),
            proxy: evidence.reports().map(|_| evidence.reported()),
            outer_filter: sys::seccomp_mode().map_err(call("prctl"))? != 0,
            calls: evidence.observer().and_then(|observer| observer.refused().cloned()).unwrap_or_default(),
            reads: evidence
                .observer()
                .into_iter()
                .chain(evidence.witness())
                .flat_map(Hearing::reads)
                .cloned()
                .collect(),
        };
        evidence.begin(&counters);
        Ok(heard)
    }

    /// From here on what happens to the sandbox's mounts ends the run.
    pub fn watch_mounts(&mut self) -> Result<(), Error> {
        Ok(check_mounts(&mut self.installation, &mut self.ledger, MountWatch::arm)?)
    }

    /// The session is open: there is no one command that it stands and falls with, and signals are its own.
    pub fn opens(&mut self) -> Result<(), Error> {
        self.order(&Order::Open)?;
        let opened = self.await_notice(Some(ENTERING), |notice| match notice {
            Notice::Opened => Some(Ok(())),
            Notice::Failed(cause) => Some(Err(cause)),
            _ => None,
        })?;
        opened.map_err(AbortCause::StageFailed)?;
        self.started = true;
        self.watchman.command_is_over();
        self.installation.session_opens();
        Ok(())
    }

    /// Waits as [`Watchman::step`] does.
    pub fn step(&mut self, deadline: Option<Instant>, others: &[BorrowedFd<'_>]) -> Result<Stepped, Error> {
        Ok(self.watchman.step(&mut self.installation, &mut self.ledger, deadline, others)?)
    }

    /// Whether a signal has asked for the end of what is left.
    pub fn is_ending(&self) -> bool {
        self.watchman.is_ending()
    }

    /// Has the stage end all that is left.
    pub fn order_end(&self) -> Result<(), Error> {
        Ok(self.watchman.order_end(&self.installation)?)
    }

    /// The command has been started: stdin and stdout are its alone, so that their other ends see when it closes them.
    pub fn command_runs(&mut self, command: Pid) -> Result<(), Error> {
        self.started = true;
        self.watchman.command_runs(command);
        self.installation.command_runs(command);
        release_input_and_output().map(drop).map_err(call("dup2"))
    }

    /// The command has ended.
    pub fn command_is_over(&mut self) -> Result<(), Error> {
        self.watchman.command_is_over();
        Ok(self.watchman.release_terminal()?)
    }

    /// Ends what the command left behind.
    pub fn end_leftovers(&mut self) -> Result<(), Error> {
        self.watchman.end_leftovers(&mut self.installation, &mut self.ledger)?;
        Ok(())
    }

    /// Waits until what the command left behind has ended by itself.
    pub fn await_empty(&mut self) -> Result<(), Error> {
        Ok(self.watchman.await_empty(&mut self.installation, &mut self.ledger)?)
    }

    /// Gives the status descriptor away, so that whoever reads it to its end need not wait for leftovers.
    pub fn take_status(&mut self) -> Option<OwnedFd> {
        self.status.take()
    }

    /// Takes everything down and writes the last record.
    pub fn seal(mut self, how: Ended) -> Result<(), Error> {
        if let Err(fault) = self.ledger.look() {
            return Err(self.fail(fault.into()));
        }
        let outcome = match how {
            Ended::Exited(_) => Outcome::Exited,
            Ended::Signaled(_) => Outcome::Signaled,
        };
        self.seal_as(SealInput { started: true, outcome, exit_code: Some(how.status()) }).map(drop)
    }

    /// The same of an end that is put in these words. Returns whether the record is complete.
    pub fn seal_as(mut self, end: SealInput) -> Result<bool, Error> {
        self.take_down();
        self.look_at_shields();
        self.carry_back();
        let sealed = self.ledger.seal(end).and_then(|sealed| self.ledger.stands().map(|()| sealed));
        let status = sealed.as_ref().map_or_else(|_| Status::unsealed(end), Status::from);
        tell(self.status.take(), &status);
        Ok(sealed?.complete)
    }

    /// Takes everything down where no command is to be started, has `compare` say what is left, given what could not be
    /// undone, and writes that and the last record. `failed` says whether a probe has. Returns what is left.
    pub fn end_probing(
        mut self,
        failed: bool,
        compare: impl FnOnce(&[String]) -> Vec<Probe>,
    ) -> Result<Vec<Probe>, Error> {
        let faults = self.take_down();
        self.look_at_shields();
        self.carry_back();
        self.held.clear();
        let left = compare(&faults);
        let mut recorded = left.iter().map(|probe| self.ledger.append(Body::Probe(probe.clone())));
        if let Some(error) = recorded.find_map(Result::err) {
            return Err(self.fail(error.into()));
        }
        let failed = failed || left.iter().any(|probe| !probe.passed);
        let end = SealInput { started: false, outcome: Outcome::NotStarted, exit_code: Some(i32::from(failed)) };
        let sealed = self.ledger.seal(end);
        let status = sealed.as_ref().map_or_else(|_| Status::unsealed(end), Status::from);
        tell(self.status.take(), &status);
        sealed?;
        Ok(left)
    }

    /// Takes everything down, records why the run ends here, and returns the error to be shown.
    pub fn fail(mut self, error: Error) -> Error {
        // The command's processes end with the stage; the terminal may still be theirs.
        if let Err(other) = self.watchman.release_terminal() {
            complain(&other.to_string());
        }
        self.take_down();
        self.look_at_shields();
        self.carry_back();
        // What has become of the ledger meanwhile is on record too, under whatever cause the run ends.
        let error = match (self.ledger.look(), error) {
            (Ok(()), error) => error,
            // A file that is removed takes with it what covers it in the sandbox.
            (Err(fault), Error::Aborted(AbortCause::ViewAltered(_))) => fault.into(),
            (Err(fault), error) => {
                complain(&fault.to_string());
                error
            }
        };
        let outcome = if self.started { Outcome::Aborted } else { Outcome::NotStarted };
        let end = SealInput { started: self.started, outcome, exit_code: (!self.started).then_some(error.status()) };
        let status = if self.recorded { self.seal_failure(&error, end) } else { Status::unsealed(end) };
        tell(self.status.take(), &status);
        // A ledger without a record is none.
        if !self.recorded
            && let Err(fault) = self.ledger.remove_if_unstarted()
        {
            complain(&fault.to_string());
        }
        error
    }

    fn seal_failure(&mut self, error: &Error, end: SealInput) -> Status {
        let cause = escape::printable(&error.to_string()).into_owned();
        match self.ledger.append(Body::Abort(Abort { cause })).and_then(|_| self.ledger.seal(end)) {
            Ok(sealed) => Status::from(&sealed),
            Err(fault) => {
                complain(&format!("the ledger could not be sealed: {fault}"));
                Status::unsealed(end)
            }
        }
    }

    /// Compares what is shielded with what it was, now that nothing of the sandbox is left and all is put back.
    fn look_at_shields(&mut self) {
        let before = std::mem::take(&mut self.shielded);
        if before.is_empty() {
            return;
        }
        let end = before.end();
        if end.state == ShieldState::Altered {
            complain(&format!("shields altered: {}", end.told()));
        }
        self.ledger.tell_of_shields(end);
    }

    /// Carries back what the command has committed; what was shielded has been looked at, so that this is no change of it.
    fn carry_back(&mut self) {
        let ends = self.installation.carry_back();
        tell_of_git(&ends);
        self.ledger.tell_of_git(ends);
    }

    /// What could not be undone is said and recorded, and returned; it changes no status of a command's, for that is what
    /// the caller asked for.
    fn take_down(&mut self) -> Vec<String> {
        let faults = self.installation.take_down(&mut self.ledger);
        for fault in &faults {
            complain(&format!("undo: {fault}"));
            let failure = Infrastructure {
                operation: "undo".into(),
                object: Object::default(),
                cause: fault.clone(),
                http_status: None,
            };
            if let Err(error) = self.ledger.append(Body::Infrastructure(failure)) {
                complain(&error.to_string());
            }
        }
        faults
    }
}

/// Names of what is shielded beside those that the policy gives.
fn other_names(plan: &Plan) -> Vec<PathBuf> {
    let all = plan.mounts.iter().flat_map(|view| &view.shields);
    all.filter(|path| !plan.shields.contains(path)).cloned().collect()
}

fn printable_path(path: &Path) -> String {
    escape::escape(path.as_os_str().as_bytes(), escape::TEXT_LIMIT)
}

/// Says what of repositories was not carried back. What runs that were killed had committed has no seal to be told of in.
pub fn tell_of_git(ends: &[GitEnd]) {
    ends.iter().filter_map(GitEnd::told).for_each(|told| complain(&told));
}

/// One line on stderr. A reader that does not read must hold up nothing, least of all the taking down.
pub fn complain(text: &str) {
    let stderr = std::io::stderr();
    let room = poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(HEARING_MS));
    // Nobody may be there to read it, and nothing depends on it.
    if room != Ok(0) && writeln!(stderr.lock(), "ringfence: {text}").is_err() {}
}

/// How long, in milliseconds, a full pipe on stderr is given to be read.
const HEARING_MS: u16 = 1000;

/// Writes the status line. Where nobody reads it, the command's status is still the caller's.
pub fn tell(descriptor: Option<OwnedFd>, status: &Status) {
    let Some(descriptor) = descriptor else { return };
    let line = status.to_line().map_err(std::io::Error::other);
    if let Err(cause) = line.and_then(|line| std::fs::File::from(descriptor).write_all(&line)) {
        complain(&format!("write to --json-status-fd: {cause}"));
    }
}
