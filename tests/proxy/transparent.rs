//! Tools that ask no proxy: what they are answered for names, and what comes of their connections.

use crate::rig::*;
use ringfence::policy::Name;
use ringfence::proxy::transparent::{Caught, Told};
use ringfence::proxy::{Limits, Listeners};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use world::hello::{client_hello, records};

/// A proxy that catches connections to these ports, and its resolver.
struct Catching {
    world: World,
    resolver: SocketAddr,
    ports: Vec<(u16, u16)>,
}

const A: u16 = 1;
const AAAA: u16 = 28;
const LISTED: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 9);

fn catching(
    entries: &[String],
    ports: &[u16],
    limits: Limits,
    script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static,
) -> Catching {
    let resolver = Resolver::start(script);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = spec(entries, &resolver, limits);
    spec.dns.search = vec!["corp.test".to_owned()];
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let stub = tcp.local_addr().unwrap();
    let listeners: Vec<(u16, TcpListener)> =
        ports.iter().map(|port| (*port, TcpListener::bind("0.0.0.0:0").unwrap())).collect();
    let ports = listeners.iter().map(|(port, at)| (*port, at.local_addr().unwrap().port())).collect();
    let caught = Caught {
        resolvers: vec![(UdpSocket::bind(stub).unwrap(), tcp)],
        ports: listeners,
        told: Told::ByDestination,
        listed: vec![(LISTED.into(), Name::parse(b"allowed.test").unwrap())],
    };
    let world = World::start(Listeners { proxy, caught: Some(caught) }, resolver, spec);
    Catching { world, resolver: stub, ports }
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    let head = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    head.into_iter().chain(labels).chain([0]).chain(kind.to_be_bytes()).chain([0, 1]).collect()
}

/// The response code and the addresses of an answer.
fn read(answer: &[u8]) -> (u8, Vec<Ipv4Addr>) {
    assert_eq!(answer[..2], [7, 9], "{answer:?}");
    let count = usize::from(answer[7]);
    let addresses = answer[answer.len() - 16 * count..].chunks_exact(16);
    (answer[3] & 0xf, addresses.map(|one| Ipv4Addr::new(one[12], one[13], one[14], one[15])).collect())
}

