//! The attempts of `tests/fixtures/protocols.py`: everything that is no ordinary TCP connection.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use world::{Said, World};

pub const PORT: u16 = 4444;
/// The attempts, on [`PORT`].
pub const ATTEMPTS: &str = "/usr/bin/python3 /usr/local/lib/protocols.py 4444 eth0";

/// Puts the attempts and what they start into a box.
pub fn prepare(world: &World) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let built = tempfile::tempdir().expect("a directory");
    let entries = built.path().join("entries");
    let compiled =
        Command::new("cc").args(["-static", "-O1", "-o"]).arg(&entries).arg(scripts.join("entries.c")).status();
    assert!(compiled.expect("cc").success());
    world.install(&entries, "/usr/local/bin/entries");
    world.install(&scripts.join("protocols.py"), "/usr/local/lib/protocols.py");
    // Echo requests by datagram sockets need no privilege for groups in this range (icmp(7)).
    world.inside().run(|| {
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").expect("write ping_group_range");
    });
}

/// What the attempts said, by name.
pub fn outcomes(said: &Said) -> BTreeMap<String, String> {
    let pairs = said.out.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
}
