//! Addresses of names, kept for as long as their records allow (TTL; RFC 1035, 3.2.1). What is kept is an answer and no
//! judgement.

use super::Limits;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Names with their addresses, up to a number of names; the one that ends soonest makes room.
#[derive(Debug)]
pub struct Cache {
    names: RefCell<HashMap<String, Kept>>,
    most: usize,
    longest: Duration,
    addresses: usize,
}

#[derive(Debug)]
struct Kept {
    addrs: Vec<IpAddr>,
    until: Instant,
}

impl Cache {
    /// An empty cache within the limits.
    pub fn new(limits: &Limits) -> Cache {
        Cache {
            names: RefCell::default(),
            most: limits.cached_names,
            longest: limits.cached_for,
            addresses: limits.addresses,
        }
    }

    /// The addresses of a name, if there are any that may be used at `now`.
    pub fn get(&self, name: &str, now: Instant) -> Option<Vec<IpAddr>> {
        let names = self.names.borrow();
        names.get(name).filter(|kept| now < kept.until).map(|kept| kept.addrs.clone())
    }

    /// Keeps the addresses that a name was found to have when it was asked for at `asked`, for `ttl` from then on, in place
    /// of what was kept for it. More addresses than are ever judged are not worth their memory.
    pub fn keep(&self, name: &str, addrs: &[IpAddr], asked: Instant, ttl: Duration) {
        let mut names = self.names.borrow_mut();
        names.remove(name);
        if ttl.is_zero() || addrs.is_empty() || addrs.len() > self.addresses || self.most == 0 {
            return;
        }
        if names.len() >= self.most
            && let Some(first) = names.iter().min_by_key(|(_, kept)| kept.until).map(|(name, _)| name.clone())
        {
            names.remove(&first);
        }
        names.insert(name.to_owned(), Kept { addrs: addrs.to_vec(), until: asked + ttl.min(self.longest) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ADDR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(11, 22, 33, 44));

    fn cache(cached_names: usize) -> Cache {
        Cache::new(&Limits { cached_names, ..Limits::default() })
    }

    #[test]
    fn what_is_kept_ends_with_its_ttl_and_after_an_hour_at_latest() {
        let (cache, start) = (cache(8), Instant::now());
        for (name, ttl, last) in [("a.test", 1, 1), ("b.test", 3600, 3600), ("c.test", 86_400, 3600)] {
            cache.keep(name, &[ADDR], start, SECOND * ttl);
            let end = start + SECOND * last;
            assert_eq!(cache.get(name, end - Duration::from_millis(1)), Some(vec![ADDR]), "{name}");
            assert_eq!(cache.get(name, end), None, "{name}");
        }
    }

    #[test]
    fn nothing_is_kept_without_a_ttl_or_addresses_and_it_takes_the_place_of_what_was() {
        let (cache, now) = (cache(8), Instant::now());
        let many: Vec<IpAddr> = (0..=64).map(|last| IpAddr::from([11, 22, 33, last])).collect();
        for (addrs, ttl) in [(&[ADDR][..], 0), (&[], 60), (&many, 60)] {
            cache.keep("a.test", &[ADDR], now, SECOND * 60);
            assert!(cache.get("a.test", now).is_some());
            cache.keep("a.test", addrs, now, SECOND * ttl);
            assert_eq!(cache.get("a.test", now), None, "{} for {ttl} s", addrs.len());
        }
        cache.keep("a.test", &many[..64], now, SECOND);
        assert_eq!(cache.get("a.test", now).map(|addrs| addrs.len()), Some(64));
    }

    #[test]
    fn what_ends_soonest_makes_room() {
        let (cache, now) = (cache(3), Instant::now());
        for (name, ttl) in [("long.test", 60), ("short.test", 5), ("middle.test", 30)] {
            cache.keep(name, &[ADDR], now, SECOND * ttl);
        }
        // A name that is there takes nobody's place.
        cache.keep("middle.test", &[ADDR], now, SECOND * 40);
        assert!(cache.get("short.test", now).is_some());
        cache.keep("new.test", &[ADDR], now, SECOND);
        let there = |name| cache.get(name, now).is_some();
        assert_eq!(["long.test", "short.test", "middle.test", "new.test"].map(there), [true, false, true, true]);
        assert_eq!(cache.names.borrow().len(), 3);
    }

    #[test]
    fn a_cache_of_no_names_keeps_none() {
        let (cache, now) = (cache(0), Instant::now());
        cache.keep("a.test", &[ADDR], now, SECOND);
        assert_eq!(cache.get("a.test", now), None);
    }
}
