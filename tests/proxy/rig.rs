//! A closed world on loopback: a scripted resolver, recording origins, a proxy in a thread of its own, and clients
//! that send bytes.

use ringfence::ledger::record::{Denial, Infrastructure};
use ringfence::policy::{AddressRules, Allowlist, Entry};
use ringfence::proxy::{Dns, Limits, ProxyError, ProxySpec, Recorder, Unrecorded, run};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than anything here takes on a busy machine; reached only by a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the resolver answers.
#[derive(Clone)]
pub enum Answer {
    /// Records: owner, type and data in presentation form (`A`, `AAAA`, `CNAME`).
    Records(Vec<(&'static str, &'static str, String)>),
    /// Only a response code.
    Code(u8),
    /// Nothing ever.
    Silence,
}

/// No record and no error.
pub fn empty() -> Answer {
    Answer::Records(Vec::new())
}

/// Records of the name asked for, those of the question's type alone.
pub fn addrs(addrs: &[&str]) -> Answer {
    let record = |a: &&str| {
        let kind = if a.contains(':') { "AAAA" } else { "A" };
        ("", kind, (*a).to_owned())
    };
    Answer::Records(addrs.iter().map(record).collect())
}

/// A question as the resolver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The transaction: retransmissions share it.
    pub id: u16,
    /// The name, without the last dot.
    pub name: String,
    /// `A` or `AAAA`, else the number.
    pub kind: String,
}

type Script = dyn Fn(&str, &str, usize) -> Answer + Send + Sync;

/// A resolver that answers by a script: name, type, and how often this question came before.
#[derive(Clone)]
pub struct Resolver {
    pub addr: SocketAddr,
    log: Arc<Mutex<Vec<Question>>>,
}

impl Resolver {
    pub fn start(script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static) -> Resolver {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(addr).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let (log_udp, script_udp) = (log.clone(), script.clone());
        std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut packet) {
                if let Some(mut answer) = respond(&packet[..length], &log_udp, &*script_udp) {
                    if answer.len() > 1232 {
                        // TC, and no records: the question comes again by TCP.
                        answer.truncate(12);
                        answer[2] |= 2;
                        answer[6..12].fill(0);
                        answer.extend_from_slice(&packet[12..question_end(&packet)]);
                    }
                    udp.send_to(&answer, from).unwrap();
                }
            }
        });
        let log_tcp = log.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let (log, script) = (log_tcp.clone(), script.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut length = [0; 2];
                    while stream.read_exact(&mut length).is_ok() {
                        let mut packet = vec![0; u16::from_be_bytes(length).into()];
                        stream.read_exact(&mut packet).unwrap();
                        if let Some(answer) = respond(&packet, &log, &*script) {
                            let length = u16::try_from(answer.len()).unwrap();
                            stream.write_all(&length.to_be_bytes()).unwrap();
                            stream.write_all(&answer).unwrap();
                        }
                    }
                });
            }
        });
        Resolver { addr, log }
    }

    /// Every question so far, retransmissions left out.
    pub fn questions(&self) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        for question in self.log.lock().unwrap().iter() {
            if !seen.contains(question) {
                seen.push(question.clone());
            }
        }
        seen.into_iter().map(|q| (q.name, q.kind)).collect()
    }

    /// The names asked for, each once, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.questions().into_iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn question_end(packet: &[u8]) -> usize {
    let mut at = 12;
    while packet[at] != 0 {
        at += usize::from(packet[at]) + 1;
    }
    at + 5
}

fn respond(packet: &[u8], log: &Mutex<Vec<Question>>, script: &Script) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..end]).into_owned());
        at = end;
    }
    let kind = match u16::from_be_bytes([packet[at + 1], packet[at + 2]]) {
        1 => "A".to_owned(),
        28 => "AAAA".to_owned(),
        other => other.to_string(),
    };
    let question = Question {
        id: u16::from_be_bytes([packet[0], packet[1]]),
        name: labels.join("."),
        kind,
    };
    let before = {
        let mut log = log.lock().unwrap();
        let same = |q: &&Question| q.name == question.name && q.kind == question.kind;
        let mut ids: Vec<u16> = log.iter().filter(same).map(|q| q.id).collect();
        ids.retain(|id| *id != question.id);
        ids.sort_unstable();
        ids.dedup();
        log.push(question.clone());
        ids.len()
    };
    let (code, records) = match script(&question.name, &question.kind, before) {
        Answer::Silence => return None,
        Answer::Code(code) => (code, Vec::new()),
        Answer::Records(records) => (0, records),
    };
    let mut answer = packet[..2].to_vec();
    answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(&packet[12..at + 5]);
    let mut count: u16 = 0;
    for (owner, kind, data) in records {
        // As a resolver does: the chain goes with either type, addresses with their own.
        if kind != "CNAME" && kind != question.kind {
            continue;
        }
        count += 1;
        match owner {
            "" => answer.extend_from_slice(&[0xc0, 12]),
            owner => wire_name(&mut answer, owner),
        }
        let (number, data): (u16, Vec<u8>) = match kind {
            "A" => (1, data.parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec()),
            "AAAA" => (28, data.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()),
            _ => {
                let mut name = Vec::new();
                wire_name(&mut name, &data);
                (5, name)
            }
        };
        answer.extend_from_slice(&number.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, 0]);
        answer.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend_from_slice(&data);
    }
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    Some(answer)
}

