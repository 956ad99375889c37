//! What cannot be obeyed is refused in one line with status 125, before anything is started, and leaves nothing.

mod attempts;
mod common;

use attempts::{ATTEMPTS, fence};
use common::{Fence, RINGFENCE, as_root, own_user};
use world::Said;

/// What a run could leave beside processes and changes to the image: mounts, rules, accounts, owners, and files in memory.
const TRACES: &str = "cat /proc/self/mountinfo /etc/passwd /etc/group /etc/shadow; nft list ruleset; ip rule; ip route
    find /app /workspace /tmp /dev/shm /run /data -xdev -printf '%p %u:%g %m %y\\n' 2>/dev/null | sort
    stat -c '%n %u:%g %a' / /home /root /srv /var /var/log /var/log/ringfence /etc 2>/dev/null || true";

/// Runs `ringfence` with these arguments and holds that it refused, and that the box is as it was.
fn refused(fence: &Fence, arguments: &[&str], named: &str) {
    refused_by(fence, &[], arguments, named);
}

/// The same, started by another program.
fn refused_by(fence: &Fence, starter: &[&str], arguments: &[&str], named: &str) {
    let (before, processes, changes) = (as_root(fence, TRACES), fence.world.processes(), fence.world.changes());
    let whole: Vec<&str> = starter.iter().copied().chain([RINGFENCE]).chain(arguments.iter().copied()).collect();
    let mut command = fence.world.command(whole[0]);
    command.args(&whole[1..]);
    let said = Said::from(fence.world.output(command));
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(125), 1, ""), "{whole:?}: {said}");
    assert!(said.err.starts_with("ringfence: ") && said.err.contains(named), "{whole:?}: {said}");
    assert_eq!(fence.world.read("/tmp/started"), None, "{whole:?}");
    let after = as_root(fence, TRACES);
    let differ: Vec<_> = before.lines().zip(after.lines()).filter(|(before, after)| before != after).take(3).collect();
    assert!(before == after, "{whole:?}: {differ:#?}");
    assert_eq!((fence.world.processes(), fence.world.changes()), (processes, changes), "{whole:?}");
}

/// `run`, the flags, and a command that leaves a mark.
fn run<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    [&["run"], flags, &["--", "touch", "/tmp/started"]].concat()
}

#[test]
fn the_mark_is_made_where_nothing_is_wrong() {
    let fence = fence();
    let mut command = fence.world.command(RINGFENCE);
    command.args(run(&["--policy", "nist-high"]));
    let said = Said::from(fence.world.output(command));
    assert_eq!((said.code, fence.world.read("/tmp/started")), (Some(0), Some(Vec::new())), "{said}");
}

