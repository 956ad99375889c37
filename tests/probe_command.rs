//! `ringfence probe`: it holds on every rung and says so, it fails where a policy does not hold, it ends in time, and it leaves
//! nothing.

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, RINGFENCE, as_root, assert_left_nothing, own_user, survey};
use ringfence::ledger::record::{Body, Outcome, Probe};
use rung::{RUNGS, Rung, WORKSPACE, prepare};
use serde_json::Value;
use std::process::{Command, Stdio};
use world::Said;

const LEDGER: &str = "/var/log/ringfence/probe.jsonl";

/// `ringfence probe FLAGS` as root, and its record.
fn probe(fence: &Fence, flags: &[&str]) -> Ended {
    as_root(fence, &format!("rm -f {LEDGER}"));
    let mut command = fence.ringfence(&["probe", "--ledger", LEDGER]);
    command.args(flags);
    fence.ended(fence.output(command), LEDGER.into())
}

/// The outcomes of `--format json` by id.
fn rows(ended: &Ended) -> Vec<(String, String, String)> {
    let value: Value = serde_json::from_str(&ended.said.out).unwrap_or_else(|cause| panic!("{cause}: {ended}"));
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = value["probes"].as_array().expect("rows");
    rows.iter().map(|row| (text(row, "id"), text(row, "outcome"), text(row, "seen"))).collect()
}

fn with<'a>(rows: &'a [(String, String, String)], outcome: &str) -> Vec<&'a str> {
    rows.iter().filter(|row| row.1 == outcome).map(|row| row.0.as_str()).collect()
}

fn recorded(ended: &Ended) -> Vec<&Probe> {
    let probes = ended.records.iter().filter_map(|record| match &record.body {
        Body::Probe(probe) => Some(probe),
        _ => None,
    });
    probes.collect()
}

fn on(rung: Rung, fence: &Fence, user: u32, home: &str) -> Ended {
    let (run, ledger) = rung.command(fence, user, home, &["--format", "json"], &[]);
    let arguments = run.get_args().skip(1).take_while(|argument| *argument != "--");
    let mut command = fence.world.command(RINGFENCE);
    command.current_dir(WORKSPACE).env("HOME", home).arg("probe").args(arguments);
    let said = Said::from(fence.world.output_with(&rung.less(user), command));
    fence.ended(said, ledger)
}

#[test]
fn nist_high_holds_on_every_rung_and_nothing_is_left() {
    let fence = Fence::new();
    let user = own_user();
    let home = format!("/home/{user}");
    prepare(&fence, user, &home);
    as_root(&fence, &format!("mkdir -p {WORKSPACE}/.git/hooks && chown -R {user}:{user} {WORKSPACE}"));
    let look = format!("find {WORKSPACE} {home} -printf '%p %y %m %U %G\\n' | sort");
    let (before, files) = (survey(&fence), as_root(&fence, &look));
    let list = as_root(&fence, &format!("{RINGFENCE} probe --list --format json"));
    let suite: Vec<Value> = serde_json::from_str(&list).expect("a list");
    for rung in RUNGS {
        let ended = on(rung, &fence, user, &home);
        assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(0), ""), "{rung:?}: {ended}");
        let rows = rows(&ended);
        let (passed, skipped) = (with(&rows, "passed"), with(&rows, "skipped"));
        println!("{rung:?}: {} passed, not here: {skipped:?}", passed.len());
        assert!(passed.len() > 55 && with(&rows, "failed").is_empty(), "{rung:?}: {ended}");
        assert_eq!(passed.iter().filter(|id| id.starts_with("trace.")).count(), 7, "{ended}");
        // It is tried where the list says that it is.
        let listed =
            |id: &str| suite.iter().any(|one| one["id"] == id && one["rungs"].to_string().contains(rung.name()));
        let strays: Vec<&&str> = passed.iter().filter(|id| !id.starts_with("trace.") && !listed(id)).collect();
        assert!(strays.is_empty(), "{rung:?}: the list has them on other rungs: {strays:?}");
        // The record says the same.
        assert!(recorded(&ended).iter().all(|probe| probe.passed && passed.contains(&probe.id.as_str())), "{ended}");
        assert_eq!(recorded(&ended).len(), passed.len(), "{ended}");
        assert_eq!((ended.start().rung.as_str(), ended.start().command.len()), (rung.name(), 0), "{ended}");
        let seal = ended.seal();
        assert!(!seal.started && seal.outcome == Outcome::NotStarted && seal.exit_code == Some(0), "{ended}");
        assert!(seal.complete, "{ended}");
        assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{ended}");
        assert_left_nothing(&fence, &before, rung.name());
        assert_eq!(as_root(&fence, &look), files, "{rung:?}");
    }
}

