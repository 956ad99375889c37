//! ringfence inside a real container engine: each cell is either wholly protected, as the probes, the command and the world
//! outside say, or refused in one line that names the cause, and then the command has not started.

mod attempts;
mod common;
mod engine;

use common::{Ended, RINGFENCE};
use engine::images::{PROTECTED, SESSION, Tree};
use engine::{BRIDGE, Engine, SINK_PORT};
use ringfence::ledger::record::{Body, Outcome};
use std::collections::BTreeMap;
use world::Said;
use world::address::{METADATA4, PRIVATE4, PUBLIC4, RESOLVER4};
use world::internet::{STRANGER, everywhere};

/// What makes a container as Docker's documents harden it.
const HARDENED: [&str; 6] = ["--user", "1000", "--cap-drop", "all", "--security-opt", "no-new-privileges"];
/// What makes the rung `full`.
const ADDED: [&str; 6] = ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "apparmor=unconfined"];

fn start() -> Engine {
    Engine::start().unwrap_or_else(|cause| panic!("no container engine: {cause}"))
}

/// One way of running a container, and what ringfence is told there.
struct Cell<'a> {
    engine: &'a Engine,
    tree: Tree,
    /// The container's name, and what else names things of this cell.
    name: &'a str,
    docker: &'a [&'a str],
    flags: &'a [&'a str],
}

