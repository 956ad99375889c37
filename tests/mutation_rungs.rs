//! The same as tests/mutation.rs on the rungs that stand in for `full`: what of the set-up is theirs is left out, and a probe
//! stops the run (issue 4; case E09).
//!
//! Built with the feature `mutation` only, by `make mutation`.

mod common;

use common::{Ended, Fence};
use ringfence::ledger::record::{Body, Outcome};
use ringfence::mutation::{VARIABLE, WITHOUT_MOUNTS};
use std::collections::BTreeSet;
use world::Less;

/// What the command would leave if it were started.
const MARKER: &str = "/dev/shm/started";
const USER: u32 = 1000;

/// What all rungs take, in the child that is confined.
const CONFINEMENT: &[&str] = &["seccomp", "notifier", "watched-paths", "watched-reads", "shields", "socket-families"];
/// What takes a uid to give up, or a bounding set. Of capabilities a container's root has none that outlive its uid.
const WITH_OWN_UID: &[&str] = &["bounding", "groups", "ids", "proxy-ids"];

fn run(fence: &Fence, flags: &[&str], left_out: &str) -> Ended {
    let (mut command, ledger) = fence.command(flags, &["touch", MARKER]);
    command.env(VARIABLE, left_out).env("SSLKEYLOGFILE", "/tmp/keys").current_dir(directory(fence));
    fence.ended(fence.output(command), ledger)
}

/// Where the command works: an ordinary user's own directory.
fn directory(fence: &Fence) -> &'static str {
    if fence.less_user().is_some() { "/home/1000/work" } else { "/workspace" }
}

fn of_user(less: Less) -> Fence {
    let fence = Fence::new().less(less);
    fence.as_root("install -d -o 1000 -g 1000 /home/1000/work; rm -rf /workspace");
    fence
}

fn each_is_noticed(fence: &Fence, rung: &str, flags: &[&str], steps: &[&str]) {
    fence.as_root("mkdir -p /srv/shielded && echo x > /srv/shielded/file");
    let kept = ["--shield", "/srv/shielded", "--watch-read", "/srv"];
    let flags = [&["--rung", rung, "--policy", "nist-high"], &kept[..], flags].concat();
    let started = run(fence, &flags, "");
    assert_eq!((started.said.code, started.said.err.as_str()), (Some(0), ""), "{rung}: {started}");
    assert_eq!(started.start().rung, rung);
    assert!(fence.world.read(MARKER).is_some(), "live vector: the command leaves its marker");
    fence.as_root(&format!("rm {MARKER}"));
    // Where the list is left out, the probe's own name is asked for.
    fence.admits(&["not-admitted.invalid"]);
    let mut unnoticed = BTreeSet::new();
    for step in steps {
        let ended = run(fence, &flags, step);
        let failing = ended.records.iter().filter_map(|record| match &record.body {
            Body::Probe(probe) if !probe.passed => Some(probe.id.as_str()),
            _ => None,
        });
        let failing: BTreeSet<&str> = failing.collect();
        // Where several probes are there for a step alone, each of them.
        let own: &[&str] = match *step {
            "watched-reads" => &["filesystem.direct.watched-reads", "filesystem.adversarial.watched-reads"],
            "shield-listings" => &["filesystem.enablement.beside-shields", "filesystem.enablement.watched-reads"],
            _ => &[],
        };
        let failed = !failing.is_empty() && own.iter().all(|id| failing.contains(id));
        let seal = ended.records.iter().rev().find_map(|record| match &record.body {
            Body::Seal(seal) => Some(seal.outcome),
            _ => None,
        });
        let started = fence.world.read(MARKER).is_some();
        if !failed || started || ended.said.code != Some(125) || seal != Some(Outcome::NotStarted) {
            fence.as_root(&format!("rm -f {MARKER}"));
            unnoticed.insert(format!("{rung} without {step}: {ended}"));
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn of_container_each_step_left_out_is_noticed_by_a_probe() {
    let fence = Fence::new().less(Less::new().container());
    let steps = [WITHOUT_MOUNTS, CONFINEMENT, WITH_OWN_UID, &["proxy", "allowlist", "environment"]];
    each_is_noticed(&fence, "container", &[], &steps.concat());
}

#[test]
fn of_bare_each_step_left_out_is_noticed_by_a_probe() {
    let fence = of_user(Less::new().container_user(USER, USER));
    let steps = [WITHOUT_MOUNTS, CONFINEMENT, &["landlock", "proxy", "allowlist", "environment"]];
    each_is_noticed(&fence, "bare", &["--protect"], &steps.concat());
}

#[test]
fn of_rootless_each_step_left_out_is_noticed_by_a_probe() {
    let fence = of_user(Less::new().uid(USER, USER));
    let own = ["wall", "read-only", "writable", "masks", "nosuid", "bounding", "capabilities", "landlock", "proxy"];
    each_is_noticed(&fence, "rootless", &["--protect"], &[CONFINEMENT, &own].concat());
}
