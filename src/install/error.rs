//! Why a step of the set-up failed.
use super::firewall::FirewallError;
use super::placeholders::PlaceholderError;
use super::protect::ProtectError;
use super::proxy::SpawnError;
use super::publish;
use super::reserve::ReserveError;
use super::rootless::RootlessError;
use super::undo::UndoError;
use super::workspace::WorkspaceError;
use super::{home, tool_files};
use crate::channel::ChannelError;
use crate::confine::seccomp::FilterError;
use crate::git::GitError;
use crate::ledger::LedgerError;
use crate::observe::evidence::EvidenceError;
use crate::supervise::watch_mounts::MountWatchError;
use nix::errno::Errno;
use std::path::PathBuf;

/// A step of the set-up failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] SpawnError),
    /// The wall.
    #[error(transparent)]
    Firewall(#[from] FirewallError),
    /// The sandbox's own namespaces.
    #[error(transparent)]
    Namespaces(#[from] RootlessError),
    /// What the host would run later.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// What stands for what is missing of it.
    #[error(transparent)]
    Placeholders(#[from] PlaceholderError),
    /// The state directory.
    #[error("state directory: {0}")]
    State(#[from] LedgerError),
    /// A port that is to be published.
    #[error(transparent)]
    Publish(#[from] publish::Taken),
    /// HOME.
    #[error(transparent)]
    Home(#[from] home::HomeError),
    /// A workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The file of prior owners.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// A copy of a part of a repository.
    #[error("shield-git: {0}")]
    Git(#[from] GitError),
    /// A name that only one run may have.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// Two runs cannot change the owner of one tree.
    #[error("workspace {path}: another run has changed its owner and will put it back; accepted: one run at a time",
        path = path.display())]
    TreeIsTaken {
        /// The tree.
        path: PathBuf,
    },
    /// The seccomp program.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A file for the tools.
    #[error(transparent)]
    Tools(#[from] tool_files::ToolFileError),
    /// The stage.
    #[error("stage: {0}")]
    Stage(String),
    /// The table of the sandbox's mounts.
    #[error(transparent)]
    Mounts(#[from] MountWatchError),
    /// The observer.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The channel to the stage.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A call.
    #[error("{call}: {errno}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The command holds a NUL byte.
    #[error("the command or its environment holds a NUL byte")]
    Nul,
}
