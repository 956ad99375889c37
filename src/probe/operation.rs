//! What probes try, by what they try it on: primitive calls, no shell tools. Each says what it saw, one word a try.

use super::{Surroundings, evidence, filesystem, identity, kernel, network};
use serde::de::value::Error as NoValue;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

/// What a probe tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// What a probe mostly waits for. Those of one lane are tried one after the other in a process that is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// For nothing: it looks at what the confined child has open.
    Descriptors,
    /// For the observer, about what that child is. The stage is its parent.
    Own,
    /// For the observer and the kernel's file systems.
    Files,
    /// For the firewall and the proxy.
    Network,
}

/// An operation is a name, or a table of one name and its argument. It is looked up by the name first, so that what is
/// wrong with an argument is said of that argument.
impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Operation, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let name = match &value {
            toml::Value::String(name) => Some(name.clone()),
            toml::Value::Table(table) if table.len() == 1 => table.keys().next().cloned(),
            _ => None,
        };
        let Some(name) = name else {
            return Err(D::Error::custom("an operation is a name, or a table of one name and its argument"));
        };
        let known = |names: Vec<&str>| names.contains(&name.as_str());
        let read = if known(names_of::<filesystem::Operation>()) {
            filesystem::Operation::deserialize(value).map(Operation::Filesystem)
        } else if known(names_of::<identity::Operation>()) {
            identity::Operation::deserialize(value).map(Operation::Identity)
        } else if known(names_of::<kernel::Operation>()) {
            kernel::Operation::deserialize(value).map(Operation::Kernel)
        } else if known(names_of::<network::Operation>()) {
            network::Operation::deserialize(value).map(Operation::Network)
        } else if known(names_of::<evidence::Operation>()) {
            evidence::Operation::deserialize(value).map(Operation::Evidence)
        } else {
            let accepted = Operation::names().join(", ");
            return Err(D::Error::custom(format!("{name:?} is no operation; accepted: {accepted}")));
        };
        read.map_err(|fault| D::Error::custom(format!("operation {name}: {}", fault.message().trim_end())))
    }
}

/// The names of an enumeration's variants as they are read.
fn names_of<T: Deserialize<'static>>() -> Vec<&'static str> {
    let mut names = Vec::new();
    // Nothing is read, so that nothing comes of it but the names.
    let _nothing = T::deserialize(Names(&mut names)).is_ok();
    names
}

/// Takes the names of the variants that are asked for, and has none of them.
struct Names<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = NoValue;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, NoValue> {
        self.0.extend(variants);
        Err(NoValue::custom("only names are asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("only names are asked for"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl Operation {
    /// The names of all operations.
    pub fn names() -> Vec<&'static str> {
        [
            names_of::<filesystem::Operation>(),
            names_of::<identity::Operation>(),
            names_of::<kernel::Operation>(),
            names_of::<network::Operation>(),
            names_of::<evidence::Operation>(),
        ]
        .concat()
    }

    /// Whether it takes what only a run of this program has: its processes, its masks, its stage, its evidence.
    pub fn takes_a_run(&self) -> bool {
        use filesystem::Operation::{
            CreateAsStage, Masked, ReachHiddenGit, ReachHiddenGitAsStage, ReadShieldedAsStage, ReadWatched, WorkInGit,
        };
        use identity::Operation::{CallersKeyring, ProxyEnvironment};
        use kernel::Operation::{SignalSupervisor, TraceSupervisor};
        use network::Operation::{Lookup, NeverHandedOut, ProxyProcess};
        matches!(
            self,
            Operation::Evidence(_)
                | Operation::Filesystem(
                    CreateAsStage
                        | Masked
                        | ReachHiddenGit
                        | ReachHiddenGitAsStage
                        | ReadShieldedAsStage
                        | ReadWatched
                        | WorkInGit
                )
                | Operation::Identity(CallersKeyring | ProxyEnvironment)
                | Operation::Kernel(SignalSupervisor | TraceSupervisor)
                | Operation::Network(Lookup(_) | NeverHandedOut | ProxyProcess)
        )
    }

    /// Where it is tried.
    pub fn lane(&self) -> Lane {
        match self {
            Operation::Identity(identity::Operation::Descriptors) => Lane::Descriptors,
            Operation::Identity(_) | Operation::Kernel(_) | Operation::Evidence(_) => Lane::Own,
            Operation::Filesystem(_) => Lane::Files,
            Operation::Network(_) => Lane::Network,
        }
    }

    /// Whether it asks a proxy for something.
    pub fn asks_a_proxy(&self) -> bool {
        matches!(self, Operation::Network(network::Operation::Proxy(_)))
    }

    /// Whether it would leave a mount where it succeeds.
    pub fn may_mount(&self) -> bool {
        use filesystem::Operation::MountOverProtected;
        matches!(self, Operation::Filesystem(MountOverProtected) | Operation::Kernel(kernel::Operation::Mount))
    }

    /// Tries the operation in the stage; `None` where it is not the stage's to try.
    pub fn make_as_stage(&self, run: &Surroundings) -> Option<Vec<String>> {
        match self {
            Operation::Filesystem(
                operation @ (filesystem::Operation::CreateAsStage
                | filesystem::Operation::ReadShieldedAsStage
                | filesystem::Operation::ReachHiddenGitAsStage),
            ) => Some(filesystem::make(operation, run)),
            _ => None,
        }
    }

    /// Tries the operation in the calling, confined process; what it saw, one word a try. `None` where it is not the
    /// command's to try.
    pub fn make(&self, run: &Surroundings) -> Option<Vec<String>> {
        Some(match self {
            Operation::Filesystem(
                filesystem::Operation::CreateAsStage
                | filesystem::Operation::ReadShieldedAsStage
                | filesystem::Operation::ReachHiddenGitAsStage,
            ) => return None,
            Operation::Filesystem(operation) => filesystem::make(operation, run),
            Operation::Identity(operation) => identity::make(operation, run),
            Operation::Kernel(operation) => kernel::make(operation, run),
            Operation::Network(operation) => network::make(operation, run),
            Operation::Evidence(_) => return None,
        })
    }
}
