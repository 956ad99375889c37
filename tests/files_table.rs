//! Files where there are no mounts: act by act, object by object, the rung `container` gives the errno that a read-only
//! mount gives on the rung `full`, and the same records; and nothing of what is read-only changes there, contents or metadata.
//!
//! One difference stands: a pipe or a device with a name in a read-only tree can be opened for writing on a read-only mount, and
//! Landlock refuses that (EACCES, recorded), save for the devices in /dev.
//!
//! Each act is made on each object in a tree that is read-only and, where it may change something, in a writable one. `FILES_ONLY`
//! keeps the acts of that name.

#[path = "acts/beside.rs"]
mod beside;
mod common;
#[path = "files/objects.rs"]
mod objects;
#[path = "files/table.rs"]
mod table;

use beside::{PROGRAM, program};
use common::{Ended, Fence, as_root, own_user};
use objects::furnish;
use ringfence::ledger::record::Denial;
use std::collections::{BTreeMap, BTreeSet};
use table::{Case, cases};
use world::less::container::CAPABILITIES;
use world::{Less, Said};

/// The trees by the rung that is to meet them: read-only, and writable.
const READ_ONLY: &str = "/opt/table";
const WRITABLE: &str = "/tmp/table";

/// The tree of each rung has a name of the same length.
const RUNGS: [(&str, &str); 2] = [("full", "a"), ("container", "b")];

fn scripts(fence: &Fence, cases: &[Case], user: u32) {
    fence.world.write(PROGRAM, program(), 0o755);
    for (_, tree) in RUNGS {
        let lines: Vec<String> = cases.iter().enumerate().map(|(id, case)| case.line(id, tree, user)).collect();
        fence.world.write(&format!("/usr/local/lib/table-{tree}"), lines.join("\n") + "\n", 0o644);
    }
    let objects: Vec<_> =
        cases.iter().enumerate().map(|(id, case)| (case.directory(id), case.object, case.zone.path())).collect();
    fence.world.inside().run(move || {
        for (_, tree) in RUNGS {
            for zone in [READ_ONLY, WRITABLE] {
                furnish::zone(&format!("{zone}/{tree}"), user);
            }
            for (directory, object, zone) in &objects {
                furnish::case(&format!("{zone}/{tree}/{directory}"), object, user);
            }
        }
    });
}

/// What each act gave, by its number.
fn outcomes(ended: &Ended) -> BTreeMap<usize, String> {
    let lines = ended.said.out.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, _, outcome] = fields[..] else { return None };
        Some((id.parse().ok()?, outcome.to_owned()))
    });
    lines.collect()
}

/// A denial in terms that are the same on both rungs.
fn told(denial: &Denial, tree: &str) -> String {
    let plain = |path: &str| path.replace(&format!("/table/{tree}/"), "/table/*/");
    let object = denial.object.path.as_deref().map(plain).unwrap_or_default();
    let to = denial.object.to.as_deref().map(plain).unwrap_or_default();
    let errno = denial.errno.clone().unwrap_or_default();
    let (axis, rule, mechanism) = (denial.axis.name(), &denial.rule, denial.mechanism.name());
    format!("{axis} {mechanism} {} {object} -> {to} {errno} {rule}", denial.operation)
}

fn denials(ended: &Ended, tree: &str) -> BTreeMap<String, u64> {
    let mut told_of = BTreeMap::new();
    for denial in ended.denials() {
        *told_of.entry(told(denial, tree)).or_insert(0) += denial.count;
    }
    told_of
}

/// Everything in a tree, with what is known of it; attributes that are not shown move the time of the last change. Only times
/// of access may be others.
fn everything(fence: &Fence, tree: &str) -> BTreeSet<String> {
    let look = format!(
        "cd {READ_ONLY}/{tree}; find . -printf '%p %y %m %U %G %s %n %T@ %C@ %l\\n'; find . -type f -exec md5sum {{}} +"
    );
    as_root(fence, &look).lines().map(str::to_owned).collect()
}

