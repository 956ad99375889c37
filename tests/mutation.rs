//! For every step of the set-up: leave it out, and a pre-flight probe stops the run (issue 2, "Shows"; case E09).
//!
//! Built with the feature `mutation` only, by `make mutation`: the binary under test is then the one that can leave steps
//! out. A world is prepared so that each step matters; the same run without a mutation starts in it.

mod common;

use common::{Ended, Fence, RINGFENCE, as_root, assert_left_nothing, survey};
use ringfence::ledger::record::{Body, Outcome, Probe};
use ringfence::mutation::{READ_BACK, STEPS, VARIABLE};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use world::Said;

/// What the command would leave if it were started.
const MARKER: &str = "/dev/shm/started";

/// What a caller may leave behind for its children: groups, inheritable and ambient capabilities, a directory's
/// descriptor, a session keyring of its own with a key in it.
const CALLER: &str = "import ctypes, os, sys
at = sys.argv.index('--')
sys.argv, target = sys.argv[:at], sys.argv[at + 1:]
c = ctypes.CDLL(None, use_errno=True)
JOIN_SESSION_KEYRING = 1
if c.syscall(KEYCTL, JOIN_SESSION_KEYRING, b'callers') < 0: sys.exit('keyctl: ' + os.strerror(ctypes.get_errno()))
if c.syscall(ADD_KEY, b'user', b'token', b'secret', 6, -3) < 0: sys.exit('add_key: ' + os.strerror(ctypes.get_errno()))
os.set_inheritable(os.dup2(os.open('/', os.O_RDONLY), 9), True)
os.execvp(sys.argv[1], sys.argv[1:] + target)
";

/// A policy, and the steps that are left out under it.
struct Setting {
    flags: &'static [&'static str],
    steps: &'static [&'static str],
}

const NIST_HIGH: Setting = Setting {
    flags: &[
        "--policy",
        "nist-high",
        "--control-plane-port",
        "8500",
        "--read-only",
        "/app/kept",
        "--shield",
        "/srv/shielded",
        "--shield-git=/srv/repository",
        "--watch-read",
        "/srv/watched",
    ],
    steps: STEPS,
};

/// What other postures do by other code.
const OTHERS: &[Setting] = &[
    Setting {
        flags: &["--policy", "non-root", "--control-plane-port", "8500"],
        steps: &[
            "home",
            "wall",
            "control-plane",
            "firewall-log",
            "environment",
            "account",
            "masks",
            "descriptors",
            "keyring",
            "groups",
            "ids",
            "capabilities",
            "seccomp",
            "terminal-input",
        ],
    },
    Setting {
        flags: &["--policy", "locked"],
        steps: &["proxy", "allowlist", "read-only", "writable", "masks", "nosuid"],
    },
    Setting { flags: &["--policy", "nist-high", "--loopback", "proxy"], steps: &["loopback"] },
    Setting { flags: &["--policy", "nist-high", "--workspace", "/idmapped"], steps: &["workspace"] },
    Setting { flags: TRANSPARENT, steps: &["catch", "proxy", "allowlist", "address-rules", "proxy-reports", "wall"] },
];

/// By which tools are served that ask no proxy: only then there is something to catch.
const TRANSPARENT: &[&str] = &["--policy", "nist-high", "--transparent"];
/// The steps of [`STEPS`] that only that policy takes.
const OF_TRANSPARENT: &[&str] = &["catch"];

/// Steps that the kernel does not take without another one: what is left out with it. The probes of the step itself are
/// those that fail beyond what the others' absence makes fail.
const TOGETHER: &[(&str, &str)] = &[("no-new-privs", "landlock,seccomp")];

/// Confinement as a whole: what one step alone does not let through.
const ALL_CONFINEMENT: &str = "bounding,groups,ids,capabilities,no-new-privs,landlock,seccomp";

