//! Tools that ask no proxy, served under `transparent`: every proxy setting is taken away, each client fetches from an admitted
//! name and from one that is not, and the outside saw the former alone.

mod common;
mod fetching;
mod proxyless;

use common::as_root;
use proxyless::rung::{self, RUNGS, Rung};
use proxyless::{Box, TRANSPARENT, UNSET};
use ringfence::ledger::record::{Denial, Mechanism};
use std::collections::BTreeSet;
use std::process::Command;
use world::address::PUBLIC4_B;
use world::{AUTHORITY_FILE, Request};

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

/// A box with the clients in it.
fn with_clients() -> Box {
    let own = Box::of(fetching::fence());
    let fence = &own.fence;
    fetching::install(fence);
    fetching::install_static(fence, "musl-gcc", "resolve.c", "/usr/local/bin/resolve-musl");
    as_root(fence, "chmod 711 /root");
    for (client, _) in SAYING.into_iter().chain(MANAGERS) {
        fence.internet.resolver.host(&format!("{client}.example.net"), &[PUBLIC4_B.into()]);
    }
    own
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
