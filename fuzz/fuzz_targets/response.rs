//! An admitted server may send anything; what reaches the client is one head with one end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::proxy::response::{ResponseFraming, ResponseHead};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((head, length))) = ResponseHead::parse(bytes) else { return };
    assert!(length <= bytes.len());
    for method in ["GET", "HEAD"] {
        let Ok(framing) = head.framing(method) else { continue };
        assert!(method == "GET" || framing == ResponseFraming::None);
        let sent = head.for_client(&["connection: close"]);
        let text = String::from_utf8_lossy(&sent);
        assert_eq!(text.matches("\r\n\r\n").count(), 1, "{text:?}");
        assert!(text.to_ascii_lowercase().matches("\r\ncontent-length:").count() <= 1, "{text:?}");
    }
});
