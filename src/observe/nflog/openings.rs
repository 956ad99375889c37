//! First packets of TCP conversations that are let through. Nobody answers one that is lost, so the kernel sends it again
//! (tcp(7), tcp_syn_retries), which is no second attempt of the command's.

use super::Packet;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;

/// Most conversations that are known at the same time; the oldest is forgotten for a new one.
const LIMIT: usize = 4096;

/// What all sendings of one first packet have in common.
type Opening = (IpAddr, Option<u16>, IpAddr, Option<u16>, u32);

/// The conversations that were opened of late.
#[derive(Debug, Default)]
pub struct Openings {
    known: HashSet<Opening>,
    order: VecDeque<Opening>,
}

impl Openings {
    /// Whether a packet is one that was seen before, sent again.
    pub fn has_seen(&mut self, packet: &Packet) -> bool {
        let Some(sequence) = packet.sequence else { return false };
        let opening = (packet.src, packet.sport, packet.dst, packet.dport, sequence);
        if !self.known.insert(opening) {
            return true;
        }
        self.order.push_back(opening);
        if self.order.len() > LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sport: u16, sequence: Option<u32>) -> Packet {
        let [src, dst] = ["11.22.33.2", "11.22.33.44"].map(|address| address.parse().unwrap());
        Packet { protocol: 6, src, sport: Some(sport), dst, dport: Some(443), icmp: None, sequence }
    }

    #[test]
    fn what_is_sent_again_is_known_and_another_attempt_is_not() {
        let mut openings = Openings::default();
        assert!(!openings.has_seen(&packet(1, Some(7))) && openings.has_seen(&packet(1, Some(7))));
        assert!(!openings.has_seen(&packet(1, Some(8))), "the same ports, another conversation");
        assert!(!openings.has_seen(&packet(2, Some(7))));
        assert!(!openings.has_seen(&packet(3, None)) && !openings.has_seen(&packet(3, None)), "datagrams are all told");
    }

    #[test]
    fn no_more_are_known_than_there_is_room_for() {
        let mut openings = Openings::default();
        (0..LIMIT as u32 + 1).for_each(|n| assert!(!openings.has_seen(&packet(1, Some(n)))));
        assert_eq!((openings.known.len(), openings.order.len()), (LIMIT, LIMIT));
        assert!(!openings.has_seen(&packet(1, Some(0))), "the oldest is forgotten");
    }
}
