//! The proxy without descriptors (case N11): it waits without spinning, and serves again when there are some. A test
//! of its own, because the limit is the process's.

#[path = "proxy/origin.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod origin;
#[path = "proxy/resolver.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod resolver;
#[path = "proxy/rig.rs"]
#[allow(dead_code, unused_imports, reason = "each test binary uses its own part")]
mod rig;

use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use rig::*;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

fn cpu_ms() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds()
}

#[test]
fn n11_without_descriptors_the_proxy_waits_quietly_and_then_serves() {
    setrlimit(Resource::RLIMIT_NOFILE, 256, 256).unwrap();
    let world = world(&[], |_, _, _| empty());
    assert_eq!(status(&world.connect_to("evil.test:443")), 403);

    // The first connection's descriptor may come free while the rest are taken: until none has for a while.
    let mut hog = Vec::new();
    let mut taken = true;
    while taken {
        std::thread::sleep(Duration::from_millis(200));
        taken = false;
        while let Ok(file) = File::open("/dev/null") {
            hog.push(file);
            taken = true;
        }
    }
    hog.pop();
    // The client's own descriptor is the last one: the kernel completes the handshake, accept(2) gives EMFILE.
    let mut client = world.connect();
    client.write_all(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let before = cpu_ms();
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(cpu_ms() - before < 500, "{} ms of CPU in 2 s", cpu_ms() - before);
    assert!(!world.ended.is_finished());

    drop(hog);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 403);
    assert_eq!(world.records.denials().len(), 2);
}
