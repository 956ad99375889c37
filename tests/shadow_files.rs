//! A shadow and the file system: files of the image, names in all kinds of directories, what root replaces in its ordinary work,
//! and a file system of the command's own.

mod attempts;
mod common;
mod shadows;

use common::{Ended, Fence, as_root};
use ringfence::ledger::record::Body;
use shadows::{ACTS, Stage, would_deny};
use std::time::Duration;

const SHADOW: [&str; 4] = ["--policy", "control", "--shadow", "nist-high"];

/// What was told, as operation and path.
fn told(ended: &Ended) -> Vec<(&str, &str)> {
    would_deny(ended).iter().map(|d| (d.operation.as_str(), d.object.path.as_deref().unwrap_or_default())).collect()
}

/// A run of a shadow that goes on to its end.
fn shadowed(fence: &Fence, script: &str) -> Ended {
    let ended = fence.run(&SHADOW, script);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
    ended
}

fn gaps(ended: &Ended) -> Vec<&str> {
    let records = ended.records.iter();
    records
        .filter_map(|record| if let Body::Gap(gap) = &record.body { Some(gap.cause.as_str()) } else { None })
        .collect()
}

#[test]
fn a_second_act_on_what_the_image_has_is_told_as_the_first() {
    let fence = Fence::new();
    // Nothing of this may have been changed in this box before.
    let script =
        "touch /mnt/c; touch /mnt/d; mkdir /mnt/e; touch /media/a; touch /media/b; chmod 755 /mnt; chmod 755 /mnt
        for n in 1 2; do chmod 755 /usr/games; touch /usr/games/$n; done; rm /mnt/c; rmdir /mnt/e; mkdir /mnt/f";
    let ended = shadowed(&fence, script);
    let expected = [
        ("openat", "/mnt/c"),
        ("openat", "/mnt/d"),
        ("mkdir", "/mnt/e"),
        ("openat", "/media/a"),
        ("openat", "/media/b"),
        ("fchmodat", "/mnt"),
        ("fchmodat", "/mnt"),
        ("fchmodat", "/usr/games"),
        ("openat", "/usr/games/1"),
        ("utimensat", "/usr/games/1"),
        ("fchmodat", "/usr/games"),
        ("openat", "/usr/games/2"),
        ("utimensat", "/usr/games/2"),
        ("unlinkat", "/mnt/c"),
        ("rmdir", "/mnt/e"),
        ("mkdir", "/mnt/f"),
    ];
    assert_eq!(told(&ended), expected, "{ended}");
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn what_is_made_anew_is_the_commands_though_it_has_the_number_of_what_was_there() {
    let fence = Fence::new();
    // Where everyone may write: what was root's goes, what comes is the command's.
    as_root(&fence, "mkdir /mnt/open; chmod 777 /mnt/open; for n in $(seq 40); do echo x > /mnt/open/$n; done");
    let script = "cd /mnt/open; for n in $(seq 40); do rm -f $n; echo y > $n; chmod 600 $n; done; chmod 700 /mnt/open";
    let ended = shadowed(&fence, script);
    assert_eq!(told(&ended), [("fchmodat", "/mnt/open")], "{ended}");
}

#[test]
fn a_name_is_its_directorys_whoever_made_the_object() {
    let fence = Fence::new();
    as_root(&fence, "echo x > /tmp/old; mkdir /workspace 2>/dev/null || true");
    let script = "touch /run/a; rm /run/a; mkdir /run/d; rmdir /run/d; touch /mnt/q; mv /mnt/q /tmp/q; rmdir /workspace
        mkdir /tmp/d; mv /tmp/old /tmp/d/; rm /tmp/d/old; rm /tmp/q; rmdir /tmp/d";
    let ended = shadowed(&fence, script);
    let mut told = told(&ended);
    // Which call mv makes first is its own matter.
    told.retain(|(_, path)| *path != "/tmp/old");
    let expected = [
        ("openat", "/run/a"),
        ("unlinkat", "/run/a"),
        ("mkdir", "/run/d"),
        ("rmdir", "/run/d"),
        ("openat", "/mnt/q"),
        ("unlinkat", "/mnt/q"),
        ("rmdir", "/workspace"),
    ];
    assert_eq!(told, expected, "{ended}");
    let moved: Vec<_> =
        would_deny(&ended).into_iter().filter(|d| d.object.path.as_deref() == Some("/tmp/old")).collect();
    assert!(moved.len() == 1 && moved[0].errno.as_deref() == Some("EPERM"), "{ended}");
}

#[test]
fn the_observer_makes_no_file_of_the_commands() {
    let stage = Stage::new();
    as_root(&stage.fence, "mkdir -p /tmp/work; chmod 777 /tmp/work");
    for act in ["openat2-own", "dangling", "own-tmp-create", "own-tmp-mkdir", "own-tmp-symlink", "own-tmp-bind"] {
        let ended = stage.fence.run(&SHADOW, &format!("umask 077; exec {ACTS} 1 {act}"));
        assert_eq!(ended.said.out, format!("{act} ok\n"), "{ended}");
        assert!(would_deny(&ended).is_empty(), "{ended}");
    }
    let made = as_root(&stage.fence, "find /tmp/work -mindepth 1 | wc -l; find /tmp/work -mindepth 1 ! -user root");
    assert_eq!(made.trim(), "7", "all that was made is root's");
}

#[test]
fn roots_ordinary_work_on_accounts_ends_nothing_and_leaves_no_hole() {
    let fence = Fence::new();
    let script =
        "set -e; cp -p /etc/passwd /etc/p; mv /etc/p /etc/passwd; cp -p /etc/group /etc/g; mv /etc/g /etc/group
        sleep 1.5; mkdir /usr/local/x; echo 'x:x:4242:4242::/:/bin/sh' >> /etc/passwd; id -un 4242";
    let ended = shadowed(&fence, script);
    assert_eq!(ended.said.out, "x\n", "{ended}");
    assert!(ended.seal().complete && gaps(&ended).is_empty(), "{ended}");
    let told = told(&ended);
    assert!(told.contains(&("mkdir", "/usr/local/x")), "{ended}");
    assert_eq!(told.iter().filter(|(_, path)| *path == "/etc/passwd").count(), 1, "the append: {ended}");
}

#[test]
fn a_tree_that_is_removed_leaves_a_hole_and_the_run_goes_on() {
    let fence = Fence::new();
    as_root(&fence, "rm -rf /srv; mkdir /srv");
    let ended = shadowed(&fence, "rmdir /srv; sleep 1.5; mkdir /usr/local/x; echo goes on");
    assert_eq!(ended.said.out, "goes on\n", "{ended}");
    assert!(told(&ended).contains(&("mkdir", "/usr/local/x")), "{ended}");
    let seal = ended.seal();
    let whole = ["network", "privilege", "filesystem"].map(|axis| seal.complete_by_axis[axis]);
    assert_eq!((seal.complete, whole), (false, [true, true, false]), "{ended}");
    let gaps = gaps(&ended);
    assert!(gaps.len() == 1 && gaps[0].starts_with("the shadow's mounts were changed: "), "{ended}");
}

#[test]
fn what_was_masked_and_is_replaced_is_masked_again() {
    let fence = Fence::new();
    as_root(&fence, "rm -rf /run/docker.sock; touch /run/docker.sock");
    let script = "rm /run/docker.sock; touch /run/docker.sock; sleep 1.5; mkdir /usr/local/x; echo goes on";
    let ended = fence.run(&["--policy", "control", "--shadow", "locked"], script);
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "goes on\n"), "{ended}");
    let gaps = gaps(&ended);
    let replaced = "/run/docker.sock was replaced from outside, and was as if nothing were mounted there until it was covered \
                    again";
    assert_eq!(gaps, [replaced], "{ended}");
    assert!(told(&ended).contains(&("mkdir", "/usr/local/x")), "{ended}");
}

#[test]
fn a_file_system_of_the_commands_own_is_not_waited_for() {
    let fence = Fence::new();
    fence.world.write("/usr/local/bin/served", attempts::compile("tests/shadow/fuse.c"), 0o755);
    as_root(&fence, "test -e /dev/fuse || mknod -m 666 /dev/fuse c 10 229");
    let script = "exec taskset -c 0 /usr/local/bin/served";
    let plain = fence.run(&["--policy", "control"], script);
    assert_eq!(plain.said.code, Some(0), "{plain}");
    // One processor, and so the least number of threads that answer.
    let (command, ledger) = fence.command(&SHADOW, &["bash", "-c", script]);
    let mut one = fence.world.command("taskset");
    one.args(["-c", "0"]).arg(command.get_program()).args(command.get_args());
    let began = std::time::Instant::now();
    let ended = fence.ended(world::Said::from(fence.world.output(one)), ledger);
    assert_eq!((ended.said.code, &ended.said.out), (Some(0), &plain.said.out), "{ended}");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}
