use super::*;
use proptest::prelude::*;
use world::hello::{client_hello, record, records};

const CCS: [u8; 6] = [20, 3, 3, 0, 1, 1];

fn host(text: &str) -> Host {
    Host::parse(text.as_bytes()).unwrap()
}

fn hello(name: &str) -> Vec<u8> {
    records(&client_hello(&[name.as_bytes()]), 1 << 14)
}

/// Feeds pieces one after the other; gives how much has passed after each, or why it stopped.
fn feed(records: &mut ClientRecords, pieces: &[&[u8]], heard: Heard) -> Result<Vec<usize>, BadHello> {
    let (mut held, mut passed, heard) = (Vec::new(), Vec::new(), Cell::new(heard));
    for piece in pieces {
        held.extend_from_slice(piece);
        let count = records.advance(&held, &heard)?;
        held.drain(..count);
        passed.push(passed.last().copied().unwrap_or(0) + count);
    }
    Ok(passed)
}

fn judged(host_text: &str, bytes: &[u8]) -> Result<bool, BadHello> {
    let mut records = ClientRecords::of(&host(host_text));
    feed(&mut records, &[bytes], Heard::Nothing).map(|passed| passed == [bytes.len()] && !records.is_reading())
}

#[test]
fn the_name_must_be_the_hosts() {
    for (to, named) in [("allowed.test", "allowed.test"), ("allowed.test", "ALLOWED.Test"), ("a.test", "a.test.")] {
        assert_eq!(judged(to, &hello(named)), Ok(true), "{to} {named}");
    }
    for named in ["evil.test", "a.allowed.test", "allowed.test.evil.test", "llowed.test", "allowed.testx"] {
        assert_eq!(judged("allowed.test", &hello(named)), Err(BadHello::Mismatch(named.to_owned())));
    }
    assert_eq!(judged("allowed.test", &records(&client_hello(&[]), 9000)), Err(BadHello::Missing));
    // An address is no name: what a client sends for one counts as nothing.
    assert_eq!(judged("allowed.test", &hello("11.22.33.44")), Err(BadHello::Missing));
    for literal in ["11.22.33.44", "[2a00:1:2:3::44]"] {
        assert_eq!(judged(literal, &records(&client_hello(&[]), 9000)), Ok(true));
        assert_eq!(judged(literal, &hello("11.22.33.44")), Ok(true));
        assert_eq!(judged(literal, &hello("evil.test")), Err(BadHello::Mismatch("evil.test".to_owned())));
    }
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    let two = client_hello(&[b"allowed.test", b"evil.test"]);
    let nul = client_hello(&[b"allowed.test\0.evil.test"]);
    let empty = client_hello(&[b""]);
    let mut long = client_hello(&[b"allowed.test"]);
    long[1] = 1;
    let both = [client_hello(&[b"allowed.test"]), client_hello(&[b"evil.test"])].concat();
    let mut cut = client_hello(&[b"allowed.test"]);
    cut[3] -= 1;
    for message in [two, nul, empty, both, cut] {
        let refused = judged("allowed.test", &records(&message, 1 << 14));
        assert!(matches!(refused, Err(BadHello::Malformed(_))), "{refused:?}");
    }
    // Longer than any reader takes: refused, or waited for until its deadline.
    assert!(!matches!(judged("allowed.test", &records(&long, 1 << 14)), Ok(true)));
    for bytes in [
        b"GET / HTTP/1.1\r\n".as_slice(),
        b"SSH-2.0-x\r\n",
        &[0x80, 46, 1, 3, 1],
        &[22, 2, 0, 0, 5],
        &[22, 3, 1, 0xff, 0xff],
    ] {
        assert_eq!(judged("allowed.test", bytes), Err(BadHello::NotTls), "{bytes:?}");
    }
    for before in [CCS.to_vec(), record(23, b"early"), record(21, &[1, 0])] {
        let refused = judged("allowed.test", &[before, hello("allowed.test")].concat());
        assert!(matches!(refused, Err(BadHello::Malformed(_))), "{refused:?}");
    }
}

