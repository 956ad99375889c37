//! The effective policy: a level, a file and the flags laid over each other, complete and in canonical order.

use super::allowlist::{Allowlist, NIST_HIGH};
use super::axis::Posture;
use super::entry::Entry;
use super::error::{PolicyError, Unholdable};
use super::harness::{Harness, HarnessName};
use super::layer::Layer;
use super::level::{Level, Postures};
use super::path::{PolicyPath, WorkTree};
use super::protect::ProtectedPath;
use super::shadow::Shadow;
use super::upstream::Upstream;
use super::values::{Abi, EnvName, Leftovers, Loopback, OnLedgerFailure, PolicyArg, Publish, TrustRange, User};
use sha2::{Digest, Sha256};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

/// What is in force. Lists are sorted and free of repetitions, so that equal policies have equal digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Egress.
    pub network: Network,
    /// Writes.
    pub filesystem: Filesystem,
    /// Identity.
    pub privilege: Privilege,
    /// The command's environment.
    pub environment: Environment,
    /// The agent.
    pub harness: HarnessName,
    /// What happens when the ledger cannot be written.
    pub ledger: OnLedgerFailure,
    /// What becomes of processes that outlive the command; the subcommand decides where the policy doesn't.
    pub leftovers: Option<Leftovers>,
    /// The stricter policy whose refusals are recorded and not made.
    pub shadow: Option<Box<Shadow>>,
    /// The file it was read from, which the command must not be able to write. No part of the digest.
    pub file: Option<PathBuf>,
}

/// The network axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// How far egress is restricted.
    pub posture: Posture,
    /// Entries besides the level's list and the harness's endpoints.
    pub allow: Vec<Entry>,
    /// Networks that admitted names may resolve into although they are not public.
    pub trusted_ranges: Vec<TrustRange>,
    /// Which loopback ports the command may connect to.
    pub loopback: Loopback,
    /// Ports of the host's loopback that lead to servers of the command's.
    pub publish: Vec<Publish>,
    /// How admitted egress leaves.
    pub upstream: Upstream,
    /// Whether the proxy says why it refuses.
    pub explain: bool,
    /// Whether tools that ask no proxy are served.
    pub transparent: bool,
}

/// The filesystem axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    /// How far writes are restricted.
    pub posture: Posture,
    /// Paths besides the default writable set, see [`super::trees`].
    pub writable: Vec<PolicyPath>,
    /// Paths that are read-only although a writable one holds them.
    pub read_only: Vec<PolicyPath>,
    /// Paths that are read-only because the host would run them later; the default list where the policy names none.
    pub protect: Option<Vec<ProtectedPath>>,
    /// Paths that are kept from being read at all.
    pub shields: Vec<PolicyPath>,
    /// Whether the known places of Harbor's tasks are too, as far as they exist, see [`super::harbor`].
    pub shield_harbor: bool,
    /// Work trees of whose repositories the command sees what HEAD reaches.
    pub shield_git: Vec<WorkTree>,
    /// Paths each read of which is recorded.
    pub watch_read: Vec<PolicyPath>,
    /// Unix sockets of the caller's that stay in reach of a command with the caller's identity.
    pub sockets: Vec<PolicyPath>,
    /// A path that is writable and the working directory.
    pub workspace: Option<PolicyPath>,
    /// The working directory, where it is not the workspace.
    pub workdir: Option<PolicyPath>,
}

/// The privilege axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    /// How far privilege is dropped.
    pub posture: Posture,
    /// Whom the command runs as; a dedicated account where none is named.
    pub user: Option<User>,
    /// Ports of the sandbox provider's own service, refused from posture `restricted` on.
    pub control_plane_ports: Vec<NonZeroU16>,
    /// Entries to the kernel that the command may use beside the machine's own. A privilege posture of `open` filters none.
    pub abi: Vec<Abi>,
}

/// How the command's environment is made of the caller's, see [`super::environment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Variables passed although they would be dropped or replaced.
    pub pass: Vec<EnvName>,
    /// Variables dropped.
    pub drop: Vec<EnvName>,
    /// Whether it starts empty.
    pub clear: bool,
}

impl Policy {
    /// The policy that `--policy` names with the flags' layer over it.
    pub fn load(base: &PolicyArg, flags: &Layer) -> Result<Policy, PolicyError> {
        if let Some(upstream) = flags.upstream.as_ref().filter(|upstream| upstream.has_credentials()) {
            return Err(PolicyError::CredentialsInArguments(upstream.clone()));
        }
        let (layer, file) = Layer::of_base(base)?;
        Policy::of_layers(layer.under(flags.clone()), file)
    }

