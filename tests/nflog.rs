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
