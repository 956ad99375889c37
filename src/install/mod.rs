//! Set-up with privilege, read back, undone in reverse.
pub mod account;
mod caught;
mod covers;
pub mod dev_box;
mod error;
pub mod firewall;
pub mod git;
pub mod home;
pub mod mountinfo;
pub mod mounts;
mod names;
pub mod netns;
pub mod placeholders;
pub mod protect;
pub mod proxy;
pub mod publish;
pub mod reserve;
pub mod rootless;
mod shadow;
pub mod shields;
pub(crate) mod specs;
mod stage_process;
mod start_stage;
mod surroundings;
mod take_down;
mod tool_files;
mod tree;
pub mod undo;
mod view;
mod witness;
pub mod workspace;

use crate::channel::Channel;
use crate::confine::exec::{Command, SignalState, as_text};
use crate::host::Facts;
use crate::mutation;
use crate::observe::evidence::{Evidence, EvidenceError, Hearing, Source};
use crate::observe::landlock_audit::LandlockAudit;
use crate::observe::nflog::NfLog;
use crate::plan::Plan;
use crate::plan::means::EgressBarrier;
use crate::probe::Suite;
use crate::probe::selection::Selection;
use crate::proxy::transparent::Told;
use crate::supervise::watch_mounts::MountWatch;
use account::AccountError;
use account::Identity;
use caught::Bound;
pub use error::InstallError;
use firewall::rules::PROXIES;
use firewall::{Wall, WallSpec, Watch, Ways};
use mounts::MountPlan;
use nix::sys::prctl::set_dumpable;
use nix::unistd::{Pid, geteuid};
use placeholders::Placeholders;
use proxy::{ProxyProcess, SpawnError};
use publish::{Forwarder, Published};
use reserve::{Reservation, ReserveError};
use rootless::Namespaces;
use serde::{Deserialize, Serialize};
use specs::wall_spec;
pub use stage_process::StageProcess;
use std::ffi::OsString;
use std::net::SocketAddrV4;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use surroundings::{c_strings, command_environment, workdir};
use undo::{Undo, UndoFile};
use workspace::{Owners, Ownership};

/// What the command is and where it comes from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invocation {
    /// The command and its arguments.
    pub argv: Vec<OsString>,
    /// The caller's working directory.
    #[serde(with = "as_text")]
    pub directory: PathBuf,
    /// Whether it goes before the one that the policy names.
    pub directory_first: bool,
    /// The caller's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables that were asked for by name.
    pub added: Vec<(OsString, OsString)>,
    /// The caller's supplementary groups.
    pub groups: Vec<u32>,
    /// The caller's signal state.
    pub signals: SignalState,
    /// Which of the descriptors 0 to 2 the caller had closed.
    pub closed: Vec<RawFd>,
}

/// What is in force, piece by piece, in the order in which it was put there.
#[derive(Debug, Default)]
pub struct Installation {
    /// What is tried once it is in force.
    pub probes: Selection,
    home: home::Made,
    undo: Undo,
    undo_file: Option<UndoFile>,
    trees: Vec<Reservation>,
    /// Git directories with a copy of a part of theirs, and where it is; whether nothing of the sandbox is left that works in it.
    git: Vec<(PathBuf, PathBuf)>,
    git_is_still: bool,
    placeholders: Option<Placeholders>,
    forwarder: Option<Forwarder>,
    /// The sandbox's own, where the rung has some.
    namespaces: Option<Namespaces>,
    proxy: Option<(Pid, SocketAddrV4)>,
    /// What leads to it beside its own address.
    ways: Option<Ways>,
    proxy_held: Option<ProxyProcess>,
    /// What the enforcing parts report.
    pub evidence: Evidence,
    /// The wall.
    pub wall: Option<Wall>,
    /// Changes to the firewall's tables.
    pub watch: Option<Watch>,
    /// Changes to the sandbox's mounts.
    pub view: Option<MountWatch>,
    /// The stage.
    pub stage: Option<StageProcess>,
    /// The observer, the stage's parent, and where it will be heard.
    observer: Option<Pid>,
    observer_channel: Option<Channel>,
    /// The process that fanotify asks, and what is watched until it is started.
    witness: Option<Pid>,
    to_be_witnessed: Vec<PathBuf>,
    /// What its mounts are to be, and where their table comes from.
    view_to_come: Option<(Channel, MountPlan)>,
    /// The probes' bait outside of the sandbox.
    bait: Option<OwnedFd>,
    /// The probes of what is in force, once there is a stage to try them.
    pub suite: Option<Suite>,
    /// Whom the command runs as.
    identity: Option<Identity>,
    /// Whether nothing is refused and what would be is recorded.
    shadow: bool,
    /// Children that this program was started with, which are none of the run's.
    strangers: Vec<Pid>,
}

impl Installation {
    /// Nothing yet, in a process that was started with these children.
    pub fn beside(strangers: Vec<Pid>) -> Installation {
        Installation { strangers, ..Installation::default() }
    }