impl Cell<'_> {
    /// `docker run` with this cell's flags and two volumes: one for the ledger, one as the command's workspace.
    fn arguments(&self, detached: bool, command: &[&str]) -> Vec<String> {
        let volume = |what: &str| self.engine.volume(&format!("{}-{what}", self.name));
        let volumes = [format!("{}:/ledger", volume("ledger")), format!("{}:/app", volume("app"))];
        let mut arguments = vec!["run".into(), "--name".into(), self.name.into()];
        arguments.extend(detached.then(|| "--detach".into()));
        arguments.extend(volumes.into_iter().flat_map(|volume| ["--volume".into(), volume]));
        arguments.extend(self.docker.iter().map(|flag| (*flag).to_owned()));
        arguments.push(self.tree.name().into());
        arguments.extend(command.iter().map(|word| (*word).to_owned()));
        arguments
    }

    fn docker(&self, command: &[&str]) -> Said {
        let arguments = self.arguments(false, command);
        self.engine.docker(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The command line that puts `command` under ringfence.
    fn fenced<'b>(&'b self, command: &[&'b str]) -> Vec<&'b str> {
        [&[RINGFENCE, "run", "--ledger", "/ledger/run.jsonl"], self.flags, &["--"], command].concat()
    }

    /// Runs a command under ringfence as the container's first process.
    fn run(&self, command: &[&str]) -> Ended {
        let said = self.docker(&self.fenced(command));
        self.ended(said)
    }

    /// The record that the run has left in its volume.
    fn ended(&self, said: Said) -> Ended {
        self.engine.fence.ended(said, self.outside("ledger", "run.jsonl"))
    }

    /// The path of a file of a volume of this cell's, outside of the container.
    fn outside(&self, volume: &str, file: &str) -> String {
        format!("/run/engine/volumes/{}-{volume}/{file}", self.name)
    }

    /// Whether the command has made its mark.
    fn marked(&self) -> bool {
        self.engine.fence.world.read(&self.outside("app", "started")).is_some()
    }

    /// Every act of the session under this cell's conditions: refused, on record, and without trace outside; and what
    /// is allowed works.
    fn protects(&self, rung: &str) -> Ended {
        let before = Reached::of(self.engine);
        let ended = self.run(&session());
        assert_eq!(ended.said.code, Some(0), "{}: {ended}", self.name);
        self.is_protected(rung, &ended, &before);
        ended
    }

    fn is_protected(&self, rung: &str, ended: &Ended, before: &Reached) {
        let name = self.name;
        assert!(self.marked(), "{name}: {ended}");
        assert_eq!(ended.start().rung, rung, "{name}: {ended}");
        assert_all_probes_passed(name, ended);
        assert_outcomes(name, ended);
        assert!(ended.seal().complete, "{name}: {ended}");
        let verified = self.engine.fence.verify(&ended.ledger);
        assert_eq!(verified.code, Some(0), "{name}: {verified}");
        // What the command was refused is on record.
        let refused = |wanted: &str| ended.denials().iter().any(|denial| denial.object.host.as_deref() == Some(wanted));
        assert!(refused(STRANGER), "{name}: {ended}");
        let written = ended.denials().iter().any(|denial| denial.object.path.as_deref() == Some(PROTECTED));
        assert!(written, "{name}: {ended}");
        // The world outside has seen the one request that is admitted, and the image is as it was.
        let after = Reached::of(self.engine);
        assert_eq!((after.origin, after.others), (before.origin + 1, before.others), "{name}: {ended}");
        let changes = self.changes();
        let within = |place: &str| changes.iter().any(|change| change.contains(place));
        assert!(!within("/usr/local/share/protected/"), "{name}: {changes:?}");
        assert!(!within("/etc/passwd") && !within("/usr/new"), "{name}: {changes:?}");
    }

    /// A refusal in one line that names the cause; nothing was started.
    fn refuses(&self, named: &str) -> Ended {
        let before = Reached::of(self.engine);
        let ended = self.run(&session());
        assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{}: {ended}", self.name);
        assert_eq!(ended.said.err.lines().count(), 1, "{}: {ended}", self.name);
        assert!(ended.said.err.contains(named), "{}: {ended}", self.name);
        assert!(!self.marked(), "{}: {ended}", self.name);
        assert_eq!(Reached::of(self.engine), before, "{}: {ended}", self.name);
        ended
    }

    /// What the container's writable layer holds, as the engine tells it: `A /path`, `C /path`, `D /path`.
    fn changes(&self) -> Vec<String> {
        self.engine.done(&["diff", self.name]).lines().map(str::to_owned).collect()
    }
}

/// What has reached whom.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Reached {
    /// Requests for the admitted name.
    origin: usize,
    /// Everything else that has left a container or has come to a listener.
    others: usize,
}

impl Reached {
    fn of(engine: &Engine) -> Reached {
        let fence = &engine.fence;
        let internet = &fence.internet;
        // The packets of the proxy are those to the resolver and to the origin of the admitted name.
        let admitted = |packet: &world::Packet| {
            (packet.destination == PUBLIC4 && packet.destination_port == Some(80))
                || (packet.destination == RESOLVER4 && packet.destination_port == Some(53))
        };
        let packets = fence.world.packets().into_iter().filter(|packet| !admitted(packet)).count();
        let asked = internet.resolver.questions_about("secret.stolen.test").len();
        let stranger = internet.stranger.requests().len() + internet.resolver.questions_about(STRANGER).len();
        Reached {
            origin: internet.http.requests().len(),
            others: packets + asked + stranger + engine.bridge.arrivals().len(),
        }
    }
}

/// What the session's program is asked to do: the whole of it.
fn session() -> Vec<&'static str> {
    static ACTS: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        let port = SINK_PORT.to_string();
        let mut acts: Vec<String> =
            [SESSION, "mark", "/app/started", "who", "fetch", "pypi.org", "fetch", STRANGER].map(str::to_owned).into();
        for address in [PUBLIC4, PRIVATE4, METADATA4, BRIDGE] {
            for transport in ["tcp", "udp"] {
                acts.extend([transport.to_owned(), address.to_string(), port.clone()]);
            }
        }
        acts.extend(["name".to_owned(), RESOLVER4.to_string()]);
        let rest = [
            "families",
            "loopback",
            "change",
            "/usr/local/share/protected",
            "create",
            "/usr/new",
            "create",
            "/tmp/new",
        ];
        acts.extend(rest.map(str::to_owned));
        acts.extend(["create", "/app/new", "privilege"].map(str::to_owned));
        acts
    });
    ACTS.iter().map(String::as_str).collect()
}

/// The lines `WHAT OUTCOME`.
fn outcomes(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.rsplit_once(' ')).collect()
}