fn wire_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}

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
        let (recorded, timeout) = self
            .0
            .1
            .wait_timeout_while(recorded, PATIENCE, |r| !until(&r.denials))
            .unwrap();
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
    async fn denial(&self, denial: Denial) -> Result<(), Unrecorded> {
        self.write(|r| r.denials.push(denial)).await
    }

    async fn infrastructure(&self, failure: Infrastructure) -> Result<(), Unrecorded> {
        self.write(|r| r.failures.push(failure)).await
    }

    async fn attend(&self) -> Unrecorded {
        std::future::pending().await
    }
}

/// A proxy and what it touches.
pub struct World {
    pub proxy: SocketAddr,
    pub resolver: Resolver,
    pub records: Records,
    pub ended: JoinHandle<Result<Infallible, ProxyError>>,
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
pub fn world(
    entries: &[String],
    script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static,
) -> World {
    world_with(entries, limits(), script)
}

pub fn world_with(
    entries: &[String],
    limits: Limits,
    script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static,
) -> World {
    let resolver = Resolver::start(script);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let records = Records::default();
    let spec = spec(entries, &resolver, limits);
    let recorder = records.clone();
    let ended = std::thread::spawn(move || run(listener, spec, recorder));
    World {
        proxy,
        resolver,
        records,
        ended,
    }
}

pub fn spec(entries: &[String], resolver: &Resolver, limits: Limits) -> ProxySpec {
    ProxySpec {
        allowlist: Allowlist::from_entries(entries.iter().map(|e| Entry::parse(e).unwrap())),
        address_rules: AddressRules {
            trusted_ranges: vec!["127.0.0.1/32".parse().unwrap()],
            own_addresses: Vec::new(),
        },
        dns: Dns {
            nameservers: vec![resolver.addr],
            hosts: BTreeMap::from([(
                "hosts-file.test".to_owned(),
                vec![IpAddr::from([127, 0, 0, 1])],
            )]),
            timeout: Duration::from_secs(2),
        },
        limits,
    }
}

impl World {
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

/// A server on loopback that logs every connection's bytes.
pub struct Origin {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// An HTTP server: one request a connection, each answered by `respond`.
    pub fn http(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Origin {
        Origin::start("127.0.0.1:0", move |stream, log| {
            let request = read_request(stream);
            log(&request);
            stream.write_all(respond(&request).as_bytes()).ok();
        })
    }

    /// An HTTP server that answers `200 ok`.
    pub fn plain() -> Origin {
        Origin::http(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned())
    }

    /// A server that sends back what it gets.
    pub fn echo() -> Origin {
        Origin::start("127.0.0.1:0", |stream, log| {
            log("connection");
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                if stream.write_all(&piece[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// A server that nothing may reach.
    pub fn sink(addr: &str) -> Origin {
        Origin::start(addr, |_, log| log("connection"))
    }

    pub fn start(
        addr: &str,
        serve: impl Fn(&mut TcpStream, &dyn Fn(&str)) + Send + Sync + 'static,
    ) -> Origin {
        let listener = TcpListener::bind(addr).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, serve) = (log.clone(), serve.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    serve(&mut stream, &|text| log.lock().unwrap().push(text.to_owned()));
                });
            }
        });
        Origin { port, seen }
    }

    /// What came, a text for each connection.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Reads up to an empty line, or to the end.
pub fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        bytes.push(byte[0]);
    }
    bytes
}

/// Reads one request, head and body, exactly as it came.
pub fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = read_head(stream);
    let mut byte = [0];
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    if let Some(length) = length {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).ok();
        bytes.extend_from_slice(&body);
    } else if head.contains("transfer-encoding: chunked") {
        while !bytes.ends_with(b"0\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            bytes.push(byte[0]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
