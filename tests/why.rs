//! `ringfence why` says of a host what a run under the same policy then does, and asks the resolver about admitted names alone.

mod common;

use common::Fence;
use std::net::{IpAddr, Ipv4Addr};
use world::address::{PUBLIC4, PUBLIC6, RESOLVER4};
use world::{Question, Said};

const FLAGS: [&str; 8] = [
    "--allow-host",
    "good.example.org",
    "--allow-host",
    "inside.example.org",
    "--allow-host",
    "nowhere.example.org",
    "--allow-host",
    "11.22.33.44",
];

fn why(fence: &Fence, target: &str, flags: &[&str]) -> Said {
    let mut command = fence.ringfence(&["why", target]);
    command.args(FLAGS).args(flags);
    fence.output(command)
}

fn fence() -> Fence {
    let fence = Fence::new();
    let resolver = &fence.internet.resolver;
    resolver.host("good.example.org", &[PUBLIC4.into(), PUBLIC6.into()]);
    let inside = [PUBLIC4.into(), IpAddr::from([10, 0, 0, 9]), IpAddr::from([169, 254, 169, 254])];
    resolver.host("inside.example.org", &inside);
    resolver.host("multicast.example.org", &[Ipv4Addr::new(224, 0, 0, 9).into()]);
    fence
}

