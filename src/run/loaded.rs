//! The first two stages of a run: what is asked, and the plan of it.

use super::{Planned, control_files, inherited, tell_of_git};
use crate::cli::RunArgs;
use crate::confine::exec::SignalState;
use crate::error::{Error, call};
use crate::host::{Depth, Facts};
use crate::install::Invocation;
use crate::install::account::{Databases, Identity};
use crate::install::dev_box::put_back_for_the_dead;
use crate::install::git;
use crate::install::reserve::{self, Busy, Reservation};
use crate::install::shields::{self, Manifest, ShieldError};
use crate::install::undo;
use crate::ledger::RunId;
use crate::plan::rung::RUNGS;
use crate::plan::{self, by_mode, dev_box};
use crate::policy::{Policy, Posture};
use crate::probe::selection::Selection;
use crate::proxy::RefusalNonce;
use crate::sys;
use nix::unistd::{Gid, geteuid, getgroups};
use std::os::unix::ffi::OsStrExt;

/// What is asked, read whole, and the numbers that belong to this run alone.
pub(super) struct Loaded<'a> {
    args: &'a RunArgs,
    pub(super) policy: Policy,
    invocation: Invocation,
    pub(super) probes: Selection,
    pub(super) run: RunId,
    databases: Databases,
    identity: Option<Identity>,
    own_uid: Option<u32>,
    held: Vec<Reservation>,
}

impl<'a> Loaded<'a> {
    pub(super) fn load(args: &'a RunArgs, signals: SignalState) -> Result<Loaded<'a>, Error> {
        let policy = args.policy.load()?;
        policy.check_holdable().map_err(plan::Refusal::from)?;
        plan::shadow::check(&policy)?;
        inherited::settle(&policy, args)?;
        let invocation = Invocation {
            argv: args.command.clone(),
            directory: std::env::current_dir().map_err(call("getcwd"))?,
            environment: std::env::vars_os().collect(),
            added: Vec::new(),
            directory_first: false,
            groups: callers_groups()?,
            signals,
            closed: sys::stdio_closed_at_start().collect(),
        };
        let run = RunId::random()?;
        let databases = Databases::read()?;
        let mut loaded = Loaded {
            args,
            policy,
            invocation,
            probes: Selection::preflight()?,
            run,
            databases,
            identity: None,
            own_uid: None,
            held: Vec::new(),
        };
        loaded.reserve()?;
        Ok(loaded)
    }

    /// Settles whom the command runs as, and takes the run's numbers.
    fn reserve(&mut self) -> Result<(), Error> {
        self.held.extend(reserve::run(self.run.as_str())?);
        // A shadow takes the numbers of whom its policy would have.
        let policy = self.policy.shadow.as_ref().map_or(&self.policy, |shadow| &shadow.policy).clone();
        if policy.postures().privilege == Posture::Open {
            return Ok(());
        }
        if !geteuid().is_root() {
            return self.keep_identity();
        }
        let mut busy = Busy::default();
        reserve::clear_stale_walls(&mut busy)?;
        tell_of_git(&undo::put_back_for_the_dead(&mut busy)?);
        let user = policy.privilege.user.as_ref();
        if let Some(user) = user {
            let identity = self.databases.named(&user.to_string())?;
            self.held.push(reserve::named_uid(identity.uid.as_raw())?);
            self.identity = Some(identity);
        }
        let numbers = reserve::numbers(&self.databases, &mut busy, user.is_none())?;
        if let Some(uid) = numbers.command {
            self.identity = Some(self.databases.dedicated(uid));
        }
        self.own_uid = Some(numbers.own);
        self.held.extend(numbers.held);
        // A run that was killed since may have left a wall for a number that is free again.
        Ok(reserve::clear_stale_walls(&mut busy)?)
    }

    /// Without root the command has the caller's ids, and so has everything of ours.
    fn keep_identity(&mut self) -> Result<(), Error> {
        let identity = match &self.policy.privilege.user {
            Some(user) => self.databases.named(&user.to_string())?,
            None => self.databases.callers(),
        };
        self.own_uid = Some(geteuid().as_raw());
        self.identity = Some(identity);
        put_back_for_the_dead()?;
        Ok(())
    }

    pub(super) fn plan(self) -> Result<Planned<'a>, Error> {
        let Loaded { args, policy, mut invocation, probes, run, databases, identity, own_uid, held, .. } = self;
        let weaker = args.run.demanded().is_some_and(|demanded| demanded.name() != RUNGS[0].name());
        let depth = if weaker { Depth::EveryRung } else { Depth::Strongest };
        let planned = |mut policy: Policy, databases: Databases, identity: Option<Identity>, rung| {
            dev_box::settle_workspace(&mut policy, &invocation.directory, identity.as_ref());
            let facts = Facts::gather(&policy, databases, identity, depth)?;
            let masks = control_files::masks(&policy, &facts)?;
            let mut plan = match plan::plan(policy, &facts, &masks, rung) {
                Ok(plan) => plan,
                Err(refusal) => return Ok((Err(refusal), facts)),
            };
            shields::complete(&mut plan, Some(&invocation))?;
            Ok::<_, Error>((by_mode::check(&plan, &facts).map(|()| plan), facts))
        };
        let demanded = args.run.demanded();
        let (planned, facts) = match policy.shadow.clone() {
            None => planned(policy, databases, identity, demanded)?,
            Some(shadow) => {
                let rung = plan::shadow::rung(&shadow, demanded)?;
                let (enforced, mut facts) = planned(policy, databases.clone(), None, demanded)?;
                let (stricter, of_stricter) = planned(shadow.policy, databases, identity, Some(rung))?;
                facts.id_mapping = of_stricter.id_mapping;
                (enforced.and_then(|enforced| plan::shadow::join(enforced, stricter)), facts)
            }
        };
        let mut plan = planned?;
        inherited::check_stdio(&plan)?;
        let repositories = plan.mounts.iter().flat_map(|view| &view.git).map(|cover| cover.directory.clone());
        let repositories: Vec<_> = repositories.collect();
        for directory in &repositories {
            tell_of_git(&git::put_back_for_the_dead(directory).map_err(ShieldError::from)?);
        }
        // What earlier runs have kept is their commands', of any size, and no part of the repository.
        let mut own: Vec<_> = repositories.iter().map(|directory| git::wrapper(directory, run.as_str())).collect();
        for directory in &repositories {
            own.extend(git::wrappers(directory).map_err(ShieldError::from)?.into_iter().map(|(path, _)| path));
        }
        let shielded = Manifest::less(&[&plan.shields[..], &repositories].concat(), &own)?;
        plan.mounts.as_mut().map_or(Ok(()), |view| shielded.hold(view))?;
        control_files::check(&plan, &facts, args)?;
        if let (true, Some(proxy)) = (plan.policy.network.explain, &mut plan.proxy) {
            proxy.nonce = Some(RefusalNonce::random()?);
        }
        if let Some(credentials) = facts.upstream.as_ref().and_then(|parent| parent.credentials()) {
            invocation.environment.retain(|(_, value)| !credentials.stand_in(value.as_bytes()));
        }
        Ok(Planned { args, plan, shielded, facts, invocation, probes, run, own_uid, held, session: None })
    }
}

/// Before the run's marks are among them.
fn callers_groups() -> Result<Vec<u32>, Error> {
    Ok(getgroups().map_err(call("getgroups"))?.into_iter().map(Gid::as_raw).collect())
}