    /// The policy that the text of a file says, with the flags' layer over it. `file` is named in errors.
    pub fn from_toml(file: &Path, text: &str, flags: &Layer) -> Result<Policy, PolicyError> {
        Policy::of_layers(Layer::of_text(file, text)?.under(flags.clone()), Some(file))
    }

    /// The policy of a level.
    pub fn of_level(level: Level) -> Policy {
        let layer = Layer::of_level(level);
        Policy::of_layers(layer, None).expect("a level has all three postures and names no path")
    }

    /// The policy of all layers together; `file` is the one that names it.
    pub(super) fn of_layers(mut all: Layer, file: Option<&Path>) -> Result<Policy, PolicyError> {
        let (network, filesystem, privilege) = match (all.network, all.filesystem, all.privilege) {
            (Some(network), Some(filesystem), Some(privilege)) => (network, filesystem, privilege),
            _ => return Err(PolicyError::incomplete(&all, file)),
        };
        let postures = Postures { network, filesystem, privilege };
        let shadow = all.shadow.take().map(|named| Shadow::of(named, postures, &all)).transpose()?;
        sort(&mut all.allow_host);
        sort(&mut all.trust_range);
        sort(&mut all.writable);
        sort(&mut all.read_only);
        sort(&mut all.publish);
        all.protect.iter_mut().for_each(sort);
        sort(&mut all.shield);
        sort(&mut all.shield_git);
        sort(&mut all.watch_read);
        sort(&mut all.socket);
        sort(&mut all.control_plane_port);
        sort(&mut all.abi);
        sort(&mut all.env_pass);
        sort(&mut all.env_drop);
        let writable = || all.writable.iter().chain(&all.workspace);
        if writable().any(|path| path.as_str() == "/") {
            return Err(PolicyError::RootWritable);
        }
        if let Some(path) = writable().find(|path| all.read_only.contains(path)) {
            return Err(PolicyError::BothWays(path.clone()));
        }
        Ok(Policy {
            network: Network {
                posture: network,
                allow: all.allow_host,
                trusted_ranges: all.trust_range,
                loopback: all.loopback.unwrap_or(default_loopback(network)),
                publish: all.publish,
                upstream: all.upstream.unwrap_or_default(),
                explain: all.explain.unwrap_or(false),
                transparent: all.transparent.unwrap_or(false),
            },
            filesystem: Filesystem {
                posture: filesystem,
                writable: all.writable,
                read_only: all.read_only,
                protect: all.protect,
                shields: all.shield,
                shield_harbor: all.shield_harbor.unwrap_or(false),
                shield_git: all.shield_git,
                watch_read: all.watch_read,
                sockets: all.socket,
                workspace: all.workspace,
                workdir: all.workdir,
            },
            privilege: Privilege {
                posture: privilege,
                user: all.user,
                control_plane_ports: all.control_plane_port,
                abi: all.abi,
            },
            environment: Environment { pass: all.env_pass, drop: all.env_drop, clear: all.clear_env.unwrap_or(false) },
            harness: all.harness.unwrap_or_default(),
            ledger: all.ledger.unwrap_or(OnLedgerFailure::Required),
            leftovers: all.leftovers,
            shadow: shadow.map(Box::new),
            file: file.map(Path::to_owned),
        })
    }

    /// What becomes of what the command leaves behind: without a word `kill` where this process is PID 1, and `keep` elsewhere,
    /// for graders test live servers.
    pub fn leftovers(&self, is_init: bool) -> Leftovers {
        self.leftovers.unwrap_or(if is_init { Leftovers::Kill } else { Leftovers::Keep })
    }

    /// The three postures.
    pub fn postures(&self) -> Postures {
        Postures {
            network: self.network.posture,
            filesystem: self.filesystem.posture,
            privilege: self.privilege.posture,
        }
    }

