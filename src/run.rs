//! One run: `load → plan → install → probe → launch → supervise → seal`, each stage consuming the one before.

mod control_files;
mod inherited;
mod keep;
mod session;

use crate::cli::RunArgs;
use crate::confine::exec::SignalState;
use crate::error::{Error, call};
use crate::host::Facts;
use crate::install::Invocation;
use crate::install::account::{Databases, Identity};
use crate::install::reserve::{self, Reservation};
use crate::install::undo;
use crate::ledger::record::{Body, Outcome};
use crate::ledger::{RunId, SealInput, Status};
use crate::plan::{self, Plan};
use crate::policy::{Leftovers, Policy, Posture};
use crate::probe::Suite;
use crate::stage::{Ended, Notice, Order};
use session::Session;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Runs the command that the arguments name under the policy that they name. Returns the exit status to pass on.
pub fn run(args: &RunArgs) -> Result<i32, Error> {
    let mut told = StatusLine::open(args)?;
    let outcome = (|| {
        let loaded = Loaded::load(args)?;
        let planned = loaded.plan()?;
        let installed = planned.install(&mut told)?;
        let probed = installed.probe()?;
        let running = probed.launch()?;
        let exited = running.supervise()?;
        exited.seal()
    })();
    if let Err(error) = &outcome {
        told.not_started(error)?;
    }
    outcome
}

/// `--json-status-fd`: one line, whatever happens.
struct StatusLine(Option<OwnedFd>);

impl StatusLine {
    fn open(args: &RunArgs) -> Result<StatusLine, Error> {
        let Some(fd) = args.run.json_status_fd else { return Ok(StatusLine(None)) };
        inherited::adopt(fd).map(|fd| StatusLine(Some(fd))).map_err(|errno| Error::StatusDescriptor { fd, errno })
    }

    /// For a run that ended before there was a session to tell of.
    fn not_started(self, error: &Error) -> Result<(), Error> {
        let end = SealInput { started: false, outcome: Outcome::NotStarted, exit_code: Some(error.status()) };
        session::tell(self.0, &Status::unsealed(end))
    }
}

/// What is asked, read whole, and the numbers that belong to this run alone.
struct Loaded<'a> {
    args: &'a RunArgs,
    policy: Policy,
    invocation: Invocation,
    run: RunId,
    databases: Databases,
    identity: Option<Identity>,
    busy: BTreeSet<u32>,
    held: Vec<Reservation>,
}

impl<'a> Loaded<'a> {
    fn load(args: &'a RunArgs) -> Result<Loaded<'a>, Error> {
        let signals = SignalState::block_all().map_err(call("sigprocmask"))?;
        let policy = args.policy.load()?;
        policy.check_holdable().map_err(plan::Refusal::from)?;
        inherited::check(&policy, args)?;
        let invocation = Invocation {
            argv: args.command.clone(),
            directory: std::env::current_dir().map_err(call("getcwd"))?,
            environment: std::env::vars_os().collect(),
            signals,
        };
        let run = RunId::random()?;
        let databases = Databases::read()?;
        let mut loaded = Loaded {
            args,
            policy,
            invocation,
            run,
            databases,
            identity: None,
            busy: BTreeSet::new(),
            held: Vec::new(),
        };
        loaded.reserve()?;
        Ok(loaded)
    }

    /// Settles whom the command runs as, and takes the run's numbers.
    fn reserve(&mut self) -> Result<(), Error> {
        self.held.extend(reserve::run(self.run.as_str())?);
        if self.policy.postures().privilege == Posture::Open {
            return Ok(());
        }
        self.busy = reserve::busy_uids();
        reserve::clear_stale_walls(&mut self.busy)?;
        undo::put_back_for_the_dead(&self.busy)?;
        self.identity = Some(match &self.policy.privilege.user {
            Some(user) => {
                let identity = self.databases.named(&user.to_string())?;
                self.held.push(reserve::named_uid(identity.uid.as_raw())?);
                identity
            }
            None => {
                let (uid, held) = reserve::command_uid(&self.databases, &self.busy)?;
                self.held.push(held);
                self.databases.dedicated(uid)
            }
        });
        Ok(())
    }

    fn plan(self) -> Result<Planned<'a>, Error> {
        let Loaded { args, policy, invocation, run, databases, identity, busy, held } = self;
        let facts = Facts::gather(&policy, databases, identity, false)?;
        let masks = control_files::masks(&policy, &facts)?;
        let plan = plan::plan(policy, &facts, &masks)?;
        control_files::check(&plan, &facts, args)?;
        Ok(Planned { args, plan, facts, invocation, run, busy, held })
    }
}

/// What will be put in force.
struct Planned<'a> {
    args: &'a RunArgs,
    plan: Plan,
    facts: Facts,
    invocation: Invocation,
    run: RunId,
    busy: BTreeSet<u32>,
    held: Vec<Reservation>,
}

