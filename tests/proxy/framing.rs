//! Requests that two readers could read differently (case N09): 400, closed, recorded, and not a byte sent on.

use crate::rig::*;
use std::io::{Read, Write};

/// Sends `head` with the port filled in for `PORT`, and checks that it was refused and nothing came out.
fn refused(rows: &[(&str, &str)]) {
    let origin = Origin::plain();
    let port = origin.port.to_string();
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    for (request, reason) in rows {
        let before = world.records.denials().len();
        let answer = world.send(request.replace("PORT", &port));
        assert_eq!(answer, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "{request:?}");
        let new: Vec<_> = world.records.denials().split_off(before);
        assert_eq!(new.len(), 1, "{request:?}: {new:?}");
        assert_eq!((new[0].rule.as_str(), new[0].reason.as_str()), ("malformed", *reason), "{request:?}");
        assert_eq!(new[0].http_status, Some(400));
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    assert!(world.resolver.questions().is_empty());
    // The same proxy serves a request that has one reading, and the origin sees one.
    assert_eq!(status(&world.send(post("Transfer-Encoding: chunked\r\n").replace("PORT", &port))), 200);
    assert_eq!(origin.seen().len(), 1);
}

/// A POST to the admitted host with these lines before the empty one.
fn post(lines: &str) -> String {
    format!("POST http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n{lines}\r\n0\r\n\r\n")
}

#[test]
fn n09_lengths_and_codings_have_one_reading() {
    let rows = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "length_and_coding"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "length_and_coding"),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "bad_content_length"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "bad_content_length"),
        ("Content-Length: +5\r\n", "bad_content_length"),
        ("Content-Length: -1\r\n", "bad_content_length"),
        ("Content-Length: 5,5\r\n", "bad_content_length"),
        ("Content-Length: 0x5\r\n", "bad_content_length"),
        ("Content-Length: 5 5\r\n", "bad_content_length"),
        ("Content-Length:\r\n", "bad_content_length"),
        ("Content-Length: \r\n", "bad_content_length"),
        ("Content-Length: 5, 5\r\n", "bad_content_length"),
        ("Content-Length: 18446744073709551616\r\n", "bad_content_length"),
        ("Transfer-Encoding: ,chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked,\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked,,chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: cHuNkEd\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked, chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: identity, chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked, identity\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked\t\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: \tchunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked \r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunkedx\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: Chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: \"chunked\"\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding:\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n", "bad_transfer_encoding"),
        ("Transfer-Encoding : chunked\r\n", "bad_field_name"),
        ("Transfer Encoding: chunked\r\n", "bad_field_name"),
        ("Content-Length : 5\r\n", "bad_field_name"),
        (": 5\r\n", "bad_field_name"),
        ("no colon\r\n", "bad_field_name"),
        ("X: a\r\n folded\r\n", "folded_field"),
        ("X: a\r\n\tContent-Length: 5\r\n", "folded_field"),
        (" Content-Length: 5\r\n", "folded_field"),
        ("X: a\nContent-Length: 5\r\n", "bare_lf"),
        ("X: a\rContent-Length: 5\r\n", "bare_cr"),
        ("X: a\0b\r\n", "control_byte"),
        ("X: a\x0bb\r\n", "control_byte"),
        ("Expect: 200-ok\r\n", "bad_expect"),
        ("Host: y\r\n", "bad_host_field"),
    ];
    let rows: Vec<(String, &str)> = rows.iter().map(|(lines, why)| (post(lines), *why)).collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, why)| (text.as_str(), *why)).collect();
    refused(&rows);
}

