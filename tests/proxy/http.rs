//! Plain HTTP: what the origin is sent and what the client gets back.

use crate::rig::*;
use std::io::{Read, Write};
use std::net::Shutdown;

fn one(origin: &Origin) -> World {
    world(&[format!("allowed.test:{}", origin.port)], |_, _, _| addrs(&["127.0.0.1"]))
}

#[test]
fn a_request_arrives_with_its_own_fields_and_none_of_one_hop() {
    let origin = Origin::plain();
    let port = origin.port;
    let world = one(&origin);
    let answer = world.send(format!(
        "PUT http://Allowed.test:{port}/a/b?c=%64|{{e}} HTTP/1.1\r\nHost: evil.test\r\nUser-Agent: tool/1\r\n\
         X-Case: Kept\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic c2VjcmV0\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 3\r\nTE: trailers\r\nUpgrade: h2c\r\n\
         Accept: */*\r\nContent-Length: 007\r\n\r\npayload"
    ));
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(
        origin.seen(),
        [format!(
            "PUT /a/b?c=%64|{{e}} HTTP/1.1\r\nHost: allowed.test:{port}\r\nUser-Agent: tool/1\r\nX-Case: Kept\r\n\
             Accept: */*\r\nContent-Length: 7\r\nConnection: close\r\n\r\npayload"
        )]
    );
}

#[test]
fn each_request_of_a_connection_is_resolved_and_dialled_for_itself() {
    let origin = Origin::plain();
    let port = origin.port;
    let world = one(&origin);
    let mut stream = world.connect();
    for turn in 1..=3 {
        write!(stream, "GET http://allowed.test:{port}/{turn} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        read_head(&mut stream);
        let mut body = [0; 2];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"ok");
        assert_eq!(world.resolver.questions().len(), 2 * turn);
        assert_eq!(origin.seen().len(), turn);
    }
}

#[test]
fn a_response_passes_as_it_came() {
    let responses = [
        (
            "HTTP/1.1 200 All right\r\nServer: origin/1\r\nVia: 1.1 other\r\nX-ODD: \u{e9}\r\nConnection: close\r\n\
             Proxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 All right\r\nServer: origin/1\r\nVia: 1.1 other\r\nX-ODD: \u{e9}\r\nContent-Length: 2\r\n\r\nok",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: x\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: x\r\n\r\n",
        ),
    ];
    for (sent, got) in responses {
        let origin = Origin::http(|_| sent.to_owned());
        let world = one(&origin);
        assert_eq!(world.get(&format!("http://allowed.test:{}/", origin.port)), got);
        assert!(world.records.failures().is_empty());
    }
}

#[test]
fn a_response_that_cannot_be_passed_on_is_a_502() {
    for sent in [
        "",
        "SSH-2.0-server\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y",
    ] {
        let origin = Origin::http(|_| sent.to_owned());
        let world = one(&origin);
        let answer = world.get(&format!("http://allowed.test:{}/", origin.port));
        assert_eq!(status(&answer), 502, "{sent:?}: {answer}");
        let failures = world.records.failures();
        assert_eq!((failures.len(), failures[0].operation.as_str()), (1, "exchange"), "{sent:?}");
        assert!(world.records.denials().is_empty());
    }
}

#[test]
fn a_response_cut_off_is_cut_off_for_the_client_too() {
    let origin = Origin::http(|_| "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_owned());
    let world = one(&origin);
    let mut stream = world.connect();
    write!(stream, "GET http://allowed.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.port).unwrap();
    let mut got = Vec::new();
    let ended = stream.read_to_end(&mut got);
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn head_has_no_body_whatever_its_fields_say() {
    let origin = Origin::http(|_| "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_owned());
    let world = one(&origin);
    let url = format!("http://allowed.test:{}/", origin.port);
    let twice = format!("HEAD {url} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(2);
    let answer = world.send(twice);
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".repeat(2));
}

#[test]
fn http_1_0_clients_get_what_they_can_read() {
    let origin = Origin::http(|_| {
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            .to_owned()
    });
    let world = one(&origin);
    let port = origin.port;
    let answer = world.send(format!(
        "POST http://allowed.test:{port} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\
         Expect: 100-continue\r\n\r\nhi"
    ));
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc");
    let seen = &origin.seen()[0];
    assert!(seen.starts_with(&format!("POST / HTTP/1.0\r\nHost: allowed.test:{port}\r\n")), "{seen}");
    assert!(!seen.contains("Expect"), "{seen}");
}

#[test]
fn a_body_waits_for_the_servers_word_where_the_client_asks_for_it() {
    let origin = Origin::start("127.0.0.1:0", |stream, log| {
        let head = read_head(stream);
        assert!(String::from_utf8_lossy(&head).contains("Expect: 100-continue"));
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 5];
        stream.read_exact(&mut body).unwrap();
        log(&String::from_utf8_lossy(&body));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let world = one(&origin);
    let mut stream = world.connect();
    let port = origin.port;
    write!(
        stream,
        "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    )
    .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(origin.seen(), ["hello"]);
}

#[test]
fn a_server_may_answer_before_the_body_has_come() {
    let origin = Origin::start("127.0.0.1:0", |stream, _| {
        read_head(stream);
        let mut byte = [0; 512];
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        while let Ok(1..) = stream.read(&mut byte) {}
    });
    let world = one(&origin);
    let mut stream = world.connect();
    let port = origin.port;
    write!(stream, "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn bodies_are_streamed_and_whole() {
    let size = 3_000_000_usize;
    let origin = Origin::start("127.0.0.1:0", move |stream, log| {
        let request = read_request(stream);
        log(&format!("{}", request.len() - request.find("\r\n\r\n").unwrap() - 4));
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").unwrap();
        stream.write_all(&vec![b'd'; size]).unwrap();
    });
    let world = one(&origin);
    let port = origin.port;
    let mut stream = world.connect();
    write!(stream, "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n").unwrap();
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&vec![b'u'; size]).unwrap());
    read_head(&mut stream);
    let mut body = vec![0; size];
    stream.read_exact(&mut body).unwrap();
    sending.join().unwrap();
    assert_eq!(origin.seen(), [size.to_string()]);
    assert!(body.iter().all(|&b| b == b'd'));
}

#[test]
fn only_a_websocket_upgrade_is_passed_on() {
    let origin = Origin::start("127.0.0.1:0", |stream, log| {
        let request = read_request(stream);
        log(&request);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\nfrom server")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        log(&text);
    });
    let world = one(&origin);
    let port = origin.port;
    let answer = world.send(format!(
        "GET http://allowed.test:{port}/ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nfrom client"
    ));
    assert_eq!(
        answer,
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfrom server"
    );
    let seen = origin.seen();
    assert!(seen[0].contains("\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{seen:?}");
    assert_eq!(seen[1], "from client");
}
