//! What real work costs under `ringfence run` beside bare, bwrap and firejail: an archive is extracted, C and Rust are compiled,
//! packages are installed and a repository is cloned from servers of the closed world. The clock is the work's own: what the
//! start of a sandbox takes is another bench's.
//!
//! `make bench` runs it over the stripped binary in a closed world. `work PATH [ROUNDS]`.
#![allow(missing_docs, reason = "a program")]

#[path = "work/inputs.rs"]
mod inputs;
#[allow(dead_code, reason = "each user has its own part")]
mod rounds;

use inputs::{INPUTS, OF_PACKAGE, Sizes};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rounds::line::By;
use rounds::sample::Measured;
use rounds::{Bench, table};
use std::process::{Command, Stdio};
use world::{AUTHORITY_FILE, Internet, World};

const RINGFENCE: &str = "/usr/local/bin/ringfence";
const LEDGER: &str = "/var/log/work.jsonl";
/// In memory, and everyone's.
const DIRECTORY: &str = "/tmp";

/// Under what it is done.
struct Candidate {
    name: &'static str,
    peer: Option<&'static str>,
    before: &'static [&'static str],
    /// Whether it makes an ordinary user of the caller; where not, setpriv does, so that all do the same work.
    drops: bool,
}

const BARE: &str = "bare";
const FULL: &str = "ringfence, nist-high";
const CANDIDATES: &[Candidate] = &[
    Candidate { name: BARE, peer: None, before: &[], drops: false },
    Candidate {
        name: "bwrap",
        peer: Some("bwrap"),
        before: &[
            "bwrap",
            "--unshare-pid",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--bind",
            "/tmp",
            "/tmp",
        ],
        drops: false,
    },
    Candidate {
        name: "firejail",
        peer: Some("firejail"),
        before: &["firejail", "--quiet", "--noprofile", "--seccomp"],
        drops: false,
    },
    Candidate {
        name: FULL,
        peer: None,
        before: &[RINGFENCE, "run", "--policy", "nist-high", "--ledger", LEDGER, "--"],
        drops: true,
    },
];
const ORDINARY: &[&str] = &["setpriv", "--reuid", "10500", "--regid", "10500", "--clear-groups"];

/// What is done.
struct Task {
    name: &'static str,
    title: &'static str,
    /// Before the clock is read, in a directory of its own, where [`INPUTS`] is `$IN`.
    prepare: &'static str,
    work: &'static str,
    /// Prints what must be there afterwards.
    count: &'static str,
    expected: fn(Sizes) -> usize,
    /// As a ratio to bare.
    goal: f64,
}

const TASKS: &[Task] = &[
    Task {
        name: "tar",
        title: "`tar` extracts 5,000 files on tmpfs",
        prepare: "",
        work: "tar -xf $IN/tree.tar",
        count: "find tree -type f | wc -l",
        expected: |sizes| sizes.files,
        goal: 1.7,
    },
    Task {
        name: "make",
        title: "`make -j2` of 200 C files",
        prepare: "cp $IN/units/* .",
        work: "make -j2",
        count: "ls *.o | wc -l",
        expected: |sizes| sizes.units,
        goal: 1.03,
    },
    Task {
        name: "cargo",
        title: "`cargo build --offline`",
        prepare: "cp -r $IN/crate/* .",
        work: "cargo build --offline",
        count: "target/debug/work | wc -l",
        expected: |sizes| sizes.modules,
        goal: 1.03,
    },
    Task {
        name: "npm",
        title: "`npm ci`",
        prepare: "cp $IN/npm/* .",
        work: "npm ci --no-audit --no-fund",
        count: "find node_modules/work-* -type f | wc -l",
        expected: |sizes| sizes.packages * OF_PACKAGE,
        goal: 1.03,
    },
    Task {
        name: "git",
        title: "`git clone` over HTTPS",
        prepare: "",
        work: "git clone -q https://github.com/project.git",
        count: "find project -name '*.txt' | wc -l",
        expected: |sizes| sizes.files / 10,
        goal: 1.03,
    },
];

