//! Real clients reach their registries through the proxy, as they are set up on this machine: in its own network, under a
//! root that is thrown away. Nothing here names a host or an address: each client asks for what it is configured to ask
//! for, the record of the refusal says what that was, and the next run admits it.

mod tested;

use ringfence::ledger::record::{Body, Denial, Infrastructure, Mechanism, Record};
use ringfence::policy::Axis;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use world::{Machine, Said};

const RINGFENCE: &str = "/usr/local/bin/ringfence";
/// Each round admits what the one before was refused for; a client asks for few hosts one after the other.
const ROUNDS: usize = 8;

/// What a client was refused and must be admitted, as flags.
#[derive(Debug, Default)]
struct Admitted {
    hosts: BTreeSet<String>,
    ranges: BTreeSet<String>,
}

struct Run {
    said: Said,
    denials: Vec<Denial>,
    failures: Vec<Infrastructure>,
    run: String,
}

fn machine() -> Machine {
    let machine = Machine::new().expect("a root of its own");
    let binary = std::fs::read(tested::binary()).expect("the binary");
    let homes: Vec<PathBuf> = std::env::var_os("HOME").map(PathBuf::from).into_iter().collect();
    machine.inside().run(move || {
        std::fs::create_dir_all("/usr/local/bin").expect("mkdir");
        std::fs::write(RINGFENCE, binary).expect("write");
        std::fs::set_permissions(RINGFENCE, PermissionsExt::from_mode(0o755)).expect("chmod");
        // A toolchain in the caller's home is searched for by the command's user; the root is thrown away.
        for home in homes {
            std::fs::set_permissions(home, PermissionsExt::from_mode(0o711)).expect("chmod");
        }
    });
    machine
}

/// The caller's environment without what cargo and nextest have put there for this test.
fn environment() -> Vec<(OsString, OsString)> {
    let of_the_test = |name: &str| {
        let kept = ["CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_NET_"];
        ["CARGO", "NEXTEST", "RUST", "LD_", "__"].iter().any(|prefix| name.starts_with(prefix))
            && !kept.iter().any(|prefix| name.starts_with(prefix))
    };
    std::env::vars_os().filter(|(name, _)| !of_the_test(&name.to_string_lossy())).collect()
}

fn output(machine: &Machine, program: &str, arguments: Vec<String>) -> Said {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment()).current_dir("/workspace").stdin(Stdio::null());
    Said::from(machine.inside().run(move || command.output()).expect("the program starts"))
}

fn fenced(machine: &Machine, flags: &[&str], admitted: &Admitted, script: &str, round: usize) -> Run {
    let ledger = format!("/var/log/ringfence/{round}.jsonl");
    let mut arguments: Vec<String> = ["run", "--policy", "nist-high", "--leftovers", "kill"].map(str::to_owned).into();
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    arguments.extend(admitted.hosts.iter().flat_map(|host| ["--allow-host".to_owned(), host.clone()]));
    arguments.extend(admitted.ranges.iter().flat_map(|range| ["--trust-range".to_owned(), range.clone()]));
    arguments.extend(["--ledger", &ledger, "--", "bash", "-c", script].map(str::to_owned));
    let said = output(machine, RINGFENCE, arguments);
    let text = machine.inside().run(move || std::fs::read_to_string(ledger)).unwrap_or_default();
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let run = records.first().map(|record| record.run.clone()).unwrap_or_else(|| panic!("no record: {said}"));
    let mut found = Run { said, denials: Vec::new(), failures: Vec::new(), run };
    for record in records {
        match record.body {
            Body::Denial(denial) => found.denials.push(denial),
            Body::Infrastructure(failure) => found.failures.push(failure),
            _ => {}
        }
    }
    found
}

/// Runs a client until it is refused nothing any more; its last output. A client that fails all the same, or a registry
/// that can't be reached without ringfence either, is a failure that says so.
fn reaches_its_registry(machine: &Machine, flags: &[&str], script: &str) -> String {
    let mut admitted = Admitted::default();
    for round in 0..ROUNDS {
        let run = fenced(machine, flags, &admitted, script, round);
        assert_nothing_left(machine, &run);
        for denial in run.denials.iter().filter(|denial| denial.mechanism == Mechanism::Proxy) {
            let (Some(host), Some(port)) = (&denial.object.host, denial.object.port) else { continue };
            match denial.reason.as_str() {
                "denied_address" => {
                    let prefix = |address: &std::net::IpAddr| if address.is_ipv4() { 32 } else { 128 };
                    let ranges = denial.object.addrs.iter().map(|address| format!("{address}/{}", prefix(address)));
                    admitted.ranges.extend(ranges);
                }
                _ => {
                    admitted.hosts.insert(format!("{host}:{port}"));
                }
            }
        }
        // What is refused to it on files, a cache beside a module say, is none of the registry's.
        if run.denials.iter().any(|denial| denial.axis == Axis::Network) {
            continue;
        }
        if run.said.code == Some(0) {
            return run.said.out;
        }
        let free = output(machine, "bash", vec!["-c".to_owned(), script.to_owned()]);
        assert_eq!(free.code, Some(0), "the registry can't be reached without ringfence either: {free}");
        panic!("it works without ringfence only: {} {:?}\nwithout: {free}", run.said, run.failures);
    }
    panic!("it was still refused after {ROUNDS} rounds: {admitted:?}");
}

