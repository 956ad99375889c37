//! Living with the command until its end.
pub mod descendants;
pub mod terminal;
