//! What a ledger says, for people.
mod row;
mod summary;
pub mod table;

pub use table::{ReportError, report};
