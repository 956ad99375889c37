//! Whoever makes a notified call: what it is, and whatever it does meanwhile, it gets the kernel's own answer, gains nothing
//! by who asks the kernel for it, and cannot touch who does.

mod callers;
mod common;
mod living;

use common::{Ended, Fence, as_root, own_user};
use living::Run;
use ringfence::ledger::record::Denial;
use std::collections::{BTreeMap, BTreeSet};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];
/// A directory of the image where everyone may do everything, in a tree that the policy makes read-only.
const TREE: &str = "/opt/tree";

/// The box with the callers and the tree.
fn fence() -> Fence {
    let fence = callers::fence(&["callers", "crowds"]);
    let make = "mkdir -m 1777 $0/ && mkdir -m 777 $0/directory && echo kept > $0/file && chmod 666 $0/file";
    as_root(&fence, &make.replace("$0", TREE));
    fence
}

/// What is in the tree outside of the sandbox.
fn tree(fence: &Fence) -> String {
    as_root(fence, &format!("cd {TREE} && find . -printf '%p %y %m %U %n %s %T@\\n' | sort && cat file"))
}

/// Lines `WHAT OUTCOME`.
fn outcomes(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("no outcome in {line:?}"))).collect()
}

fn number(text: &str, key: &str) -> u64 {
    let found = outcomes(text);
    found.get(key).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number {key} in {text}"))
}

/// How often each path is on record as refused, by errno.
fn by_path(denials: Vec<&Denial>) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for denial in denials {
        let key = (denial.object.path.clone().unwrap_or_default(), denial.errno.clone().unwrap_or_default());
        *counts.entry(key).or_default() += denial.count;
    }
    counts
}

fn assert_whole(ended: &Ended) {
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert!(ended.seal().complete, "{ended}");
}

#[test]
fn another_process_lends_it_no_file_system() {
    let fence = fence();
    as_root(&fence, &format!("ln -s through {TREE}/dangling"));
    // The way is live for whoever may look into that process: root's own attempt goes through.
    let live = fence.as_root(&format!("cp -a {TREE} {TREE}.live; sleep 60 & callers others $! {TREE}.live; kill $!"));
    let passed = outcomes(&live.out).values().filter(|outcome| **outcome == "ok").count();
    assert!(passed >= 20, "{live}");
    let before = tree(&fence);
    // The supervisor and the proxy have the file system without the policy's mounts.
    let script = format!(
        "supervisor=$(awk '{{print $4}}' /proc/$PPID/stat)
         for pid in $supervisor 1 $PPID $(cat /proc/$supervisor/task/$supervisor/children); do callers others $pid {TREE}; done"
    );
    let ended = fence.run(&FLAGS, &script);
    assert_eq!(tree(&fence), before, "{ended}");
    let lines = ended.said.out.lines();
    let others: Vec<&str> =
        lines.filter(|line| !["EACCES", "EROFS", "ENOENT"].contains(&line.rsplit(' ').next().unwrap_or(""))).collect();
    assert!(others.is_empty() && ended.said.out.lines().count() > 100, "{others:?} {ended}");
    assert_whole(&ended);
}

#[test]
fn one_that_is_not_dumpable_hears_and_is_recorded_the_same() {
    let fence = fence();
    let run = |dumpable: &str| fence.run(&FLAGS, &format!("callers closed {dumpable} {TREE}"));
    let (open, closed) = (run("1"), run("0"));
    assert_eq!(closed.said.out, open.said.out, "{open} {closed}");
    let refused: Vec<_> = outcomes(&open.said.out).into_iter().filter(|(_, outcome)| *outcome == "EROFS").collect();
    assert_eq!(refused.len(), 11, "{open}");
    assert!(
        outcomes(&open.said.out).iter().filter(|(what, _)| what.starts_with("tmp")).all(|(_, o)| *o == "ok"),
        "{open}"
    );
    assert_eq!(by_path(closed.denials()), by_path(open.denials()), "{open} {closed}");
    assert_eq!(open.denials().len(), 11, "{open}");
    assert_whole(&open);
    assert_whole(&closed);
}

#[test]
fn a_program_that_may_not_be_read_is_seen_all_the_same() {
    let fence = fence();
    as_root(&fence, "cp /usr/local/bin/callers /usr/local/bin/unread && chmod 711 /usr/local/bin/unread");
    let open = fence.run(&FLAGS, &format!("callers closed 1 {TREE}"));
    // The dumpable flag that a program sets itself is no permission to read it.
    let ended = fence.run(&FLAGS, &format!("unread closed 0 {TREE}"));
    assert_eq!(ended.said.out, open.said.out, "{ended}");
    assert_eq!(by_path(ended.denials()), by_path(open.denials()), "{ended}");
    assert_whole(&ended);
}

