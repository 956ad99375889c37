//! The world outside fails: the client is told so in HTTP's own terms, and the record has a failure of the infrastructure,
//! never a denial.

mod common;

use common::{Ended, Fence};
use ringfence::ledger::record::{Body, Infrastructure};
use std::net::Ipv4Addr;
use std::process::Command;
use world::address::{PUBLIC4, PUBLIC6};
use world::dns::{A, AAAA};
use world::{Answer, Sink};

/// Public, and swallowed by the outside without a word.
const SILENT4: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);
/// Where nothing listens: the outside answers by a reset.
const CLOSED: u16 = 7001;
/// Where connections are taken and closed again.
const HANGS_UP: u16 = 7002;

/// Each name's failure: its port, the status, what failed, and a word of the cause.
const FAILURES: [(&str, u16, u16, &str, &str); 7] = [
    ("servfail.example.org", 443, 502, "resolve", "resolver failed"),
    ("missing.example.org", 443, 502, "resolve", "no address"),
    ("empty.example.org", 443, 502, "resolve", "no address"),
    ("mute.example.org", 443, 504, "resolve", "in time"),
    ("closed.example.org", CLOSED, 502, "connect", "refused"),
    ("silent.example.org", 7003, 504, "connect", "within"),
    ("unreachable.example.org", 7004, 504, "connect", "within"),
];

fn failures<'a>(ended: &'a Ended, host: &str) -> Vec<&'a Infrastructure> {
    let all = ended.records.iter().filter_map(|record| match &record.body {
        Body::Infrastructure(failure) => Some(failure),
        _ => None,
    });
    all.filter(|failure| failure.object.host.as_deref() == Some(host)).collect()
}

#[test]
fn each_failure_is_answered_502_or_504_and_is_no_denial() {
    let fence = Fence::new();
    let hangs_up = Sink::tcp(fence.world.outside(), PUBLIC4, HANGS_UP).expect("a sink");
    let swallow = fence
        .world
        .outside()
        .run(|| Command::new("ip").args(["route", "add", "blackhole", &format!("{SILENT4}/32")]).status());
    assert!(swallow.expect("ip").success());
    let resolver = &fence.internet.resolver;
    let both = |name: &str, answer: &Answer| {
        for kind in [A, AAAA] {
            resolver.answers(name, kind, [answer.clone()]);
        }
    };
    both("servfail.example.org", &Answer::ServerFailure);
    both("missing.example.org", &Answer::NoSuchName);
    both("empty.example.org", &Answer::Empty);
    both("mute.example.org", &Answer::Silent);
    resolver.host("closed.example.org", &[PUBLIC4.into(), PUBLIC6.into()]);
    resolver.host("silent.example.org", &[SILENT4.into()]);
    resolver.host("unreachable.example.org", &[SILENT4.into()]);
    resolver.host("hangs-up.example.org", &[PUBLIC4.into()]);

    let mut flags: Vec<String> = ["--policy", "nist-high"].map(str::to_owned).into();
    let mut script = String::new();
    for (name, port, ..) in FAILURES {
        let entry = if port == 443 { name.to_owned() } else { format!("{name}:{port}") };
        flags.extend(["--allow-host".to_owned(), entry]);
        // The same verdict by both ways; a plain request to 443 fails before it matters what is spoken there.
        script += &format!(
            "curl -s -o /dev/null -w 'tunnel-{name}=%{{http_connect}}\\n' https://{name}:{port}/ &\n\
             curl -s -o /dev/null -w 'plain-{name}=%{{http_code}} %{{size_download}}\\n' http://{name}:{port}/ &\n"
        );
    }
    flags.extend(["--allow-host".to_owned(), format!("hangs-up.example.org:{HANGS_UP}")]);
    script += &format!(
        "curl -s -o /dev/null -w 'hangs-up=%{{http_code}}\\n' http://hangs-up.example.org:{HANGS_UP}/ &\n\
         curl -s -o /dev/null -w 'control=%{{http_code}}\\n' https://pypi.org/ &\nwait\n"
    );
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let ended = fence.run(&flags, &script);

    assert_eq!((ended.said.code, ended.value("control")), (Some(0), "200"), "{ended}");
    for (name, port, status, operation, cause) in FAILURES {
        assert_eq!(ended.value(&format!("tunnel-{name}")), status.to_string(), "{name}: {ended}");
        assert_eq!(ended.value(&format!("plain-{name}")), format!("{status} 0"), "{name}: {ended}");
        let failures = failures(&ended, name);
        assert_eq!(failures.len(), 2, "{name}: {ended}");
        for failure in failures {
            assert_eq!(failure.operation, operation, "{failure:?}");
            assert_eq!((failure.object.port, failure.http_status), (Some(port), Some(status)), "{failure:?}");
            assert!(failure.cause.contains(cause), "{failure:?}");
            assert_eq!(failure.object.addrs.is_empty(), operation == "resolve", "{failure:?}");
        }
    }
    assert_eq!(ended.value("hangs-up"), "502", "{ended}");
    let [hung] = failures(&ended, "hangs-up.example.org")[..] else { panic!("one failure: {ended}") };
    assert_eq!((hung.operation.as_str(), hung.http_status), ("exchange", Some(502)), "{ended}");
    assert_eq!(hangs_up.arrivals().len(), 1);
    assert!(ended.denials().is_empty(), "{ended}");
    assert_eq!(ended.seal().denials["network"], 0, "{ended}");
    assert!(ended.seal().complete, "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0));
}

/// A machine without a resolver: nothing can be reached by name, and that is no denial either.
#[test]
fn without_a_resolver_names_fail_and_addresses_that_are_admitted_work() {
    let fence = Fence::new();
    fence.world.write("/etc/resolv.conf", "# none\n", 0o644);
    let script = "curl -s -o /dev/null -w 'name=%{http_connect}\\n' https://pypi.org/\n\
                  curl -s -o /dev/null -w 'address=%{http_code}\\n' http://11.22.33.44/\n";
    let ended = fence.run(&["--policy", "nist-high", "--allow-host", "11.22.33.44"], script);
    assert_eq!((ended.value("name"), ended.value("address")), ("502", "200"), "{ended}");
    assert_eq!(failures(&ended, "pypi.org").len(), 1, "{ended}");
    assert!(ended.denials().is_empty() && ended.seal().complete, "{ended}");
}
