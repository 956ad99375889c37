//! Addresses that stand for names: each name that is answered for gets one of its own, which leads nowhere but here.

use crate::policy::Name;
use ipnet::Ipv4Net;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

/// Where stand-ins are taken from: the range for benchmarks of network devices (RFC 2544; RFC 5735), which no network routes
/// and the judgement refuses unless a policy trusts it.
pub const STAND_INS: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);

/// Most names that have one at a time; a further one takes that of the name that was asked for longest ago.
const LIMIT: usize = 65_536;

/// Which address stands for which name.
#[derive(Debug)]
pub struct StandIns {
    /// By their order in the range; when each was last asked for.
    names: Vec<(Name, u64)>,
    order: HashMap<Name, usize>,
    asked: u64,
    /// Addresses of the hosts file, which stand for their names as they are.
    listed: HashMap<IpAddr, Name>,
    limit: usize,
}

impl StandIns {
    /// None but those of the hosts file.
    pub fn new(listed: impl IntoIterator<Item = (IpAddr, Name)>) -> StandIns {
        StandIns {
            names: Vec::new(),
            order: HashMap::new(),
            asked: 0,
            listed: listed.into_iter().collect(),
            limit: LIMIT,
        }
    }

    /// The one of a name, which is handed out now.
    pub fn of(&mut self, name: &Name) -> Ipv4Addr {
        self.asked += 1;
        let at = match self.order.get(name) {
            Some(at) => {
                self.names[*at].1 = self.asked;
                *at
            }
            None => self.take_for(name),
        };
        // The first is left out: as the network's own address it looks like none of a host's.
        Ipv4Addr::from_bits(STAND_INS.network().to_bits() + 1 + at as u32)
    }

    fn take_for(&mut self, name: &Name) -> usize {
        let entry = (name.clone(), self.asked);
        let longest_ago = || self.names.iter().enumerate().min_by_key(|(_, (_, asked))| *asked).map(|(at, _)| at);
        let at = match self.names.len() >= self.limit {
            true => longest_ago().unwrap_or_default(),
            false => self.names.len(),
        };
        match self.names.get_mut(at) {
            Some(taken) => {
                let (gone, _) = std::mem::replace(taken, entry);
                self.order.remove(&gone);
            }
            None => self.names.push(entry),
        }
        self.order.insert(name.clone(), at);
        at
    }

    /// The name that an address stands for.
    pub fn name_of(&self, address: IpAddr) -> Option<&Name> {
        let IpAddr::V4(v4) = address.to_canonical() else { return self.listed.get(&address) };
        if !STAND_INS.contains(&v4) {
            return self.listed.get(&IpAddr::V4(v4));
        }
        let at = (v4.to_bits() - STAND_INS.network().to_bits()).checked_sub(1)?;
        self.names.get(at as usize).map(|(name, _)| name)
    }
}

/// Where stand-ins and listed addresses are on loopback, where no translation leads to them: the same numbers below 127.
const ON_LOOPBACK: u8 = 127;
/// The second number of those that stand for the listed addresses, by their order.
const LISTED: u8 = 20;

/// All of loopback that may stand for something, of this run or of another.
pub const ON_LOOPBACK_NETS: [Ipv4Net; 2] = [
    Ipv4Net::new_assert(Ipv4Addr::new(ON_LOOPBACK, 18, 0, 0), 15),
    Ipv4Net::new_assert(Ipv4Addr::new(ON_LOOPBACK, LISTED, 0, 0), 16),
];

/// The address of loopback that stands for a stand-in or a listed address; `None` for all others.
pub fn on_loopback(address: IpAddr, listed: &[IpAddr]) -> Option<Ipv4Addr> {
    match address.to_canonical() {
        IpAddr::V4(v4) if STAND_INS.contains(&v4) => {
            let [_, b, c, d] = v4.octets();
            Some(Ipv4Addr::new(ON_LOOPBACK, b, c, d))
        }
        other => {
            let at = listed.iter().position(|one| *one == other)?;
            let [c, d] = u16::try_from(at).ok()?.to_be_bytes();
            Some(Ipv4Addr::new(ON_LOOPBACK, LISTED, c, d))
        }
    }
}