/// A run on a rung, `container` with no more capabilities than a container gives.
fn run(fence: &Fence, rung: &str, tree: &str, user: u32) -> Ended {
    let id = format!("{user}:{user}");
    let flags =
        ["--policy", "control", "--filesystem", "restricted", "--privilege", "locked", "--rung", rung, "--user", &id];
    let script = format!("umask 022; {PROGRAM} run /usr/local/lib/table-{tree}");
    let (command, ledger) = fence.command(&flags, &["bash", "-c", &script]);
    let less = if rung == "container" { Less::new().capabilities(&CAPABILITIES) } else { Less::new() };
    let ended = fence.ended(Said::from(fence.world.output_with(&less, command)), ledger);
    assert_eq!(ended.said.code, Some(0), "{rung}: {}", ended.said);
    ended
}

#[test]
fn each_act_on_each_object_is_answered_and_recorded_as_by_a_read_only_mount() {
    let fence = Fence::new();
    let user = own_user();
    as_root(&fence, &format!("mkdir -p {READ_ONLY} {WRITABLE}"));
    fence.world.mount_ext4(READ_ONLY).expect("a file system with attributes");
    fence.world.mount_memory(WRITABLE).expect("one without a limit");
    let only = std::env::var("FILES_ONLY").ok();
    let cases: Vec<Case> =
        cases().into_iter().filter(|case| only.as_deref().is_none_or(|only| case.what().contains(only))).collect();
    scripts(&fence, &cases, user);
    let before = RUNGS.map(|(_, tree)| everything(&fence, tree));
    let ended = RUNGS.map(|(rung, tree)| run(&fence, rung, tree, user));
    let after = RUNGS.map(|(_, tree)| everything(&fence, tree));

    let [full, container] = [&ended[0], &ended[1]].map(outcomes);
    let mut faults = Vec::new();
    for (id, case) in cases.iter().enumerate() {
        let (mount, ours) = (full.get(&id), container.get(&id));
        let landlocks = case.is_special() && ours.is_some_and(|errno| errno == "EACCES");
        if mount.is_none() || mount != ours && !landlocks {
            faults.push(format!("{id} {}: {mount:?} by a mount, {ours:?} without", case.what()));
        }
    }
    let [of_mount, of_ours] = [denials(&ended[0], "a"), denials(&ended[1], "b")];
    let special = |told: &String| {
        let opens = [" openat /", " openat2 /", " creat /"].iter().any(|call| told.contains(call));
        opens && (told.contains("/fifo/fifo ") || told.contains("/null/null "))
    };
    assert!(only.is_some() || of_ours.keys().any(|told| special(told) && told.contains("EACCES read-only")));
    for told in of_mount.keys().chain(of_ours.keys()).filter(|told| !special(told)).collect::<BTreeSet<_>>() {
        let (mount, ours) = (of_mount.get(told), of_ours.get(told));
        if mount != ours {
            faults.push(format!("recorded {mount:?} by a mount, {ours:?} without: {told}"));
        }
    }
    for ((rung, _), (before, after)) in RUNGS.iter().zip(before.iter().zip(&after)) {
        let changed: Vec<_> = before.symmetric_difference(after).collect();
        assert!(changed.is_empty(), "{rung}: {changed:#?}");
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
    // Each errno of the table has been met, and what is allowed has been done.
    let met: BTreeSet<&str> = container.values().map(String::as_str).collect();
    if only.is_none() {
        for errno in
            ["ok", "EROFS", "EACCES", "EPERM", "EEXIST", "ENOENT", "ENOTDIR", "EXDEV", "ELOOP", "EISDIR", "EINVAL"]
        {
            assert!(met.contains(errno), "{errno}: {met:?}");
        }
    }
    for ended in &ended {
        assert!(ended.seal().complete, "{:?}", ended.seal());
    }
}
