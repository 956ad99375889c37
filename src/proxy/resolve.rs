//! One resolution of one admitted name: one A and one AAAA question, no search domains, no second look. What both gave is
//! kept for the shortest TTL of the records it is made of; neither a failure nor what one family gave beside the other's is.
//!
//! hickory carries the questions (retransmission, TCP after truncation, spoofing checks); the answers are read here.
//! A CNAME chain is followed inside the answer only. A name in the middle of it is never asked for, since nobody
//! admitted that name.

use super::Limits;
use super::cache::Cache;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::{DnsHandle, FirstAnswer};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{DnsRequestOptions, Query};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_resolver::{NameServerPool, PoolContext, TlsConfig};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Most names in a CNAME chain, the one asked for included.
const CHAIN_LIMIT: usize = 16;

/// How names are resolved: the host's own settings, read as values before privileges are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// The recursive resolvers, asked in this order: the next only when one can't be reached.
    pub nameservers: Vec<SocketAddr>,
    /// Names that are not asked for, in lower case without a trailing dot.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Domains that clients look for names in, in lower case without dots at their ends. Nothing is looked for in them here.
    pub search: Vec<String>,
    /// How long one resolver is waited for.
    pub timeout: Duration,
}

impl Dns {
    /// Reads the contents of resolv.conf(5) and hosts(5). Lines that are neither are passed over, as by the C
    /// library; of several lines with search domains the last counts, and `ndots` is not used.
    pub fn from_files(resolv_conf: &[u8], hosts: &[u8]) -> Dns {
        let mut dns = Dns {
            nameservers: Vec::new(),
            hosts: BTreeMap::new(),
            search: Vec::new(),
            timeout: Duration::from_secs(5),
        };
        for line in String::from_utf8_lossy(resolv_conf).lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let addr = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    dns.nameservers.extend(addr.map(|addr| SocketAddr::new(addr, 53)));
                }
                Some("search" | "domain") => {
                    let plain = |word: &str| word.trim_matches('.').to_ascii_lowercase();
                    dns.search = words.map(plain).filter(|domain| !domain.is_empty()).collect();
                }
                Some("options") => {
                    let seconds = words.find_map(|word| word.strip_prefix("timeout:"));
                    if let Some(seconds) = seconds.and_then(|text| text.parse::<u64>().ok()) {
                        // The bounds of resolv.conf(5).
                        dns.timeout = Duration::from_secs(seconds.clamp(1, 30));
                    }
                }
                _ => {}
            }
        }
        for line in String::from_utf8_lossy(hosts).lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(addr) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
                continue;
            };
            for name in words {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let addrs = dns.hosts.entry(name).or_default();
                if !addrs.contains(&addr) {
                    addrs.push(addr);
                }
            }
        }
        dns
    }
}

/// Why a name gave no addresses. None of these is a denial: the same name would have failed under `control`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The name exists without addresses, or not at all.
    #[error("the name has no address: {0}")]
    NoAddress(String),
    /// The resolver refused or failed.
    #[error("the resolver failed: {0}")]
    Failed(String),
    /// No resolver answered in time.
    #[error("no resolver answered in time")]
    Timeout,
    /// The host has no resolver, and its hosts file lacks the name.
    #[error("resolv.conf names no resolver")]
    NoResolver,
    /// It is not the name that was asked for, but the parent proxy's.
    #[error("the upstream proxy {parent}: {cause}")]
    Upstream {
        /// Its URL, without credentials.
        parent: String,
        /// Why its own name gave nothing.
        cause: Box<Unresolved>,
    },
}

impl Unresolved {
    /// The status that the client is given.
    pub fn status(&self) -> u16 {
        match self {
            Unresolved::Timeout => 504,
            Unresolved::Upstream { cause, .. } => cause.status(),
            _ => 502,
        }
    }
}

/// Addresses, each once, and how long they may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    addrs: Vec<IpAddr>,
    ttl: Duration,
}

/// Resolves names by the host's own settings.
pub struct Resolver {
    dns: Dns,
    cache: Cache,
    /// How long a resolution may take.
    limit: Duration,
    pools: Vec<NameServerPool<TokioRuntimeProvider>>,
    /// The resolver that answered last: a dead one is waited for once, not for every name.
    first: Cell<usize>,
}

