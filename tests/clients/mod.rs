//! Real clients of the network, a row for each, and a world in which they are at home: their registries, a WebSocket
//! server, their libraries and their programs.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod registries;

use super::common::Fence;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use world::{AUTHORITY_FILE, Internet, World};

/// A name that the policy must be told to admit, with a WebSocket server behind it.
pub const ECHO: &str = "echo.example.org";
/// Where that server is.
pub const ECHO4: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 46);

/// A client, as a function of the shell whose arguments are the host that it is to ask and the client's own name.
pub struct Client {
    pub name: &'static str,
    /// How the name of the executable that connects begins.
    pub program: &'static str,
    /// What it does.
    body: &'static str,
    /// The host that has what it asks for.
    pub host: &'static str,
    pub port: u16,
    /// What stands in its own words when the proxy refuses.
    pub refusal: &'static str,
    /// How often it tries before it says so; none where that is its own affair from version to version.
    pub tries: Option<u64>,
}

const fn client(
    [name, program, host]: [&'static str; 3],
    port: u16,
    refusal: &'static str,
    body: &'static str,
) -> Client {
    Client { name, program, body, host, port, refusal, tries: Some(1) }
}

impl Client {
    /// What it asks an HTTP origin for, where that tells it from the others.
    pub fn target(&self) -> Option<String> {
        self.body.ends_with("/?$2").then(|| format!("/?{}", self.name))
    }

    /// What the record calls its request.
    pub fn operation(&self) -> &'static str {
        match self.name {
            "curl-http" | "apt" => "GET",
            name if name.starts_with("curl-socks") => "SOCKS5",
            _ => "CONNECT",
        }
    }
}

