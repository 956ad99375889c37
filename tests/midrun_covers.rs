//! What is covered in the command's view and replaced outside in mid-run is covered again, and the record says that it was
//! open for a moment; what is gone for good ends the run.

mod common;
mod dev_box;
mod living;

use common::{Fence, as_root};
use dev_box::Dev;
use living::Run;
use ringfence::ledger::record::{Body, Record};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The places of which the record says that they were open for a moment.
fn open_for_a_moment(records: &[Record]) -> Vec<String> {
    let place = |record: &Record| match &record.body {
        Body::Gap(gap) if gap.source == "mounts" => gap.cause.split_whitespace().next().map(str::to_owned),
        _ => None,
    };
    records.iter().filter_map(place).collect()
}

/// A command that says, whenever it is asked, what it sees at these places.
const LOOKS: &str = "echo ready; while read go; do
    cat /data/policy/p.toml 2>/dev/null || echo masked
    (echo x >> /data/policy/p.toml) 2>/dev/null || echo kept
    id -un; stat -c %a /var/log/rungs 2>/dev/null; done; exit 7";

fn live(fence: &Fence, script: &str) -> Run {
    as_root(fence, "mkdir -p /data/policy; echo 'extends = \"nist-high\"' > /data/policy/p.toml");
    let (mut command, ledger) = fence.command(&["--policy", "/data/policy/p.toml"], &["bash", "-c", script]);
    command.stdin(Stdio::piped());
    let mut run = Run::of(fence, command, ledger);
    assert_eq!(run.line(), "ready");
    run
}

fn look(run: &mut Run) -> [String; 3] {
    std::io::Write::write_all(run.stdin.as_mut().expect("piped"), b"\n").expect("it reads");
    [run.line(), run.line(), run.line()]
}

#[test]
fn what_is_replaced_is_covered_again_and_the_run_goes_on() {
    let fence = Fence::new();
    let mut run = live(&fence, LOOKS);
    let as_planned = ["masked", "kept", "agent"].map(str::to_owned);
    assert_eq!(look(&mut run), as_planned);
    // Live: outside, each of them is what it is.
    assert_eq!(
        fence.as_nobody("cat /data/policy/p.toml; id -un 60999 2>&1 | grep -c 'no such'").out,
        "extends = \"nist-high\"\n1\n"
    );
    for path in ["/data/policy/p.toml", "/etc/passwd", "/etc/group", "/data/policy/p.toml"] {
        as_root(&fence, &format!("cp -p {path} {path}+ && mv {path}+ {path}"));
        living::until("it is covered again", || look(&mut run) == as_planned);
    }
    // Two at once, and one that is away for a while.
    as_root(
        &fence,
        "for f in /etc/passwd /etc/group; do cp -p $f $f+; done; mv /etc/passwd+ /etc/passwd; mv /etc/group+ /etc/group",
    );
    as_root(
        &fence,
        "cp /data/policy/p.toml /data/kept; rm /data/policy/p.toml; sleep 0.1; cp /data/kept /data/policy/p.toml",
    );
    living::until("all are covered again", || look(&mut run) == as_planned);
    // The record follows what it tells of.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(look(&mut run), as_planned);
    let ended = run.finish(&fence);
    assert_eq!(ended.said.code, Some(7), "{ended}");
    let told = open_for_a_moment(&ended.records);
    let times = |path: &str| told.iter().filter(|told| *told == path).count();
    assert_eq!([times("/data/policy/p.toml"), times("/etc/passwd"), times("/etc/group")], [3, 2, 2], "{ended}");
    assert!(!ended.seal().complete && !ended.seal().complete_by_axis["filesystem"], "{ended}");
}

#[test]
fn what_is_gone_for_good_ends_the_run() {
    let fence = Fence::new();
    let mut run = live(&fence, LOOKS);
    let at = Instant::now();
    as_root(&fence, "rm /data/policy/p.toml");
    assert_eq!(run.status().code(), Some(125));
    assert!(at.elapsed() < Duration::from_secs(3), "{:?}", at.elapsed());
    let text = run.ledger_of(&fence);
    assert!(text.contains("nothing of the run's is mounted any more at /data/policy/p.toml: openat2"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.contains("\"aborted\"")), "{text}");
}

#[test]
fn a_link_in_its_place_ends_the_run() {
    let fence = Fence::new();
    let mut run = live(&fence, LOOKS);
    as_root(&fence, "rm /data/policy/p.toml; ln -s /etc/passwd /data/policy/p.toml");
    assert_eq!(run.status().code(), Some(125));
}

#[test]
fn what_the_user_replaces_meanwhile_stays_and_is_kept_from_the_command() {
    let dev = Dev::new();
    dev.must("echo before > .envrc");
    let mut run =
        dev.live(&[], "echo ready; while read go; do (echo evil > .envrc) 2>/dev/null && echo open || echo kept; done");
    assert_eq!(run.line(), "ready");
    run.tell("");
    assert_eq!(run.line(), "kept");
    let ways = [
        "echo first > .new; mv .new .envrc",
        "rm -f .envrc; echo second > .envrc",
        // As an editor does that keeps the old one until the new one is written.
        "mv .envrc .envrc~; echo third > .envrc; rm .envrc~",
    ];
    for (way, content) in ways.into_iter().zip(["first\n", "second\n", "third\n"]) {
        dev.must(way);
        std::thread::sleep(Duration::from_millis(300));
        run.tell("");
        assert_eq!(run.line(), "kept", "{way}");
        assert_eq!(dev.must("cat .envrc"), content, "{way}");
    }
    let said = run.end();
    assert_eq!(said.code, Some(0), "{said}");
}

#[test]
fn a_writable_place_that_has_gone_does_not_keep_others_from_being_covered() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p -m 777 /srv/given");
    let script = "echo ready; while read go; do id -un; done; exit 7";
    let (mut command, ledger) = fence.command(&["--writable", "/srv/given"], &["bash", "-c", script]);
    command.stdin(Stdio::piped());
    let mut run = Run::of(&fence, command, ledger);
    assert_eq!(run.line(), "ready");
    as_root(
        &fence,
        "mv /srv/given /srv/away && rm -r /srv/away; cp -p /etc/passwd /etc/passwd+; mv /etc/passwd+ /etc/passwd",
    );
    living::until("it is covered again", || {
        std::io::Write::write_all(run.stdin.as_mut().expect("piped"), b"\n").expect("it reads");
        run.line() == "agent"
    });
    std::thread::sleep(Duration::from_millis(900));
    let ended = run.finish(&fence);
    assert_eq!(ended.said.code, Some(7), "{ended}");
    assert_eq!(open_for_a_moment(&ended.records), ["/etc/passwd"], "{ended}");
}
