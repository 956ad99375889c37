//! An allowlist entry has one canonical text, and admits nothing that it does not name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::policy::entry::entries_of_file;
use ringfence::policy::{Entry, Name};

fuzz_target!(|text: &str| {
    for (line, entry) in entries_of_file(text) {
        assert!(line >= 1);
        let Ok(entry) = entry else { continue };
        let canonical = entry.to_string();
        assert_eq!(Entry::parse(&canonical).as_ref(), Ok(&entry), "{canonical}");
        // A `*` is only ever the whole first label.
        assert!(!canonical.trim_start_matches("*.").contains('*'), "{canonical}");
        if let Some(name) = canonical.strip_prefix("*.").and_then(|rest| Name::parse(rest.as_bytes()).ok()) {
            assert!(name.as_str().is_ascii());
        }
    }
});
