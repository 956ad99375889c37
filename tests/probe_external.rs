//! `ringfence probe --external`: what others have built is judged by the same suite, without privilege and without a trace.

mod common;

use common::{Fence, NOBODY, RINGFENCE, as_root, assert_left_nothing, survey};
use serde_json::Value;
use std::collections::BTreeMap;
use world::Said;

/// Each probe's outcome, and what was seen.
fn outcomes(said: &Said) -> BTreeMap<String, (String, String)> {
    let value: Value = serde_json::from_str(&said.out).unwrap_or_else(|cause| panic!("{cause}: {said}"));
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = value["probes"].as_array().expect("rows");
    rows.iter().map(|row| (text(row, "id"), (text(row, "outcome"), text(row, "seen")))).collect()
}

fn with<'a>(outcomes: &'a BTreeMap<String, (String, String)>, outcome: &str) -> Vec<&'a str> {
    outcomes.iter().filter(|(_, (is, _))| is == outcome).map(|(id, _)| id.as_str()).collect()
}

/// A shell hardened by hand: a mount namespace in which all is read-only but four directories, nosuid and private; then no
/// privilege, and no descriptor. The network and the system calls are as they were.
const HARDENED: &str = "
for place in /tmp /dev/shm /app /workspace; do mkdir -p $place; mount --bind $place $place; done
awk '{print $5}' /proc/self/mountinfo | while read point; do
  case $point in /tmp|/dev/shm|/app|/workspace) options=rw,nosuid;; *) options=ro,nosuid;; esac
  mount -o remount,bind,$options $point 2>/dev/null
done
chmod 1777 /tmp /dev/shm /app /workspace
exec setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
  bash -c 'for fd in /proc/self/fd/*; do n=${fd##*/}; if [ $n -gt 2 ]; then eval \"exec $n>&-\"; fi; done; exec \"$@\"' sh \\
  env -i HOME=/tmp PATH=\"$PATH\" \"$@\"
";

#[test]
fn what_a_hardened_shell_holds_and_misses_is_named() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /app /workspace; chmod 1777 /app /workspace");
    fence.world.write("/usr/local/bin/harden", format!("#!/bin/bash\n{HARDENED}"), 0o755);
    let judged = |then: &str| {
        let judge = format!("{RINGFENCE} probe --external --format json");
        fence.as_root(&format!("unshare --mount --propagation private harden {then} {judge}"))
    };
    let before = survey(&fence);
    let said = judged("");
    assert_eq!(said.code, Some(1), "{said}");
    let seen = outcomes(&said);
    println!("misses: {:#?}", seen.iter().filter(|(_, (is, _))| is == "failed").collect::<Vec<_>>());
    for held in [
        "privilege.direct.ids",
        "privilege.direct.groups",
        "privilege.direct.capability-sets",
        "privilege.direct.bounding-set",
        "privilege.direct.no-new-privs",
        "privilege.direct.nosuid",
        "privilege.direct.mount",
        "privilege.direct.raw-socket",
        "privilege.adversarial.become-root",
        "privilege.adversarial.descriptors",
        "filesystem.direct.create",
        "filesystem.direct.names",
        "filesystem.adversarial.propagation",
        "filesystem.enablement.write",
        "filesystem.enablement.read",
    ] {
        assert_eq!(seen[held].0, "passed", "{held}: {:?}", seen[held]);
    }
    for missed in [
        "network.direct.tcp",
        "network.direct.udp",
        "network.adversarial.daemon",
        "network.direct.other-families",
        "privilege.direct.user-namespace",
        "privilege.adversarial.absent-calls",
    ] {
        assert_eq!(seen[missed].0, "failed", "{missed}: {:?}", seen[missed]);
    }
    // What takes a run of ours is told apart from what holds.
    assert!(with(&seen, "skipped").contains(&"network.direct.firewall-log"), "{said}");
    assert_left_nothing(&fence, &before, "a judgement");
    // The table says which restriction is missing, by its name.
    let table = fence.as_root(&format!("unshare --mount --propagation private harden {RINGFENCE} probe --external"));
    println!("{}", table.out);
    let standing = |name: &str| {
        let line = table.out.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {table}")).trim_start().to_owned()
    };
    for missing in ["egress by allowlist", "no direct egress", "no other socket families", "no namespaces and mounts"] {
        assert!(standing(missing).starts_with("MISSING  "), "{missing}: {table}");
    }
    for held in ["unprivileged account", "read-only trees", "set-id execution void"] {
        assert!(standing(held).starts_with("held  "), "{held}: {table}");
    }
    assert!(standing("record and own files masked").starts_with("nothing here  "), "{table}");
    assert_eq!(table.code, Some(1), "{table}");

    let leaky = outcomes(&judged("bash -c \"exec 9</; exec \\\"\\$@\\\"\" sh"));
    assert_eq!(leaky["privilege.adversarial.descriptors"], ("failed".into(), "descriptor 9".into()));
}

#[test]
fn what_ringfence_itself_has_built_holds() {
    let fence = Fence::new();
    let script = "/workspace/judge probe --external --format json";
    as_root(&fence, &format!("mkdir -p /workspace && cp {RINGFENCE} /workspace/judge"));
    for policy in ["nist-high", "locked"] {
        let ended = fence.run(&["--policy", policy, "--rung", "full"], &format!("{script} --policy {policy}"));
        let seen = outcomes(&ended.said);
        let failed: Vec<_> = seen.iter().filter(|(_, (is, _))| is == "failed").collect();
        assert!(ended.said.code == Some(0) && failed.is_empty(), "{policy}: {failed:#?}");
        assert!(with(&seen, "passed").len() > 40, "{policy}: {}", ended.said);
        // By its variables and by its port the proxy is found as any other is.
        for asked in ["network.direct.proxy-refusal", "network.adversarial.proxy-literal"] {
            assert_eq!(seen[asked], ("passed".into(), "403".into()), "{policy}: {asked}");
        }
        assert_eq!(seen["network.adversarial.proxies-in-reach"].1, "refused", "{policy}");
    }
}

#[test]
fn root_without_any_hardening_is_judged_and_harmed_by_nothing() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /app /workspace");
    let look = "find /usr/bin /etc -maxdepth 1 -type f -printf '%p %m %U %G %s %T@\\n' | sort; cat /proc/self/mountinfo; \
                find / -xdev -maxdepth 3 -name '.preflight*'";
    let files = as_root(&fence, look);
    let said = fence.as_root(&format!("{RINGFENCE} probe --external --format json"));
    let seen = outcomes(&said);
    assert_eq!(said.code, Some(1), "{said}");
    for missed in ["privilege.direct.ids", "filesystem.direct.create", "filesystem.direct.names", "network.direct.tcp"]
    {
        assert_eq!(seen[missed].0, "failed", "{missed}: {:?}", seen[missed]);
    }
    assert_eq!(seen["privilege.direct.mount"].1, "CAP_SYS_ADMIN is held");
    assert_eq!(as_root(&fence, look), files);
    let nobody = outcomes(&fence.as_user(NOBODY, &format!("{RINGFENCE} probe --external --format json")));
    assert_eq!(nobody["privilege.direct.capability-sets"].0, "passed");
    assert_eq!(nobody["privilege.direct.no-new-privs"].0, "failed");
    let misused = fence.as_root(&format!("{RINGFENCE} probe --external --rung full"));
    assert!(misused.code == Some(125) && misused.err.contains("cannot be used with"), "{misused}");
}
