//! One way of running a container and ringfence in it, and what has to hold of it: the whole protection, or a refusal.

use super::images::{PROTECTED, SESSION, Tree};
use super::{BRIDGE, Engine, SINK_PORT, VOLUMES};
use crate::common::{Ended, Fence, RINGFENCE};
use ringfence::ledger::record::Body;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use world::address::{METADATA4, PRIVATE4, PUBLIC4, PUBLIC6, RESOLVER4};
use world::internet::STRANGER;
use world::{Packet, Said, Sink};

/// The addresses that the session tries by itself, whatever the proxy says.
pub const TRIED: [Ipv4Addr; 4] = [PUBLIC4, PRIVATE4, METADATA4, BRIDGE];
/// The name that the session asks a resolver for by itself.
pub const STOLEN: &str = "secret.stolen.test";

/// One way of running a container, and what ringfence is told there.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    pub engine: &'a Engine,
    pub tree: Tree,
    /// The container's name, and what else names things of this cell.
    pub name: &'a str,
    /// Flags of `docker run`.
    pub docker: &'a [&'a str],
    /// Flags of `ringfence run`.
    pub flags: &'a [&'a str],
}

impl Cell<'_> {
    /// `docker run` with this cell's flags and two volumes: /ledger for the record, /app as the command's workspace.
    pub fn arguments(&self, more: &[&str], command: &[&str]) -> Vec<String> {
        let volume = |what: &str| format!("{}:/{what}", self.engine.volume(&format!("{}-{what}", self.name)));
        let (ledger, app) = (volume("ledger"), volume("app"));
        let fixed = ["run", "--name", self.name, "--volume", &ledger, "--volume", &app];
        [&fixed[..], more, self.docker, &[self.tree.name()], command].concat().into_iter().map(str::to_owned).collect()
    }

    /// Runs the command in a new container, without ringfence unless it says so itself.
    pub fn docker(&self, more: &[&str], command: &[&str]) -> Said {
        let arguments = self.arguments(more, command);
        self.engine.docker(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The command line that puts `command` under ringfence.
    pub fn fenced<'b>(&'b self, command: &[&'b str]) -> Vec<&'b str> {
        [&[RINGFENCE, "run", "--ledger", "/ledger/run.jsonl"], self.flags, &["--"], command].concat()
    }

    /// Runs a command under ringfence as the container's first process.
    pub fn run(&self, command: &[&str]) -> Ended {
        self.ended(self.docker(&[], &self.fenced(command)))
    }

    /// The record that the run has left in its volume.
    pub fn ended(&self, said: Said) -> Ended {
        self.engine.fence.ended(said, self.outside("ledger", "run.jsonl"))
    }

    /// The path of a file of a volume of this cell's, outside of the container.
    pub fn outside(&self, volume: &str, file: &str) -> String {
        format!("{VOLUMES}/{}-{volume}/{file}", self.name)
    }

    /// Whether the command has made its mark.
    pub fn marked(&self) -> bool {
        self.engine.fence.world.read(&self.outside("app", "started")).is_some()
    }

    /// The whole session as the container's first process: refused, on record and without trace outside; and what is
    /// allowed works.
    pub fn protects(&self, rung: &str) -> Ended {
        let before = self.engine.reached();
        let ended = self.run(&session());
        self.is_protected(rung, &ended, before);
        ended
    }

    /// The same of a run that was started in another way.
    pub fn is_protected(&self, rung: &str, ended: &Ended, before: Reached) {
        let (name, shown) = (self.name, Brief(ended));
        assert_protected(name, rung, ended, &self.engine.fence);
        assert!(self.marked(), "{name}: {shown}");
        // What an image's own read-only mount refuses is no denial.
        let by_the_engine = self.docker.contains(&"--read-only");
        let written = ended.denials().iter().filter(|one| one.object.path.as_deref() == Some(PROTECTED)).count();
        assert_eq!(written == 0, by_the_engine, "{name}: {shown}");
        // The world outside has seen the one request that is admitted, and the image is as it was.
        let after = self.engine.reached();
        assert_eq!((after.origin, after.others), (before.origin + 1, before.others), "{name}: {shown}");
        self.is_unchanged();
    }

    /// A refusal in one line that names the cause; nothing was started, and nothing has been changed or reached.
    pub fn refuses(&self, named: &str) -> Ended {
        let before = self.engine.reached();
        let ended = self.run(&session());
        let (name, shown) = (self.name, Brief(&ended));
        assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{name}: {shown}");
        assert_eq!(ended.said.err.lines().count(), 1, "{name}: {shown}");
        assert!(ended.said.err.contains(named), "{name}: {shown}");
        assert!(!self.marked(), "{name}: {shown}");
        assert_eq!(self.engine.reached(), before, "{name}: {shown}");
        self.is_unchanged();
        ended
    }

    /// The image's protected files are as they were, by the engine's own comparison.
    fn is_unchanged(&self) {
        let changes = self.changes();
        let places = ["/usr/local/share/protected/", "/etc/passwd", "/etc/group", "/usr/new"];
        let changed = changes.iter().filter(|change| places.iter().any(|place| change.contains(place)));
        assert_eq!(changed.count(), 0, "{}: {changes:?}", self.name);
    }

    /// What the container's writable layer holds, as the engine tells it: `A /path`, `C /path`, `D /path`.
    pub fn changes(&self) -> Vec<String> {
        self.engine.done(&["diff", self.name]).lines().map(str::to_owned).collect()
    }
}

/// What the run itself has to show: every probe passed, every act answered as it has to be, every refusal on record.
pub fn assert_protected(name: &str, rung: &str, ended: &Ended, fence: &Fence) {
    let shown = Brief(ended);
    assert_eq!(ended.said.code, Some(0), "{name}: {shown}");
    assert_eq!(ended.start().rung, rung, "{name}: {shown}");
    assert_all_probes_passed(name, ended);
    assert_outcomes(name, ended);
    assert!(ended.seal().complete, "{name}: {shown}");
    let verified = fence.verify(&ended.ledger);
    assert_eq!(verified.code, Some(0), "{name}: {verified}");
    let denials = ended.denials();
    assert!(denials.iter().any(|one| one.object.host.as_deref() == Some(STRANGER)), "{name}: {shown}");
    for address in TRIED {
        let addressed = denials.iter().any(|one| one.object.addrs.contains(&address.into()));
        assert!(addressed, "{name}: {address}: {shown}");
    }
}

/// What has reached whom.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Reached {
    /// Requests for the admitted name.
    pub origin: usize,
    /// Everything else that has left a container or has come to a listener.
    pub others: usize,
}

impl Reached {
    /// What it is by now.
    pub fn of(fence: &Fence, bridge: Option<&Sink>) -> Reached {
        let internet = &fence.internet;
        // The packets of the proxy are those to the resolver and to the origin of the admitted name.
        let admitted = |packet: &Packet| {
            let to = |address: IpAddr, port| packet.destination == address && packet.destination_port == Some(port);
            to(PUBLIC4.into(), 80) || to(PUBLIC6.into(), 80) || to(RESOLVER4.into(), 53)
        };
        let packets = fence.world.packets().into_iter().filter(|packet| !admitted(packet)).count();
        let asked = |name| internet.resolver.questions_about(name).len();
        let stranger = internet.stranger.requests().len() + asked(STRANGER);
        Reached {
            origin: internet.http.requests().len() + internet.http6.requests().len(),
            others: packets + asked(STOLEN) + stranger + bridge.map_or(0, |sink| sink.arrivals().len()),
        }
    }
}

/// The session's program with everything that it can try.
pub fn session() -> Vec<&'static str> {
    static ACTS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let fixed = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut acts = fixed(&[SESSION, "mark", "/app/started", "who", "fetch", "pypi.org", "fetch", STRANGER]);
        for address in TRIED {
            for transport in ["tcp", "udp"] {
                acts.extend([transport.to_owned(), address.to_string(), SINK_PORT.to_string()]);
            }
        }
        acts.extend(["echo".to_owned(), PUBLIC4.to_string(), "name".to_owned(), RESOLVER4.to_string()]);
        acts.extend(fixed(&["families", "loopback", "change", "/usr/local/share/protected", "create", "/usr/new"]));
        acts.extend(fixed(&["create", "/tmp/new", "create", "/app/new", "seize", "/ledger/run.jsonl", "privilege"]));
        acts
    });
    ACTS.iter().map(String::as_str).collect()
}

