use super::*;
use crate::ledger::line::encode;
use crate::ledger::record::{Gap, Subject};
use crate::ledger::samples::{denial, probe, records, sealed, shadowed, start};
use proptest::prelude::*;
use std::sync::LazyLock;

/// What decoding in full makes of a line.
fn whole(line: &[u8]) -> Option<View<'_>> {
    decode(line).ok().map(|record| View::decoded(line, record))
}

/// Lines of every form that is scanned.
static LINES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(lines);

fn lines() -> Vec<Vec<u8>> {
    let object = Object {
        host: Some("a.test".into()),
        port: Some(443),
        addrs: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        path: Some("/usr/\\x0a\"é\u{202e}".into()),
        to: Some(String::new()),
        text: Some("\\\\".into()),
    };
    let argv = Some(vec!["sh".into(), "-c".into(), "echo \"a\\x0ab\" > /usr/x".into()]);
    let subject = Subject {
        pid: Some(7),
        uid: Some(10001),
        comm: Some("sh".into()),
        exe: Some("/bin/sh".into()),
        argv,
        ancestors: Some(Vec::new()),
    };
    let told = Denial {
        object,
        subject,
        errno: Some("EROFS".into()),
        http_status: Some(403),
        count: 9,
        ..denial(Axis::Filesystem, "x")
    };
    let (enforced, _) =
        sealed([probe(true), Body::Denial(told.clone()), Body::Denial(denial(Axis::Network, "b.test"))]);
    let mut all: Vec<Vec<u8>> = records(&enforced).iter().map(|record| encode(record).unwrap()).collect();
    let again = records(&enforced).remove(1);
    for body in [shadowed(), start(), probe(false), Body::WouldDeny(told.let_through())] {
        all.push(encode(&Record { body, ..again.clone() }).unwrap());
    }
    all
}

#[test]
fn what_the_writer_writes_is_scanned_and_means_the_same() {
    for line in lines() {
        let text = String::from_utf8_lossy(&line);
        // A shadow has a level too, a key that every record has: one start in many, and left to the decoder.
        let is_left = text.contains("\"shadow\":{");
        assert_eq!(scan(&line), whole(&line).filter(|_| !is_left), "{text}");
        assert_eq!(View::of(&line).unwrap().record().unwrap(), decode(&line).unwrap());
    }
}

#[test]
fn what_is_not_scanned_is_decoded() {
    let (bytes, _) = sealed([probe(true)]);
    let gap = Body::Gap(Gap { axis: None, source: "nflog".into(), lost: 1, cause: "ENOBUFS".into() });
    let line = encode(&Record { body: gap, ..records(&bytes).remove(1) }).unwrap();
    assert_eq!((scan(&line), View::of(&line).ok()), (None, whole(&line)));
    let spaced = String::from_utf8(lines().remove(2)).unwrap().replace("\"attempt\":", "\"attempt\": ").into_bytes();
    assert!(scan(&spaced).is_none() && View::of(&spaced).is_ok());
    for bad in ["", "{}", "{\"v\":1,\"seq\":0}", "\u{0}"] {
        assert!(View::of(bad.as_bytes()).is_err(), "{bad:?}");
    }
}

#[test]
fn a_key_that_stands_twice_is_no_record() {
    for line in lines() {
        let text = String::from_utf8(line).unwrap();
        for key in ["\"seq\":1,", "\"run\":\"x\",", "\"kind\":\"probe\",", "\"\\u0073eq\":1,"] {
            let twice = text.replace(",\"prev\":", &format!(",{key}\"prev\":"));
            assert!(View::of(twice.as_bytes()).is_err(), "{twice}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_text_in_a_denial_is_read_as_it_is_decoded(host in any::<String>(), path in any::<Option<String>>(), arg in any::<String>(), pid in any::<Option<u32>>(), count in any::<u64>()) {
        let mut told = denial(Axis::Privilege, &host);
        told.object.path = path;
        told.subject.pid = pid;
        told.subject.argv = Some(vec![arg]);
        told.count = count;
        let record = Record { body: Body::Denial(told), ..decode(&LINES[2]).unwrap() };
        let line = encode(&record).unwrap();
        // Of twenty digits it is left to the decoder.
        prop_assert!(scan(&line).is_some() || count > 9_999_999_999_999_999_999);
        prop_assert_eq!(View::of(&line).ok(), whole(&line));
    }

    #[test]
    fn nothing_is_scanned_that_would_not_be_decoded_to_the_same(
        which in 0usize..9,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..40), 1..4),
    ) {
        const BYTES: &[u8] = b"\"\\{}[],:0u19.-en \x00\xff\x1f\x7ftfa\n";
        let mut line = LINES[which % LINES.len()].clone();
        for (one, other, edit) in edits {
            let (a, b) = (one.index(line.len()), other.index(line.len()));
            let (from, to) = (a.min(b), a.max(b));
            match edit {
                0 => drop(line.drain(from..to.min(from + 12))),
                1 => { let piece = line[from..to].to_vec(); line.splice(to..to, piece); }
                2 => line.insert(from, BYTES[to % BYTES.len()]),
                edit => line[from] = BYTES[edit % BYTES.len()],
            }
            if line.is_empty() {
                line.push(b'{');
            }
        }
        if let Some(view) = scan(&line) {
            prop_assert_eq!(Some(view), whole(&line));
        }
    }
}
