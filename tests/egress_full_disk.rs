//! The ledger's disk is full: under `degrade` the run goes on, admits nothing new, and counts what it could not store;
//! under `required`, the default, it ends.

mod common;
#[path = "common/live.rs"]
mod live;

use common::Fence;
use live::{Live, PRELUDE};
use nix::mount::{MsFlags, mount};
use ringfence::ledger::record::{Body, Gap};
use std::io::Write;

/// A small file system of its own for the ledger, and a file that takes what is left of it.
const DISK: &str = "/srv/small";
const FILLER: &str = "/srv/small/filler";

/// Mounts the disk, in the box.
fn mount_disk(fence: &Fence) {
    fence.world.inside().run(|| {
        std::fs::create_dir_all(DISK).expect("mkdir");
        let size = Some("size=256k,mode=0700");
        mount(Some("tmpfs"), DISK, Some("tmpfs"), MsFlags::empty(), size).expect("mount");
    });
}

/// Takes every byte that is left.
fn fill(fence: &Fence) {
    fence.world.inside().run(|| {
        let mut filler = std::fs::File::create(FILLER).expect("create");
        while filler.write_all(&[0; 512]).is_ok() {}
    });
}

fn free(fence: &Fence) {
    fence.world.inside().run(|| std::fs::remove_file(FILLER).expect("remove"));
}

/// So many refused requests, one after the other, each answered.
const REFUSE: &str = r#"
def refuse(count):
    for _ in range(count):
        with proxy() as s:
            s.sendall(b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while piece := s.recv(4096):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 403"), answer
def direct(count):
    for _ in range(count):
        try:
            socket.create_connection(("11.22.33.45", 4444), 5)
            raise SystemExit("not refused")
        except ConnectionRefusedError:
            pass
def ask():
    s = proxy()
    s.sendall(b"GET http://pypi.org/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return s
"#;

#[test]
fn degraded_the_run_goes_on_admits_nothing_new_and_the_gap_is_exact() {
    let fence = Fence::new();
    mount_disk(&fence);
    let script = r#"
refuse(3)
point("full?")
refuse(100)
direct(50)
waiting = ask()
refuse(1)
waiting.setblocking(False)
try:
    say(f"answered {waiting.recv(100)}")
except BlockingIOError:
    say("waits")
waiting.setblocking(True)
point("free?")
say(waiting.recv(100)[9:12].decode())
refuse(2)
sys.exit(7)
"#;
    let ledger = format!("{DISK}/ledger.jsonl");
    let flags = ["--policy", "nist-high", "--ledger", "degrade", "--leftovers", "kill"];
    let mut live = Live::at(&fence, &flags, &ledger, &[PRELUDE, REFUSE, script].concat());
    assert_eq!(live.line(), "full?");
    fill(&fence);
    live.go_on();
    assert_eq!(live.line(), "waits", "nothing new is admitted while records are lost");
    assert!(fence.internet.http.requests().is_empty() && fence.internet.http6.requests().is_empty());
    assert_eq!(live.line(), "free?");
    free(&fence);
    live.go_on();
    assert_eq!(live.line(), "200", "it was admitted once the ledger could be written");
    let status = live.child.wait().expect("ringfence ends");
    assert_eq!(status.code(), Some(7), "the command's own status");

    let said = world::Said { code: status.code(), out: String::new(), err: String::new() };
    let ended = fence.ended(said, ledger);
    let stored: u64 = ended.denials().iter().map(|one| one.count).sum();
    let gaps: Vec<&Gap> = ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Gap(gap) => Some(gap),
            _ => None,
        })
        .collect();
    let lost: u64 = gaps.iter().map(|gap| gap.lost).sum();
    assert!(lost > 50, "{ended}");
    assert_eq!(stored + lost, 3 + 100 + 50 + 1 + 2, "{ended}");
    assert!(gaps.iter().all(|gap| gap.source == "writer" && gap.cause.contains("ENOSPC")), "{ended}");
    let seal = ended.seal();
    assert_eq!((seal.complete, seal.complete_by_axis["network"]), (false, false), "{ended}");
    assert!(seal.complete_by_axis["filesystem"] && seal.complete_by_axis["privilege"], "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(1), "{ended}");
}

#[test]
fn required_the_run_ends() {
    let fence = Fence::new();
    mount_disk(&fence);
    let script = "point('full?')\nrefuse(10000)\nsay('unreachable')\n";
    let ledger = format!("{DISK}/ledger.jsonl");
    let flags = ["--policy", "nist-high", "--leftovers", "kill"];
    let mut live = Live::at(&fence, &flags, &ledger, &[PRELUDE, REFUSE, script].concat());
    assert_eq!(live.line(), "full?");
    fill(&fence);
    live.go_on();
    assert_eq!(live.line(), "", "the command ends in the middle");
    let status = live.child.wait().expect("ringfence ends");
    assert_eq!(status.code(), Some(125));
    assert!(fence.world.processes().is_empty(), "nothing of the run is left");
    assert_eq!(fence.verify(&ledger).code, Some(1), "the record has no end");
    // What the disk would not take is no reason to leave the wall behind.
    let said = fence.as_root("nft list tables | grep -c ringfence");
    assert_eq!(said.out.trim(), "0", "{said}");
}