#[test]
fn control_has_nothing_to_try_and_says_so() {
    let fence = Fence::new();
    let ended = probe(&fence, &["--policy", "control"]);
    assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(0), ""), "{ended}");
    assert!(ended.said.out.contains("nothing to try: no restriction is in force"), "{ended}");
    assert!(recorded(&ended).iter().all(|probe| probe.id.starts_with("trace.")), "{ended}");
}

#[test]
fn a_policy_that_cannot_be_held_is_refused_by_name() {
    let fence = Fence::new();
    let ended = probe(&fence, &["--policy", "control", "--network", "restricted"]);
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{ended}");
    assert!(ended.said.err.starts_with("ringfence: plan: ") && ended.said.err.lines().count() == 1, "{ended}");
    assert!(ended.records.is_empty(), "{ended}");
}

#[test]
fn only_those_that_are_named_are_tried() {
    let fence = Fence::new();
    let tried = |patterns: &[&str]| {
        let ended = probe(&fence, &[&["--format", "json", "--only"], patterns].concat());
        assert_eq!(ended.said.code, Some(0), "{ended}");
        let rows = rows(&ended);
        let passed = with(&rows, "passed").into_iter().filter(|id| !id.starts_with("trace."));
        passed.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tried(&["network.direct.udp"]), ["network.direct.udp"]);
    let some = tried(&["filesystem.direct.*", "*.no-new-privs"]);
    assert!(some.contains(&"filesystem.direct.create".to_owned()), "{some:?}");
    assert!(some.contains(&"privilege.direct.no-new-privs".to_owned()), "{some:?}");
    assert!(some.iter().all(|id| id.starts_with("filesystem.direct.") || id.ends_with("no-new-privs")), "{some:?}");
    // What was told is held against all that was refused.
    assert_eq!(tried(&["network.direct.firewall-log"]), ["network.direct.firewall-log"]);
    let none = probe(&fence, &["--only", "network.direct.tpc"]);
    assert_eq!((none.said.code, none.said.out.as_str()), (Some(125), ""), "{none}");
    assert!(none.said.err.contains("--only \"network.direct.tpc\" names no probe; accepted: "), "{none}");
}

/// A suite of the caller's: one expectation that the policy meets, and one that it does not.
const SUITE: &str = r#"
[[probe]]
id = "network.direct.own-address"
title = "The database is out of reach"
restrictions = ["direct-egress"]
class = "direct"
operation = { tcp = ["10.1.2.3:5432"] }
expect = ["ECONNREFUSED", "ENETUNREACH"]
why = "What the task needs is in the workspace."

[[probe]]
id = "network.enablement.mirror"
title = "The mirror's name is admitted"
restrictions = ["egress-allowlist"]
class = "enablement"
operation = { proxy = "CONNECT mirror.invalid:443 HTTP/1.1\r\nHost: mirror.invalid:443\r\n\r\n" }
expect = ["200"]
why = "Packages come from there."
"#;

