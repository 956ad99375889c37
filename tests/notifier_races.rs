//! A call's arguments are its caller's to change while it is looked at: whoever changes them gains nothing by it, wherever
//! the one that asks the kernel stands in between.

mod callers;
mod common;

use callers::had;
use common::{Fence, as_root, own_user};
use ringfence::ledger::record::{Body, Record};
use world::address::PUBLIC4;

/// Where everything may be done, and where nothing may.
const OPEN: &str = "/tmp/open";
const SHUT: &str = "/opt/shut";
/// A port of the outside where only sinks listen.
const PORT: u16 = 4466;

/// Each way to change what a call is about, with the acts that it goes with.
const WAYS: [(&str, &[&str]); 3] = [
    ("memory", ACTS),
    ("links", ACTS),
    ("descriptor", &["create", "open", "mkdir", "mkfifo", "symlink", "unlink", "rmdir", "chmod", "chown", "utimes"]),
];
const ACTS: &[&str] = &[
    "create", "open", "mkdir", "mkfifo", "symlink", "link", "rename", "unlink", "rmdir", "chmod", "chown", "utimes",
    "truncate", "bind",
];

/// Every way and act once, for so many milliseconds each: `WAY ACT changed` where the shut directory is not as it was.
fn races(milliseconds: u32) -> String {
    let mut script = format!(
        "umask 022; see() {{ find {SHUT} -printf '%p %y %m %U %G %s %n %A@ %T@ %C@\\n' | sort; }}
         set_up() {{ rm -rf {SHUT}/* {OPEN}; for at in {SHUT} {OPEN}; do mkdir -p $at/directory; echo kept > $at/kept; done; }}
         race() {{ set_up 2>&-; before=$(see); timeout 20 racers $1 $2 {milliseconds} {OPEN} {SHUT} || echo \"$1 $2 ended $?\"
             [ \"$(see)\" = \"$before\" ] || echo \"$1 $2 changed\"; }}\n"
    );
    for (way, acts) in WAYS {
        acts.iter().for_each(|act| script += &format!("race {way} {act}\n"));
    }
    script
}

/// The box with the racers, and a shut directory whose owner may do everything there as far as modes go.
fn fence(user: u32) -> Fence {
    let fence = callers::fence(&["racers"]);
    let make = "mkdir -m 777 $0 && mkdir $0/directory && echo kept > $0/kept && chown -R $1:$1 $0";
    as_root(&fence, &make.replace("$0", SHUT).replace("$1", &user.to_string()));
    fence
}

#[test]
fn of_paths_change_nothing_outside_of_the_writable_set() {
    let user = own_user();
    let fence = fence(user);
    let count: usize = WAYS.iter().map(|(_, acts)| acts.len()).sum();
    let live = fence.as_user(user, &races(120));
    let changed = live.out.lines().filter(|line| line.ends_with(" changed")).count();
    assert_eq!(changed, count, "each race is won without ringfence: {live}");

    let again = "rm -rf $2 $0/new; mkdir -p $0/directory; echo kept > $0/kept; chown -R $1:$1 $0";
    as_root(&fence, &again.replace("$0", SHUT).replace("$1", &user.to_string()).replace("$2", OPEN));
    let ended = fence.run(&["--policy", "nist-high", "--user", &format!("{user}:{user}")], &races(300));
    assert_eq!(ended.said.code, Some(0), "{}", ended.said);
    let others: Vec<&str> = ended.said.out.lines().filter(|line| !line.contains("wrong=0")).collect();
    assert!(others.is_empty(), "{others:?} {}", ended.said);
    let had = had(&ended.said.out);
    assert_eq!(had.len(), count, "{}", ended.said);
    for (race, outcomes) in &had {
        let of = |what| outcomes.get(what).copied().unwrap_or(0);
        // It was swapped under the call's eyes, and both were met.
        assert!(of("ok") > 0 && of("EROFS") + of("EXDEV") > 0, "{race}: {outcomes:?} {}", ended.said);
        let known = ["wrong", "ok", "EROFS", "EEXIST", "ENOENT", "EXDEV", "EADDRINUSE"];
        assert!(outcomes.keys().all(|what| known.contains(&what.as_str())), "{race}: {outcomes:?}");
    }
    // What is recorded was refused, though the kernel refuses what was another path when it was looked at.
    let of_observer = |record: &&Record| matches!(&record.body, Body::Gap(gap) if gap.source == "notifier");
    let gaps: Vec<_> = ended.records.iter().filter(of_observer).collect();
    assert!(gaps.is_empty(), "{gaps:?}");
    let strays =
        ended.denials().into_iter().filter(|d| !d.object.path.as_deref().unwrap_or("").starts_with(SHUT)).count();
    let recorded: u64 = ended.denials().iter().map(|denial| denial.count).sum();
    let refused: u64 = had.values().filter_map(|outcomes| outcomes.get("EROFS")).sum();
    println!("{refused} refused, {recorded} recorded, {strays} of them by the other path");
    assert!(recorded <= refused + 2 * count as u64, "{recorded} recorded of {refused} refused");
}

#[test]
fn of_modes_make_files_as_their_maker_would_have_them() {
    let fence = callers::fence(&["racers"]);
    let ended = fence.run(
        &["--policy", "nist-high"],
        &format!("mkdir {OPEN}; for act in create mkdir; do racers mode $act 2500 {OPEN} /opt; done"),
    );
    let had = had(&ended.said.out);
    assert_eq!(had.len(), 2, "{}", ended.said);
    for (race, outcomes) in had {
        let of = |what| outcomes.get(what).copied().unwrap_or(0);
        assert_eq!(of("wrong"), 0, "{race}: {outcomes:?}");
        assert!(of("ok") > 100 && of("EACCES") > 100, "{race}: {outcomes:?}");
    }
    assert!(ended.seal().complete, "{:?}", ended.seal());
}

#[test]
fn of_addresses_let_nothing_out() {
    let fence = callers::fence(&["racers"]);
    let (tcp, udp) = world::internet::everywhere(&fence.world, PORT).expect("sinks");
    let race = format!("for act in connect send; do racers address $act 1500 127.0.0.1:9 {PUBLIC4}:{PORT}; done");
    let live = fence.as_nobody(&race);
    assert!(!tcp.wait_for(1).is_empty() && !udp.wait_for(1).is_empty(), "the way out is live: {live}");
    let (before, packets) = ((tcp.settled().len(), udp.settled().len()), fence.world.packets_to(PUBLIC4).len());
    let ended = fence.run(&["--policy", "nist-high"], &race);
    assert_eq!((tcp.arrivals().len(), udp.arrivals().len()), before, "{}", ended.said);
    assert_eq!(fence.world.packets_to(PUBLIC4).len(), packets, "{}", ended.said);
    let had = had(&ended.said.out);
    assert!(
        had["address connect"].values().sum::<u64>() > 500 && had["address send"].values().sum::<u64>() > 500,
        "{had:?}"
    );
    assert!(!ended.denials().is_empty() && ended.seal().complete, "{:?}", ended.seal());
}
