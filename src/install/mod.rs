//! Set-up with privilege, read back, undone in reverse.
pub mod firewall;