/// Probes that no left-out step makes fail, and why.
/// Each is shown to fail by tests/preflight.rs, on a host that lacks what it looks for.
const SHOWN_ELSEWHERE: &[(&str, &str)] = &[
    ("filesystem.enablement.read", "nothing of ours opens a tree: the host's root may be closed"),
    ("filesystem.enablement.beside-shields", "a mount closes nothing beside it: tests/mutation_rungs.rs has it fail"),
    ("filesystem.enablement.watched-reads", "a mark closes nothing: tests/mutation_rungs.rs has it fail"),
    ("network.enablement.known-families", "nothing of ours opens a family: another filter may refuse it"),
    ("privilege.enablement.own-keyring", "another filter may refuse it"),
    ("privilege.enablement.fork", "nothing of ours lets processes fork: a limit may be used up"),
    ("privilege.enablement.ordinary-request", "another filter may refuse it"),
];

fn prepared() -> Fence {
    let fence = Fence::new();
    let binary = fence.world.read(RINGFENCE).expect("the binary");
    assert!(holds(&binary, VARIABLE), "the binary is not built with the feature `mutation`: use `make mutation`");
    fence.world.mount_memory("/idmapped").expect("a file system whose mounts can be idmapped");
    // Docker's resolver is reached by address translation; so is the one here, at a port that the wall leaves open.
    let said = fence.as_root(
        "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range && \
         mount --make-rshared / && mkdir -p /app/kept /mnt/etc /srv/shielded && echo x > /srv/shielded/file && echo x > /srv/watched && mount --bind /etc /mnt/etc && \
         git init -q /srv/repository && \
         nft 'add table ip nat; add chain ip nat output { type nat hook output priority -100; }; \
              add rule ip nat output ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.1:40053'",
    );
    assert_eq!(said.code, Some(0), "{said}");
    fence
}

fn run(fence: &Fence, flags: &[&str], left_out: &str) -> Ended {
    let (inner, ledger) = fence.command(flags, &["touch", MARKER]);
    let mut command = fence.world.command("python3");
    let caller = format!("KEYCTL, ADD_KEY = {}, {}\n{CALLER}", libc::SYS_keyctl, libc::SYS_add_key);
    command.args(["-c", &caller]);
    if left_out == "propagation" {
        // Mounts come in from the box, as on a machine whose root is shared, and none go out to spoil it.
        command.args(["unshare", "--mount", "--propagation", "slave"]);
    }
    command
        .args(["setpriv", "--groups", "4,27", "--inh-caps", "+net_raw", "--ambient-caps", "+net_raw", "--"])
        .arg(inner.get_program())
        .args(inner.get_args());
    command
        .env("LD_PRELOAD", "")
        .env(VARIABLE, left_out)
        .env("SSLKEYLOGFILE", "/tmp/keys")
        .env("LD_LIBRARY_PATH", "/lib");
    fence.ended(Said::from(fence.world.output(command)), ledger)
}

fn probes(ended: &Ended) -> Vec<&Probe> {
    ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Probe(probe) => Some(probe),
            _ => None,
        })
        .collect()
}

/// Holds a run that a probe stopped against what it promises; the probes that failed.
fn stopped(fence: &Fence, ended: &Ended, what: &str) -> BTreeSet<String> {
    let failed: BTreeSet<String> = probes(ended).into_iter().filter(|p| !p.passed).map(|p| p.id.clone()).collect();
    assert!(!failed.is_empty(), "{what}: no probe noticed\n{ended}");
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{what}: {ended}");
    let message = ended.said.err.trim_end();
    assert_eq!(message.lines().count(), 1, "{what}: {ended}");
    let named = message.strip_prefix("ringfence: probe ").and_then(|rest| rest.split_once(": expected "));
    let (id, rest) = named.unwrap_or_else(|| panic!("{what}: {message}"));
    let probe = probes(ended).into_iter().find(|p| p.id == id).unwrap_or_else(|| panic!("{what}: {id} is no probe"));
    assert!(
        !probe.passed && rest.starts_with(&format!("{}, saw {}; nothing was started (", probe.expected, probe.seen))
    );
    assert_eq!(fence.world.read(MARKER), None, "{what}: the command was started");

    let kinds: Vec<&str> = ended.records.iter().map(|record| record.body.kind()).collect();
    let (first, last) = (kinds.first().copied(), &kinds[kinds.len() - 2..]);
    assert_eq!((first, last), (Some("start"), ["abort", "seal"].as_slice()), "{what}: {ended}");
    assert!(kinds[1..kinds.len() - 2].iter().all(|kind| *kind == "probe"), "{what}: {ended}");
    assert!(matches!(&ended.records[kinds.len() - 2].body, Body::Abort(abort) if abort.cause.contains(id)), "{what}");
    let seal = ended.seal();
    assert_eq!((seal.outcome, seal.exit_code, seal.started), (Outcome::NotStarted, Some(125), false), "{what}");
    let verified = fence.verify(&ended.ledger);
    assert_eq!(verified.code, Some(0), "{what}: {verified}");
    failed
}

