use super::super::samples::*;
use super::super::{Verification, verify_path};
use super::*;
use crate::ledger::counts::SIZE;
use crate::ledger::fold::BURST;
use crate::policy::Axis;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A run of fifty refusals that was killed.
fn cut_off() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path);
    ledger.append(start()).unwrap();
    for _ in 0..50 {
        ledger.append(Body::Denial(denial(Axis::Network, "a.test"))).unwrap();
    }
    let counts = dir.path().join("run.counts");
    assert!(counts.exists());
    (dir, path, counts)
}

fn open(path: &Path) -> crate::ledger::Ledger {
    super::super::samples::open(path)
}

fn said(path: &Path) -> String {
    verify_path(path, None).unwrap().to_string()
}

#[test]
fn verify_says_how_many_are_counted_only() {
    let (_dir, path, _) = cut_off();
    let left = 50 - BURST;
    assert_eq!(
        said(&path),
        format!(
            "incomplete: {} records, 50 denials: there is no seal; \
             {left} of the denials are counted in run.counts and stand in no record",
            BURST + 1
        )
    );
}

#[test]
fn a_reader_of_records_gets_the_denial_that_is_missing() {
    let (_dir, path, _) = cut_off();
    let mut folds = OpenFolds::beside(&path);
    for record in records(&fs::read(&path).unwrap()) {
        folds.note(&record);
    }
    let left = folds.end();
    assert_eq!((left.count(), left.denials.len(), left.faults.len(), left.misfit), (50 - BURST, 1, 0, None));
    let expected = Denial { attempt: BURST + 1, count: 50 - BURST, ..denial(Axis::Network, "a.test") };
    assert_eq!(left.denials, [expected]);
}

#[test]
fn a_sealed_ledger_needs_no_counts() {
    let (dir, path, counts) = cut_off();
    let kept = fs::read(&counts).unwrap();
    let (bytes, _) = sealed([Body::Denial(denial(Axis::Network, "a.test"))]);
    fs::write(&path, bytes).unwrap();
    fs::write(&counts, kept).unwrap();
    assert!(matches!(verify_path(&path, None).unwrap(), Verification::Complete { denials: 1, .. }));
    drop(dir);
}

#[test]
fn damage_is_named_and_counts_nothing() {
    let (_dir, path, counts) = cut_off();
    let good = fs::read(&counts).unwrap();
    let mut flipped = good.clone();
    flipped[64 + 8] ^= 1;
    let mut head = good.clone();
    head[24] ^= 1;
    let longer = [&good[..], b"x"].concat();
    for (bytes, why) in [
        (&good[..0], "run.counts is of 0 bytes, not 16448"),
        (&good[..SIZE - 1], "run.counts is of 16447 bytes, not 16448"),
        (&longer[..], "run.counts is of 16449 bytes, not 16448"),
        (&head[..], "run.counts is not of this run"),
        (&flipped[..], "run.counts has 1 slots that cannot be read"),
    ] {
        fs::write(&counts, bytes).unwrap();
        let expected = format!("incomplete: {} records, {BURST} denials: there is no seal; {why}", BURST + 1);
        assert_eq!(said(&path), expected);
    }
}

#[test]
fn a_slot_must_fit_the_record_that_it_stands_for() {
    let (_dir, path, counts) = cut_off();
    let whole = fs::read(&path).unwrap();
    let run = records(&whole)[0].run.clone();
    let (slots, None) = super::counts::read(&fs::read(&counts).unwrap(), &run) else { panic!() };
    assert_eq!((slots.len(), slots[0].seq, slots[0].count, slots[0].attempt), (1, BURST, 50 - BURST, BURST + 1));
    // The ledger's last record is gone, as after a power failure.
    let end = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    fs::write(&path, &whole[..end]).unwrap();
    let why = format!("run.counts counts {} denials after line {}, which is not there", 50 - BURST, BURST + 1);
    assert!(said(&path).ends_with(&why), "{}", said(&path));
    // Another record stands in its place.
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("run.jsonl");
    let mut ledger = open(&other);
    ledger.append(start()).unwrap();
    for n in 0..50 {
        ledger.append(Body::Denial(denial(Axis::Network, &format!("{n}.test")))).unwrap();
    }
    let run_of = |bytes: &[u8]| records(bytes)[0].run.clone();
    let forged = super::counts::forged(&run_of(&fs::read(&other).unwrap()), slots[0]);
    fs::write(dir.path().join("run.counts"), forged).unwrap();
    fs::set_permissions(dir.path().join("run.counts"), fs::Permissions::from_mode(0o600)).unwrap();
    let line = BURST + 1;
    assert_eq!(said(&other), format!("altered: line {line}: is not the record whose repetitions run.counts counts"));
}

#[test]
fn what_others_could_have_put_there_is_not_believed() {
    let (dir, path, counts) = cut_off();
    let unused = |why: &str| {
        let text = said(&path);
        assert!(
            text.contains(&format!("{BURST} denials: there is no seal; run.counts cannot be used: {why}")),
            "{text}"
        );
    };
    fs::set_permissions(&counts, fs::Permissions::from_mode(0o620)).unwrap();
    unused("others than the ledger's owner could write it");
    fs::set_permissions(&counts, fs::Permissions::from_mode(0o600)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&counts, Some(12_345), None).unwrap();
        unused("others than the ledger's owner could write it");
        std::os::unix::fs::chown(&counts, Some(0), None).unwrap();
    }
    fs::rename(&counts, dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &counts).unwrap();
    unused("Too many levels of symbolic links (os error 40)");
    fs::remove_file(&counts).unwrap();
    nix::unistd::mkfifo(&counts, Mode::from_bits_truncate(0o600)).unwrap();
    unused("it is no file");
}

#[test]
fn names_stand_beside_each_other() {
    for (ledger, name) in [
        ("run.jsonl", "run.counts"),
        ("run.jsonl.zst", "run.counts"),
        ("log", "log.counts"),
        (".jsonl", ".jsonl.counts"),
    ] {
        assert_eq!(counts::name_for(ledger.as_ref()), name, "{ledger}");
    }
}
