//! What the integration tests share: ringfence in the box of a closed world, and the record that a run leaves.
#![allow(dead_code, reason = "each test binary uses its own part")]

mod asked;
#[path = "../tested/mod.rs"]
pub mod tested;

use asked::Asked;
use ringfence::ledger::record::{Body, Denial, Record, Seal, Start};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use world::{Internet, Less, Said, World};

/// Where the binary lies in the box.
pub const RINGFENCE: &str = "/usr/local/bin/ringfence";
/// An unprivileged uid that the suite uses where it needs the same attempt without ringfence.
pub const NOBODY: u32 = 12_345;

/// An unprivileged uid of this process alone. All boxes share the machine's process table, and a run as a user who has
/// processes is refused, so a test that gives `--user` must not share the uid with another one.
pub fn own_user() -> u32 {
    200_000 + std::process::id()
}

/// A closed world whose box has ringfence, and servers outside. When it ends, its resolver must have been asked about
/// admitted names only, live vectors apart.
pub struct Fence {
    pub internet: Internet,
    pub world: World,
    runs: AtomicU32,
    less: Less,
    asked: Asked,
}

/// A run that is over.
pub struct Ended {
    /// The command's status and output.
    pub said: Said,
    /// The ledger's path in the box.
    pub ledger: String,
    /// The ledger's records in order.
    pub records: Vec<Record>,
}

impl Fence {
    /// A new world with the standard servers.
    pub fn new() -> Fence {
        let world = World::new().expect("a closed world");
        let internet = Internet::start(&world).expect("servers outside");
        Fence::of(world, internet)
    }

    /// Ringfence in the box of a world that stands.
    pub fn of(world: World, internet: Internet) -> Fence {
        world.install(&tested::binary(), RINGFENCE);
        take_uids_apart(&world);
        Fence { internet, world, runs: AtomicU32::new(0), less: Less::new(), asked: Asked::default() }
    }

    /// The same box, in which ringfence starts with less than root has. As a user other than root it has a HOME and a
    /// directory for ledgers of its own, `/home/UID` and `/var/log/ringfence-UID`.
    pub fn less(mut self, less: Less) -> Fence {
        if let Some(uid) = less.user() {
            as_root(&self, &format!("install -d -m 0700 -o {uid} -g {uid} /home/{uid} /var/log/ringfence-{uid}"));
        }
        self.less = less;
        self
    }

    /// A run with these flags is refused with one line that has `what`, and starts nothing.
    pub fn refuses(&self, flags: &[&str], what: &str) {
        let ended = self.run(flags, "touch /dev/shm/started");
        assert_eq!(ended.said.code, Some(125), "{flags:?}: {ended}");
        assert!(ended.said.err.contains(what), "{flags:?}: {ended}");
        assert_eq!(ended.said.err.lines().count(), 1, "{ended}");
        assert!(self.world.read("/dev/shm/started").is_none());
    }

    /// The ordinary user that ringfence starts as, where [`Fence::less`] names one.
    pub fn less_user(&self) -> Option<u32> {
        self.less.user()
    }

    /// Starts ringfence in the box, with less where [`Fence::less`] says so.
    pub fn start(&self, command: Command) -> Child {
        self.note(&command);
        let name = format!("{command:?}");
        self.world.spawn_with(&self.less, command).unwrap_or_else(|cause| panic!("{name}: {cause}"))
    }

    /// Runs ringfence in the box to its end, with less where [`Fence::less`] says so.
    pub fn output(&self, command: Command) -> Said {
        self.note(&command);
        Said::from(self.world.output_with(&self.less, command))
    }

    /// The command `ringfence ARGUMENTS`, to be given to [`Fence::start`] or [`Fence::output`].
    pub fn ringfence(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.command(RINGFENCE);
        command.args(arguments);
        if let Some(uid) = self.less.user() {
            command.env("HOME", format!("/home/{uid}"));
        }
        command
    }

    /// Runs a script of bash under `ringfence run` with these flags.
    pub fn run(&self, flags: &[&str], script: &str) -> Ended {
        let (command, ledger) = self.command(flags, &["bash", "-c", script]);
        self.ended(self.output(command), ledger)
    }

    /// The command `ringfence run FLAGS -- ARGUMENTS`, and the path of its ledger, for a test that starts it itself.
    pub fn command(&self, flags: &[&str], arguments: &[&str]) -> (Command, String) {
        let directory = self.less.user().map_or("/var/log/ringfence".into(), |uid| format!("/var/log/ringfence-{uid}"));
        let ledger = format!("{directory}/{}.jsonl", self.runs.fetch_add(1, Ordering::Relaxed));
        let mut command = self.ringfence(&["run"]);
        command.args(flags).args(["--ledger", &ledger, "--"]).args(arguments);
        self.note(&command);
        (command, ledger)
    }