impl Resolver {
    /// A resolver; nothing is sent yet.
    pub fn new(dns: Dns, limits: &Limits) -> Result<Resolver, NetError> {
        let mut pools = Vec::new();
        for server in &dns.nameservers {
            let mut options = ResolverOpts::default();
            options.timeout = dns.timeout;
            options.attempts = 0;
            options.num_concurrent_reqs = 1;
            let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for connection in &mut connections {
                connection.port = server.port();
            }
            let config = NameServerConfig::new(server.ip(), true, connections.to_vec());
            let context = Arc::new(PoolContext::new(options, TlsConfig::new()?));
            let provider = TokioRuntimeProvider::default();
            pools.push(NameServerPool::from_config([config], context, provider));
        }
        Ok(Resolver { dns, cache: Cache::new(limits), limit: limits.resolve, pools, first: Cell::new(0) })
    }

    /// The domains that clients look for names in.
    pub fn search(&self) -> &[String] {
        &self.dns.search
    }

    /// Whether the hosts file has this name, so that nobody is asked for it.
    pub fn is_listed(&self, name: &str) -> bool {
        self.dns.hosts.contains_key(name)
    }

    /// The addresses of `name` (lower case, no trailing dot): IPv6 first, each once, at least one.
    ///
    /// A name of the hosts file is answered from there alone, and one whose last answer has not expired from that.
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        if let Some(addrs) = self.dns.hosts.get(name) {
            return Ok(addrs.clone());
        }
        let asked = Instant::now();
        if let Some(addrs) = self.cache.get(name, asked) {
            return Ok(addrs);
        }
        let mut query = Name::from_ascii(name).map_err(|e| Unresolved::Failed(e.to_string()))?;
        query.set_fqdn(true);
        let both = async { tokio::join!(self.ask(&query, RecordType::AAAA), self.ask(&query, RecordType::A)) };
        let (v6, v4) = tokio::time::timeout(self.limit, both).await.map_err(|_| Unresolved::Timeout)?;
        let found = match (v6, v4) {
            (Ok(v6), Ok(v4)) => {
                let mut addrs = v6.addrs;
                addrs.extend(v4.addrs.into_iter().filter(|addr| !addrs.contains(addr)).collect::<Vec<_>>());
                Found { addrs, ttl: v6.ttl.min(v4.ttl) }
            }
            (Ok(found), Err(Unresolved::NoAddress(_))) | (Err(Unresolved::NoAddress(_)), Ok(found)) => found,
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => return Ok(found.addrs),
            // What says more than "no such record" is the cause.
            (Err(Unresolved::NoAddress(_)), Err(cause)) | (Err(cause), Err(_)) => return Err(cause),
        };
        self.cache.keep(name, &found.addrs, asked, found.ttl);
        Ok(found.addrs)
    }

    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Found, Unresolved> {
        let mut outcome = Err(Unresolved::NoResolver);
        let first = self.first.get();
        for step in 0..self.pools.len() {
            let at = (first + step) % self.pools.len();
            let query = Query::query(name.clone(), kind);
            let answer = self.pools[at].lookup(query, DnsRequestOptions::default()).first_answer().await;
            let unreached = matches!(answer, Err(NetError::Timeout | NetError::Io(_) | NetError::NoConnections));
            outcome = match answer {
                Ok(response) => addresses(name, kind, &response.answers),
                Err(e) if e.is_no_records_found() => Err(Unresolved::NoAddress(short(&e))),
                Err(NetError::Timeout) => Err(Unresolved::Timeout),
                Err(e) => Err(Unresolved::Failed(short(&e))),
            };
            if !unreached {
                self.first.set(at);
                break;
            }
        }
        outcome
    }
}

/// The cause of an error without the question, which the record holds already.
fn short(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => none.response_code.to_string(),
        other => other.to_string(),
    }
}

/// The addresses that an answer gives for `name`, through the CNAME chain inside it, with the shortest TTL on the way.
/// Records of other names are passed over.
fn addresses(name: &Name, kind: RecordType, answers: &[Record]) -> Result<Found, Unresolved> {
    let (mut name, mut ttl) = (name.clone(), u32::MAX);
    for _ in 0..CHAIN_LIMIT {
        let own = || answers.iter().filter(|r| r.dns_class == DNSClass::IN && r.name == name);
        let mut addrs: Vec<IpAddr> = Vec::new();
        for record in own().filter(|r| r.record_type() == kind) {
            let addr = record.data.ip_addr();
            ttl = ttl.min(seconds(record));
            addrs.extend(addr.filter(|addr| !addrs.contains(addr)));
        }
        if !addrs.is_empty() {
            return Ok(Found { addrs, ttl: Duration::from_secs(ttl.into()) });
        }
        let next = own().find_map(|r| match &r.data {
            RData::CNAME(target) => Some((target.0.clone(), seconds(r))),
            _ => None,
        });
        match next {
            Some((next, alias)) => (name, ttl) = (next, ttl.min(alias)),
            None => return Err(Unresolved::NoAddress("no record of the name".to_owned())),
        }
    }
    Err(Unresolved::NoAddress("the CNAME chain has a loop or more than 16 names".to_owned()))
}

