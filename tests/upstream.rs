//! Egress by a parent proxy: what it is asked and what it never hears of, who resolves names, and what becomes of its
//! refusals.

mod common;
#[path = "upstream/parent.rs"]
mod parent;

use common::{Ended, Fence};
use parent::{BASIC, PAIR, PORT, Parent, WRITTEN, run_with, said_with, url, without_credentials};
use ringfence::ledger::record::{Body, Infrastructure};
use serde_json::json;
use world::address::{PRIVATE4, PUBLIC4};

fn failures<'a>(ended: &'a Ended, host: &str) -> Vec<&'a Infrastructure> {
    let all = ended.records.iter().filter_map(|record| match &record.body {
        Body::Infrastructure(failure) => Some(failure),
        _ => None,
    });
    all.filter(|failure| failure.object.host.as_deref() == Some(host)).collect()
}

const ASKS: &str = "
get() { curl -s -o /dev/null -w \"$1=%{http_code} %{http_connect}\\n\" \"${@:2}\"; }
get tunnel https://pypi.org/
get plain http://pypi.org/bytes/5?a=b -H 'Proxy-Secret: 1' -H 'Ringfence-Refusal: 1' -H 'X-Own: 2'
get port http://ported.example.org:8080/
get post http://pypi.org/echo -d body
get options -X OPTIONS --request-target http://pypi.org http://pypi.org
get literal http://11.22.33.44/
get socks -x socks5h://${http_proxy#http://} https://pypi.org/
get within -p http://pypi.org/bytes/1 -o /dev/null http://pypi.org/bytes/2 2>&1 | tail -1
get refused https://evil.example.net/
get refused-plain http://evil.example.net/
get private https://10.0.0.5/
get multicast http://224.0.0.9/
get metadata http://169.254.169.254/
";

const ADMIT: [&str; 8] = [
    "--policy",
    "nist-high",
    "--allow-host",
    "11.22.33.44",
    "--allow-host",
    "ported.example.org:8080",
    "--allow-host",
    "224.0.0.9",
];

#[test]
fn admitted_names_are_the_parents_to_resolve_and_refused_ones_never_reach_it() {
    let fence = Fence::new();
    let table = json!({"pypi.org": PUBLIC4, "ported.example.org": PUBLIC4, "evil.example.net": PUBLIC4});
    let parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, PAIR, table);
    let ported = world::Origin::http(fence.world.outside(), PUBLIC4, 8080, world::origin::standard()).expect("origin");
    // The control: without a parent the name is resolved here.
    fence.internet.resolver.host("pypi.org", &[PUBLIC4.into()]);
    let direct = fence.run(&ADMIT, "curl -s -o /dev/null -w 'direct=%{http_code}\\n' https://pypi.org/");
    assert_eq!(direct.value("direct"), "200", "{direct}");
    let asked = fence.internet.resolver.questions().len();
    assert!(asked > 0 && parent.heads().is_empty());

    let flags = [&ADMIT[..], &["--upstream", "environment"]].concat();
    let ended = run_with(&fence, &[("HTTPS_PROXY", &url())], &flags, ASKS);
    for (key, expected) in [
        ("tunnel", "200 200"),
        ("plain", "200 000"),
        ("port", "200 000"),
        ("post", "200 000"),
        ("literal", "200 000"),
        ("socks", "200 000"),
        ("within", "200 000"),
        ("refused", "000 403"),
        ("refused-plain", "403 000"),
        ("private", "000 403"),
        ("multicast", "403 000"),
        ("metadata", "403 000"),
    ] {
        assert_eq!(ended.value(key), expected, "{key}: {ended}");
    }
    assert_eq!(fence.internet.resolver.questions().len(), asked, "{:?}", fence.internet.resolver.questions());
    assert_eq!(ported.requests().len(), 1);
    let targets: Vec<String> = fence.internet.http.requests().iter().map(|request| request.target.clone()).collect();
    assert!(targets.ends_with(&["/bytes/1".to_owned(), "/bytes/2".to_owned()]), "{targets:?}");

    let heads = parent.heads();
    let firsts: Vec<&str> = heads.iter().map(|head| head.lines().next().unwrap_or_default()).collect();
    assert_eq!(
        firsts,
        [
            "CONNECT pypi.org:443 HTTP/1.1",
            "GET http://pypi.org/bytes/5?a=b HTTP/1.1",
            "GET http://ported.example.org:8080/ HTTP/1.1",
            "POST http://pypi.org/echo HTTP/1.1",
            "OPTIONS http://pypi.org HTTP/1.1",
            "GET http://11.22.33.44/ HTTP/1.1",
            "CONNECT pypi.org:443 HTTP/1.1",
            // Two requests in one tunnel: each by a tunnel of its own, in origin form.
            "CONNECT pypi.org:80 HTTP/1.1",
            "CONNECT pypi.org:80 HTTP/1.1",
        ]
    );
    assert_eq!(
        heads[0],
        format!("CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\nProxy-Authorization: Basic {BASIC}")
    );
    let plain: Vec<&str> = heads[1].split("\r\n").collect();
    assert_eq!(plain[1..3], ["Host: pypi.org".to_owned(), format!("Proxy-Authorization: Basic {BASIC}")]);
    assert!(plain.contains(&"X-Own: 2") && plain.contains(&"Connection: close"), "{plain:?}");
    let proxies = plain.iter().filter(|line| line.to_lowercase().starts_with("proxy-")).count();
    assert_eq!(proxies, 1, "{plain:?}");
    assert!(!heads[1].to_lowercase().contains("ringfence"), "{plain:?}");
    assert!(heads[2].contains("\r\nHost: ported.example.org:8080\r\n"), "{}", heads[2]);

    let rules: Vec<(&str, &str)> = ended
        .denials()
        .iter()
        .map(|denial| (denial.object.host.as_deref().unwrap_or_default(), denial.reason.as_str()))
        .collect();
    assert_eq!(
        rules,
        [
            ("evil.example.net", "not_allowed"),
            ("evil.example.net", "not_allowed"),
            ("10.0.0.5", "not_allowed"),
            ("224.0.0.9", "denied_address"),
            ("169.254.169.254", "not_allowed"),
        ]
    );
    assert!(ended.seal().complete, "{ended}");
    let mechanism = &ended.start().restrictions["egress by allowlist"];
    assert!(mechanism.ends_with("; by names alone, which an upstream proxy resolves"), "{mechanism}");
    let told = format!("the upstream proxy http://…@{PRIVATE4}:{PORT} resolves them, and none was judged");
    assert!(ended.start().unobserved.iter().any(|sentence| sentence.contains(&told)), "{ended}");
    let of_direct = direct.start();
    assert!(!of_direct.restrictions["egress by allowlist"].contains("upstream"));
    assert!(!of_direct.unobserved.iter().any(|sentence| sentence.contains("upstream")));
}

