//! What is asked: axes and levels, the file form, the allowlist and the judgement of names and addresses.
pub mod axis;
pub use axis::{Axis, Posture};