/// The machine's own network has no table and no process of the run any more.
fn assert_nothing_left(machine: &Machine, run: &Run) {
    let tables = output(machine, "nft", vec!["list".to_owned(), "tables".to_owned()]);
    assert!(tables.code == Some(0) && !tables.out.contains(&run.run), "{tables}");
    let left = std::fs::read_dir("/proc").expect("/proc").flatten().filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(run.run.len()).any(|window| window == run.run.as_bytes())
    });
    assert_eq!(left.count(), 0, "processes of {}", run.run);
}

/// The value of a client's own setting, as it is for the caller.
fn setting(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty() && text != "undefined").then_some(text)
}

#[test]
fn pip_downloads_a_package() {
    let machine = machine();
    let index = setting("pip", &["config", "get", "global.index-url"]);
    let index = index.map(|url| format!("--index-url '{url}'")).unwrap_or_default();
    // A wheel that lies on the machine would be found without the registry.
    let script = format!(
        "export PIP_FIND_LINKS=; cd /workspace && /usr/bin/python3 -m pip download -q --no-deps --no-cache-dir \
         --retries 0 {index} six && ls /workspace"
    );
    let said = reaches_its_registry(&machine, &[], &script);
    assert!(said.contains("six-") && said.contains(".whl"), "{said}");
}

#[test]
fn npm_views_and_packs_a_package() {
    let machine = machine();
    let registry = setting("npm", &["config", "get", "registry"]).expect("npm has a registry");
    let script = format!(
        "export npm_config_registry='{registry}' npm_config_fetch_retries=0; cd /workspace && \
         npm view is-number name && npm pack --silent is-number && ls /workspace"
    );
    let said = reaches_its_registry(&machine, &[], &script);
    assert!(said.starts_with("is-number\n") && said.contains(".tgz"), "{said}");
}

#[test]
fn cargo_fetches_a_crate() {
    let machine = machine();
    let cargo = setting("rustup", &["which", "cargo"]).or_else(|| setting("which", &["cargo"])).expect("cargo");
    let bin = PathBuf::from(cargo).parent().expect("a directory").display().to_string();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    // The machine's own settings, where it has some, as those of the project.
    let settings = home.and_then(|home| std::fs::read(home.join("config.toml")).ok());
    machine.inside().run(move || {
        for directory in ["/workspace/src", "/workspace/.cargo"] {
            std::fs::create_dir_all(directory).expect("mkdir");
        }
        let manifest =
            "[package]\nname = \"scratch\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n";
        std::fs::write("/workspace/Cargo.toml", manifest).expect("write");
        std::fs::write("/workspace/src/lib.rs", "").expect("write");
        std::fs::write("/workspace/.cargo/config.toml", settings.unwrap_or_default()).expect("write");
    });
    let script = format!(
        "export PATH='{bin}':$PATH CARGO_NET_RETRY=0; cd /workspace && cargo fetch -q && \
         grep -A1 itoa Cargo.lock && find -L $CARGO_HOME/registry/cache -name 'itoa-*.crate'"
    );
    let said = reaches_its_registry(&machine, &["--workspace", "/workspace"], &script);
    assert!(said.contains("name = \"itoa\"") && said.contains("itoa-1") && said.contains(".crate"), "{said}");
}

#[test]
fn apt_downloads_a_package() {
    let machine = machine();
    let options = "-q -o Dir::State=/workspace/state -o Dir::State::status=/var/lib/dpkg/status \
                   -o Dir::Cache=/workspace/cache -o Dir::Log=/workspace -o Debug::NoLocking=1 \
                   -o Acquire::Languages=none -o Acquire::Retries=0 -o APT::Update::Error-Mode=any";
    let script = format!(
        "mkdir -p /workspace/state/lists/partial /workspace/cache/archives/partial && cd /workspace && \
         apt-get {options} update >&2 && apt-get {options} -y --reinstall --download-only install hostname >&2 && \
         ls /workspace/cache/archives"
    );
    let said = reaches_its_registry(&machine, &[], &script);
    assert!(said.contains("hostname_") && said.contains(".deb"), "{said}");
}

#[test]
fn curl_speaks_to_a_registry() {
    let machine = machine();
    let registry = setting("npm", &["config", "get", "registry"]).expect("npm has a registry");
    let script = format!(
        "curl -sSf -o /workspace/body '{registry}' && curl -sS -o /dev/null -w '%{{http_code}}' '{registry}'is-number"
    );
    let said = reaches_its_registry(&machine, &[], &script);
    assert_eq!(said, "200", "{said}");
}

/// The agent's own installer fetches it and it starts, with nothing but what a harness's policy gives it.
#[test]
fn a_coding_agent_is_installed_and_prints_its_version() {
    let machine = machine();
    let registry = setting("npm", &["config", "get", "registry"]).expect("npm has a registry");
    // A release that is JavaScript alone: later ones bring a program of 200 MB.
    let script = format!(
        "export npm_config_registry='{registry}'; cd /workspace && npm install --silent --no-audit --no-fund \
         --omit=optional --prefix /workspace/agent @anthropic-ai/claude-code@1.0.0 && \
         /workspace/agent/node_modules/.bin/claude --version"
    );
    let said = reaches_its_registry(&machine, &["--harness", "claude-code"], &script);
    assert!(said.ends_with("1.0.0 (Claude Code)\n"), "{said}");
}
