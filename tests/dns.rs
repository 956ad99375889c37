//! Names carry data (case N13): whichever resolver the machine has, no route of the command's leads to one, and the
//! proxy asks for admitted names alone.

mod common;
mod sockets;

use common::{Ended, Fence};
use ringfence::ledger::record::Mechanism;
use sockets::left_since;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use world::address::{PUBLIC4, RESOLVER4};
use world::internet::everywhere;
use world::{Question, Resolver, Sink, Transport};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// Docker's forwarder.
const DOCKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
/// systemd's.
const STUB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// Asks each server on standard input once, by itself, and says how each question went and how long it took.
const ASK: &str = r#"
import errno, socket, struct, sys, time
name = sys.argv[1]
labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
for line in sys.stdin:
    how, address, port = line.split()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if how == "tcp" else socket.SOCK_DGRAM
    begin = time.monotonic()
    with socket.socket(family, kind) as s:
        s.settimeout(5)
        try:
            if how == "tcp":
                s.connect((address, int(port)))
                s.sendall(struct.pack(">H", len(query)) + query)
            elif how == "connected":
                s.connect((address, int(port)))
                s.send(query)
            else:
                s.sendto(query, (address, int(port)))
            said = "sent"
        except OSError as cause:
            said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{how}-{address}-{port}={said} {int((time.monotonic() - begin) * 1000)}")
"#;

fn ask(name: &str, routes: &[(&str, IpAddr, u16)]) -> String {
    let lines: String = routes.iter().map(|(how, address, port)| format!("{how} {address} {port}\n")).collect();
    format!("/usr/bin/python3 /tmp/ask.py {name} <<'END'\n{lines}END\n")
}

/// Every resolver of the box and of the outside, by every kind of socket.
fn routes() -> Vec<(&'static str, IpAddr, u16)> {
    let mut routes = Vec::new();
    for server in [Ipv4Addr::LOCALHOST, DOCKER, STUB, RESOLVER4] {
        for address in [IpAddr::V4(server), IpAddr::V6(server.to_ipv6_mapped())] {
            routes.extend(["udp", "connected", "tcp"].map(|how| (how, address, 53)));
        }
    }
    routes.extend(["udp", "connected", "tcp"].map(|how| (how, IpAddr::V6(Ipv6Addr::LOCALHOST), 53)));
    routes
}

struct Resolvers {
    inside: Vec<Resolver>,
}

