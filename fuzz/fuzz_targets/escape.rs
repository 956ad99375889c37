//! Whatever bytes a command puts into a name, what is stored and shown of them is printable and bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::ledger::escape::{TEXT_LIMIT, escape, escape_args, is_hidden, printable};

fuzz_target!(|bytes: &[u8]| {
    let stored = escape(bytes, TEXT_LIMIT);
    assert!(!stored.chars().any(|c| c.is_control() || is_hidden(c)), "{stored:?}");
    assert_eq!(printable(&stored), stored, "what is stored is shown as it is");
    for shorter in [0, 1, 7, 64] {
        assert!(escape(bytes, shorter).len() <= shorter.max(24));
    }
    let arguments = escape_args(bytes.split(|b| *b == 0), TEXT_LIMIT);
    assert!(arguments.iter().all(|text| !text.chars().any(char::is_control)));
    let text = String::from_utf8_lossy(bytes);
    assert!(!printable(&text).chars().any(|c| c.is_control() || is_hidden(c)));
});