    /// Puts the plan in force, up to what the stage does: it says when it is ready. What is in force when a step fails is
    /// left in `self`, to be taken down.
    pub fn put_up(
        &mut self,
        run: &str,
        plan: &Plan,
        facts: &Facts,
        own_uid: Option<u32>,
        invocation: &Invocation,
    ) -> Result<(), InstallError> {
        if plan.rung.means().one_uid && plan.identity.is_some() {
            // What is under /proc of this process, and of all that it forks, is then root's (proc_pid(5)).
            set_dumpable(false).map_err(|errno| InstallError::Call { call: "prctl PR_SET_DUMPABLE", errno })?;
        }
        // What a shadow needs of the stricter policy: all that the command is not held by.
        let held = plan.shadow.as_deref().unwrap_or(plan);
        if let (Some(identity), Some(home)) = (&held.identity, &held.home)
            && !mutation::left_out("home")
        {
            self.home = home::make(&home.path, &home.state, identity.uid, identity.gid)?;
        }
        self.take_workspaces(run, plan)?;
        if plan.rung.means().own_namespaces && plan.identity.is_some() {
            let published = Published::bind(&plan.policy.network.publish)?;
            let inside = Namespaces::make(plan.proxy.is_some().then_some(PROXIES), plan.caught.as_ref())?;
            self.forwarder = (!published.is_empty()).then(|| published.serve(&inside)).transpose()?;
            self.namespaces = Some(inside);
        }
        // The proxy is forked before anything is open that it must not have.
        if let Some(proxy) = held.proxy.as_ref().filter(|_| !mutation::left_out("proxy")) {
            let uid = own_uid.ok_or(ReserveError::from(AccountError::Exhausted)).map_err(SpawnError::from)?;
            let ids = (!plan.rung.means().one_uid).then_some(uid);
            let listener = self.namespaces.as_mut().and_then(Namespaces::take_listener);
            let bound = self.bind_caught(held)?;
            let (caught, ways) = bound.map(|bound| (bound.caught, bound.ways)).unzip();
            self.ways = ways;
            let process = proxy::start(proxy, ids, listener, caught, plan.shadow.is_some())?;
            self.proxy = Some((process.pid, process.address));
            self.proxy_held = Some(process);
        }
        // From before there is a domain that it could tell of.
        let audit = plan.audited.then(LandlockAudit::open).transpose().map_err(EvidenceError::from)?;
        // What the stage does until it is told to go on needs no wall, and is done while that is put up.
        self.start_stage(run, plan, facts, own_uid, invocation)?;
        self.put_up_wall(run, held, plan.shadow.is_some())?;
        audit.into_iter().for_each(|audit| self.evidence.read_audit(audit));
        // Meanwhile the proxy has had its time.
        self.forwarder.as_ref().map_or(Ok(()), Forwarder::await_confined)?;
        self.proxy_held.as_ref().map_or(Ok(()), |proxy| Ok(proxy.await_confined()?))
    }

    /// The sockets for what is caught, which are in the network where the command is.
    fn bind_caught(&mut self, plan: &Plan) -> Result<Option<Bound>, InstallError> {
        let Some(caught) = &plan.caught else { return Ok(None) };
        let told = match plan.rung.means().egress {
            EgressBarrier::Firewall => Told::ByTranslation,
            EgressBarrier::MadeSockets => Told::ByDestination,
        };
        let sockets = match self.namespaces.as_mut() {
            Some(inside) => inside.take_caught(),
            None => caught::sockets(caught, &told).map_err(proxy::failed("bind what is caught"))?,
        };
        Ok(Some(Bound::of(caught, told, sockets).map_err(proxy::failed("getsockname"))?))
    }

