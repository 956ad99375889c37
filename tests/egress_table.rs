//! Every way to ask the proxy times every form of a host times every port, from one table, through a whole run (cases
//! N01 to N04 and N10): what left the box is what the policy admits, each refusal is on record once, and the resolver
//! was asked for admitted names alone.

mod common;

use common::{Ended, Fence};
use ringfence::ledger::record::{Body, Denial, Infrastructure};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use world::address::{PUBLIC4, PUBLIC4_B, PUBLIC6, RESOLVER4};
use world::{Origin, Packet, origin};

/// What is admitted beside the level's own list.
const ADMITTED: [(&str, &[u16]); 5] = [
    ("allowed.example.org", &[80, 443]),
    ("*.wild.example.org", &[80, 443]),
    ("ported.example.org:8080", &[8080]),
    ("11.22.33.44", &[80, 443]),
    ("[2a00:1:2:3::44]", &[80, 443]),
];

/// What a form of a host means to a reader who reads in one way only.
#[derive(Debug, Clone, Copy)]
enum Host {
    /// This name.
    Name(&'static str),
    /// This address.
    Address(IpAddr),
    /// None.
    Malformed,
    /// None to CONNECT; in a URL this name at the scheme's port, for the rest is a query.
    Query(&'static str),
}

const MAPPED: IpAddr = IpAddr::V6(Ipv4Addr::new(11, 22, 33, 44).to_ipv6_mapped());

const HOSTS: [(&[u8], Host); 39] = [
    (b"allowed.example.org", Host::Name("allowed.example.org")),
    (b"ALLOWED.Example.ORG", Host::Name("allowed.example.org")),
    (b"allowed.example.org.", Host::Name("allowed.example.org")),
    (b"a.wild.example.org", Host::Name("a.wild.example.org")),
    (b"a.b.c.wild.example.org", Host::Name("a.b.c.wild.example.org")),
    (b"ported.example.org", Host::Name("ported.example.org")),
    (b"11.22.33.44", Host::Address(IpAddr::V4(PUBLIC4))),
    (b"[2a00:1:2:3::44]", Host::Address(IpAddr::V6(PUBLIC6))),
    (b"[2A00:1:2:3:0:0:0:44]", Host::Address(IpAddr::V6(PUBLIC6))),
    (b"evil.example.net", Host::Name("evil.example.net")),
    (b"a.allowed.example.org", Host::Name("a.allowed.example.org")),
    (b"notallowed.example.org", Host::Name("notallowed.example.org")),
    (b"allowed.example.org.evil.example.net", Host::Name("allowed.example.org.evil.example.net")),
    (b"wild.example.org", Host::Name("wild.example.org")),
    (b"notwild.example.org", Host::Name("notwild.example.org")),
    (b"localhost", Host::Name("localhost")),
    (b"11.22.33.45", Host::Address(IpAddr::V4(PUBLIC4_B))),
    (b"127.0.0.1", Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST))),
    (b"[::1]", Host::Address(IpAddr::V6(Ipv6Addr::LOCALHOST))),
    (b"[::ffff:11.22.33.44]", Host::Address(MAPPED)),
    (b"evil.example.net?.wild.example.org", Host::Query("evil.example.net")),
    (b"", Host::Malformed),
    (b"allowed.example.org..", Host::Malformed),
    (b"[allowed.example.org]", Host::Malformed),
    (b"[[allowed.example.org]]", Host::Malformed),
    (b"*.wild.example.org", Host::Malformed),
    (b".wild.example.org", Host::Malformed),
    (b"a..wild.example.org", Host::Malformed),
    (b"evil.example.net\0.wild.example.org", Host::Malformed),
    (b"evil.example.net%00.wild.example.org", Host::Malformed),
    (b"evil.example.net\t.wild.example.org", Host::Malformed),
    (b"evil.example.net\r\nX: a.wild.example.org", Host::Malformed),
    (b"user@evil.example.net", Host::Malformed),
    (b"a.wild.example.org:80@evil.example.net", Host::Malformed),
    (b"evil.example.net\\@a.wild.example.org", Host::Malformed),
    (b"evil.example.net#.wild.example.org", Host::Malformed),
    (b"evil\xe3\x80\x82wild.example.org", Host::Malformed),
    (b"185999660", Host::Malformed),
    (b"013.026.041.054", Host::Malformed),
];

