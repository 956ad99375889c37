//! Sockets on the rungs without a firewall: programs meet what they meet on any loopback.

mod common;

use common::Fence;

#[test]
fn first() {
    let fence = Fence::new();
    let ended = fence.run(&["--rung", "container", "--policy", "nist-high"], "id; python3 -c 'import socket; s=socket.socket(); print(s)'; curl -sv http://11.22.33.44/ ; env | grep -i proxy");
    println!("{ended}");
    panic!();
}
