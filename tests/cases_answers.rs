//! What names resolve to (cases N06 and N07), through a whole run, each attempt by a tunnel and by a plain request: one
//! resolution an attempt, and no address but those that were judged. Policy is on the name that is asked for, and the range
//! check on every address of its answer; one denied address refuses them all.

mod common;
mod living;

use common::{Ended, Fence};
use living::Run;
use ringfence::ledger::record::{Body, Denial, Infrastructure};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use world::address::{METADATA4, PRIVATE4, PUBLIC4, RESOLVER4};
use world::dns::{A, AAAA};
use world::{Answer, Origin, Record, Transport, origin};

/// Where every address of the outside has a server, public or not.
const SERVED: u16 = 7000;
/// Where only the box's own loopback has one.
const CLOSED: u16 = 7001;
const LOCAL4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOCAL6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// What is to come of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Reached,
    /// 403, by this rule and reason.
    Denied(&'static str, &'static str),
    /// 502, at this step.
    Failed(&'static str),
}
use Outcome::{Denied, Failed, Reached};

const RANGE: Outcome = Denied("private-range", "denied_address");
/// The rows of case N06 by their letters, the port, and whether a client without ringfence gets through.
const ROWS: [(&str, u16, Outcome, bool); 9] = [
    ("a.example.org", CLOSED, RANGE, true),
    ("b.example.org", CLOSED, RANGE, true),
    ("c.example.org", CLOSED, RANGE, true),
    ("d.example.org", SERVED, RANGE, true),
    ("e.example.org", SERVED, Reached, true),
    ("f.example.org", SERVED, Failed("resolve"), false),
    ("g.example.org", SERVED, Denied("address-count", "too_many_addresses"), true),
    ("h.example.org", SERVED, Failed("resolve"), false),
    ("closed.example.org", CLOSED, Failed("connect"), false),
];

fn many(name: &str) -> Answer {
    let address = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0b40_0001 + n));
    Answer::Records((0..4000).map(|n| Record::Address(name.to_owned(), address(n))).collect())
}

fn script_answers(fence: &Fence) {
    let resolver = &fence.internet.resolver;
    resolver.host("a.example.org", &[PUBLIC4.into(), LOCAL4]);
    resolver.host("b.example.org", &[LOCAL4, PUBLIC4.into()]);
    resolver.host("c.example.org", &[PUBLIC4.into(), LOCAL6]);
    resolver.alias("d.example.org", "internal.example.net");
    resolver.host("internal.example.net", &[PRIVATE4.into()]);
    resolver.alias("e.example.org", "elsewhere.example.net");
    resolver.host("elsewhere.example.net", &[PUBLIC4.into()]);
    let alias = |from: &str, to: &str| Record::Alias(from.to_owned(), to.to_owned());
    let ring = [alias("f.example.org", "g.example.net"), alias("g.example.net", "f.example.org")];
    let foreign = [Record::Address("another.example.org".to_owned(), PUBLIC4.into())];
    for kind in [A, AAAA] {
        resolver.answers("f.example.org", kind, [Answer::Records(ring.to_vec())]);
    }
    resolver.answers("g.example.org", A, [many("g.example.org")]);
    resolver.answers("h.example.org", A, [Answer::Records(foreign.to_vec())]);
    resolver.host("closed.example.org", &[PUBLIC4.into()]);
}

/// Each name by both ways: `plain-NAME=STATUS BYTES`, and `tunnel-NAME=STATUS`.
fn ask(name: &str, port: u16) -> String {
    format!(
        "curl -s -m 20 -o /dev/null -w 'plain-{name}=%{{http_code}}\\n' http://{name}:{port}/\n\
         curl -s -m 20 -p -o /dev/null -w 'tunnel-{name}=%{{http_connect}}\\n' http://{name}:{port}/\n"
    )
}

fn flags(entries: &[String]) -> Vec<&str> {
    let pairs = entries.iter().flat_map(|entry| ["--allow-host", entry]);
    ["--policy", "nist-high"].into_iter().chain(pairs).collect()
}

