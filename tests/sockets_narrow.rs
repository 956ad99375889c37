//! Where every socket is made for its program, programs of 32 bits that the policy allows meet the same, by the calls proper and
//! by socketcall(2), whose arguments lie behind a pointer.
#![cfg(target_arch = "x86_64")]

mod common;
mod sockets;

use common::{Fence, own_user, value};
use sockets::{RUNGS, left_since};
use std::path::Path;
use std::process::Command;
use world::Less;
use world::internet::everywhere;
use world::less::container::CAPABILITIES;

const PORT: u16 = 4466;
/// What each act says here, and without ringfence.
const ACTS: [(&str, &str, &str); 13] = [
    ("socket", "ok", "ok"),
    ("setsockopt", "ok", "ok"),
    ("bind", "ok", "ok"),
    ("listen", "ok", "ok"),
    ("connect", "ok", "ok"),
    ("sendto", "ok", "ok"),
    ("sendmsg", "ok", "ok"),
    ("connect-out", "ECONNREFUSED", "ok"),
    ("sendto-out", "EPERM", "ok"),
    ("sendmsg-out", "EPERM", "ok"),
    ("device-out", "EPERM", "ok"),
    ("fast-open-out", "EOPNOTSUPP", "ok"),
    ("device", "EPERM", "ok"),
];

#[test]
fn a_program_of_32_bits_is_kept_on_this_machine() {
    let built = tempfile::tempdir().expect("a directory");
    let binary = built.path().join("narrow_sockets");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/callers/narrow_sockets.c");
    let compiled = Command::new("cc").args(["-m32", "-static", "-O1", "-Wall", "-o"]).arg(&binary).arg(source).status();
    assert!(compiled.expect("cc is installed (.ci/deps)").success());
    for rung in RUNGS {
        // Docker's own filter leaves no program of 32 bits socketcall(2), so it is not in force here.
        let fence = Fence::new().less(match rung {
            "container" => Less::new().capabilities(&CAPABILITIES),
            _ => Less::new().uid(own_user(), own_user()),
        });
        fence.world.install(&binary, "/usr/local/bin/narrow_sockets");
        let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
        let script = format!("narrow_sockets {PORT}");
        let live = fence.as_nobody(&script);
        for (act, _, free) in ACTS {
            for way in ["own", "one"] {
                assert_eq!(value(&live, &format!("{way}-{act}")), free, "without ringfence: {live}");
            }
        }
        assert!(!tcp.wait_for(1).is_empty() && udp.wait_for(6).len() >= 6, "the ways out are live");
        let (before, arrived) = (fence.world.packets(), tcp.settled().len() + udp.settled().len());
        let ended = fence.run(&["--policy", "nist-high", "--rung", rung, "--abi", "i386"], &script);
        for (act, said, _) in ACTS {
            for way in ["own", "one"] {
                assert_eq!(ended.value(&format!("{way}-{act}")), said, "{rung} {way} {act}: {ended}");
            }
        }
        let left = left_since(&fence, &before);
        assert!(left.is_empty(), "{rung}: {left:?}");
        assert_eq!(tcp.arrivals().len() + udp.arrivals().len(), arrived, "{ended}");
        let out: u64 = ended.denials().iter().filter(|one| one.object.port == Some(PORT)).map(|one| one.count).sum();
        assert_eq!(out, 8, "each way out is told: {ended}");
    }
}