/// The lines `WHAT OUTCOME` of a session.
pub fn outcomes(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.rsplit_once(' ')).collect()
}

/// What each act of the session comes to under `nist-high`, on every rung.
const OUTCOMES: [(&str, &str); 24] = [
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
    ("name-tcp 11.22.33.53", "ECONNREFUSED"),
];
/// What no act of these may come to, whatever the errno.
const NEVER_OK: [&str; 8] = ["tcp", "udp", "echo ", "name-", "family ", "change ", "seize ", "privilege "];

fn assert_outcomes(name: &str, ended: &Ended) {
    let (seen, shown) = (outcomes(&ended.said.out), Brief(ended));
    let assert_is = |what: &str, expected: &str| assert_eq!(seen.get(what), Some(&expected), "{name}: {what}: {shown}");
    OUTCOMES.iter().for_each(|(what, expected)| assert_is(what, expected));
    for address in TRIED {
        assert_is(&format!("tcp {address}"), "ECONNREFUSED");
        assert_is(&format!("udp {address}"), "EPERM");
    }
    assert_is(&format!("name-udp {RESOLVER4}"), "EPERM");
    for (what, outcome) in &seen {
        let must_fail = NEVER_OK.iter().any(|kind| what.starts_with(kind));
        assert!(!must_fail || *outcome != "ok", "{name}: {what}: {shown}");
    }
    let who = ended.said.out.lines().find(|line| line.starts_with("who ")).unwrap_or_default();
    assert!(who.contains(" CapEff=0000000000000000 ") && who.contains(" NoNewPrivs=1"), "{name}: {who}");
    assert!(!who.contains(" uid=0 "), "{name}: {who}");
    // Without SETGID the caller's groups stay, and without SETPCAP its bounding set, which no_new_privs makes void.
    let emptied = who.contains(" groups=0 ") && who.contains(" CapBnd=0000000000000000 ");
    assert!(emptied || ["bare", "rootless"].contains(&ended.start().rung.as_str()), "{name}: {who}");
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
    assert!(probes.len() > 30 && probes.iter().all(|passed| *passed), "{name}: {}", Brief(ended));
}

/// What a failed assertion has to show of a run: its denials in a line each, and no probe that has passed.
pub struct Brief<'a>(pub &'a Ended);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.said)?;
        for record in &self.0.records {
            match &record.body {
                Body::Probe(probe) if probe.passed => {}
                Body::Start(start) => writeln!(f, "start on {} as {}: {:?}", start.rung, start.uid, start.host)?,
                Body::Denial(denial) => {
                    let (of, errno) = (&denial.object, denial.errno.as_deref().unwrap_or("-"));
                    let (operation, rule) = (&denial.operation, &denial.rule);
                    writeln!(f, "{operation} {errno} {rule} {:?} {:?} {:?}", of.host, of.addrs, of.path)?;
                }
                other => writeln!(f, "{other:?}")?,
            }
        }
        Ok(())
    }
}
