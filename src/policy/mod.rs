//! What is asked: axes and levels, the file form, the allowlist and the judgement of names and addresses.
//!
//! In reading order: what a posture and a level are, how one layer of a policy is written and how layers become the
//! effective policy, what it says about hosts and addresses, about paths, and about the environment.
pub mod axis;
pub mod effective;
mod error;
pub mod layer;
pub mod level;
pub mod path;
mod shadow;
pub mod show;
pub mod values;

pub mod allowlist;
pub mod authority;
pub mod entry;
pub mod ranges;
mod special;
pub mod upstream;
mod ways;

pub mod environment;
pub mod harbor;
pub mod harness;
pub mod protect;
pub mod trees;

pub use allowlist::{Allowlist, Verdict};
pub use authority::{Authority, BadAuthority, Host, Name};
pub use axis::{Axis, Posture};
pub use effective::Policy;
pub use entry::{BadEntry, Entry};
pub use error::{PolicyError, Unholdable};
pub use layer::Layer;
pub use level::{Level, Postures};
pub use path::{PolicyPath, WorkTree};
pub use protect::ProtectedPath;
pub use ranges::{AddressRules, AddressVerdict};
pub use shadow::Shadow;
pub use trees::Trees;
pub use upstream::{ParentProxy, Upstream};
pub use values::{Abi, BadValue, Leftovers, Loopback, OnLedgerFailure, PolicyArg, Publish, User};
pub use ways::ways_to_admit;