fn main() {
    let mut bench = Bench::new(7);
    let sizes = bench.size(
        Sizes { files: 5000, units: 200, modules: 40, packages: 40 },
        Sizes { files: 200, units: 2, modules: 2, packages: 2 },
    );
    let world = World::new().expect("a closed world");
    let internet = Internet::serving(&world, inputs::content(sizes)).expect("servers outside");
    world.install(&bench.binary, RINGFENCE);
    world.mount_memory(DIRECTORY).expect("tmpfs");
    let here: Vec<&Candidate> =
        CANDIDATES.iter().filter(|one| one.peer.is_none_or(|program| bench.peer(program, &["--version"]))).collect();
    let toolchain = toolchain();
    world.inside().run(move || {
        inputs::put(sizes);
        // A toolchain in the caller's home is searched for by an ordinary user; the root is thrown away.
        Command::new("sh").args(["-c", "chmod 1777 /tmp; chmod 711 $HOME"]).status().expect("chmod");
        for task in TASKS {
            let mut measured = Measured::new(
                table(&format!("work-{}", task.name), task.title, "ms", &[BARE])
                    .note("By the clock of the script that does it, on tmpfs, as an ordinary user.")
                    .goal(&format!("{} beside bare", task.name), FULL, &[BARE], By::RatioAtMost, task.goal),
            );
            let mut burnt = Measured::new(
                table(&format!("work-{}-cpu", task.name), &format!("CPU of {}", task.title), "ms", &[BARE])
                    .note("Of all processes of the candidate, less what the same line takes for `true`."),
            );
            bench.interleave(1, &here, |candidate, round| {
                let (_, for_nothing) = cpu_of(|| output(candidate, "true"));
                let (took, cpu) = cpu_of(|| does(task, candidate, sizes, &toolchain));
                if let Some(round) = round {
                    measured.add(round, candidate.name, took);
                    burnt.add(round, candidate.name, (cpu - for_nothing).max(0.0));
                }
            });
            bench.done(&measured);
            bench.done(&burnt);
        }
    });
    drop(internet);
}

/// Does a task; the milliseconds that it took.
fn does(task: &Task, candidate: &Candidate, sizes: Sizes, path: &str) -> f64 {
    let Task { prepare, work, count, .. } = task;
    let script = format!(
        "set -e; cd $(mktemp -d {DIRECTORY}/work.XXXXXX); export HOME=$PWD CARGO_HOME=$PWD/.cargo PATH={path}:$PATH IN={INPUTS}
         export NODE_EXTRA_CA_CERTS={AUTHORITY_FILE} NPM_CONFIG_GLOBALCONFIG=/dev/null npm_config_update_notifier=false
         export npm_config_registry=https://registry.npmjs.org/ GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
         {prepare}
         begun=$(date +%s%N); {work} >log 2>&1 </dev/null || {{ cat log; exit 1; }}; over=$(date +%s%N)
         counted=$({count}); gone=$PWD; cd /; rm -rf $gone; echo $((over - begun)) $counted"
    );
    let told = output(candidate, &script);
    let numbers: Vec<u64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [nanoseconds, counted] = numbers[..] else { panic!("{}, {}: {told}", task.name, candidate.name) };
    assert_eq!(counted, (task.expected)(sizes) as u64, "{}, {}: what is there", task.name, candidate.name);
    nanoseconds as f64 / 1e6
}

/// What a script of sh prints, and nothing on the way went wrong.
fn output(candidate: &Candidate, script: &str) -> String {
    let _none = std::fs::remove_file(LEDGER);
    let ordinary = if candidate.drops { &[][..] } else { ORDINARY };
    let line: Vec<&str> = candidate.before.iter().chain(ordinary).copied().chain(["sh", "-c", script]).collect();
    let mut command = Command::new(line[0]);
    // What built this bench has its own mind of where a build goes, and how.
    let settings = ["CARGO", "MAKE", "MFLAGS", "RUST"];
    let set = std::env::vars_os().map(|(name, _)| name);
    set.filter(|name| settings.iter().any(|one| name.as_encoded_bytes().starts_with(one.as_bytes()))).for_each(
        |name| {
            command.env_remove(name);
        },
    );
    let output = command.args(&line[1..]).stdin(Stdio::null()).output().expect(candidate.name);
    let (told, erred) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {script}: {told}{erred}", candidate.name);
    told.into_owned()
}

/// What it gives, and the milliseconds of CPU that its processes have taken.
fn cpu_of<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let so_far = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage");
        [usage.user_time(), usage.system_time()].iter().map(|time| time.num_microseconds() as f64 / 1e3).sum::<f64>()
    };
    let before = so_far();
    let given = work();
    (given, so_far() - before)
}

/// The directory of the programs of the machine's toolchain, past what chooses one.
fn toolchain() -> String {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc, as this was built with it");
    let root = String::from_utf8(output.stdout).expect("UTF-8");
    format!("{}/bin", root.trim())
}
