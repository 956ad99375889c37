//! Under `transparent`, what tools that ask no proxy are told and what is judged of what they send, by the resolvers and hosts
//! files of many machines: as a CONNECT would be.

mod common;
mod proxyless;

use common::{Fence, as_root};
use proxyless::rung::RUNGS;
use proxyless::{Box, TRANSPARENT, UNSET};
use std::collections::BTreeMap;
use std::path::Path;
use world::address::{PRIVATE4, PUBLIC4, PUBLIC4_B, RESOLVER4};
use world::{Answer, dns};

/// What each client is told of who has answered is what it would be without us: some hold it against whom they have asked.
#[test]
fn an_answer_comes_from_whom_was_asked() {
    let own = Box::of(Fence::new());
    let fence = &own.fence;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ask.py");
    fence.world.install(&script, "/usr/local/lib/ask.py");
    let ask = |name: &str| format!("/usr/bin/python3 /usr/local/lib/ask.py {name} {RESOLVER4}");
    let free = fence.as_user(own.user, &ask("pypi.org"));
    assert!(free.out.lines().count() == 19 && free.out.lines().all(|line| line.contains("=0 ")), "{free}");
    for rung in RUNGS {
        let ended = own.run(rung, &TRANSPARENT, &ask("pypi.org"));
        let line = |line: &str| match (rung.is_without_namespaces(), line.split_once('=')) {
            // The peer of a connection is who has it (docs/rungs.md).
            (true, Some(("tcp", told))) => format!("tcp={} ", told.split(' ').next().unwrap_or_default()),
            _ => line.to_owned(),
        };
        let lines = |text: &str| text.lines().map(line).collect::<Vec<_>>();
        assert_eq!(lines(&ended.said.out), lines(&free.out), "{rung:?}: {ended}");
        assert!(ended.denials().is_empty(), "{ended}");
        let refused = own.run(rung, &TRANSPARENT, &ask("secret.example.org"));
        assert!(refused.said.out.lines().all(|line| line.contains("=5 ")), "{rung:?}: {refused}");
        let asked: u64 = refused.denials().iter().map(|denial| denial.count).sum();
        assert_eq!(asked, 19, "{rung:?}: {refused}");
    }
}

/// A python client that connects to an address or a name by itself and says what becomes of it.
const CONNECT: &str = r#"
import errno, socket, sys
for line in sys.stdin:
    label, host, port, sent = line.rstrip("\n").split(" ", 3)
    try:
        with socket.create_connection((host, int(port)), 10) as s:
            s.sendall(sent.encode().decode("unicode_escape").encode("latin-1"))
            s.settimeout(10)
            said = s.recv(64).decode("latin-1").split("\r\n")[0] or "ended"
    except socket.gaierror:
        said = "no address"
    except OSError as cause:
        said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{label}={said}")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try:
        s.sendto(b"quic", ("198.18.0.1", 443))
        print("quic=sent")
    except OSError as cause:
        print(f"quic={errno.errorcode[cause.errno]}")
"#;

/// Requests that the admitted names have had without TLS.
fn served(fence: &Fence) -> usize {
    fence.internet.http.requests().len() + fence.internet.http6.requests().len()
}