#[test]
fn a_thread_is_judged_by_what_it_has_open_itself() {
    let fence = fence();
    for dumpable in ["1", "0"] {
        let ended = fence.run(&FLAGS, &format!("callers apart {dumpable} {TREE}"));
        let expected = [
            ("process-beneath", "EROFS"),
            ("process-tmp-beneath", "ok"),
            ("thread-beneath", "EROFS"),
            ("thread-tmp-beneath", "ok"),
            ("thread-tmp-relative", "ok"),
        ];
        assert_eq!(outcomes(&ended.said.out), BTreeMap::from(expected), "{ended}");
        let paths: BTreeSet<_> = by_path(ended.denials()).into_keys().map(|(path, _)| path).collect();
        let expected = ["process-beneath", "thread-beneath"].map(|name| format!("{TREE}/{name}"));
        assert_eq!(paths, BTreeSet::from(expected), "{ended}");
        assert_whole(&ended);
    }
}

#[test]
fn arguments_that_lead_nowhere_are_the_kernels_to_refuse() {
    let fence = fence();
    let free = fence.as_nobody("callers pointers");
    let ended = fence.run(&FLAGS, "callers pointers");
    let numbered = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(|c: char| c.is_ascii_digit())).map(str::to_owned).collect()
    };
    let (free, fenced) = (numbered(&free.out), numbered(&ended.said.out));
    let others: Vec<_> = free.iter().zip(&fenced).filter(|(a, b)| a != b).collect();
    assert!(free.len() > 700 && free.len() == fenced.len() && others.is_empty(), "{} {others:?}", free.len());
    let found = outcomes(&ended.said.out);
    let expected = [
        ("ends-with-its-page", "EROFS"),
        ("ends-without-nul", "EFAULT"),
        ("huge", "ENAMETOOLONG"),
        ("longest", "EROFS"),
        ("longer", "ENAMETOOLONG"),
        ("longest-relative", "EROFS"),
        ("userfaultfd", "EPERM"),
    ];
    for (what, outcome) in expected {
        assert_eq!(found.get(what), Some(&outcome), "{what}: {ended}");
    }
    // None of it is a thing that the observer does not know.
    assert_whole(&ended);
}

#[test]
fn signals_are_handled_and_a_kill_is_obeyed_at_once() {
    let fence = fence();
    let ended = fence.run(&FLAGS, "callers signals");
    let of = |key| number(&ended.said.out, key);
    assert!(of("handled") > 100 && of("tries") > 100, "{ended}");
    assert_eq!((of("wrong"), of("interrupted")), (0, 0), "{ended}");
    assert!(of("worst-ms") < 500 && of("kill-ms") < 500, "{ended}");
    assert_whole(&ended);
}

#[test]
fn it_may_have_filters_and_no_listener() {
    let fence = fence();
    let ended = fence.run(&FLAGS, "ls -l /proc/self/fd; callers listener");
    let found: Vec<&str> = ended.said.out.lines().filter(|line| line.contains(" -> ")).collect();
    let ours = found.iter().filter(|line| ["seccomp", "anon_inode", "socket:"].iter().any(|part| line.contains(part)));
    assert_eq!(ours.count(), 0, "{ended}");
    for line in ["listener EBUSY", "filter ok", "filtered ENOTTY", "still-refused EROFS"] {
        assert!(ended.said.out.lines().any(|said| said == line), "{line}: {ended}");
    }
    assert_whole(&ended);
}

#[test]
fn the_observer_is_out_of_its_reach() {
    let fence = fence();
    // Each attempt is one that a process may make on another of its user.
    let live = fence.as_nobody("callers attack 0");
    let passes = outcomes(&live.out).values().filter(|outcome| **outcome == "ok").count();
    assert!(passes > 30, "{live}");
    let mut run =
        Run::start(&fence, &FLAGS, "echo ready; read observer; callers attack $observer; mkdir /usr/after; echo end");
    assert_eq!(run.line(), "ready");
    let observer = run.observer();
    std::io::Write::write_all(&mut run.stdin.as_ref().expect("piped"), format!("{observer}\n").as_bytes())
        .expect("write");
    let ended = run.finish(&fence);
    let passed: Vec<_> =
        outcomes(ended.said.out.trim_end_matches("end\n")).into_iter().filter(|(_, o)| *o == "ok").collect();
    assert_eq!(passed, [], "{ended}");
    assert_whole(&ended);
    assert!(ended.denials().iter().any(|denial| denial.object.path.as_deref() == Some("/usr/after")), "{ended}");
}