#[test]
fn what_the_parent_refuses_is_no_denial_and_names_its_status() {
    let fence = Fence::new();
    let long = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(70_000);
    let table = json!({
        "busy.example.org": {"answer": "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"},
        "moved.example.org": {"answer": "HTTP/1.1 302 Found\r\nLocation: http://evil/\r\n\r\n"},
        "noise.example.org": {"answer": "SSH-2.0-noise\r\n"},
        "long.example.org": {"answer": long},
        "closed.example.org": {"answer": ""},
        "silent.example.org": {"silent": true},
    });
    let _parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, "", table);
    let cases = [
        ("busy.example.org", "502", "answered 503 to CONNECT"),
        ("moved.example.org", "502", "answered 302 to CONNECT"),
        ("noise.example.org", "502", "does not parse"),
        ("long.example.org", "502", "longer than 64 KiB"),
        ("closed.example.org", "502", "closed before the end of its response head"),
        ("silent.example.org", "504", "no answer to CONNECT within 10s"),
    ];
    let parent_url = format!("http://{PRIVATE4}:{PORT}");
    let mut flags = vec!["--policy", "nist-high", "--upstream", &parent_url];
    let mut script = String::new();
    for (name, ..) in cases {
        flags.extend(["--allow-host", name]);
        script += &format!("curl -s -o /dev/null -w '{name}=%{{http_connect}}\\n' https://{name}/ &\n");
    }
    // By itself: a page and what is told of it are two writes.
    script += "wait\ncurl -s -w ' plain=%{http_code}\\n' http://busy.example.org/\n";
    let ended = fence.run(&flags, &script);
    for (name, status, cause) in cases {
        assert_eq!(ended.value(name), status, "{ended}");
        let [failure] = failures(&ended, name)[..] else { panic!("{name}: {ended}") };
        assert_eq!(failure.http_status.map(|s| s.to_string()).as_deref(), Some(status), "{failure:?}");
        assert_eq!((failure.operation.as_str(), failure.object.addrs.len()), ("connect", 0), "{failure:?}");
        let start = format!("the upstream proxy {parent_url}: ");
        assert!(failure.cause.starts_with(&start) && failure.cause.contains(cause), "{failure:?}");
    }
    // What it answers to a plain request is the answer.
    assert!(ended.said.out.contains("busy plain=503"), "{ended}");
    assert!(ended.denials().is_empty() && ended.seal().complete, "{ended}");
}