/// The same verdict as through CONNECT on a name that is rebound, on mixed answers, on another name than was asked for, and on
/// what was never handed out.
#[test]
fn what_connect_refuses_is_refused_here_too() {
    let own = Box::of(Fence::new());
    let fence = &own.fence;
    fence.world.write("/usr/local/lib/connect.py", CONNECT, 0o644);
    let resolver = &fence.internet.resolver;
    let hosts = ["mixed.test", "*.rebound.test", "private.test", "fronted.test"];
    let flags: Vec<&str> =
        TRANSPARENT.into_iter().chain(hosts.iter().flat_map(|host| ["--allow-host", host])).collect();
    let get = |host: &str| format!("GET / HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n");
    let lines = [
        format!("served pypi.org 80 {}", get("pypi.org")),
        format!("fronted fronted.test 80 {}", get("pypi.org")),
        format!("other fronted.test 80 {}", get("stranger.example.org")),
        format!("mixed mixed.test 80 {}", get("mixed.test")),
        format!("private private.test 80 {}", get("private.test")),
        format!("rebound RUNG.rebound.test 80 {}", get("rebound.test")),
        format!("tls fronted.test 443 {}", get("fronted.test")),
        format!("never 198.19.1.1 443 {}", get("pypi.org")),
        format!("literal {PUBLIC4} 80 {}", get("pypi.org")),
        format!("port pypi.org 8080 {}", get("pypi.org")),
    ]
    .join("\n");
    // By the look-up of one name, TLS for another and for none.
    let script = format!(
        "{UNSET}/usr/bin/python3 /usr/local/lib/connect.py <<'END'\n{lines}\nEND\n\
         curl -ks -o /dev/null -w 'sni=%{{http_code}}\\n' --connect-to stranger.example.org:443:fronted.test:443 https://stranger.example.org/\n\
         openssl s_client -noservername -connect fronted.test:443 </dev/null >/tmp/nobody 2>&1; echo nobody=$?\n"
    );
    for rung in RUNGS {
        resolver.host("mixed.test", &[PUBLIC4.into(), PRIVATE4.into()]);
        resolver.host("private.test", &[PRIVATE4.into()]);
        resolver.host("fronted.test", &[PUBLIC4.into()]);
        // Public when it is looked up, and private when it is connected to.
        let rebound = format!("{}.rebound.test", rung.name());
        resolver.host(&rebound, &[PUBLIC4.into()]);
        let [public, private] = [PUBLIC4, PRIVATE4].map(|address| Answer::Addresses(vec![address.into()], 0));
        resolver.answers(&rebound, dns::A, [public, private]);
        let before = served(fence);
        let ended = own.run(rung, &flags, &script.replace("RUNG", rung.name()));
        for (what, said) in [
            ("served", "HTTP/1.1 200 World"),
            ("fronted", "HTTP/1.1 403 Forbidden"),
            ("other", "HTTP/1.1 403 Forbidden"),
            ("mixed", "no address"),
            ("private", "no address"),
            ("rebound", "ECONNRESET"),
            ("never", "ECONNRESET"),
            ("literal", "ECONNREFUSED"),
            ("port", "ECONNREFUSED"),
            ("quic", "EPERM"),
        ] {
            assert_eq!(ended.value(what), said, "{rung:?} {what}: {ended}");
        }
        assert_eq!(
            (ended.value("tls"), ended.value("sni"), ended.value("nobody")),
            ("ECONNRESET", "000", "1"),
            "{ended}"
        );
        let mut rules: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for denial in ended.denials() {
            *rules.entry((denial.operation.as_str(), denial.rule.as_str())).or_default() += denial.count;
        }
        let count = |operation, rule| rules.get(&(operation, rule)).copied().unwrap_or(0);
        assert_eq!(count("GET", "tunnel-host"), 2, "{rung:?}: {rules:?} {ended}");
        assert!(count("lookup", "private-range") >= 2, "{rung:?}: {rules:?} {ended}");
        assert_eq!(count("connect", "private-range"), 1, "{rung:?}: {rules:?} {ended}");
        assert_eq!(count("connect", "default-deny"), 1, "{rung:?}: {rules:?} {ended}");
        assert_eq!((count("TLS", "sni"), count("TLS", "tunnel-protocol")), (2, 1), "{rung:?}: {rules:?} {ended}");
        assert!(count("tcp", "default-deny") >= 1 && count("tcp", "private-range") >= 1, "{rung:?}: {rules:?} {ended}");
        assert_eq!((served(fence) - before, fence.internet.private.requests().len()), (1, 0), "{rung:?}: {ended}");
        assert!(ended.seal().complete, "{ended}");
    }
}

/// Search domains are clients' own way of asking: what lies below one is no attempt on anything if the rest is admitted.
#[test]
fn search_domains_and_the_hosts_file_work() {
    let own = Box::of(Fence::new());
    let fence = &own.fence;
    let settings =
        format!("nameserver {RESOLVER4}\nsearch corp.test svc.corp.test\noptions ndots:5 timeout:2 attempts:1\n");
    fence.world.write("/etc/resolv.conf", settings, 0o644);
    let hosts = String::from_utf8(fence.world.read("/etc/hosts").expect("a hosts file")).expect("UTF-8");
    fence.world.write(
        "/etc/hosts",
        format!("{hosts}\n{PUBLIC4} files.pythonhosted.org\n{PUBLIC4_B} stranger.example.org\n"),
        0o644,
    );
    let get = |host: &str| format!("curl -sS -o /dev/null -w '{host}=%{{http_code}}\\n' http://{host}/\n");
    let script = format!("{UNSET}{}{}{}", get("pypi.org"), get("files.pythonhosted.org"), get("stranger.example.org"));
    for rung in RUNGS {
        let ended = own.run(rung, &TRANSPARENT, &script);
        for (host, status) in [("pypi.org", "200"), ("files.pythonhosted.org", "200"), ("stranger.example.org", "000")]
        {
            assert_eq!(ended.value(host), status, "{rung:?} {host}: {ended}");
        }
        let told: Vec<_> =
            ended.denials().into_iter().map(|denial| (denial.operation.as_str(), denial.rule.as_str())).collect();
        assert_eq!(told, [("tcp", "default-deny")], "{rung:?}: the stranger's address alone: {ended}");
    }
}

