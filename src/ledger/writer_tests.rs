use super::super::line::LINE_LIMIT;
use super::super::record::{Gap, Record};
use super::super::samples::*;
use super::super::verify_path;
use super::*;
use crate::policy::Axis;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::fstat;
use nix::unistd::{pipe2, read};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

fn on(file: impl Into<OwnedFd>) -> Ledger {
    let target = LedgerTarget::Fd(file.into());
    Ledger::open(target, &RunId::random().unwrap(), "nist-high").unwrap().with_mode(LedgerMode::Degrade)
}

fn refused(host: &str) -> Body {
    Body::Denial(denial(Axis::Network, host))
}

fn gaps(records: &[Record]) -> Vec<Gap> {
    let gap = |record: &Record| match &record.body {
        Body::Gap(gap) => Some(gap.clone()),
        _ => None,
    };
    records.iter().filter_map(gap).collect()
}

#[test]
fn a_run_is_numbered_chained_counted_and_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path);
    ledger.append(start()).unwrap();
    ledger.append(probe(true)).unwrap();
    ledger.append(refused("a.test")).unwrap();
    let Appended::Stored { seq, head } = ledger.append(refused("a.test")).unwrap() else { panic!() };
    let mut folded = denial(Axis::Filesystem, "b.test");
    folded.count = 5;
    assert_eq!(head, ledger.head());
    ledger.append(Body::Denial(folded)).unwrap();
    let end = ledger.seal(EXITED).unwrap();

    assert_eq!(seq, 3);
    let records = records(&fs::read(&path).unwrap());
    assert_eq!(records.iter().map(|r| r.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let attempt = |n: usize| match &records[n].body {
        Body::Denial(denial) => denial.attempt,
        _ => panic!(),
    };
    assert_eq!((attempt(2), attempt(3), attempt(4)), (1, 2, 1));
    let Body::Seal(seal) = &records[5].body else { panic!() };
    assert_eq!(*seal, end.seal);
    assert_eq!(seal.head, records[5].prev);
    let counts = seal.denials.iter().map(|(k, v)| (k.as_str(), *v)).collect::<Vec<_>>();
    assert_eq!(counts, [("filesystem", 5), ("network", 2), ("privilege", 0)]);
    assert!(end.complete && end.complete_by_axis.values().all(|whole| *whole));
    let found = verify_path(&path, Some(&end.head)).unwrap();
    assert_eq!(found.to_string(), format!("complete: 6 records, 7 denials, head {}", end.head));
}

#[test]
fn records_out_of_place_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path);
    assert!(matches!(ledger.append(probe(true)), Err(LedgerError::Order { kind: "probe", .. })));
    assert!(matches!(ledger.seal(EXITED), Err(LedgerError::Order { .. })));
    ledger.append(start()).unwrap();
    assert!(matches!(ledger.append(start()), Err(LedgerError::Order { .. })));
    let end = ledger.seal(EXITED).unwrap();
    assert!(matches!(ledger.append(Body::Seal(end.seal)), Err(LedgerError::Order { .. })));
    assert!(matches!(ledger.append(probe(true)), Err(LedgerError::Order { .. })));
    assert!(matches!(ledger.seal(EXITED), Err(LedgerError::Order { .. })));
    assert_eq!(records(&fs::read(&path).unwrap()).len(), 2);
}

#[test]
fn the_file_is_private_grows_only_and_is_closed_at_exec() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/run.jsonl");
    let ledger = open(&path);
    let mode = |p: &std::path::Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&path), mode(path.parent().unwrap()), mode(&dir.path().join("a"))), (0o600, 0o700, 0o700));
    let flags = OFlag::from_bits_truncate(fcntl(ledger.sink.file(), FcntlArg::F_GETFL).unwrap());
    assert!(flags.contains(OFlag::O_APPEND));
    assert_eq!(fcntl(ledger.sink.file(), FcntlArg::F_GETFD).unwrap(), nix::libc::FD_CLOEXEC);
}

