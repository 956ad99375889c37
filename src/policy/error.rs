//! Why a policy can't be had, or can't be held.

use super::axis::{Axis, Posture};
use super::layer::Layer;
use super::path::PolicyPath;
use super::upstream::Upstream;
use super::values::PolicyArg;
use std::io;
use std::path::{Path, PathBuf};

/// Why a policy can't be had from what was given. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file can't be read.
    #[error("policy file {}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The file is no TOML, or holds a key or a value that is none of a policy's.
    #[error("{}:{line}: {fault}", file.display())]
    Toml {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is accepted.
        fault: String,
    },
    /// A posture is missing, and no level lies below.
    #[error("policy file {}: it names no posture for {axes}; add extends = \"LEVEL\" or the posture", file.display())]
    Incomplete {
        /// The file.
        file: PathBuf,
        /// The axes without a posture.
        axes: String,
    },
    /// A path is asked to be both.
    #[error("{0} is named both writable and read-only; accepted: one of the two")]
    BothWays(PolicyPath),
    /// The whole of the file system as writable path.
    #[error("/ is named writable, which leaves nothing read-only; accepted: a path below it, or filesystem = \"open\"")]
    RootWritable,
    /// A shadow that is laxer on an axis than what is enforced.
    #[error(
        "--shadow {named}: {axis} {shadow} is laxer than what is enforced, {enforced}; accepted: a policy that is laxer on no axis"
    )]
    ShadowLaxer {
        /// The policy.
        named: PolicyArg,
        /// The axis.
        axis: Axis,
        /// Its posture.
        shadow: Posture,
        /// The enforced one.
        enforced: Posture,
    },
    /// A shadow that is stricter on no axis.
    #[error("--shadow {0}: it has the postures that are enforced; accepted: a policy that is stricter on an axis")]
    ShadowNotStricter(PolicyArg),
    /// A shadow that names another.
    #[error("--shadow {0}: the file names a shadow of its own; accepted: a policy without the key shadow")]
    ShadowOfShadow(PolicyArg),
    /// A password among the flags.
    #[error(
        "--upstream {0}: credentials on the command line can be read by everyone in /proc/PID/cmdline; accepted: a policy file that holds them, or --upstream environment"
    )]
    CredentialsInArguments(Upstream),
}

/// Why a combination of postures can't be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unholdable {
    /// Network above `open` without privilege `locked`.
    #[error(
        "network {network} can't be held with privilege {privilege}, it needs privilege locked: a set-id program's sockets are not the command's, and root takes the firewall's rules away"
    )]
    Network {
        /// The network's posture.
        network: Posture,
        /// The privilege's.
        privilege: Posture,
    },
    /// Filesystem above `open` without privilege `locked`.
    #[error(
        "filesystem {filesystem} can't be held with privilege {privilege}, it needs privilege locked: root mounts the trees writable again"
    )]
    Filesystem {
        /// The filesystem's posture.
        filesystem: Posture,
        /// The privilege's.
        privilege: Posture,
    },
    /// A shield without privilege `locked`.
    #[error("a shield can't be held with privilege {privilege}, it needs privilege locked: root takes a mask away")]
    Shield {
        /// The privilege's posture.
        privilege: Posture,
    },
    /// A watched path with privilege `open`.
    #[error("reads can't be watched with privilege open; accepted: privilege restricted or locked")]
    WatchRead,
    /// Root as the dedicated user.
    #[error("privilege {privilege} can't be held for uid 0; accepted: a user other than root")]
    Root {
        /// The privilege's posture.
        privilege: Posture,
    },
}

impl PolicyError {
    /// A policy that does not say all three postures.
    pub(super) fn incomplete(layer: &Layer, file: Option<&Path>) -> PolicyError {
        let postures = [("network", layer.network), ("filesystem", layer.filesystem), ("privilege", layer.privilege)];
        let missing = postures.iter().filter(|(_, posture)| posture.is_none()).map(|(axis, _)| *axis);
        PolicyError::Incomplete {
            file: file.unwrap_or(Path::new("")).to_owned(),
            axes: missing.collect::<Vec<_>>().join(", "),
        }
    }
}
