//! The record of a run: its form, its chain, the one writer, and the check that reads it back.
pub mod attempts;
pub mod chain;
pub mod control_path;
mod counted;
pub mod counts;
pub mod denial;
pub mod error;
pub mod escape;
pub mod fold;
pub mod line;
pub mod lines;
pub mod open_folds;
mod parts;
pub mod record;
pub mod run_id;
#[cfg(test)]
pub(crate) mod samples;
mod scan;
mod shield;
mod sink;
pub mod status;
mod tally;
pub mod target;
mod verification;
pub mod verify;
pub mod view;
pub mod writer;

pub use control_path::{UnsafePath, control_path_is_safe};
pub use error::LedgerError;
pub use open_folds::OpenFolds;
pub use run_id::RunId;
pub use status::Status;
pub use target::LedgerTarget;
pub use verify::{Verification, VerifyError, verify, verify_each, verify_path};
pub use view::{BodyView, DenialView, ObjectView, View};
pub use writer::{Appended, Ledger, LedgerMode, SealInput, Sealed};
