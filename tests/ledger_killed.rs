//! The ledger's writer is killed at any moment: what it had acknowledged is in the ledger or in the counts beside it, once.
//! (`tests/flood_killed.rs` has the same with the whole program.)

use ringfence::ledger::record::{Body, Denial, Mechanism, Object, Start};
use ringfence::ledger::{Appended, Ledger, LedgerTarget, RunId, Verification, verify_path};
use ringfence::policy::Axis;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the process to be killed finds its directory.
const PLACE: &str = "RINGFENCE_TEST_PLACE";
/// More kinds than are counted at a time, so that folds end all the time.
const KINDS: u64 = 300;

fn denial(kind: u64) -> Body {
    let object = Object { host: Some(format!("{kind}.test")), port: Some(443), ..Object::default() };
    Body::Denial(Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed"))
}

fn start() -> Body {
    let fields = serde_json::json!({"version": "0", "policy_digest": "0", "postures": {}, "rung": "full", "command": [],
        "uid": 1, "gid": 1, "host": {}, "restrictions": {}, "labels": {}, "unobserved": [], "workspaces": {}});
    Body::Start(serde_json::from_value::<Start>(fields).expect("a start's fields"))
}

#[test]
#[ignore = "the process that the other test kills"]
fn writer() {
    let place = std::env::var_os(PLACE).expect("a directory");
    let place = Path::new(&place);
    let target = LedgerTarget::Path(place.join("run.jsonl"));
    let mut ledger = Ledger::open(target, &RunId::random().unwrap(), "nist-high").unwrap();
    ledger.append(start()).unwrap();
    let tally = fs::OpenOptions::new().write(true).open(place.join("tally")).unwrap();
    let mut made: u64 = 0;
    for times in [12, 1, 3, 2].iter().cycle() {
        for kind in 0..KINDS {
            for _ in 0..*times {
                let appended = ledger.append(denial(kind)).unwrap();
                assert_ne!(appended, Appended::NotStored);
                made += 1;
                tally.write_all_at(&made.to_le_bytes(), 0).unwrap();
            }
        }
    }
}

/// Numbers that look random and are the same each time.
fn mixed(n: u64) -> u64 {
    let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_counts_twice() {
    let (mut counted_only, mut folded) = (0, 0);
    for run in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let tally = dir.path().join("tally");
        fs::write(&tally, [0; 8]).unwrap();
        let acknowledged = || u64::from_le_bytes(fs::read(&tally).unwrap().try_into().unwrap());
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--ignored", "--exact", "writer"]).env(PLACE, dir.path()).stdout(Stdio::null());
        let mut writer = writer.spawn().unwrap();
        // By number of acts, so that a slow machine is killed in the same places; a few past the end of a window.
        let acts = if run % 30 == 0 { 15_000 } else { 1 + mixed(run) % 5000 };
        let since = Instant::now();
        while acknowledged() < acts {
            assert!(since.elapsed() < Duration::from_secs(20), "{} acts", acknowledged());
            assert_eq!(writer.try_wait().unwrap(), None, "the writer has ended by itself");
            // It needs the processor more.
            std::thread::sleep(Duration::from_micros(200));
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let acknowledged = acknowledged();
        let path = dir.path().join("run.jsonl");
        let found = verify_path(&path, None).unwrap();
        let text = found.to_string();
        match found {
            Verification::Incomplete { denials, .. } => {
                let possible = [acknowledged, acknowledged + 1];
                assert!(possible.contains(&denials), "run {run}: {acknowledged} acknowledged; {text}");
            }
            other => panic!("run {run}: {other}"),
        }
        assert!(text.contains("there is no seal"), "{text}");
        counted_only += u64::from(text.contains("counted in run.counts"));
        folded += u64::from(fs::read_to_string(&path).unwrap().contains("\"count\":2"));
    }
    println!("{counted_only} runs had counts that stood in no record, {folded} had records of folds");
    assert!(counted_only >= 30 && folded >= 10, "{counted_only} {folded}");
}
