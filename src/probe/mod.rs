//! The pre-flight probes: what must fail is tried and must fail, what must work is tried and must work, by a child confined
//! exactly as the command will be.

pub mod arena;
mod attempt;
mod network;
mod spec;

use crate::ledger::record::Probe;
use crate::policy::Posture;
use arena::Arena;
use spec::Spec;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;

/// What the probes need to know of the run.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Posture by axis name.
    pub postures: BTreeMap<&'static str, Posture>,
    /// The ids that a confined child must have.
    pub ids: Option<(u32, u32)>,
    /// Trees that must be read-only.
    pub protected: Vec<PathBuf>,
    /// Paths that must be writable.
    pub writable: Vec<PathBuf>,
    /// Paths that must be masked.
    pub masked: Vec<PathBuf>,
    /// Whether set-id bits must be void on every mount.
    pub nosuid: bool,
    /// Files mounted over the image's, with their content.
    pub overlays: Vec<(PathBuf, Vec<u8>)>,
    /// Whether egress must go through a proxy.
    pub egress_proxy: bool,
    /// The proxy's address, if it was started.
    pub proxy: Option<SocketAddrV4>,
    /// Whether all of loopback is open to the command.
    pub loopback_open: bool,
    /// Ports that the provider's control plane listens on.
    pub control_plane_ports: Vec<u16>,
    /// The supervisor's process id.
    pub supervisor: i32,
    /// The session keyring of the supervisor, 0 for none.
    pub keyring: i64,
    /// The command's environment.
    pub environment: Vec<std::ffi::CString>,
    /// Whether Landlock's scopes are in force.
    pub scopes: bool,
    /// The name of the outside's abstract socket.
    pub outside: String,
}

/// The probes of one run.
#[derive(Debug)]
pub struct Suite {
    specs: Vec<Spec>,
    surroundings: Surroundings,
}

impl Suite {
    /// The probes that apply to the postures in force.
    pub fn for_run(surroundings: Surroundings) -> Result<Suite, String> {
        let specs = spec::built_in()?.into_iter().filter(|s| s.applies(&surroundings)).collect();
        Ok(Suite { specs, surroundings })
    }

    /// Why a probe is there.
    pub fn why(id: &str) -> Option<String> {
        spec::built_in().ok()?.into_iter().find(|spec| spec.id == id).map(|spec| spec.why)
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
        if self.is_empty() { Ok(Arena::default()) } else { Arena::put_up(&self.surroundings.outside) }
    }

    /// Takes the bait away and checks that it is gone.
    pub fn clear(&self, arena: Arena) -> Result<(), String> {
        arena.clear()
    }

    /// Tries every probe in the calling, confined process.
    pub fn run(&self) -> Vec<Probe> {
        self.specs.iter().map(|spec| spec.judge(attempt::make(&spec.operation, &self.surroundings))).collect()
    }
}
