//! Tools that ask no proxy, served under `transparent`: every proxy setting is taken away, each client fetches from an admitted
//! name and from one that is not, and the outside saw the former alone.

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::{Denial, Mechanism};
use rung::{RUNGS, Rung};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use world::address::{PRIVATE4, PUBLIC4, PUBLIC4_B, RESOLVER4};
use world::{AUTHORITY_FILE, Answer, Internet, Request, World, dns, origin};

const TRANSPARENT: [&str; 1] = ["--transparent"];
/// Takes away every setting that names the proxy.
const UNSET: &str = "for name in $(env -0 | tr '\\n' ' ' | tr '\\0' '\\n' | grep -iE 'proxy|127\\.82\\.70' | cut -d= -f1); do unset $name; done\n";
/// How the clients are told whom to trust.
const TRUST: &str = "export GIT_SSL_CAINFO=/etc/ssl/certs/ca-certificates.crt GIT_TERMINAL_PROMPT=0 PIP_CERT=/etc/ssl/certs/ca-certificates.crt\n\
     export CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt CARGO_NET_RETRY=0\n";
/// The clients that say a status, with what it is where they are served and where they are not.
const SAYING: [(&str, &str); 9] = [
    ("curl", "200"),
    ("wget", "0"),
    ("urllib", "200"),
    ("git", "0"),
    ("node", "200"),
    ("url-connection", "200"),
    ("java-http", "200"),
    ("go", "200"),
    ("musl", "200"),
];
/// Those of package managers, by what of their requests the origin sees.
const MANAGERS: [(&str, &str); 3] = [("pip", "pip/"), ("npm", "npm/"), ("cargo", "cargo/")];

/// A rung's own user and home.
struct Box {
    fence: Fence,
    user: u32,
    home: String,
}

fn fence() -> Box {
    let files = tempfile::tempdir().expect("a directory");
    world::repository(files.path()).expect("a repository");
    let (repository, rest) = (origin::directory(files.path()).expect("files"), origin::standard());
    let content: origin::Content =
        Arc::new(move |request: &Request| match request.path().starts_with("/project.git/") {
            true => repository(request),
            false => rest(request),
        });
    let world = World::new().expect("a closed world");
    let internet = Internet::serving(&world, content).expect("servers outside");
    let fence = Fence::of(world, internet);
    let (user, home) = (own_user(), "/home/dev".to_owned());
    rung::prepare(&fence, user, &home);
    Box { fence, user, home }
}

/// The same with the clients in it.
fn with_clients() -> Box {
    let own = fence();
    let fence = &own.fence;
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let built = tempfile::tempdir().expect("a directory");
    let run = |command: &mut Command| assert!(command.status().expect("a compiler").success(), "{command:?}");
    let (musl, go) = (built.path().join("resolve"), built.path().join("fetch-go"));
    run(Command::new("musl-gcc").args(["-static", "-O1", "-o"]).arg(&musl).arg(scripts.join("resolve.c")));
    run(Command::new("go").args(["build", "-o"]).arg(&go).arg(scripts.join("fetch.go")).env("CGO_ENABLED", "0"));
    run(Command::new("javac").arg("-d").arg(built.path()).arg(scripts.join("Fetch.java")));
    fence.world.install(&musl, "/usr/local/bin/resolve-musl");
    fence.world.install(&go, "/usr/local/bin/fetch-go");
    for class in ["Fetch.class", "Fetch$Client.class"] {
        fence.world.install(&built.path().join(class), &format!("/usr/local/lib/java/{class}"));
    }
    for script in ["fetch.py", "fetch.mjs"] {
        fence.world.install(&scripts.join(script), &format!("/usr/local/lib/{script}"));
    }
    as_root(
        fence,
        &format!(
            "keytool -importcert -noprompt -file {AUTHORITY_FILE} -keystore /usr/local/lib/trust.p12 -storepass changeit 2>&1; \
             chmod 711 /root"
        ),
    );
    for (client, _) in SAYING.into_iter().chain(MANAGERS) {
        fence.internet.resolver.host(&format!("{client}.example.net"), &[PUBLIC4_B.into()]);
    }
    own
}

