//! Leaving one install or confine step out, for the proof that the pre-flight probes notice (feature `mutation`).
//!
//! Without the feature [`left_out`] is constantly false and the compiler removes every trace of it.

/// The variable that names the step, in builds with the feature only.
#[cfg(feature = "mutation")]
const VARIABLE: &str = "RINGFENCE_MUTATION_LEAVES_OUT";

/// Every step that can be left out.
pub const STEPS: &[&str] = &[
    "propagation",
    "read-only",
    "writable",
    "workspace",
    "nosuid",
    "account",
    "masks",
    "wall",
    "control-plane",
    "proxy",
    "descriptors",
    "environment",
    "keyring",
    "bounding",
    "groups",
    "ids",
    "capabilities",
    "no-new-privs",
    "landlock",
    "seccomp",
];

/// Whether `step` is to be left out of this run.
#[cfg(feature = "mutation")]
pub fn left_out(step: &str) -> bool {
    debug_assert!(STEPS.contains(&step), "unknown step {step}");
    std::env::var_os(VARIABLE).is_some_and(|v| v == step)
}

/// Whether `step` is to be left out of this run: never, in this build.
#[cfg(not(feature = "mutation"))]
#[inline(always)]
pub fn left_out(_step: &str) -> bool {
    false
}