fn failures<'a>(ended: &'a Ended, host: &str) -> Vec<&'a Infrastructure> {
    let all = ended.records.iter().filter_map(|record| match &record.body {
        Body::Infrastructure(failure) => Some(failure),
        _ => None,
    });
    all.filter(|failure| failure.object.host.as_deref() == Some(host)).collect()
}

/// What two denials have in common where they differ by the way in.
fn gist(denial: &Denial) -> (&str, &str, &[IpAddr], Option<u16>, Option<u16>, u64) {
    let object = &denial.object;
    (&denial.rule, &denial.reason, &object.addrs, object.port, denial.http_status, denial.count)
}

/// The questions about a name by their type, those of one transaction over TCP left out.
fn asked(fence: &Fence, name: &str) -> (usize, usize) {
    let about = fence.internet.resolver.questions_about(name);
    let of = |kind: u16| about.iter().filter(|one| one.kind == kind && one.transport == Transport::Udp).count();
    (of(A), of(AAAA))
}

#[test]
fn n06_every_address_of_an_answer_is_judged_and_no_chain_is_asked_for() {
    let fence = Fence::new();
    script_answers(&fence);
    let served = Origin::http(fence.world.outside(), Ipv6Addr::UNSPECIFIED, SERVED, origin::standard()).expect("one");
    let own = [LOCAL4, LOCAL6].map(|address| {
        Origin::http(fence.world.inside(), address, CLOSED, origin::standard()).expect("an origin of the box's own")
    });
    for (name, port, _, live) in ROWS.into_iter().filter(|row| row.0 != "closed.example.org") {
        let said = fence.as_nobody(&format!("curl -sS -m 20 http://{name}:{port}/"));
        assert_eq!(said.out.starts_with("hello from "), live, "{name}: {said}");
    }
    let reached = || (served.requests().len(), own[0].requests().len(), own[1].requests().len());
    let live = reached();
    assert!(live.0 == 3 && live.1 + live.2 == 3 && live.2 > 0, "the attempts are live: {live:?}");
    let packets = fence.world.settled_packets();
    let before: BTreeMap<&str, (usize, usize)> = ROWS.map(|row| (row.0, asked(&fence, row.0))).into();

    let entries = ROWS.map(|(name, port, ..)| format!("{name}:{port}"));
    let script: String = ROWS.iter().map(|(name, port, ..)| ask(name, *port)).collect();
    let ended = fence.run(&flags(&entries), &script);
    for (name, port, outcome, _) in ROWS {
        let status = match outcome {
            Reached => "200",
            Denied(..) => "403",
            Failed(_) => "502",
        };
        let answers = (ended.value(&format!("plain-{name}")), ended.value(&format!("tunnel-{name}")));
        assert_eq!(answers, (status, status), "{name}: {ended}");
        let (a, aaaa) = asked(&fence, name);
        assert_eq!((a - before[name].0, aaaa - before[name].1), (2, 2), "one question of a type an attempt: {name}");
        let (denials, failures) = (ended.denials_of(name), failures(&ended, name));
        match outcome {
            Reached => assert!(denials.is_empty() && failures.is_empty(), "{name}: {ended}"),
            Denied(rule, reason) => {
                let [plain, tunnel] = denials[..] else { panic!("two denials of {name}: {ended}") };
                assert_eq!((plain.operation.as_str(), tunnel.operation.as_str()), ("GET", "CONNECT"), "{ended}");
                assert_eq!(gist(plain), gist(tunnel), "{ended}");
                assert_eq!((plain.rule.as_str(), plain.reason.as_str()), (rule, reason), "{ended}");
                assert_eq!((plain.object.port, plain.http_status, plain.count), (Some(port), Some(403), 1), "{ended}");
                assert!(failures.is_empty(), "{ended}");
            }
            Failed(step) => {
                let [plain, tunnel] = failures[..] else { panic!("two failures of {name}: {ended}") };
                assert_eq!((plain.operation.as_str(), &plain.cause), (step, &tunnel.cause), "{ended}");
                assert_eq!((plain.http_status, tunnel.http_status), (Some(502), Some(502)), "{ended}");
                assert!(denials.is_empty(), "{ended}");
            }
        }
    }
    assert!(ended.seal().complete, "{ended}");
    // The name that is admitted was reached by each way, and no other server was.
    assert_eq!(reached(), (live.0 + 2, live.1, live.2), "{ended}");
    let left = fence.world.packets().split_off(packets);
    let to: BTreeSet<IpAddr> = left.iter().map(|one| one.destination).collect();
    assert_eq!(to, [PUBLIC4, RESOLVER4].map(IpAddr::V4).into(), "{ended}");
}

