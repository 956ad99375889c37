//! What sees denials that others made.
pub mod nflog;
