//! Reads of watched paths that stay readable are recorded: who, what and when (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::{Body, PathEvent};
use rung::{RUNGS, WORKSPACE};

const FIXTURE: &str = "/srv/fixtures/check.py";

fn reads(ended: &Ended) -> Vec<&PathEvent> {
    ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Read(event) => Some(event),
            _ => None,
        })
        .collect()
}

#[test]
fn a_read_of_a_watched_path_is_recorded_and_goes_on() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        as_root(
            &fence,
            &format!(
                "mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}; echo x > /srv/fixtures/other; echo y > /srv/beside; chmod 600 /srv/fixtures/other; cp /bin/true /srv/fixtures/run"
            ),
        );
        let script = format!(
            "cat {FIXTURE}; ln -s {FIXTURE} {WORKSPACE}/l; python3 -c 'print(open(\"/proc/self/cwd/l\").read())'; cat /srv/beside; \
             stat {FIXTURE} > /dev/null; cat /srv/fixtures/other; /srv/fixtures/run; true"
        );
        let ended = rung.run(&fence, user, &home, &["--watch-read", "/srv/fixtures"], &["bash", "-c", &script]);
        assert_eq!(ended.said.out.matches("expected=42").count(), 2, "{rung:?}: {ended}");
        let reads = reads(&ended);
        assert_eq!(reads.last().map(|read| read.operation.as_str()), Some("execve"), "{rung:?}: {ended}");
        let reads = &reads[..reads.len() - 1];
        let told: Vec<(Option<&str>, Option<&str>)> =
            reads.iter().map(|read| (read.object.path.as_deref(), read.subject.comm.as_deref())).collect();
        assert_eq!(told, [(Some(FIXTURE), Some("cat")), (Some(FIXTURE), Some("python3"))], "{rung:?}: {ended}");
        assert!(reads.iter().all(|read| read.operation == "openat" && read.subject.pid.is_some()), "{rung:?}: {ended}");
        assert_eq!(ended.seal().reads, 3, "{rung:?}");
        assert!(ended.denials().is_empty() && ended.seal().complete, "{rung:?}: a read is no denial: {ended}");
        assert_eq!(ended.start().tripwires, ["/srv/fixtures"]);
        assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{rung:?}");
    }
}

#[test]
fn what_is_not_watched_and_what_others_read_is_not_recorded() {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}"));
    let ended = fence.run(&["--watch-read", "/srv/fixtures"], "cat /etc/passwd > /dev/null; sleep 0.1");
    assert!(reads(&ended).is_empty() && ended.seal().reads == 0, "{ended}");
    let unwatched = fence.run(&[], &format!("cat {FIXTURE}"));
    assert!(reads(&unwatched).is_empty() && unwatched.said.out.contains("expected"), "{unwatched}");
    // Another mount of the same.
    as_root(&fence, "mkdir /mnt/f; mount --bind /srv/fixtures /mnt/f");
    let alias = fence.run(&["--watch-read", "/srv/fixtures"], "cat /mnt/f/check.py");
    assert_eq!(reads(&alias).len(), 1, "{alias}");
}

#[test]
fn a_path_that_cannot_be_watched_is_an_error() {
    let fence = Fence::new();
    for (flags, what) in [
        (&["--watch-read", "/srv/missing"][..], "/srv/missing: to be watched, but it does not exist"),
        (&["--policy", "control", "--watch-read", "/srv"], "reads can't be watched with privilege open"),
    ] {
        let ended = fence.run(flags, "true");
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains(what), "{ended}");
    }
}
