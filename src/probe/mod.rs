//! The probes: what must fail is tried and must fail, what must work is tried and must work, by a child confined exactly as
//! the command will be. Some before every command, all of them by `ringfence probe`.

mod apart;
pub mod arena;
mod at_once;
mod caught;
mod changes;
mod child;
pub mod evidence;
pub mod external;
mod filesystem;
mod identity;
mod kernel;
mod left;
pub mod listing;
pub mod name;
mod network;
mod operation;
pub mod outcome;
mod proxies;
pub mod render;
pub mod selection;
mod shielded;
pub mod spec;
pub mod standing;
pub mod suite_file;
pub mod trace;
mod watched;

pub use caught::CaughtSeen;

use crate::install::mountinfo::Mount;
use crate::ledger::RunId;
use crate::ledger::record::Probe;
use crate::plan::means::{FileBarrier, Means};
use crate::plan::rung::Restriction;
use arena::{Arena, Ground, Programs};
use selection::Selection;
use spec::Spec;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What one look at the mount table has shown, or why there is none.
pub type MountsSeen = OnceCell<Result<Vec<Mount>, String>>;

/// What is known of a git directory that another one covers.
#[derive(Debug, Clone)]
pub struct GitSeen {
    /// Its path.
    pub directory: PathBuf,
    /// Paths of what is in the real one alone.
    pub hidden: Vec<PathBuf>,
    /// Whether the other one is the command's to write.
    pub writable: bool,
}

/// What the probes need to know of the run.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// What must be held.
    pub restrictions: BTreeSet<Restriction>,
    /// The ids that a confined child must have.
    pub ids: Option<(u32, u32)>,
    /// The account's home; `None` where it is the image's affair.
    pub home: Option<PathBuf>,
    /// Trees that must be read-only.
    pub protected: Vec<PathBuf>,
    /// Paths that must be writable.
    pub writable: Vec<PathBuf>,
    /// Paths that must be masked.
    pub masked: Vec<PathBuf>,
    /// Paths that must not be read, under all their names.
    pub shielded: Vec<PathBuf>,
    /// Paths whose reads are told of, less those that are shielded.
    pub watched: Vec<PathBuf>,
    /// Git directories that another one covers.
    pub git: Vec<GitSeen>,
    /// Files mounted over the image's, with their content.
    pub overlays: Vec<(PathBuf, Vec<u8>)>,
    /// The proxy's address, if it was started.
    pub proxy: Option<SocketAddrV4>,
    /// Whether the proxy resolves the names that it admits; else a parent proxy does.
    pub names_resolved: bool,
    /// Where tools that ask no proxy are served.
    pub caught: Option<CaughtSeen>,
    /// The proxy's process id.
    pub proxy_process: Option<i32>,
    /// Whether all of loopback is open to the command.
    pub loopback_open: bool,
    /// Ports that the provider's control plane listens on.
    pub control_plane_ports: Vec<u16>,
    /// The supervisor's process id.
    pub supervisor: i32,
    /// The session keyring of the supervisor, 0 for none.
    pub keyring: i64,
    /// The command's environment.
    pub environment: Vec<CString>,
    /// The caller's environment.
    pub callers_environment: Vec<(OsString, OsString)>,
    /// Variables of the caller's that the policy passes by name.
    pub passed_variables: Vec<String>,
    /// Whether Landlock's scopes are in force.
    pub scopes: bool,
    /// Proxies of the environment's, where no run is in force that has its own.
    pub named_proxies: Vec<proxies::Named>,
    /// Whether no run is in force, and what others have built is tried.
    pub external: bool,
    /// How the rung works.
    pub means: Option<Means>,
    /// The mounts that a path leads to, once a probe has asked for them.
    pub mounts: MountsSeen,
    /// Programs that would give something to whom executes them; `None` where none could be put up.
    pub programs: Option<Programs>,
    /// The name of the abstract socket of the outside that is put up as bait. It is this run's alone: another run's, in the
    /// same network namespace, may go at any time.
    pub outside_socket: String,
}

