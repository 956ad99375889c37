//! The record of a scripted session: exactly the denials made, whole, and tampering found.

mod common;

use common::{Ended, Fence};
use std::collections::BTreeMap;
use world::address::{METADATA4, PRIVATE4, PUBLIC4, PUBLIC6};
use world::internet::STRANGER;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A port where nothing listens, so that only ringfence refuses at once.
const PORT: u16 = 4444;

/// A session with so many refused attempts, by destination.
fn session(fence: &Fence) -> (Ended, BTreeMap<String, u64>) {
    fence.internet.resolver.host("private.example.org", &[PRIVATE4.into()]);
    let mut expected = BTreeMap::new();
    let mut script = String::from("curl -sS -o /dev/null https://pypi.org/ || echo failed\n");
    for (count, host) in [(3, STRANGER), (2, "private.example.org"), (1, "www.example.org")] {
        expected.insert(format!("{host}:443"), count);
        script += &format!("for n in $(seq {count}); do curl -s -o /dev/null https://{host}/; done\n");
    }
    // A refused connection is one attempt: bash doesn't try again.
    for (count, address) in [(2, PUBLIC4.to_string()), (1, METADATA4.to_string()), (4, PUBLIC6.to_string())] {
        expected.insert(format!("{address}:{PORT}"), count);
        script += &format!("for n in $(seq {count}); do (exec 3<>/dev/tcp/{address}/{PORT}) 2>/dev/null; done\n");
    }
    let ended = fence.run(&[&FLAGS[..], &["--allow-host", "private.example.org"]].concat(), &(script + "echo done"));
    assert_eq!((ended.said.out.as_str(), ended.said.code), ("done\n", Some(0)), "{ended}");
    (ended, expected)
}

fn by_destination(ended: &Ended) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for denial in ended.denials() {
        let object = &denial.object;
        let place = object.host.clone().unwrap_or_else(|| object.addrs[0].to_string());
        *counts.entry(format!("{place}:{}", object.port.unwrap_or_default())).or_default() += denial.count;
    }
    counts
}

#[test]
fn it_holds_exactly_the_denials_made() {
    let fence = Fence::new();
    let (ended, expected) = session(&fence);
    assert_eq!(by_destination(&ended), expected, "{ended}");
    let seal = ended.seal();
    assert!(seal.complete && seal.complete_by_axis.values().all(|complete| *complete), "{ended}");
    assert_eq!(seal.denials.get("network"), Some(&expected.values().sum()), "{ended}");
    for (at, record) in ended.records.iter().enumerate() {
        assert_eq!(record.seq, at as u64, "{ended}");
        assert_eq!(record.level, "nist-high");
    }
}

#[test]
fn attempts_are_numbered_by_object() {
    let fence = Fence::new();
    let (ended, _) = session(&fence);
    let attempts: Vec<u64> = ended.denials_of(STRANGER).iter().map(|denial| denial.attempt).collect();
    assert_eq!(attempts, [1, 2, 3], "{ended}");
}

#[test]
fn a_change_a_gap_and_a_missing_end_are_found() {
    let fence = Fence::new();
    let (ended, _) = session(&fence);
    let whole = String::from_utf8(fence.world.read(&ended.ledger).expect("a ledger")).expect("UTF-8");
    let lines: Vec<&str> = whole.lines().collect();
    let flipped = whole.replacen(STRANGER, &STRANGER.replace("stranger", "stranges"), 1);
    assert_ne!(flipped, whole);
    let removed = [&lines[..3], &lines[4..]].concat().join("\n") + "\n";
    let cut = lines[..lines.len() - 1].join("\n") + "\n";
    let torn = whole[..whole.len() - 20].to_owned();
    for (what, text, status) in
        [("whole", whole, 0), ("flipped", flipped, 2), ("removed", removed, 2), ("cut", cut, 1), ("torn", torn, 1)]
    {
        let path = format!("/tmp/{what}.jsonl");
        fence.world.write(&path, text, 0o600);
        let said = fence.verify(&path);
        assert_eq!(said.code, Some(status), "{what}: {said}");
    }
}

#[test]
fn the_command_cannot_reach_it() {
    let fence = Fence::new();
    let ended = fence.run(
        &FLAGS,
        "ls /var/log/ringfence /var/log/ringfence/*; cat /var/log/ringfence/0.jsonl; \
         for fd in /proc/self/fd/*; do readlink $fd; done; echo x >> /var/log/ringfence/0.jsonl; true",
    );
    assert!(!ended.said.out.contains("jsonl") && !ended.said.out.contains("\"kind\""), "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0));
}