/// A ClientHello with these bytes where its extensions end.
fn extended(names: &[&[u8]], more: &[u8]) -> Vec<u8> {
    let mut message = [client_hello(names).as_slice(), more].concat();
    // Type, length, version, random, no session, two cipher suites, one compression method.
    let extensions = 4 + 2 + 32 + 1 + 6 + 2;
    let length = |message: &[u8], from: usize| u16::try_from(message.len() - from).unwrap().to_be_bytes();
    let (whole, part) = (length(&message, 4), length(&message, extensions + 2));
    message[2..4].copy_from_slice(&whole);
    message[extensions..extensions + 2].copy_from_slice(&part);
    message
}

#[test]
fn a_server_name_has_one_place_and_one_form() {
    let named = |kind: u8, name: &[u8]| [&[kind, 0, name.len() as u8], name].concat();
    let list = |entries: &[u8]| [&[0, entries.len() as u8], entries].concat();
    let extension = |body: &[u8]| [&[0, 0, 0, body.len() as u8], body].concat();
    let (own, evil) = (named(0, b"allowed.test"), named(0, b"evil.test"));
    let alone = extension(&list(&own));
    let judged = |names: &[&[u8]], more: &[u8]| judged("allowed.test", &records(&extended(names, more), 1 << 14));
    assert_eq!(judged(&[], &alone), Ok(true));
    assert_eq!(judged(&[], &[[0xfa, 0xfa, 0, 1, 0].as_slice(), &alone].concat()), Ok(true));
    for (names, more) in [
        // The extension twice.
        (vec![b"allowed.test".as_slice()], extension(&list(&evil))),
        (vec![b"allowed.test".as_slice()], alone.clone()),
        (vec![], [alone.clone(), extension(&list(&evil))].concat()),
        // Bytes behind the list, a list that is none, and names of another kind.
        (vec![], extension(&[list(&own), list(&evil)].concat())),
        (vec![], extension(&list(&[own.clone(), evil.clone()].concat()))),
        (vec![], extension(&list(&[named(1, b"x"), own.clone()].concat()))),
        (vec![], extension(&list(&[named(1, b"x"), evil.clone()].concat()))),
        (vec![], extension(&list(&[own.clone(), named(1, b"x")].concat()))),
        (vec![], extension(&list(&[own.clone(), named(1, b"x"), evil.clone()].concat()))),
        (vec![], extension(&list(&[]))),
        (vec![], extension(&[])),
        (vec![], extension(&[0, own.len() as u8 + 9, 0])),
        // Bytes behind the extensions.
        (vec![b"allowed.test".as_slice()], vec![0]),
    ] {
        let refused = judged(&names, &more);
        assert!(matches!(refused, Err(BadHello::Malformed(_))), "{names:?} {more:?}: {refused:?}");
    }
}

#[test]
fn nothing_that_could_be_a_hello_lies_ready_before_the_server_answers() {
    let evil = hello("evil.test");
    let early = record(23, &[9; 300]);
    for between in [vec![], CCS.to_vec(), early.clone(), [CCS.to_vec(), early].concat()] {
        let sent = [hello("allowed.test"), between, evil.clone()].concat();
        assert_eq!(judged("allowed.test", &sent), Err(BadHello::Second));
    }
    assert_eq!(judged("allowed.test", &[hello("allowed.test"), hello("allowed.test")].concat()), Err(BadHello::Second));
    // Early data is nothing of the kind.
    let zero_round_trips = [hello("allowed.test"), CCS.to_vec(), record(23, &[1; 500])].concat();
    assert_eq!(judged("allowed.test", &zero_round_trips), Ok(true));
}

