//! Where every socket is made for its program, programs work that make their calls each in its own way: curl, asyncio, Node, a
//! JVM, Go; on loopback, by the proxy, and refused where they skip it.

mod common;
mod sockets;

use common::{Ended, Fence, RINGFENCE};
use serde_json::Value;
use sockets::{RUNGS, fence_on, run_on};
use std::path::Path;
use std::process::Command;
use world::{Said, World};

/// What each says.
const SAID: [(&str, &str); 35] = [
    ("curl-pypi.org", "200"),
    ("curl-stranger.example.net", "403"),
    ("curl-out", "7"),
    ("curl-local", "200"),
    ("asyncio-tcp", "100"),
    ("asyncio-unix", "PING"),
    ("asyncio-udp", "PING"),
    ("asyncio-child", "child"),
    ("asyncio-pypi.org", "200"),
    ("asyncio-stranger.example.net", "403"),
    ("node-tcp", "100"),
    ("node-http", "web"),
    ("node-unix", "unix"),
    ("node-worker", "worked"),
    ("node-child", "MESSAGE"),
    ("node-udp", "PING"),
    ("node-pypi.org", "200"),
    ("node-stranger.example.net", "403"),
    ("node-out", "ECONNREFUSED"),
    ("java-tcp", "50"),
    ("java-nio", "50"),
    ("java-udp", "PING"),
    ("java-pypi.org", "200"),
    ("java-stranger.example.net", "403"),
    ("java-out", "Connection refused"),
    ("go-tcp", "100"),
    ("go-unix", "PING"),
    ("go-http", "web"),
    ("go-udp", "PING"),
    ("go-interfaces", "lo"),
    ("go-pypi.org", "200"),
    ("go-stranger.example.net", "403"),
    ("go-out", "true"),
    ("git", "0"),
    ("pip", "0"),
];

const SCRIPT: &str = "export GROUND=$(mktemp -d); cd $GROUND\n\
    curl -s -o /dev/null -w 'curl-pypi.org=%{http_code}\\n' https://pypi.org/\n\
    curl -s -o /dev/null -w 'curl-stranger.example.net=%{http_connect}\\n' https://stranger.example.net/\n\
    curl -s --noproxy '*' http://11.22.33.44/; echo curl-out=$?\n\
    python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!\n\
    curl -s --retry 50 --retry-connrefused --retry-delay 0 -o /dev/null -w 'curl-local=%{http_code}\\n' http://localhost:8765/\n\
    kill $server\n\
    python3 /usr/local/lib/loop.py\n\
    node /usr/local/lib/loop.mjs\n\
    java -cp /usr/local/lib/java Loop\n\
    loop-go\n\
    git init -q . && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m x; echo git=$?\n\
    python3 -m pip --version >/dev/null; echo pip=$?\n";

fn prepare(world: &World) {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let built = tempfile::tempdir().expect("a directory");
    let run = |command: &mut Command| assert!(command.status().expect("a compiler").success(), "{command:?}");
    run(Command::new("javac").arg("-d").arg(built.path()).arg(programs.join("Loop.java")));
    let binary = built.path().join("loop-go");
    // Its cache of compiled packages is the suite's own.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    run(Command::new("go")
        .env("GOCACHE", &cache)
        .env("CGO_ENABLED", "0")
        .args(["build", "-o"])
        .args([&binary, &programs.join("loop.go")]));
    world.install(&binary, "/usr/local/bin/loop-go");
    world.install(&built.path().join("Loop.class"), "/usr/local/lib/java/Loop.class");
    for script in ["loop.py", "loop.mjs"] {
        world.install(&programs.join(script), &format!("/usr/local/lib/{script}"));
    }
}

fn assert_said(rung: &str, ended: &Ended) {
    for (name, wanted) in SAID {
        assert_eq!(ended.value(name), wanted, "{rung} {name}: {ended}");
    }
}

/// The executables that the report tells to have ignored the proxy.
fn named_by_the_report(fence: &Fence, ended: &Ended) -> Vec<String> {
    let mut command = fence.world.command(RINGFENCE);
    command.args(["report", "--json", &ended.ledger]);
    let said = Said::from(fence.world.output(command));
    let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|cause| panic!("{cause}: {said}"));
    let name = |tool: &Value| Some(tool["exe"].as_str()?.rsplit('/').next()?.to_owned());
    let mut names: Vec<String> = report["tools"].as_array().expect("tools").iter().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn programs_of_every_kind_work() {
    for rung in RUNGS {
        let fence = fence_on(rung);
        prepare(&fence.world);
        let ended = run_on(&fence, rung, &[], SCRIPT);
        assert_said(rung, &ended);
        for (client, program) in
            [("curl", "curl"), ("python", "python3"), ("node", "node"), ("java", "java"), ("go", "loop-go")]
        {
            let by = |host: Option<&str>| {
                ended.denials().into_iter().any(|denial| {
                    let exe = denial.subject.exe.as_deref().unwrap_or("");
                    exe.rsplit('/').next().is_some_and(|name| name.starts_with(program))
                        && denial.object.host.as_deref() == host
                })
            };
            assert!(by(Some("stranger.example.net")), "{rung}: {client} is told to have asked: {ended}");
        }
        let direct = ended.denials().into_iter().filter(|denial| denial.operation == "tcp").count();
        assert_eq!(direct, 4, "curl, Node, Java and Go by themselves: {ended}");
        assert_eq!(named_by_the_report(&fence, &ended), ["curl", "java", "loop-go", "node"], "{rung}: {ended}");
        assert!(ended.seal().complete, "{ended}");
    }
}
