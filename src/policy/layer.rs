//! One layer of a policy: what a file says, or what the flags say. Each key of the file is one flag, spelled the same,
//! because both are this one structure.

use super::axis::Posture;
use super::harness::HarnessName;
use super::level::Level;
use super::path::{PolicyPath, WorkTree};
use super::protect::ProtectedPath;
use super::upstream::Upstream;
use super::values::{Abi, EnvName, Leftovers, Loopback, OnLedgerFailure, PolicyArg, Publish, TrustRange, User};
use super::{Entry, PolicyError};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use std::path::Path;

/// What clap knows the flag `--explain` by, so that a subcommand can have another one of that name.
pub const EXPLAIN: &str = "explain_refusals";

/// Settings that lie over a level's: a word replaces the one below, a list is added to the one below.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(next_help_heading = "Policy")]
pub struct Layer {
    /// The level that lies below; in files only, where `--policy` names the file.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<Level>,
    /// Egress: open, restricted (the allowlist) or locked (only the hosts that the policy names)
    #[arg(long, value_name = "POSTURE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Posture>,
    /// Writes: open, restricted (system trees and homes read-only) or locked (all but the writable set)
    #[arg(long, value_name = "POSTURE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<Posture>,
    /// Identity: open, restricted (a dedicated user) or locked (no privilege to be had)
    #[arg(long, value_name = "POSTURE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privilege: Option<Posture>,
    /// Admit a host: host or *.host, either with :port (without one, 80 and 443)
    #[arg(long, value_name = "ENTRY")]
    pub allow_host: Vec<Entry>,
    /// Let admitted names resolve into a network that is not public; it admits no name
    #[arg(long, value_name = "CIDR")]
    pub trust_range: Vec<TrustRange>,
    /// Loopback ports that the command may connect to: all, proxy, or ports
    #[arg(long, value_name = "all|proxy|PORT,…")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loopback: Option<Loopback>,
    /// Forward a port of the host's loopback to a server of the command's, where that has a network of its own
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub publish: Vec<Publish>,
    /// Send admitted egress by a parent proxy: none, environment (the one of the caller's), or its URL
    #[arg(long, value_name = "none|environment|http://HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Say in the answer to a refused request why it is refused, and by what it would be admitted
    #[arg(id = EXPLAIN, long = "explain", value_name = "true|false", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<bool>,
    /// Serve tools that ignore the proxy settings too, by the same judgement: names by a resolver, connections by their SNI or Host
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent: Option<bool>,
    /// Make a path writable
    #[arg(long, value_name = "PATH")]
    pub writable: Vec<PolicyPath>,
    /// Make a path read-only, also one inside the writable set
    #[arg(long, value_name = "PATH")]
    pub read_only: Vec<PolicyPath>,
    /// Keep a path read-only that the host would run later, in place of the default list; without a path, none
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<Vec<ProtectedPath>>,
    /// Keep a path from being read, listed and written, for the whole run and for whatever outlives it
    #[arg(long, value_name = "PATH")]
    #[serde(alias = "shields")]
    pub shield: Vec<PolicyPath>,
    /// Shield what of Harbor's known places there is: /solution, /tests, /logs/verifier, task.toml
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shield_harbor: Option<bool>,
    /// Show the command of a repository what HEAD reaches and no more: of the workspace's, or of a work tree PATH
    #[arg(long, value_name = "workspace|PATH", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "workspace")]
    pub shield_git: Vec<WorkTree>,
    /// Record each read of a path that stays readable
    #[arg(long, value_name = "PATH")]
    #[serde(alias = "tripwires")]
    pub watch_read: Vec<PolicyPath>,
    /// Leave a unix socket of the caller's in reach, where the command keeps the caller's identity
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PolicyPath>,
    /// Make a path writable and the command's working directory
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PolicyPath>,
    /// The command's working directory, where it is not the workspace
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PolicyPath>,
    /// Whom the command runs as
    #[arg(long, value_name = "NAME|UID[:GID]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Refuse the command a port of the sandbox provider's own service, wherever it is
    #[arg(long, value_name = "PORT")]
    pub control_plane_port: Vec<NonZeroU16>,
    /// Let programs of another kind call the kernel by their own entry, filtered alike
    #[arg(long, value_name = "i386")]
    pub abi: Vec<Abi>,
    /// The agent: its vendor's endpoints are admitted and its state directories writable
    #[arg(long, value_name = "HARNESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harness: Option<HarnessName>,
    /// Pass a variable that would be dropped or replaced
    #[arg(long, value_name = "NAME")]
    pub env_pass: Vec<EnvName>,
    /// Drop a variable
    #[arg(long, value_name = "NAME")]
    pub env_drop: Vec<EnvName>,
    /// Start from an empty environment
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_env: Option<bool>,
    /// What happens when the ledger cannot be written. The flag takes a place, too, which is no part of a policy, so
    /// the command line reads it apart.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<OnLedgerFailure>,
    /// What becomes of processes that outlive the command
    #[arg(long, value_name = "kill|keep")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftovers: Option<Leftovers>,
    /// Record what a stricter policy would refuse, and refuse nothing of it: a level's name or a file, as for --policy
    #[arg(long, value_name = "LEVEL|FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<PolicyArg>,
}

