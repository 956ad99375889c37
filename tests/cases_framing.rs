//! Requests that two readers could read differently (case N09) through a whole run: what is refused sends no packet, and
//! one accepted request is one upstream request.

mod common;

use common::Fence;
use std::net::IpAddr;
use world::address::{PUBLIC4, RESOLVER4};
use world::{Origin, Sink, origin};

/// Where a sink keeps the bytes of every connection, and where an origin reads each request strictly.
const SINK: u16 = 7000;
const STRICT: u16 = 7001;
/// What is to be smuggled past the proxy's judgement: a request of its own, after the first one's end as one of two
/// readers sees it.
const SMUGGLED: &str = "GET http://allowed.example.org:PORT/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// Heads that are ambiguous whatever their body is. `PORT` stands for a port of the admitted host.
fn ambiguous() -> Vec<String> {
    let fields = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 60\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5,5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: \r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: chunked,,chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\t\r\n",
        "Transfer-Encoding:\tchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: cHuNkEd\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "X: a\r\n\tTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer Encoding: chunked\r\n",
        "\u{0}Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding\u{0}: chunked\r\n",
    ];
    let url = "http://allowed.example.org:PORT/";
    let post = |fields: &str| format!("POST {url} HTTP/1.1\r\nHost: x\r\n{fields}\r\n0\r\n\r\n");
    let mut rows: Vec<String> = fields.iter().map(|fields| post(fields)).collect();
    let long = "a".repeat(64 * 1024);
    rows.extend([
        format!("POST {url} HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET {url}\r\n"),
        format!("GET {url} HTTP/0.9\r\n\r\n"),
        format!("GET {url} HTTP/1.1\nHost: x\n\n"),
        format!("GET {url} HTTP/1.1\r\nHost: x\n\r\n"),
        format!("TRACE {url} HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: 1\r\n".repeat(20_000)),
        "CONNECT allowed.example.org:PORT HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        "CONNECT allowed.example.org:PORT HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            .to_owned(),
        "CONNECT allowed.example.org:PORT HTTP/1.1\r\nHost: x\r\n\r\nhello".to_owned(),
    ]);
    rows
}

/// Sends each row on a connection of its own, a second request after it, and prints every status that comes back. Once as
/// one piece; once with a pause before the last byte of the head, so that all that could be judged early was there early.
const CLIENT: &str = r#"
import os, re, socket, sys, time
def exchange(proxy, request, paused):
    head = request.find(b"\r\n\r\n") + 3
    try:
        if paused and head > 3:
            proxy.sendall(request[:head])
            time.sleep(0.02)
            proxy.sendall(request[head:])
        else:
            proxy.sendall(request)
        proxy.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    answer = b""
    try:
        while piece := proxy.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    return answer
target = os.environ.get("TARGET") or os.environ["http_proxy"].removeprefix("http://").rstrip("/")
host, port = target.split(":")
for line in open("/tmp/rows"):
    for paused in False, True:
        with socket.create_connection((host, int(port)), 20) as proxy:
            answer = exchange(proxy, bytes.fromhex(line), paused)
        print(" ".join(re.findall(r"HTTP/1.1 (\d+)", answer.decode("latin-1"))), flush=True)
"#;

fn client(fence: &Fence, rows: &[String]) -> &'static str {
    let hex = |text: &String| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    fence.world.write("/tmp/rows", rows.iter().map(hex).collect::<String>(), 0o644);
    fence.world.write("/tmp/client.py", CLIENT, 0o644);
    "/usr/bin/python3 /tmp/client.py"
}

fn at(port: u16, row: &str) -> String {
    row.replace("PORT", &port.to_string())
}

const FLAGS: [&str; 6] =
    ["--policy", "nist-high", "--allow-host", "allowed.example.org:7000", "--allow-host", "allowed.example.org:7001"];