#[test]
fn a_suite_of_the_callers_is_tried_besides_and_its_failure_is_one() {
    let fence = Fence::new();
    as_root(&fence, "mkdir /srv/suite");
    fence.world.write("/srv/suite/own.toml", SUITE, 0o644);
    let ended = probe(&fence, &["--probes", "/srv/suite", "--format", "json"]);
    assert_eq!((ended.said.code, ended.said.err.as_str()), (Some(1), ""), "{ended}");
    let rows = rows(&ended);
    assert_eq!(with(&rows, "failed"), ["network.enablement.mirror"], "{ended}");
    assert!(with(&rows, "passed").contains(&"network.direct.own-address"), "{ended}");
    assert!(rows.iter().any(|row| row.0 == "network.enablement.mirror" && row.2 == "403"), "{ended}");
    assert_eq!(ended.seal().exit_code, Some(1), "{ended}");
    let text = probe(&fence, &["--probes", "/srv/suite"]);
    assert!(text.said.out.contains("network.enablement.mirror: Packages come from there."), "{text}");

    fence.world.write("/srv/suite/own.toml", SUITE.replace("own-address", "tcp"), 0o644);
    let taken = probe(&fence, &["--probes", "/srv/suite"]);
    assert_eq!(taken.said.code, Some(125), "{taken}");
    let expected = "/srv/suite/own.toml:2: the id \"network.direct.tcp\" is taken by a probe of probes/network.toml";
    assert!(taken.said.err.contains(expected) && taken.said.err.lines().count() == 1, "{taken}");
}

#[test]
fn paths_and_sockets_of_ones_own_are_tried() {
    let fence = Fence::new();
    as_root(&fence, "mkdir /srv/suite && touch /srv/closed && chmod 600 /srv/closed");
    let one = |id: &str, restriction: &str, operation: &str, expect: &str| {
        format!(
            "[[probe]]\nid = \"{id}\"\ntitle = \"x\"\nrestrictions = [\"{restriction}\"]\nclass = \"{}\"\n\
             operation = {{ {operation} }}\nexpect = [\"{expect}\"]\nwhy = \"x\"\n",
            id.split('.').nth(1).expect("a class")
        )
    };
    let files = "read-only-trees";
    let suite = [
        one("filesystem.direct.a", files, "create-in = [\"/srv\", \"/usr\"]", "EROFS"),
        one("filesystem.enablement.b", files, "create-in = [\"/tmp\", \"/dev/shm\"]", "ok"),
        one("filesystem.direct.c", files, "open-for-reading = [\"/srv/closed\"]", "EACCES"),
        one("filesystem.enablement.d", files, "open-for-reading = [\"/etc/passwd\", \"/usr\"]", "ok"),
        one("filesystem.direct.e", files, "connect-unix = [\"/run/none\"]", "ENOENT"),
        one("filesystem.direct.f", files, "connect-unix = [\"/tmp/live\"]", "EACCES"),
    ];
    fence.world.write("/srv/suite/own.toml", suite.concat(), 0o644);
    let listens = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/live'); \
                   __import__('os').chmod('/tmp/live', 0o777); s.listen(); time.sleep(60)";
    let mut command = fence.world.command("python3");
    command.args(["-c", listens]);
    let mut server = fence.world.spawn(command).expect("python3");
    while fence.as_root("test -S /tmp/live").code != Some(0) {}
    let ended = probe(
        &fence,
        &["--probes", "/srv/suite", "--only", "*.a", "*.b", "*.c", "*.d", "*.e", "*.f", "--format", "json"],
    );
    server.kill().expect("kill");
    server.wait().expect("wait");
    let rows = rows(&ended);
    // A socket that lies in the writable set and is open to all is reached, and is seen to be.
    assert_eq!(with(&rows, "failed"), ["filesystem.direct.f"], "{ended}");
    assert!(rows.iter().any(|row| row.0 == "filesystem.direct.f" && row.2 == "ok"), "{ended}");
    assert_eq!(with(&rows, "passed").iter().filter(|id| !id.starts_with("trace.")).count(), 5, "{ended}");
}