#[test]
fn unknown_words_are_refused() {
    let fence = fence();
    for (flags, named) in [
        (&["--policy", "nist-higher"][..], "accepted: "),
        (&["--policy", ""], "accepted: "),
        (&["--network", "shut"], "accepted: "),
        (&["--filesystem", "ajar"], "accepted: "),
        (&["--privilege", "some"], "accepted: "),
        (&["--harness", "no-such-harness"], "accepted: none, claude-code, codex, grok-build, terminus-2"),
        (&["--leftovers", "eat"], "accepted: "),
        (&["--ledger", "fd:x"], "accepted: "),
        (&["--ledger", ""], "accepted: "),
        (&["--label", "no-equals-sign"], "accepted: "),
        (&["--label", "=value"], "accepted: "),
        (&["--json-status-fd", "x"], "--json-status-fd"),
        (&["--json-status-fd", "77"], "accepted: an open descriptor"),
        (&["--json-status-fd", "1"], "accepted: an open descriptor"),
        (&["--ledger", "fd:77"], "77"),
        (&["--ledger", "fd:1"], "fd:1"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--polcy", "locked"], "did you mean --policy"),
        (&["--control-plane-port", "0"], "--control-plane-port"),
        (&["--control-plane-port", "65536"], "--control-plane-port"),
        (&["--writable", "relative/path"], "accepted: "),
        (&["--writable", "/"], "accepted: "),
        (&["--writable", "/app/../etc"], ".."),
        (&["--read-only", "~other/x"], "~"),
        (&["--writable", "/data", "--read-only", "/data"], "accepted: one of the two"),
        (&["--env-pass", "A=B"], "accepted: "),
    ] {
        refused(&fence, &run(flags), named);
    }
    for arguments in [
        &[][..],
        &["run"],
        &["run", "--"],
        &["run", "--policy"],
        &["run", "true"],
        &["walk"],
        &["run", "--policy", "locked"],
    ] {
        refused(&fence, arguments, "");
    }
}

#[test]
fn entries_that_are_no_host_and_ranges_with_host_bits_are_refused() {
    let fence = fence();
    for entry in [
        "*",
        "",
        ".",
        "*.",
        "**.example.org",
        "a*b.example.org",
        "example.*",
        "https://example.org",
        "example.org/path",
        "user@example.org",
        "example.org:0",
        "example.org:65536",
        "example.org:",
        "exa mple.org",
        "-example.org",
        "example..org",
        "*.*.org",
        "10.0.0.0/8",
        "[::1",
        "ex\u{e4}mple.org",
    ] {
        refused(&fence, &run(&[&format!("--allow-host={entry}")]), "accepted: ");
    }
    for range in ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0", "fd00::1/8", "fd00::/129", "ten/8", "", "/8", "10.0.0.0/-1"]
    {
        refused(&fence, &run(&[&format!("--trust-range={range}")]), "accepted: ");
    }
}

#[test]
fn users_that_are_none_are_refused() {
    let fence = fence();
    for user in ["no-such-user", "-1", "4294967295", "4242:", ":4242", "+5", "0", "root", "4242:0", "dev:x", ""] {
        refused(&fence, &run(&[&format!("--user={user}")]), "");
    }
}

#[test]
fn policies_that_are_none_are_refused_with_file_and_line() {
    let fence = fence();
    for (name, text, named) in [
        ("key", "extends = \"nist-high\"\n\nunknwon = 1\n", "/data/key.toml:3"),
        ("table", "extends = \"nist-high\"\n[nework]\nposture = \"locked\"\n", "/data/table.toml:2"),
        ("type", "extends = 7\n", "/data/type.toml:1"),
        ("level", "extends = \"high\"\n", "/data/level.toml:1"),
        ("torn", "extends = \"nist-high\n", "/data/torn.toml:1"),
        ("host", "extends = \"nist-high\"\nallow-host = [\"*\"]\n", "/data/host.toml:2"),
        ("empty", "", "names no posture"),
    ] {
        fence.world.write(&format!("/data/{name}.toml"), text, 0o644);
        refused(&fence, &run(&["--policy", &format!("/data/{name}.toml")]), named);
    }
    refused(&fence, &run(&["--policy", "/data/missing.toml"]), "/data/missing.toml");
}

#[test]
fn triples_that_cannot_be_held_are_refused() {
    let fence = fence();
    for flags in [["--privilege", "restricted"], ["--privilege", "open"]] {
        refused(&fence, &run(&[&["--policy", "nist-high"], &flags[..]].concat()), "can't be held");
        refused(&fence, &[&["plan", "--policy", "nist-high"], &flags[..]].concat(), "can't be held");
    }
    for flags in [
        ["--network", "restricted"],
        ["--network", "locked"],
        ["--filesystem", "restricted"],
        ["--filesystem", "locked"],
    ] {
        refused(&fence, &run(&[&["--policy", "non-root"], &flags[..]].concat()), "can't be held");
        refused(&fence, &run(&[&["--policy", "control"], &flags[..]].concat()), "can't be held");
    }
    refused(&fence, &run(&["--policy", "control", "--read-only", "/srv"]), "read-only");
}

#[test]
fn places_and_files_in_the_commands_reach_are_refused() {
    let fence = fence();
    let user = own_user();
    as_root(
        &fence,
        &format!(
            "mkdir /data; echo 'extends = \"nist-high\"' > /data/of-user.toml; chown {user} /data/of-user.toml; install -d -o {user} /data/of-user"
        ),
    );
    let user = user.to_string();
    refused(&fence, &run(&["--user", &user, "--policy", "/data/of-user.toml"]), "policy file");
    for place in ["/tmp/l.jsonl", "/app/l.jsonl", "/dev/shm/missing/l.jsonl", "/data/of-user/l.jsonl", "/workspace"] {
        refused(&fence, &run(&["--user", &user, "--ledger", place]), "ledger");
    }
    // A ledger is made, never appended to, and never a link's target.
    as_root(
        &fence,
        "echo kept > /var/log/earlier.jsonl; ln -s /var/log/earlier.jsonl /var/log/link.jsonl; ln -s /var/log/missing /var/log/dangling.jsonl",
    );
    for place in [
        "/var/log/earlier.jsonl",
        "/var/log/link.jsonl",
        "/var/log/dangling.jsonl",
        "/var/log",
        "/etc/passwd/x",
        "/proc/x",
    ] {
        refused(&fence, &run(&["--ledger", place]), "");
    }
    assert_eq!(as_root(&fence, "cat /var/log/earlier.jsonl"), "kept\n");
}

/// Capabilities without which a policy is not carried in part, but not at all.
const CAPABILITIES: [&str; 6] = ["sys_admin", "net_admin", "setpcap", "setuid", "setgid", "chown"];

#[test]
fn a_missing_capability_is_named_by_plan_and_run_alike() {
    let fence = fence();
    for capability in CAPABILITIES {
        let named = format!("CAP_{}", capability.to_uppercase());
        let (drop, bounding) = (format!("--inh-caps=-{capability}"), format!("--bounding-set=-{capability}"));
        let starter = ["setpriv", &drop, &bounding];
        refused_by(&fence, &starter, &run(&["--policy", "nist-high", "--rung", "full"]), &named);
        refused_by(&fence, &starter, &["plan", "--policy", "nist-high", "--rung", "full"], &named);
    }
    // What a policy does not ask for need not be there.
    let said = fence.as_root(&format!(
        "setpriv --inh-caps=-net_admin --bounding-set=-net_admin {RINGFENCE} run --policy non-root -- id -u"
    ));
    assert_eq!(said.code, Some(0), "{said}");
}

#[test]
fn a_refused_mount_call_is_named_by_plan_and_run_alike() {
    let fence = fence();
    for (name, number) in [
        ("unshare", libc::SYS_unshare),
        ("mount", libc::SYS_mount),
        ("open_tree", libc::SYS_open_tree),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("fsopen", libc::SYS_fsopen),
        ("move_mount", libc::SYS_move_mount),
        ("umount2", libc::SYS_umount2),
    ] {
        let number = number.to_string();
        let starter = [ATTEMPTS, "without", &number];
        let named = if name == "fsopen" { "fsmount" } else { name };
        refused_by(&fence, &starter, &run(&["--policy", "nist-high", "--rung", "full"]), named);
        refused_by(&fence, &starter, &["plan", "--policy", "nist-high", "--rung", "full"], named);
    }
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let fence = fence();
    let user = own_user().to_string();
    let starter = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    refused_by(&fence, &starter, &run(&["--policy", "nist-high", "--rung", "full"]), "root");
    refused_by(&fence, &starter, &["plan", "--policy", "nist-high", "--rung", "full"], "root");
}