/// The proxy's peak memory in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

#[test]
fn n06_four_thousand_addresses_take_bounded_time_and_memory() {
    let fence = Fence::new();
    fence.internet.resolver.answers("g.example.org", A, [many("g.example.org")]);
    let script = "echo ready; read line; begin=$(date +%s%N)\n\
        for n in 1 2 3 4 5 6 7 8 9 10; do curl -s -o /dev/null -w '%{http_code} ' http://g.example.org/; \
        curl -s -o /dev/null -w '%{http_connect} ' https://g.example.org/; done; echo\n\
        echo $(( ($(date +%s%N) - begin) / 1000000 )); read line\n\
        curl -sS -o /dev/null -w 'control=%{http_code}\\n' https://pypi.org/";
    let mut run = Run::start(&fence, &["--policy", "nist-high", "--allow-host", "g.example.org"], script);
    assert_eq!(run.line(), "ready");
    let proxy = run.proxy();
    let before = peak(proxy);
    go_on(&mut run);
    assert_eq!(run.line(), ["403"; 20].join(" "));
    let milliseconds: u64 = run.line().parse().expect("milliseconds");
    let after = peak(proxy);
    eprintln!("20 answers of 4,000 addresses: {milliseconds} ms, {before} KiB before, {after} KiB after");
    assert!(milliseconds < 10_000, "{milliseconds} ms");
    assert!(after < before + (16 << 10), "{before} KiB before, {after} KiB after");
    go_on(&mut run);
    let ended = run.finish(&fence);
    assert_eq!(ended.value("control"), "200", "{ended}");
    let denials = ended.denials_of("g.example.org");
    assert_eq!(denials.iter().map(|one| one.count).sum::<u64>(), 20, "{ended}");
    assert!(denials.iter().all(|one| one.rule == "address-count" && one.object.addrs.len() <= 64), "{ended}");
}

/// Lets the command go on from where it waits.
fn go_on(run: &mut Run) {
    use std::io::Write;
    run.stdin.as_mut().expect("piped").write_all(b"\n").expect("the command reads");
}

/// What is answered first and then, the status of the first attempt, and where the second answer leads.
fn flips() -> [(&'static str, Answer, &'static str, IpAddr); 4] {
    [
        ("empty", Answer::Empty, "502", METADATA4.into()),
        ("moved", Answer::Addresses(vec![PUBLIC4.into()], 0), "200", LOCAL4),
        ("failed", Answer::ServerFailure, "502", PRIVATE4.into()),
        ("missing", Answer::NoSuchName, "502", METADATA4.into()),
    ]
}

