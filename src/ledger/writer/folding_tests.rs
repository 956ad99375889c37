//! Every state that a death can leave is made here: the ledger and its counts are copied between any two writes.

use super::super::super::counts::SIZE;
use super::super::super::fold::{BURST, OPEN, WINDOW};
use super::super::super::record::{Body, Denial, Mechanism, Object, PathEvent, Subject};
use super::super::super::samples::*;
use super::super::super::{Ledger, LedgerMode, LedgerTarget, Verification, verify_path};
use super::*;
use crate::policy::Axis;
use nix::sys::resource::{Resource, setrlimit};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// A ledger, the file beside it, and the time as the test says.
struct Scene {
    dir: tempfile::TempDir,
    ledger: Ledger,
    now: Instant,
    made: u64,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = open(&dir.path().join("run.jsonl"));
        ledger.append(start()).unwrap();
        Scene { dir, ledger, now: Instant::now(), made: 0 }
    }

    fn degraded(mut self) -> Scene {
        self.ledger = self.ledger.with_mode(LedgerMode::Degrade);
        self
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("run.jsonl")
    }

    fn counts(&self) -> PathBuf {
        self.dir.path().join("run.counts")
    }

    fn refuse(&mut self, host: &str) -> Appended {
        self.made += 1;
        self.ledger.append_at(Body::Denial(denial(Axis::Network, host)), self.now).unwrap()
    }

    fn refuse_times(&mut self, host: &str, times: u64) {
        for _ in 0..times {
            self.refuse(host);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn denials(&self) -> Vec<(u64, u64)> {
        let records = records(&fs::read(self.path()).unwrap());
        let numbers = records.into_iter().filter_map(|record| match record.body {
            Body::Denial(denial) => Some((denial.attempt, denial.count)),
            _ => None,
        });
        numbers.collect()
    }
}

/// What `verify` finds in these two files.
fn found(ledger: &[u8], counts: Option<&[u8]>) -> (u64, String, u8) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    fs::write(&path, ledger).unwrap();
    if let Some(bytes) = counts {
        fs::write(dir.path().join("run.counts"), bytes).unwrap();
        fs::set_permissions(dir.path().join("run.counts"), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let found = verify_path(&path, None).unwrap();
    let denials = match found {
        Verification::Complete { denials, .. } | Verification::Incomplete { denials, .. } => denials,
        Verification::Altered { .. } => 0,
    };
    (denials, found.to_string(), found.exit_code())
}

fn limit_files(bytes: u64) {
    setrlimit(Resource::RLIMIT_FSIZE, bytes, nix::libc::RLIM_INFINITY).unwrap();
}

#[test]
fn what_would_be_denied_is_counted_alike_and_is_no_denial() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path).of_shadow();
    ledger.append(shadowed()).unwrap();
    for _ in 0..BURST + 90 {
        ledger.append(Body::Denial(denial(Axis::Network, "a.test").let_through())).unwrap();
    }
    let by_kernel = Denial { mechanism: Mechanism::Notifier, ..denial(Axis::Filesystem, "b.test") };
    ledger.append(Body::Denial(by_kernel)).unwrap();
    let copies = [fs::read(&path).unwrap(), fs::read(dir.path().join("run.counts")).unwrap()];
    let sealed = ledger.seal(EXITED).unwrap().seal;
    let by_axis =
        |of: &std::collections::BTreeMap<String, u64>| ["network", "filesystem", "privilege"].map(|axis| of[axis]);
    assert_eq!((by_axis(&sealed.denials), by_axis(&sealed.would_deny)), ([0; 3], [BURST + 90, 1, 0]));
    let kinds = |body: &Body| matches!(body, Body::Denial(_));
    assert!(!records(&fs::read(&path).unwrap()).iter().any(|record| kinds(&record.body)));
    let whole = verify_path(&path, None).unwrap();
    let told = whole.shadow().unwrap().to_string();
    assert_eq!(whole.exit_code(), 0, "{whole}");
    assert!(whole.to_string().contains(" 0 denials,"), "{whole}");
    assert_eq!(
        told,
        format!(
            "a shadow of nist-high, enforcing nist-high: {} would be denied, and none of it was refused",
            BURST + 91
        )
    );
    // A run that was killed with some of them counted.
    let [bytes, counts] = copies;
    fs::write(&path, bytes).unwrap();
    fs::write(dir.path().join("run.counts"), counts).unwrap();
    fs::set_permissions(dir.path().join("run.counts"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let torn = verify_path(&path, None).unwrap();
    assert_eq!((torn.exit_code(), torn.shadow().unwrap().would_deny), (1, BURST + 91), "{torn}");
}

#[test]
fn reads_are_counted_alike_and_the_seal_has_them_in_full() {
    let read = |path: &str| {
        let object = Object { path: Some(path.into()), ..Object::default() };
        Body::Read(PathEvent { operation: "openat".into(), object, subject: Subject::default(), count: 1 })
    };
    let mut scene = Scene::new();
    for _ in 0..BURST + 90 {
        scene.ledger.append_at(read("/srv/a"), scene.now).unwrap();
    }
    scene.ledger.append_at(read("/srv/b"), scene.now).unwrap();
    scene.refuse_times("a.test", BURST + 4);
    let counts = |scene: &Scene| -> Vec<u64> {
        let records = records(&fs::read(scene.path()).unwrap());
        let counts = records.into_iter().filter_map(|record| match record.body {
            Body::Read(read) => Some(read.count),
            _ => None,
        });
        counts.collect()
    };
    assert_eq!(counts(&scene), [1; BURST as usize + 1]);
    // A run that was killed by now.
    let (denials, text, code) = found(&fs::read(scene.path()).unwrap(), Some(&fs::read(scene.counts()).unwrap()));
    assert_eq!((denials, code), (BURST + 4, 1));
    assert!(text.contains("90 of the watched reads are counted in run.counts and stand in no record"), "{text}");
    let end = scene.ledger.seal(EXITED).unwrap();
    assert_eq!(counts(&scene).iter().sum::<u64>(), BURST + 91);
    assert_eq!(counts(&scene).len() as u64, BURST + 2);
    assert_eq!((end.seal.reads, end.complete), (BURST + 91, true));
    let found = verify_path(&scene.path(), Some(&end.head)).unwrap();
    assert_eq!(found.exit_code(), 0, "{found}");
}

#[test]
fn above_the_rate_one_record_stands_for_many_and_the_file_goes_with_the_seal() {
    let mut scene = Scene::new();
    scene.refuse_times("a.test", BURST);
    assert!(!scene.counts().exists(), "an ordinary run makes no extra file");
    scene.refuse_times("a.test", 90);
    let meta = fs::metadata(scene.counts()).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.len()), (0o600, SIZE as u64));
    assert_eq!(scene.refuse("a.test"), Appended::Counted);
    assert!(matches!(scene.refuse("b.test"), Appended::Stored { .. }));
    assert_eq!(scene.ledger.next_flush(), Some(scene.now + WINDOW));
    scene.pass(WINDOW);
    scene.ledger.flush_due(scene.now).unwrap();
    assert_eq!(scene.ledger.next_flush(), None);
    let singles = (1..=BURST).map(|attempt| (attempt, 1)).chain([(1, 1)]);
    let mut expected: Vec<(u64, u64)> = singles.chain([(BURST + 1, 91)]).collect();
    assert_eq!(scene.denials(), expected);
    // The next window begins anew, and the seal writes what is counted in it.
    scene.refuse_times("a.test", BURST + 5);
    let end = scene.ledger.seal(EXITED).unwrap();
    expected.extend((102..102 + BURST).map(|attempt| (attempt, 1)).chain([(102 + BURST, 5)]));
    assert_eq!(scene.denials(), expected);
    assert_eq!(end.seal.denials["network"], scene.made);
    assert!(!scene.counts().exists());
    let found = verify_path(&scene.path(), Some(&end.head)).unwrap();
    assert_eq!((found.exit_code(), end.complete), (0, true), "{found}");
}

