//! Leaving single install or confine steps out, for the proof that the pre-flight probes notice (feature `mutation`).
//!
//! Without the feature [`left_out`] is constantly false and the compiler removes every trace of it.

/// The variable that names the steps, separated by commas, in builds with the feature only.
#[cfg(feature = "mutation")]
pub const VARIABLE: &str = "RINGFENCE_MUTATION_LEAVES_OUT";

/// Every step that can be left out, in the order in which a run takes them. A probe fails for want of each.
pub const STEPS: &[&str] = &[
    // With privilege, outside the sandbox's mount namespace.
    "home",
    "workspace",
    "proxy",
    "proxy-ids",
    "proxy-seccomp",
    "allowlist",
    "address-rules",
    "proxy-reports",
    "wall",
    "early",
    "control-plane",
    "header-options",
    "dns",
    "catch",
    "loopback",
    "firewall-log",
    "environment",
    // The view of the file system.
    "propagation",
    "read-only",
    "aliases",
    "writable",
    "read-only-within",
    "account",
    "masks",
    "shields",
    "shield-git",
    "nosuid",
    // Confinement.
    "descriptors",
    "keyring",
    "bounding",
    "groups",
    "ids",
    "capabilities",
    "no-new-privs",
    "landlock",
    "seccomp",
    "notifier",
    "watched-paths",
    "watched-reads",
    "watched-identities",
    "witness",
    // Parts of the filter.
    "terminal-input",
    "absent-calls",
    "mount-calls",
    "namespaces",
    "socket-families",
    "multipath",
];

/// Steps of the rungs that have neither mounts nor a firewall.
pub const WITHOUT_MOUNTS: &[&str] =
    &["file-rules", "names-inside", "lo-device", "socket-rules", "barrier", "shield-listings"];

/// Second looks of the firewall's, which no packet of an unprivileged process reaches as long as the first look holds and
/// nobody else translates addresses. Here only what is sent to the kernel lacks them: the read-back notices.
pub const READ_BACK: &[&str] = &["late", "exit"];

/// What is left out for a measurement alone: the trial of the probes, which nothing could notice but their absence from the record.
/// `benches/startup.rs` holds what is left of a start against other sandboxes', which try nothing.
pub const MEASURED: &[&str] = &[PROBING];
/// The trial of the probes.
pub const PROBING: &str = "probing";

/// Whether `step` is to be left out of this run.
#[cfg(feature = "mutation")]
pub fn left_out(step: &str) -> bool {
    debug_assert!([STEPS, WITHOUT_MOUNTS, READ_BACK, MEASURED].concat().contains(&step), "unknown step {step}");
    std::env::var_os(VARIABLE).is_some_and(|v| v.to_str().is_some_and(|v| v.split(',').any(|named| named == step)))
}

/// Whether `step` is to be left out of this run: never, in this build.
#[cfg(not(feature = "mutation"))]
#[inline(always)]
pub fn left_out(_step: &str) -> bool {
    false
}
