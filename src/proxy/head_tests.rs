use super::*;
use proptest::prelude::*;

const GET: &str = "GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";

/// Scans and parses, the bytes coming in pieces of these sizes.
fn read(bytes: &[u8], pieces: impl IntoIterator<Item = usize>) -> Result<Option<(Head, usize)>, Malformed> {
    let mut scan = HeadScan::default();
    let mut there = 0;
    for piece in pieces.into_iter().chain([bytes.len()]) {
        there = bytes.len().min(there + piece);
        if let Some(range) = scan.advance(&bytes[..there])? {
            let end = range.end;
            return parse(&bytes[range]).map(|head| Some((head, end)));
        }
    }
    Ok(None)
}

#[test]
fn a_head_is_read_whole_and_what_follows_is_left() {
    let bytes = format!("{GET}GET next");
    let (head, end) = read(bytes.as_bytes(), []).unwrap().unwrap();
    assert_eq!(end, GET.len());
    assert_eq!((head.method.as_str(), head.target.as_slice()), ("GET", b"http://allowed.test/".as_slice()));
    assert_eq!((head.version, head.framing), (Version::Http11, Framing::None));
    assert_eq!(head.fields[1].value, b"*/*");
    assert!(head.persists());
}

#[test]
fn one_empty_line_before_a_request_is_forgiven_and_no_more() {
    let (head, end) = read(format!("\r\n{GET}").as_bytes(), []).unwrap().unwrap();
    assert_eq!((head.method.as_str(), end), ("GET", GET.len() + 2));
    assert_eq!(read(format!("\r\n\r\n{GET}").as_bytes(), []), Err(Malformed::RequestLine));
}

#[test]
fn a_request_line_that_cannot_be_is_refused_before_its_head_ends() {
    assert_eq!(read(b"GET /\r\n", []), Err(Malformed::RequestLine));
    assert_eq!(read(b"\x16\x03\x01", []), Err(Malformed::ControlByte));
    assert_eq!(read(b"GET / HTTP/1.1", []), Ok(None));
}

#[test]
fn the_limit_is_on_the_whole_head() {
    let head = |padding: usize| format!("GET http://a.test/ HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(padding));
    let room = HEAD_LIMIT - head(0).len();
    assert!(read(head(room).as_bytes(), []).unwrap().is_some());
    assert_eq!(read(head(room + 1).as_bytes(), []), Err(Malformed::HeadTooLarge));
}

#[test]
fn only_http_1_1_without_close_persists() {
    for (version, connection, persists) in
        [("HTTP/1.1", "keep-alive", true), ("HTTP/1.1", "x, Close", false), ("HTTP/1.0", "keep-alive", false)]
    {
        let text = format!("GET http://a.test/ {version}\r\nHost: x\r\nConnection: {connection}\r\n\r\n");
        let (head, _) = read(text.as_bytes(), []).unwrap().unwrap();
        assert_eq!(head.persists(), persists, "{text}");
    }
}

/// Bytes that come close to a head: fragments of heads, in any order.
fn near_heads() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        Just(b"GET ".to_vec()),
        Just(b"CONNECT a.test:443 HTTP/1.1\r\n".to_vec()),
        Just(b"http://a.test/".to_vec()),
        Just(b" HTTP/1.1\r\n".to_vec()),
        Just(b"Host: x\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\n".to_vec()),
        Just(b": ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(fragment, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    /// Whatever comes, in whatever pieces, there is one reading.
    #[test]
    fn pieces_make_no_difference(bytes in near_heads(), pieces in proptest::collection::vec(1_usize..20, 0..40)) {
        let whole = read(&bytes, []);
        prop_assert_eq!(read(&bytes, pieces), whole.clone());
        prop_assert_eq!(read(&bytes, vec![1; bytes.len()]), whole);
    }

    /// What is accepted holds nothing that another parser could split at, and says the same when written again.
    #[test]
    fn what_is_accepted_is_plain(bytes in near_heads()) {
        if let Ok(Some((head, end))) = read(&bytes, []) {
            prop_assert!(end <= bytes.len());
            prop_assert!(head.method.bytes().all(is_token));
            prop_assert!(head.target.iter().all(u8::is_ascii_graphic));
            let mut again = format!("{} {} {}\r\n", head.method, String::from_utf8_lossy(&head.target), match head.version {
                Version::Http10 => "HTTP/1.0",
                Version::Http11 => "HTTP/1.1",
            }).into_bytes();
            for field in &head.fields {
                prop_assert!(field.name.bytes().all(is_token));
                prop_assert!(!field.value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
                again.extend_from_slice(field.name.as_bytes());
                again.extend_from_slice(b": ");
                again.extend_from_slice(&field.value);
                again.extend_from_slice(b"\r\n");
            }
            again.extend_from_slice(b"\r\n");
            prop_assert_eq!(read(&again, []), Ok(Some((head, again.len()))));
        }
    }

    #[test]
    fn any_bytes_at_all_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        // Random bytes are no request: either more is awaited, or they are refused.
        prop_assert!(!matches!(read(&bytes, []), Ok(Some(_))));
        prop_assert!(parse(&bytes).is_err());
    }
}