impl Resolvers {
    /// Forwarders as root runs them in the box.
    fn start(fence: &Fence) -> Resolvers {
        let addresses = [Ipv4Addr::LOCALHOST.into(), DOCKER.into(), STUB.into(), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let start = |address: IpAddr| Resolver::start(fence.world.inside(), address).expect("a forwarder");
        Resolvers { inside: addresses.map(start).into() }
    }

    fn all<'a>(&'a self, fence: &'a Fence) -> impl Iterator<Item = &'a Resolver> {
        self.inside.iter().chain([&fence.internet.resolver])
    }
}

fn came(questions: &[Question], name: &str, transport: Transport) -> bool {
    questions.iter().any(|one| one.name == name && one.transport == transport)
}

#[test]
fn no_route_of_the_commands_leads_to_a_resolver_and_each_attempt_is_on_record() {
    let fence = Fence::new();
    fence.world.write("/tmp/ask.py", ASK, 0o644);
    let resolvers = Resolvers::start(&fence);
    let routes = routes();
    let said = fence.as_nobody(&ask("abc.example.org", &routes));
    assert_eq!(said.out.matches("=sent ").count(), routes.len(), "{said}");
    for resolver in resolvers.all(&fence) {
        let both = |questions: &[Question]| {
            [Transport::Udp, Transport::Tcp].into_iter().all(|transport| came(questions, "abc.example.org", transport))
        };
        let live = resolver.wait_until(both);
        assert!(both(&live), "the attempts are live: {live:?} {said}");
    }
    let packets = fence.world.settled_packets();

    let ended = fence.run(&FLAGS, &ask("xyz.example.org", &routes));
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let mut expected: BTreeMap<(String, IpAddr), u64> = BTreeMap::new();
    for (how, address, port) in &routes {
        let (errno, time) = ended.value(&format!("{how}-{address}-{port}")).split_once(' ').expect("two words");
        let wanted = if *how == "tcp" { "ECONNREFUSED" } else { "EPERM" };
        assert_eq!(errno, wanted, "{how} {address}: {ended}");
        assert!(time.parse::<u64>().expect("milliseconds") < 1000, "{how} {address}: {ended}");
        let operation = if *how == "tcp" { "tcp" } else { "udp" };
        *expected.entry((operation.to_owned(), address.to_canonical())).or_default() += 1;
    }
    assert_eq!(firewall_denials(&ended, "dns"), expected, "{ended}");
    assert_eq!(ended.denials().len(), ended.denials().iter().filter(|denial| denial.rule == "dns").count(), "{ended}");
    assert!(ended.seal().complete, "{ended}");
    // Whatever is under way has arrived when the packets are counted.
    assert_eq!(fence.world.packets().len(), packets, "nothing left the box: {ended}");
    for resolver in resolvers.all(&fence) {
        let leaked = resolver.questions_about("xyz.example.org");
        assert!(leaked.is_empty(), "{leaked:?}: {ended}");
    }
}

fn firewall_denials(ended: &Ended, rule: &str) -> BTreeMap<(String, IpAddr), u64> {
    let mut counts = BTreeMap::new();
    for denial in ended.denials() {
        if denial.mechanism == Mechanism::Firewall && denial.rule == rule {
            *counts.entry((denial.operation.clone(), denial.object.addrs[0])).or_default() += denial.count;
        }
    }
    counts
}

#[test]
fn whatever_resolv_conf_names_the_c_library_gets_no_answer_and_the_proxy_asks_for_admitted_names_alone() {
    let fence = Fence::new();
    let resolvers = Resolvers::start(&fence);
    for resolver in &resolvers.inside {
        resolver.host("pypi.org", &[PUBLIC4.into()]);
        resolver.host("secret.example.org", &[PUBLIC4.into()]);
    }
    fence.internet.resolver.host("secret.example.org", &[PUBLIC4.into()]);
    let look_up = |name: &str| {
        format!(
            "begin=$(date +%s%N); /usr/bin/python3 -c 'import socket; print(socket.getaddrinfo(\"{name}\", 443)[0][4][0])' \
             2>&1; echo look_up=$? $(( ($(date +%s%N) - begin) / 1000000 ))\n"
        )
    };
    for server in
        [Ipv4Addr::LOCALHOST.into(), DOCKER.into(), STUB.into(), IpAddr::V6(Ipv6Addr::LOCALHOST), RESOLVER4.into()]
    {
        let options = "options timeout:2 attempts:1";
        fence.world.write("/etc/resolv.conf", format!("nameserver {server}\n{options}\n"), 0o644);
        let said = fence.as_nobody(&look_up("secret.example.org"));
        assert!(said.out.contains("look_up=0 "), "the look-up is live by {server}: {said}");
        let before: Vec<usize> = resolvers.all(&fence).map(|one| one.questions().len()).collect();

        let script = look_up("secret.example.org")
            + "curl -s -o /dev/null -w 'refused=%{http_connect}\\n' https://more.secret.example.org/\n\
               curl -sS -o /dev/null -w 'admitted=%{http_code}\\n' https://pypi.org/\n";
        let ended = fence.run(&FLAGS, &script);
        let (status, time) = ended.value("look_up").split_once(' ').expect("two words");
        assert_ne!(status, "0", "{server}: {ended}");
        assert!(time.parse::<u64>().expect("milliseconds") < 2000, "{server}: {ended}");
        assert_eq!((ended.value("refused"), ended.value("admitted")), ("403", "200"), "{server}: {ended}");
        let asked: BTreeSet<String> = resolvers
            .all(&fence)
            .zip(before)
            .flat_map(|(resolver, before)| resolver.questions().split_off(before))
            .map(|question| question.name)
            .collect();
        assert_eq!(asked, BTreeSet::from(["pypi.org".to_owned()]), "{server}: {ended}");
        let refused = firewall_denials(&ended, "dns");
        assert_eq!(refused.keys().cloned().collect::<Vec<_>>(), [("udp".to_owned(), server)], "{server}: {ended}");
        assert_eq!(ended.denials_of("more.secret.example.org").len(), 1, "{ended}");
    }
}

/// Names over TLS, and the names that hosts of one link ask each other.
#[test]
fn the_other_ports_and_groups_of_names_are_refused_by_the_same_rule() {
    let fence = Fence::new();
    fence.world.write("/tmp/ask.py", ASK, 0o644);
    let mut sinks: Vec<Sink> = Vec::new();
    for port in [853, 5353, 5355] {
        let (tcp, udp) = everywhere(&fence.world, port).expect("sinks");
        sinks.extend([tcp, udp]);
        sinks.push(Sink::tcp(fence.world.inside(), Ipv4Addr::LOCALHOST, port).expect("a sink"));
        sinks.push(Sink::udp(fence.world.inside(), Ipv4Addr::LOCALHOST, port).expect("a sink"));
    }
    let mut routes: Vec<(&str, IpAddr, u16)> = Vec::new();
    for port in [853, 5353, 5355] {
        for address in [IpAddr::V4(RESOLVER4), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(PUBLIC4)] {
            routes.extend([("udp", address, port), ("tcp", address, port)]);
        }
    }
    let groups = [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("255.255.255.255", 53)];
    routes.extend(groups.map(|(group, port)| ("udp", group.parse().expect("an address"), port)));
    // A broadcast needs an option that the script does not set: EACCES, and no packet.
    let (broadcast, multicast) = (routes.pop().expect("the last"), routes.len());
    let before = fence.world.packets().len();
    let said = fence.as_nobody(&ask("abc.example.org", &routes));
    assert_eq!(said.out.matches("=sent ").count(), routes.len(), "{said}");
    let arrived = |packets: usize, address: IpAddr| {
        fence.world.packets().split_off(packets).iter().any(|packet| packet.destination == address)
    };
    assert!(
        arrived(before, routes[multicast - 1].1) && arrived(before, PUBLIC4.into()),
        "the attempts are live: {said}"
    );
    let outside = fence.world.packets();
    let count = || sinks.iter().map(|sink| sink.arrivals().len()).collect::<Vec<usize>>();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let complete = |sunk: &[usize]| sunk.iter().sum::<usize>() >= 3 * 3 * 2 && sunk.iter().all(|count| *count > 0);
    while !complete(&count()) && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let sunk = count();
    assert!(complete(&sunk), "{sunk:?}");

    let ended = fence.run(&FLAGS, &ask("xyz.example.org", &[&routes[..], &[broadcast]].concat()));
    for (how, address, port) in &routes {
        let errno = ended.value(&format!("{how}-{address}-{port}")).split(' ').next();
        assert_eq!(errno, Some(if *how == "tcp" { "ECONNREFUSED" } else { "EPERM" }), "{address} {port}: {ended}");
    }
    let refused: u64 = firewall_denials(&ended, "dns").values().sum();
    assert_eq!(refused, routes.len() as u64, "{ended}");
    let left = left_since(&fence, &outside);
    assert!(left.is_empty(), "nothing left the box: {left:?} {ended}");
    assert_eq!(sinks.iter().map(|sink| sink.arrivals().len()).collect::<Vec<_>>(), sunk, "{ended}");
}