#[test]
fn n09_request_lines_have_one_reading() {
    refused(&[
        ("GET http://allowed.test:PORT/\r\n", "bad_request_line"),
        ("GET /\r\n", "bad_request_line"),
        ("GET  http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request_line"),
        ("GET\thttp://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request_line"),
        ("GET http://allowed.test:PORT/ HTTP/1.1 \r\nHost: x\r\n\r\n", "bad_request_line"),
        ("G(T http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request_line"),
        ("GET http://allowed.test:PORT/ HTTP/0.9\r\nHost: x\r\n\r\n", "bad_version"),
        ("GET http://allowed.test:PORT/ HTTP/1.2\r\nHost: x\r\n\r\n", "bad_version"),
        ("GET http://allowed.test:PORT/ HTTP/2.0\r\nHost: x\r\n\r\n", "bad_version"),
        ("GET http://allowed.test:PORT/ http/1.1\r\nHost: x\r\n\r\n", "bad_version"),
        ("GET http://allowed.test:PORT/ HTTP/1.1\nHost: x\n\n", "bare_lf"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad_version"),
        ("TRACE http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", "trace_method"),
        ("GET http://allowed.test:PORT/ HTTP/1.1\r\n\r\n", "bad_host_field"),
        ("GET http://allowed.test:PORT/a\u{e9} HTTP/1.1\r\nHost: x\r\n\r\n", "bad_target"),
        ("\x16\x03\x01\x02\0\x01\0", "control_byte"),
        (
            "POST http://allowed.test:PORT/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "bad_transfer_encoding",
        ),
        ("CONNECT allowed.test:PORT HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", "connect_with_body"),
        (
            "CONNECT allowed.test:PORT HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "connect_with_body",
        ),
        (
            "CONNECT allowed.test:PORT HTTP/1.1\r\nHost: x\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "connect_with_body",
        ),
    ]);
}

#[test]
fn n09_a_head_is_bounded() {
    let long = format!("GET http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(64 * 1024));
    let many = format!("GET http://allowed.test:PORT/ HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: 1\r\n".repeat(256));
    refused(&[(&long, "head_too_large"), (&many, "too_many_fields")]);
}

#[test]
fn n09_chunks_have_one_reading() {
    for (body, whole) in [
        ("5\r\nhello\r\n0\r\n\r\n", true),
        ("5;name=value\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", true),
        ("05\r\nhello\r\n00\r\n\r\n", true),
        ("5\nhello\r\n0\r\n\r\n", false),
        ("5\r\nhello0\r\n\r\n", false),
        ("5\r\nhello!\r\n0\r\n\r\n", false),
        ("0x5\r\nhello\r\n0\r\n\r\n", false),
        ("+5\r\nhello\r\n0\r\n\r\n", false),
        (" 5\r\nhello\r\n0\r\n\r\n", false),
        ("5 \r\nhello\r\n0\r\n\r\n", false),
        ("\r\nhello\r\n0\r\n\r\n", false),
        ("10000000000000005\r\nhello\r\n0\r\n\r\n", false),
        ("5;a=\nb\r\nhello\r\n0\r\n\r\n", false),
        ("5\r\nhello\r\n0\r\n\nX: y\r\n\r\n", false),
    ] {
        let origin = Origin::plain();
        let port = origin.port;
        let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
        let answer = world.send(format!(
            "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        if whole {
            assert_eq!(status(&answer), 200, "{body:?}");
            assert!(origin.seen()[0].ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{:?}", origin.seen());
            assert!(world.records.denials().is_empty());
        } else {
            assert_eq!(status(&answer), 400, "{body:?}: {answer}");
            assert_eq!(world.records.rules(), [("malformed".into(), "bad_chunk".into())], "{body:?}");
        }
    }
}

/// The bytes after one request are the next request, and each gives exactly one upstream.
#[test]
fn pipelined_requests_are_judged_one_by_one() {
    let origin = Origin::plain();
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    let mut stream = world.connect();
    let requests = format!(
        "POST http://allowed.test:{port}/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
         GET http://evil.test/2 HTTP/1.1\r\nHost: x\r\n\r\n\
         GET http://allowed.test:{port}/3 HTTP/1.1\r\nHost: x\r\n\r\n\
         POST http://evil.test/4 HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n\
         GET http://allowed.test:{port}/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    );
    stream.write_all(requests.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let codes: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
    assert_eq!(codes, ["200", "403", "200", "403"]);
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].starts_with("POST /1 ") && seen[1].starts_with("GET /3 "));
    assert_eq!(world.records.denials().len(), 2);
    assert_eq!(world.resolver.names(), ["allowed.test"]);
}

/// Not one byte reaches the server before the head is whole.
#[test]
fn nothing_is_sent_before_the_head_is_judged() {
    let origin = Origin::sink("127.0.0.1:0");
    let port = origin.port;
    let world = world(&[format!("allowed.test:{port}")], |_, _, _| addrs(&["127.0.0.1"]));
    let mut stream = world.connect();
    write!(stream, "GET http://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\nX: y\r\n").unwrap();
    // A refused request on another connection shows that the proxy has had its turn.
    assert_eq!(status(&world.get("http://evil.test/")), 403);
    assert!(origin.seen().is_empty());
    assert!(world.resolver.questions().is_empty());
    drop(stream);
}
