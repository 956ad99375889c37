use super::super::record::{Abort, Denial, Infrastructure, Object, Outcome};
use super::super::samples::*;
use super::super::{Sealed, chain, line};
use super::*;
use crate::ledger::record::Record;
use crate::policy::Axis;
use proptest::prelude::*;

fn check(bytes: &[u8], head: Option<&str>) -> Verification {
    verify(bytes, head).unwrap()
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

/// The records in a chain computed anew, as someone who owns the file could.
fn rechained(mut records: Vec<Record>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = ORIGIN.to_owned();
    for record in &mut records {
        record.prev = head.clone();
        if let Body::Seal(seal) = &mut record.body {
            seal.head = head.clone();
            seal.digest = ORIGIN.to_owned();
            let digest = chain::head_after(&line::encode(record).unwrap());
            let Body::Seal(seal) = &mut record.body else { unreachable!() };
            seal.digest = digest;
        }
        let line = line::encode(record).unwrap();
        head = chain::head_after(&line);
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
    out
}

fn three() -> (Vec<u8>, Sealed) {
    sealed([probe(true), Body::Denial(denial(Axis::Network, "a.test"))])
}

#[test]
fn without_a_seal_or_a_line_a_ledger_is_incomplete() {
    let (bytes, end) = three();
    let lines = split(&bytes);
    let cut = check(&lines[..3].concat(), None);
    assert_eq!(cut.to_string(), "incomplete: 3 records, 1 denials: there is no seal");
    let empty = check(b"", None);
    assert_eq!(empty.to_string(), "incomplete: 0 records, 0 denials: there is no start; there is no seal");
    let torn = check(&bytes[..bytes.len() - 1], None);
    assert_eq!(torn.to_string(), "incomplete: 3 records, 1 denials: line 4 is cut short; there is no seal");
    assert_eq!((cut.exit_code(), empty.exit_code(), torn.exit_code()), (1, 1, 1));
    assert_eq!(check(&lines[..3].concat(), Some(&end.head)).exit_code(), 2);
    assert_eq!(check(&bytes[..bytes.len() - 1], Some(&end.head)).exit_code(), 2);
}

#[test]
fn a_denial_and_what_would_be_one_never_stand_for_each_other() {
    let body = |record: &Record, body: Body| Record { body, ..record.clone() };
    let (bytes, _) = three();
    let mut forged = records(&bytes);
    forged[2] = body(&forged[2], Body::WouldDeny(denial(Axis::Network, "a.test")));
    let found = check(&rechained(forged.clone()), None);
    assert_eq!(found.to_string(), "altered: line 3: is what would be denied, in a run that has no shadow");
    forged[0] = body(&forged[0], shadowed());
    let found = check(&rechained(forged.clone()), None);
    assert!(found.to_string().starts_with("altered: line 4: seals denials"), "{found}");
    forged[2] = body(&forged[2], Body::Denial(denial(Axis::Network, "a.test")));
    let found = check(&rechained(forged.clone()), None);
    assert_eq!(found.to_string(), "altered: line 3: is a denial, in a run that enforces nothing");
    let Body::Seal(mut seal) = forged[3].body.clone() else { panic!() };
    seal.denials.insert("network".into(), 0);
    let let_through = denial(Axis::Network, "a.test").let_through();
    forged[2] = body(&forged[2], Body::WouldDeny(let_through.clone()));
    forged[3] = body(&forged[3], Body::Seal(seal.clone()));
    let found = check(&rechained(forged.clone()), None);
    assert!(found.to_string().starts_with("altered: line 4: seals {} as what would be denied"), "{found}");
    seal.would_deny = seal.denials.clone();
    seal.would_deny.insert("network".into(), 1);
    forged[3] = body(&forged[3], Body::Seal(seal));
    let found = check(&rechained(forged.clone()), None);
    let counts = |found: &Verification| found.shadow().map(|shadow| (shadow.would_deny, shadow.refused));
    assert_eq!((found.exit_code(), counts(&found)), (0, Some((1, 0))), "{found}");
    assert!(found.shadow().unwrap().to_string().ends_with(": 1 would be denied, and none of it was refused"));
    // What the proxy has refused all the same is told apart; nothing else of a shadow's refuses anything.
    let refused = denial(Axis::Network, "a.test");
    forged[2] = body(&forged[2], Body::WouldDeny(refused.clone()));
    let found = check(&rechained(forged.clone()), None);
    assert_eq!((found.exit_code(), counts(&found)), (0, Some((1, 1))), "{found}");
    let told = found.shadow().unwrap().to_string();
    assert!(told.ends_with(": 1 would be denied, and 1 of it was refused, which its proxy could not serve"), "{told}");
    forged[2] = body(&forged[2], Body::WouldDeny(Denial { mechanism: Mechanism::Firewall, ..refused }));
    let found = check(&rechained(forged), None);
    assert_eq!(found.to_string(), "altered: line 3: is what would be denied, and says that it was");
    let mut forged = records(&bytes);
    forged[2] = body(&forged[2], Body::Denial(let_through));
    let found = check(&rechained(forged), None);
    assert_eq!(found.to_string(), "altered: line 3: is a denial, and says that it was let through");
}

#[test]
fn recorded_gaps_make_a_ledger_incomplete_and_are_told_in_bounded_number() {
    let (bytes, end) = sealed((0..40).map(|n| gap(Some(Axis::Network), n)));
    assert!(!end.complete);
    let Verification::Incomplete { why, .. } = check(&bytes, Some(&end.head)) else { panic!() };
    assert_eq!(why.len(), REASONS_LIMIT + 1);
    assert_eq!(why[3], "3 of network lost by nflog: ENOBUFS");
    assert_eq!(why[REASONS_LIMIT], "24 gaps more");
}

#[test]
fn a_chain_computed_anew_is_found_by_its_head_only() {
    let (bytes, end) = three();
    let mut changed = records(&bytes);
    let Body::Denial(denial) = &mut changed[2].body else { panic!() };
    denial.object.host = Some("innocent.test".into());
    let anew = rechained(changed);
    assert_eq!(check(&anew, None).exit_code(), 0);
    let found = check(&anew, Some(&end.head));
    assert_eq!(
        found.to_string(),
        format!("altered: line 4: is not the last line of the run whose head is {}", end.head)
    );

    let mut outcome = records(&bytes);
    let Body::Seal(seal) = &mut outcome[3].body else { panic!() };
    seal.outcome = Outcome::Aborted;
    assert_eq!(check(&rechained(outcome), Some(&end.head)).exit_code(), 2, "a rewritten seal");
}

#[test]
fn claims_that_do_not_fit_are_found_in_an_intact_chain() {
    let (bytes, _) = sealed([Body::Denial(denial(Axis::Network, "a.test")), gap(None, 1)]);
    let good = records(&bytes);
    assert_eq!(rechained(good.clone()), bytes, "the test's chain is the writer's");
    type Change = Box<dyn Fn(&mut Vec<Record>)>;
    let seal = |r: &mut Vec<Record>, change: fn(&mut Seal)| match &mut r.last_mut().unwrap().body {
        Body::Seal(seal) => change(seal),
        _ => panic!(),
    };
    let cases: [(&str, u64, Change); 16] = [
        ("version 2", 2, Box::new(|r| r[1].v = 2)),
        ("number 5", 2, Box::new(|r| r[1].seq = 5)),
        ("earlier", 3, Box::new(|r| r[2].mono_ns = 0)),
        ("no time in UTC", 1, Box::new(|r| r[0].time = "2026-01-02T03:04:05+01:00".into())),
        ("another run", 3, Box::new(|r| r[2].run = "0123456789abcdef".into())),
        ("another run", 3, Box::new(|r| r[2].level = "control".into())),
        ("no run identifier", 1, Box::new(|r| r.iter_mut().for_each(|r| r.run = "x".into()))),
        ("second start", 2, Box::new(|r| r[1].body = start())),
        ("before the start", 1, Box::new(|r| r[0].body = probe(true))),
        (
            "after the seal",
            5,
            Box::new(|r| {
                let again = r[3].clone();
                r.push(Record { seq: 4, ..again });
            }),
        ),
        ("seals denials", 4, Box::new(move |r| seal(r, |s| *s.denials.get_mut("network").unwrap() = 0))),
        ("seals denials", 4, Box::new(move |r| seal(r, |s| s.denials.retain(|axis, _| axis != "privilege")))),
        ("completeness", 4, Box::new(move |r| seal(r, |s| s.complete = true))),
        ("completeness", 4, Box::new(move |r| seal(r, |s| *s.complete_by_axis.get_mut("network").unwrap() = true))),
        (
            "seals denials",
            3,
            Box::new(|r| {
                r.remove(1);
                (0..).zip(r.iter_mut()).for_each(|(n, r)| r.seq = n);
            }),
        ),
        (
            "completeness",
            3,
            Box::new(|r| {
                r.remove(2);
                (0..).zip(r.iter_mut()).for_each(|(n, r)| r.seq = n);
            }),
        ),
    ];
    for (expected, at, change) in cases {
        let mut changed = good.clone();
        change(&mut changed);
        match check(&rechained(changed), None) {
            Verification::Altered { line, why } => {
                assert!(why.contains(expected), "{why:?} where {expected:?} is due");
                assert_eq!(line, at, "{why}");
            }
            other => panic!("{expected}: {other}"),
        }
    }
}

#[test]
fn lines_that_are_no_records_are_found() {
    let (bytes, _) = three();
    let lines = split(&bytes);
    let with = |line: &[u8]| [&lines[0][..], line, &lines[1..].concat()].concat();
    let long = [vec![b'x'; line::LINE_LIMIT + 1], b"\n".to_vec()].concat();
    let doubled = String::from_utf8(lines[1].clone()).unwrap().replace("\"seq\":1", "\"seq\":1,\"seq\":1").into_bytes();
    for bad in [&b"\n"[..], b"{}\n", b"null\n", b"\xff\n", b"{\"v\":1}garbage\n", &long, &doubled, &lines[0]] {
        let Verification::Altered { line, .. } = check(&with(bad), None) else {
            panic!("{:?}", &bad[..9.min(bad.len())])
        };
        assert_eq!(line, 2);
    }
    let after = [&bytes[..], b"x"].concat();
    assert_eq!(check(&after, None).to_string(), "altered: line 5: stands after the seal");
}

#[test]
fn what_cannot_be_read_or_asked_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(verify_path(&dir.path().join("none"), None), Err(VerifyError::Read { .. })));
    let error = verify_path(dir.path(), None).unwrap_err();
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    assert!(matches!(verify(&b""[..], Some("abc")), Err(VerifyError::Head { .. })));
}

