//! What `--shield-git` adds to the start and end of a program, beside what git takes to write the same objects out: a history
//! of which HEAD reaches all, and the same with a branch that is ahead of it.
//!
//! `make bench` runs it over the stripped binary in a closed world. `git PATH [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use rounds::sample::Measured;
use rounds::{Bench, table};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use world::World;

const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LEDGER: &str = "/var/log/git.jsonl";
const TREE: &str = "/srv/project";
const COPY: &str = "/srv/copy.git";
/// How many commits are ahead of HEAD.
const AHEAD: usize = 50;

/// A stream for git fast-import: each commit changes three files of a few thousand.
fn history(commits: usize) -> String {
    let mut stream = String::new();
    let mut files: Vec<Vec<String>> = Vec::new();
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for number in 0..commits + AHEAD {
        let branch = if number < commits { "main" } else { "ahead" };
        let message = format!("change {number}: {:x}", random(1 << 30));
        let _ = write!(stream, "commit refs/heads/{branch}\ncommitter a <a@a.test> {} +0000\n", 1_000_000_000 + number);
        let _ = writeln!(stream, "data {}\n{message}", message.len());
        if number == commits {
            stream.push_str("from refs/heads/main\n");
        }
        let directory = random(500);
        let changed = if number == 0 { (0..4000).collect() } else { Vec::from([0, 3, 5].map(|n| directory * 8 + n)) };
        for file in changed {
            if files.len() <= file {
                files.push(
                    (0..20 + random(60)).map(|_| format!("{:x} {:x}", random(1 << 30), random(1 << 20))).collect(),
                );
            }
            let at = random(files[file].len());
            files[file][at] = format!("{:x} {number}", random(1 << 30));
            let text = files[file].join("\n");
            let path =
                format!("package_{}/module_{}/part_{}/file_{}", file / 200, file / 40 % 5, file / 8 % 5, file % 8);
            let _ = writeln!(stream, "M 100644 inline {path}\ndata {}\n{text}", text.len());
        }
    }
    stream
}

fn run(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let output = command.output().expect("it starts");
    let taken = begun.elapsed();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    taken
}

fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(["-C", TREE, "-c", "safe.directory=*"]).args(arguments);
    command
}

/// `command` with something to read.
fn fed(mut command: Command, input: &str) -> Duration {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{command:?}");
    begun.elapsed()
}

fn ringfence(flags: &[&str]) -> Duration {
    remove(LEDGER);
    let mut command = Command::new(RINGFENCE);
    command.args(["run", "--policy", "nist-high", "--workspace", TREE, "--ledger", LEDGER]).args(flags);
    run(command.args(["--leftovers", "kill", "--", "true"]))
}

fn remove(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    assert!(removed.is_ok() || !path.exists(), "{}: {removed:?}", path.display());
}

fn main() {
    let bench = Bench::new(9);
    let world = World::new().expect("a closed world");
    world.install(&bench.binary, RINGFENCE);
    world.inside().run(move || measure(bench));
}

const PLAIN: &str = "ringfence, without --shield-git";
const SHIELDED: &str = "ringfence, with --shield-git";
const PACKED: &str = "git pack-objects";
const CLONED: &str = "git clone --bare";
const ADDED: &str = "what --shield-git adds";

fn measure(mut bench: Bench) {
    std::fs::create_dir_all(TREE).expect("a directory");
    run(&mut git(&["init", "-q", "-b", "main"]));
    let commits = bench.size(10_000, 100);
    fed(git(&["fast-import", "--quiet"]), &history(commits));
    for (name, title, reached) in [
        ("git-ahead", "A history with a branch ahead of HEAD, whose objects are left out", false),
        ("git-all", "A history of which HEAD reaches all", true),
    ] {
        if reached {
            run(&mut git(&["branch", "-q", "-D", "ahead"]));
        }
        run(&mut git(&["repack", "-q", "-a", "-d", "-f"]));
        let note =
            "10,000 commits of three files each among 4,000. What is added is the difference of both in each round.";
        let mut measured = Measured::new(table(name, title, "ms", &[PACKED, CLONED]).note(note));
        let mut plain = 0.0;
        for round in 0..bench.rounds {
            for candidate in [PLAIN, SHIELDED, PACKED, CLONED] {
                let taken = match candidate {
                    PLAIN => ringfence(&[]),
                    SHIELDED => ringfence(&["--shield-git"]),
                    PACKED => fed(git(&["pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset"]), "main\n"),
                    _ => {
                        remove(COPY);
                        let from = format!("file://{TREE}");
                        run(&mut git(&["clone", "-q", "--bare", "--single-branch", "--no-tags", &from, COPY]))
                    }
                };
                let taken = taken.as_secs_f64() * 1e3;
                measured.add(round, candidate, taken);
                match candidate {
                    PLAIN => plain = taken,
                    SHIELDED => measured.add(round, ADDED, taken - plain),
                    _ => {}
                }
            }
        }
        bench.done(&measured);
    }
}
