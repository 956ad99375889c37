//! What egress costs by the proxy of a session: small requests, bulk and memory, beside no proxy, a relay that judges
//! nothing, squid and tinyproxy, turn by turn in the same rounds.
//!
//! `make bench` runs it. `proxy BINARY [ROUNDS [OTHER]]`: OTHER is a second binary, measured beside the first.
#![allow(missing_docs, reason = "a program")]

#[path = "proxy/load.rs"]
mod load;
#[path = "proxy/origin.rs"]
mod origin;
#[path = "proxy/relay.rs"]
mod relay;
#[allow(dead_code, reason = "each user has its own part")]
mod rounds;
#[path = "proxy/side.rs"]
mod side;
#[path = "proxy/tables.rs"]
mod tables;

use load::Way;
use rounds::Bench;
use side::Side;
use std::path::Path;
use std::time::Duration;
use tables::{Bulk, OURS, Small, memory};

fn main() {
    if std::env::args().nth(1).is_some_and(|first| first == "relay") {
        return relay::serve();
    }
    let mut bench = Bench::new(5);
    let mut sides = vec![Side::direct(), Side::relay(), Side::ringfence(OURS, &bench.binary)];
    if let Some(other) = std::env::args().filter(|argument| argument != "--bench").nth(3) {
        sides.push(Side::ringfence("ringfence, the other", Path::new(&other)));
    }
    if bench.peer("squid", &["-v"]) {
        sides.push(Side::squid());
    }
    if bench.peer("tinyproxy", &["-v"]) {
        sides.push(Side::tinyproxy());
    }
    memory(&mut bench, &sides);
    let lasting = bench.size(Duration::from_millis(600), Duration::from_millis(100));
    for way in [Way::Tunnel, Way::Plain] {
        for many in [1, 32, 256] {
            let mut small = Small::new(way, many);
            bench.interleave(1, &sides, |side, round| small.measure(side, round, lasting));
            small.done(&mut bench);
        }
    }
    let size = bench.size(1 << 30, 1 << 26);
    for up in [false, true] {
        let mut bulk = Bulk::new(up);
        bench.interleave(0, &sides, |side, round| bulk.measure(side, round, size));
        bulk.done(&mut bench);
    }
}
