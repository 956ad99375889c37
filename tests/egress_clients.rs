//! Clients that use the proxy settings and clients that don't (case N17): what is refused is seen to be refused, at once,
//! and each attempt is on record.

mod common;
mod fetching;

use common::{Ended, Fence};
use ringfence::ledger::record::Mechanism;
use std::collections::BTreeMap;
use std::net::IpAddr;
use world::address::{PRIVATE4, PUBLIC4, PUBLIC4_B};
use world::{AUTHORITY_FILE, Said};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A port where nothing listens: without ringfence the outside answers by a reset, as the wall does.
const PORT: u16 = 8443;
/// The clients, each with a refused name of its own.
const CLIENTS: [&str; 7] = ["curl", "wget", "urllib", "git", "url-connection", "java-http", "go"];
/// What every script of these tests begins with.
const PRELUDE: &str = "\
    export GIT_SSL_CAINFO=/etc/ssl/certs/ca-certificates.crt GIT_TERMINAL_PROMPT=0\n\
    trust='-Djavax.net.ssl.trustStore=/usr/local/lib/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit'\n\
    timed() { # NAME COMMAND…: says NAME=STATUS MILLISECONDS\n\
      name=$1; shift; begin=$(date +%s%N)\n\
      \"$@\" >/tmp/$name-$UID.out 2>&1; echo \"$name=$? $(( ($(date +%s%N) - begin) / 1000000 ))\"\n\
    }\n";

fn fence() -> Fence {
    let fence = fetching::fence();
    fetching::install(&fence);
    fetching::install_static(&fence, "cc", "entries.c", "/usr/local/bin/static-client");
    fence
}

/// Each client fetches an admitted name and one that is not.
fn proxied() -> String {
    let refused = |client: &str| format!("https://{client}.example.net/");
    format!(
        "{PRELUDE}\
         curl -s -o /dev/null -w 'curl=%{{http_code}}\\n' https://pypi.org/\n\
         curl -s -o /dev/null -w 'no-curl=%{{http_connect}}\\n' {}\n\
         timed wget wget -q -O /dev/null https://pypi.org/; timed no-wget wget -q -O /dev/null {}\n\
         /usr/bin/python3 /usr/local/lib/fetch.py urllib urllib https://pypi.org/\n\
         /usr/bin/python3 /usr/local/lib/fetch.py no-urllib urllib {}\n\
         timed git git ls-remote https://github.com/project.git\n\
         timed no-git git ls-remote {}project.git\n\
         java $trust -cp /usr/local/lib/java Fetch url-connection https://pypi.org/ java-http https://pypi.org/\n\
         java $trust -cp /usr/local/lib/java Fetch no-url-connection {} no-java-http {}\n\
         fetch-go go https://pypi.org/ no-go {}\n",
        refused("curl"),
        refused("wget"),
        refused("urllib"),
        refused("git"),
        refused("url-connection"),
        refused("java-http"),
        refused("go"),
    )
}

/// Each client goes its own way: to an admitted and to a refused name, whose addresses it knows. `unset` takes the proxy
/// settings away.
fn direct(unset: &str) -> String {
    let java = "-Dhttp.proxyHost= -Dhttps.proxyHost=";
    let mut script = format!("{PRELUDE}{unset}\n");
    for (name, address) in [("pypi.org", PUBLIC4), ("stranger.example.org", PUBLIC4_B)] {
        let (url, plain) = (format!("https://{name}:{PORT}/"), format!("http://{name}:{PORT}/"));
        let tag = name.split('.').next().expect("a label");
        script += &format!(
            "timed curl-{tag} curl -sS -o /dev/null {url}\n\
             timed wget-{tag} wget -q -O /dev/null {url}\n\
             /usr/bin/python3 /usr/local/lib/fetch.py urllib-{tag} urllib {url}\n\
             /usr/bin/python3 /usr/local/lib/fetch.py socket-{tag} socket {name}:{PORT}\n\
             node /usr/local/lib/fetch.mjs node-{tag} {url}\n\
             timed git-{tag} git ls-remote {url}project.git\n\
             timed ssh-{tag} ssh -o BatchMode=yes -o StrictHostKeyChecking=no -p {PORT} git@{name}\n\
             fetch-go go-{tag} {plain}\n\
             timed static-{tag} static-client connect {address} {PORT}\n\
             java {java} -cp /usr/local/lib/java Fetch url-connection-{tag} {plain} java-http-{tag} {plain}\n"
        );
    }
    script
}

/// Attempts by destination and port, as the wire shows them: a refused connection is one packet.
type Attempts = BTreeMap<(IpAddr, u16), u64>;

fn attempts_on_record(ended: &Ended) -> Attempts {
    let mut counts = Attempts::new();
    for denial in ended.denials() {
        let address = match denial.object.host.as_deref() {
            Some("pypi.org") => PUBLIC4.into(),
            Some("stranger.example.org") => PUBLIC4_B.into(),
            _ => denial.object.addrs[0],
        };
        *counts.entry((address, denial.object.port.expect("a port"))).or_default() += denial.count;
    }
    counts
}

fn assert_fast(said: &Said) {
    let timed = said.out.lines().filter_map(|line| line.split_once('=')?.1.split_once(' '));
    let mut seen = 0;
    for (status, milliseconds) in timed {
        assert_ne!(status, "200", "{said}");
        assert!(milliseconds.parse::<u64>().expect("milliseconds") < 1000, "{said}");
        seen += 1;
    }
    assert_eq!(seen, 22, "eleven clients, two destinations: {said}");
}

