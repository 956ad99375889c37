//! What is asked: axes and levels, the file form, the allowlist and the judgement of names and addresses.
pub mod authority;
pub mod axis;

pub use authority::{Authority, BadAuthority, Host, Name};
pub use axis::{Axis, Posture};
