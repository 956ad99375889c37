use super::super::counted::key as key_of;
use super::super::record::{Denial, Mechanism, Object, PathEvent, Subject};
use super::*;
use crate::policy::Axis;

fn denial() -> Denial {
    let object = Object { host: Some("a.test".into()), port: Some(443), ..Object::default() };
    Denial::observed(Axis::Network, Mechanism::Proxy, "CONNECT", object, "default-deny", "not_allowed")
}

fn key(denial: &Denial) -> Key {
    let would = key_of(&Body::WouldDeny(denial.clone()));
    assert_eq!(key_of(&Body::Denial(denial.clone())), would);
    would.unwrap()
}

fn body() -> Body {
    Body::Denial(denial())
}

fn kind(n: u64) -> Key {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    key
}

#[test]
fn whatever_a_reader_could_tell_two_denials_apart_by_makes_two_kinds() {
    type Change = fn(&mut Denial);
    let changes: [Change; 17] = [
        |d| d.axis = Axis::Privilege,
        |d| d.mechanism = Mechanism::Firewall,
        |d| d.operation = "GET".into(),
        |d| d.errno = Some("EROFS".into()),
        |d| d.http_status = Some(403),
        |d| d.rule = "port".into(),
        |d| d.reason = "x".into(),
        |d| d.object.host = None,
        |d| d.object.port = None,
        |d| d.object.addrs = vec!["10.0.0.5".parse().unwrap()],
        |d| d.object.path = Some("/usr".into()),
        |d| d.object.to = Some("/usr".into()),
        |d| d.object.text = Some("/usr".into()),
        |d| d.subject.pid = Some(7),
        |d| d.subject.uid = Some(7),
        |d| d.subject.comm = Some("sh".into()),
        |d| d.subject.exe = Some("sh".into()),
    ];
    let mut keys = vec![key(&denial())];
    for change in changes {
        let mut other = denial();
        change(&mut other);
        keys.push(key(&other));
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), changes.len() + 1);
    let mut same = denial();
    (same.attempt, same.count) = (7, 7);
    same.subject = Subject { argv: Some(vec!["x".into()]), ancestors: Some(vec!["sh".into()]), ..Subject::default() };
    assert_eq!(key(&same), key(&denial()));
    let read_back: Denial = serde_json::from_str(&serde_json::to_string(&denial()).unwrap()).unwrap();
    assert_eq!(key(&read_back), key(&denial()));
}

#[test]
fn a_kind_is_counted_above_the_rate_and_until_its_window_ends() {
    let mut folds = Folds::default();
    let start = Instant::now();
    for n in 0..BURST {
        assert_eq!(folds.due(&kind(1)), Due::Write, "{n}");
        folds.written(kind(1), n, start + Duration::from_millis(n));
    }
    assert_eq!((folds.due(&kind(1)), folds.due(&kind(2))), (Due::Open, Due::Write));
    folds.open(3, kind(1), body());
    assert_eq!((folds.due(&kind(1)), folds.next()), (Due::Count(3), Some(start + WINDOW)));
    assert_eq!(folds.over(start + WINDOW - Duration::from_nanos(1)), None);
    assert_eq!(folds.over(start + WINDOW), Some(3));
    assert_eq!(folds.at(3).unwrap().base, BURST - 1);
    folds.close(3, 99);
    assert_eq!((folds.over(start + WINDOW), folds.next(), folds.due(&kind(1))), (None, None, Due::Write));
}

#[test]
fn a_fold_that_is_written_early_goes_on_behind_its_record() {
    let mut folds = Folds::default();
    let start = Instant::now();
    (0..BURST).for_each(|n| folds.written(kind(1), n, start));
    folds.open(0, kind(1), body());
    folds.close(0, 40);
    assert_eq!((folds.due(&kind(1)), folds.last(&kind(1))), (Due::Open, Some(40)));
    folds.open(1, kind(1), body());
    assert_eq!(folds.at(1).unwrap().base, 40);
}

#[test]
fn memory_is_bounded_by_forgetting_the_oldest_but_what_is_counted() {
    let mut folds = Folds::default();
    let now = Instant::now();
    (0..BURST).for_each(|n| folds.written(kind(0), n, now));
    for n in 1..3 * WATCHED as u64 {
        folds.written(kind(n), 100 + n, now);
    }
    assert_eq!((folds.windows.len(), folds.order.len()), (WATCHED, WATCHED));
    assert_eq!(folds.due(&kind(0)), Due::Write, "it was forgotten");

    let mut folds = Folds::default();
    (0..BURST).for_each(|n| folds.written(kind(0), n, now));
    folds.open(0, kind(0), body());
    for n in 1..3 * WATCHED as u64 {
        folds.written(kind(n), 100 + n, now);
    }
    assert_eq!((folds.windows.len(), folds.order.len()), (WATCHED, WATCHED));
    assert_eq!(folds.due(&kind(0)), Due::Count(0));
}

#[test]
fn places_are_given_once_and_the_oldest_is_known() {
    let mut folds = Folds::default();
    let now = Instant::now();
    for n in 0..OPEN as u64 {
        (0..BURST).for_each(|seq| folds.written(kind(n), seq, now));
        let place = folds.free(&[]).unwrap();
        folds.open(place, kind(n), body());
    }
    assert_eq!((folds.free(&[]), folds.oldest()), (None, Some(0)));
    folds.close(0, 1);
    assert_eq!((folds.free(&[0]), folds.free(&[]), folds.oldest()), (None, Some(0), Some(1)));
}

#[test]
fn what_is_large_is_not_kept() {
    assert!(Folds::takes(&body()) && Folds::takes(&Body::Read(read())));
    let many = Subject { argv: Some(vec![String::new(); TEXT]), ..Subject::default() };
    assert!(!Folds::takes(&Body::Denial(Denial { subject: many.clone(), ..denial() })));
    assert!(!Folds::takes(&Body::Read(PathEvent { subject: many, ..read() })));
    let long = Object { path: Some("x".repeat(TEXT)), ..Object::default() };
    assert!(!Folds::takes(&Body::Denial(Denial { object: long.clone(), ..denial() })));
    assert!(!Folds::takes(&Body::Read(PathEvent { object: long, ..read() })));
}

fn read() -> PathEvent {
    let object = Object { path: Some("/srv/fixture".into()), ..Object::default() };
    PathEvent { operation: "openat".into(), object, subject: Subject::default(), count: 1 }
}

#[test]
fn reads_are_of_one_kind_by_path_call_and_subject() {
    let of = |change: fn(&mut PathEvent)| {
        let mut other = read();
        change(&mut other);
        key_of(&Body::Read(other)).unwrap()
    };
    let mut keys = vec![
        of(|_| {}),
        of(|read| read.operation = "execve".into()),
        of(|read| read.object.path = Some("/srv/other".into())),
        of(|read| read.subject.pid = Some(7)),
        of(|read| read.subject.comm = Some("sh".into())),
        of(|read| read.subject.exe = Some("sh".into())),
    ];
    assert_eq!(of(|read| read.count = 9), keys[0]);
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
    let cause = String::new();
    assert_eq!(key_of(&Body::Abort(super::super::record::Abort { cause })), None);
}
