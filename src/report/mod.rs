//! What ledgers say, for people and for programs: one run as a table of its records, or the counts over any number of
//! runs (the paper's Appendix G).
//!
//! A run is counted only if its ledger shows that nothing is missing (`gate`), so that totals are lower bounds.

// Where ledgers are, and what one of them says.
mod buffered;
mod by_axis;
mod direct;
mod gate;
mod input;
mod objects;
mod run;

// What many say together.
mod cohort;
mod concentration;
mod counts;
mod parallel;
mod progress;
mod selection;

// What transcripts add.
pub mod transcript;

// How it is shown.
mod csv;
mod json;
mod row;
mod summary;
pub mod table;
mod text;

pub mod error;
pub mod make;

pub use error::ReportError;
pub use gate::Exclusion;
pub(crate) use input::Frames;
pub use make::{Form, Request, make};
pub use selection::{By, Selection};
pub use table::report;