/// Where the host's resolvers are elsewhere, or nowhere.
#[test]
fn whichever_resolver_the_host_has_names_are_answered_in_its_place() {
    let own = Box::of(Fence::new());
    let fence = &own.fence;
    let script = format!(
        "{UNSET}curl -sS -o /dev/null -w 'curl=%{{http_code}}\\n' http://pypi.org/; curl -sS http://secret.example.org/"
    );
    let inside =
        |address: std::net::IpAddr| world::Resolver::start(fence.world.inside(), address).expect("a forwarder");
    for server in ["127.0.0.1", "127.0.0.53", "127.0.0.11", "::1", "2a00:1:2:3::2"] {
        let forwarder = inside(server.parse().expect("an address"));
        forwarder.host("pypi.org", &[PUBLIC4.into()]);
        forwarder.host("secret.example.org", &[PUBLIC4.into()]);
        fence.world.write("/etc/resolv.conf", format!("nameserver {server}\noptions timeout:2 attempts:1\n"), 0o644);
        for rung in RUNGS {
            let ended = own.run(rung, &TRANSPARENT, &script);
            assert_eq!(ended.value("curl"), "200", "{rung:?} {server}: {ended}");
            assert!(ended.denials().iter().all(|one| one.operation == "lookup"), "{rung:?} {server}: {ended}");
            assert!(!ended.denials_of("secret.example.org").is_empty(), "{rung:?} {server}: {ended}");
        }
        assert!(forwarder.questions_about("secret.example.org").is_empty(), "{server}");
    }
}

/// What stands against it is said before anything starts, and the plan says what is caught.
#[test]
fn the_plan_says_what_is_caught_and_what_stands_against_it() {
    let fence = Fence::new();
    let plan = |flags: &[&str]| fence.output(fence.ringfence(&[&["plan"], flags].concat()));
    let said = plan(&["--policy", "nist-high", "--transparent", "--allow-host", "a.test:8443"]);
    let note = "note: tools that ask no proxy are served: admitted names are answered by addresses of 198.18.0.0/15, and what is \
                sent there over TCP to 80, 443, 8443 is judged as a tunnel to the name";
    assert!(said.code == Some(0) && said.out.contains(note), "{said}");
    assert!(!plan(&["--policy", "nist-high"]).out.contains("198.18"), "off by default");
    let open = plan(&["--policy", "control", "--transparent"]);
    assert!(open.out.contains("transparent has no effect: the network is open"), "{open}");

    let ports: Vec<String> = (1000..1070).map(|port| format!("a.test:{port}")).collect();
    let many: Vec<&str> = ports.iter().flat_map(|entry| ["--allow-host", entry]).collect();
    fence.refuses(&[&["--policy", "nist-high", "--transparent"], &many[..]].concat(), "name 72 ports");
    as_root(&fence, "ip address add 198.18.3.4/32 dev lo");
    fence.refuses(&["--policy", "nist-high", "--transparent"], "198.18.3.4 is this machine's own");
    as_root(&fence, "ip address del 198.18.3.4/32 dev lo; ip route del default");
    fence.refuses(&["--policy", "nist-high", "--transparent"], "no route to 198.18.0.0/15");
}

/// The record says what was on, and a control-plane port is refused at a stand-in as anywhere.
#[test]
fn a_control_plane_port_is_refused_at_a_stand_in_too() {
    let own = Box::of(Fence::new());
    let flags = ["--transparent", "--allow-host", "pypi.org:8500", "--control-plane-port", "8500"];
    let script = format!(
        "{UNSET}curl -sS -o /dev/null http://pypi.org:8500/ 2>&1; curl -s -o /dev/null -w 'curl=%{{http_code}}\\n' http://pypi.org/"
    );
    for rung in RUNGS {
        let ended = own.run(rung, &flags, &script);
        assert_eq!(ended.value("curl"), "200", "{ended}");
        let told: Vec<_> = ended.denials().into_iter().map(|denial| denial.rule.as_str()).collect();
        assert_eq!(told, ["control-plane"], "{rung:?}: {ended}");
    }
}
