//! Set-up with privilege, read back, undone in reverse.
pub mod account;
pub mod mountinfo;
pub mod mounts;
pub mod workspace;