    /// Reads a run's ledger; a run that has none has no records.
    pub fn ended(&self, said: Said, ledger: String) -> Ended {
        let bytes = self.world.read(&ledger).unwrap_or_default();
        let text = String::from_utf8(bytes).expect("a ledger is UTF-8");
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause} in {line}"));
        Ended { said, ledger, records: text.lines().map(read).collect() }
    }

    /// The same script as root in the same box, without ringfence.
    pub fn as_root(&self, script: &str) -> Said {
        let mut command = self.world.command("bash");
        command.args(["-c", script]);
        self.freely(command)
    }

    /// The same script as an unprivileged user in the same box, without ringfence.
    pub fn as_nobody(&self, script: &str) -> Said {
        self.as_user(NOBODY, script)
    }

    /// The same script as the given user, who has the group of the same number and no other.
    pub fn as_user(&self, uid: u32, script: &str) -> Said {
        let mut command = self.world.command("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "bash", "-c", script]);
        self.freely(command)
    }

    /// Runs what may ask for any name.
    fn freely(&self, command: Command) -> Said {
        self.asked.live(self.internet.resolver.questions().len());
        Said::from(self.world.output(command))
    }

    fn note(&self, run: &Command) {
        self.asked.run(run, self.internet.resolver.questions().len());
    }

    /// Says that a policy which is given in a file admits these entries.
    pub fn admits(&self, entries: &[&str]) {
        self.asked.admit(entries);
    }

    /// Holds a ledger against `ringfence verify`.
    pub fn verify(&self, ledger: &str) -> Said {
        let mut command = self.world.command(RINGFENCE);
        command.args(["verify", ledger]);
        Said::from(self.world.output(command))
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let strays = self.asked.strays(&self.internet.resolver.questions());
            assert!(strays.is_empty(), "names that no policy admits were asked for: {strays:?}");
        }
    }
}

impl Ended {
    /// The first record.
    pub fn start(&self) -> &Start {
        match self.records.first().map(|record| &record.body) {
            Some(Body::Start(start)) => start,
            other => panic!("the first record is no start but {other:?}\n{self}"),
        }
    }

    /// The last record.
    pub fn seal(&self) -> &Seal {
        match self.records.last().map(|record| &record.body) {
            Some(Body::Seal(seal)) => seal,
            other => panic!("the last record is no seal but {other:?}\n{self}"),
        }
    }

    /// The denials in order.
    pub fn denials(&self) -> Vec<&Denial> {
        self.records
            .iter()
            .filter_map(|record| match &record.body {
                Body::Denial(denial) => Some(denial),
                _ => None,
            })
            .collect()
    }

    /// The denials whose object is this host.
    pub fn denials_of(&self, host: &str) -> Vec<&Denial> {
        self.denials().into_iter().filter(|denial| denial.object.host.as_deref() == Some(host)).collect()
    }

    /// The value of a line `KEY=VALUE` of the standard output.
    pub fn value(&self, key: &str) -> &str {
        value(&self.said, key)
    }
}

/// The worlds of tests that run side by side share the machine's processes, and a run ends all processes of its uid. So
/// each world's accounts take up another number of those that ringfence would give its command first.
fn take_uids_apart(world: &World) {
    let taken = 0..std::process::id() % 900;
    let lines: String = taken.map(|n| format!("taken{n}:x:{0}:{0}::/:/bin/false\n", 10_001 + n)).collect();
    let mut passwd = world.read("/etc/passwd").unwrap_or_default();
    passwd.extend_from_slice(lines.as_bytes());
    world.write("/etc/passwd", passwd, 0o644);
}

/// The value of a line `KEY=VALUE` of the standard output.
pub fn value<'a>(said: &'a Said, key: &str) -> &'a str {
    let found = said.out.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no line {key}=… in {said}"))
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}--- {}", self.said, self.ledger)?;
        for record in &self.records {
            writeln!(f, "{:?}", record.body)?;
        }
        Ok(())
    }
}

/// What a script of root's in the box says; it must succeed, line by line.
pub fn as_root(fence: &Fence, script: &str) -> String {
    let said = fence.as_root(&format!("set -e; {script}"));
    assert_eq!(said.code, Some(0), "{script}: {said}");
    said.out
}

/// What a run could leave in the box: mounts, rules, abstract sockets, files, processes.
pub fn survey(fence: &Fence) -> BTreeSet<String> {
    let look = "cat /proc/self/mountinfo; nft list ruleset; grep -o '@.*' /proc/net/unix; ls -A /dev/shm /tmp /home /idmapped 2>/dev/null";
    let said = fence.as_root(look);
    let stays = |path: &Path| ["/var", "/root", "/home"].iter().any(|place| path.starts_with(place));
    let changes = fence.world.changes().into_iter().filter(|path| !stays(path));
    let changes = changes.map(|path| path.display().to_string());
    let processes = fence.world.processes().into_iter().map(|pid| format!("process {pid}"));
    said.out.lines().map(str::to_owned).chain(changes).chain(processes).collect()
}

/// Nothing is there that was not there before, and nothing is gone.
pub fn assert_left_nothing(fence: &Fence, before: &BTreeSet<String>, what: &str) {
    let after = survey(fence);
    let (new, gone): (Vec<_>, Vec<_>) = (after.difference(before).collect(), before.difference(&after).collect());
    assert!(new.is_empty() && gone.is_empty(), "{what}: left {new:#?}, took {gone:#?}");
}
