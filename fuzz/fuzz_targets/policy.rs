//! A policy that loads is shown as a policy that loads back to the same digest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::policy::{Layer, Policy};
use std::path::Path;

fuzz_target!(|text: &str| {
    let file = Path::new("p.toml");
    match Policy::from_toml(file, text, &Layer::default()) {
        Ok(policy) => {
            let shown = policy.to_toml();
            let again = Policy::from_toml(file, &shown, &Layer::default()).expect("what is shown loads");
            assert_eq!(again.digest(), policy.digest(), "{shown}");
            assert_eq!(again.check_holdable().is_ok(), policy.check_holdable().is_ok());
        }
        Err(fault) => assert!(!fault.to_string().contains('\n'), "{fault}"),
    }
});
