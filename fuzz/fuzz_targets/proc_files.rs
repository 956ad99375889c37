//! Files of the image and of /proc that are read for facts: accounts, resolvers, hosts, listeners.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::host::survey;
use ringfence::install::account::Databases;
use ringfence::proxy::Dns;

fuzz_target!(|bytes: &[u8]| {
    let databases = Databases {
        passwd: Some(bytes.to_vec()),
        group: Some(bytes.to_vec()),
        shadow: Some(bytes.to_vec()),
        gshadow: Some(bytes.to_vec()),
    };
    for identity in ["agent", "1000", "10001:5"].iter().filter_map(|user| databases.named(user).ok()) {
        assert!(!identity.uid.is_root() && identity.gid.as_raw() != 0, "{identity:?}");
        assert!(identity.home.is_absolute() && identity.shell.is_absolute(), "{identity:?}");
        for (path, content) in databases.rewritten(&identity) {
            assert!(path.is_absolute() && content.len() <= 2 * bytes.len() + 4096, "{}", path.display());
        }
    }
    assert!(databases.homes().iter().all(|home| home.is_absolute()));

    let dns = Dns::from_files(bytes, bytes);
    assert!(dns.nameservers.iter().all(|server| server.port() == 53));

    for line in String::from_utf8_lossy(bytes).lines() {
        for v6 in [false, true] {
            if let Some(listener) = survey::listener(line, v6) {
                assert_eq!(listener.address.is_ipv6(), v6);
            }
        }
        assert!(survey::unix_path(line).is_none_or(|path| path.is_absolute()));
    }
});