#[test]
fn a_parent_that_wants_other_credentials_is_named_and_asks_the_client_for_none() {
    let fence = Fence::new();
    let parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, PAIR, json!({"pypi.org": PUBLIC4}));
    let script = "curl -s -o /dev/null -w 'tunnel=%{http_connect}\\n' https://pypi.org/
                  curl -s -w 'plain=%{http_code} %{size_download}\\n' http://pypi.org/";
    for credentials in ["", "robot:wrong-password@", "robot@"] {
        let value = format!("http://{credentials}{PRIVATE4}:{PORT}");
        let flags = ["--policy", "nist-high", "--upstream", "environment"];
        let ended = run_with(&fence, &[("http_proxy", &value)], &flags, script);
        assert_eq!((ended.value("tunnel"), ended.value("plain")), ("502", "502 0"), "{ended}");
        let found = failures(&ended, "pypi.org");
        let operations: Vec<&str> = found.iter().map(|failure| failure.operation.as_str()).collect();
        assert_eq!(operations, ["connect", "exchange"], "{ended}");
        assert!(found.iter().all(|f| f.cause.contains("it answered 407: it wants credentials")), "{ended}");
        assert!(ended.denials().is_empty() && !ended.to_string().contains("wrong-password"), "{ended}");
    }
    assert_eq!(parent.heads().len(), 6);
    assert!(fence.internet.https.requests().is_empty() && fence.internet.http.requests().is_empty());
}

#[test]
fn the_parent_is_found_by_our_resolver_wherever_it_is() {
    let fence = Fence::new();
    // The operator names the parent, which no allowlist admits.
    fence.admits(&["proxy.corp.example.org", "nowhere.example.org", "looped.example.org"]);
    let resolver = &fence.internet.resolver;
    resolver.host("proxy.corp.example.org", &[PRIVATE4.into()]);
    let parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, "", json!({"pypi.org": PUBLIC4}));
    resolver.host("looped.example.org", &[[127, 0, 0, 1].into()]);
    let script = "curl -s -o /dev/null -w 'tunnel=%{http_connect}\\n' https://pypi.org/
                  curl -s -o /dev/null -w 'itself=%{http_code}\\n' http://proxy.corp.example.org:3128/
                  curl -s -o /dev/null -w 'past=%{http_code}\\n' --noproxy '*' --max-time 5 -x '' http://10.0.0.5:3128/";
    let run = |upstream: &str| fence.run(&["--policy", "nist-high", "--upstream", upstream], script);
    let ended = run("http://proxy.corp.example.org:3128");
    assert_eq!((ended.value("tunnel"), ended.value("itself"), ended.value("past")), ("200", "403", "000"), "{ended}");
    assert!(!resolver.questions_about("proxy.corp.example.org").is_empty());
    assert!(resolver.questions_about("pypi.org").is_empty());
    assert_eq!(parent.heads().len(), 1);

    for (upstream, operation, cause) in [
        (
            "http://nowhere.example.org:3128",
            "resolve",
            "the upstream proxy http://nowhere.example.org:3128: the name has no address",
        ),
        (
            "http://looped.example.org:3128",
            "resolve",
            "the upstream proxy http://looped.example.org:3128: the name has no address: a resolver gives loopback for it",
        ),
        ("http://10.0.0.5:3129", "connect", "the upstream proxy http://10.0.0.5:3129: connect 10.0.0.5:3129"),
    ] {
        let ended = run(upstream);
        assert_eq!(ended.value("tunnel"), "502", "{ended}");
        let [failure] = failures(&ended, "pypi.org")[..] else { panic!("{ended}") };
        assert_eq!((failure.operation.as_str(), failure.http_status), (operation, Some(502)), "{failure:?}");
        assert!(failure.cause.starts_with(cause), "{failure:?}");
        assert!(ended.seal().complete, "{ended}");
    }
}

