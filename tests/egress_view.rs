//! What a shell can reach under `nist-high`: the origins and sinks outside say it, not only the client.

mod common;

use common::Fence;
use ringfence::ledger::record::Mechanism;
use ringfence::policy::Axis;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use world::address::{METADATA4, METADATA6, NAT64_PRIVATE, PRIVATE4, PUBLIC4, PUBLIC6, RESOLVER4};
use world::internet::{STRANGER, everywhere};
use world::{Origin, origin};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A port where only the sinks listen.
const PORT: u16 = 4444;

#[test]
fn an_admitted_name_is_fetched_through_the_proxy() {
    let fence = Fence::new();
    let ended = fence.run(&FLAGS, "curl -sS http://pypi.org/ && curl -sS https://pypi.org/");
    assert_eq!(ended.said.out, "hello from pypi.org\n".repeat(2), "{ended}");
    let internet = &fence.internet;
    let plain = [internet.http.requests(), internet.http6.requests()].concat();
    let tls = [internet.https.requests(), internet.https6.requests()].concat();
    assert_eq!((plain.len(), tls.len()), (1, 1), "{ended}");
    assert_eq!(tls[0].server_name.as_deref(), Some("pypi.org"));
    assert!(plain[0].head.starts_with("GET / HTTP/1.1\r\n"), "{}", plain[0].head);
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn any_other_name_gets_a_bare_403_and_no_question() {
    let fence = Fence::new();
    let fetch = format!("curl -s https://{STRANGER}/; curl -s http://{STRANGER}/");
    let said = fence.as_root(&fetch);
    assert_eq!(said.out, format!("hello from {STRANGER}\n").repeat(2), "the attempt is live: {said}");
    let asked = fence.internet.resolver.questions_about(STRANGER).len();
    let reached = || fence.internet.stranger.requests().len() + fence.internet.stranger_https.requests().len();
    assert_eq!(reached(), 2);

    let script = format!(
        r#"
        curl -s -o /tmp/body -w 'plain=%{{http_code}} %{{size_download}}\n' http://{STRANGER}/
        curl -s -o /dev/null -w 'connect=%{{http_connect}}\n' https://{STRANGER}/
        proxy=${{HTTPS_PROXY#http://}}; proxy=${{proxy%/}}
        exec 3<>/dev/tcp/${{proxy%:*}}/${{proxy##*:}}
        printf 'CONNECT {STRANGER}:443 HTTP/1.1\r\nHost: {STRANGER}:443\r\nConnection: close\r\n\r\n' >&3
        cat <&3"#
    );
    let ended = fence.run(&FLAGS, &script);
    assert_eq!((ended.value("plain"), ended.value("connect")), ("403 0", "403"), "{ended}");
    let (_, raw) = ended.said.out.split_once("HTTP/1.1 403").expect("the raw answer");
    let (_, body) = raw.split_once("\r\n\r\n").expect("the end of the head");
    assert_eq!(body, "", "{ended}");
    assert!(!ended.said.out.to_lowercase().contains("ringfence"), "{ended}");

    let denials = ended.denials_of(STRANGER);
    assert_eq!(denials.len(), 3, "{ended}");
    assert!(denials.iter().all(|one| one.mechanism == Mechanism::Proxy && one.axis == Axis::Network), "{ended}");
    assert!(denials.iter().all(|one| one.reason == "not_allowed" && one.http_status == Some(403)), "{ended}");
    assert_eq!(denials.iter().map(|one| one.object.port).collect::<Vec<_>>(), [Some(80), Some(443), Some(443)]);
    assert_eq!(
        fence.internet.resolver.questions_about(STRANGER).len(),
        asked,
        "a name that is refused is not resolved"
    );
    assert_eq!(reached(), 2, "{ended}");
}

#[test]
fn an_admitted_name_with_a_denied_address_is_refused() {
    let fence = Fence::new();
    // The loopback's server is the box's own: without ringfence the name leads to it.
    let own = Origin::http(fence.world.inside(), Ipv6Addr::LOCALHOST, 80, origin::standard()).expect("an origin");
    let names: [(&str, &[IpAddr]); 6] = [
        ("private.example.org", &[IpAddr::V4(PRIVATE4)]),
        ("metadata.example.org", &[IpAddr::V4(METADATA4)]),
        ("metadata6.example.org", &[IpAddr::V6(METADATA6)]),
        ("loopback.example.org", &[IpAddr::V6(Ipv6Addr::LOCALHOST)]),
        ("nat64.example.org", &[IpAddr::V6(NAT64_PRIVATE)]),
        ("mixed.example.org", &[IpAddr::V4(PUBLIC4), IpAddr::V4(PRIVATE4)]),
    ];
    let mut flags = FLAGS.to_vec();
    for (name, addresses) in names {
        fence.internet.resolver.host(name, addresses);
        flags.extend(["--allow-host", name]);
        let said = fence.as_root(&format!("curl -sS -m 5 http://{name}/"));
        assert_eq!(said.out, format!("hello from {name}\n"), "the attempt is live: {said}");
    }
    let internet = &fence.internet;
    let sinks = [&own, &internet.private, &internet.metadata, &internet.metadata6, &internet.nat64, &internet.http];
    let before: Vec<usize> = sinks.iter().map(|sink| sink.requests().len()).collect();
    let packets = fence.world.settled_packets();

    let mut script = String::new();
    for (name, _) in names {
        script +=
            &format!("curl -s -m 5 -o /dev/null -w '{name}=%{{http_code}} %{{size_download}}\\n' http://{name}/\n");
        script += &format!("curl -s -m 5 -o /dev/null -w 'tls-{name}=%{{http_connect}}\\n' https://{name}/\n");
    }
    // The positive control of the same run.
    let ended = fence.run(&flags, &format!("{script}curl -sS -m 5 https://pypi.org/"));
    assert!(ended.said.out.ends_with("hello from pypi.org\n"), "{ended}");
    for (name, addresses) in names {
        assert_eq!(ended.value(name), "403 0", "{ended}");
        assert_eq!(ended.value(&format!("tls-{name}")), "403", "{ended}");
        let denials = ended.denials_of(name);
        assert_eq!(denials.len(), 2, "{name}: {ended}");
        for denial in denials {
            assert_eq!((denial.reason.as_str(), denial.http_status), ("denied_address", Some(403)), "{ended}");
            assert_eq!(denial.mechanism, Mechanism::Proxy, "{ended}");
            assert!(denial.object.addrs.iter().any(|one| addresses.contains(one)), "{denial:?}");
        }
    }
    let after: Vec<usize> = sinks.iter().map(|sink| sink.requests().len()).collect();
    assert_eq!(after, before, "no sink was reached: {ended}");
    let allowed: [IpAddr; 3] = [IpAddr::V4(RESOLVER4), IpAddr::V4(PUBLIC4), IpAddr::V6(PUBLIC6)];
    let strays: Vec<_> = fence.world.packets().split_off(packets);
    let strays: Vec<_> = strays.iter().filter(|one| !allowed.contains(&one.destination)).collect();
    assert!(strays.is_empty(), "{strays:?}");
}

#[test]
fn what_skips_the_proxy_is_refused_at_once() {
    let fence = Fence::new();
    let (tcp, _udp) = everywhere(&fence.world, PORT).expect("sinks");
    let targets: [IpAddr; 6] = [
        IpAddr::V4(PUBLIC4),
        IpAddr::V4(PRIVATE4),
        IpAddr::V4(METADATA4),
        IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)),
        IpAddr::V6(PUBLIC6),
        IpAddr::V6(METADATA6),
    ];
    let attempt = |protocol: &str, target: &IpAddr| {
        format!(
            "begin=$(date +%s%N); (exec 3<>/dev/{protocol}/{target}/{PORT} && echo hello >&3 && echo again >&3) \
             >/dev/null 2>&1; echo \"{protocol}-{target}=$? $(( ($(date +%s%N) - begin) / 1000000 ))\"\n"
        )
    };
    let both = |target: &IpAddr| attempt("tcp", target) + &attempt("udp", target);
    let script: String = targets.iter().map(both).collect();
    let said = fence.as_nobody(&script);
    assert_eq!(said.out.lines().filter(|line| line.contains("=0 ")).count(), 12, "the attempts are live: {said}");
    assert_eq!(tcp.wait_for(targets.len()).len(), targets.len());
    let before = fence.world.packets().len();

    let ended = fence.run(&FLAGS, &script);
    for target in targets {
        for protocol in ["tcp", "udp"] {
            let (status, milliseconds) = ended.value(&format!("{protocol}-{target}")).split_once(' ').expect("two");
            assert_ne!(status, "0", "{protocol} {target}: {ended}");
            assert!(milliseconds.parse::<u64>().expect("a number") < 1000, "{protocol} {target}: {ended}");
            let seen = ended.denials().into_iter().filter(|one| {
                one.mechanism == Mechanism::Firewall
                    && one.operation == protocol
                    && one.object.addrs == [target]
                    && one.object.port == Some(PORT)
            });
            assert!(seen.count() >= 1, "{protocol} {target} is on record: {ended}");
        }
    }
    let passed = fence.world.packets().split_off(before);
    assert!(passed.is_empty(), "nothing left the box: {passed:?}");
}
