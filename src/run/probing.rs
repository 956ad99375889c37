//! `ringfence probe`: a run without a command. The policy is put in force, the suite is tried, everything is taken down, and
//! what was there before is compared with what is there then.

use super::{Installed, Loaded, Planned, StatusLine};
use crate::cli::{LedgerPlace, ProbeArgs, RunArgs};
use crate::confine::exec::SignalState;
use crate::error::{Error, call};
use crate::ledger::LedgerTarget;
use crate::ledger::record::Probe;
use crate::plan::shadow::check_not_probed;
use crate::probe::outcome::{Outcome, Report, Row};
use crate::probe::render;
use crate::probe::trace::Before;
use crate::supervise::AbortCause;
use nix::unistd::geteuid;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

/// Tries the policy that the arguments name and prints what was seen. Returns 0 if every probe that applies has passed, 1
/// if not.
///
/// # Errors
/// Whatever keeps the policy from being put in force, the suite from being tried to its end in time, or the outcome from
/// being recorded.
pub fn probe(args: &ProbeArgs, signals: SignalState) -> Result<i32, Error> {
    let deadline = Instant::now() + Duration::from_secs(args.suite.timeout);
    let run = RunArgs { policy: args.policy.clone(), run: args.run.clone(), command: Vec::new() };
    let mut told = StatusLine::open(run.run.json_status_fd)?;
    let outcome = (|| {
        let selection = args.suite.selection()?;
        let mut loaded = Loaded::load(&run, signals)?;
        check_not_probed(&loaded.policy)?;
        loaded.probes = selection;
        let planned = loaded.plan()?;
        let head = head_of(&planned)?;
        let uid =
            planned.plan.identity.as_ref().filter(|_| !planned.plan.rung.means().one_uid).map(|who| who.uid.as_raw());
        let before = Before::look(&planned.plan);
        let installed = planned.install(&mut told)?;
        installed.try_all((args.suite.timeout, deadline), &before, uid, head)
    })();
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            told.not_started(&error);
            return Err(error);
        }
    };
    stdout().lock().write_all(render::render(&report, args.suite.format).as_bytes()).map_err(call("write"))?;
    Ok(report.status())
}

/// What is said of the run above its outcomes.
fn head_of(planned: &Planned<'_>) -> Result<Report, Error> {
    let ledger = match planned.args.policy.ledger_place() {
        Some(LedgerPlace::Path(path)) => std::path::absolute(path).map_err(call("getcwd"))?.display().to_string(),
        Some(LedgerPlace::Descriptor(number)) => format!("fd:{number}"),
        None => match LedgerTarget::default_for(geteuid().as_raw(), &planned.run)? {
            LedgerTarget::Path(path) => path.display().to_string(),
            LedgerTarget::Fd(_) => String::new(),
        },
    };
    Ok(Report {
        run: planned.run.to_string(),
        level: planned.plan.policy.level_name().to_string(),
        digest: planned.plan.policy.digest(),
        rung: planned.plan.rung.name().to_owned(),
        ledger,
        restrictions: Vec::new(),
        rows: Vec::new(),
    })
}

impl Installed {
    /// Tries the whole suite, takes everything down and says what was seen and what is left.
    fn try_all(
        mut self,
        (timeout, deadline): (u64, Instant),
        before: &Before,
        uid: Option<u32>,
        head: Report,
    ) -> Result<Report, Error> {
        let progress = Progress::begin();
        let patience = deadline.saturating_duration_since(Instant::now());
        let late = |after: &'static str| Error::ProbesLate { timeout, after };
        // What is in force by now is taken down all the same.
        let made = if patience.is_zero() {
            Err(late("while the policy was put in force, before any of them"))
        } else {
            self.outcomes(patience).map_err(|error| match error {
                Error::Aborted(AbortCause::StageSilent(_)) => late("before the probes came to their end"),
                error => error,
            })
        };
        progress.end();
        let made = match made {
            Ok(made) => made,
            Err(error) => return Err(self.session.fail(error)),
        };
        let suite = self.session.installation.suite.take();
        let mut rows = suite.as_ref().map_or(Vec::new(), |suite| {
            let of = |id: &str| made.iter().find(|probe| probe.id == id);
            suite.asked_for().map(|(spec, unmet)| Row::of(spec, outcome(unmet, of(&spec.id)))).collect()
        });
        let bait = suite.as_ref().map_or_else(String::new, |suite| suite.bait().to_owned());
        let failed = rows.iter().any(|row: &Row| matches!(row.outcome, Outcome::Failed { .. }));
        let traces = self.session.end_probing(failed, |faults| before.compare(faults, &head.run, &bait, uid))?;
        rows.extend(traces.iter().map(Row::of_trace));
        Ok(Report { rows, ..head })
    }
}

/// What became of a probe that was asked for.
fn outcome(unmet: Option<&str>, made: Option<&Probe>) -> Outcome {
    match (unmet, made) {
        (Some(cause), _) => Outcome::Skipped { cause: cause.to_owned() },
        (None, Some(probe)) => Outcome::from(probe),
        // What it would be tried with, or held against, is not to be had on this rung.
        (None, None) => Outcome::Skipped { cause: "not here: nothing to try it with".to_owned() },
    }
}

/// A line on stderr while the suite is tried; nothing where that is no terminal.
struct Progress {
    shown: bool,
}

impl Progress {
    fn begin() -> Progress {
        let shown = stderr().is_terminal();
        if shown {
            draw("ringfence: trying the policy …");
        }
        Progress { shown }
    }

    fn end(self) {
        if self.shown {
            draw("\r\x1b[K");
        }
    }
}

/// A terminal that is gone takes nothing away from the outcome.
fn draw(text: &str) {
    let mut out = stderr().lock();
    let _not_shown = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