#[test]
fn each_step_left_out_is_noticed_by_a_probe() {
    let fence = prepared();
    let mut noticed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let (mut tried, mut unnoticed) = (BTreeSet::new(), Vec::new());
    for setting in std::iter::once(&NIST_HIGH).chain(OTHERS) {
        let started = run(&fence, setting.flags, "");
        assert_eq!((started.said.code, started.said.err.as_str()), (Some(0), ""), "{:?}: {started}", setting.flags);
        assert!(fence.world.read(MARKER).is_some(), "live vector: the command leaves its marker");
        fence.as_root(&format!("rm {MARKER}"));
        tried.extend(probes(&started).into_iter().map(|p| p.id.clone()));
        let before = survey(&fence);
        let is_taken = |step: &&str| setting.flags == TRANSPARENT || !OF_TRANSPARENT.contains(step);
        for step in setting.steps.iter().copied().filter(is_taken).chain([ALL_CONFINEMENT]) {
            let what = format!("{} without {step}", setting.flags.join(" "));
            let with = TOGETHER.iter().find(|(name, _)| *name == step).map(|(_, with)| *with);
            let ended = run(&fence, setting.flags, &[step].into_iter().chain(with).collect::<Vec<_>>().join(","));
            // One step that goes unnoticed must not hide the others.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut failed = stopped(&fence, &ended, &what);
                if let Some(with) = with {
                    let others = stopped(&fence, &run(&fence, setting.flags, with), with);
                    failed.retain(|id| !others.contains(id));
                    assert!(!failed.is_empty(), "{what}: no probe noticed");
                }
                assert_left_nothing(&fence, &before, &what);
                failed
            }));
            match outcome {
                Ok(failed) => noticed.entry(step).or_default().extend(failed),
                Err(_) => {
                    fence.as_root(&format!("rm -f {MARKER}"));
                    unnoticed.push(what);
                }
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    for step in STEPS {
        assert!(noticed.contains_key(step), "{step}");
    }
    assert_told(&noticed);
    let able: BTreeSet<&String> = noticed.values().flatten().collect();
    let never: Vec<&String> =
        tried.iter().filter(|id| !able.contains(id) && !SHOWN_ELSEWHERE.iter().any(|(known, _)| known == id)).collect();
    assert!(never.is_empty(), "these probes never fail: {never:#?}");
}

/// What docs/preflight.md says of each step must be what was seen. With BLESS in the environment it is written anew.
fn assert_told(noticed: &BTreeMap<&str, BTreeSet<String>>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/preflight.md");
    let row = |step: &&str| {
        let failed: Vec<String> = noticed[step].iter().map(|id| format!("`{id}`")).collect();
        format!("| `{step}` | {} |\n", failed.join(", "))
    };
    if std::env::var_os("BLESS").is_some() {
        let rows: String = STEPS.iter().map(row).collect();
        std::fs::write(&file, format!("{HEADING}{rows}")).expect("write docs/preflight.md");
    }
    let text = std::fs::read_to_string(&file).expect("read docs/preflight.md");
    for step in STEPS {
        let line = text.lines().find(|line| line.starts_with(&format!("| `{step}` |")));
        let line = line.unwrap_or_else(|| panic!("docs/preflight.md has no row for {step}: BLESS=1 make mutation"));
        let told: Vec<&str> = line.split('`').skip(3).step_by(2).collect();
        assert!(!told.is_empty() && told.iter().all(|id| noticed[step].contains(*id)), "{line}");
    }
}

