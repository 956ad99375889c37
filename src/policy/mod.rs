//! What is asked: axes and levels, the file form, the allowlist and the judgement of names and addresses.
pub mod allowlist;
pub mod authority;
pub mod axis;
pub mod entry;
pub mod ranges;
mod special;

pub use allowlist::{Allowlist, Verdict};
pub use authority::{Authority, BadAuthority, Host, Name};
pub use axis::{Axis, Posture};
pub use entry::{BadEntry, Entry};
pub use ranges::{AddressRules, AddressVerdict};