#[test]
fn slower_than_the_rate_each_is_written() {
    let mut scene = Scene::new();
    for _ in 0..50 {
        assert!(matches!(scene.refuse("a.test"), Appended::Stored { .. }));
        scene.pass(WINDOW / BURST as u32);
    }
    assert!(!scene.counts().exists());
    assert_eq!(scene.denials(), (1..=50).map(|attempt| (attempt, 1)).collect::<Vec<_>>());
}

#[test]
fn an_append_writes_what_is_over_before_it() {
    let mut scene = Scene::new();
    scene.refuse_times("a.test", BURST + 3);
    scene.pass(WINDOW);
    scene.refuse("a.test");
    assert_eq!(scene.denials()[BURST as usize..], [(BURST + 1, 3), (BURST + 4, 1)]);
    scene.refuse_times("a.test", BURST + 3);
    let cause = "x".to_owned();
    scene.ledger.append(Body::Abort(super::super::super::record::Abort { cause })).unwrap();
    let kinds: Vec<_> = records(&fs::read(scene.path()).unwrap()).iter().map(|r| r.body.kind()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["denial", "abort"]);
    assert_eq!(scene.denials().iter().map(|(_, count)| count).sum::<u64>(), scene.made);
}

/// Two kinds, with folds that end by time, by want of a place, and by the seal; both files between any two of our writes.
#[test]
fn a_death_between_any_two_writes_neither_loses_nor_doubles() {
    let mut scene = Scene::new();
    let look = |scene: &Scene| (fs::read(scene.path()).unwrap(), fs::read(scene.counts()).ok(), scene.made);
    let mut states = vec![look(&scene)];
    let mut step = |scene: &mut Scene, what: &dyn Fn(&mut Scene)| {
        what(scene);
        states.push(look(scene));
    };
    for _ in 0..3 {
        for n in 0..BURST + 4 {
            step(&mut scene, &|scene| drop(scene.refuse("a.test")));
            step(&mut scene, &|scene| drop(scene.refuse(if n % 2 == 0 { "b.test" } else { "a.test" })));
        }
        step(&mut scene, &|scene| scene.pass(WINDOW));
        step(&mut scene, &|scene| scene.ledger.flush_due(scene.now).unwrap());
    }
    assert!(states.iter().any(|(_, counts, _)| counts.is_some()));
    for (ledger, counts, made) in &states {
        let (denials, text, code) = found(ledger, counts.as_deref());
        assert_eq!((denials, code), (*made, 1), "{text}");
    }
    for pair in states.windows(2) {
        let [(old, old_counts, old_made), (new, new_counts, made)] = pair else { panic!() };
        // What is counted is in the file before anything else happens; a record comes before its slot is freed. So the
        // ledger is the older one only where nothing was written to it, and it may be cut anywhere.
        assert!(old == new || old_counts == new_counts || old_made == made, "one append writes to one of the two");
        for cut in (old.len()..=new.len()).filter(|cut| cut % 41 == 0 || *cut + 2 >= new.len() || *cut <= old.len() + 1)
        {
            let (denials, text, code) = found(&new[..cut], old_counts.as_deref());
            let whole = cut == new.len() && old != new;
            let expected = if whole { *made } else { *old_made };
            assert_eq!((denials, code), (expected, 1), "cut {cut} of {}: {text}", new.len());
        }
    }
}