#[test]
fn a_client_that_uses_the_settings_works_whatever_the_caller_had_set() {
    let fence = fence();
    for client in CLIENTS {
        fence.internet.resolver.host(&format!("{client}.example.net"), &[PUBLIC4_B.into()]);
    }
    let script = proxied();
    let (mut command, ledger) = fence.command(&FLAGS, &["bash", "-c", &script]);
    // None of the caller's settings reaches the command.
    for name in ["NO_PROXY", "no_proxy", "npm_config_noproxy"] {
        command.env(name, "*");
    }
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, format!("http://{PRIVATE4}:3128"));
    }
    let ended = fence.ended(Said::from(fence.world.output(command)), ledger);
    for client in CLIENTS {
        let status = ended.value(client).split(' ').next().expect("a status");
        let wanted = match client {
            "wget" | "git" => "0",
            _ => "200",
        };
        assert_eq!(status, wanted, "{client}: {ended}");
        let denials = ended.denials_of(&format!("{client}.example.net"));
        assert_eq!(denials.len(), 1, "{client}: {ended}");
        assert_eq!((denials[0].mechanism, denials[0].object.port), (Mechanism::Proxy, Some(443)), "{ended}");
        assert_ne!(ended.value(&format!("no-{client}")).split(' ').next(), Some(wanted), "{client}: {ended}");
    }
    assert_eq!(ended.denials().len(), CLIENTS.len(), "{ended}");
    assert!(fence.internet.stranger_https.requests().is_empty(), "{ended}");
    assert!(ended.seal().complete, "{ended}");
}

/// Node's `fetch` reads the proxy variables from 22.21 and 24 on; before, it goes its own way.
#[test]
fn nodes_fetch_works_or_is_seen_to_be_refused() {
    let fence = fence();
    let script = "node -p process.versions.node\nnode /usr/local/lib/fetch.mjs node https://pypi.org/";
    let script = format!("export NODE_EXTRA_CA_CERTS={AUTHORITY_FILE}\n{script}");
    let ended = fence.run(&FLAGS, &script);
    let version: Vec<u32> =
        ended.said.out.lines().next().expect("a version").split('.').filter_map(|part| part.parse().ok()).collect();
    let status = ended.value("node").split(' ').next();
    if version >= vec![24] || (version[0] == 22 && version >= vec![22, 21]) {
        assert_eq!(status, Some("200"), "{ended}");
        assert!(ended.denials().is_empty(), "{ended}");
    } else {
        assert_eq!(status, Some("0"), "{ended}");
        assert!(!ended.denials().is_empty() && ended.denials().iter().all(|one| one.rule == "dns"), "{ended}");
    }
}

#[test]
fn a_client_that_goes_its_own_way_is_refused_at_once_and_every_attempt_is_on_record() {
    let fence = fence();
    // The clients know the addresses: what is counted are connections.
    let hosts = String::from_utf8(fence.world.read("/etc/hosts").expect("a hosts file")).expect("UTF-8");
    let hosts = format!("{hosts}\n{PUBLIC4} pypi.org\n{PUBLIC4_B} stranger.example.org\n");
    fence.world.write("/etc/hosts", hosts, 0o644);
    let unset = "unset ${!HTTP*} ${!http*} ${!ALL_*} ${!all_*} ${!NO_PROXY*} ${!no_proxy*} NODE_USE_ENV_PROXY";
    // The same clients where the outside refuses: one packet an attempt.
    let before = fence.world.packets().len();
    // As root: ssh wants a user with an entry in passwd.
    let free = fence.as_root(&direct(unset));
    let mut expected = Attempts::new();
    for packet in fence.world.packets().split_off(before) {
        assert_eq!(packet.protocol, 6, "{packet:?} {free}");
        *expected.entry((packet.destination, packet.destination_port.expect("a port"))).or_default() += 1;
    }
    assert_eq!(expected.keys().copied().collect::<Vec<_>>(), [(PUBLIC4.into(), PORT), (PUBLIC4_B.into(), PORT)]);
    assert!(expected.values().all(|count| *count > 10), "the attempts are live: {expected:?} {free}");

    // wget takes `*` for a name and goes on to the proxy, which refuses the port.
    for (unset, by_proxy) in [(unset, 0), ("export NO_PROXY='*' no_proxy='*'; unset NODE_USE_ENV_PROXY", 2)] {
        let before = fence.world.packets().len();
        let ended = fence.run(&FLAGS, &direct(unset));
        assert_fast(&ended.said);
        assert_eq!(attempts_on_record(&ended), expected, "{unset}: {ended}");
        let (walled, proxied): (Vec<_>, Vec<_>) =
            ended.denials().into_iter().partition(|one| one.mechanism == Mechanism::Firewall);
        assert_eq!(proxied.len(), by_proxy, "{ended}");
        assert!(
            walled.iter().all(|one| one.operation == "tcp" && one.subject.uid == Some(ended.start().uid)),
            "{ended}"
        );
        assert!(ended.seal().complete, "{ended}");
        assert_eq!(fence.world.packets().len(), before, "nothing left the box: {ended}");
    }
}
