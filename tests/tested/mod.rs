//! Which binary the integration tests run.

use std::path::PathBuf;

/// What `RINGFENCE_TESTED` names by its absolute path, as `make unit` does with the one that is shipped; otherwise the one
/// that cargo has built for these tests.
pub fn binary() -> PathBuf {
    std::env::var_os("RINGFENCE_TESTED").map_or_else(|| env!("CARGO_BIN_EXE_ringfence").into(), PathBuf::from)
}
