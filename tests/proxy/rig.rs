//! A closed world on loopback: a scripted resolver, recording origins, a proxy in a thread of its own, and clients
//! that send bytes.

pub use crate::origin::{Origin, read_head, read_request, reset_at_close};
pub use crate::resolver::{Answer, Resolver, addrs, empty, lasting};

use ringfence::ledger::record::{Denial, Infrastructure};
use ringfence::policy::{AddressRules, Allowlist, Authority, Entry, Verdict};
use ringfence::proxy::record::Connection;
use ringfence::proxy::{Dns, Limits, Listeners, ProxyError, ProxySpec, Recorder, Unrecorded, run};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than anything here takes on a busy machine; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the proxy recorded, and a gate that holds records back.
#[derive(Clone, Default)]
pub struct Records(Arc<(Mutex<Recorded>, Condvar)>);

#[derive(Default)]
struct Recorded {
    denials: Vec<Denial>,
    failures: Vec<Infrastructure>,
    /// Records wait while this is set.
    held: bool,
    /// Records fail while this is set.
    broken: bool,
}

impl Records {
    pub fn denials(&self) -> Vec<Denial> {
        self.0.0.lock().unwrap().denials.clone()
    }

    pub fn failures(&self) -> Vec<Infrastructure> {
        self.0.0.lock().unwrap().failures.clone()
    }

    /// Rule and reason of each denial.
    pub fn rules(&self) -> Vec<(String, String)> {
        self.denials().into_iter().map(|d| (d.rule, d.reason)).collect()
    }

    pub fn hold(&self, held: bool) {
        self.0.0.lock().unwrap().held = held;
        self.0.1.notify_all();
    }

    pub fn fail(&self) {
        self.0.0.lock().unwrap().broken = true;
    }

    /// Waits for a state of the denials.
    pub fn wait(&self, until: impl Fn(&[Denial]) -> bool) {
        let recorded = self.0.0.lock().unwrap();
        let (recorded, timeout) = self.0.1.wait_timeout_while(recorded, PATIENCE, |r| !until(&r.denials)).unwrap();
        assert!(!timeout.timed_out(), "{:?}", recorded.denials);
    }

    async fn write(&self, put: impl FnOnce(&mut Recorded)) -> Result<(), Unrecorded> {
        {
            let mut recorded = self.0.0.lock().unwrap();
            if recorded.broken {
                return Err(Unrecorded::Closed);
            }
            put(&mut recorded);
            self.0.1.notify_all();
        }
        while self.0.0.lock().unwrap().held {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Recorder for Records {
    async fn denial(&self, denial: Denial, _on: Option<Connection>) -> Result<(), Unrecorded> {
        self.write(|r| r.denials.push(denial)).await
    }

    async fn infrastructure(&self, failure: Infrastructure) -> Result<(), Unrecorded> {
        self.write(|r| r.failures.push(failure)).await
    }

    async fn attend(&self) -> Unrecorded {
        std::future::pending().await
    }

    async fn asked_to_end(&self) {
        std::future::pending().await
    }

    async fn free_to_admit(&self) {}

    async fn settled(&self) {}
}

/// A proxy and what it touches.
pub struct World {
    pub proxy: SocketAddr,
    pub resolver: Resolver,
    pub records: Records,
    pub ended: JoinHandle<Result<(), ProxyError>>,
    pub _asked: Asked,
}

/// The resolver is asked about admitted names only (case N13): each test is held to it when its world ends.
pub struct Asked {
    resolver: Resolver,
    allowlist: Allowlist,
}

impl Asked {
    pub fn new(resolver: &Resolver, allowlist: &Allowlist) -> Asked {
        Asked { resolver: resolver.clone(), allowlist: allowlist.clone() }
    }

    fn admits(&self, name: &str) -> bool {
        let Ok(authority) = Authority::parse_with_default(name.as_bytes(), 443) else { return false };
        match self.allowlist.judge(&authority) {
            Verdict::Admitted { .. } => true,
            // At another port.
            Verdict::Refused { rule, .. } => rule == "port",
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let names = self.resolver.names();
            assert!(names.iter().all(|name| self.admits(name)), "no policy admits one of {names:?}");
        }
    }
}

/// Deadlines that a test can wait out.
pub fn limits() -> Limits {
    Limits {
        head: Duration::from_secs(5),
        resolve: Duration::from_secs(5),
        connect: Duration::from_secs(5),
        idle: PATIENCE,
        ..Limits::default()
    }
}

/// A proxy that admits `entries`, with 127.0.0.1 standing for a public address and every other address judged as it
/// is.
pub fn world(entries: &[String], script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static) -> World {
    world_with(entries, limits(), script)
}

pub fn world_with(
    entries: &[String],
    limits: Limits,
    script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static,
) -> World {
    let resolver = Resolver::start(script);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = spec(entries, &resolver, limits);
    World::start(listener, resolver, spec)
}

pub fn spec(entries: &[String], resolver: &Resolver, limits: Limits) -> ProxySpec {
    ProxySpec {
        shadow: false,
        allowlist: Allowlist::from_entries(entries.iter().map(|e| Entry::parse(e).unwrap())),
        address_rules: AddressRules {
            trusted_ranges: vec!["127.0.0.1/32".parse().unwrap()],
            own_addresses: Vec::new(),
        },
        dns: Dns {
            nameservers: vec![resolver.addr],
            hosts: BTreeMap::from([("hosts-file.test".to_owned(), vec![IpAddr::from([127, 0, 0, 1])])]),
            search: Vec::new(),
            timeout: Duration::from_secs(2),
        },
        upstream: None,
        nonce: None,
        limits,
    }
}

impl World {
    /// Serves at these listeners.
    pub fn start(at: impl Into<Listeners>, resolver: Resolver, spec: ProxySpec) -> World {
        let at = at.into();
        let proxy = at.proxy.local_addr().unwrap();
        let records = Records::default();
        let recorder = records.clone();
        let asked = Asked::new(&resolver, &spec.allowlist);
        let serving = std::thread::Builder::new().name("proxy".to_owned());
        let ended = serving.spawn(move || run(at, spec, recorder)).unwrap();
        World { proxy, resolver, records, ended, _asked: asked }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes, then an end, and takes everything that comes back.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_ref()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn connect_to(&self, target: &str) -> String {
        self.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))
    }

    pub fn get(&self, url: &str) -> String {
        self.send(format!("GET {url} HTTP/1.1\r\nHost: x.test\r\n\r\n"))
    }
}

/// The status of an answer, 0 where there is none.
pub fn status(answer: &str) -> u16 {
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}
