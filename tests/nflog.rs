//! The firewall's log: every refusal arrives, and what can't arrive is counted. Needs root.

mod netns;

use netns::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringfence::install::firewall::{self, Integrity, WallSpec};
use ringfence::observe::nflog::{Drained, NfLog};
use std::os::fd::AsFd;

#[test]
fn a_record_comes_at_once_and_wakes_the_reader() {
    let _outside = Outside::new();
    let mut log = NfLog::bind(RUN).unwrap();
    let _wall = firewall::install(&WallSpec {
        nflog_group: log.group(),
        ..spec()
    })
    .unwrap();
    assert_eq!(
        log.drain(|_| panic!("nothing was refused yet")).unwrap(),
        Drained::default()
    );
    assert_eq!(command(&["udp 11.22.33.2 7777"]), ["EPERM"]);
    let mut waiting = [PollFd::new(log.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut waiting, PollTimeout::ZERO).unwrap(), 1);
    let mut logged = Vec::new();
    let drained = log.drain(|l| logged.push(l)).unwrap();
    assert_eq!(
        drained,
        Drained {
            records: 1,
            ..Drained::default()
        }
    );
    let packet = logged[0].packet.unwrap();
    assert_eq!(
        (packet.protocol, packet.dst.to_string(), packet.dport),
        (17, OUTSIDE4.to_owned(), Some(PORT))
    );
    assert_eq!(
        (packet.src.to_string(), logged[0].uid),
        (INSIDE4.to_owned(), Some(UID))
    );
}

#[test]
fn received_and_lost_make_up_every_attempt() {
    let _outside = Outside::new();
    let mut log = NfLog::with_receive_buffer(RUN, 32 * 1024).unwrap();
    let wall = firewall::install(&WallSpec {
        nflog_group: log.group(),
        ..spec()
    })
    .unwrap();
    assert_eq!(command(&["flood 11.22.33.2 7777 2000"]), ["EPERM"]);
    let first = log.drain(drop).unwrap();
    assert_eq!(first.lost, 1, "the overrun is known, its extent is not");
    assert!(first.records < 2000);
    assert_eq!(command(&["udp 11.22.33.2 7777"]), ["EPERM"]);
    let second = log.drain(drop).unwrap();
    assert_eq!(
        first.records + first.lost + second.records + second.lost,
        2001
    );
    let counted: u64 = wall.counters().unwrap().iter().map(|c| c.packets).sum();
    assert_eq!(counted, 2001);
}

#[test]
fn the_ordinary_buffer_holds_ten_thousand_refusals() {
    let _outside = Outside::new();
    let mut log = NfLog::bind(RUN).unwrap();
    let wall = firewall::install(&WallSpec {
        nflog_group: log.group(),
        ..spec()
    })
    .unwrap();
    assert_eq!(command(&["flood 11.22.33.2 7777 10000"]), ["EPERM"]);
    assert_eq!(
        log.drain(drop).unwrap(),
        Drained {
            records: 10_000,
            ..Drained::default()
        }
    );
    assert_eq!(wall.is_intact().unwrap(), Integrity::Intact);
}

#[test]
fn readers_get_groups_of_their_own_and_give_them_back() {
    enter();
    let first = NfLog::bind(RUN).unwrap();
    let second = NfLog::bind(RUN).unwrap();
    assert_ne!(first.group(), second.group());
    let group = first.group();
    drop(first);
    assert_eq!(NfLog::bind(RUN).unwrap().group(), group);
}

#[test]
fn what_another_run_left_is_not_taken_for_ours() {
    let _outside = Outside::new();
    let mut log = NfLog::bind("fedcba9876543210").unwrap();
    let _left = firewall::install(&WallSpec {
        nflog_group: log.group(),
        ..spec()
    })
    .unwrap();
    assert_eq!(command(&["udp 11.22.33.2 7777"]), ["EPERM"]);
    let drained = log.drain(|l| panic!("{l:?}")).unwrap();
    assert_eq!(
        drained,
        Drained {
            foreign: 1,
            ..Drained::default()
        }
    );
}

#[test]
fn every_refusal_is_one_record_that_names_its_rule() {
    let _outside = Outside::new();
    let mut log = NfLog::bind(RUN).unwrap();
    let spec = WallSpec {
        nflog_group: log.group(),
        control_plane_ports: vec![8500],
        resolvers: vec![OUTSIDE4.parse().unwrap()],
        ..spec()
    };
    let wall = firewall::install(&spec).unwrap();
    let expected = [
        ("tcp 169.254.169.254 80", "metadata", "tcp"),
        ("tcp fd00:ec2::254 80", "metadata", "tcp"),
        ("tcp 10.1.2.3 443", "private-range", "tcp"),
        ("tcp fd12::1 443", "private-range", "tcp"),
        ("udp 224.0.0.1 9999", "private-range", "udp"),
        ("udp ff02::1%inside 9999", "private-range", "udp"),
        ("tcp 11.22.33.9 443", "default-deny", "tcp"),
        ("udp 2a00:1:2:3::9 443", "default-deny", "udp"),
        ("ping 11.22.33.9", "default-deny", "icmp"),
        ("ping 2a00:1:2:3::9", "default-deny", "icmpv6"),
        ("udp 11.22.33.9 53", "dns", "udp"),
        ("tcp 11.22.33.2 443", "dns", "tcp"),
        ("tcp 127.0.0.1 8500", "control-plane", "tcp"),
        ("udp 11.22.33.9 8500", "control-plane", "udp"),
    ];
    let outcomes = command(&expected.map(|(act, ..)| act));
    let mut denials = Vec::new();
    let drained = log
        .drain(|logged| denials.push(logged.into_denial()))
        .unwrap();
    assert_eq!(
        (drained.records, drained.lost, drained.foreign),
        (expected.len() as u64, 0, 0)
    );
    for (((act, rule, operation), outcome), denial) in expected.iter().zip(&outcomes).zip(&denials)
    {
        assert_eq!(
            (denial.rule.as_str(), denial.operation.as_str()),
            (*rule, *operation),
            "{act}"
        );
        let seen = Some(outcome).filter(|_| *operation != "icmpv6");
        assert_eq!(
            denial.errno.as_ref(),
            seen,
            "{act}: the record says what the command saw"
        );
        assert_eq!(denial.subject.uid, Some(UID), "{act}");
        let words: Vec<_> = act.split_whitespace().collect();
        assert_eq!(
            denial.object.addrs,
            [words[1]
                .split('%')
                .next()
                .unwrap()
                .parse::<std::net::IpAddr>()
                .unwrap()]
        );
        assert_eq!(
            denial.object.port.map(|p| p.to_string()).as_deref(),
            words.get(2).copied()
        );
    }
    let counted: u64 = wall.counters().unwrap().iter().map(|c| c.packets).sum();
    assert_eq!(counted, expected.len() as u64);
}