/// The port's text and what it means; the scheme's own, if any, where there is none.
const PORTS: [(&str, Option<Option<u16>>); 15] = [
    ("", Some(None)),
    (":80", Some(Some(80))),
    (":443", Some(Some(443))),
    (":8080", Some(Some(8080))),
    (":22", Some(Some(22))),
    (":25", Some(Some(25))),
    (":8443", Some(Some(8443))),
    (":65535", Some(Some(65535))),
    (":", None),
    (":0", None),
    (":65536", None),
    (":99999", None),
    (":+443", None),
    (":0443", None),
    (":443:443", None),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Connect,
    Get,
    Post,
    Upgrade,
    Ftp,
    Https,
    Socks,
}

const WAYS: [Way; 7] = [Way::Connect, Way::Get, Way::Post, Way::Upgrade, Way::Ftp, Way::Https, Way::Socks];

struct Row {
    way: Way,
    port: &'static str,
    target: Vec<u8>,
    expected: Expected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// The destination, and the status that its server gives.
    Reached(SocketAddr, u16),
    /// The policy says no: 403, on record with this host and port.
    Refused(String, u16),
    /// It can't be read: 400.
    Malformed,
}

impl Way {
    fn method(self) -> &'static str {
        match self {
            Way::Connect => "CONNECT",
            Way::Socks => "SOCKS5",
            Way::Post => "POST",
            Way::Get | Way::Upgrade | Way::Ftp | Way::Https => "GET",
        }
    }

    /// Whether it opens a tunnel.
    fn is_tunnel(self) -> bool {
        matches!(self, Way::Connect | Way::Socks)
    }

    /// Whether this way can say that port at all: SOCKS has 16 bits for it.
    fn can_say(self, port: &str) -> bool {
        self != Way::Socks
            || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|n| n.to_string() == port))
    }

    fn target(self, host: &[u8], port: &str) -> Vec<u8> {
        let (before, after) = match self {
            Way::Connect | Way::Socks => ("", ""),
            Way::Get | Way::Upgrade => ("http://", "/"),
            Way::Post => ("http://", "/echo"),
            Way::Ftp => ("ftp://", "/"),
            Way::Https => ("https://", "/"),
        };
        [before.as_bytes(), host, port.as_bytes(), after.as_bytes()].concat()
    }

    fn request(self, target: &[u8]) -> Vec<u8> {
        let rest = match self {
            Way::Socks => return socks_request(target),
            Way::Connect => "",
            Way::Post => "Connection: close\r\nContent-Length: 3\r\n",
            Way::Upgrade => "Connection: Upgrade, close\r\nUpgrade: websocket\r\n",
            Way::Get | Way::Ftp | Way::Https => "Connection: close\r\n",
        };
        let body = if self == Way::Post { "x=1" } else { "" };
        let head = format!(" HTTP/1.1\r\nHost: allowed.example.org\r\n{rest}\r\n{body}");
        [self.method().as_bytes(), b" ", target, head.as_bytes()].concat()
    }

    fn expected(self, host: Host, port: Option<Option<u16>>) -> Expected {
        let by_scheme = (!self.is_tunnel()).then_some(80);
        let (host, port) = match (self, host) {
            (Way::Ftp | Way::Https, _) => return Expected::Malformed,
            (Way::Connect | Way::Socks, Host::Query(_)) | (_, Host::Malformed) => return Expected::Malformed,
            (_, Host::Query(name)) => (Host::Name(name), by_scheme),
            (_, host) => (host, port.and_then(|port| port.or(by_scheme))),
        };
        let Some(port) = port else { return Expected::Malformed };
        let (text, address) = match host {
            Host::Name(name) => (name.to_owned(), IpAddr::V4(PUBLIC4)),
            Host::Address(address @ IpAddr::V4(_)) => (address.to_string(), address),
            Host::Address(address @ IpAddr::V6(_)) => (format!("[{address}]"), address),
            Host::Malformed | Host::Query(_) => unreachable!("handled above"),
        };
        let admits = |entry: &str| match entry.strip_prefix('*') {
            Some(suffix) => text.ends_with(suffix) && text != suffix[1..],
            None => entry.strip_suffix(":8080").unwrap_or(entry) == text,
        };
        if !ADMITTED.iter().any(|(entry, ports)| admits(entry) && ports.contains(&port)) {
            return Expected::Refused(text, port);
        }
        let plain_to_tls = !self.is_tunnel() && port == 443;
        Expected::Reached(SocketAddr::new(address, port), if plain_to_tls { 502 } else { 200 })
    }
}

fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    // What is refused alike is far apart, so that the record has each by itself.
    for (port, number) in PORTS {
        for (host, meaning) in HOSTS {
            for way in WAYS.into_iter().filter(|way| way.can_say(port)) {
                let target = way.target(host, port);
                rows.push(Row { way, port, expected: way.expected(meaning, number), target });
            }
        }
    }
    rows
}

/// A greeting and a request for a connection by name, in one piece.
fn socks_request(target: &[u8]) -> Vec<u8> {
    let colon = target.iter().rposition(|&byte| byte == b':').expect("a port");
    let (host, port) = (&target[..colon], std::str::from_utf8(&target[colon + 1..]).expect("digits"));
    let length = u8::try_from(host.len()).expect("a short host");
    let port: u16 = port.parse().expect("a port");
    [&[5, 1, 0, 5, 1, 0, 3, length], host, &port.to_be_bytes()].concat()
}

/// Sends each line's bytes to the proxy on a connection of its own and prints the status and the body's length.
const CLIENT: &str = r#"
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").rstrip("/").split(":")
for line in open("/tmp/rows"):
    request = bytes.fromhex(line)
    with socket.create_connection((host, int(port)), 20) as proxy:
        proxy.sendall(request)
        answer = b""
        if request[0] == 5:
            while len(answer) < 12 and (piece := proxy.recv(12 - len(answer))):
                answer += piece
            print({0: "200", 1: "400", 2: "403"}.get(answer[3], answer.hex()), len(answer) - 12, flush=True)
            continue
        while not (answer.startswith(b"HTTP/1.1 200") and request.startswith(b"CONNECT") and b"\r\n\r\n" in answer):
            piece = proxy.recv(65536)
            if not piece:
                break
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    print(head[9:12].decode(), len(body), flush=True)
"#;

fn run(fence: &Fence, rows: &[Row]) -> Ended {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    fence.world.write("/tmp/rows", rows.iter().map(|row| hex(row.way.request(&row.target))).collect::<String>(), 0o644);
    fence.world.write("/tmp/client.py", CLIENT, 0o644);
    let mut flags = vec!["--policy", "nist-high"];
    for (entry, _) in &ADMITTED {
        flags.extend(["--allow-host", entry]);
    }
    fence.run(&flags, "/usr/bin/python3 /tmp/client.py")
}

