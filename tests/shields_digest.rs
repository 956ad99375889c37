//! What is shielded is as it was when the run is sealed, or the seal names what differs (issue 7).

mod common;

use common::{Ended, Fence, as_root};
use ringfence::ledger::record::{ShieldState, ShieldsEnd};
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

/// A run during which root, outside of the sandbox, does something to what is shielded.
fn during(fence: &Fence, change: &str) -> Ended {
    let script = "touch /app/started; for i in $(seq 400); do [ -e /app/go ] && exit 0; sleep 0.05; done; exit 9";
    let (command, ledger) = fence.command(&["--shield", SHIELD], &["bash", "-c", script]);
    let mut command = command;
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = fence.start(command);
    let deadline = Instant::now() + Duration::from_secs(30);
    while fence.world.read("/app/started").is_none() {
        assert!(Instant::now() < deadline, "it has not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    as_root(fence, &format!("{change}; touch /app/go"));
    let output = child.wait_with_output().expect("the run");
    let ended = fence.ended(world::Said::from(output), ledger);
    as_root(fence, "rm -f /app/started /app/go");
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