/// The table. curl's `(2)` is the reply of a SOCKS server whose rules do not allow the connection (RFC 1928, 6).
pub const CLIENTS: [Client; 15] = [
    client(["curl-http", "curl", "pypi.org"], 80, "403", "curl -sS -f -o /dev/null http://$1/?$2"),
    client(["curl-socks-http", "curl", "pypi.org"], 80, "(2)", "by_socks curl -sS -f -o /dev/null http://$1/?$2"),
    client(["curl-socks-https", "curl", "pypi.org"], 443, "(2)", "by_socks curl -sS -f -o /dev/null https://$1/?$2"),
    client(["go", "web-go", "pypi.org"], 443, "Forbidden", "web-go https://$1/?$2"),
    client(["requests", "python3", "pypi.org"], 443, "403 Forbidden", "py $LIB/web.py requests https://$1/?$2"),
    client(["aiohttp", "python3", "pypi.org"], 443, "403", "py $LIB/web.py aiohttp https://$1/?$2"),
    client(["websockets-ws", "python3", ECHO], 80, "HTTP 403", "py $LIB/web.py websockets ws://$1/"),
    client(["websockets-wss", "python3", ECHO], 443, "HTTP 403", "py $LIB/web.py websockets wss://$1/"),
    client(["websocket-client-ws", "python3", ECHO], 80, "403", "py $LIB/web.py websocket-client ws://$1/"),
    client(["websocket-client-wss", "python3", ECHO], 443, "403", "py $LIB/web.py websocket-client wss://$1/"),
    client(["node-https", "node", "pypi.org"], 443, "403", "node $LIB/web.mjs https://$1/?$2"),
    Client {
        // Why it could not connect it only says before it tries again.
        tries: Some(2),
        ..client(
            ["pip", "python3", "pypi.org"],
            443,
            "403 Forbidden",
            "/usr/bin/python3 -m pip download --retries 1 --no-deps --no-cache-dir -d . \
               --index-url https://$1/simple closed-world",
        )
    },
    Client {
        // It asks for what describes the package more than once.
        tries: None,
        ..client(
            ["npm", "node", "registry.npmjs.org"],
            443,
            "403 Forbidden",
            "npm install --no-audit --no-fund --fetch-retries=0 --cache=$PWD/cache --registry=https://$1/ closed-world",
        )
    },
    client(
        ["cargo", "cargo", "index.crates.io"],
        443,
        "403",
        "mkdir -p src; touch src/lib.rs
         printf '[package]\\nname = \"mine\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' >Cargo.toml
         printf '[dependencies]\\nclosed-world = { version = \"1\", registry = \"closed\" }\\n' >>Cargo.toml
         CARGO_REGISTRIES_CLOSED_INDEX=sparse+https://$1/ CARGO_HOME=$PWD/home CARGO_NET_RETRY=0 cargo fetch",
    ),
    Client {
        // It asks for each list that an archive may have, the last in each compression.
        tries: None,
        ..client(
            ["apt", "http", "archive.ubuntu.com"],
            80,
            "403  Forbidden",
            // A lookup of a service's name, which it makes of itself, is not what is counted here.
            "mkdir -p lists/partial archives/partial
             echo \"deb [trusted=yes] http://$1/debian ./\" >sources.list; touch status
             apt() { apt-get -q -o Dir::State=$PWD -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD \
               -o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=- -o Debug::NoLocking=1 \
               -o Acquire::Languages=none -o Acquire::Retries=0 -o Acquire::EnableSrvRecords=false \
               -o APT::Update::Error-Mode=any \"$@\"; }
             apt update && apt download closed-world && ls closed-world_1.0_all.deb",
        )
    },
];

/// What every script begins with: the clients as functions, and `timed NAME HOST`, which says NAME=STATUS
/// MILLISECONDS, then NAME: before each line of what the client said.
pub fn prelude() -> String {
    let functions: String = CLIENTS
        .iter()
        .map(|client| format!("run_{}() {{ {}\n}}\n", client.name.replace('-', "_"), client.body))
        .collect();
    format!(
        "export LIB=/usr/local/lib/clients PATH=/usr/local/lib/clients/toolchain:$PATH PIP_CONFIG_FILE=/dev/null
         export PIP_DISABLE_PIP_VERSION_CHECK=1 NPM_CONFIG_GLOBALCONFIG=/dev/null NODE_EXTRA_CA_CERTS={AUTHORITY_FILE}
         export PYTHONDONTWRITEBYTECODE=1
         for name in REQUESTS_CA_BUNDLE PIP_CERT CARGO_HTTP_CAINFO WEBSOCKET_CLIENT_CA_BUNDLE; do
           export $name=/etc/ssl/certs/ca-certificates.crt
         done
         # The proxy's own address, where the variables say it.
         by_socks() {{ \"$@\" ${{ALL_PROXY:+-x socks5h://${{ALL_PROXY#http://}}}}; }}
         py() {{ PYTHONPATH=$LIB/python /usr/bin/python3 \"$@\"; }}
         {functions}
         timed() {{
           where=$(mktemp -d); begin=$(date +%s%N)
           (cd $where && run_${{1//-/_}} $2 $1) >$where.out 2>&1 </dev/null; status=$?
           echo \"$1=$status $(( ($(date +%s%N) - begin) / 1000000 ))\"; sed \"s/^/$1: /\" $where.out
           rm -rf $where $where.out
         }}\n"
    )
}

/// The servers' process, which ends with the value.
struct Echo {
    child: Child,
    _files: tempfile::TempDir,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }
}

/// A world with all that the clients need.
pub struct Clients {
    echo: Option<Echo>,
    pub fence: Fence,
}

impl Clients {
    pub fn new() -> Clients {
        let world = World::new().expect("a closed world");
        let internet = Internet::serving(&world, registries::content()).expect("servers outside");
        let fence = Fence::of(world, internet);
        install(&fence);
        let echo = Some(serve(&fence));
        Clients { echo, fence }
    }

    /// Ends the WebSocket server; the connections that came to it, each as its port and the host that was asked for.
    pub fn echoed(&mut self) -> Vec<String> {
        let mut echo = self.echo.take().expect("the server is ended once");
        let mut output = echo.child.stdout.take().expect("its output");
        drop(echo);
        let mut said = String::new();
        output.read_to_string(&mut said).expect("lines");
        said.lines().map(str::to_owned).collect()
    }
}

fn serve(fence: &Fence) -> Echo {
    fence.world.assign(IpAddr::V4(ECHO4)).expect("an address");
    fence.internet.resolver.host(ECHO, &[ECHO4.into()]);
    let files = tempfile::tempdir().expect("a directory");
    let (certificate, key) = fence.internet.authority.pem_pair(&[ECHO]).expect("a certificate");
    for (name, text) in [("certificate", certificate), ("key", key)] {
        std::fs::write(files.path().join(name), text).expect("write");
    }
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(programs().join("echo.py"))
        .arg(ECHO4.to_string())
        .args(["certificate", "key"].map(|name| files.path().join(name)))
        .env("PYTHONPATH", libraries())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = fence.world.outside().run(move || command.spawn()).expect("the server starts");
    // Byte by byte: what comes after belongs to whoever reads next.
    let mut said = Vec::new();
    let output = child.stdout.as_mut().expect("its output");
    while !said.ends_with(b"\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("the server says that it is ready");
        said.push(byte[0]);
    }
    assert_eq!(said, b"ready\n");
    Echo { child, _files: files }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The Python packages of the table's clients.
fn libraries() -> PathBuf {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python-clients");
    assert!(libraries.join("websockets").is_dir(), "{libraries:?} is missing (.ci/deps test installs it)");
    libraries
}

fn install(fence: &Fence) {
    let built = tempfile::tempdir().expect("a directory");
    let binary = built.path().join("web-go");
    let status = Command::new("go")
        // Its cache of compiled packages is the suite's own.
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOPROXY", "off")])
        .args(["build", "-o"])
        .args([&binary, &programs().join("web.go")])
        .status();
    assert!(status.expect("go").success());
    fence.world.install(&binary, "/usr/local/bin/web-go");
    for script in ["web.py", "web.mjs"] {
        fence.world.install(&programs().join(script), &format!("/usr/local/lib/clients/{script}"));
    }
    // The machine's user may have the toolchain in a home that others can't search; the box's root is thrown away.
    let home = std::env::var("HOME").expect("HOME");
    let said = fence.as_root(&format!(
        "set -e; cd /usr/local/lib/clients; cp -r {} python; chmod -R a+rX .; ln -s {} toolchain; chmod 711 {home}",
        libraries().display(),
        toolchain().display()
    ));
    assert_eq!(said.code, Some(0), "{said}");
}

/// Where Cargo itself is, and not rustup's proxy of that name, which would look for its settings in the user's home.
fn toolchain() -> PathBuf {
    let which = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    let cargo = which("rustup", &["which", "cargo"]).or_else(|| which("which", &["cargo"])).expect("cargo");
    cargo.parent().expect("a directory").to_owned()
}