/// The proxy's records in their order.
enum Told<'a> {
    Denial(&'a Denial),
    Failure(&'a Infrastructure),
}

fn assert_told(row: &Row, told: Option<Told<'_>>) {
    let target = row.target.escape_ascii();
    match (&row.expected, told) {
        (Expected::Refused(host, port), Some(Told::Denial(denial))) => {
            let object = (denial.object.host.as_deref(), denial.object.port);
            assert_eq!(object, (Some(host.as_str()), Some(*port)), "{target} {denial:?}");
            let status = (row.way != Way::Socks).then_some(403);
            assert_eq!((denial.http_status, denial.count), (status, 1), "{target} {denial:?}");
            assert!(denial.object.addrs.is_empty(), "nothing was resolved: {denial:?}");
            assert_eq!(denial.operation, row.way.method(), "{target} {denial:?}");
        }
        (Expected::Malformed, Some(Told::Denial(denial))) => {
            let by_socks = row.way == Way::Socks;
            let status = (denial.rule.as_str(), denial.http_status, denial.count);
            assert_eq!(status, ("malformed", (!by_socks).then_some(400), 1), "{target} {denial:?}");
            let text = denial.object.text.as_deref().expect("what was sent");
            let start = if by_socks { r"\x05\x01\x00\x03" } else { row.way.method() };
            assert!(text.starts_with(start) && !text.contains('\n'), "{target} {denial:?}");
            assert_eq!(denial.operation == "SOCKS5", by_socks, "{target} {denial:?}");
        }
        (Expected::Reached(to, 502), Some(Told::Failure(failure))) => {
            assert_eq!((failure.operation.as_str(), failure.object.port), ("exchange", Some(to.port())), "{target}");
        }
        (Expected::Reached(..), None) => {}
        (_, told) => panic!("{target}: {:?}, {}", row.expected, told.is_some()),
    }
}

/// Each row has its answer, and each refusal and each failure its record, in their order.
fn assert_recorded(fence: &Fence, rows: &[Row]) {
    let ended = run(fence, rows);
    let answers: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(answers.len(), rows.len(), "{}", ended.said);
    for (row, answer) in rows.iter().zip(&answers) {
        let wanted = match &row.expected {
            Expected::Reached(_, status) => format!("{status} "),
            Expected::Refused(..) => "403 0".to_owned(),
            Expected::Malformed => "400 0".to_owned(),
        };
        assert!(answer.starts_with(&wanted), "{}: {answer}, not {wanted}", row.target.escape_ascii());
    }
    let mut records = ended.records.iter().filter_map(|record| match &record.body {
        Body::Denial(denial) => Some(Told::Denial(denial)),
        Body::Infrastructure(failure) => Some(Told::Failure(failure)),
        _ => None,
    });
    for row in rows {
        let silent = matches!(row.expected, Expected::Reached(_, 200));
        assert_told(row, if silent { None } else { records.next() });
    }
    assert!(records.next().is_none(), "a record that no attempt made");
    assert!(ended.seal().complete, "{:?}", ended.seal());
}

#[test]
fn every_way_times_every_host_times_every_port_has_one_verdict() {
    let fence = Fence::new();
    let resolver = &fence.internet.resolver;
    for (_, host) in HOSTS {
        match host {
            Host::Name("localhost") | Host::Malformed | Host::Address(_) => {}
            Host::Name(name) | Host::Query(name) => resolver.host(name, &[PUBLIC4.into()]),
        }
    }
    let ported = Origin::http(fence.world.outside(), PUBLIC4, 8080, origin::standard()).expect("an origin");
    // The vectors are live: every name that is refused below can be reached from the box.
    let names = HOSTS.into_iter().filter_map(|(_, host)| match host {
        Host::Name(name) | Host::Query(name) if name != "localhost" => Some(name),
        _ => None,
    });
    let urls: Vec<String> = names.flat_map(|name| ["", ":8080"].map(|port| format!("http://{name}{port}/"))).collect();
    let said = fence.as_nobody(&format!("curl -sS -m 5 {}", urls.join(" ")));
    assert_eq!(said.out.matches("hello from ").count(), urls.len(), "{said}");
    let asked_before = resolver.questions().len();
    let before = fence.world.packets();
    let requests_before = fence.internet.http.requests().len() + ported.requests().len();

    let rows = table();
    // A run for each port: what is refused alike many times within a second would be counted in one record.
    rows.chunk_by(|one, next| one.port == next.port).for_each(|rows| assert_recorded(&fence, rows));

    // What left the box, by destination, one connection an attempt.
    let mut expected: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for row in &rows {
        if let Expected::Reached(to, _) = row.expected {
            *expected.entry(to).or_default() += 1;
        }
    }
    // The last packets of a connection that the live vectors made may come late.
    let flow = |one: &Packet| (one.protocol, one.source_port, one.destination, one.destination_port);
    let old: Vec<_> = before.iter().map(flow).collect();
    let is_old = |packet: &Packet| old.contains(&flow(packet));
    let left = fence.world.packets().split_off(before.len());
    let mut flows: BTreeMap<SocketAddr, BTreeSet<u16>> = BTreeMap::new();
    for packet in left.iter().filter(|one| one.destination != IpAddr::V4(RESOLVER4) && !is_old(one)) {
        let port = packet.destination_port.expect("a packet with ports");
        assert_eq!(packet.protocol, 6, "{packet:?}");
        flows.entry(SocketAddr::new(packet.destination, port)).or_default().extend(packet.source_port);
    }
    let counts: BTreeMap<SocketAddr, usize> = flows.into_iter().map(|(to, ports)| (to, ports.len())).collect();
    assert_eq!(counts, expected);
    let plain = |to: &SocketAddr| to.ip().is_ipv4() && matches!(to.port(), 80 | 8080);
    let served = rows
        .iter()
        .filter(|row| matches!(&row.expected, Expected::Reached(to, 200) if !row.way.is_tunnel() && plain(to)));
    let requests = fence.internet.http.requests().len() + ported.requests().len() - requests_before;
    assert_eq!(requests, served.count(), "one accepted request is one upstream request");

    let asked: BTreeSet<String> = resolver.questions().split_off(asked_before).into_iter().map(|q| q.name).collect();
    let admitted: BTreeSet<String> =
        ["allowed", "a.wild", "a.b.c.wild", "ported"].map(|name| format!("{name}.example.org")).into();
    assert_eq!(asked, admitted, "over the whole run, probes included");
}
