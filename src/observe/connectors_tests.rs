use super::*;
use crate::observe::socket_owner::{TCP, UDP};
use proptest::prelude::*;

fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn by(pid: u32) -> Subject {
    let name = format!("program-{pid}");
    Subject { pid: Some(pid), comm: Some(name.clone()), argv: Some(vec![name]), ..Subject::default() }
}

fn note(pid: u32, inode: u64, destination: &str) -> Note {
    Note { subject: by(pid), inode: Some(inode), protocol: None, destination: to(destination) }
}

fn one(pid: u32) -> Found {
    Found::One(Box::new(by(pid)))
}

fn unknown() -> Owner {
    Owner::NoSocket
}

const THERE: &str = "11.22.33.44:443";

#[test]
fn a_packet_is_whose_note_is_there_and_uses_it_up() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(note(1, 10, THERE), now);
    connectors.take(note(1, 11, THERE), now);
    connectors.take(note(2, 12, "11.22.33.44:80"), now);
    let mut refused = |destination: &str| connectors.refused(TCP, to(destination), now, unknown);
    assert_eq!(refused(THERE), one(1));
    assert_eq!(refused(THERE), one(1));
    assert_eq!(refused(THERE), Found::Nobody, "each note is one packet");
    assert_eq!(refused("11.22.33.44:80"), one(2));
    assert_eq!(connectors.kept.len() + connectors.pending.len() + connectors.size, 0);
}

#[test]
fn of_several_the_socket_decides_or_nobody_is_named() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    for (pid, inode) in [(1, 10), (2, 20), (3, 30)] {
        connectors.take(note(pid, inode, THERE), now);
    }
    let mut refused = |owner| connectors.refused(TCP, to(THERE), now, || owner);
    assert_eq!(refused(Owner::Socket(20)), one(2));
    assert_eq!(refused(Owner::NoSocket), Found::Several);
    // Had the last packet been the first process's, what is left would be the third's, and the other way round.
    assert_eq!(refused(Owner::Socket(99)), Found::Several);
    assert_eq!(refused(Owner::NoSocket), Found::Nobody, "three packets for three notes");
}

#[test]
fn what_could_not_be_told_apart_makes_no_later_packet_someones() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(note(1, 10, THERE), now);
    connectors.take(note(2, 20, THERE), now + FRESH / 2);
    assert_eq!(connectors.refused(TCP, to(THERE), now, unknown), Found::Several);
    // The first note is too old by now, and the second may be the one whose packet was seen.
    assert_eq!(connectors.refused(TCP, to(THERE), now + FRESH * 5 / 4, unknown), Found::Nobody);
}

#[test]
fn an_old_note_stands_for_no_packet_but_still_for_its_socket() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(note(1, 10, THERE), now);
    let later = now + FRESH + Duration::from_millis(1);
    assert_eq!(connectors.refused(TCP, to(THERE), later, unknown), Found::Nobody);
    assert_eq!(connectors.by_destination(UDP, to(THERE), later).0, Found::Nobody);
    assert_eq!(connectors.by_socket(10, to(THERE)), one(1));
    assert_eq!(connectors.by_socket(10, to("11.22.33.44:80")), Found::Nobody);
}

#[test]
fn datagrams_leave_their_notes() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(note(1, 10, THERE), now);
    for _ in 0..3 {
        assert_eq!(connectors.by_destination(UDP, to(THERE), now), (one(1), vec![Some(10)]));
    }
    connectors.take(note(2, 20, THERE), now);
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, Found::Several);
    assert_eq!((connectors.by_socket(10, to(THERE)), connectors.by_socket(20, to(THERE))), (one(1), one(2)));
}

#[test]
fn a_protocol_that_is_known_must_be_the_packets() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(Note { protocol: Some(UDP), ..note(1, 10, THERE) }, now);
    assert_eq!(connectors.refused(TCP, to(THERE), now, unknown), Found::Nobody);
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, one(1));
}

#[test]
fn destinations_are_compared_as_packets_show_them() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    for (called, packet) in [
        ("[::ffff:11.22.33.44]:443", THERE),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("[fe80::1%3]:80", "[fe80::1]:80"),
    ] {
        connectors.take(note(1, 10, called), now);
        assert_eq!(connectors.refused(TCP, to(packet), now, unknown), one(1), "{called}");
    }
}

#[test]
fn threads_are_one_process_and_an_exec_makes_two() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    connectors.take(note(1, 10, THERE), now);
    let mut thread = note(1, 11, THERE);
    thread.subject.comm = Some("worker".into());
    connectors.take(thread, now);
    let process = Subject { comm: None, ..by(1) };
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, Found::One(Box::new(process)));
    let mut other = note(1, 12, THERE);
    other.subject.argv = Some(vec!["another program".into()]);
    connectors.take(other, now);
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, Found::Several);
}

