//! The subcommands that are no run: each asks, prints and returns its exit status.

use crate::canary;
use crate::cli::{
    AllowlistCommand, CanaryCommand, Command, PlanArgs, PolicyCommand, ReportArgs, SuiteFlags, VerifyArgs,
};
use crate::confine::exec::SignalState;
use crate::connect;
use crate::error::{self, Error, call};
use crate::host::{Depth, Facts};
use crate::install::account::{Databases, Identity};
use crate::install::reserve::{self, Busy};
use crate::install::shields::{self, ShieldError};
use crate::ledger::verify_path;
use crate::plan::{self, Refusal, by_mode, describe, dev_box};
use crate::policy::{Leftovers, Policy, Posture, show};
use crate::probe::render::{self, Form};
use crate::probe::spec::Spec;
use crate::probe::suite_file::SuiteError;
use crate::probe::{external, listing};
use crate::report::{self, ReportError};
use crate::session::client as session;
use nix::unistd::geteuid;
use serde_json::json;
use std::io::{BufWriter, IsTerminal, Write};
use std::time::Duration;

/// Does what a subcommand asks. `signals` is the caller's signal state; all are blocked.
pub fn execute(command: &Command, signals: SignalState) -> Result<i32, Error> {
    let holds_something = match command {
        Command::Run(_) | Command::Up(_) | Command::Exec(_) => true,
        Command::Probe(args) => !args.suite.only_prints() && !args.suite.external,
        _ => false,
    };
    if !holds_something {
        signals.unblock().map_err(call("sigprocmask"))?;
    }
    let mut out = std::io::stdout().lock();
    match command {
        Command::Run(args) => {
            drop(out);
            crate::run::run(args, signals)
        }
        Command::Probe(args) if args.suite.only_prints() => suite(&args.suite, &mut out),
        Command::Probe(args) if args.suite.external => {
            let selection = args.suite.selection()?;
            let patience = Duration::from_secs(args.suite.timeout);
            let report = external::probe(&args.policy.load()?, selection, patience)?;
            out.write_all(render::render(&report, args.suite.format).as_bytes()).map_err(call("write"))?;
            Ok(report.status())
        }
        Command::Probe(args) => {
            drop(out);
            crate::run::probe(args, signals)
        }
        Command::Up(args) => {
            drop(out);
            crate::run::up(args, signals)
        }
        Command::Exec(args) => {
            drop(out);
            session::exec(args, signals)
        }
        Command::Down(session) => session::down(&session.name),
        Command::Status { name, json } => session::status(&name.name, *json, &mut out),
        Command::Plan(args) => plan(args, &mut out),
        Command::Policy(PolicyCommand::Show(flags)) => {
            let text = show::policy_show(&flags.load()?);
            out.write_all(text.as_bytes()).map_err(call("write"))?;
            Ok(0)
        }
        Command::Policy(PolicyCommand::Check { file }) => {
            show::policy_check(file, &mut out)?;
            Ok(0)
        }
        Command::Allowlist(AllowlistCommand::Check { targets, policy }) => {
            let admitted = show::allowlist_check(&policy.load()?, targets, &mut out).map_err(call("write"))?;
            Ok(i32::from(!admitted))
        }
        Command::Why { target, policy } => why(&policy.load()?, target, &mut out),
        Command::Connect { host, port } => {
            drop(out);
            connect::connect(host, port)?;
            Ok(0)
        }
        Command::Verify(args) => verify(args, &mut out),
        Command::Report(args) => self::report_on(args, &mut out),
        Command::Canary(CanaryCommand::Plant(args)) => {
            canary::plant(&args.request(), &mut out)?;
            Ok(0)
        }
        Command::Canary(CanaryCommand::Scan(args)) => Ok(canary::scan(&args.request()?, &mut out)?.status()),
    }
}

