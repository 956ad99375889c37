//! Real clients of the network, one after the other: by the proxy to what is admitted and to what is not, and by
//! themselves.

mod clients;
mod common;

use clients::{CLIENTS, Client, Clients, ECHO, ECHO4, prelude};
use common::{Ended, Fence, value};
use ringfence::ledger::record::{Denial, Mechanism};
use ringfence::policy::Axis;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use world::Said;
use world::address::{PUBLIC4, PUBLIC4_B, RESOLVER4};

const FLAGS: [&str; 4] = ["--policy", "nist-high", "--allow-host", ECHO];
const UNSET: &str = "unset ${!HTTP*} ${!http*} ${!ALL_*} ${!all_*} ${!NO_PROXY*} ${!no_proxy*} NODE_USE_ENV_PROXY\n";
/// A host that refuses every client at once, whoever it is: what it takes then is its start.
const NOBODY_THERE: &str = "127.0.0.1:1";
/// How much longer than its start a refusal may take, in milliseconds.
const AT_ONCE: u64 = 1000;

fn refused(client: &Client) -> String {
    format!("{}.example.net", client.name)
}

fn of_each(step: impl Fn(&Client) -> String) -> String {
    CLIENTS.iter().map(step).collect()
}

/// What the network refused. A machine's own programs may write to what is read-only whenever they start, whatever they are
/// started for.
fn of_network(ended: &Ended) -> Vec<&Denial> {
    ended.denials().into_iter().filter(|denial| denial.axis == Axis::Network).collect()
}

/// The status and the milliseconds of a client.
fn outcome(said: &Said, name: &str) -> (i32, u64) {
    let (status, milliseconds) = value(said, name).split_once(' ').expect("two numbers");
    (status.parse().expect("a status"), milliseconds.parse().expect("milliseconds"))
}

