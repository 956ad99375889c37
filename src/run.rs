//! One run: `load → plan → install → probe → launch → supervise → seal`, each stage consuming the one before.

mod control_files;
mod inherited;
mod keep;
mod loaded;
mod open;
mod probing;
mod session;
mod status_line;

use crate::cli::RunArgs;
use crate::confine::exec::SignalState;
use crate::error::Error;
use crate::host::Facts;
use crate::install::Invocation;
use crate::install::reserve::Reservation;
use crate::install::shields::Manifest;
use crate::ledger::RunId;
use crate::ledger::record::{Body, Probe};
use crate::mutation;
use crate::plan::Plan;
use crate::plan::keep_out::keep_out;
use crate::plan::means::FileBarrier;
use crate::policy::{Leftovers, Policy};
use crate::probe::selection::Selection;
use crate::session::place::Place;
use crate::stage::{Ended, Notice, Order};
use crate::supervise::{AbortCause, Watchman};
use loaded::Loaded;
use nix::unistd::Pid;
use session::Session;
use status_line::StatusLine;
use std::ffi::OsString;
use std::time::Duration;

pub use open::up;
pub use probing::probe;
pub use session::{complain, tell_of_git};

/// Runs the command that the arguments name under the policy that they name, giving it the caller's signal state. Returns
/// the exit status to pass on.
pub fn run(args: &RunArgs, signals: SignalState) -> Result<i32, Error> {
    let mut told = StatusLine::open(args.run.json_status_fd)?;
    let outcome = (|| {
        let loaded = Loaded::load(args, signals)?;
        let planned = loaded.plan()?;
        let installed = planned.install(&mut told)?;
        let probed = installed.probe()?;
        let running = probed.launch()?;
        let exited = running.supervise()?;
        exited.seal()
    })();
    if let Err(error) = &outcome {
        told.not_started(error);
    }
    outcome
}

/// Writes the status line of a run whose command line could not be read, if the line names a descriptor all the same.
pub fn not_parsed(arguments: &[OsString], error: &Error) {
    let mut ours = arguments.iter().take_while(|argument| *argument != "--");
    let fd = std::iter::from_fn(|| {
        let argument = ours.next()?.to_string_lossy();
        Some(match argument.strip_prefix("--json-status-fd") {
            Some("") => ours.next().map(|value| value.to_string_lossy().into_owned()),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => None,
        })
    });
    let fd = fd.flatten().find_map(|value| value.parse().ok());
    if let Ok(told) = StatusLine::open(fd) {
        told.not_started(error);
    }
}

/// What will be put in force.
struct Planned<'a> {
    args: &'a RunArgs,
    plan: Plan,
    /// What the shields are made of before anything is put in force.
    shielded: Manifest,
    facts: Facts,
    invocation: Invocation,
    probes: Selection,
    run: RunId,
    own_uid: Option<u32>,
    held: Vec<Reservation>,
    /// The place of the session that the run is to be.
    session: Option<Place>,
}

impl Planned<'_> {
    /// Opens the ledger, then puts the plan in force. From here on every way out seals.
    fn install(mut self, told: &mut StatusLine) -> Result<Installed, Error> {
        let watchman = Watchman::new()?;
        let (ledger, mask) = control_files::open_ledger(self.args, &self.run, &self.plan)?;
        let means = self.plan.rung.means();
        let view = match &mut self.plan.shadow {
            Some(stricter) => &mut stricter.mounts,
            None => &mut self.plan.mounts,
        };
        if let (Some(view), Some(mask)) = (view, mask) {
            match means.files {
                FileBarrier::Mounts => view.mask(&mask),
                FileBarrier::Landlock if means.one_uid => {
                    keep_out(view, mask.parent().filter(|_| mask.is_file()).unwrap_or(&mask));
                }
                // Its mode keeps it from another uid.
                FileBarrier::Landlock => {}
            }
        }
        if let Some(place) = &self.session {
            control_files::keep_session_out(&mut self.plan, place);
        }
        let name = self.session.as_ref().map(Place::name);
        let mut session = Session::begin(ledger, watchman, self.held, told.take());
        session.shielded = self.shielded;
        if let Err(error) = session.start(&self.plan, &self.facts, &self.invocation, self.args.run.labels(), name) {
            return Err(session.fail(error));
        }
        session.installation.probes = self.probes;
        let run = self.run.as_str();
        let put_up = session.installation.put_up(run, &self.plan, &self.facts, self.own_uid, &self.invocation);
        match put_up.map_err(Error::from).and_then(|()| session.await_stage()) {
            Ok(()) => {
                let leftovers = Leaving::of(&self.plan.policy, self.facts.is_init);
                Ok(Installed { session, plan: self.plan, invocation: self.invocation, leftovers })
            }
            Err(error) => Err(session.fail(error)),
        }
    }
}

