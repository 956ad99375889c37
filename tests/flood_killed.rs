//! kill -9 of the supervisor during a flood of refusals: the record verifies up to its last line, says that it has no seal,
//! and its counts are exact with the counts beside it.

mod attempts;
mod common;
mod flooding;
mod living;

use common::Fence;
use flooding::{Flood, answered};
use living::{send, until};
use nix::sys::signal::Signal;
use std::time::Duration;

const FLAGS: [&str; 4] = ["--policy", "nist-high", "--leftovers", "kill"];
const RUNS: u64 = 30;

/// The records, the denials and the reasons of `incomplete: N records, N denials: REASONS`.
fn incomplete(text: &str) -> (u64, u64, &str) {
    let rest = text.strip_prefix("incomplete: ").unwrap_or_else(|| panic!("not incomplete: {text}"));
    let (records, rest) = rest.split_once(" records, ").expect("records");
    let (denials, reasons) = rest.split_once(" denials: ").expect("denials");
    (records.parse().expect("a number"), denials.parse().expect("a number"), reasons.trim_end())
}

/// One run that is killed when `times` refusals have been answered: whether denials were counted that stood in no record.
fn killed(fence: &Fence, act: &str, times: u64) -> bool {
    let mut flood = Flood::start(fence, &FLAGS, act, 0);
    flood.release();
    until("the flood to get there", || answered(fence) >= times);
    send(flood.run.pid(), Signal::SIGKILL);
    living::empty_within(fence, Duration::from_secs(5));
    let ledger = flood.run.ledger.clone();
    assert_eq!(flood.run.finish(fence).said.code, Some(-9));
    let answered = answered(fence);
    let said = fence.verify(&ledger);
    assert_eq!(said.code, Some(1), "{said}");
    let (records, denials, reasons) = incomplete(&said.out);
    // The one that was under way may have been recorded and not answered any more.
    assert!(denials == answered || denials == answered + 1, "{answered} were answered: {said}");
    assert!(reasons.starts_with("there is no seal"), "{said}");
    assert!(records < 1000, "{said}");
    reasons.contains("stand in no record")
}

#[test]
fn the_counts_are_exact_wherever_it_is_killed() {
    let fence = flooding::fence();
    // A different point each time: some within the first ten, which are written one by one, some windows later.
    let points = (0..RUNS).map(|n| match n / 2 % 3 {
        0 => n,
        1 => n * 37 % 500 + 11,
        _ => n * 1009 % 4000 + 500,
    });
    // The proxy and the observer take turns.
    let acts = ["proxy evil.example.net".to_owned(), format!("open /usr/flood {}", nix::libc::EROFS)];
    let counted = points.zip(acts.iter().cycle()).filter(|(times, act)| killed(&fence, act, *times)).count();
    println!("{counted} of {RUNS} runs had denials that were counted only");
    assert!(counted >= 10, "{counted}");
}
