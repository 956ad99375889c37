//! Records and ledgers for the tests.

use super::record::*;
use super::*;
use crate::policy::Axis;
use std::collections::BTreeMap;
use std::path::Path;

pub fn start() -> Body {
    Body::Start(Start {
        version: "0.1.0".into(),
        policy_digest: chain::ORIGIN.into(),
        postures: BTreeMap::from([("network".into(), "restricted".into())]),
        rung: "full".into(),
        session: Some("default".into()),
        command: vec!["sh".into(), "-c".into(), "true".into()],
        uid: 10001,
        gid: 10001,
        host: BTreeMap::from([("landlock_abi".into(), 6.into())]),
        restrictions: BTreeMap::new(),
        labels: BTreeMap::from([("task".into(), "a-b".into())]),
        shadow: None,
        unobserved: vec!["reads".into()],
        refusal_nonce: None,
        shields: Vec::new(),
        tripwires: Vec::new(),
        reads_seen_by: None,
        workspaces: BTreeMap::new(),
    })
}

pub fn denial(axis: Axis, host: &str) -> Denial {
    let object = Object { host: Some(host.into()), port: Some(443), ..Object::default() };
    Denial::observed(axis, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed")
}

pub fn probe(passed: bool) -> Body {
    Body::Probe(Probe {
        id: "network.direct".into(),
        axis: Axis::Network,
        class: "direct".into(),
        expected: "ECONNREFUSED".into(),
        seen: if passed { "ECONNREFUSED" } else { "connected" }.into(),
        passed,
    })
}

pub fn gap(axis: Option<Axis>, lost: u64) -> Body {
    Body::Gap(Gap { axis, source: "nflog".into(), lost, cause: "ENOBUFS".into() })
}

pub const EXITED: SealInput = SealInput { started: true, outcome: Outcome::Exited, exit_code: Some(0) };

pub fn open(path: &Path) -> Ledger {
    Ledger::open(LedgerTarget::Path(path.to_owned()), &RunId::random().unwrap(), "nist-high").unwrap()
}

/// A sealed ledger of a start, the given records and the seal: its bytes and what sealing gave.
pub fn sealed(bodies: impl IntoIterator<Item = Body>) -> (Vec<u8>, Sealed) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path);
    ledger.append(start()).unwrap();
    for body in bodies {
        ledger.append(body).unwrap();
    }
    let sealed = ledger.seal(EXITED).unwrap();
    (std::fs::read(&path).unwrap(), sealed)
}

/// The start of a run that enforces nothing and has a shadow.
pub fn shadowed() -> Body {
    let Body::Start(start) = start() else { unreachable!() };
    let open = ["network", "filesystem", "privilege"].map(|axis| (axis.to_owned(), "open".to_owned()));
    let stricter = Shadow { level: "nist-high".into(), policy_digest: chain::ORIGIN.into(), postures: BTreeMap::new() };
    Body::Start(Start { postures: open.into(), shadow: Some(stricter), ..start })
}

/// The records in a file of whole lines.
pub fn records(bytes: &[u8]) -> Vec<Record> {
    let lines = bytes.strip_suffix(b"\n").unwrap().split(|b| *b == b'\n');
    lines.map(|line| line::decode(line).unwrap()).collect()
}