#[test]
fn a_full_device_ends_a_required_run_and_its_start_in_either_mode() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = on(full()).append(start()).unwrap_err();
    assert!(matches!(error, LedgerError::Write { seq: 0, cause: Errno::ENOSPC, .. }), "{error}");
    let mut ledger = on(full()).with_mode(LedgerMode::Required);
    assert!(ledger.append(start()).is_err());
    assert!(!ledger.is_losing(), "a run that did not start has lost nothing");
}

#[test]
fn a_closed_pipe_is_an_error_and_no_signal() {
    without_leaving_a_signal(|| {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let mut ledger = on(writer).with_mode(LedgerMode::Required);
        ledger.append(start()).unwrap();
        drop(reader);
        let error = ledger.append(refused("a.test")).unwrap_err();
        assert!(matches!(error, LedgerError::Write { seq: 1, cause: Errno::EPIPE, .. }), "{error}");
        assert!(ledger.seal(EXITED).is_err());
    });
}

/// A SIGPIPE left pending would show at the end, when nothing blocks it any more.
fn without_leaving_a_signal(test: impl FnOnce()) {
    use nix::sys::signal::{SigSet, Signal};
    let before = SigSet::thread_get_mask().unwrap();
    test();
    assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    let pending = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = pending.lines().find_map(|l| l.strip_prefix("SigPnd:")).unwrap().trim();
    let bits = u64::from_str_radix(mask, 16).unwrap();
    for signal in [Signal::SIGPIPE, Signal::SIGXFSZ] {
        assert_eq!(bits >> (signal as i32 - 1) & 1, 0, "{signal} is pending");
    }
}

#[test]
fn a_stalled_reader_is_waited_for_a_bounded_time_and_loses_nothing_that_was_begun() {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut ledger = on(writer);
    ledger.sink.patience = Duration::from_millis(50);
    ledger.append(start()).unwrap();
    let long = "x".repeat(14_000);
    let mut stored = 0;
    while ledger.append(refused(&long)).unwrap() != Appended::NotStored {
        stored += 1;
    }
    assert!(ledger.is_losing());
    let mut out = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let got = read(&reader, &mut buffer).unwrap();
    out.extend_from_slice(&buffer[..got]);
    assert!(!out.ends_with(b"\n"), "the last line is torn");
    ledger.append(refused("b.test")).unwrap();
    let end = ledger.seal(EXITED).unwrap();
    drop(ledger);
    let got = read(&reader, &mut buffer).unwrap();
    out.extend_from_slice(&buffer[..got]);
    assert_eq!(end.seal.denials["network"], stored + 2);
    let found = super::super::verify(&out[..], Some(&end.head)).unwrap();
    assert_eq!(found.exit_code(), 0, "{found}");
}

#[test]
fn losses_at_a_file_size_limit_are_counted_by_axis_once_writing_works_again() {
    without_leaving_a_signal(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.jsonl");
        let mut ledger = open(&path).with_mode(LedgerMode::Degrade);
        ledger.append(start()).unwrap();
        let size = fs::metadata(&path).unwrap().size();
        // The first record after it is torn: 100 bytes of it fit.
        setrlimit(Resource::RLIMIT_FSIZE, size + 100, nix::libc::RLIM_INFINITY).unwrap();
        assert_eq!(ledger.append(refused("torn.test")).unwrap(), Appended::NotStored);
        assert_eq!(fs::metadata(&path).unwrap().size(), size + 100);
        for n in 0..7 {
            assert_eq!(ledger.append(refused(&format!("{n}.test"))).unwrap(), Appended::NotStored);
        }
        let mut folded = denial(Axis::Filesystem, "f.test");
        folded.count = 10;
        assert_eq!(ledger.append(Body::Denial(folded)).unwrap(), Appended::NotStored);
        assert!(ledger.is_losing());
        let meanwhile = verify_path(&path, None).unwrap();
        assert_eq!(meanwhile.to_string(), "incomplete: 1 records, 0 denials: line 2 is cut short; there is no seal");

        setrlimit(Resource::RLIMIT_FSIZE, nix::libc::RLIM_INFINITY, nix::libc::RLIM_INFINITY).unwrap();
        ledger.append(refused("3.test")).unwrap();
        assert!(!ledger.is_losing());
        let end = ledger.seal(EXITED).unwrap();
        let records = records(&fs::read(&path).unwrap());
        let kinds: Vec<_> = records.iter().map(|r| r.body.kind()).collect();
        assert_eq!(kinds, ["start", "denial", "gap", "gap", "denial", "seal"]);
        let lost: Vec<_> = gaps(&records).into_iter().map(|g| (g.axis, g.lost, g.source)).collect();
        let writer = || "writer".to_owned();
        assert_eq!(lost, [(Some(Axis::Network), 7, writer()), (Some(Axis::Filesystem), 10, writer())]);
        let Body::Denial(last) = &records[4].body else { panic!() };
        assert_eq!(last.attempt, 2, "a try whose record was lost was a try");
        assert_eq!(end.seal.denials["network"], 2);
        assert!(!end.complete && !end.complete_by_axis["network"] && end.complete_by_axis["privilege"]);
        assert_eq!(verify_path(&path, Some(&end.head)).unwrap().exit_code(), 1);
    });
}

