//! A command that is refused without end: the supervisor's memory stays bounded, the counts exact, and the record short.

mod attempts;
mod common;
mod flooding;
mod living;

use flooding::{Flood, Flooded, answered, flood, sums};
use ringfence::ledger::record::Denial;
use world::address::PUBLIC4;

const FLAGS: [&str; 4] = ["--policy", "nist-high", "--leftovers", "kill"];
/// More than this much more memory than before the flood, in KiB, is growth with it: the buffers, the table of tries and
/// what is being counted have their bounds below it.
const BOUND: u64 = 16 * 1024;

fn bounded(flooded: &Flooded) {
    let (before, after) = flooded.memory;
    println!("{:?}, {} records, {before} KiB before, {after} KiB after", flooded.took, flooded.ended.records.len());
    assert!(after < before + BOUND, "{before} KiB before, {after} KiB after");
}

#[test]
fn of_datagrams_recorded_and_lost_make_up_a_million() {
    let fence = flooding::fence();
    let times = 1_000_000;
    let flooded = flood(&fence, &FLAGS, &format!("udp {PUBLIC4} 4444"), times);
    bounded(&flooded);
    let Flooded { ended, recorded, lost, .. } = &flooded;
    assert_eq!(recorded + lost, times, "recorded {recorded}, lost {lost}");
    assert!(*recorded > 10_000, "the log's buffer alone holds as many: {recorded}");
    let seal = ended.seal();
    assert_eq!((seal.denials["network"], seal.complete), (*recorded, *lost == 0));
    assert_eq!(fence.verify(&ended.ledger).code, Some(i32::from(*lost > 0)));
    // Ten a second are written, and one more stands for the rest.
    let folded: Vec<&Denial> = ended.denials().into_iter().filter(|denial| denial.count > 1).collect();
    assert!(!folded.is_empty());
    // Some name who sent them and some do not: that is two kinds.
    let (first, last) = (ended.records.first().expect("a start"), ended.records.last().expect("a seal"));
    let seconds = (last.mono_ns - first.mono_ns) as usize / 1_000_000_000;
    assert!(ended.denials().len() <= 2 * 11 * (seconds + 2), "{} in {seconds} s", ended.denials().len());
    // The tries are numbered through: no number twice, and none beyond what there was.
    let numbers: std::collections::BTreeSet<u64> = ended.denials().iter().map(|denial| denial.attempt).collect();
    assert_eq!(numbers.len(), ended.denials().len());
    assert!(numbers.first() == Some(&1) && numbers.last().is_some_and(|last| last <= recorded));
}

#[test]
fn of_requests_each_is_counted_before_it_is_answered() {
    let fence = flooding::fence();
    let times = 20_000;
    let flooded = flood(&fence, &FLAGS, "proxy evil.example.net", times);
    bounded(&flooded);
    assert_eq!((flooded.recorded, flooded.lost), (times, 0));
    assert!(flooded.ended.seal().complete);
    assert_eq!(fence.verify(&flooded.ended.ledger).code, Some(0));
    assert_eq!(fence.as_root("ls /var/log/ringfence").out.trim(), "0.jsonl", "no counts are left behind");
    assert_eq!(answered(&fence), times);
}

#[test]
fn of_opens_each_is_counted_before_it_is_answered() {
    let fence = flooding::fence();
    for act in ["open /usr/flood", "open-distinct /usr/flood"] {
        let times = 10_000;
        let flooded = flood(&fence, &FLAGS, &format!("{act} {}", nix::libc::EROFS), times);
        bounded(&flooded);
        assert_eq!((flooded.recorded, flooded.lost), (times, 0), "{act}");
        assert!(flooded.ended.seal().complete, "{act}");
        assert_eq!(fence.verify(&flooded.ended.ledger).code, Some(0), "{act}");
    }
}

#[test]
fn what_is_counted_is_written_when_its_second_is_over() {
    let fence = flooding::fence();
    let mut flood = Flood::start(&fence, &FLAGS, "proxy evil.example.net", 50);
    flood.release();
    assert_eq!(flood.run.line(), "refused 50");
    // Nothing more happens in the box, and the record comes all the same.
    let ledger = flood.run.ledger.clone();
    let counted =
        || fence.world.read(&ledger).is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains("\"count\":40"));
    assert!(!counted(), "it is not over yet");
    living::until("the record", counted);
    assert_eq!(sums(&flood.run.finish(&fence)), (50, 0));
}

#[test]
fn the_command_can_neither_read_nor_write_the_counts() {
    let fence = flooding::fence();
    let look = "for path in /var/log/ringfence /var/log/ringfence/*.counts; do
        for act in 'cat $path' 'grep -r ringfence $path' 'echo x >> $path' 'rm -r $path' 'mv $path $path.moved' 'ln $path /tmp/link'; do
            if (eval \"$act\") > /dev/null 2>&1; then echo \"done: $act\"; else echo \"refused: $act\"; fi; done; done; echo over; read line";
    let script = format!("{} {} 50 proxy evil.example.net; {look}", flooding::FLOOD, flooding::TALLY);
    fence.world.write(flooding::TALLY, [0; 8], 0o666);
    let mut run = living::Run::start(&fence, &FLAGS, &script);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "over") {
        lines.push(run.line());
    }
    assert_eq!((lines[0].as_str(), lines.len()), ("refused 50", 14));
    let done = lines.iter().filter(|line| line.starts_with("done"));
    assert_eq!(done.count(), 0, "{lines:#?}");
    // For root outside they are there.
    let seen = fence.as_root(
        "grep -c '^ringfence counts' /var/log/ringfence/*.counts; stat -c '%a %u' /var/log/ringfence/*.counts",
    );
    assert_eq!(seen.out, "1\n600 0\n");
    run.finish(&fence);
}