fn any_axis() -> impl Strategy<Value = Axis> {
    prop::sample::select(Axis::ALL.to_vec())
}

fn any_object() -> impl Strategy<Value = Object> {
    let addrs = prop::collection::vec(any::<std::net::IpAddr>(), 0..3);
    (any::<Option<String>>(), any::<Option<u16>>(), addrs, any::<Option<String>>(), any::<Option<String>>())
        .prop_map(|(host, port, addrs, path, text)| Object { host, port, addrs, to: path.clone(), path, text })
}

fn any_body() -> impl Strategy<Value = Body> {
    let denial = (any_axis(), any_object(), any::<String>(), any::<Option<String>>(), 1u64..1000, any::<Option<u32>>());
    let denial = denial
        .prop_map(|(axis, object, operation, errno, count, pid)| {
            let mut denial =
                super::super::record::Denial::observed(axis, Mechanism::Firewall, &operation, object, "r", "s");
            (denial.errno, denial.count, denial.subject.pid) = (errno, count, pid);
            denial
        })
        .boxed();
    let infrastructure = (any_object(), any::<String>()).prop_map(|(object, cause)| {
        Body::Infrastructure(Infrastructure { operation: "resolve".into(), object, cause, http_status: Some(502) })
    });
    prop_oneof![
        5 => denial.prop_map(Body::Denial),
        1 => infrastructure,
        1 => any::<bool>().prop_map(probe),
        1 => any::<String>().prop_map(|cause| Body::Abort(Abort { cause })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_complete_and_any_change_shows(
        bodies in prop::collection::vec(any_body(), 0..8),
        place in any::<prop::sample::Index>(),
        flip in 1u8..=255,
        from in any::<prop::sample::Index>(),
    ) {
        let (bytes, end) = sealed(bodies);
        prop_assert_eq!(check(&bytes, None).exit_code(), 0);
        prop_assert_eq!(check(&bytes, Some(&end.head)).exit_code(), 0);

        let mut flipped = bytes.clone();
        flipped[place.index(bytes.len())] ^= flip;
        let found = check(&flipped, None);
        prop_assert!(found.exit_code() != 0, "{}", found);
        prop_assert_eq!(check(&flipped, Some(&end.head)).exit_code(), 2);

        let lines = split(&bytes);
        let mut fewer = lines.clone();
        let removed = from.index(lines.len());
        fewer.remove(removed);
        let expected = if removed == lines.len() - 1 { 1 } else { 2 };
        prop_assert_eq!(check(&fewer.concat(), None).exit_code(), expected);
        prop_assert_eq!(check(&fewer.concat(), Some(&end.head)).exit_code(), 2);

        if lines.len() > 2 {
            let mut swapped = lines.clone();
            let at = place.index(lines.len() - 1);
            swapped.swap(at, at + 1);
            prop_assert_eq!(check(&swapped.concat(), None).exit_code(), 2);
        }

        let cut = &bytes[..from.index(bytes.len())];
        prop_assert_eq!(check(cut, None).exit_code(), 1);
    }
}

#[test]
fn every_single_bit_of_a_ledger_is_held() {
    let (bytes, _) = three();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert_ne!(check(&flipped, None).exit_code(), 0, "byte {at} bit {bit}");
        }
    }
}