impl Box {
    fn run(&self, rung: Rung, flags: &[&str], script: &str) -> Ended {
        // Each rung has one name for its ledger.
        as_root(&self.fence, "rm -f /var/log/rungs*/*.jsonl");
        rung.run(&self.fence, self.user, &self.home, flags, &["bash", "-c", script])
    }
}

/// Where the toolchain of this machine has its cargo, past what chooses one.
fn cargo() -> String {
    if let Ok(path) = std::env::var("CARGO") {
        return path;
    }
    let found = Command::new("rustup").args(["which", "cargo"]).output().expect("rustup");
    String::from_utf8(found.stdout).expect("a path").trim().to_owned()
}

fn fetches() -> String {
    let refused = |client: &str| format!("{client}.example.net");
    let timed = "timed() { name=$1; shift; \"$@\" >/tmp/$name.out 2>&1; echo \"$name=$?\"; }\n";
    let java = "java -Dhttp.proxyHost= -Dhttps.proxyHost= -Djavax.net.ssl.trustStore=/usr/local/lib/trust.p12 \
                -Djavax.net.ssl.trustStorePassword=changeit -cp /usr/local/lib/java Fetch";
    let manifest = "[package]\\nname = \"scratch\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\n";
    let mut script = format!(
        "{UNSET}{TRUST}{timed}export NODE_EXTRA_CA_CERTS={AUTHORITY_FILE} npm_config_cafile={AUTHORITY_FILE} npm_config_fetch_retries=0\n\
         export CARGO_HOME=$HOME/.cache/cargo CARGO_REGISTRIES_OTHER_INDEX=sparse+https://{}/\n",
        refused("cargo")
    );
    for (prefix, host) in [("", "pypi.org".to_owned()), ("no-", String::new())] {
        let of = |client: &str| if host.is_empty() { refused(client) } else { host.clone() };
        let url = |client: &str| format!("https://{}/", of(client));
        let dependency =
            if host.is_empty() { "itoa = { version = \"1\", registry = \"other\" }" } else { "itoa = \"1\"" };
        let (index, npm) = match host.as_str() {
            "" => (url("pip"), url("npm")),
            _ => (url("pip"), "https://registry.npmjs.org/".to_owned()),
        };
        let git = if host.is_empty() { url("git") } else { "https://github.com/".to_owned() };
        script += &format!(
            "curl -sS -o /dev/null -w '{prefix}curl=%{{http_code}}\\n' {}\n\
             timed {prefix}wget wget -q -t 1 -O /dev/null {}\n\
             /usr/bin/python3 /usr/local/lib/fetch.py {prefix}urllib urllib {}\n\
             timed {prefix}git git ls-remote {git}project.git\n\
             node /usr/local/lib/fetch.mjs {prefix}node {}\n\
             {java} {prefix}url-connection {} {prefix}java-http {}\n\
             fetch-go {prefix}go {}\n\
             resolve-musl {prefix}musl {}\n\
             timed {prefix}pip /usr/bin/python3 -m pip download -q --no-deps --no-cache-dir --retries 0 --index-url {index}simple six\n\
             timed {prefix}npm npm view is-number name --registry {npm}\n\
             mkdir -p {prefix}crate/src && printf '{manifest}{dependency}\\n' >{prefix}crate/Cargo.toml && touch {prefix}crate/src/lib.rs\n\
             (cd {prefix}crate && timed {prefix}cargo {} fetch -q)\n",
            url("curl"),
            url("wget"),
            url("urllib"),
            url("node"),
            url("url-connection"),
            url("java-http"),
            url("go"),
            of("musl"),
            cargo(),
        );
    }
    script
}

fn agents(requests: &[Request]) -> Vec<String> {
    requests.iter().flat_map(|one| one.field("user-agent").map(str::to_owned)).collect()
}

