//! Where every socket is made and connected for its program, the program meets what it meets without: on the rungs that have
//! no firewall each act on loopback says what it says to an unprivileged user without ringfence.

mod common;
mod sockets;

use sockets::{fence_on, run_on};
use std::collections::BTreeMap;

const ACTS: &str = include_str!("fixtures/sockets.py");

fn outcomes(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(act, said)| (act.to_owned(), said.to_owned())).collect()
}

/// Every act with and without ringfence, by processes of one thread, or of two.
fn assert_alike(rung: &str, threads: &str) {
    let fence = fence_on(rung);
    fence.world.write("/usr/local/bin/acts.py", ACTS, 0o755);
    let script = format!("export GROUND=$(mktemp -d); python3 /usr/local/bin/acts.py {threads}");
    let said = fence.as_nobody(&script);
    let plain = outcomes(&said.out);
    assert!(plain.len() > 30 && said.err.is_empty(), "live: {said}");
    let failed: Vec<_> = plain.iter().filter(|(_, outcome)| outcome.contains("Traceback")).collect();
    assert!(failed.is_empty(), "live: {failed:#?}");
    let ended = run_on(&fence, rung, &[], &script);
    let made = outcomes(&ended.said.out);
    let differ: Vec<_> = plain.iter().filter(|(act, outcome)| made.get(*act) != Some(*outcome)).collect();
    // Which of several threads a signal to their process is for the kernel does not tell: beyond a second it ends the wait.
    let ended_by_signal = ("goes_on_after_a_signal", "EINTR");
    let several =
        |act: &str| !threads.is_empty() && made.get(act).map(|said| (act, said.as_str())) == Some(ended_by_signal);
    let differ: Vec<_> = differ.into_iter().filter(|(act, _)| !several(act)).collect();
    let instead: Vec<_> = differ.iter().map(|(act, _)| (act, made.get(*act))).collect();
    assert!(differ.is_empty(), "{rung} {threads}: {differ:#?}\nbut\n{instead:#?}\n{ended}");
}

#[test]
fn in_a_container_a_process_of_one_thread_meets_the_usual() {
    assert_alike("container", "");
}

#[test]
fn in_a_container_a_process_of_many_threads_meets_the_usual() {
    assert_alike("container", "threads");
}

#[test]
fn without_root_a_process_of_one_thread_meets_the_usual() {
    assert_alike("bare", "");
}

#[test]
fn without_root_a_process_of_many_threads_meets_the_usual() {
    assert_alike("bare", "threads");
}