#[test]
fn a_full_table_of_descriptors_is_the_callers_own_trouble() {
    let fence = fence();
    let ended = fence.run(&FLAGS, "crowds full 2000; mkdir /usr/after; true");
    let of = |key| number(&ended.said.out, key);
    assert!(of("full") + of("others") > 100, "{ended}");
    assert_eq!(of("opened"), 0, "{ended}");
    assert_whole(&ended);
    assert!(ended.denials().iter().any(|denial| denial.object.path.as_deref() == Some("/usr/after")), "{ended}");
}

#[test]
fn a_crowd_of_callers_is_answered_whatever_becomes_of_each() {
    let fence = fence();
    let ended = fence.run(&FLAGS, "ulimit -c 0; crowds crowd");
    let found = outcomes(&ended.said.out);
    for (what, outcome) in [("threads", "0"), ("became-another", "20"), ("vfork", "0"), ("opened", "8")] {
        assert_eq!(found.get(what), Some(&outcome), "{what}: {ended}");
    }
    assert_eq!((found["beside-stopped"], found["beside-blocked"]), ("EROFS", "EROFS"), "{ended}");
    assert!(number(&ended.said.out, "beside-ms") < 500 && number(&ended.said.out, "blocked-ms") < 500, "{ended}");
    assert_whole(&ended);
}

#[test]
fn what_it_uses_up_it_has_used_up_for_itself() {
    let fence = fence();
    let ended = fence.run(&FLAGS, "crowds starve");
    let expected = [
        ("full", "EMFILE"),
        ("full-refused", "EROFS"),
        ("full-allowed", "ok"),
        ("burnt", "EROFS"),
        ("fork", "EAGAIN"),
        ("alone-refused", "EROFS"),
        ("alone-allowed", "ok"),
    ];
    let found = outcomes(&ended.said.out);
    for (what, outcome) in expected {
        assert_eq!(found.get(what), Some(&outcome), "{what}: {ended}");
    }
    assert!(number(&ended.said.out, "burnt-ms") < 20_000, "{ended}");
    assert_eq!(ended.denials().iter().map(|denial| denial.count).sum::<u64>(), 23, "{ended}");
    assert_whole(&ended);
}

#[test]
fn no_number_of_tries_gives_it_a_socket_or_a_mount() {
    let fence = fence();
    let live = fence.as_root("crowds hammer 64");
    for what in ["packet", "raw", "raw6", "mount"] {
        assert!(number(&live.out, what) > 0, "{what} is there to be had: {live}");
    }
    let ended = fence.run(&FLAGS, "crowds hammer 3000");
    assert!(outcomes(&ended.said.out).values().all(|had| *had == "0"), "{ended}");
    assert_eq!(outcomes(&ended.said.out).len(), 8, "{ended}");
    assert_whole(&ended);
}

#[test]
fn at_non_root_set_id_programs_work_and_are_no_denials() {
    let fence = fence();
    as_root(
        &fence,
        "cp /usr/bin/mkdir /usr/local/bin/as-root && chmod 4755 /usr/local/bin/as-root
         cp /usr/bin/touch /usr/local/bin/touch-as-root && chmod 4755 /usr/local/bin/touch-as-root",
    );
    let user = format!("{0}:{0}", own_user());
    let script = "as-root /usr/made-as-root && touch-as-root /usr/local/touched && echo made
                  mkdir /usr/refused; echo refused=$?
                  unshare -r mkdir /tmp/in-namespace && echo namespace";
    let ended = fence.run(&["--policy", "non-root", "--user", &user], script);
    assert!(ended.said.out.contains("made\n") && ended.said.out.contains("refused=1"), "{ended}");
    assert_eq!(ended.said.out.contains("namespace\n"), namespaces_work(&fence), "{ended}");
    let paths: Vec<_> = by_path(ended.denials()).into_keys().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/usr/refused"], "{ended}");
    assert_whole(&ended);
}

fn namespaces_work(fence: &Fence) -> bool {
    fence.as_nobody("unshare -r true").code == Some(0)
}