/// What an address of loopback stands for; `None` for what [`on_loopback`] never gives.
pub fn by_loopback(address: IpAddr, listed: &[IpAddr]) -> Option<IpAddr> {
    let IpAddr::V4(v4) = address.to_canonical() else { return None };
    let [a, b, c, d] = v4.octets();
    if a != ON_LOOPBACK {
        return None;
    }
    let [first, ..] = STAND_INS.network().octets();
    let stand_in = Ipv4Addr::new(first, b, c, d);
    match b {
        LISTED => listed.get(usize::from(u16::from_be_bytes([c, d]))).copied(),
        _ => Some(IpAddr::V4(stand_in)).filter(|_| STAND_INS.contains(&stand_in)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn each_name_has_its_own_and_keeps_it() {
        let listed: IpAddr = "11.22.33.9".parse().unwrap();
        let mut ins = StandIns::new([(listed, name("listed.test"))]);
        let first = ins.of(&name("a.test"));
        let second = ins.of(&name("b.test"));
        assert_eq!((first, second, ins.of(&name("a.test"))), ([198, 18, 0, 1].into(), [198, 18, 0, 2].into(), first));
        assert_eq!(ins.name_of(second.into()), Some(&name("b.test")));
        assert_eq!(ins.name_of(second.to_ipv6_mapped().into()), Some(&name("b.test")));
        assert_eq!(ins.name_of(listed), Some(&name("listed.test")));
        for never in ["198.18.0.0", "198.18.0.3", "198.19.255.255", "11.22.33.10", "2a00:1:2:3::9"] {
            assert_eq!(ins.name_of(never.parse().unwrap()), None, "{never}");
        }
    }

    #[test]
    fn who_was_asked_for_longest_ago_makes_room() {
        let mut ins = StandIns { limit: 2, ..StandIns::new([]) };
        let [a, b] = ["a.test", "b.test"].map(|text| ins.of(&name(text)));
        assert_eq!(ins.of(&name("a.test")), a);
        assert_eq!(ins.of(&name("c.test")), b);
        assert_eq!(ins.name_of(b.into()), Some(&name("c.test")));
        assert_eq!(ins.of(&name("b.test")), a, "a is the one that was asked for longest ago by now");
        assert_eq!((ins.names.len(), ins.order.len()), (2, 2));
    }

    #[test]
    fn what_stands_on_loopback_leads_back() {
        let listed: [IpAddr; 2] = ["11.22.33.9", "11.22.33.10"].map(|text| text.parse().unwrap());
        for (address, there) in
            [("198.18.0.1", "127.18.0.1"), ("198.19.255.254", "127.19.255.254"), ("11.22.33.10", "127.20.0.1")]
        {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(on_loopback(address, &listed).unwrap().to_string(), there);
            assert_eq!(by_loopback(there.parse().unwrap(), &listed), Some(address));
            assert!(ON_LOOPBACK_NETS.iter().any(|net| net.contains(&there.parse::<Ipv4Addr>().unwrap())));
        }
        for never in ["11.22.33.11", "198.20.0.1", "127.18.0.1", "::1"] {
            assert_eq!(on_loopback(never.parse().unwrap(), &listed), None, "{never}");
        }
        for never in ["127.20.0.2", "127.0.0.1", "127.17.0.1", "127.21.0.0", "11.18.0.1", "::1"] {
            assert_eq!(by_loopback(never.parse().unwrap(), &listed), None, "{never}");
        }
    }

    #[test]
    fn all_lie_in_the_range() {
        let last = STAND_INS.network().to_bits() + LIMIT as u32;
        assert!(STAND_INS.contains(&Ipv4Addr::from_bits(last)) && LIMIT < 1 << 17);
    }
}
