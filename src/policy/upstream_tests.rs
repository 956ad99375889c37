//! What names a parent proxy, what does not, and that credentials are shown by none of it.
use super::*;

fn parent(text: &str) -> ParentProxy {
    text.parse().unwrap_or_else(|bad| panic!("{bad}"))
}

#[test]
fn urls_of_parents() {
    for (text, shown, pair) in [
        ("http://proxy.example.org:3128", "http://proxy.example.org:3128", None),
        ("HTTP://Proxy.Example.org.:80/", "http://proxy.example.org:80", None),
        ("http://10.1.2.3:8080", "http://10.1.2.3:8080", None),
        ("http://[fd12::1]:8080", "http://[fd12::1]:8080", None),
        ("http://me:secret@proxy:3128", "http://…@proxy:3128", Some("me:secret")),
        ("http://me@proxy:3128", "http://…@proxy:3128", Some("me:")),
        ("http://me:@proxy:3128", "http://…@proxy:3128", Some("me:")),
        ("http://me:a%40b%3a%2f:c@proxy:3128", "http://…@proxy:3128", Some("me:a@b:/:c")),
        ("http://m%20e:^$!*@proxy:3128/", "http://…@proxy:3128", Some("m e:^$!*")),
    ] {
        let read = parent(text);
        assert_eq!(read.to_string(), shown, "{text}");
        let found = read.credentials().map(|c| String::from_utf8_lossy(c.pair()).into_owned());
        assert_eq!(found.as_deref(), pair, "{text}");
        assert!(!format!("{read:?}").contains("secret"), "{read:?}");
        assert_eq!(text.parse::<Upstream>().unwrap().to_string(), shown);
        assert_eq!(text.parse::<Upstream>().unwrap().has_credentials(), pair.is_some());
    }
    assert_eq!("none".parse(), Ok(Upstream::None));
    assert_eq!("environment".parse(), Ok(Upstream::Environment));
}

#[test]
fn what_is_no_parent_is_refused_without_showing_credentials() {
    for (text, why) in [
        ("", "no scheme"),
        ("None", "no scheme"),
        ("proxy.example.org:3128", "no scheme"),
        ("me:secret@proxy.example.org:3128", "no scheme"),
        ("https://proxy.example.org:3128", "by the scheme http"),
        ("https://me:secret@proxy.example.org:3128", "by the scheme http"),
        ("socks5h://me:secret@proxy.example.org:1080", "by the scheme http"),
        ("http://", "host is empty"),
        ("http://proxy.example.org", "port is missing"),
        ("http://proxy.example.org/", "port is missing"),
        ("http://proxy.example.org:0", "port"),
        ("http://proxy.example.org:3128/path", ""),
        ("http://proxy.example.org:3128//", ""),
        ("http://proxy.example.org:3128?x", ""),
        ("http://proxy.example.org:3128\r\nX: y", ""),
        ("http://*.example.org:3128", ""),
        ("http://@proxy.example.org:3128", "the user is empty"),
        ("http://:secret@proxy.example.org:3128", "the user is empty"),
        ("http://m%3ae:secret@proxy.example.org:3128", "holds a colon"),
        ("http://me:secret%@proxy.example.org:3128", "two hexadecimal digits"),
        ("http://me:secret%4@proxy.example.org:3128", "two hexadecimal digits"),
        ("http://me:secret%0d%0ax@proxy.example.org:3128", "a control byte"),
        ("http://me:secret\n@proxy.example.org:3128", "percent-encoded"),
        ("http://me:secret/x@proxy.example.org:3128", "percent-encoded"),
        ("http://me:secret@x@proxy.example.org:3128", "percent-encoded"),
        ("http://me:secreté@proxy.example.org:3128", "percent-encoded"),
        ("http://…@proxy.example.org:3128", "were left out where it was printed"),
        ("http://me:secret@proxy.example.org", "port is missing"),
    ] {
        let bad = text.parse::<Upstream>().expect_err(text).to_string();
        assert!(bad.contains(why), "{text}: {bad}");
        assert!(bad.contains("accepted: none, environment, http://[user:password@]host:port"), "{bad}");
        assert!(!bad.contains("secret") && !bad.contains('\n'), "{bad}");
    }
}

#[test]
fn the_first_variable_that_says_something_counts() {
    let asked = |set: &[(&str, &str)]| {
        in_environment(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
            .map(|parent| parent.to_string())
            .map_err(|none| none.to_string())
    };
    let (a, b) = ("http://a:1", "http://b:1");
    assert_eq!(asked(&[("https_proxy", a), ("HTTP_PROXY", b)]), Ok(a.into()));
    assert_eq!(asked(&[("HTTPS_PROXY", ""), ("https_proxy", ""), ("http_proxy", a), ("ALL_PROXY", b)]), Ok(a.into()));
    assert_eq!(asked(&[("all_proxy", a), ("NO_PROXY", b)]), Ok(a.into()));
    assert!(asked(&[("NO_PROXY", a)]).unwrap_err().contains("none of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY is set"));
    let bad = asked(&[("HTTPS_PROXY", "socks5://me:secret@a:1"), ("HTTP_PROXY", b)]).unwrap_err();
    assert!(bad.starts_with("upstream environment: HTTPS_PROXY: \"socks5://"), "{bad}");
    assert!(!bad.contains("secret"), "{bad}");
}

#[test]
fn credentials_are_found_where_a_url_holds_them() {
    let credentials = parent("http://me:s%40@proxy:1").credentials().cloned().unwrap();
    assert!(credentials.stand_in(b"http://me:s%40@proxy:1/") && credentials.stand_in(b"-x me:s%40@h"));
    assert!(!credentials.stand_in(b"me:s%40") && !credentials.stand_in(b"") && !credentials.stand_in(b"me@x"));
}