const HEADING: &str = "# What notices a missing step

For every step of the set-up, `make mutation` leaves it out (cargo feature `mutation`, absent from `dist/ringfence`) in a
world in which the step matters, and the run must end with status 125, by a pre-flight probe, before the command starts.
These probes failed. Written by `BLESS=1 make mutation`; tests/mutation.rs holds this page to what it sees.

Two second looks of the firewall's, `late` and `exit`, are out of any unprivileged packet's reach as long as the first look
holds; for want of them the read-back of the rules stops the run. `no-new-privs` is left out together with `landlock` and
`seccomp`, which the kernel does not take without it.

| step left out | probes that fail |
|---|---|
";

#[test]
fn what_is_shipped_leaves_no_step_out() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/ringfence");
    let binary = std::fs::read(&shipped).unwrap_or_else(|cause| panic!("{}: {cause}: make build", shipped.display()));
    assert!(holds(&binary, "json-status-fd"), "live vector: the binary's own words are found");
    assert!(!holds(&binary, VARIABLE), "{} is built with the feature `mutation`", shipped.display());
}

#[test]
fn a_second_look_left_out_is_noticed_by_the_read_back() {
    let fence = prepared();
    for step in READ_BACK {
        let before = survey(&fence);
        let ended = run(&fence, NIST_HIGH.flags, step);
        assert_eq!(ended.said.code, Some(125), "{step}: {ended}");
        assert!(ended.said.err.contains("is not what was installed"), "{step}: {ended}");
        assert_eq!(fence.world.read(MARKER), None, "{step}");
        assert_left_nothing(&fence, &before, step);
    }
}

fn holds(binary: &[u8], text: &str) -> bool {
    binary.windows(text.len()).any(|window| window == text.as_bytes())
}

/// `ringfence probe` tries all the others too, and those that only it tries notice as well.
#[test]
fn the_suite_names_everything_that_a_left_out_step_lets_through() {
    let fence = prepared();
    // A control socket that whoever reaches it may connect to.
    let socket = "import os, socket; socket.socket(socket.AF_UNIX).bind('/run/docker.sock'); os.chmod('/run/docker.sock', 0o666)";
    as_root(&fence, &format!("mkdir -p /run && python3 -c \"{socket}\""));
    let attributes = ["filesystem.direct.attributes", "filesystem.adversarial.attributes-by-descriptor"];
    for (step, expected) in [
        ("none", &[][..]),
        ("read-only", &["filesystem.direct.create", "filesystem.direct.names", attributes[0], attributes[1]]),
        ("wall", &["network.direct.tcp", "network.adversarial.daemon", "network.adversarial.thread"]),
        ("masks", &["filesystem.direct.masked", "filesystem.adversarial.masked-sockets"]),
    ] {
        let mut command = fence.world.command("sh");
        command.args([
            "-c",
            &format!("exec {RINGFENCE} probe --policy locked --ledger /var/log/{step}.jsonl --format json"),
        ]);
        command.env(VARIABLE, if step == "none" { "" } else { step });
        as_root(&fence, &format!("rm -f /var/log/{step}.jsonl"));
        let said = Said::from(fence.world.output(command));
        let value: serde_json::Value =
            serde_json::from_str(&said.out).unwrap_or_else(|cause| panic!("{cause}: {said}"));
        let rows = value["probes"].as_array().expect("rows");
        let failed: Vec<&str> =
            rows.iter().filter(|row| row["outcome"] == "failed").filter_map(|row| row["id"].as_str()).collect();
        println!("{step}: {failed:?}");
        assert_eq!(said.code, Some(i32::from(step != "none")), "{step}: {said}");
        assert!(expected.iter().all(|id| failed.contains(id)), "{step}: {expected:?} are not all among {failed:?}");
    }
}