fn clients_are_served(rung: Rung) {
    let own = with_clients();
    let fence = &own.fence;
    let ended = own.run(rung, &TRANSPARENT, &fetches());
    assert_eq!(ended.start().rung, rung.name(), "{ended}");
    for (client, served) in SAYING {
        assert_eq!(ended.value(client).split(' ').next(), Some(served), "{client}: {ended}");
        assert_ne!(ended.value(&format!("no-{client}")).split(' ').next(), Some(served), "{client}: {ended}");
    }
    let https = [fence.internet.https.requests(), fence.internet.https6.requests()].concat();
    let seen = agents(&https);
    for (client, agent) in MANAGERS {
        assert!(seen.iter().any(|one| one.starts_with(agent)), "{client}: {seen:?} {ended}");
        assert_ne!(ended.value(&format!("no-{client}")), "0", "{client}: {ended}");
    }
    // Each refused name is on record as a look-up, by who asked, and nothing else is.
    let denied: BTreeSet<&str> = ended.denials().iter().filter_map(|denial| denial.object.host.as_deref()).collect();
    let wanted: Vec<String> =
        SAYING.iter().chain(&MANAGERS).map(|(client, _)| format!("{client}.example.net")).collect();
    assert_eq!(denied, wanted.iter().map(String::as_str).collect(), "{ended}");
    for denial in ended.denials() {
        let told = (denial.operation.as_str(), denial.rule.as_str(), denial.mechanism);
        assert_eq!(told, ("lookup", "default-deny", Mechanism::Proxy), "{denial:?} {ended}");
    }
    let by = |program: &str, host: &str| {
        let of_program = |denial: &&Denial| {
            let exe = denial.subject.exe.as_deref().unwrap_or_default();
            exe.rsplit('/').next().is_some_and(|name| name.starts_with(program))
        };
        ended.denials_of(host).iter().any(of_program)
    };
    for (program, client) in [("curl", "curl"), ("resolve-musl", "musl"), ("fetch-go", "go"), ("node", "node")] {
        assert!(by(program, &format!("{client}.example.net")), "{program} is told to have asked: {ended}");
    }
    assert!(fence.internet.stranger.requests().is_empty() && fence.internet.stranger_https.requests().is_empty());
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn on_full_every_client_is_served_and_refused() {
    clients_are_served(Rung::Full);
}

#[test]
fn on_container_every_client_is_served_and_refused() {
    clients_are_served(Rung::Container);
}

#[test]
fn on_rootless_every_client_is_served_and_refused() {
    clients_are_served(Rung::Rootless);
}

#[test]
fn on_bare_every_client_is_served_and_refused() {
    clients_are_served(Rung::Bare);
}

/// The clients of the tests above reach the strangers where nobody keeps them from it, and nothing without a proxy where
/// `transparent` is off.
#[test]
fn the_attempts_are_live_and_off_means_refused() {
    let own = with_clients();
    let fence = &own.fence;
    let script = format!("export HOME={}; cd {}; {}", own.home, rung::WORKSPACE, fetches());
    // The stranger's certificate is for its own name.
    let free = fence.as_user(own.user, &script.replace("https://curl.example.net/", "http://curl.example.net/"));
    assert!(free.out.contains("no-curl=200") && free.out.contains("no-musl=200"), "{free}");
    for (client, _) in SAYING.into_iter().chain(MANAGERS) {
        let asked = fence.internet.resolver.questions_about(&format!("{client}.example.net"));
        assert!(!asked.is_empty(), "{client} is live: {free}");
    }
    let before = fence.internet.https.requests().len();
    let few = format!(
        "{UNSET}curl -sS -o /dev/null -w 'curl=%{{http_code}}\\n' https://pypi.org/; resolve-musl musl pypi.org"
    );
    for rung in RUNGS {
        let ended = own.run(rung, &[], &few);
        assert_eq!((ended.value("curl"), ended.value("musl")), ("000", "0"), "{ended}");
        assert!(ended.denials().iter().all(|denial| denial.rule == "dns" && denial.operation == "udp"), "{ended}");
    }
    assert_eq!(fence.internet.https.requests().len(), before);
}

/// What each client is told of who has answered is what it would be without us: some hold it against whom they have asked.
#[test]
fn an_answer_comes_from_whom_was_asked() {
    let own = fence();
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
    let own = fence();
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
    let own = fence();
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
    let own = fence();
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
    let own = fence();
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