impl Layer {
    /// This layer with another one over it.
    pub fn under(mut self, over: Layer) -> Layer {
        self.extends = over.extends.or(self.extends);
        self.network = over.network.or(self.network);
        self.filesystem = over.filesystem.or(self.filesystem);
        self.privilege = over.privilege.or(self.privilege);
        self.allow_host.extend(over.allow_host);
        self.trust_range.extend(over.trust_range);
        self.loopback = over.loopback.or(self.loopback);
        self.publish.extend(over.publish);
        self.upstream = over.upstream.or(self.upstream);
        self.explain = over.explain.or(self.explain);
        self.transparent = over.transparent.or(self.transparent);
        self.writable.extend(over.writable);
        self.read_only.extend(over.read_only);
        self.protect = match (self.protect, over.protect) {
            // An empty list takes away what lies below it: nothing else says `none`.
            (Some(mut list), Some(more)) if !more.is_empty() => {
                list.extend(more);
                Some(list)
            }
            (below, over) => over.or(below),
        };
        self.shield.extend(over.shield);
        self.shield_harbor = over.shield_harbor.or(self.shield_harbor);
        self.shield_git.extend(over.shield_git);
        self.watch_read.extend(over.watch_read);
        self.socket.extend(over.socket);
        self.workspace = over.workspace.or(self.workspace);
        self.workdir = over.workdir.or(self.workdir);
        self.user = over.user.or(self.user);
        self.control_plane_port.extend(over.control_plane_port);
        self.abi.extend(over.abi);
        self.harness = over.harness.or(self.harness);
        self.env_pass.extend(over.env_pass);
        self.env_drop.extend(over.env_drop);
        self.clear_env = over.clear_env.or(self.clear_env);
        self.ledger = over.ledger.or(self.ledger);
        self.leftovers = over.leftovers.or(self.leftovers);
        self.shadow = over.shadow.or(self.shadow);
        self
    }

    /// What a name of a policy says, and the file that it is in, if it is.
    pub(super) fn of_base(base: &PolicyArg) -> Result<(Layer, Option<&Path>), PolicyError> {
        match base {
            PolicyArg::Level(level) => Ok((Layer::of_level(*level), None)),
            PolicyArg::File(file) => {
                let read = std::fs::read_to_string(file);
                let text = read.map_err(|cause| PolicyError::Read { file: file.clone(), cause })?;
                Ok((Layer::of_text(file, &text)?, Some(file)))
            }
        }
    }

    /// What the text of a file says, over the level that it extends. `file` is named in errors.
    pub(super) fn of_text(file: &Path, text: &str) -> Result<Layer, PolicyError> {
        let said = Layer::from_toml(file, text)?;
        let base = said.extends.map(Layer::of_level).unwrap_or_default();
        Ok(base.under(said))
    }

    /// A level's layer: its three postures.
    pub fn of_level(level: Level) -> Layer {
        let postures = level.postures();
        Layer {
            network: Some(postures.network),
            filesystem: Some(postures.filesystem),
            privilege: Some(postures.privilege),
            ..Layer::default()
        }
    }

    /// The layer that a policy file says. `file` is named in errors.
    pub fn from_toml(file: &Path, text: &str) -> Result<Layer, PolicyError> {
        toml::from_str(text).map_err(|fault| {
            let start = fault.span().map_or(0, |span| span.start.min(text.len()));
            PolicyError::Toml {
                file: file.to_owned(),
                line: text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1,
                fault: fault.message().replace('\n', ", "),
            }
        })
    }
}