impl Catching {
    fn ask(&self, message: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(message, self.resolver).unwrap();
        let mut answer = [0; 2048];
        let (length, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!(from, self.resolver);
        answer[..length].to_vec()
    }

    fn lookup(&self, name: &str, kind: u16) -> (u8, Vec<Ipv4Addr>) {
        read(&self.ask(&question(name, kind)))
    }

    /// A connection to an address and a port, as the observer leads it.
    fn connect(&self, address: Ipv4Addr, port: u16) -> TcpStream {
        let [_, b, c, d] = address.octets();
        let there = match address {
            LISTED => Ipv4Addr::new(127, 20, 0, 0),
            _ => Ipv4Addr::new(127, b, c, d),
        };
        let (_, arrival) = self.ports.iter().find(|(asked, _)| *asked == port).unwrap();
        let stream = TcpStream::connect((there, *arrival)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What comes back on one, to its end or its reset.
    fn said(&self, address: Ipv4Addr, port: u16, bytes: &[u8]) -> Result<String, ErrorKind> {
        let mut stream = self.connect(address, port);
        stream.write_all(bytes).map_err(|error| error.kind())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(|error| error.kind())?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn allowed(port: u16) -> Vec<String> {
    vec![format!("allowed.test:{port}"), format!("*.wild.test:{port}")]
}

#[test]
fn admitted_names_are_answered_by_addresses_of_their_own_and_nothing_is_forwarded() {
    let fence = catching(&allowed(80), &[80], limits(), |name, kind, _| match (name, kind) {
        ("absent.wild.test", _) => Answer::Code(3),
        ("broken.wild.test", _) => Answer::Code(2),
        ("private.wild.test", "A") => addrs(&["10.0.0.5"]),
        ("mixed.wild.test", "A") => addrs(&["127.0.0.1", "10.0.0.5"]),
        (_, "A") => addrs(&["127.0.0.1"]),
        _ => empty(),
    });
    let first = Ipv4Addr::new(198, 18, 0, 1);
    assert_eq!(fence.lookup("allowed.test", A), (0, vec![first]));
    assert_eq!(fence.lookup("Allowed.Test", A), (0, vec![first]), "one name has one");
    assert_eq!(fence.lookup("allowed.test", AAAA), (0, vec![]), "there is one of the other kind");
    assert_eq!(fence.lookup("a.wild.test", A), (0, vec![Ipv4Addr::new(198, 18, 0, 2)]));
    // A search domain behind an admitted name is no attempt on anything.
    assert_eq!(fence.lookup("allowed.test.corp.test", A), (3, vec![]));
    assert!(fence.world.records.denials().is_empty());

    let refused = [
        ("evil.test", A, "default-deny", "not_allowed", "A"),
        ("evil.test.corp.test", AAAA, "default-deny", "not_allowed", "AAAA"),
        ("wild.test", A, "default-deny", "not_allowed", "A"),
        ("allowed.test", 16, "dns-type", "type_not_served", "TXT"),
        ("allowed.test", 65, "dns-type", "type_not_served", "HTTPS"),
        ("secret.evil.test", 16, "dns-type", "type_not_served", "TXT"),
        ("private.wild.test", A, "private-range", "denied_address", "A"),
        ("mixed.wild.test", AAAA, "private-range", "denied_address", "AAAA"),
        ("_sip.allowed.test", A, "default-deny", "not_allowed", "A"),
        ("al lowed.test", A, "malformed", "space", "A"),
        ("10.0.0.5", A, "malformed", "numeric_name", "A"),
    ];
    for (at, (name, kind, rule, reason, text)) in refused.into_iter().enumerate() {
        assert_eq!(fence.lookup(name, kind), (5, vec![]), "{name}");
        let denials = fence.world.records.denials();
        assert_eq!(denials.len(), at + 1, "{name}");
        let denial = &denials[at];
        assert_eq!((denial.operation.as_str(), denial.object.host.as_deref()), ("lookup", Some(name)));
        assert_eq!((denial.rule.as_str(), denial.object.text.as_deref()), (rule, Some(text)), "{name}");
        if rule != "malformed" {
            assert_eq!(denial.reason, reason, "{name}");
        }
    }
    for (name, code) in [("absent.wild.test", 3), ("broken.wild.test", 2)] {
        assert_eq!(fence.lookup(name, A), (code, vec![]), "{name}");
    }
    let failures: Vec<_> =
        fence.world.records.failures().into_iter().map(|one| (one.operation, one.object.host)).collect();
    let failed = |name: &str| ("lookup".to_owned(), Some(name.to_owned()));
    assert_eq!(failures, [failed("absent.wild.test"), failed("broken.wild.test")]);
    // [`Asked`] holds the resolver's log against the list at the world's end.
    assert!(!fence.world.resolver.names().iter().any(|name| name.contains("evil") || name.contains("corp")));
}

#[test]
fn what_is_no_question_is_on_record_and_long_conversations_are_served() {
    let fence = catching(&allowed(80), &[80], limits(), |_, kind, _| match kind {
        "A" => addrs(&["127.0.0.1"]),
        _ => empty(),
    });
    let good = question("allowed.test", A);
    let two = [&good[..5], &[2], &good[6..]].concat();
    assert_eq!(read(&fence.ask(&two)), (1, vec![]));
    let update = [&good[..2], &[0x28], &good[3..]].concat();
    assert_eq!(read(&fence.ask(&update)).0, 4);
    let reasons: Vec<String> = fence.world.records.denials().into_iter().map(|denial| denial.reason).collect();
    assert_eq!(reasons, ["dns_question_count", "dns_opcode"]);

    let mut stream = TcpStream::connect(fence.resolver).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for (name, code) in [("allowed.test", 0), ("evil.test", 5), ("allowed.test", 0)] {
        let message = question(name, A);
        stream.write_all(&[&(message.len() as u16).to_be_bytes()[..], &message].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(read(&answer).0, code, "{name}");
    }
    // An answer is none of its: it is on record, and gets none itself.
    let mut response = good.clone();
    response[2] |= 0x80;
    stream.write_all(&[&(response.len() as u16).to_be_bytes()[..], &response].concat()).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(fence.world.records.denials().last().unwrap().reason, "no_question");
}

#[test]
fn a_connection_is_judged_by_the_host_that_its_client_names() {
    let origin = Origin::plain();
    let port = origin.port;
    let fence = catching(&allowed(port), &[port], limits(), |_, kind, _| match kind {
        "A" => addrs(&["127.0.0.1"]),
        _ => empty(),
    });
    let (_, addresses) = fence.lookup("allowed.test", A);
    let get = |host: &str| format!("GET /x HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
    let answer = fence.said(addresses[0], port, get("allowed.test").as_bytes()).unwrap();
    assert_eq!(status(&answer), 200, "{answer}");
    assert_eq!(origin.seen(), [format!("GET /x HTTP/1.1\r\nHost: allowed.test:{port}\r\nConnection: close\r\n\r\n")]);
    // The address of the hosts file is the name's as well.
    assert_eq!(status(&fence.said(LISTED, port, get("allowed.test").as_bytes()).unwrap()), 200);
    assert!(fence.world.records.denials().is_empty());

    // Fronting: another admitted name is another name too.
    for host in ["evil.test", "a.wild.test"] {
        let answer = fence.said(addresses[0], port, get(host).as_bytes()).unwrap();
        assert_eq!(status(&answer), 403, "{answer}");
    }
    // Nobody has named a host where the address alone led here.
    let answer = fence.said(addresses[0], port, b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(status(&answer), 403, "{answer}");
    let hello = |name: &[u8]| records(&client_hello(&[name]), 4096);
    for bytes in [hello(b"evil.test"), records(&client_hello(&[]), 4096)] {
        assert!(fence.said(addresses[0], port, &bytes).is_ok_and(|answer| !answer.contains("HTTP")));
    }
    let rules: Vec<String> = fence.world.records.denials().into_iter().map(|denial| denial.rule).collect();
    assert_eq!(rules, ["tunnel-host", "tunnel-host", "tunnel-host", "sni", "sni"]);
    assert_eq!(origin.seen().iter().filter(|seen| seen.starts_with("GET")).count(), 2, "{:?}", origin.seen());
}

#[test]
fn a_server_that_speaks_first_and_a_client_that_names_no_host_are_refused() {
    let ssh = Origin::start("127.0.0.1:0", |stream, log| {
        stream.write_all(b"SSH-2.0-server\r\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        log(&format!("{} bytes", rest.len()));
    });
    let port = ssh.port;
    let fence = catching(&allowed(port), &[port], limits(), |_, kind, _| match kind {
        "A" => addrs(&["127.0.0.1"]),
        _ => empty(),
    });
    let (_, addresses) = fence.lookup("allowed.test", A);
    assert_eq!(fence.said(addresses[0], port, b""), Err(ErrorKind::ConnectionReset));
    assert_eq!(fence.world.records.rules(), [("tunnel-protocol".to_owned(), "not_http".to_owned())]);
    let denial = &fence.world.records.denials()[0];
    assert_eq!((denial.object.host.as_deref(), denial.object.port), (Some("allowed.test"), Some(port)));
}

#[test]
fn an_address_that_was_never_handed_out_leads_nowhere() {
    let origin = Origin::sink("127.0.0.1:0");
    let port = origin.port;
    let fence = catching(&allowed(port), &[port], limits(), |_, _, _| addrs(&["127.0.0.1"]));
    for (at, address) in [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 19, 255, 255)].into_iter().enumerate() {
        assert_eq!(fence.said(address, port, b"GET / HTTP/1.1\r\n\r\n"), Err(ErrorKind::ConnectionReset));
        let denial = &fence.world.records.denials()[at];
        assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("connect", "default-deny"));
        assert_eq!((denial.object.addrs.clone(), denial.object.port), (vec![IpAddr::V4(address)], Some(port)));
    }
    assert!(origin.seen().is_empty() && fence.world.resolver.questions().is_empty());
}

#[test]
fn what_the_name_leads_to_is_judged_at_each_connection() {
    let origin = Origin::plain();
    let port = origin.port;
    // Public when it is looked up, and then where the attacker wants it.
    let fence = catching(&allowed(port), &[port], limits(), |_, kind, before| match (kind, before) {
        ("A", 0) => addrs(&["127.0.0.1"]),
        ("A", _) => addrs(&["10.0.0.5"]),
        _ => empty(),
    });
    let (_, addresses) = fence.lookup("allowed.test", A);
    assert_eq!(fence.said(addresses[0], port, b"GET / HTTP/1.1\r\n\r\n"), Err(ErrorKind::ConnectionReset));
    let denial = &fence.world.records.denials()[0];
    assert_eq!((denial.operation.as_str(), denial.rule.as_str()), ("connect", "private-range"));
    assert_eq!(denial.object.host.as_deref(), Some("allowed.test"));
    assert!(origin.seen().is_empty());
}

#[test]
fn a_port_that_the_names_entry_lacks_is_refused() {
    let fence =
        catching(&["allowed.test:80".to_owned(), "other.test:81".to_owned()], &[80, 81], limits(), |_, kind, _| {
            if kind == "A" { addrs(&["127.0.0.1"]) } else { empty() }
        });
    let (_, addresses) = fence.lookup("allowed.test", A);
    assert_eq!(fence.said(addresses[0], 81, b"GET / HTTP/1.1\r\n\r\n"), Err(ErrorKind::ConnectionReset));
    assert_eq!(fence.world.records.rules(), [("port".to_owned(), "port_not_allowed".to_owned())]);
}

#[test]
fn nothing_is_answered_before_it_is_on_record() {
    let fence = catching(&allowed(80), &[80], limits(), |_, _, _| empty());
    fence.world.records.hold(true);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    socket.send_to(&question("evil.test", A), fence.resolver).unwrap();
    fence.world.records.wait(|denials| denials.len() == 1);
    assert!(socket.recv(&mut [0; 512]).is_err(), "an answer before its record");
    fence.world.records.hold(false);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).unwrap();
    assert_eq!(read(&answer[..length]).0, 5);
}