#[test]
fn n09_what_has_two_readings_is_refused_before_a_packet_leaves() {
    let fence = Fence::new();
    let sink = Sink::tcp(fence.world.outside(), PUBLIC4, SINK).expect("a sink");
    fence.internet.resolver.host("allowed.example.org", &[PUBLIC4.into()]);
    let rows: Vec<String> = ambiguous().iter().map(|row| at(SINK, &format!("{row}{SMUGGLED}"))).collect();
    let script = client(&fence, &rows);
    // Without ringfence all of it gets there.
    let said = fence.as_nobody(&format!("TARGET={PUBLIC4}:{SINK} {script}"));
    let arrived = sink.wait_for(2 * rows.len());
    assert_eq!(arrived.len(), 2 * rows.len(), "{said}");
    assert!(arrived.iter().all(|one| !one.bytes.is_empty()), "live: {said}");
    let (packets, asked) = (fence.world.packets().len(), fence.internet.resolver.questions().len());

    let ended = fence.run(&FLAGS, script);
    let codes: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(codes.len(), 2 * rows.len(), "{ended}");
    for (row, codes) in rows.iter().zip(codes.chunks(2)) {
        let shown = &row[..row.len().min(300)];
        assert_eq!(codes, ["400", "400"], "one answer and the connection's end: {shown:?} {}", ended.said);
    }
    let denials = ended.denials();
    assert!(denials.iter().all(|one| one.rule == "malformed" && one.http_status == Some(400)), "{ended}");
    assert_eq!(denials.iter().map(|one| one.count).sum::<u64>(), 2 * rows.len() as u64, "{ended}");
    assert!(ended.seal().complete, "{ended}");
    assert_eq!(fence.world.packets().len(), packets, "not one packet left the box: {ended}");
    assert_eq!(fence.internet.resolver.questions().len(), asked, "{ended}");
    assert_eq!(sink.arrivals().len(), arrived.len(), "{ended}");
}

#[test]
fn n09_one_accepted_request_is_one_upstream_request() {
    let fence = Fence::new();
    let strict = Origin::http(fence.world.outside(), PUBLIC4, STRICT, origin::standard()).expect("an origin");
    fence.internet.resolver.host("allowed.example.org", &[PUBLIC4.into()]);
    let post = |fields: &str, body: &str| {
        format!("POST http://allowed.example.org:{STRICT}/echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}")
    };
    let smuggled = at(STRICT, SMUGGLED);
    // The smuggled text is a body here, and the same text after it is a request; each row with its statuses.
    let length = format!("Content-Length: {}\r\n", smuggled.len());
    let chunk = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    let evil = "GET http://evil.example.net/ HTTP/1.1\r\nHost: x\r\n\r\n".to_owned();
    let ambiguous = at(STRICT, &ambiguous()[0]);
    let rows = [
        (post(&length, &smuggled), "200"),
        (post("Transfer-Encoding: chunked\r\n", &chunk), "200"),
        (post(&length, &[smuggled.as_str(), &smuggled].concat()), "200 404"),
        (post("Transfer-Encoding: chunked\r\n", &[&chunk, smuggled.as_str()].concat()), "200 404"),
        ([post(&length, &smuggled), evil.clone(), smuggled.clone()].concat(), "200 403 404"),
        ([post(&length, &smuggled), ambiguous, smuggled.clone()].concat(), "200 400"),
        ([evil, smuggled.clone()].concat(), "403 404"),
    ];
    let texts: Vec<String> = rows.iter().map(|row| row.0.clone()).collect();
    let script = client(&fence, &texts);
    let ended = fence.run(&FLAGS, script);
    let wanted: Vec<&str> = rows.iter().flat_map(|row| [row.1, row.1]).collect();
    assert_eq!(ended.said.out.lines().collect::<Vec<_>>(), wanted, "{}", ended.said);
    let accepted: Vec<&str> =
        wanted.iter().flat_map(|codes| codes.split(' ')).filter(|code| ["200", "404"].contains(code)).collect();
    let requests = strict.wait_for(accepted.len());
    assert_eq!(requests.len(), accepted.len(), "{ended}");
    // Each is what was judged, with its own body and nothing after it.
    for request in &requests {
        let (method, body) = if request.path() == "/echo" { ("POST", smuggled.as_bytes()) } else { ("GET", &b""[..]) };
        assert_eq!((request.method.as_str(), request.body.as_slice()), (method, body), "{}", request.head);
        assert_eq!(request.field("host").collect::<Vec<_>>(), [format!("allowed.example.org:{STRICT}")]);
    }
    let left = fence.world.packets();
    let allowed = [IpAddr::V4(PUBLIC4), IpAddr::V4(RESOLVER4)];
    assert!(left.iter().all(|one| allowed.contains(&one.destination)), "{left:?}");
    assert_eq!(ended.denials_of("evil.example.net").iter().map(|one| one.count).sum::<u64>(), 4, "{ended}");
}