#[test]
fn all_places_taken_the_oldest_is_written() {
    let mut scene = Scene::new();
    for round in 0..2 {
        for n in 0..OPEN as u64 + 30 {
            scene.refuse_times(&format!("{n}.test"), BURST + 3);
            if n % 40 == 0 || n + 1 == OPEN as u64 + 30 {
                let (ledger, counts) = (fs::read(scene.path()).unwrap(), fs::read(scene.counts()).unwrap());
                let (denials, text, _) = found(&ledger, Some(&counts));
                assert_eq!(denials, scene.made, "round {round}, {n}: {text}");
            }
        }
    }
    let folded = scene.denials().iter().filter(|(_, count)| *count > 1).count();
    assert!(folded >= 60, "{folded}");
    scene.ledger.seal(EXITED).unwrap();
    assert_eq!(found(&fs::read(scene.path()).unwrap(), None).0, scene.made);
}

#[test]
fn without_the_file_each_is_written() {
    // Its name is taken.
    let mut scene = Scene::new();
    fs::write(scene.counts(), "another's").unwrap();
    scene.refuse_times("a.test", 50);
    assert_eq!(scene.denials().len(), 50);
    scene.ledger.seal(EXITED).unwrap();
    assert_eq!(fs::read(scene.counts()).unwrap(), b"another's");

    // Its directory is gone.
    let mut scene = Scene::new();
    let kept = fs::File::open(scene.path()).unwrap();
    fs::remove_dir_all(scene.dir.path()).unwrap();
    scene.refuse_times("a.test", 50);
    let end = scene.ledger.seal(EXITED).unwrap();
    let found = super::super::super::verify(std::io::BufReader::new(kept), Some(&end.head)).unwrap();
    assert_eq!(found.to_string(), format!("complete: 52 records, 50 denials, head {}", end.head));

    // The ledger is a descriptor: a file beside it could not be found again.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let target = LedgerTarget::Fd(fs::File::create(&path).unwrap().into());
    let mut ledger = Ledger::open(target, &super::super::RunId::random().unwrap(), "nist-high").unwrap();
    ledger.append(start()).unwrap();
    for _ in 0..50 {
        let appended = ledger.append(Body::Denial(denial(Axis::Network, "a.test"))).unwrap();
        assert!(matches!(appended, Appended::Stored { .. }));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_finds_no_room_is_not_left_half_made() {
    let mut scene = Scene::new();
    scene.refuse_times("a.test", BURST);
    limit_files(SIZE as u64 - 1);
    scene.refuse_times("a.test", 5);
    limit_files(nix::libc::RLIM_INFINITY);
    assert_eq!(scene.denials().len() as u64, BURST + 5);
    scene.ledger.seal(EXITED).unwrap();
    assert!(!scene.counts().exists());
}

#[test]
fn a_count_that_cannot_be_kept_is_written_at_once() {
    let mut scene = Scene::new();
    scene.refuse_times("a.test", BURST + 5);
    // The ledger lies beyond the limit as well, so that nothing can be written for a while.
    let mut scene = scene.degraded();
    limit_files(64);
    assert_eq!(scene.refuse("a.test"), Appended::NotStored);
    assert!(scene.ledger.is_losing() && scene.ledger.next_flush().is_none());
    assert_eq!(scene.refuse("a.test"), Appended::NotStored);
    scene.ledger.retry();
    assert!(scene.ledger.is_losing());
    limit_files(nix::libc::RLIM_INFINITY);
    scene.ledger.retry();
    assert!(!scene.ledger.is_losing());
    assert_eq!(scene.denials().last(), Some(&(BURST + 1, 7)));
    assert!(matches!(scene.refuse("a.test"), Appended::Stored { .. }), "nothing is counted any more");
    let end = scene.ledger.seal(EXITED).unwrap();
    assert!(end.complete, "nothing was lost");
    assert_eq!(end.seal.denials["network"], scene.made);
    assert!(!scene.counts().exists());
}

#[test]
fn what_is_counted_survives_a_ledger_that_cannot_be_written() {
    for mode in [LedgerMode::Degrade, LedgerMode::Required] {
        let mut scene = Scene::new();
        scene.ledger = scene.ledger.with_mode(mode);
        scene.refuse_times("a.test", BURST * 5);
        // The counts lie below the limit.
        let mut n = 0;
        while fs::metadata(scene.path()).unwrap().len() < 2 * SIZE as u64 {
            n += 1;
            scene.refuse(&format!("{n}.test"));
        }
        limit_files(fs::metadata(scene.path()).unwrap().len());
        assert_eq!(scene.refuse("a.test"), Appended::Counted);
        scene.pass(WINDOW);
        let flushed = scene.ledger.flush_due(scene.now);
        assert_eq!(flushed.is_err(), mode == LedgerMode::Required, "{flushed:?}");
        assert!(scene.ledger.is_losing());
        let (denials, text, _) = found(&fs::read(scene.path()).unwrap(), Some(&fs::read(scene.counts()).unwrap()));
        assert_eq!(denials, scene.made, "{text}");
        assert!(scene.ledger.seal(EXITED).is_err());
        limit_files(nix::libc::RLIM_INFINITY);
        let end = scene.ledger.seal(EXITED).unwrap();
        assert!(end.complete && end.seal.denials["network"] == scene.made);
    }
}

#[test]
fn a_torn_record_of_a_fold_counts_once() {
    let mut scene = Scene::new().degraded();
    scene.refuse_times("a.test", BURST * 5);
    scene.pass(WINDOW);
    let size = fs::metadata(scene.path()).unwrap().len();
    let at = SIZE as u64;
    assert!(size < at, "the rest of the test needs room for the counts");
    let mut n = 0;
    while fs::metadata(scene.path()).unwrap().len() < at {
        n += 1;
        scene.now -= WINDOW;
        scene.refuse(&format!("{n}.test"));
        scene.now += WINDOW;
    }
    limit_files(fs::metadata(scene.path()).unwrap().len() + 100);
    scene.ledger.flush_due(scene.now).unwrap();
    assert!(scene.ledger.is_losing());
    let torn = fs::read(scene.path()).unwrap();
    assert_ne!(torn.last(), Some(&b'\n'));
    let (denials, text, _) = found(&torn, Some(&fs::read(scene.counts()).unwrap()));
    assert_eq!(denials, scene.made, "{text}");
    limit_files(nix::libc::RLIM_INFINITY);
    scene.ledger.retry();
    let (denials, text, _) = found(&fs::read(scene.path()).unwrap(), Some(&fs::read(scene.counts()).unwrap()));
    assert_eq!(denials, scene.made, "{text}");
    assert_eq!(scene.ledger.seal(EXITED).unwrap().seal.denials["network"], scene.made);
}

#[test]
fn ten_thousand_alike_are_a_handful_of_records() {
    let mut scene = Scene::new();
    for _ in 0..10_000 {
        scene.refuse("a.test");
        scene.pass(Duration::from_micros(500));
    }
    scene.ledger.seal(EXITED).unwrap();
    assert_eq!(scene.denials().len() as u64, 5 * (BURST + 1));
    assert_eq!(scene.denials().iter().map(|(_, count)| count).sum::<u64>(), 10_000);
}
