//! An authority that parses has one spelling, which is what is matched, resolved, dialled and recorded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::policy::{Authority, Entry, Host, Level, Policy, Verdict};

fuzz_target!(|text: &[u8]| {
    for parsed in [Authority::parse_connect(text), Authority::parse_with_default(text, 443)] {
        let Ok(authority) = parsed else { continue };
        let canonical = authority.to_string();
        assert_eq!(Authority::parse_connect(canonical.as_bytes()), Ok(authority.clone()), "{canonical}");
        assert!(canonical.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()), "{canonical}");
        if let Host::Name(name) = &authority.host {
            // What a resolver would read as a number never gets as far as one.
            let last = name.as_str().rsplit('.').next().unwrap_or_default();
            assert!(!last.bytes().all(|b| b.is_ascii_digit()), "{canonical}");
            assert!(!name.as_str().ends_with('.') && name.as_str().len() <= 253, "{canonical}");
        }
        let list = Policy::of_level(Level::NistHigh).effective_allowlist().expect("the network is restricted");
        if let Verdict::Admitted { entry } = list.judge(&authority) {
            let entry = Entry::parse(&entry).expect("an entry's text");
            assert!(entry.admits_port(authority.port), "{canonical}");
        }
    }
});
