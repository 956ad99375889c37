//! What probes try, by what they try it on: primitive calls, no shell tools. Each says what it saw, one word a try.

use super::{Surroundings, evidence, filesystem, identity, kernel, network};
use serde::Deserialize;

/// What a probe tries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Operation {
    /// On the file system.
    Filesystem(filesystem::Operation),
    /// On what the process itself is and carries.
    Identity(identity::Operation),
    /// On the kernel's interfaces by which privilege is gained.
    Kernel(kernel::Operation),
    /// On the network.
    Network(network::Operation),
    /// On what the enforcing parts have told of it all; the supervisor's own.
    Evidence(evidence::Operation),
}

impl Operation {
    /// Tries the operation in the stage; `None` where it is not the stage's to try.
    pub fn make_as_stage(&self, run: &Surroundings) -> Option<Vec<String>> {
        match self {
            Operation::Filesystem(operation @ filesystem::Operation::CreateAsStage) => {
                Some(filesystem::make(operation, run))
            }
            _ => None,
        }
    }

    /// Tries the operation in the calling, confined process; what it saw, one word a try. `None` where it is not the
    /// command's to try.
    pub fn make(&self, run: &Surroundings) -> Option<Vec<String>> {
        Some(match self {
            Operation::Filesystem(filesystem::Operation::CreateAsStage) => return None,
            Operation::Filesystem(operation) => filesystem::make(operation, run),
            Operation::Identity(operation) => identity::make(operation, run),
            Operation::Kernel(operation) => kernel::make(operation, run),
            Operation::Network(operation) => network::make(operation, run),
            Operation::Evidence(_) => return None,
        })
    }
}
