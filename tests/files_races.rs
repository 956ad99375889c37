//! Where there are no mounts a call's path, its links, its directories and its descriptors are the caller's to change while it
//! is looked at. In 10,000 tries of each act nothing outside of the writable set is another afterwards: neither contents nor
//! names, which Landlock holds, nor what is known of a file beside them, which nobody but the observer changes.

mod callers;
mod common;

use callers::had;
use common::{Ended, Fence, as_root, own_user};
use world::Less;

/// One file system, so that what is not to be linked or moved could be.
const ROOT: &str = "/srv/races";
/// Where everything may be done, and where nothing may although every mode allows it.
const OPEN: &str = "/srv/races/open";
const SHUT: &str = "/srv/races/shut";

const TRIES: u64 = 10_000;

const NAMES: &[&str] =
    &["create", "open", "mkdir", "mkfifo", "symlink", "link", "rename", "unlink", "rmdir", "truncate", "bind"];
const METADATA: &[&str] = &["chmod", "chown", "utimes", "setxattr"];
const RELATIVE: &[&str] =
    &["create", "open", "mkdir", "mkfifo", "symlink", "unlink", "rmdir", "chmod", "chown", "utimes"];
const BY_DESCRIPTOR: &[&str] = &["fchmod", "fchown", "futimens", "fsetxattr", "setflags"];

