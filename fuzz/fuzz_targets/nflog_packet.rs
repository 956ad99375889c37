//! A refused packet's bytes are the command's own making.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::observe::nflog::{Logged, Packet};

fuzz_target!(|bytes: &[u8]| {
    let packet = Packet::parse(bytes);
    if let Some(packet) = &packet {
        assert_eq!(packet.src.is_ipv4(), packet.dst.is_ipv4());
        assert!(bytes.len() >= if packet.src.is_ipv4() { 20 } else { 40 });
    }
    let denial = Logged { rule: "default-deny".into(), uid: None, packet }.into_denial();
    assert!(!denial.operation.is_empty() && denial.count == 1);
});
