use super::Answer::*;
use super::*;

fn answer(line: &str) -> Option<Answer> {
    find(&line.to_ascii_lowercase()).map(|(answer, _)| answer)
}

#[test]
fn refusals_are_known_as_tools_print_them() {
    for (line, expected) in [
        ("touch: cannot touch '/usr/x': Read-only file system", ReadOnly),
        ("bash: line 1: /usr/x: Read-only file system", ReadOnly),
        ("sh: 1: cannot create /usr/x: Read-only file system", ReadOnly),
        ("OSError: [Errno 30] Read-only file system: '/usr/x'", ReadOnly),
        ("Error: EROFS: read-only file system, open '/usr/x'", ReadOnly),
        ("open /usr/x: read-only file system", ReadOnly),
        ("E: Could not open lock file /var/lib/apt/lists/lock - open (30: Read-only file system)", ReadOnly),
        ("npm ERR! code EROFS", ReadOnly),
        ("npm error code EACCES", Denied),
        ("npm error Error: EACCES: permission denied, mkdir '/usr/lib/node_modules/x'", Denied),
        ("PermissionError: [Errno 13] Permission denied: '/etc/x'", Denied),
        ("error: could not create '/usr/x' : Permission denied (os error 13)", Denied),
        ("  code: 'EACCES',", Denied),
        ("E: Could not open lock file /var/lib/dpkg/lock - open (13: Permission denied)", Denied),
        ("bash: ./run.sh: Permission denied", Denied),
        ("mkdir /usr/x: permission denied", Denied),
        ("mount: /mnt: permission denied.", Denied),
        ("chown: changing ownership of 'x': Operation not permitted", NotPermitted),
        ("PermissionError: [Errno 1] Operation not permitted: 'x'", NotPermitted),
        ("mount(\"a\", \"b\") = -1 EPERM (Operation not permitted)", NotPermitted),
        ("unshare: unshare failed: Operation not permitted", NotPermitted),
        ("sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.", Sudo),
        ("dev is not in the sudoers file.", Sudo),
        ("curl: (56) CONNECT tunnel failed, response 403", Forbidden),
        ("curl: (56) Received HTTP code 403 from proxy after CONNECT", Forbidden),
        ("fatal: unable to access 'https://a.test/x/': CONNECT tunnel failed, response 403", Forbidden),
        ("OSError('Tunnel connection failed: 403 Forbidden')", Forbidden),
        ("npm error 403 403 Forbidden - GET https://a.test/x", Forbidden),
        ("E: Failed to fetch http://a.test/x  403  Forbidden [IP: 127.0.0.1 3128]", Forbidden),
        ("  failed to get successful HTTP response from `https://a.test/x` (127.0.0.1), got 403", Forbidden),
        ("2026-01-01 00:00:00 ERROR 403: Forbidden.", Forbidden),
        ("urllib.error.HTTPError: HTTP Error 403: Forbidden", Forbidden),
        ("curl: (6) Could not resolve host: a.test", Unresolved),
        ("fatal: unable to access 'https://a.test/': Could not resolve host: a.test", Unresolved),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", Unresolved),
        ("  Temporary failure resolving 'a.test'", Unresolved),
        ("wget: unable to resolve host address 'a.test'", Unresolved),
        ("npm error request to https://a.test/x failed, reason: getaddrinfo EAI_AGAIN a.test", Unresolved),
        ("Error: getaddrinfo ENOTFOUND a.test", Unresolved),
        ("dial tcp: lookup a.test on 127.0.0.11:53: no such host", Unresolved),
        ("  failed to lookup address information: Temporary failure in name resolution", Unresolved),
        (";; communications error to 127.0.0.11#53: connection refused", Unresolved),
        ("curl: (7) Failed to connect to 10.0.0.9 port 80 after 0 ms: Connection refused", Refused),
        ("curl: (7) Failed to connect to a.test port 443 after 2 ms: Could not connect to server", Refused),
        ("ConnectionRefusedError: [Errno 111] Connection refused", Refused),
        ("Error: connect ECONNREFUSED 10.0.0.9:443", Refused),
        ("dial tcp 10.0.0.9:443: connect: connection refused", Refused),
        ("Connecting to a.test (a.test)|10.0.0.9|:80... failed: Connection refused.", Refused),
        ("tcp connect error: Connection refused (os error 111)", Refused),
    ] {
        assert_eq!(answer(line), Some(expected), "{line}");
    }
}

#[test]
fn what_only_speaks_of_refusals_is_none() {
    for line in [
        "",
        "If you see permission denied errors, run as root.",
        "        if (err.code === 'EACCES') {",
        "except PermissionError:",
        "#define EACCES 13 /* Permission denied */",
        "git@a.test: Permission denied (publickey).",
        "Permission denied, please try again.",
        "sudo: unable to resolve host box: Name or service not known",
        "collected 403 items",
        "the connection refused to close",
        "case EROFS_SUPER_MAGIC:",
        "total 403",
    ] {
        assert_eq!(answer(line), None, "{line}");
    }
}