/// A record's TTL in seconds; one with its first bit set is none (RFC 2181, 8).
fn seconds(record: &Record) -> u32 {
    i32::try_from(record.ttl).map_or(0, i32::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::rdata::{A, CNAME};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn a(owner: &str, addr: [u8; 4]) -> Record {
        Record::from_rdata(name(owner), 60, RData::A(A(addr.into())))
    }

    fn cname(owner: &str, target: &str) -> Record {
        Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(target))))
    }

    fn read(answers: &[Record]) -> Result<Vec<IpAddr>, Unresolved> {
        addresses(&name("allowed.test."), RecordType::A, answers).map(|found| found.addrs)
    }

    #[test]
    fn the_shortest_ttl_of_the_records_that_are_used_counts() {
        let ttl = |seconds: [u32; 5]| {
            let mut answers = [
                a("end.test.", [11, 22, 33, 44]),
                a("end.test.", [11, 22, 33, 45]),
                cname("middle.test.", "end.test."),
                cname("allowed.test.", "middle.test."),
                a("other.test.", [11, 22, 33, 44]),
            ];
            answers.iter_mut().zip(seconds).for_each(|(record, seconds)| record.ttl = seconds);
            addresses(&name("allowed.test."), RecordType::A, &answers).unwrap().ttl.as_secs()
        };
        assert_eq!(ttl([40, 50, 60, 70, 1]), 40);
        assert_eq!(ttl([50, 40, 60, 70, 1]), 40);
        assert_eq!(ttl([50, 60, 40, 70, 0]), 40);
        assert_eq!(ttl([50, 60, 70, 40, 1]), 40);
        assert_eq!(ttl([50, 60, 0, 70, 80]), 0);
        assert_eq!(ttl([50, 60, 70, 1 << 31, 80]), 0);
        assert_eq!(ttl([(1 << 31) - 1; 5]), (1 << 31) - 1);
    }

    #[test]
    fn a_chain_is_followed_inside_the_answer_in_any_order() {
        let answers = [
            a("end.test.", [11, 22, 33, 44]),
            cname("middle.test.", "end.test."),
            cname("Allowed.test.", "middle.test."),
        ];
        assert_eq!(read(&answers), Ok(vec![IpAddr::from([11, 22, 33, 44])]));
    }

    #[test]
    fn records_of_other_names_and_loops_give_nothing() {
        for answers in [
            vec![],
            vec![a("other.test.", [11, 22, 33, 44])],
            vec![cname("allowed.test.", "elsewhere.test.")],
            vec![cname("allowed.test.", "b.test."), cname("b.test.", "allowed.test.")],
            vec![cname("allowed.test.", "allowed.test.")],
        ] {
            assert!(matches!(read(&answers), Err(Unresolved::NoAddress(_))), "{answers:?}");
        }
    }

    #[test]
    fn the_hosts_own_files_are_read_as_the_c_library_reads_them() {
        let dns = Dns::from_files(
            b"# comment\ndomain old.test\nsearch Corp.test. b.test\nnameserver 11.22.33.1\nnameserver 2a00:1:2:3::1\nnameserver nonsense\n\
              options ndots:5 timeout:2\n",
            b"127.0.0.1 localhost\n::1 localhost ip6-localhost # six\n11.22.33.9 Mirror.Test. mirror\nx y\n",
        );
        assert_eq!(dns.nameservers, ["11.22.33.1:53".parse().unwrap(), "[2a00:1:2:3::1]:53".parse().unwrap()]);
        assert_eq!(dns.timeout, Duration::from_secs(2));
        assert_eq!(dns.search, ["corp.test", "b.test"]);
        assert_eq!(dns.hosts["mirror.test"], ["11.22.33.9".parse::<IpAddr>().unwrap()]);
        assert_eq!(dns.hosts["localhost"].len(), 2);
        assert!(!dns.hosts.contains_key("y"));
    }
}
