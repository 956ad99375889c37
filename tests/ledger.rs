//! The ledger on a disk that fills up: every loss is counted, and the record says so itself.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use ringfence::ledger::record::{Body, Denial, Mechanism, Object, Outcome, Start};
use ringfence::ledger::{Appended, Ledger, LedgerError, LedgerMode, LedgerTarget, RunId, SealInput, verify_path};
use ringfence::policy::Axis;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file system of 64 KiB, in a mount namespace that ends with this test's thread.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mounted() -> TinyDisk {
        let dir = tempfile::tempdir().unwrap();
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let size = Some("size=64k,mode=700");
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), size).unwrap();
        TinyDisk(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        // A mount point cannot be removed where it is mounted.
        umount2(self.0.path(), MntFlags::MNT_DETACH).unwrap();
    }
}

fn start() -> Body {
    Body::Start(Start {
        version: "0.1.0".into(),
        policy_digest: String::new(),
        postures: BTreeMap::new(),
        rung: "full".into(),
        session: None,
        command: vec!["true".into()],
        uid: 10001,
        gid: 10001,
        host: BTreeMap::new(),
        restrictions: BTreeMap::new(),
        labels: BTreeMap::new(),
        shadow: None,
        unobserved: vec![],
        refusal_nonce: None,
        shields: Vec::new(),
        tripwires: Vec::new(),
        reads_seen_by: None,
        workspaces: BTreeMap::new(),
    })
}

fn denial(n: u64) -> Body {
    let object = Object { host: Some(format!("{n}.test")), port: Some(443), ..Object::default() };
    Body::Denial(Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed"))
}

const END: SealInput = SealInput { started: true, outcome: Outcome::Exited, exit_code: Some(0) };

/// Fills what is left of the disk.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
}

#[test]
fn a_full_disk_loses_records_and_never_their_number() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let disk = TinyDisk::mounted();
    let path = disk.at("run.jsonl");
    let target = LedgerTarget::Path(path.clone());
    let mut ledger = Ledger::open(target, &RunId::random().unwrap(), "nist-high").unwrap();
    ledger.append(start()).unwrap();
    fill(&disk.at("ballast"));

    let mut ledger = ledger.with_mode(LedgerMode::Degrade);
    let mut tries = 0;
    let mut not_stored = 0;
    while not_stored < 50 {
        tries += 1;
        if ledger.append(denial(tries)).unwrap() == Appended::NotStored {
            not_stored += 1;
        }
    }
    assert!(ledger.is_losing());
    assert_eq!(verify_path(&path, None).unwrap().exit_code(), 1);
    let full = ledger.seal(END);
    assert!(matches!(full, Err(LedgerError::Write { .. })), "{full:?}");

    fs::remove_file(disk.at("ballast")).unwrap();
    tries += 1;
    assert!(matches!(ledger.append(denial(tries)).unwrap(), Appended::Stored { .. }));
    let end = ledger.seal(END).unwrap();
    assert!(!end.complete && !end.complete_by_axis["network"] && end.complete_by_axis["filesystem"]);

    let lost: u64 = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .filter_map(|line| match ringfence::ledger::line::decode(line.as_bytes()).unwrap().body {
            Body::Gap(gap) => {
                assert!(gap.cause.contains("ENOSPC"), "{}", gap.cause);
                assert_eq!((gap.axis, gap.source.as_str()), (Some(Axis::Network), "writer"));
                Some(gap.lost)
            }
            _ => None,
        })
        .sum();
    assert_eq!(end.seal.denials["network"] + lost, tries);
    let found = verify_path(&path, Some(&end.head)).unwrap();
    assert_eq!(found.exit_code(), 1, "{found}");
}

#[test]
fn a_required_ledger_on_a_full_disk_ends_the_run_and_is_found_incomplete() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let disk = TinyDisk::mounted();
    let path = disk.at("run.jsonl");
    let target = LedgerTarget::Path(path.clone());
    let mut ledger = Ledger::open(target, &RunId::random().unwrap(), "nist-high").unwrap();
    ledger.append(start()).unwrap();
    fill(&disk.at("ballast"));
    let error = (0..100).find_map(|n| ledger.append(denial(n)).err()).unwrap();
    assert!(error.to_string().contains(&format!("{}: ENOSPC", path.display())), "{error}");
    drop(ledger);
    let found = verify_path(&path, None).unwrap().to_string();
    assert!(found.starts_with("incomplete: ") && found.ends_with("there is no seal"), "{found}");
}