fn assert_outcomes(name: &str, ended: &Ended) {
    let seen = outcomes(&ended.said.out);
    let of = |what: &str| *seen.get(what).unwrap_or_else(|| panic!("{name}: no {what}: {ended}"));
    for (what, expected) in [
        ("mark", "ok"),
        ("fetch pypi.org", "200"),
        ("fetch stranger.example.org", "403"),
        ("loopback tcp", "ok"),
        ("loopback udp", "ok"),
        ("create /tmp/new", "ok"),
        ("create /app/new", "ok"),
        ("create /usr/new", "EROFS"),
        ("change open", "EROFS"),
        ("change truncate", "EROFS"),
        ("change chmod", "EROFS"),
        ("change utime", "EROFS"),
        ("change create", "EROFS"),
        ("change mkdir", "EROFS"),
        ("change symlink", "EROFS"),
        ("change link", "EROFS"),
        ("change rename", "EROFS"),
        ("change unlink", "EROFS"),
        ("privilege setuid", "EPERM"),
        ("privilege userns", "EPERM"),
        ("privilege mount", "EPERM"),
        ("privilege kill-1", "EPERM"),
        ("family io_uring", "ENOSYS"),
    ] {
        assert_eq!(of(what), expected, "{name}: {what}: {ended}");
    }
    for address in [PUBLIC4, PRIVATE4, METADATA4, BRIDGE] {
        assert_eq!(of(&format!("tcp {address}")), "ECONNREFUSED", "{name}: {ended}");
        assert_eq!(of(&format!("udp {address}")), "EPERM", "{name}: {ended}");
    }
    assert_eq!(of(&format!("name-tcp {RESOLVER4}")), "ECONNREFUSED", "{name}: {ended}");
    assert_eq!(of(&format!("name-udp {RESOLVER4}")), "EPERM", "{name}: {ended}");
    // Nothing of what is named here may go well, by whatever errno.
    for (what, outcome) in &seen {
        let must_fail =
            ["tcp", "udp", "name-", "family ", "change ", "privilege "].iter().any(|kind| what.starts_with(kind));
        assert!(!must_fail || *outcome != "ok", "{name}: {what}: {ended}");
    }
    let who = ended.said.out.lines().find(|line| line.starts_with("who ")).unwrap_or_default();
    assert!(who.contains("groups=0 CapEff=0000000000000000 CapBnd=0000000000000000 NoNewPrivs=1"), "{name}: {who}");
    assert!(!who.contains(" uid=0 "), "{name}: {who}");
}

fn assert_all_probes_passed(name: &str, ended: &Ended) {
    let probes: Vec<bool> = ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Probe(probe) => Some(probe.passed),
            _ => None,
        })
        .collect();
    assert!(probes.len() > 30 && probes.iter().all(|passed| *passed), "{name}: {ended}");
}

/// Without ringfence every attack of the session arrives in the same container, or fails by the container's own doing.
#[test]
fn the_attacks_are_live() {
    let engine = start();
    engine.import(Tree::Scratch);
    let (connections, datagrams) = everywhere(&engine.fence.world, SINK_PORT).expect("sinks");
    let cell = Cell { engine: &engine, tree: Tree::Scratch, name: "live", docker: &[], flags: &[] };
    let said = cell.docker(&session());
    let seen = outcomes(&said.out);
    for what in ["create /usr/new", "change open", "change chmod", "change unlink", "loopback tcp", "privilege setuid"]
    {
        // What was renamed is no longer there to be removed.
        let expected = if what == "change unlink" { "ENOENT" } else { "ok" };
        assert_eq!(seen.get(what), Some(&expected), "{what}: {said}");
    }
    for address in [PUBLIC4, PRIVATE4, METADATA4, BRIDGE] {
        for act in ["tcp", "udp", "udp-connected", "udp-pktinfo"] {
            assert_eq!(seen.get(format!("{act} {address}").as_str()), Some(&"ok"), "{said}");
        }
    }
    assert_eq!(seen.get(format!("name-udp {RESOLVER4}").as_str()), Some(&"ok"), "{said}");
    assert_eq!(engine.fence.internet.resolver.questions_about("secret.stolen.test").len(), 1, "{said}");
    assert!(connections.wait_for(3).len() >= 3 && datagrams.wait_for(9).len() >= 9, "{said}");
    assert!(!engine.bridge.wait_for(1).is_empty(), "{said}");
    assert!(cell.marked() && Reached::of(&engine).others > 12, "{said}");
    let changes = cell.changes();
    assert!(changes.iter().any(|change| change.starts_with("A /usr/local/share/protected/moved")), "{changes:?}");
}

#[test]
fn with_added_privilege_the_rung_is_full() {
    let engine = start();
    for tree in Tree::ALL {
        engine.import(tree);
        let cell = Cell { engine: &engine, tree, name: &format!("full-{}", tree.name()), docker: &ADDED, flags: &[] };
        let ended = cell.protects("full");
        assert_eq!(ended.seal().outcome, Outcome::Exited, "{ended}");
    }
}
