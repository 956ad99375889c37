//! The files that steer or record a run are out of the command's reach: where they would not be, nothing starts; where they
//! are, they are neither read, written, replaced nor followed (case F06).

mod attempts;
mod common;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::Body;

/// What lies where a run could leave something.
fn listing(fence: &Fence) -> String {
    as_root(
        fence,
        "find /srv /tmp /data /var/log /home -printf '%p %u:%g %m %s\\n' 2>/dev/null | sort; cat /proc/self/mountinfo; nft list ruleset",
    )
}

fn refused(fence: &Fence, flags: &[&str], named: &str) {
    let before = listing(fence);
    // The ledger's place is the test's to name, or the default one.
    let mut command = fence.world.command(common::RINGFENCE);
    command.arg("run").args(flags).args(["--", "touch", "/tmp/started"]);
    let said = world::Said::from(fence.world.output(command));
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(125), 1, ""), "{flags:?}: {said}");
    assert!(said.err.contains(named), "{flags:?}: {said}");
    assert_eq!(listing(fence), before, "{flags:?}");
}

#[test]
fn a_place_that_the_command_could_write_is_refused() {
    let fence = Fence::new();
    let user = own_user();
    as_root(
        &fence,
        &format!(
            "mkdir -p /data/of-user/sub /data/safe /data/open /data/of-group /app/sub; chown {user}:{user} /data/of-user; chmod 0777 /data/open
             chgrp {user} /data/of-group; chmod 0775 /data/of-group
             for place in of-user of-user/sub safe open of-group; do echo 'extends = \"nist-high\"' > /data/$place/policy.toml; done
             echo 'extends = \"nist-high\"' > /app/policy.toml; echo 'extends = \"nist-high\"' > /tmp/policy.toml
             echo 'extends = \"nist-high\"' > /data/safe/of-user.toml; chown {user} /data/safe/of-user.toml
             echo 'extends = \"nist-high\"' > /data/safe/open.toml; chmod 0666 /data/safe/open.toml
             ln -s /data/of-user/policy.toml /data/safe/link.toml; ln -s /data/of-user /data/safe/directory
             ln -s /data/safe/policy.toml /data/of-user/link.toml; chown -h {user} /data/of-user/link.toml"
        ),
    );
    let user = format!("{user}:{user}");
    for place in [
        "/data/of-user/policy.toml",
        "/data/of-user/sub/policy.toml",
        "/data/open/policy.toml",
        "/data/of-group/policy.toml",
        "/data/safe/of-user.toml",
        "/data/safe/open.toml",
        "/data/safe/link.toml",
        "/data/safe/directory/policy.toml",
        "/data/of-user/link.toml",
        "/app/policy.toml",
        "/tmp/policy.toml",
    ] {
        refused(&fence, &["--user", &user, "--policy", place], "policy file");
    }
    for place in [
        "/data/of-user/l.jsonl",
        "/data/of-user/sub/l.jsonl",
        "/data/of-user/missing/l.jsonl",
        "/data/open/l.jsonl",
        "/data/of-group/l.jsonl",
        "/data/safe/directory/l.jsonl",
        "/app/l.jsonl",
        "/app/sub/missing/l.jsonl",
        "/tmp/l.jsonl",
        "/dev/shm/l.jsonl",
    ] {
        refused(&fence, &["--user", &user, "--ledger", place], "ledger");
    }
    // The default place as well: a log group's directory, say.
    as_root(&fence, &format!("chgrp {0} /var/log; chmod g+w /var/log", own_user()));
    refused(&fence, &["--user", &user], "ledger");
    as_root(&fence, "chgrp 0 /var/log; chmod g-w /var/log");
    // The same flags with safe places start.
    let mut command = fence.world.command(common::RINGFENCE);
    command.args([
        "run",
        "--user",
        &user,
        "--policy",
        "/data/safe/policy.toml",
        "--ledger",
        "/data/safe/l.jsonl",
        "--",
    ]);
    command.args(["touch", "/tmp/started"]);
    let said = world::Said::from(fence.world.output(command));
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(fence.world.read("/tmp/started"), Some(Vec::new()));
}

