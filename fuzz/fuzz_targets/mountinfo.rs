//! Mount points hold whatever bytes a directory's name may hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::install::mountinfo::{holding, parse, reachable};
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Some(mounts) = parse(bytes) else { return };
    assert_eq!(mounts.len(), bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count());
    // Reachability compares every mount with every other.
    if mounts.len() > 64 {
        return;
    }
    let reachable = reachable(&mounts);
    assert!(reachable.len() <= mounts.len());
    if let Some(mount) = holding(&reachable, Path::new("/usr/bin")) {
        assert!(Path::new("/usr/bin").starts_with(&mount.point));
    }
});
