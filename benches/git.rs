//! What `--shield-git` adds to the start and end of a program, beside what git takes to write the same objects out: a history
//! of which HEAD reaches all, and the same with a branch that is ahead of it.
//!
//! `make bench` runs it over the stripped binary in a closed world. `git PATH [COMMITS [ROUNDS]]`.
#![allow(missing_docs, reason = "a program")]

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
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

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let binary = PathBuf::from(arguments.next().unwrap_or_else(|| "dist/ringfence".to_owned()));
    let mut number = |usual| arguments.next().map_or(usual, |text| text.parse().expect("a number"));
    let (commits, rounds) = (number(10_000), number(9));
    let world = World::new().expect("a closed world");
    world.install(&binary, RINGFENCE);
    world.inside().run(move || measure(commits, rounds));
}

fn measure(commits: usize, rounds: usize) {
    std::fs::create_dir_all(TREE).expect("a directory");
    run(&mut git(&["init", "-q", "-b", "main"]));
    fed(git(&["fast-import", "--quiet"]), &history(commits));
    println!("{:<34} {:>12} {:>14} {:>14} {:>9}", "", "shield-git", "pack-objects", "clone --bare", "to clone");
    for (what, reached) in [("a branch ahead of HEAD", false), ("all of it reached", true)] {
        if reached {
            run(&mut git(&["branch", "-q", "-D", "ahead"]));
        }
        run(&mut git(&["repack", "-q", "-a", "-d", "-f"]));
        let (mut own, mut plain, mut packed, mut cloned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            plain.push(ringfence(&[]));
            own.push(ringfence(&["--shield-git"]));
            packed.push(fed(git(&["pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset"]), "main\n"));
            remove(COPY);
            let from = format!("file://{TREE}");
            cloned.push(run(&mut git(&["clone", "-q", "--bare", "--single-branch", "--no-tags", &from, COPY])));
        }
        let (added, packed, cloned) = (median(own) - median(plain), median(packed), median(cloned));
        let ratio = added / cloned;
        println!("{what:<34} {added:>9.1} ms {packed:>11.1} ms {cloned:>11.1} ms {ratio:>8.2}x");
    }
    println!("\n{rounds} rounds, {commits} commits; of ringfence what it adds to a run without it");
}
