//! What sees denials that others made, and who made them.
pub mod evidence;
pub mod nflog;
pub mod subject;
