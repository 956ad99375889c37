//! Set-up with privilege, read back, undone in reverse.
pub mod account;
pub mod firewall;
pub mod home;
pub mod mountinfo;
pub mod mounts;
pub mod reserve;
pub mod workspace;
