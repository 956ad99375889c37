//! The rungs where sockets are made for the command.
#![allow(dead_code, reason = "each test binary uses its own part")]

use super::common::{Ended, Fence, own_user};
use world::{Less, Packet};

/// The rungs without a firewall.
pub const RUNGS: [&str; 2] = ["container", "bare"];

/// What root, or an ordinary user, has in Docker's default container.
pub fn less(rung: &str) -> Less {
    match rung {
        "container" => Less::new().container(),
        _ => Less::new().container_user(own_user(), own_user()),
    }
}

/// A box in which that rung is the one to be had.
pub fn fence_on(rung: &str) -> Fence {
    Fence::new().less(less(rung))
}

/// Runs a script of bash at `nist-high` with these flags, on that rung.
pub fn run_on(fence: &Fence, rung: &str, flags: &[&str], script: &str) -> Ended {
    let ended = fence.run(&[&["--policy", "nist-high"], flags].concat(), script);
    assert_eq!(ended.start().rung, rung, "{ended}");
    ended
}

/// The packets that have left the box since those, less the last ones of TCP connections that were there already.
pub fn left_since(fence: &Fence, before: &[Packet]) -> Vec<Packet> {
    const TCP: u8 = 6;
    let goes_on = |packet: &Packet| {
        let same = |one: &Packet| (one.protocol, one.source_port) == (TCP, packet.source_port);
        packet.protocol == TCP && before.iter().any(same)
    };
    fence.world.packets().split_off(before.len()).into_iter().filter(|packet| !goes_on(packet)).collect()
}