    fn take_workspaces(&mut self, run: &str, plan: &Plan) -> Result<(), InstallError> {
        let Some(identity) = &plan.identity else { return Ok(()) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let mut undo = Undo { uid: identity.uid.as_raw(), started, ..Undo::default() };
        for (path, ownership) in &plan.workspaces {
            match ownership {
                Ownership::Kept => {}
                Ownership::Idmapped => undo.idmapped.push(path.clone()),
                Ownership::Changed if mutation::left_out("workspace") => {}
                Ownership::Changed => {
                    self.trees.push(reserve_tree(path)?);
                    // All are read before any is changed, for one may lie within another.
                    undo.owners.push(Owners::read(path)?);
                }
            }
        }
        // An ordinary user's next run in the repository finds a copy by its name.
        let copied = plan.mounts.iter().flat_map(|view| &view.git);
        let copied: Vec<PathBuf> = copied.map(|cover| cover.directory.clone()).collect();
        if !plan.rung.means().one_uid {
            undo.git = copied.iter().map(|directory| git::wrapper(directory, run)).collect();
        }
        if !undo.is_empty() {
            self.undo_file = Some(undo.write(run, identity.gid)?);
            self.undo = undo;
        }
        for directory in copied {
            self.git.push((directory.clone(), git::wrapper(&directory, run)));
            git::make(&directory, run)?;
        }
        for owners in &self.undo.owners {
            owners.give(identity.uid, identity.gid)?;
        }
        Ok(())
    }

    fn put_up_wall(&mut self, run: &str, plan: &Plan, shadow: bool) -> Result<(), InstallError> {
        let reports = self.proxy_held.as_mut().and_then(|p| p.take_reports());
        let walled = plan.wall.as_ref().filter(|_| plan.rung.means().egress == EgressBarrier::Firewall);
        let (Some(wall), Some(identity)) = (walled, &plan.identity) else {
            self.evidence = Evidence::new(reports, None);
            return Ok(());
        };
        let log = match &mut self.namespaces {
            Some(inside) => NfLog::by(inside.take_netfilter()?, run)?,
            None => NfLog::bind(run)?,
        };
        if !mutation::left_out("wall") {
            let spec = wall_spec(run, identity.uid.as_raw(), self.proxy.map(|p| p.1), wall, log.group());
            let spec = WallSpec { shadow, caught: self.ways.clone(), ..spec };
            // Watched from before it is there: its own making is the first change that is looked into, while the probes run.
            (self.watch, self.wall) = match &mut self.namespaces {
                Some(inside) => (
                    Some(Watch::by(inside.take_netfilter()?, &spec.table_name())?),
                    Some(firewall::install_by(inside.take_netfilter()?, &spec, inside.own_addresses())?),
                ),
                None => (Some(Watch::open(&spec.table_name())?), Some(firewall::install(&spec)?)),
            };
        }
        self.evidence = Evidence::new(reports, Some(log));
        if let Some(monitor) = self.namespaces.as_mut().and_then(Namespaces::take_monitor) {
            self.evidence.sockets_of(monitor);
        }
        Ok(())
    }

    /// The stage is in the sandbox's namespaces, under this number: from here on the observer, its parent, is heard.
    pub fn stage_is_ready(&mut self, pid: Pid, patience: Duration) -> Result<(), InstallError> {
        self.stage.iter_mut().for_each(|stage| stage.pid = pid);
        match &self.identity {
            Some(identity) => self.evidence.of_command(identity.uid.as_raw(), pid),
            None if self.shadow => {
                self.evidence.of_command(geteuid().as_raw(), pid);
                self.evidence.of_shadow();
            }
            None => {}
        }
        if let Some((channel, plan)) = self.view_to_come.take() {
            self.view = Some(MountWatch::begin(&channel, plan)?);
        }
        if let Some(channel) = self.observer_channel.take() {
            self.evidence.hear_observer(Hearing::begin(Source::Notifier, channel, patience)?);
        }
        if let (Some(identity), false) = (&self.identity, self.to_be_witnessed.is_empty())
            && !mutation::left_out("witness")
        {
            let tripwires = std::mem::take(&mut self.to_be_witnessed);
            let (witness, channel) = witness::start(tripwires, identity.uid.as_raw(), pid)?;
            self.witness = Some(witness);
            self.evidence.hear_witness(Hearing::begin(Source::Fanotify, channel, patience)?);
        }
        Ok(())
    }

    /// What a command is executed with in what is in force.
    pub fn command(&self, plan: &Plan, invocation: &Invocation) -> Result<Command, InstallError> {
        Ok(Command {
            argv: c_strings(invocation.argv.iter().cloned())?,
            environment: command_environment(plan, invocation, self.proxy.map(|p| p.1))?,
            workdir: workdir(plan, invocation),
            signals: invocation.signals.clone(),
            closed: invocation.closed.clone(),
        })
    }

    /// The command runs, in this process.
    pub fn command_runs(&mut self, command: Pid) {
        self.bait = None;
        if let Some(identity) = &self.identity {
            self.evidence.command_runs(command, identity.uid.as_raw());
        }
    }

    /// Commands come, all in the domain that the stage has made.
    pub fn session_opens(&mut self) {
        self.bait = None;
        if let Some(stage) = &self.stage {
            self.evidence.command_runs(stage.pid, geteuid().as_raw());
        }
    }

    /// The processes of ours beside the stage.
    pub fn companions(&self) -> impl Iterator<Item = Pid> {
        let forwarder = self.forwarder.as_ref().map(|forwarder| forwarder.pid);
        self.proxy.map(|(pid, _)| pid).into_iter().chain(self.observer).chain(self.witness).chain(forwarder)
    }
}

fn reserve_tree(path: &Path) -> Result<Reservation, InstallError> {
    let stat = nix::sys::stat::lstat(path).map_err(|errno| InstallError::Call { call: "lstat", errno })?;
    reserve::tree(stat.st_dev, stat.st_ino)?.ok_or_else(|| InstallError::TreeIsTaken { path: path.into() })
}
