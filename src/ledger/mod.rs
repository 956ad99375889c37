//! The record of a run.
pub mod record;