/// The steps, with one space between a label and its text.
fn steps(said: &Said) -> Vec<String> {
    said.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
fn judged(fence: &Fence, target: &str, flags: &[&str], status: i32, expected: &[&str]) {
    let said = why(fence, target, flags);
    assert_eq!((said.code, said.err.as_str()), (Some(status), ""), "{target}: {said}");
    let steps = steps(&said);
    let (policy, rest): (Vec<&String>, Vec<&String>) = steps.iter().partition(|step| step.starts_with("policy "));
    assert_eq!(rest, expected, "{target}: {said}");
    assert!(policy.len() <= 1, "{said}");
}

#[test]
fn each_step_is_told() {
    let fence = fence();
    let by_resolver = |addrs: &str| format!("resolved by {RESOLVER4}:53: {addrs}");
    judged(
        &fence,
        "GOOD.example.org.",
        &[],
        0,
        &[
            "request good.example.org:443",
            "allowlist admitted by good.example.org",
            &by_resolver("2a00:1:2:3::44, 11.22.33.44"),
            "address 2a00:1:2:3::44 is public",
            "address 11.22.33.44 is public",
            "verdict admitted; tried in this order: [2a00:1:2:3::44]:443, 11.22.33.44:443",
        ],
    );
    judged(
        &fence,
        "inside.example.org:80",
        &["--trust-range", "10.0.0.0/24"],
        1,
        &[
            "request inside.example.org:80",
            "allowlist admitted by inside.example.org",
            &by_resolver("11.22.33.44, 10.0.0.9, 169.254.169.254"),
            "address 11.22.33.44 is public",
            "address 10.0.0.9 is trusted by the policy",
            "address 169.254.169.254 is denied: rule=metadata, 169.254.169.254 (cloud metadata)",
            "verdict refused: rule=metadata reason=denied_address",
            "to admit --trust-range 169.254.169.254/32",
        ],
    );
    judged(
        &fence,
        "11.22.33.44",
        &[],
        0,
        &[
            "request 11.22.33.44:443",
            "allowlist admitted by 11.22.33.44",
            "address 11.22.33.44 is public",
            "verdict admitted; tried in this order: 11.22.33.44:443",
        ],
    );
    judged(
        &fence,
        "10.0.0.9",
        &["--allow-host", "10.0.0.9"],
        0,
        &[
            "request 10.0.0.9:443",
            "allowlist admitted by 10.0.0.9",
            "address 10.0.0.9 is trusted by the policy",
            "verdict admitted; tried in this order: 10.0.0.9:443",
        ],
    );
    judged(
        &fence,
        "nowhere.example.org",
        &[],
        2,
        &[
            "request nowhere.example.org:443",
            "allowlist admitted by nowhere.example.org",
            "verdict admitted by name; the name has no address: Non-Existent Domain: the proxy would answer 502",
        ],
    );
    judged(
        &fence,
        "evil.example.net:22",
        &[],
        1,
        &[
            "request evil.example.net:22",
            "allowlist no entry names it; it is not resolved",
            "verdict refused: rule=default-deny reason=not_allowed",
            "to admit --allow-host evil.example.net:22",
        ],
    );
    judged(
        &fence,
        "good.example.org:22",
        &[],
        1,
        &[
            "request good.example.org:22",
            "allowlist the host is listed, but not with port 22; it is not resolved",
            "verdict refused: rule=port reason=port_not_allowed",
            "to admit --allow-host good.example.org:22",
        ],
    );
    judged(
        &fence,
        "evil.example.net\u{1b}[2J@good.example.org",
        &[],
        1,
        &[
            r#"request "evil.example.net\x1b[2J@good.example.org": it holds a control byte"#,
            "verdict refused: rule=malformed reason=control_byte",
        ],
    );
    judged(
        &fence,
        "multicast.example.org",
        &["--allow-host", "multicast.example.org"],
        1,
        &[
            "request multicast.example.org:443",
            "allowlist admitted by multicast.example.org",
            &by_resolver("224.0.0.9"),
            "address 224.0.0.9 is denied: rule=private-range, 224.0.0.0/4 (multicast, RFC 5771)",
            "verdict refused: rule=private-range reason=denied_address",
            "to admit 224.0.0.9: nothing opens it",
        ],
    );
    let asked = fence.internet.resolver.questions();
    let admitted = ["good.", "inside.", "nowhere.", "multicast."];
    let stray: Vec<&Question> =
        asked.iter().filter(|q| !admitted.iter().any(|name| q.name.starts_with(name))).collect();
    assert!(!asked.is_empty() && stray.is_empty(), "{stray:?}");
}

#[test]
fn what_tools_reach_without_the_proxy_is_judged_as_by_the_firewall() {
    let fence = fence();
    let direct = "loopback NO_PROXY names it: it is connected to without the proxy, as `loopback` says";
    for (target, flags, status, verdict) in [
        ("localhost:3000", &[][..], 0, "admitted"),
        ("[::1]:3000", &["--loopback", "3000"], 0, "admitted"),
        ("127.0.0.1:3001", &["--loopback", "3000"], 1, "refused by the firewall: rule=default-deny"),
        ("127.0.0.1:53", &[], 1, "refused by the firewall: rule=dns"),
        ("127.0.0.1:8500", &["--control-plane-port", "8500"], 1, "refused by the firewall: rule=control-plane"),
    ] {
        let request = format!("request {target}");
        judged(&fence, target, flags, status, &[&request, direct, &format!("verdict {verdict}")]);
    }
    for (target, flags, status, verdict) in [
        ("evil.example.net", &["--policy", "control"][..], 0, "admitted"),
        ("evil.example.net:8500", &["--policy", "control", "--control-plane-port", "8500"], 0, "admitted"),
        (
            "evil.example.net:8500",
            &["--policy", "non-root", "--control-plane-port", "8500"],
            1,
            "refused by the firewall: rule=control-plane",
        ),
    ] {
        let port = if target.contains(':') { "" } else { ":443" };
        judged(&fence, target, flags, status, &[&format!("request {target}{port}"), &format!("verdict {verdict}")]);
    }
    assert_eq!(fence.internet.resolver.questions(), [], "nothing of it is resolved");
}

#[test]
fn a_run_does_what_was_said_by_an_ordinary_user_too() {
    let fence = fence();
    let targets = ["good.example.org:443", "inside.example.org:443", "evil.example.net:443", "good.example.org:8443"];
    let script: String = targets
        .iter()
        .map(|target| format!("curl -s -o /dev/null -w '%{{http_connect}}\\n' https://{target}/ || true\n"))
        .collect();
    let ended = fence.run(&[&FLAGS[..], &["--policy", "nist-high"]].concat(), &script);
    let answers: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(answers, ["200", "403", "403", "403"], "{ended}");
    let user = common::own_user();
    for (target, answer) in targets.iter().zip(&answers) {
        let said = why(&fence, target, &[]);
        assert_eq!(said.code == Some(0), *answer == "200", "{target}: {said}");
        let flags = FLAGS.join(" ");
        let by_user = fence.as_user(user, &format!("{} why {target} {flags}", common::RINGFENCE));
        assert_eq!((by_user.code, by_user.out), (said.code, said.out), "{target}");
    }
    let refused = ended.denials();
    assert_eq!(refused.iter().filter(|denial| denial.http_status == Some(403)).count(), 3, "{ended}");
}