fn plan(args: &PlanArgs, out: &mut impl Write) -> Result<i32, Error> {
    let policy = args.policy.load()?;
    plan::shadow::check(&policy)?;
    let databases = Databases::read()?;
    let numbered = policy.shadow.as_ref().map_or(&policy, |shadow| &shadow.policy);
    let identity = match (&numbered.privilege.user, numbered.privilege.posture) {
        (_, Posture::Open) => None,
        (None, _) if !geteuid().is_root() => Some(databases.callers()),
        (Some(user), _) => Some(databases.named(&user.to_string())?),
        // The one that a run would take now.
        (None, _) => {
            let numbers = reserve::numbers(&databases, &mut Busy::default(), true)?;
            numbers.command.map(|uid| databases.dedicated(uid))
        }
    };
    let directory = std::env::current_dir().map_err(call("getcwd"))?;
    let planned = |mut policy: Policy, databases: Databases, identity: Option<Identity>, rung| {
        dev_box::settle_workspace(&mut policy, &directory, identity.as_ref());
        let facts = Facts::gather(&policy, databases, identity, Depth::Everything)?;
        let planned = match plan::plan(policy, &facts, &[], rung) {
            Ok(mut plan) => match shields::complete(&mut plan, None) {
                Ok(()) => by_mode::check(&plan, &facts).map(|()| plan),
                Err(ShieldError::Refused(refusal)) => Err(refusal),
                Err(error) => return Err(error.into()),
            },
            refused => refused,
        };
        let planned = planned.map(|mut plan| {
            plan.notes.extend(terminal_note(&plan.policy, facts.is_init));
            plan
        });
        Ok::<_, Error>((planned, facts))
    };
    let (planned, facts) = match policy.shadow.clone() {
        None => planned(policy, databases, identity, args.run.demanded())?,
        Some(shadow) => {
            let rung = plan::shadow::rung(&shadow, args.run.demanded())?;
            let (enforced, facts) = planned(policy, databases.clone(), None, args.run.demanded())?;
            let (stricter, _) = planned(shadow.policy, databases, identity, Some(rung))?;
            (enforced.and_then(|enforced| plan::shadow::join(enforced, stricter)), facts)
        }
    };
    let (text, status) = match planned {
        Ok(plan) if args.json => (describe::json(&plan, &facts), 0),
        Ok(plan) => (describe::text(&plan, &facts), 0),
        // Whoever reads JSON sees by the facts what could be changed about it.
        Err(refusal) if args.json => (refused(&refusal, &facts), error::OURS),
        Err(refusal) => return Err(refusal.into()),
    };
    out.write_all(text.as_bytes()).map_err(call("write"))?;
    Ok(status)
}

/// What a run with this stdio would leave in others' hands. `is_init` is whether this process is PID 1.
fn terminal_note(policy: &Policy, is_init: bool) -> Option<String> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let terminal = input.is_terminal() || output.is_terminal() || error.is_terminal();
    let kept = policy.leftovers(is_init) == Leftovers::Keep;
    (terminal && kept && policy.privilege.posture != Posture::Open).then(|| {
        "stdio is a terminal, and what the command leaves behind keeps it and can read what is typed there afterwards: \
         --leftovers kill, or a session, whose `exec` passes no terminal on"
            .into()
    })
}

fn suite(flags: &SuiteFlags, out: &mut impl Write) -> Result<i32, Error> {
    let text = match &flags.explain {
        Some(id) => listing::explain(&flags.all()?, id)?,
        None => {
            let selection = flags.selection()?;
            let chosen: Vec<&Spec> =
                selection.tried.iter().filter(|spec| selection.chosen.contains(&spec.id)).collect();
            match flags.format {
                Form::Table => listing::table(&chosen),
                Form::Json => listing::json(&chosen),
                Form::Tap | Form::Junit => return Err(SuiteError::ListForm.into()),
            }
        }
    };
    out.write_all(text.as_bytes()).map_err(call("write"))?;
    Ok(0)
}

fn why(policy: &Policy, target: &str, out: &mut impl Write) -> Result<i32, Error> {
    // Whom the command would run as changes nothing about it.
    let facts = Facts::gather(policy, Databases::read()?, None, Depth::Strongest)?;
    Ok(crate::why::why(policy, &facts, target, out)?.status())
}

/// A refusal as JSON, with the facts that it was made from.
fn refused(refusal: &Refusal, facts: &Facts) -> String {
    format!("{:#}\n", json!({"refused": refusal.to_string(), "host": facts.to_json()}))
}

fn verify(args: &VerifyArgs, out: &mut impl Write) -> Result<i32, Error> {
    let found = verify_path(&args.ledger, args.head.as_ref().map(|head| head.as_str()))?;
    writeln!(out, "{found}").map_err(call("write"))?;
    if let Some(shadow) = found.shadow() {
        writeln!(out, "{shadow}").map_err(call("write"))?;
    }
    Ok(i32::from(found.exit_code()))
}

fn report_on(args: &ReportArgs, out: &mut impl Write) -> Result<i32, Error> {
    let colour = std::io::stdout().is_terminal();
    // Tables of ten thousand runs are many small writes.
    let mut out = BufWriter::new(out);
    report::make(args.request(), &mut out, colour)?;
    out.flush().map_err(ReportError::Print)?;
    Ok(0)
}
