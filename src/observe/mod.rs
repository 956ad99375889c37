//! What sees denials that others made.
pub mod evidence;
pub mod nflog;