/// Each act by each way, and whether the shut directory is another afterwards; as often as `times` until it is.
fn script(ways: &[(&str, &[&[&str]])], milliseconds: u32, times: u32) -> String {
    let mut script = format!(
        "umask 022; see() {{ find {SHUT} -printf '%p %y %m %U %G %s %n %T@ %C@\\n' | sort; cat {SHUT}/kept; }}
         set_up() {{ rm -rf {OPEN}/* {SHUT}/new; for at in {SHUT} {OPEN}; do mkdir -p $at/directory; echo kept > $at/kept; done; }}
         race() {{ set_up 2>&-; before=$(see); timeout 180 racers $1 $2 {milliseconds} {OPEN} {SHUT} {TRIES} || echo \"$1 $2 ended $?\"
             [ \"$(see)\" = \"$before\" ] || {{ echo \"$1 $2 changed\"; return; }}
             [ $3 = 1 ] || race $1 $2 $(($3 - 1)); }}\n"
    );
    for (way, acts) in ways {
        acts.iter().copied().flatten().for_each(|act| script += &format!("race {way} {act} {times}\n"));
    }
    script
}

fn fence(user: u32, less: Less) -> Fence {
    let fence = callers::fence(&["racers"]).less(less);
    as_root(&fence, &format!("mkdir -p {ROOT}"));
    fence.world.mount_ext4(ROOT).expect("a file system with attributes");
    let make = "mkdir -m 777 $1 $0 && mkdir $0/directory && echo kept > $0/kept && chown -R $2:$2 $0 $1";
    as_root(&fence, &make.replace("$0", SHUT).replace("$1", OPEN).replace("$2", &user.to_string()));
    fence
}

fn restored(fence: &Fence, user: u32) {
    let make = "rm -rf $0/* $1/*; mkdir $0/directory; echo kept > $0/kept; chown -R $2:$2 $0; chmod 644 $0/kept";
    as_root(fence, &make.replace("$0", SHUT).replace("$1", OPEN).replace("$2", &user.to_string()));
}

fn run(fence: &Fence, user: u32, rung: &str, script: &str) -> Ended {
    let id = format!("{user}:{user}");
    let axes = ["--policy", "control", "--filesystem", "restricted", "--privilege", "locked"];
    let whom = ["--user", &id];
    // Without root the command's user is the caller.
    let whom = if rung == "bare" { &[] } else { &whom[..] };
    let flags = [&axes[..], &["--rung", rung, "--writable", OPEN], whom].concat();
    let (command, ledger) = fence.command(&flags, &["bash", "-c", script]);
    fence.ended(fence.output(command), ledger)
}

/// Races that are all won without a barrier, and none of which changes anything with it.
fn hold(ways: &[(&str, &[&[&str]])]) {
    hold_on("container", Less::new().container(), ways);
}

/// The same as a user of a container.
fn hold_bare(ways: &[(&str, &[&[&str]])]) {
    hold_on("bare", Less::new().container_user(own_user(), own_user()), ways);
}

fn hold_on(rung: &str, less: Less, ways: &[(&str, &[&[&str]])]) {
    let user = own_user();
    let fence = fence(user, less);
    let count: usize = ways.iter().flat_map(|(_, acts)| acts.iter()).map(|acts| acts.len()).sum();
    let live = fence.as_user(user, &script(ways, 150, 20));
    let changed = live.out.lines().filter(|line| line.ends_with(" changed")).count();
    assert_eq!(changed, count, "each race is won without ringfence: {live}");
    restored(&fence, user);

    let ended = run(&fence, user, rung, &script(ways, 120_000, 1));
    assert_eq!(ended.said.code, Some(0), "{}", ended.said);
    let others: Vec<&str> = ended.said.out.lines().filter(|line| !line.contains("wrong=0")).collect();
    assert!(others.is_empty(), "{others:?} {}", ended.said);
    let had = had(&ended.said.out);
    assert_eq!(had.len(), count, "{}", ended.said);
    for (race, outcomes) in &had {
        let of = |what| outcomes.get(what).copied().unwrap_or(0);
        assert_eq!(outcomes.iter().filter(|(what, _)| *what != "wrong").map(|(_, n)| n).sum::<u64>(), TRIES, "{race}");
        // It was swapped under the call's eyes, and both were met.
        assert!(of("ok") > 0 && of("EROFS") + of("EXDEV") > 0, "{race}: {outcomes:?} {}", ended.said);
        // What was another path when it was looked at Landlock refuses by itself.
        let known = ["wrong", "ok", "EROFS", "EEXIST", "ENOENT", "EXDEV", "EADDRINUSE", "EACCES"];
        assert!(outcomes.keys().all(|what| known.contains(&what.as_str())), "{race}: {outcomes:?}");
        let metadata = METADATA.iter().chain(BY_DESCRIPTOR).any(|act| race.ends_with(&format!(" {act}")));
        assert!(!metadata || of("EACCES") == 0, "{race}: {outcomes:?}");
    }
    // Each refusal of the observer's is on record, under the path that was refused.
    let recorded: u64 = ended.denials().iter().map(|denial| denial.count).sum();
    let refused: u64 = had.values().filter_map(|outcomes| outcomes.get("EROFS")).sum();
    println!("{refused} refused, {recorded} recorded");
    assert!(recorded >= refused, "{recorded} recorded of {refused} refused");
    let astray = |path: &str| !path.starts_with(SHUT) && !path.starts_with(OPEN);
    let astray: Vec<_> =
        ended.denials().into_iter().filter(|d| astray(d.object.path.as_deref().unwrap_or(""))).collect();
    assert!(astray.is_empty(), "{astray:?}");
}

#[test]
fn of_the_path_in_memory_gain_no_name() {
    hold(&[("memory", &[NAMES])]);
}

#[test]
fn of_the_path_in_memory_gain_no_change() {
    hold(&[("memory", &[METADATA])]);
}

#[test]
fn of_links_on_the_way_gain_no_name() {
    hold(&[("links", &[NAMES])]);
}

#[test]
fn of_links_on_the_way_gain_no_change() {
    hold(&[("links", &[METADATA])]);
}

#[test]
fn of_directories_that_give_way_gain_nothing() {
    hold(&[("parents", &[&["create", "open", "mkdir", "symlink"], METADATA])]);
}

#[test]
fn of_descriptors_of_directories_gain_nothing() {
    hold(&[("descriptor", &[RELATIVE])]);
}

#[test]
fn of_descriptors_of_files_gain_nothing() {
    hold(&[("file", &[BY_DESCRIPTOR])]);
}

#[test]
fn on_bare_of_the_path_in_memory_gain_nothing() {
    hold_bare(&[("memory", &[&["create", "open", "rename", "unlink"], METADATA])]);
}

#[test]
fn on_bare_of_links_gain_nothing() {
    hold_bare(&[("links", &[&["create", "link", "truncate"], METADATA])]);
}

#[test]
fn on_bare_of_descriptors_gain_nothing() {
    hold_bare(&[("file", &[BY_DESCRIPTOR])]);
}