/// Its own words.
fn words(said: &Said, name: &str) -> String {
    let prefix = format!("{name}: ");
    said.out.lines().filter_map(|line| line.strip_prefix(&prefix)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_client_gets_what_is_admitted() {
    let mut clients = Clients::new();
    let ended =
        clients.fence.run(&FLAGS, &(prelude() + &of_each(|client| format!("timed {} {}\n", client.name, client.host))));
    for client in &CLIENTS {
        assert_eq!(outcome(&ended.said, client.name).0, 0, "{}: {ended}", client.name);
    }
    assert!(of_network(&ended).is_empty() && ended.seal().complete, "{ended}");
    let internet = &clients.fence.internet;
    let origins = [&internet.http, &internet.http6, &internet.https, &internet.https6];
    let seen: Vec<String> = origins.iter().flat_map(|origin| origin.requests()).map(|request| request.target).collect();
    let wanted: Vec<String> = CLIENTS.iter().filter_map(Client::target).collect();
    assert_eq!(wanted.len(), 7);
    for target in wanted {
        assert_eq!(seen.iter().filter(|one| **one == target).count(), 1, "{target}: {seen:?} {ended}");
    }
    let connections = clients.echoed();
    let expected = ["80", "443", "80", "443"].map(|port| format!("{port} {ECHO}"));
    assert_eq!(connections, expected, "{ended}");
}

#[test]
fn a_client_that_is_refused_says_so_and_is_on_record() {
    let clients = Clients::new();
    let fence = &clients.fence;
    for client in &CLIENTS {
        fence.internet.resolver.host(&refused(client), &[PUBLIC4_B.into()]);
    }
    let script = prelude() + &of_each(|client| format!("timed {} {}\n", client.name, refused(client)));
    let before = fence.world.packets().len();
    let ended = fence.run(&FLAGS, &script);
    for client in &CLIENTS {
        assert_ne!(outcome(&ended.said, client.name).0, 0, "{}: {ended}", client.name);
        assert!(words(&ended.said, client.name).contains(client.refusal), "{}: {ended}", client.name);
        let denials = ended.denials_of(&refused(client));
        let tries: u64 = denials.iter().map(|denial| denial.count).sum();
        assert!(client.tries.map_or(tries > 0, |wanted| tries == wanted), "{}: {tries}: {ended}", client.name);
        for denial in denials {
            let by = (denial.mechanism, denial.operation.as_str(), denial.object.port);
            assert_eq!(by, (Mechanism::Proxy, client.operation(), Some(client.port)), "{}: {ended}", client.name);
        }
    }
    let strays: Vec<_> = of_network(&ended)
        .into_iter()
        .filter(|one| !one.object.host.iter().any(|host| host.ends_with(".example.net")))
        .collect();
    assert!(strays.is_empty(), "{strays:?} {ended}");
    assert_eq!(fence.world.packets().len(), before, "no name was asked for, and nobody was: {ended}");
    assert!(ended.seal().complete, "{ended}");
}

/// How a client that goes its own way finds the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It asks the resolver.
    ByName,
    /// The machine's own file of hosts says it.
    InHosts,
}

fn address(client: &Client) -> IpAddr {
    if client.host == ECHO { ECHO4.into() } else { PUBLIC4.into() }
}

/// Runs a client without the proxy settings: it fails, and no later than where nobody is there. A machine that has other
/// things to do may be late once or twice; what ringfence let wait would be late each time.
fn at_once(fence: &Fence, client: &Client) -> Ended {
    let (name, host) = (client.name, client.host);
    let script = format!("{UNSET}{}timed {name} {NOBODY_THERE}\necho --\ntimed {name} {host}\n", prelude());
    let mut late = Vec::new();
    for _ in 0..3 {
        let ended = fence.run(&FLAGS, &script);
        let (start, direct) = ended.said.out.split_once("--\n").unwrap_or_else(|| panic!("{name}: {ended}"));
        let of = |out: &str| outcome(&Said { out: out.to_owned(), ..ended.said.clone() }, name);
        let ((_, start), (status, milliseconds)) = (of(start), of(direct));
        assert_ne!(status, 0, "{name}: {ended}");
        if milliseconds < start + AT_ONCE {
            return ended;
        }
        late.push((start, milliseconds));
    }
    panic!("{name} takes its time, in milliseconds to start and then: {late:?}");
}

/// A client fails no later than where nobody is there, and what it tried is on record with where it was to go.
fn goes_its_own_way(found: Found) {
    let mut clients = Clients::new();
    let fence = &clients.fence;
    if found == Found::InHosts {
        let hosts = String::from_utf8(fence.world.read("/etc/hosts").expect("a hosts file")).expect("UTF-8");
        // Once each: an address that stands there twice is tried twice.
        let lines: BTreeSet<String> =
            CLIENTS.iter().map(|client| format!("{} {}\n", address(client), client.host)).collect();
        let lines = String::from_iter(lines);
        fence.world.write("/etc/hosts", format!("{hosts}\n{lines}"), 0o644);
    }
    // The same where nothing refuses: each gets what it wants.
    let each = of_each(|client| format!("timed {} {}\n", client.name, client.host));
    let free = fence.as_nobody(&format!("{UNSET}{}{each}", prelude()));
    for client in &CLIENTS {
        assert_eq!(outcome(&free, client.name).0, 0, "{}: {free}", client.name);
    }
    let before = (fence.internet.resolver.questions().len(), fence.world.packets().len());

    for client in &CLIENTS {
        let name = client.name;
        let ended = at_once(fence, client);
        let (to, rule) = match found {
            Found::ByName => (SocketAddr::new(RESOLVER4.into(), 53), "dns"),
            Found::InHosts => (SocketAddr::new(address(client), client.port), "default-deny"),
        };
        for denial in of_network(&ended) {
            let object = (denial.object.addrs.as_slice(), denial.object.port);
            assert_eq!(object, (&[to.ip()][..], Some(to.port())), "{name}: {ended}");
            assert_eq!((denial.mechanism, denial.rule.as_str()), (Mechanism::Firewall, rule), "{name}: {ended}");
        }
        assert!(ended.seal().complete, "{name}: {ended}");
        assert_named(fence, client, &ended, to);
    }
    let after = (fence.internet.resolver.questions().len(), fence.world.packets().len());
    assert_eq!(after, before, "nothing left the box");
    assert_eq!(clients.echoed().len(), 4, "the server saw those without ringfence alone");
}

/// The report says which program it was, and how often and where to it tried.
fn assert_named(fence: &Fence, client: &Client, ended: &Ended, to: SocketAddr) {
    let report = Said::from(fence.world.output(fence.ringfence(&["report", "--json", &ended.ledger])));
    let report: Value = serde_json::from_str(&report.out).unwrap_or_else(|cause| panic!("{cause}: {report}"));
    let tools = report["tools"].as_array().expect("tools");
    assert!(!tools.is_empty(), "{}: {report} {ended}", client.name);
    for tool in tools {
        let program = tool["exe"].as_str().and_then(|exe| exe.rsplit('/').next()).unwrap_or_default();
        assert!(program.starts_with(client.program), "{}: {tool} {ended}", client.name);
        let told = (tool["destinations"].as_u64(), tool["first"].as_str(), &tool["ports"]);
        assert_eq!(told, (Some(1), Some(to.to_string().as_str()), &json!([to.port()])), "{}: {ended}", client.name);
    }
    let attempts: u64 = tools.iter().filter_map(|tool| tool["denials"].as_u64()).sum();
    assert_eq!(attempts, of_network(ended).iter().map(|denial| denial.count).sum::<u64>(), "{}: {ended}", client.name);
}

#[test]
fn a_client_that_asks_the_resolver_itself_is_refused_at_once_and_named() {
    goes_its_own_way(Found::ByName);
}

#[test]
fn a_client_that_connects_by_itself_is_refused_at_once_and_named() {
    goes_its_own_way(Found::InHosts);
}
