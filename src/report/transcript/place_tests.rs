use super::super::signature::find;
use super::*;

fn named(line: &str) -> Vec<String> {
    let (answer, at) = find(&line.to_ascii_lowercase()).expect("a refusal");
    objects(answer, line, at)
}

#[test]
fn paths_are_seen_where_tools_print_them() {
    for (line, expected) in [
        ("touch: cannot touch '/usr/x': Read-only file system", &["/usr/x"][..]),
        ("mkdir: cannot create directory \u{2018}/usr/x y\u{2019}: Read-only file system", &["/usr/x y"]),
        ("bash: line 1: /usr/x: Read-only file system", &["/usr/x"]),
        ("sh: 1: cannot create /usr/x: Read-only file system", &["/usr/x"]),
        ("OSError: [Errno 30] Read-only file system: '/usr/x'", &["/usr/x"]),
        ("Error: EROFS: read-only file system, open '/usr/x'", &["/usr/x"]),
        ("open /usr/x: read-only file system", &["/usr/x"]),
        ("E: Could not open lock file /var/lib/lock - open (13: Permission denied)", &["/var/lib/lock"]),
        ("mv: cannot move '/tmp/a' to '/usr/a': Permission denied", &["/tmp/a", "/usr/a"]),
        ("rm: cannot remove 'x': Operation not permitted", &["x"]),
        ("tar: usr: Cannot open: Permission denied", &[]),
        ("tee: out: Permission denied", &["out"]),
        ("PermissionError: [Errno 1] Operation not permitted", &[]),
        ("npm error code EACCES", &[]),
    ] {
        let seen = named(line);
        assert_eq!(&seen[..expected.len().min(seen.len())], expected, "{line}: {seen:?}");
        assert!(!expected.is_empty() || seen.iter().all(|name| !name.starts_with('/')), "{line}: {seen:?}");
    }
}

#[test]
fn hosts_are_seen_where_tools_print_them() {
    for (line, expected) in [
        ("curl: (6) Could not resolve host: A.test", "a.test"),
        ("fatal: unable to access 'https://u@a.test:8443/x/': CONNECT tunnel failed, response 403", "a.test"),
        ("HTTPSConnectionPool(host='a.test', port=443): OSError('Tunnel connection failed: 403 Forbidden')", "a.test"),
        ("Error: connect ECONNREFUSED 10.0.0.9:443", "10.0.0.9"),
        ("Error: connect ECONNREFUSED ::1", "::1"),
        ("Error: getaddrinfo ENOTFOUND a.test", "a.test"),
        ("dial tcp: lookup a.test on 127.0.0.11:53: no such host", "a.test"),
        ("dial tcp 10.0.0.9:443: connect: connection refused", "10.0.0.9"),
        ("  Temporary failure resolving 'a.test'", "a.test"),
        ("wget: unable to resolve host address \u{2018}a.test\u{2019}", "a.test"),
        ("curl: (7) Failed to connect to a.test port 443 after 2 ms: Could not connect to server", "a.test"),
        ("curl: (7) Failed to connect to localhost port 80: Connection refused", "localhost"),
    ] {
        assert_eq!(named(line).first().map(String::as_str), Some(expected), "{line}");
    }
    for nameless in [
        "curl: (56) CONNECT tunnel failed, response 403",
        "Proxy request sent to 127.0.0.1:3128, awaiting response... 403 Forbidden",
        ";; communications error to 127.0.0.11#53: connection refused",
    ] {
        assert!(named(nameless).is_empty(), "{nameless}");
    }
    assert!(is_loopback("localhost") && is_loopback("127.0.0.2") && is_loopback("::1") && !is_loopback("10.0.0.9"));
}