#[test]
fn a_policy_that_cannot_be_read_is_no_run() {
    let fence = Fence::new();
    as_root(
        &fence,
        "mkdir -p /data; echo 'extends = ' > /data/torn.toml; echo '{}' > /data/json.toml; : > /data/empty.toml
         printf 'extends = \"nist-high\"\\nunknown = 1\\n' > /data/key.toml; mkdir /data/directory.toml; ln -s /data/missing /data/dangling.toml
         head -c 1000 /dev/urandom > /data/bytes.toml",
    );
    for (name, named) in [
        ("missing.toml", "missing.toml"),
        ("dangling.toml", "dangling.toml"),
        ("directory.toml", "directory.toml"),
        ("torn.toml", "torn.toml:1"),
        ("json.toml", "json.toml"),
        ("empty.toml", "names no posture"),
        ("key.toml", "key.toml:2"),
        ("bytes.toml", "bytes.toml"),
    ] {
        refused(&fence, &["--policy", &format!("/data/{name}")], named);
    }
}

#[test]
fn policy_ledger_and_program_are_masked_and_the_policy_is_read_once() {
    let fence = Fence::new();
    attempts::install(&fence.world);
    as_root(
        &fence,
        "mkdir -p /data/policy; echo 'extends = \"nist-high\"' > /data/policy/p.toml; ls -la /var/log/ringfence 2>/dev/null || true",
    );
    let ringfence = common::RINGFENCE;
    // A ledger that an earlier run has left is no more readable than the own one.
    let earlier = fence.run(&["--policy", "nist-high"], "true");
    assert_eq!(earlier.said.code, Some(0), "{earlier}");
    let script = format!(
        "for path in /data/policy/p.toml {ringfence} /var/log/ringfence/*; do
            (cat $path) 2>&1 | grep -o 'Permission denied'; (echo x > $path) 2>&1 | grep -o 'Read-only.*\\|Permission denied'
            mv $path $path.moved 2>&1 | grep -o 'Read-only.*\\|Device or resource busy\\|Permission denied'; rm -f $path 2>&1 | grep -o 'Read-only.*\\|Device or resource busy\\|Permission denied'
        done; (mv /data/policy /data/moved) 2>&1 | grep -o 'Permission denied'; {ringfence} --version 2>&1 | grep -o 'Permission denied'
        find / -xdev -perm -002 ! -type l \\( -name '*.jsonl' -o -name '*.toml' -o -name '*.owners' \\) 2>/dev/null | wc -l"
    );
    let digest = |ended: &Ended| ended.start().policy_digest.clone();
    let ended = fence.run(&["--policy", "/data/policy/p.toml"], &script);
    assert!(ended.said.out.ends_with("\n0\n"), "{ended}");
    let lines: Vec<&str> = ended.said.out.lines().collect();
    assert!(lines.len() >= 4 * 3 + 2, "{ended}");
    let kinds = ["Permission denied", "Read-only file system", "Device or resource busy"];
    assert!(lines[..lines.len() - 1].iter().all(|line| kinds.contains(line)), "{ended}");
    assert!(lines.iter().filter(|line| **line == "Permission denied").count() >= 5, "{ended}");
    let again = fence.run(&["--policy", "/data/policy/p.toml"], "true");
    assert_eq!(digest(&ended), digest(&again));
    // For root outside nothing is covered.
    as_root(&fence, "cat /data/policy/p.toml /var/log/ringfence/*.jsonl > /dev/null");
}

#[test]
fn the_policy_may_change_in_mid_run_and_the_run_does_not() {
    use std::io::{BufRead, BufReader, Read, Write};
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /data/policy; echo 'extends = \"nist-high\"' > /data/policy/p.toml");
    let script = "echo running; read line; (echo x > /usr/x) 2>&1 | grep -o 'Read-only.*'";
    let (mut command, ledger) = fence.command(&["--policy", "/data/policy/p.toml"], &["bash", "-c", script]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    as_root(
        &fence,
        "echo 'extends = \"control\"' > /data/policy/new.toml; mv /data/policy/new.toml /data/policy/p.toml",
    );
    child.stdin.take().expect("piped").write_all(b"\n").expect("the command reads");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    let status = child.wait().expect("wait");
    let ended = fence.ended(world::Said { code: status.code(), out: rest, err: String::new() }, ledger);
    let starts = ended.records.iter().filter(|record| matches!(record.body, Body::Start(_))).count();
    assert_eq!(starts, 1, "{ended}");
    assert_eq!(ended.said.out, "Read-only file system\n", "{ended}");
}

#[test]
fn at_locked_a_policy_in_a_masked_home_is_fine() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /root/conf; echo 'extends = \"locked\"' > /root/conf/p.toml");
    let ended = fence.run(
        &["--policy", "/root/conf/p.toml"],
        "cat /root/conf/p.toml /root/.bashrc 2>&1 | grep -c 'Permission denied'",
    );
    assert_eq!((ended.said.out.as_str(), ended.said.code), ("2\n", Some(0)), "{ended}");
}