#[test]
fn whoever_is_unknown_is_nobodys_other_self() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    for inode in [10, 11] {
        connectors.take(Note { subject: Subject::default(), ..note(1, inode, THERE) }, now);
    }
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, Found::Several);
}

#[test]
fn a_senders_text_is_made_harmless() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    let mut claimed = note(1, 10, THERE);
    claimed.subject.argv = Some(vec!["\u{1b}[31m".into(); 1000]);
    connectors.take(claimed, now);
    let Found::One(subject) = connectors.by_socket(10, to(THERE)) else { panic!() };
    let argv = subject.argv.unwrap();
    assert_eq!((argv.len(), argv[0].as_str()), (ARGUMENT_LIMIT + 1, "\\x1b[31m"));
}

#[test]
fn notes_are_bounded_and_the_oldest_goes_first() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    for n in 0..2 * NOTE_LIMIT as u64 {
        connectors.take(note(1, n, &format!("11.22.33.44:{}", 1 + n % 5000)), now);
    }
    assert_eq!(connectors.kept.len(), NOTE_LIMIT);
    assert!(connectors.pending.len() <= NOTE_LIMIT);
    assert_eq!(connectors.kept.first_key_value().map(|(_, kept)| kept.inode), Some(Some(NOTE_LIMIT as u64)));
    let mut large = note(1, 1, THERE);
    large.subject.exe = Some("x".repeat(NOTES_SIZE_LIMIT / 3));
    for pid in 0..5 {
        large.subject.pid = Some(pid);
        connectors.take(large.clone(), now);
    }
    assert!(connectors.size <= NOTES_SIZE_LIMIT && connectors.kept.len() == 2, "{}", connectors.kept.len());
    for number in connectors.kept.keys().copied().collect::<Vec<_>>() {
        connectors.forget(number);
    }
    assert_eq!((connectors.size, connectors.pending.len()), (0, 0));
}

#[test]
fn a_missing_note_makes_no_other_processs_packet_someones() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    for inode in 0..NOTE_LIMIT as u64 {
        connectors.take(note(1, inode, THERE), now);
    }
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, one(1));
    connectors.take(note(1, 1, "11.22.33.44:80"), now);
    // The first process's own note is gone, and any packet may be that one's.
    assert_eq!(connectors.by_destination(UDP, to(THERE), now).0, Found::Several);
    assert_eq!(connectors.refused(TCP, to(THERE), now, unknown), Found::Several);
    assert_eq!(connectors.refused(TCP, to(THERE), now, || Owner::Socket(77)), one(1));
    let later = now + FRESH * 2;
    connectors.take(note(2, 1, THERE), later);
    assert_eq!(connectors.by_destination(UDP, to(THERE), later).0, one(2));
    connectors.missed(later);
    assert_eq!(connectors.by_destination(UDP, to(THERE), later).0, Found::Several);
}

#[test]
fn a_flood_from_one_process_to_one_place_is_cheap() {
    let (mut connectors, now) = (Connectors::default(), Instant::now());
    let flood = note(1, 10, THERE);
    for _ in 0..NOTE_LIMIT {
        connectors.take(flood.clone(), now);
    }
    assert!(connectors.size < NOTE_LIMIT * 500, "one subject for all");
    let begun = Instant::now();
    for _ in 0..NOTE_LIMIT {
        assert_eq!(connectors.refused(TCP, to(THERE), now, unknown), one(1));
    }
    assert!(begun.elapsed() < Duration::from_millis(NOTE_LIMIT as u64), "{:?}", begun.elapsed());
}

proptest! {
    /// Calls of some processes at one destination, their packets in any order behind them, some of which the log has lost:
    /// whoever is named is who it was.
    #[test]
    fn nobody_is_named_for_another(events in proptest::collection::vec((0u32..3, any::<bool>(), any::<bool>()), 0..40)) {
        let (mut connectors, now) = (Connectors::default(), Instant::now());
        let mut under_way: Vec<(u32, u64)> = Vec::new();
        for (at, (pid, call, known)) in events.into_iter().enumerate() {
            let at = at as u64;
            if call || under_way.is_empty() {
                connectors.take(note(pid, at, THERE), now);
                under_way.push((pid, at));
            } else {
                let (pid, inode) = under_way.remove(pid as usize % under_way.len());
                let owner = if known { Owner::Socket(inode) } else { Owner::NoSocket };
                if let Found::One(subject) = connectors.refused(TCP, to(THERE), now, || owner) {
                    prop_assert_eq!(subject.pid, Some(pid));
                }
            }
        }
    }
}
