//! What is shielded is as it was when the run is sealed, or the seal names what differs (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::{ShieldState, ShieldsEnd};
use rung::{Rung, WORKSPACE};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SHIELD: &str = "/srv/reference";

fn prepared() -> Fence {
    let fence = Fence::new();
    as_root(
        &fence,
        &format!(
            "mkdir -p {SHIELD}/deep; for f in one two deep/three; do echo $f > {SHIELD}/$f; done; chmod 0644 {SHIELD}/*"
        ),
    );
    fence
}

/// What a command does during which something else happens in its working directory.
const WAITS: &str = "touch started; for i in $(seq 400); do [ -e go ] && exit 0; sleep 0.05; done; exit 9";

/// A run during which root, outside of the sandbox, does something to what is shielded.
fn during(fence: &Fence, change: &str) -> Ended {
    let (command, ledger) = fence.command(&["--shield", SHIELD], &["bash", "-c", &format!("cd /app; {WAITS}")]);
    changed_during(fence, command, ledger, "/app", change, |command| fence.start(command))
}

/// The same of a run that this starts, whose working directory is `at`.
fn changed_during(
    fence: &Fence,
    mut command: Command,
    ledger: String,
    at: &str,
    change: &str,
    start: impl FnOnce(Command) -> Child,
) -> Ended {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = start(command);
    let deadline = Instant::now() + Duration::from_secs(30);
    while fence.world.read(&format!("{at}/started")).is_none() {
        assert!(Instant::now() < deadline, "it has not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    as_root(fence, &format!("{change}; touch {at}/go"));
    let output = child.wait_with_output().expect("the run");
    let ended = fence.ended(world::Said::from(output), ledger);
    as_root(fence, &format!("rm -f {at}/started {at}/go"));
    ended
}

fn shields(ended: &Ended) -> &ShieldsEnd {
    ended.seal().shields.as_ref().unwrap_or_else(|| panic!("the seal says nothing of shields: {ended}"))
}

#[test]
fn a_replaced_file_a_mode_change_and_an_added_file_are_each_found_at_the_seal() {
    let fence = prepared();
    for (change, path, what) in [
        ("echo other > /srv/reference/new && mv /srv/reference/new /srv/reference/two", "two", "contents"),
        ("chmod 0666 /srv/reference/one", "one", "mode 0644 to 0666"),
        ("touch /srv/reference/deep/added", "deep/added", "added"),
        ("rm /srv/reference/deep/added", "deep/added", "removed"),
        ("chown 7:8 /srv/reference/one", "one", "owner (0, 0) to (7, 8)"),
    ] {
        let ended = during(&fence, change);
        assert_eq!(ended.said.code, Some(0), "the command's own status stays: {ended}");
        let end = shields(&ended);
        assert_eq!(end.state, ShieldState::Altered, "{ended}");
        let found: Vec<(&str, &str)> = end.changes.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect();
        assert_eq!(found, [(format!("{SHIELD}/{path}").as_str(), what)], "{ended}");
        assert!(ended.said.err.contains(&format!("shields altered: {SHIELD}/{path} ({what})")), "{ended}");
        // The record itself is whole: it is what was kept that is not.
        assert!(ended.seal().complete);
        let verified = fence.verify(&ended.ledger);
        assert_eq!(verified.code, Some(1), "{verified}");
        assert!(verified.out.contains(&format!("shields altered: {SHIELD}/{path} ({what})")), "{verified}");
    }
}

#[test]
fn what_is_left_alone_is_intact_and_its_digest_is_the_same_in_every_run() {
    let fence = prepared();
    let runs = [during(&fence, "true"), during(&fence, "cat /srv/reference/one")];
    for ended in &runs {
        assert_eq!(shields(ended), &ShieldsEnd::of(Vec::new()), "{ended}");
        assert!(!ended.said.err.contains("ringfence"), "{ended}");
        assert_eq!(fence.verify(&ended.ledger).code, Some(0));
    }
    let digest = |ended: &Ended| ended.start().shields[0].digest.clone();
    assert_eq!(digest(&runs[0]), digest(&runs[1]));
    as_root(&fence, "mv /srv/reference/one /srv/reference/uno");
    let renamed = during(&fence, "true");
    assert_ne!(digest(&renamed), digest(&runs[0]), "names count");
}

#[test]
fn what_could_not_be_looked_into_is_counted_and_a_change_in_it_is_found() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in [Rung::Rootless, Rung::Bare] {
        let fence = prepared();
        rung::prepare(&fence, user, &home);
        let closed = format!("{SHIELD}/deep");
        // A directory that is closed, one whose names alone are to be read, and a file.
        let close = format!(
            "mkdir {SHIELD}/named; touch {SHIELD}/named/a; chmod 700 {closed}; chmod 744 {SHIELD}/named; chmod 600 {SHIELD}/two"
        );
        as_root(&fence, &close);
        let run = |change: &str| {
            let flags = ["--shield", SHIELD];
            let (command, ledger) = rung.command(&fence, user, &home, &flags, &["bash", "-c", WAITS]);
            let start = |command| fence.world.spawn_with(&rung.less(user), command).expect("the run");
            let ended = changed_during(&fence, command, ledger, WORKSPACE, change, start);
            as_root(&fence, &format!("rm {}", ended.ledger));
            ended
        };
        let ended = run("true");
        let end = shields(&ended);
        assert_eq!((end.state, end.closed), (ShieldState::Intact, 3), "{rung:?}: {ended}");
        let shield = &ended.start().shields[0];
        assert_eq!((shield.closed, shield.entries), (3, 5), "{rung:?}: {ended}");
        for (change, path) in [
            ("touch /srv/reference/deep/added", "deep"),
            ("touch /srv/reference/named/added", "named"),
            ("echo other > /srv/reference/two", "two"),
            ("chmod 711 /srv/reference/deep", "deep"),
        ] {
            let ended = run(change);
            let end = shields(&ended);
            let found: Vec<&str> = end.changes.iter().map(|change| change.path.as_str()).collect();
            assert_eq!(end.state, ShieldState::Altered, "{rung:?}: {change}: {ended}");
            assert!(found.contains(&format!("{SHIELD}/{path}").as_str()), "{rung:?}: {change}: {ended}");
        }
    }
    let fence = prepared();
    let ended = during(&fence, "true");
    assert_eq!((shields(&ended).closed, ended.start().shields[0].closed), (0, 0), "root looks into everything");
}

#[test]
fn the_status_line_says_what_has_become_of_them() {
    let fence = prepared();
    let ringfence = common::RINGFENCE;
    for (change, state) in [("true", "intact"), ("touch /srv/reference/new", "altered")] {
        let run = format!(
            "{ringfence} run --shield {SHIELD} --ledger /var/log/{state}.jsonl --json-status-fd 3 3>/tmp/status"
        );
        let said = fence.as_root(&format!("{run} -- sleep 3 & sleep 2.5; {change}; wait $!; cat /tmp/status"));
        assert!(said.out.contains(&format!(r#""shields":"{state}""#)), "{said}");
    }
}

#[test]
fn a_workspace_that_changes_hands_for_the_run_alters_no_shield_in_it() {
    let fence = prepared();
    as_root(&fence, "mkdir -p /app/reference; echo x > /app/reference/a");
    let ended = fence.run(&["--shield", "/app/reference"], "cat /app/reference/a; rm -rf /app/reference; touch /app/x");
    assert_eq!(shields(&ended).state, ShieldState::Intact, "{ended}");
    assert_eq!(as_root(&fence, "cat /app/reference/a"), "x\n");
    let open = fence.run(&[], "rm -rf /app/reference; touch /app/x");
    assert_eq!(open.said.code, Some(0));
    assert!(fence.world.read("/app/reference/a").is_none(), "live vector: without a shield it goes");
}

#[test]
fn a_run_without_shields_says_nothing_of_them() {
    let fence = prepared();
    let ended = fence.run(&[], "true");
    assert!(ended.seal().shields.is_none() && ended.start().shields.is_empty());
    let line = String::from_utf8(fence.world.read(&ended.ledger).unwrap()).unwrap();
    assert!(!line.contains("\"shields\":"), "{line}");
}
