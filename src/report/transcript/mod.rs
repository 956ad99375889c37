//! Denials inferred from what tools printed.
//!
//! A transcript is weaker evidence than a ledger: text that only looks like a refusal, an error that would have been
//! seen under `control` too, and a refusal of the far end all read alike. So what is found here is never added to what
//! enforcement observed; it is shown beside it, as `transcript-inferred`, and only where nothing observed accounts for it:
//!
//! - of structured transcripts only tools' outputs are read, never the model's words nor what it gave a tool;
//! - one act that prints its error more than once is one;
//! - what echoes an observed denial on the same axis (on the same object, where one can be seen) is not counted;
//! - an axis that the run left open has no denials.

pub mod act;
mod atif;
mod echo;
mod infer;
mod jsonl;
pub mod outputs;
mod place;
mod screen;
pub mod signature;

pub use act::Act;
pub use echo::Observed;
pub use infer::{Inferred, infer};
