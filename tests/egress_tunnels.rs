//! What an admitted tunnel may carry, by CONNECT and by SOCKS alike: to port 443 TLS with the tunnel's host, to port 80 HTTP
//! to the tunnel's host, to a port that an entry names anything, but TLS only with the tunnel's host.

mod common;

use common::{Ended, Fence, value};
use ringfence::ledger::record::Mechanism;
use std::io::Write;
use std::net::TcpListener;
use world::Sink;
use world::address::GATEWAY4;
use world::hello::{client_hello, record, records};

const HOST: &str = "sink.example.org";
const EVIL: &[u8] = b"evil.example.net";
const FLAGS: [&str; 6] = ["--policy", "nist-high", "--allow-host", HOST, "--allow-host", "sink.example.org:8080"];
/// What the servers answer once something has come.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nseen";
const WAYS: [&str; 2] = ["connect", "socks"];

/// What is sent in one tunnel, and what is expected.
struct Row {
    name: &'static str,
    port: u16,
    /// Sent at once.
    first: Vec<u8>,
    /// Sent when the server has answered.
    then: Vec<u8>,
    /// How much of it the server gets to see: all of `first`, all of both, or nothing.
    seen: Seen,
    /// The rule and the reason of the refusal.
    refused: Option<(&'static str, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    First,
    All,
    /// Requests that are written anew.
    Rewritten(usize),
}

fn hello(name: &[u8]) -> Vec<u8> {
    records(&client_hello(&[name]), 1 << 14)
}

fn get(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn rows() -> Vec<Row> {
    let row = |name, port, first, then, seen, refused| Row { name, port, first, then, seen, refused };
    let (own, evil) = (hello(HOST.as_bytes()), hello(EVIL));
    let none = records(&client_hello(&[]), 1 << 14);
    let pieces = records(&client_hello(&[EVIL]), 3);
    let after_ccs = [record(20, &[1]), evil.clone()].concat();
    let mut rows = Vec::new();
    for port in [443, 80, 8080] {
        rows.extend([
            row("own", port, own.clone(), record(23, b"data"), Seen::All, None),
            row("evil", port, evil.clone(), vec![], Seen::Nothing, Some(("sni", "sni_mismatch"))),
            row("none", port, none.clone(), vec![], Seen::Nothing, Some(("sni", "sni_missing"))),
            row("pieces", port, pieces.clone(), vec![], Seen::Nothing, Some(("sni", "sni_mismatch"))),
            row("second", port, own.clone(), after_ccs.clone(), Seen::First, Some(("sni", "sni_mismatch"))),
        ]);
    }
    let ready = [own.clone(), evil.clone()].concat();
    rows.extend([
        row("ready", 443, ready, vec![], Seen::Nothing, Some(("sni", "second_client_hello"))),
        row("ssh", 443, b"SSH-2.0-x\r\n".to_vec(), vec![], Seen::Nothing, Some(("tunnel-protocol", "not_tls"))),
        row("plain", 443, get(HOST), vec![], Seen::Nothing, Some(("tunnel-protocol", "not_tls"))),
        row("http", 80, get(HOST), get(HOST), Seen::Rewritten(2), None),
        row("front", 80, get("evil.example.net"), vec![], Seen::Nothing, Some(("tunnel-host", "host_mismatch"))),
        row(
            "later",
            80,
            get(HOST),
            get("evil.example.net"),
            Seen::Rewritten(1),
            Some(("tunnel-host", "host_mismatch")),
        ),
        row("ssh80", 80, b"SSH-2.0-x\r\n".to_vec(), vec![], Seen::Nothing, Some(("malformed", "bad_request_line"))),
        row(
            "h2c",
            80,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            vec![],
            Seen::Nothing,
            Some(("malformed", "bad_version")),
        ),
        row("any", 8080, b"SSH-2.0-x\r\n".to_vec(), b"more".to_vec(), Seen::All, None),
    ]);
    rows
}

/// Opens a tunnel for each line (way, name, port, first, then), or without ringfence a connection, and says what happened.
const CLIENT: &str = r#"
import os, socket, struct, sys
host = "sink.example.org"
proxy = os.environ.get("http_proxy")

def answer(peer):
    said = b""
    while not said.endswith(b"seen") and (piece := peer.recv(65536)):
        said += piece
    return said

for line in open("/tmp/rows"):
    way, name, port, first, then = line.rstrip("\n").split(" ")
    first, then, port = bytes.fromhex(first), bytes.fromhex(then), int(port)
    if proxy is None:
        peer = socket.create_connection(("11.22.33.1", port), 20)
    else:
        address, _, at = proxy.removeprefix("http://").rstrip("/").rpartition(":")
        peer = socket.create_connection((address, int(at)), 20)
        if way == "connect":
            peer.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += peer.recv(1)
            assert head.startswith(b"HTTP/1.1 200"), head
        else:
            peer.sendall(b"\x05\x02\x01\x02")
            assert peer.recv(2) == b"\x05\x02"
            peer.sendall(b"\x01\x04user\x06secret")
            assert peer.recv(2) == b"\x01\x00"
            peer.sendall(b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
            reply = peer.recv(10)
            assert reply[:2] == b"\x05\x00", reply
    said = b""
    peer.settimeout(20)
    try:
        peer.sendall(first)
        said = answer(peer)
        if then and said:
            peer.sendall(then)
            # What went well is answered once more where it is HTTP, and otherwise not at all.
            if proxy and then.startswith(b"GET"):
                said = answer(peer)
            elif name == "second" and proxy:
                said = answer(peer)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65536):
            pass
    except OSError as error:
        said = said or type(error).__name__.encode()
    print(f"{way}-{name}-{port}={said[:24].hex()}", flush=True)
    peer.close()
"#;

fn script(fence: &Fence, ways: &[&str]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut lines = String::new();
    for way in ways {
        for row in rows() {
            lines += &format!("{way} {} {} {} {}\n", row.name, row.port, hex(&row.first), hex(&row.then));
        }
    }
    fence.world.write("/tmp/rows", lines, 0o644);
    fence.world.write("/tmp/client.py", CLIENT, 0o644);
    "/usr/bin/python3 /tmp/client.py".to_owned()
}

fn assert_recorded(ended: &Ended) {
    let mut denials = ended.denials().into_iter();
    for way in WAYS {
        for row in rows() {
            let key = format!("{way}-{}-{}", row.name, row.port);
            let said = ended.value(&key);
            let Some((rule, reason)) = row.refused else {
                assert!(said.starts_with("48545450"), "{key}: {said}");
                continue;
            };
            let denial = denials.next().unwrap_or_else(|| panic!("{key} is not on record: {ended}"));
            assert_eq!((denial.rule.as_str(), denial.reason.as_str()), (rule, reason), "{key}: {denial:?}");
            assert_eq!((denial.mechanism, denial.count), (Mechanism::Proxy, 1), "{key}: {denial:?}");
            if rule != "malformed" {
                assert_eq!(denial.object.host.as_deref(), Some(HOST), "{key}: {denial:?}");
                assert_eq!(denial.object.port, Some(row.port), "{key}: {denial:?}");
            }
            assert!(denial.subject.pid.is_some(), "{key}: {denial:?}");
            if reason == "sni_mismatch" || reason == "host_mismatch" {
                assert!(
                    denial.object.text.as_deref().is_some_and(|text| text.contains("evil.example.net")),
                    "{denial:?}"
                );
            }
            match (rule, row.port, row.seen) {
                // The alert unrecognized_name.
                ("sni", _, Seen::Nothing) => assert_eq!(said, "15030300020270", "{key}"),
                ("tunnel-host", ..) => assert!(said.starts_with("485454502f312e3120343033"), "{key}: {said}"),
                _ => {}
            }
        }
    }
    assert!(denials.next().is_none(), "a record that no tunnel made: {ended}");
}

#[test]
fn a_tunnel_carries_what_is_for_its_host() {
    let fence = Fence::new();
    fence.internet.resolver.host(HOST, &[GATEWAY4.into()]);
    let sinks =
        [443, 80, 8080].map(|port| (port, Sink::whole(fence.world.outside(), GATEWAY4, port, ANSWER).expect("a sink")));
    let live = fence.as_nobody(&script(&fence, &["direct"]));
    for row in rows() {
        let key = format!("direct-{}-{}", row.name, row.port);
        assert!(value(&live, &key).starts_with("48545450"), "the server takes it: {live}");
    }
    let before = sinks.each_ref().map(|(_, sink)| sink.settled().len());
    assert!(before.iter().all(|count| *count > 0));

    let ended = fence.run(&FLAGS, &script(&fence, &WAYS));
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_recorded(&ended);
    assert!(ended.seal().complete, "{ended}");

    for ((port, sink), before) in sinks.iter().zip(before) {
        // A connection that carried nothing tells nothing of its row.
        let mut arrived: Vec<Vec<u8>> = sink.settled().split_off(before).into_iter().map(|one| one.bytes).collect();
        arrived.retain(|bytes| !bytes.is_empty());
        let mut expected = Vec::new();
        for row in WAYS.iter().flat_map(|_| rows()).filter(|row| row.port == *port) {
            match row.seen {
                Seen::Nothing => {}
                Seen::First => expected.push(row.first),
                Seen::All => expected.push([row.first, row.then].concat()),
                Seen::Rewritten(count) => {
                    let sent = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").into_bytes();
                    expected.extend(std::iter::repeat_n(sent, count));
                }
            }
        }
        assert_eq!(arrived.len(), expected.len(), "{port}: {}", ended.said);
        arrived.sort();
        expected.sort();
        assert_eq!(arrived, expected, "{port}");
    }
}

/// Opens two tunnels to port 80 one after the other, says nothing, and tells how each has ended.
const SILENT: &str = r#"
import os, socket
address, _, port = os.environ["http_proxy"].removeprefix("http://").rstrip("/").rpartition(":")
for name in "ssh", "408":
    peer = socket.create_connection((address, int(port)), 20)
    peer.sendall(b"CONNECT sink.example.org:80 HTTP/1.1\r\nHost: sink.example.org:80\r\n\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.recv(1)
    assert head.startswith(b"HTTP/1.1 200"), head
    try:
        print(f"{name}=said{len(peer.recv(100))}", flush=True)
    except OSError as error:
        print(f"{name}={type(error).__name__}", flush=True)
"#;

#[test]
fn a_server_that_speaks_first_on_port_80_is_no_http_server_unless_it_gives_the_client_up() {
    let fence = Fence::new();
    fence.internet.resolver.host(HOST, &[GATEWAY4.into()]);
    let listener = fence.world.outside().run(|| TcpListener::bind((GATEWAY4, 80))).expect("a listener");
    let serving = std::thread::spawn(move || {
        for first in [b"SSH-2.0-x\r\n".as_slice(), b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"] {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(first).expect("a client");
        }
    });
    fence.world.write("/tmp/silent.py", SILENT, 0o644);
    let ended = fence.run(&FLAGS, "/usr/bin/python3 /tmp/silent.py");
    serving.join().expect("a server");
    assert_eq!((ended.value("ssh"), ended.value("408")), ("ConnectionResetError", "said0"), "{ended}");
    let [denial] = &ended.denials()[..] else { panic!("{ended}") };
    assert_eq!((denial.rule.as_str(), denial.reason.as_str()), ("tunnel-protocol", "not_http"), "{denial:?}");
    assert_eq!((denial.object.host.as_deref(), denial.object.port), (Some(HOST), Some(80)), "{denial:?}");
}