impl Planned<'_> {
    /// Opens the ledger, then puts the plan in force. From here on every way out seals.
    fn install(mut self, told: &mut StatusLine) -> Result<Installed, Error> {
        let (ledger, mask) = control_files::open_ledger(self.args, &self.run, &self.plan)?;
        if let Some(mounts) = &mut self.plan.mounts {
            mask.iter().for_each(|path| mounts.mask(path));
        }
        let mut session = Session::begin(ledger, self.held, told.0.take())?;
        if let Err(error) = session.start(&self.plan, &self.facts, &self.invocation, self.args.run.labels()) {
            return Err(session.fail(error));
        }
        let run = self.run.as_str();
        match session.installation.put_up(run, &self.plan, &self.facts, &self.busy, &self.invocation) {
            Ok(()) => Ok(Installed { session, leftovers: leftovers(&self.plan.policy, self.facts.is_init) }),
            Err(error) => Err(session.fail(error.into())),
        }
    }
}

/// `kill` where this process is PID 1, whose end ends the container; `keep` elsewhere, for graders test live servers.
fn leftovers(policy: &Policy, is_init: bool) -> Leftovers {
    policy.leftovers.unwrap_or(if is_init { Leftovers::Kill } else { Leftovers::Keep })
}

/// What is in force.
struct Installed {
    session: Session,
    leftovers: Leftovers,
}

/// How long all probes together may take.
const PROBING: Duration = Duration::from_secs(60);
/// How long the command may take to be started.
const LAUNCHING: Duration = Duration::from_secs(30);

impl Installed {
    /// Has a confined child try the policy, and records what it saw.
    fn probe(mut self) -> Result<Probed, Error> {
        match self.try_policy() {
            Ok(()) => Ok(Probed { session: self.session, leftovers: self.leftovers }),
            Err(error) => Err(self.session.fail(error)),
        }
    }

    fn try_policy(&mut self) -> Result<(), Error> {
        let session = &mut self.session;
        session.order(&Order::Probe)?;
        let probes = session.await_notice(Some(PROBING), |notice| match notice {
            Notice::Probed(probes) => Some(Ok(probes)),
            Notice::Failed(cause) => Some(Err(cause)),
            _ => None,
        })?;
        let probes = probes.map_err(crate::supervise::AbortCause::StageFailed)?;
        let mut failed = None;
        for probe in probes {
            if !probe.passed && failed.is_none() {
                failed = Some(probe.clone());
            }
            session.ledger.append(Body::Probe(probe))?;
        }
        if let Some(probe) = failed {
            let why = Suite::why(&probe.id).unwrap_or_default();
            return Err(Error::Probe { id: probe.id, expected: probe.expected, seen: probe.seen, why });
        }
        session.begin_recording()
    }
}

/// What is in force and has been shown to be.
struct Probed {
    session: Session,
    leftovers: Leftovers,
}

impl Probed {
    fn launch(mut self) -> Result<Running, Error> {
        match self.start_command() {
            Ok(()) => Ok(Running { session: self.session, leftovers: self.leftovers }),
            Err(error) => Err(self.session.fail(error)),
        }
    }

    fn start_command(&mut self) -> Result<(), Error> {
        let session = &mut self.session;
        session.order(&Order::Launch)?;
        let launched = session.await_notice(Some(LAUNCHING), |notice| match notice {
            Notice::Launched { pid: _ } => Some(Ok(())),
            Notice::NotLaunched(failure) => Some(Err(failure)),
            _ => None,
        })?;
        launched?;
        session.command_runs();
        Ok(())
    }
}

/// The command runs.
struct Running {
    session: Session,
    leftovers: Leftovers,
}

impl Running {
    fn supervise(mut self) -> Result<Exited, Error> {
        let ended = self.session.await_notice(None, |notice| match notice {
            Notice::Ended { how, left } => Some((how, left)),
            _ => None,
        });
        match ended {
            Ok((how, left)) => Ok(Exited { session: self.session, leftovers: self.leftovers, how, left }),
            Err(cause) => Err(self.session.fail(cause)),
        }
    }
}

/// The command has ended; what it left behind may still run.
struct Exited {
    session: Session,
    leftovers: Leftovers,
    how: Ended,
    left: bool,
}

impl Exited {
    fn seal(mut self) -> Result<i32, Error> {
        let status = self.how.status();
        if let Err(error) = self.session.command_is_over() {
            return Err(self.session.fail(error));
        }
        match (self.left, self.leftovers) {
            (true, Leftovers::Keep) => return keep::hand_over(self.session, self.how),
            (true, Leftovers::Kill) => {
                if let Err(error) = self.session.end_leftovers() {
                    return Err(self.session.fail(error));
                }
            }
            (false, _) => {}
        }
        self.session.seal(self.how)?;
        Ok(status)
    }
}
