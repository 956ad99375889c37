//! What is asked for, of whom, and what an answer comes to.
use super::*;

fn proxy(set: &[(&str, &str)]) -> Result<SocketAddr, String> {
    let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
    proxy_of(value).map_err(|error| error.to_string())
}

#[test]
fn the_first_variable_that_says_something_counts() {
    let all = [
        ("https_proxy", "http://127.0.0.1:1"),
        ("HTTPS_PROXY", "http://127.0.0.1:2"),
        ("all_proxy", "http://127.0.0.1:3"),
        ("ALL_PROXY", "http://127.0.0.1:4"),
    ];
    for first in 0..all.len() {
        let port = u16::try_from(first).unwrap() + 1;
        assert_eq!(proxy(&all[first..]), Ok(([127, 0, 0, 1], port).into()));
        let mut set = all;
        set[..first].iter_mut().for_each(|(_, value)| *value = "");
        assert_eq!(proxy(&set), Ok(([127, 0, 0, 1], port).into()), "empty is not set");
    }
    assert!(proxy(&[("http_proxy", "http://127.0.0.1:1")]).unwrap_err().contains("none of https_proxy, HTTPS_PROXY"));
    // What is set and wrong is no reason to look on.
    let set = [("https_proxy", "socks5://127.0.0.1:1"), ("HTTPS_PROXY", "http://127.0.0.1:2")];
    assert!(proxy(&set).unwrap_err().contains("https_proxy=\"socks5://127.0.0.1:1\" is no proxy"));
}

#[test]
fn a_proxy_is_an_address_and_a_port() {
    for (url, expected) in [
        ("http://127.0.0.1:3128", "127.0.0.1:3128"),
        ("http://127.0.0.1:3128/", "127.0.0.1:3128"),
        ("http://[::1]:80", "[::1]:80"),
    ] {
        assert_eq!(proxy(&[("all_proxy", url)]), Ok(expected.parse().unwrap()), "{url}");
    }
    for url in [
        "127.0.0.1:3128",
        "https://127.0.0.1:3128",
        "http://127.0.0.1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:3128//",
        "http://127.0.0.1:3128/x",
        "http://user@127.0.0.1:3128",
        "http://localhost:3128",
        "http://::1:3128",
        "http://[::1%lo]:3128",
        "http://0x7f.1:3128",
        "http://",
        " http://127.0.0.1:3128",
        "http://127.0.0.1:3128\n",
    ] {
        let said = proxy(&[("all_proxy", url)]).unwrap_err();
        assert!(said.contains("all_proxy=") && said.contains("accepted: http://ADDRESS:PORT"), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn what_is_asked_for_has_one_spelling() {
    for (host, port, expected) in [
        ("GitHub.com.", "22", "github.com:22"),
        ("11.22.33.44", "22", "11.22.33.44:22"),
        ("2A00::1", "22", "[2a00::1]:22"),
        ("[2a00::1]", "22", "[2a00::1]:22"),
    ] {
        assert_eq!(authority(host, port).unwrap().to_string(), expected);
    }
    for (host, port, expected) in [
        ("a b", "22", "a space"),
        ("a.test", "022", "the port must be decimal"),
        ("a.test", "ssh", "the port must be decimal"),
        ("a.test:22", "22", "a colon too many"),
        ("a.test\r\nX: y", "22", "a control byte"),
        ("me@a.test", "22", "'@'"),
        ("", "22", "the host is empty"),
    ] {
        let said = authority(host, port).unwrap_err().to_string();
        assert!(said.contains(expected) && !said.contains('\n') && !said.contains('\r'), "{said}");
    }
}

#[test]
fn an_answer_is_read_by_its_status_alone() {
    let whole = b"HTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\nSSH-2.0-x";
    let length = whole.len() - "SSH-2.0-x".len();
    assert_eq!(head(whole), Ok(Head::Tunnel(length)));
    for end in 0..length {
        assert_eq!(head(&whole[..end]), Ok(Head::Partial), "{end}");
    }
    assert_eq!(head(b"HTTP/1.0 299 \r\n\r\n"), Ok(Head::Tunnel(17)));
    assert_eq!(head(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), Ok(Head::Interim(25)));
    for status in [300, 403, 407, 502] {
        let bytes = format!("HTTP/1.1 {status} No Way\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(head(bytes.as_bytes()), Ok(Head::Refused(status, "No Way".into())));
    }
    for bytes in [&b"SSH-2.0-OpenSSH\r\n"[..], b"HTTP/1.1 20 x\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"\0"] {
        assert!(head(bytes).is_err(), "{bytes:?}");
    }
}
