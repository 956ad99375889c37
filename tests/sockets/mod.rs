//! The rungs where sockets are made for the command.
#![allow(dead_code, reason = "each test binary uses its own part")]

use super::common::{Ended, Fence, own_user};
use world::Less;

/// The rungs without a firewall.
pub const RUNGS: [&str; 2] = ["container", "bare"];

/// A box in which that rung is the one to be had: as root, or as an ordinary user, in Docker's default container.
pub fn fence_on(rung: &str) -> Fence {
    Fence::new().less(match rung {
        "container" => Less::new().container(),
        _ => Less::new().container_user(own_user(), own_user()),
    })
}

/// Runs a script of bash at `nist-high` with these flags, on that rung.
pub fn run_on(fence: &Fence, rung: &str, flags: &[&str], script: &str) -> Ended {
    let ended = fence.run(&[&["--policy", "nist-high"], flags].concat(), script);
    assert_eq!(ended.start().rung, rung, "{ended}");
    ended
}