#[test]
fn junit_and_tap_of_a_run_are_read_by_their_usual_readers() {
    let fence = Fence::new();
    as_root(&fence, "mkdir /srv/suite");
    fence.world.write("/srv/suite/own.toml", SUITE, 0o644);
    let tap = probe(&fence, &["--probes", "/srv/suite", "--format", "tap"]);
    assert_eq!(tap.said.code, Some(1), "{tap}");
    let source = "use TAP::Parser; local $/; my $p = TAP::Parser->new({tap => <STDIN>}); $p->run; \
                  print scalar($p->parse_errors), ' ', scalar($p->failed), ' ', $p->tests_run > 70 ? 'many' : 'few'";
    assert_eq!(read_by("perl", &["-e", source], &tap.said.out), "0 1 many");
    let junit = probe(&fence, &["--probes", "/srv/suite", "--format", "junit"]);
    assert_eq!(junit.said.code, Some(1), "{junit}");
    let source = "import sys, xml.etree.ElementTree as t; r = t.fromstring(sys.stdin.read()); \
                  print([c.get('name') for c in r.iter('testcase') if c.find('failure') is not None], len(r))";
    assert_eq!(read_by("python3", &["-c", source], &junit.said.out), "['network.enablement.mirror'] 3\n");
}

fn read_by(program: &str, arguments: &[&str], text: &str) -> String {
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect(program);
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), text.as_bytes()).expect("write");
    let said = child.wait_with_output().expect("its end");
    assert!(said.status.success(), "{program}: {said:?}");
    String::from_utf8(said.stdout).expect("UTF-8")
}

#[test]
fn what_hangs_is_ended_in_time_and_leaves_nothing() {
    let fence = Fence::new();
    as_root(&fence, "mkdir /srv/suite");
    // No request ever ends: the proxy waits for the rest of it, and each probe for an answer.
    let hangs: String = (0..20)
        .map(|n| {
            let own =
                SUITE[SUITE.rfind("[[probe]]").expect("the second")..].replace("mirror\"", &format!("mirror-{n}\""));
            own.replace("\\r\\n\\r\\n", "\\r\\n")
        })
        .collect();
    fence.world.write("/srv/suite/own.toml", hangs, 0o644);
    let before = survey(&fence);
    let begun = std::time::Instant::now();
    let ended = probe(&fence, &["--probes", "/srv/suite", "--timeout", "2"]);
    let took = begun.elapsed().as_secs();
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{ended}");
    let told =
        "the 2 s of --timeout were over before the probes came to their end; accepted: --timeout with more seconds";
    assert!(ended.said.err.contains(told) && ended.said.err.lines().count() == 1, "{ended}");
    assert!((1..20).contains(&took), "{took} s: {ended}");
    assert!(!ended.seal().started, "{ended}");
    assert_left_nothing(&fence, &before, "a hanging probe");
}