#[test]
fn a_required_run_that_lost_a_record_seals_as_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path);
    ledger.append(start()).unwrap();
    let size = fs::metadata(&path).unwrap().size();
    setrlimit(Resource::RLIMIT_FSIZE, size, nix::libc::RLIM_INFINITY).unwrap();
    let error = ledger.append(refused("a.test")).unwrap_err();
    assert!(matches!(error, LedgerError::Write { cause: Errno::EFBIG, .. }), "{error}");
    assert!(ledger.seal(EXITED).is_err());
    setrlimit(Resource::RLIMIT_FSIZE, nix::libc::RLIM_INFINITY, nix::libc::RLIM_INFINITY).unwrap();
    let end = ledger.seal(EXITED).unwrap();
    assert!(!end.complete);
    assert_eq!(gaps(&records(&fs::read(&path).unwrap()))[0].lost, 1);
}

#[test]
fn a_lost_gap_keeps_its_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path).with_mode(LedgerMode::Degrade);
    ledger.append(start()).unwrap();
    let size = fs::metadata(&path).unwrap().size();
    setrlimit(Resource::RLIMIT_FSIZE, size, nix::libc::RLIM_INFINITY).unwrap();
    ledger.append(gap(Some(Axis::Network), 41)).unwrap();
    ledger.append(refused("a.test")).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, nix::libc::RLIM_INFINITY, nix::libc::RLIM_INFINITY).unwrap();
    ledger.seal(EXITED).unwrap();
    assert_eq!(gaps(&records(&fs::read(&path).unwrap()))[0].lost, 42);
}

#[test]
fn a_record_without_bounds_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut ledger = open(&path).with_mode(LedgerMode::Degrade);
    ledger.append(start()).unwrap();
    assert_eq!(ledger.append(refused(&"x".repeat(LINE_LIMIT))).unwrap(), Appended::NotStored);
    let end = ledger.seal(EXITED).unwrap();
    let found = verify_path(&path, Some(&end.head)).unwrap();
    assert!(found.to_string().contains("above the limit of 1048576"), "{found}");
    assert_eq!(found.exit_code(), 1);
}

#[test]
fn a_ledger_goes_on_when_its_directory_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gone/run.jsonl");
    let mut ledger = open(&path);
    ledger.append(start()).unwrap();
    let kept = fs::File::open(&path).unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    ledger.append(refused("a.test")).unwrap();
    let end = ledger.seal(EXITED).unwrap();
    assert_eq!(fstat(&kept).unwrap().st_nlink, 0);
    let found = super::super::verify(std::io::BufReader::new(kept), Some(&end.head)).unwrap();
    assert_eq!(found.exit_code(), 0, "{found}");
    ledger.remove_if_unstarted().unwrap();
}