#[test]
fn n07_an_attempt_is_one_resolution_and_the_next_is_judged_anew() {
    let fence = Fence::new();
    let (internet, resolver) = (&fence.internet, &fence.internet.resolver);
    let own = Origin::http(fence.world.inside(), LOCAL4, 80, origin::standard()).expect("an origin");
    let sinks = || [own.requests().len(), internet.metadata.requests().len(), internet.private.requests().len()];
    let (mut entries, mut script, mut names) = (Vec::new(), String::new(), Vec::new());
    for (flip, first, status, second) in flips() {
        for way in ["live", "plain", "tunnel"] {
            let name = format!("{flip}-{way}.example.org");
            resolver.answers(&name, A, [first.clone(), Answer::Addresses(vec![second], 0)]);
            resolver.answers(&name, AAAA, [Answer::Empty]);
            if way == "live" {
                let before: usize = sinks().iter().sum();
                let said = fence.as_nobody(&format!("for n in 1 2 3; do curl -s -m 5 http://{name}/; done; true"));
                assert!(said.out.ends_with(&format!("hello from {name}\n")), "the flip is live: {said}");
                assert!(sinks().iter().sum::<usize>() > before, "{said}");
                continue;
            }
            let (option, said) = if way == "plain" { ("", "http_code") } else { ("-p", "http_connect") };
            for attempt in ["first", "second"] {
                script += &format!(
                    "curl -s -m 20 {option} -o /dev/null -w '{attempt}-{name}=%{{{said}}}\\n' http://{name}/\n"
                );
            }
            entries.push(name.clone());
            names.push((flip, way, name, status, second));
        }
    }
    let before = sinks();
    let ended = fence.run(&flags(&entries), &script);
    assert_eq!(sinks(), before, "no private or metadata sink was reached: {ended}");
    let mut gists: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (flip, way, name, status, second) in &names {
        assert_eq!(ended.value(&format!("first-{name}")), *status, "{ended}");
        assert_eq!(ended.value(&format!("second-{name}")), "403", "{ended}");
        assert_eq!(resolver.questions_about(name).len(), 4, "one of each type an attempt: {name} {ended}");
        assert_eq!(asked(&fence, name), (2, 2), "{name} {ended}");
        let [denial] = ended.denials_of(name)[..] else { panic!("one denial of {name}: {ended}") };
        let rule = if *second == IpAddr::V4(METADATA4) { "metadata" } else { "private-range" };
        assert_eq!((denial.rule.as_str(), &denial.object.addrs[..]), (rule, &[*second][..]), "{ended}");
        assert_eq!(denial.operation, if *way == "plain" { "GET" } else { "CONNECT" }, "{ended}");
        let failed = failures(&ended, name).into_iter().map(|one| (one.operation.clone(), one.cause.clone()));
        let failed: Vec<(String, String)> = failed.collect();
        assert_eq!(failed.len(), usize::from(*status == "502"), "{ended}");
        gists.entry(flip).or_default().push((gist(denial), failed));
    }
    assert!(gists.values().all(|both| both.len() == 2 && both[0] == both[1]), "{gists:?}");
    assert!(ended.seal().complete, "{ended}");
}

/// Loopback's own names are admitted as names, and their addresses are judged like any other's.
#[test]
fn n07_no_name_switches_the_address_check_off() {
    let fence = Fence::new();
    let own = Origin::http(fence.world.inside(), LOCAL4, 80, origin::standard()).expect("an origin");
    fence.internet.resolver.host("k7.localhost", &[PRIVATE4.into()]);
    let live = "import socket\nfor name in 'localhost', 'k7.localhost':\n    \
        s = socket.create_connection((name, 80), 5); s.sendall(b'GET / HTTP/1.1\\r\\nHost: live\\r\\nConnection: close\\r\\n\\r\\n')\n    \
        print(s.makefile().read().split()[-1])\n";
    fence.world.write("/tmp/live.py", live, 0o644);
    let said = fence.as_nobody("/usr/bin/python3 /tmp/live.py");
    assert_eq!(said.out, "live\nlive\n", "{said}");
    let reached = || (own.requests().len(), fence.internet.private.requests().len());
    assert_eq!(reached(), (1, 1), "{said}");

    let script: String = ["localhost", "k7.localhost"].map(|name| ask(name, 80)).concat();
    let flags = ["--policy", "nist-high", "--allow-host", "localhost", "--allow-host", "*.localhost"];
    // curl has an answer of its own for these names, and the proxy must not be passed by.
    let ended = fence.run(&flags, &script.replace("curl ", "curl --noproxy '' -x $http_proxy "));
    for name in ["localhost", "k7.localhost"] {
        let answers = (ended.value(&format!("plain-{name}")), ended.value(&format!("tunnel-{name}")));
        assert_eq!(answers, ("403", "403"), "{ended}");
        let denials = ended.denials_of(name);
        assert_eq!(denials.len(), 2, "{ended}");
        assert!(denials.iter().all(|one| one.rule == "private-range" && !one.object.addrs.is_empty()), "{ended}");
    }
    assert_eq!(reached(), (1, 1), "{ended}");
}