    /// The name of the level whose postures these are, or `custom`. What a policy adds to a level changes no posture.
    pub fn level_name(&self) -> &'static str {
        Level::with(self.postures()).map_or("custom", Level::name)
    }

    /// The harness's data.
    pub fn harness(&self) -> &'static Harness {
        self.harness.data()
    }

    /// What egress may go to; none where the network is open.
    ///
    /// Restricted: the 205 entries of `nist-high`, the harness's endpoints and the policy's own entries. Locked: the
    /// latter two alone, so that a policy that names none has no egress.
    pub fn effective_allowlist(&self) -> Option<Allowlist> {
        let level: &[&str] = match self.network.posture {
            Posture::Open => return None,
            Posture::Restricted => &NIST_HIGH,
            Posture::Locked => &[],
        };
        let level = level.iter().map(|text| Entry::parse(text).expect("build.rs parsed it"));
        let harness = self.harness().endpoints.iter().map(|endpoint| endpoint.entry.clone());
        Some(Allowlist::from_entries(level.chain(harness).chain(self.network.allow.iter().cloned())))
    }

    /// Refuses a combination that can't be held where the command shares the machine's network and mount tables with
    /// root. A plan whose sandbox has its own namespaces, in which set-id execution is void, need not ask.
    pub fn check_holdable(&self) -> Result<(), Unholdable> {
        let Postures { network, filesystem, privilege } = self.postures();
        if privilege > Posture::Open && self.names_root() {
            return Err(Unholdable::Root { privilege });
        }
        if privilege < Posture::Locked && network > Posture::Open {
            return Err(Unholdable::Network { network, privilege });
        }
        if privilege < Posture::Locked && filesystem > Posture::Open {
            return Err(Unholdable::Filesystem { filesystem, privilege });
        }
        if privilege < Posture::Locked && self.asks_for_shields() {
            return Err(Unholdable::Shield { privilege });
        }
        if privilege == Posture::Open && !self.filesystem.watch_read.is_empty() {
            return Err(Unholdable::WatchRead);
        }
        Ok(())
    }

    /// Whether anything is to be shielded, if it exists.
    pub fn asks_for_shields(&self) -> bool {
        let filesystem = &self.filesystem;
        !filesystem.shields.is_empty() || filesystem.shield_harbor || !filesystem.shield_git.is_empty()
    }

    fn names_root(&self) -> bool {
        match &self.privilege.user {
            Some(User::Name(name)) => name == "root",
            Some(User::Ids { uid, .. }) => *uid == 0,
            None => false,
        }
    }

    /// The policy as a complete TOML file, which loads back to the same policy; its canonical form. Credentials are left
    /// out of it, and with them it does not load back.
    pub fn to_toml(&self) -> String {
        let layer = Layer {
            extends: None,
            network: Some(self.network.posture),
            filesystem: Some(self.filesystem.posture),
            privilege: Some(self.privilege.posture),
            allow_host: self.network.allow.clone(),
            trust_range: self.network.trusted_ranges.clone(),
            loopback: Some(self.network.loopback.clone()),
            publish: self.network.publish.clone(),
            upstream: Some(self.network.upstream.clone()),
            explain: Some(self.network.explain),
            transparent: Some(self.network.transparent),
            writable: self.filesystem.writable.clone(),
            read_only: self.filesystem.read_only.clone(),
            protect: self.filesystem.protect.clone(),
            shield: self.filesystem.shields.clone(),
            shield_harbor: Some(self.filesystem.shield_harbor),
            shield_git: self.filesystem.shield_git.clone(),
            watch_read: self.filesystem.watch_read.clone(),
            socket: self.filesystem.sockets.clone(),
            workspace: self.filesystem.workspace.clone(),
            workdir: self.filesystem.workdir.clone(),
            user: self.privilege.user.clone(),
            control_plane_port: self.privilege.control_plane_ports.clone(),
            abi: self.privilege.abi.clone(),
            harness: Some(self.harness),
            env_pass: self.environment.pass.clone(),
            env_drop: self.environment.drop.clone(),
            clear_env: Some(self.environment.clear),
            ledger: Some(self.ledger),
            leftovers: self.leftovers,
            shadow: self.shadow.as_ref().map(|shadow| shadow.named.clone()),
        };
        toml::to_string(&layer).expect("strings, numbers and lists of them have a TOML form")
    }

    /// SHA-256 of [`Policy::to_toml`] in hexadecimal.
    pub fn digest(&self) -> String {
        Sha256::digest(self.to_toml()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Locked grants no more than is named; agents that test servers of their own ask for it.
fn default_loopback(network: Posture) -> Loopback {
    match network {
        Posture::Open | Posture::Restricted => Loopback::All,
        Posture::Locked => Loopback::Proxy,
    }
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort();
    list.dedup();
}

#[cfg(test)]
#[path = "effective_tests.rs"]
mod tests;
