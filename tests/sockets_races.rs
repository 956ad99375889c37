//! Where every socket is made for the command, whoever changes what a call is about while it is looked at gains nothing: not
//! by the address, not by the descriptor, not by the device that a message names, in 10,000 tries each.

mod callers;
mod common;
mod sockets;

use common::{Fence, value};
use sockets::{left_since, less, run_on};
use world::Packet;
use world::address::PUBLIC4;
use world::internet::everywhere;

/// A port of the outside where only sinks listen.
const PORT: u16 = 4466;
const TRIES: u32 = 10_000;

/// A way, and whether calls go through and are refused, where both are to be met.
type Way = (&'static str, bool);

/// What is changed is the call's arguments, or the socket behind its descriptor.
const WAYS: [Way; 11] = [
    ("address-connect", true),
    ("address-sendto", true),
    ("address-sendmsg", true),
    ("address-sendmmsg", true),
    ("device-sendmsg", true),
    ("device-sendmmsg", true),
    ("descriptor-connect", false),
    ("descriptor-sendto", false),
    ("descriptor-sendmsg", false),
    ("descriptor-sendmmsg", false),
    ("unspecified", false),
];
/// Datagram sockets are made only while the call is made that is to be turned into one of theirs.
const MADE: [Way; 2] = [("made-sendmsg", false), ("made-sendmmsg", false)];

fn race(ways: &[Way], tries: u32) -> String {
    let each =
        ways.iter().map(|(way, _)| format!("timeout 120 socket_racers {way} {tries} eth0 || echo {way}=ended $?"));
    each.collect::<Vec<_>>().join("\n")
}

/// One way after the other without ringfence, each until something has come out by it.
fn assert_live(fence: &Fence, ways: &[Way]) -> Vec<Packet> {
    let mut seen = 0;
    for way in ways {
        let is_out = (0..50).any(|_| {
            fence.as_nobody(&race(&[*way], TRIES));
            fence.world.packets_to(PUBLIC4).len() > seen
        });
        assert!(is_out, "the way out is live: {way:?}");
        seen = fence.world.packets_to(PUBLIC4).len();
    }
    fence.world.packets()
}

fn let_nothing_out(rung: &str, ways: &[Way]) {
    let fence = callers::fence(&["socket_racers"]).less(less(rung));
    let (tcp, udp) = everywhere(&fence.world, PORT).expect("sinks");
    let seen = assert_live(&fence, ways);
    let arrived = tcp.arrivals().len() + udp.arrivals().len();
    assert!(arrived > 0, "the sinks are live");

    let ended = run_on(&fence, rung, &[], &race(ways, TRIES));
    println!("{rung}: {}", ended.said);
    let left = left_since(&fence, &seen);
    assert!(left.is_empty(), "{rung}: {} packets, as {:?}: {}", left.len(), left[0], ended.said);
    assert_eq!(tcp.arrivals().len() + udp.arrivals().len(), arrived, "{}", ended.said);
    for &(way, both) in ways {
        let words: Vec<&str> = value(&ended.said, way).split(' ').collect();
        let [_, done, _, refused, ..] = words[..] else { panic!("{way}: {words:?} {}", ended.said) };
        let [done, refused] = [done, refused].map(|count| count.parse::<u32>().expect("a number"));
        assert_eq!(done + refused, TRIES, "{way}: {}", ended.said);
        assert!(!both || done > 100 && refused > 100, "what was changed was met both ways: {way} {}", ended.said);
    }
    assert!(ended.seal().complete && !ended.denials().is_empty(), "{:?}", ended.seal());
}

#[test]
fn of_sockets_in_a_container_let_nothing_out() {
    let_nothing_out("container", &WAYS);
}

#[test]
fn of_sockets_without_root_let_nothing_out() {
    let_nothing_out("bare", &WAYS);
}

#[test]
fn of_sockets_that_are_made_meanwhile_in_a_container_let_nothing_out() {
    let_nothing_out("container", &MADE);
}

#[test]
fn of_sockets_that_are_made_meanwhile_without_root_let_nothing_out() {
    let_nothing_out("bare", &MADE);
}
