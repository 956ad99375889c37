//! What sees denials that others made, and who made them.
pub mod attribution;
pub mod connectors;
pub mod evidence;
pub mod nflog;
pub mod socket_owner;
pub mod subject;