#[test]
fn a_set_up_that_takes_all_of_the_time_is_told_as_that() {
    let fence = Fence::new();
    let mut command = fence.ringfence(&["probe", "--timeout", "1", "--ledger", LEDGER]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = fence.start(command);
    // Once it has a process of its own it is at the set-up.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    while std::fs::read_to_string(&children).is_ok_and(|list| list.trim().is_empty()) {}
    let held_up = |signal: &str| Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(held_up("-STOP").success());
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(held_up("-CONT").success());
    let ended = fence.ended(Said::from(child.wait_with_output().expect("its end")), LEDGER.into());
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{ended}");
    let told = "ringfence: probe: the 1 s of --timeout were over ";
    assert!(ended.said.err.starts_with(told) && ended.said.err.lines().count() == 1, "{ended}");
    assert!(ended.said.err.contains("accepted: --timeout with more seconds"), "{ended}");
}

/// What a run sees of what is done while its probes are under way.
fn meanwhile(script: &str, undo: &str) -> Ended {
    let fence = Fence::new();
    as_root(&fence, "mkdir /srv/suite && mkdir -p /mnt/left /workspace");
    let slow = SUITE[SUITE.rfind("[[probe]]").expect("the second")..].replace("\\r\\n\\r\\n", "\\r\\n");
    fence.world.write("/srv/suite/own.toml", slow, 0o644);
    let mut command = fence.ringfence(&["probe", "--probes", "/srv/suite", "--ledger", LEDGER, "--format", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = fence.start(command);
    // The slow probe takes five seconds; the record is begun before anything is compared.
    while fence.world.read(LEDGER).is_none_or(|text| text.is_empty()) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    as_root(&fence, script);
    let ended = fence.ended(Said::from(child.wait_with_output().expect("its end")), LEDGER.into());
    as_root(&fence, undo);
    ended
}

#[test]
fn what_would_be_of_a_run_s_doing_is_named() {
    let (script, undo) = (
        "mount --bind /workspace /workspace; touch /workspace/.preflight-99999999",
        "rm /workspace/.preflight-99999999; umount /workspace",
    );
    let ended = meanwhile(script, undo);
    let rows = rows(&ended);
    let seen = |id: &str| rows.iter().find(|row| row.0 == id).map(|row| (row.1.as_str(), row.2.as_str()));
    let (mounts, files) = (seen("trace.mounts").expect("a row"), seen("trace.files").expect("a row"));
    assert!(mounts.0 == "failed" && mounts.1.starts_with("new: ") && mounts.1.ends_with(" at /workspace"), "{ended}");
    assert!(files.0 == "failed" && files.1.starts_with("new: /workspace/.preflight-99999999 mode "), "{ended}");
    assert_eq!(ended.said.code, Some(1), "{ended}");
}

#[test]
fn what_others_mount_and_make_meanwhile_is_no_fault_of_a_run() {
    let script = "mount -t tmpfs left /mnt/left; mkdir /mnt/left/merged; mount --bind /srv /mnt/left/merged; \
                  touch /workspace/.left /tmp/.left /root/.left /dev/shm/.left";
    let undo = "umount /mnt/left/merged /mnt/left; rm /workspace/.left /tmp/.left /root/.left /dev/shm/.left";
    let ended = meanwhile(script, undo);
    let rows = rows(&ended);
    let passed = with(&rows, "passed");
    assert!(passed.contains(&"trace.mounts") && passed.contains(&"trace.files"), "{ended}");
}

#[test]
fn a_host_that_does_not_grant_something_fails_by_the_probes_name() {
    let fence = Fence::new();
    // What the host closes by its mode is not readable inside either.
    as_root(&fence, "chmod 0700 /");
    let ended = probe(&fence, &["--format", "json", "--rung", "full"]);
    as_root(&fence, "chmod 0755 /");
    assert_eq!(ended.said.code, Some(1), "{ended}");
    let rows = rows(&ended);
    assert!(with(&rows, "failed").contains(&"filesystem.enablement.read"), "{ended}");
    assert!(with(&rows, "passed").contains(&"privilege.direct.ids"), "the others are tried all the same: {ended}");
    let limited = {
        let mut command = fence.world.command("prlimit");
        command.args(["--nproc=1:1", RINGFENCE, "probe", "--rung", "full", "--ledger", "/var/log/ringfence/2.jsonl"]);
        Said::from(fence.world.output(command))
    };
    assert!(limited.code == Some(1) && limited.out.contains("privilege.enablement.fork"), "{limited}");
}

#[test]
fn progress_is_for_a_terminal_alone() {
    let fence = Fence::new();
    let probe = format!("{RINGFENCE} probe --only \\*.no-new-privs --ledger {LEDGER}");
    let shown = as_root(&fence, &format!("script -qec '{probe} >/tmp/out' /dev/null"));
    assert!(shown.contains("ringfence: trying the policy"), "{shown:?}");
    let out = as_root(&fence, "cat /tmp/out");
    assert!(out.contains("privilege.direct.no-new-privs") && !out.contains("trying"), "{out}");
}

#[test]
fn the_suite_is_printed_without_privilege() {
    let fence = Fence::new();
    let list =
        fence.as_nobody(&format!("{RINGFENCE} probe --list; {RINGFENCE} probe --list --format json --only '*.tcp'"));
    assert_eq!((list.code, list.err.as_str()), (Some(0), ""), "{list}");
    assert!(list.out.contains("filesystem.direct.create") && list.out.contains("\"operation\": {"), "{list}");
    let explained = fence.as_nobody(&format!("{RINGFENCE} probe --explain privilege.direct.ids"));
    assert!(explained.out.contains("why:           Real, effective and saved ids are the account's."), "{explained}");
    for flags in ["--explain nothing", "--list --format tap", "--probes /none"] {
        let said = fence.as_nobody(&format!("{RINGFENCE} probe {flags}"));
        assert!(said.code == Some(125) && said.err.lines().count() == 1 && said.out.is_empty(), "{flags}: {said}");
    }
}