/// The probes of one run.
#[derive(Debug)]
pub struct Suite {
    specs: Vec<Spec>,
    left_out: Vec<(Spec, String)>,
    chosen: BTreeSet<String>,
    surroundings: Surroundings,
}

impl Suite {
    /// Those of a selection that apply to what is in force.
    pub fn for_run(mut surroundings: Surroundings, selection: Selection) -> Result<Suite, String> {
        let own = RunId::random().map_err(|e| format!("probes: {e}"))?;
        surroundings.outside_socket = format!("preflight/{own}");
        // Whether there is bait will be seen.
        surroundings.programs = Some(Programs { gives: true, ..Programs::default() });
        let (mut specs, mut left_out) = (Vec::new(), Vec::new());
        for spec in selection.tried {
            match spec.unmet(&surroundings) {
                None => specs.push(spec),
                Some(cause) => left_out.push((spec, cause)),
            }
        }
        Ok(Suite { specs, left_out, chosen: selection.chosen, surroundings })
    }

    /// The outcome of those whose outcome counts, in the light of what was told.
    pub fn judge(&self, heard: &evidence::Heard, made: Vec<Probe>) -> Vec<Probe> {
        let mut judged = evidence::judge(heard, &self.specs, &self.surroundings.watched, made);
        judged.retain(|probe| self.chosen.contains(&probe.id));
        judged
    }

    /// Each probe that was asked for, and why it does not apply; `None` where it does.
    pub fn asked_for(&self) -> impl Iterator<Item = (&Spec, Option<&str>)> {
        let applying = self.specs.iter().map(|spec| (spec, None));
        let others = self.left_out.iter().map(|(spec, cause)| (spec, Some(cause.as_str())));
        applying.chain(others).filter(|(spec, _)| self.chosen.contains(&spec.id))
    }

    /// What the bait of this suite is known by.
    pub fn bait(&self) -> &str {
        self.surroundings.outside_socket.rsplit('/').next().unwrap_or_default()
    }

    /// Why a probe is there.
    pub fn why(&self, id: &str) -> Option<&str> {
        self.specs.iter().find(|spec| spec.id == id).map(|spec| spec.why.as_str())
    }

    /// How many probes there are.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether no control is in force that could be probed.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Puts up, with privilege, what the probes need as bait.
    pub fn prepare(&self) -> Result<Arena, String> {
        if self.is_empty() {
            return Ok(Arena::default());
        }
        let ground = match self.surroundings.means.map(|means| means.files) {
            Some(FileBarrier::Landlock) => Ground::Directories(self.surroundings.writable.clone()),
            _ => Ground::Mount,
        };
        Arena::put_up(&self.surroundings.outside_socket, &ground)
    }

    /// What of the bait only a process can put up that is not in the sandbox, where the stage is.
    pub fn bait_of_outside(&self) -> Result<Option<OwnedFd>, String> {
        let apart = self.surroundings.means.is_some_and(|means| means.files == FileBarrier::Landlock);
        (apart && self.surroundings.scopes).then(|| arena::outside(&self.surroundings.outside_socket)).transpose()
    }

    /// Takes the bait away and checks that it is gone.
    pub fn clear(&self, arena: Arena) -> Result<(), String> {
        arena.clear()
    }

    /// Tries the probes that are the stage's, in the calling process.
    pub fn run_as_stage(&self) -> Vec<Probe> {
        let run = &self.surroundings;
        let tried = |spec: &Spec| spec.operation.make_as_stage(run).map(|seen| spec.judge(seen));
        self.specs.iter().filter_map(tried).collect()
    }

    /// Tries every probe from the calling, confined process, with the bait that is up.
    ///
    /// # Errors
    /// What became of a process that was to try some of them.
    pub fn run(&self, arena: &Arena) -> Result<Vec<Probe>, String> {
        let surroundings = Surroundings { programs: arena.programs().cloned(), ..self.surroundings.clone() };
        let applying: Vec<&Spec> = self.specs.iter().filter(|spec| spec.applies(&surroundings)).collect();
        at_once::try_all(&applying, |spec| spec.operation.make(&surroundings).map(|seen| spec.judge(seen)))
    }
}