/// What becomes of what the command leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It is ended.
    Ended,
    /// It stays, and this process with it: the end of a PID 1 is the end of everything.
    AwaitedHere,
    /// It stays under a supervisor of its own, and this process returns.
    HandedOver,
}

impl Leaving {
    fn of(policy: &Policy, is_init: bool) -> Leaving {
        match (policy.leftovers(is_init), is_init) {
            (Leftovers::Kill, _) => Leaving::Ended,
            (Leftovers::Keep, true) => Leaving::AwaitedHere,
            (Leftovers::Keep, false) => Leaving::HandedOver,
        }
    }
}

/// What is in force.
struct Installed {
    session: Session,
    plan: Plan,
    invocation: Invocation,
    leftovers: Leaving,
}

/// How long all probes together may take.
const PROBING: Duration = Duration::from_secs(60);
/// How long the command may take to be started.
const LAUNCHING: Duration = Duration::from_secs(30);

impl Installed {
    /// Has a confined child try the policy, and records what it saw.
    fn probe(mut self) -> Result<Probed, Error> {
        match self.try_policy() {
            Ok(()) => Ok(Probed(self)),
            Err(error) => Err(self.session.fail(error)),
        }
    }

    fn try_policy(&mut self) -> Result<(), Error> {
        match self.outcomes(PROBING)?.into_iter().find(|probe| !probe.passed) {
            Some(Probe { id, expected, seen, .. }) => {
                let suite = self.session.installation.suite.as_ref();
                let why = suite.and_then(|suite| suite.why(&id)).unwrap_or_default().to_owned();
                Err(Error::Probe { id, expected, seen, why })
            }
            None => Ok(()),
        }
    }

    /// Tries the suite and records the outcome of each probe.
    fn outcomes(&mut self, patience: Duration) -> Result<Vec<Probe>, Error> {
        let session = &mut self.session;
        if mutation::left_out(mutation::PROBING) {
            session.begin_recording()?;
            session.watch_mounts()?;
            return Ok(Vec::new());
        }
        session.order(&Order::Probe)?;
        let probes = session.await_notice(Some(patience), |notice| match notice {
            Notice::Probed(probes) => Some(Ok(probes)),
            Notice::Failed(cause) => Some(Err(cause)),
            _ => None,
        })?;
        let probes = probes.map_err(AbortCause::StageFailed)?;
        // Last, for what was refused to them must have been told by now.
        let heard = session.begin_recording()?;
        let judged = session.installation.suite.as_ref().map_or(Vec::new(), |suite| suite.judge(&heard, probes));
        for probe in &judged {
            session.ledger.append(Body::Probe(probe.clone()))?;
        }
        // One that fails may have mounted what it should not have been able to.
        if judged.iter().all(|probe| probe.passed) {
            session.watch_mounts()?;
        }
        Ok(judged)
    }
}

/// What is in force and has been shown to be.
struct Probed(Installed);

impl Probed {
    fn launch(mut self) -> Result<Running, Error> {
        match self.start_command() {
            Ok(()) => Ok(Running { session: self.0.session, leftovers: self.0.leftovers }),
            Err(error) => Err(self.0.session.fail(error)),
        }
    }

    fn start_command(&mut self) -> Result<(), Error> {
        let Installed { session, plan, invocation, .. } = &mut self.0;
        session.launch(plan, invocation)?;
        let launched = session.await_notice(Some(LAUNCHING), |notice| match notice {
            Notice::Launched { pid, .. } => Some(Ok(Pid::from_raw(pid))),
            Notice::NotLaunched { failure, .. } => Some(Err(failure)),
            _ => None,
        })?;
        session.command_runs(launched?)
    }
}

/// The command runs.
struct Running {
    session: Session,
    leftovers: Leaving,
}

impl Running {
    fn supervise(mut self) -> Result<Exited, Error> {
        let ended = self.session.await_notice(None, |notice| match notice {
            Notice::Ended { how, left, .. } => Some((how, left)),
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
    leftovers: Leaving,
    how: Ended,
    left: bool,
}

impl Exited {
    fn seal(mut self) -> Result<i32, Error> {
        let status = self.how.status();
        if let Err(error) = self.session.command_is_over() {
            return Err(self.session.fail(error));
        }
        let over = match (self.left, self.leftovers) {
            (true, Leaving::HandedOver) => return keep::hand_over(self.session, self.how),
            (true, Leaving::AwaitedHere) => self.session.await_empty(),
            (true, Leaving::Ended) => self.session.end_leftovers(),
            (false, _) => Ok(()),
        };
        if let Err(error) = over {
            return Err(self.session.fail(error));
        }
        self.session.seal(self.how)?;
        Ok(status)
    }
}