#[test]
fn what_names_no_parent_ends_before_anything_starts() {
    let fence = Fence::new();
    let by_environment = ["--policy", "nist-high", "--upstream", "environment"];
    let credentials = format!("http://{WRITTEN}@10.0.0.5:3128");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);
    let cases: [Case<'_>; 7] = [
        (&[], &by_environment, "none of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY is set"),
        (
            &[("HTTPS_PROXY", "socks5h://robot:tr%40ffic-pw@p.example.org:1")],
            &by_environment,
            "HTTPS_PROXY: \"socks5h://",
        ),
        (&[("ALL_PROXY", "p.example.org:3128")], &by_environment, "it has no scheme"),
        (&[], &["--policy", "nist-high", "--upstream", &credentials], "credentials on the command line can be read"),
        (&[], &["--policy", "nist-high", "--upstream", "https://robot:tr%40ffic-pw@p:1"], "is no upstream"),
        (&[("HTTP_PROXY", "http://127.0.0.1:3128")], &by_environment, "the command could ask it for anything"),
        (&[], &["--policy", "nist-high", "--upstream", "http://localhost:3128"], "loopback leaves it 127.0.0.1:3128"),
    ];
    for (environment, flags, cause) in cases {
        let ended = run_with(&fence, environment, flags, "touch /dev/shm/started");
        assert_eq!(ended.said.code, Some(125), "{cause}: {ended}");
        assert!(ended.said.err.contains(cause) && ended.said.err.lines().count() == 1, "{cause}: {ended}");
        assert!(ended.records.is_empty() && fence.world.read("/dev/shm/started").is_none(), "{cause}: {ended}");
        without_credentials(&ended.said.to_string());
    }
    // Loopback that leaves the port out is no objection, and an open network needs no parent.
    let closed = ["--policy", "nist-high", "--loopback", "8000", "--upstream", "http://127.0.0.1:3128"];
    assert_eq!(fence.run(&closed, "true").said.code, Some(0));
    let open = run_with(&fence, &[], &["--policy", "non-root", "--upstream", "environment"], "true");
    assert_eq!(open.said.code, Some(0), "{open}");
    let plan = said_with(&fence, &[], &["plan", "--policy", "non-root", "--upstream", "environment"]);
    assert!(plan.out.contains("note: upstream has no effect: the network is open"), "{plan}");
    let unused = said_with(&fence, &[("http_proxy", &credentials)], &["plan"]);
    assert!(
        unused.out.contains("note: the proxy that http_proxy names is not used: --upstream environment"),
        "{unused}"
    );
    without_credentials(&unused.to_string());
    assert!(!said_with(&fence, &[], &["plan"]).out.contains("upstream"));
}

#[test]
fn why_tells_of_the_parent() {
    let fence = Fence::new();
    let steps = |target: &str| -> Vec<String> {
        let flags = ["--upstream", "http://10.0.0.5:3128", "--allow-host", "11.22.33.44", "--allow-host", "224.0.0.9"];
        let said = said_with(&fence, &[], &[&["why", target], &flags[..]].concat());
        let lines = said.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let told = |line: &String| !line.starts_with("policy ") && !line.starts_with("request ");
        lines.filter(told).chain([format!("{:?}", said.code)]).collect()
    };
    let verdict = "verdict admitted; asked for at http://10.0.0.5:3128";
    assert_eq!(
        steps("pypi.org"),
        [
            "allowlist admitted by pypi.org",
            "upstream http://10.0.0.5:3128, at 10.0.0.5:3128; it resolves the name, and no address is judged",
            verdict,
            "Some(0)",
        ]
    );
    assert_eq!(
        steps("11.22.33.44"),
        [
            "allowlist admitted by 11.22.33.44",
            "address 11.22.33.44 is public",
            "upstream http://10.0.0.5:3128, at 10.0.0.5:3128",
            verdict,
            "Some(0)",
        ]
    );
    let refused = steps("224.0.0.9");
    assert!(refused.iter().any(|line| line.starts_with("verdict refused: rule=private-range")), "{refused:?}");
    let stranger = steps("stranger.example.org");
    assert!(stranger.contains(&"to admit --allow-host stranger.example.org".to_owned()), "{stranger:?}");
    assert!(fence.internet.resolver.questions().is_empty());
}
