//! A SOCKS client's messages read the same whatever lies behind them, and a prefix of one is never taken for it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::proxy::socks::{Parsed, Request, credentials, greeting, request};
use std::fmt::Debug;

fn read<T: Debug + PartialEq>(bytes: &[u8], parse: impl Fn(&[u8]) -> Parsed<T>) -> usize {
    let Ok(Some((value, length))) = parse(bytes) else { return bytes.len() };
    assert!(length <= bytes.len());
    for end in 0..length {
        assert_eq!(parse(&bytes[..end]), Ok(None), "{end} of {length}");
    }
    assert_eq!(parse(&bytes[..length]), Ok(Some((value, length))));
    length
}

fuzz_target!(|bytes: &[u8]| {
    let after_greeting = &bytes[read(bytes, greeting)..];
    let after_credentials = &after_greeting[read(after_greeting, credentials)..];
    read(after_credentials, request);
    if let Ok(Some((Request::Connect(authority), length))) = request(bytes) {
        assert!(authority.port > 0);
        let host = authority.host.to_string();
        assert!(host.is_ascii() && !host.contains(['\0', '\n', '@', '%', '/', '\\', ' ']), "{host}");
        assert!(length > 7);
    }
});
