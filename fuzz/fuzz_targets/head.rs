//! A request head reads the same in whatever pieces it comes, and its target is one authority or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::policy::Authority;
use ringfence::proxy::head::{HeadScan, parse};
use ringfence::proxy::target::Target;

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let whole = HeadScan::default().advance(bytes);
    let (mut scan, mut read, mut by_pieces) = (HeadScan::default(), 0, Ok(None));
    while matches!(by_pieces, Ok(None)) && read < bytes.len() {
        read = bytes.len().min(read + usize::from(step).max(1));
        by_pieces = scan.advance(&bytes[..read]);
    }
    assert_eq!(whole, by_pieces);
    let Ok(Some(range)) = whole else { return };
    let Ok(head) = parse(&bytes[range]) else { return };
    assert!(head.fields.iter().all(|field| !field.value.contains(&b'\n') && !field.value.contains(&b'\r')));
    match Target::of(&head) {
        Ok(Target::Tunnel(_)) => assert_eq!(head.method, "CONNECT"),
        Ok(Target::Exchange { path, .. }) => {
            assert!(path == b"*" || path.first() == Some(&b'/'));
            assert!(path.iter().all(u8::is_ascii_graphic), "nothing in a target ends a line");
        }
        Ok(Target::Elsewhere { .. }) => panic!("that is for requests within a tunnel"),
        Err(malformed) => assert!(!malformed.reason().is_empty()),
    }
    let tunnel = Authority::parse_connect(b"allowed.test:80").expect("an authority");
    match Target::within(&head, &tunnel, false) {
        Ok(Target::Tunnel(_)) => panic!("a tunnel within a tunnel"),
        Ok(Target::Exchange { authority, path }) => {
            assert_eq!(authority, tunnel);
            assert!(path == b"*" || path.first() == Some(&b'/'));
        }
        Ok(Target::Elsewhere { named, .. }) => assert_ne!(named, tunnel.to_string()),
        Err(malformed) => assert!(!malformed.reason().is_empty()),
    }
});
