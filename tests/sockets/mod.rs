//! Runs on the rungs where sockets are made for the command.
#![allow(dead_code, reason = "each test binary uses its own part")]

use super::common::{Ended, Fence, own_user};
use world::{Less, Said};

/// The rungs without a firewall.
pub const RUNGS: [&str; 2] = ["container", "bare"];

/// What root, or an ordinary user, has in Docker's default container.
pub fn less(rung: &str) -> Less {
    match rung {
        "container" => Less::new().container(),
        _ => Less::new().container_user(own_user(), own_user()),
    }
}

/// Runs a script of bash under `ringfence run` with these flags, on a rung.
pub fn run_on(fence: &Fence, rung: &str, flags: &[&str], script: &str) -> Ended {
    let flags = [&["--rung", rung, "--policy", "nist-high"], flags].concat();
    let (command, ledger) = fence.command(&flags, &["bash", "-c", script]);
    let said = Said::from(fence.world.output_with(&less(rung), command));
    fence.ended(said, ledger)
}