#[test]
fn a_second_hello_that_the_server_asked_for_must_have_the_name_too() {
    let second = |named: &[u8], size: usize| {
        let mut opened = ClientRecords::of(&host("allowed.test"));
        feed(&mut opened, &[&hello("allowed.test")], Heard::Nothing).unwrap();
        let sent = [CCS.to_vec(), records(&client_hello(&[named]), size)].concat();
        feed(&mut opened, &[&sent], Heard::Something).map(|passed| passed == [sent.len()])
    };
    for size in [1, 2, 3, 4, 5, 6, 7, 60, 1 << 14] {
        assert_eq!(second(b"allowed.test", size), Ok(true), "{size}");
        assert_eq!(second(b"evil.test", size), Err(BadHello::Mismatch("evil.test".to_owned())), "{size}");
    }
}

/// A ServerHello with this random (RFC 8446, 4.1.3).
fn server_hello(random: &[u8; 32]) -> Vec<u8> {
    let body = [&[3, 3], random.as_slice(), &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    [&[2, 0, 0, body.len() as u8], body.as_slice()].concat()
}

#[test]
fn what_the_server_asked_for_is_read_as_the_first_one_is_whatever_it_looks_like() {
    let long = |mut message: Vec<u8>| {
        // More cipher suites than fit: 131396 bytes are taken by some servers.
        message[1] = 1;
        message
    };
    let version = |mut message: Vec<u8>, major: u8, minor: u8| {
        message[4..6].copy_from_slice(&[major, minor]);
        message
    };
    let second = |message: Vec<u8>, size: usize| {
        let mut opened = ClientRecords::of(&host("allowed.test"));
        feed(&mut opened, &[&hello("allowed.test")], Heard::Nothing).unwrap();
        let sent = [CCS.to_vec(), record(23, b"early"), records(&message, size)].concat();
        feed(&mut opened, &[&sent], Heard::Retry).map(|passed| passed == [sent.len()] && !opened.is_reading())
    };
    let (own, evil) = (client_hello(&[b"allowed.test"]), client_hello(&[b"evil.test"]));
    for size in [1, 3, 6, 7, 60, 1 << 14] {
        for (major, minor) in [(3, 3), (3, 5), (3, 0xff), (4, 4), (0x7f, 28)] {
            assert_eq!(second(version(own.clone(), major, minor), size), Ok(true), "{size} {major} {minor}");
            let refused = second(version(evil.clone(), major, minor), size);
            assert_eq!(refused, Err(BadHello::Mismatch("evil.test".to_owned())), "{size} {major} {minor}");
        }
        assert_ne!(second(long(evil.clone()), size), Ok(true), "{size}");
        // What would hide one behind it.
        assert!(second([vec![0, 0, 0, 0], evil.clone()].concat(), size).is_err(), "{size}");
    }
}

#[test]
fn a_third_hello_is_not_asked_for() {
    let (mut opened, heard) = (ClientRecords::of(&host("allowed.test")), Cell::new(Heard::Nothing));
    let own = hello("allowed.test");
    assert_eq!(opened.advance(&own, &heard), Ok(own.len()));
    heard.set(Heard::Retry);
    assert_eq!(opened.advance(&own, &heard), Ok(own.len()));
    assert_eq!(heard.get(), Heard::Part);
    assert_eq!(opened.advance(&own, &heard), Err(BadHello::Second));
}

#[test]
fn part_of_a_second_hello_has_the_deadline_of_one() {
    for heard in [Heard::Retry, Heard::Something] {
        let mut opened = ClientRecords::of(&host("allowed.test"));
        feed(&mut opened, &[&hello("allowed.test")], Heard::Nothing).unwrap();
        assert!(!opened.is_reading());
        feed(&mut opened, &[&hello("allowed.test")[..40]], heard).unwrap();
        assert!(opened.is_reading(), "{heard:?}");
    }
}

#[test]
fn it_is_known_what_the_server_has_answered_before_the_client_may_go_on() {
    let warning = record(21, &[1, 112]);
    for (message, told) in [(server_hello(&RETRY), Heard::Retry), (server_hello(&[9; 32]), Heard::Something)] {
        for (size, piece) in [(1, 1), (7, 3), (1 << 14, 1), (1 << 14, 1 << 14)] {
            let (mut server, heard) = (ServerRecords::default(), Cell::new(Heard::Nothing));
            let sent = [warning.clone(), records(&message, size)].concat();
            let mut states = Vec::new();
            for bytes in sent.chunks(piece) {
                assert!(!server.advance(bytes, &heard));
                states.push(heard.get());
            }
            states.dedup();
            let expected = if piece < sent.len() { vec![Heard::Part, told] } else { vec![told] };
            assert_eq!(states, expected, "{size} {piece}");
        }
    }
    // After the second one.
    let (mut server, heard) = (ServerRecords::default(), Cell::new(Heard::Nothing));
    server.advance(&[records(&server_hello(&RETRY), 50), CCS.to_vec()].concat(), &heard);
    heard.set(Heard::Part);
    server.advance(&records(&server_hello(&[9; 32]), 50), &heard);
    assert_eq!(heard.get(), Heard::Something);
    assert!(server.advance(&record(23, &[1; 40]), &heard));
    assert_eq!(heard.get(), Heard::Encrypted);
}

#[test]
fn a_handshake_of_tls_1_2_passes() {
    let mut opened = ClientRecords::of(&host("allowed.test"));
    feed(&mut opened, &[&hello("allowed.test")], Heard::Nothing).unwrap();
    let exchange = record(22, &[&[16, 0, 0, 33, 32], [5; 32].as_slice()].concat());
    // A Finished as AES-GCM sends it, the first byte of its nonce that of a ClientHello.
    let finished = record(22, &[&[1, 0, 0, 0, 0, 0, 0, 0], [0xa7; 32].as_slice()].concat());
    let data = record(23, &[3; 100]);
    let sent = [exchange, CCS.to_vec(), finished, data].concat();
    let passed = feed(&mut opened, &[&sent], Heard::Something).unwrap();
    assert_eq!(passed, [sent.len()]);
}

#[test]
fn the_servers_first_encrypted_record_is_seen_in_any_pieces() {
    let sent = [record(22, &[2; 90]), CCS.to_vec(), record(23, &[1; 40]), record(23, &[1; 4])].concat();
    for size in [1, 2, 7, 1000] {
        let (mut records, heard) = (ServerRecords::default(), Cell::new(Heard::Nothing));
        let mut seen = Vec::new();
        for piece in sent.chunks(size) {
            records.advance(piece, &heard);
            seen.push(heard.get());
        }
        assert_eq!(seen.last(), Some(&Heard::Encrypted), "{size}");
        assert!(size > 7 || seen[0] == Heard::Part);
    }
    let (mut records, heard) = (ServerRecords::default(), Cell::new(Heard::Nothing));
    assert!(records.advance(b"SSH-2.0-OpenSSH\r\n", &heard));
    assert_eq!(heard.get(), Heard::Something);
}

proptest! {
    #[test]
    fn segmentation_changes_nothing(
        name in "(allowed|evil)\\.test",
        size in 1usize..200,
        cuts in proptest::collection::vec(0usize..2000, 0..30),
    ) {
        let sent = records(&client_hello(&[name.as_bytes()]), size);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (sent.len() + 1)).collect();
        cuts.extend([0, sent.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &sent[ends[0]..ends[1]]).collect();
        let fed = feed(&mut ClientRecords::of(&host("allowed.test")), &pieces, Heard::Nothing);
        if name == "allowed.test" {
            prop_assert_eq!(fed.map(|passed| passed.last().copied()), Ok(Some(sent.len())));
        } else {
            prop_assert_eq!(fed, Err(BadHello::Mismatch(name)));
        }
    }

    #[test]
    fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut records = ClientRecords::of(&host("allowed.test"));
        let count = records.advance(&bytes, &Cell::new(Heard::Nothing)).unwrap_or(0);
        prop_assert!(count <= bytes.len());
    }
}
