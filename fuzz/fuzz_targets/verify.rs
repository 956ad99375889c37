//! A ledger may be any bytes: verifying it ends, and says "complete" of nothing that its own head does not confirm. Of a
//! whole ledger any change to any byte is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use ringfence::ledger::record::{Body, Denial, Mechanism, Object, Outcome, Start};
use ringfence::ledger::{Ledger, LedgerTarget, RunId, SealInput, Verification, verify};
use ringfence::policy::Axis;
use std::io::{Read, Seek};
use std::sync::LazyLock;

/// A sealed ledger of a start, two denials and the seal.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let memory = memfd_create(c"ledger", MFdFlags::MFD_CLOEXEC).expect("memfd_create");
    let mut file = std::fs::File::from(memory.try_clone().expect("dup"));
    let mut ledger =
        Ledger::open(LedgerTarget::Fd(memory), &RunId::random().expect("getrandom"), "nist-high").expect("open");
    let start = Start {
        version: "0".into(),
        policy_digest: "0".repeat(64),
        postures: [("network".to_owned(), "restricted".to_owned())].into(),
        rung: "full".into(),
        session: None,
        command: vec!["true".into()],
        uid: 10001,
        gid: 10001,
        host: Default::default(),
        restrictions: Default::default(),
        labels: Default::default(),
        shadow: None,
        unobserved: Vec::new(),
        refusal_nonce: None,
        shields: Vec::new(),
        tripwires: Vec::new(),
        reads_seen_by: None,
        workspaces: Default::default(),
    };
    ledger.append(Body::Start(start)).expect("append");
    for host in ["a.test", "b.test"] {
        let object = Object { host: Some(host.into()), port: Some(443), ..Object::default() };
        let denial =
            Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed");
        ledger.append(Body::Denial(denial)).expect("append");
    }
    ledger.seal(SealInput { started: true, outcome: Outcome::Exited, exit_code: Some(0) }).expect("seal");
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("read");
    assert_eq!(verify(&bytes[..], None).expect("memory can be read").exit_code(), 0);
    bytes
});

fn any(bytes: &[u8]) {
    let found = verify(bytes, None).expect("memory can be read");
    assert!(!found.to_string().chars().any(char::is_control), "{found}");
    if let Verification::Complete { head, records, .. } = &found {
        assert!(*records >= 2, "a start and a seal at least");
        assert_eq!(verify(bytes, Some(head)).expect("a head"), found);
    }
    let strange = "0".repeat(64);
    assert_ne!(verify(bytes, Some(&strange)).expect("a head").exit_code(), 0);
}

fn changed(at: usize, change: &[u8]) {
    let mut bytes = WHOLE.clone();
    let at = at % bytes.len();
    for (byte, flip) in bytes[at..].iter_mut().zip(change) {
        *byte ^= flip;
    }
    let found = verify(&bytes[..], None).expect("memory can be read");
    assert_eq!(found.exit_code() == 0, bytes == *WHOLE, "{found}");
    let cut = verify(&WHOLE[..at], None).expect("memory can be read");
    assert_ne!(cut.exit_code(), 0, "{cut}");
}

fuzz_target!(|input: (Option<u16>, &[u8])| {
    match input {
        (None, bytes) => any(bytes),
        (Some(at), change) => changed(at.into(), change),
    }
});
