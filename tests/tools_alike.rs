//! What people and agents run behaves byte for byte as without the notifier: output, errors, status and the trees that come
//! of it, where it is allowed and where it is refused (issue 3, item 2).

#[path = "acts/beside.rs"]
mod beside;
mod common;

use common::{Ended, Fence, own_user};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use world::{Less, Said};

const SCRIPT: &str = "/usr/local/lib/tools.sh";

fn fence() -> Fence {
    let fence = Fence::new();
    fence.world.write(SCRIPT, include_str!("acts/tools.sh"), 0o644);
    fence.world.write("/usr/local/lib/project.sh", include_str!("acts/project.sh"), 0o644);
    fence.world.write(beside::PROGRAM, beside::program(), 0o755);
    fence.world.write("/usr/local/lib/kept/file", "kept\n", 0o644);
    fence.world.write("/tmp/of-root", "root's\n", 0o644);
    fence.world.write("/tmp/of-root.d/file", "root's\n", 0o644);
    common::as_root(
        &fence,
        "cd /usr/local/lib; touch -d @1000000000 kept/file kept /tmp/of-root /etc/passwd; git init -q repository
         chmod 4755 /tmp/of-root.d/file; tar -cpf of-root.tar -C /tmp of-root.d; chmod 644 of-root.tar",
    );
    fence
}

/// Starts `bash -c SCRIPT` under ringfence, gives its first line to `beside`, and then lets it go on.
fn run(
    fence: &Fence,
    rung: &str,
    user: u32,
    script: &str,
    beside: impl FnOnce(&str) -> Option<Said>,
) -> (Ended, Option<Said>) {
    let id = format!("{user}:{user}");
    let flags = ["--policy", "nist-high", "--rung", rung, "--user", &id];
    let (mut command, ledger) = fence.command(&flags, &["bash", "-c", &format!("echo $$; read line; {script}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = fence.start(command);
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut pid = String::new();
    out.read_line(&mut pid).expect("a line");
    let beside = beside(pid.trim());
    child.stdin.take().expect("piped").write_all(b"\n").expect("the command waits");
    let (mut said, mut err) = (String::new(), String::new());
    out.read_to_string(&mut said).expect("stdout");
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("stderr");
    let code = child.wait().expect("it ends").code();
    (fence.ended(Said { code, out: said, err }, ledger), beside)
}

/// What holds the clock, or a process's number, in a form that does not.
fn timeless(text: &str) -> String {
    let word = |word: &str| {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let took = word.strip_suffix("ms").or_else(|| word.strip_suffix('s')).is_some_and(number);
        match word {
            _ if took => "TIME".to_owned(),
            word if word.contains("/_logs/") => "LOG".to_owned(),
            word => word.to_owned(),
        }
    };
    let mut lines: Vec<String> =
        text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect();
    lines.dedup();
    lines.join("\n")
}

fn assert_alike(one: &str, seen: &str, other: &str, expected: &str) {
    let differs = seen.lines().zip(expected.lines()).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let around = |text: &str| text.lines().skip(at.saturating_sub(6)).take(12).collect::<Vec<_>>().join("\n");
        panic!("{one}:\n{}\n\n{other}:\n{}", around(seen), around(expected));
    }
    assert_eq!(seen.lines().count(), expected.lines().count());
}

#[test]
fn tools_say_and_leave_the_same_with_and_without_mounts() {
    let user = own_user();
    let (mount, _) = run(&fence(), "full", user, &format!("exec bash {SCRIPT}"), |_| None);
    let contained = fence().less(Less::new().container());
    let (without, _) = run(&contained, "container", user, &format!("exec bash {SCRIPT}"), |_| None);
    assert!(mount.said.out.ends_with("end\n") && without.said.out.ends_with("end\n"), "{mount}{without}");
    let (seen, expected) = (timeless(&without.said.out), timeless(&mount.said.out));
    assert_alike("without mounts", &seen, "with them", &expected);
    assert_eq!(without.said.err, mount.said.err);
    assert!(without.seal().complete, "{without}");
    let of_files = |ended: &Ended| {
        let files = ended.denials().into_iter().filter(|denial| denial.axis.name() == "filesystem");
        files.map(|denial| format!("{} {:?} {:?}", denial.operation, denial.object.path, denial.errno)).collect()
    };
    let [seen, expected]: [BTreeSet<String>; 2] = [of_files(&without), of_files(&mount)];
    let random = |told: &&&String| !told.contains("tmp") && !told.contains("/sed") && !told.contains("pip-");
    let differ: Vec<_> = seen.symmetric_difference(&expected).filter(|told| random(&told)).collect();
    assert!(differ.is_empty() && seen.len() > 25, "{differ:#?}");
}

#[test]
fn tools_say_and_leave_the_same_with_and_without_the_notifier() {
    let user = own_user();
    let (with, _) = run(&fence(), "full", user, &format!("exec bash {SCRIPT}"), |_| None);
    let other = fence();
    let (held, without) = run(&other, "full", user, "true", |pid| {
        Some(Said::from(other.world.output(beside::bash(&other, pid, user, SCRIPT))))
    });
    let without = without.expect("it ran");
    assert!(with.said.out.ends_with("end\n") && without.out.ends_with("end\n"), "{with}{without}");
    let (seen, expected) = (timeless(&with.said.out), timeless(&without.out));
    assert_alike("with the notifier", &seen, "without", &expected);
    assert_eq!(with.said.err, without.err);
    // Live: refusals there were, of each tool, and with the notifier they are on record.
    let refused = |text: &str| text.matches("Read-only file system").count() + text.matches("EROFS").count();
    assert!(refused(&seen) > 25, "{seen}");
    let has = |operation: &str| with.denials().iter().any(|denial| denial.operation == operation);
    for operation in ["mkdir", "openat", "unlinkat", "symlinkat", "utimensat", "fchmodat"] {
        assert!(has(operation), "{operation}: {with}");
    }
    assert!(held.denials().is_empty(), "nothing beside the command is notified: {held}");
    assert!(with.seal().complete, "{with}");
    eprintln!(
        "{} lines alike, {} refusals shown, {} recorded",
        seen.lines().count(),
        refused(&seen),
        with.denials().len()
    );
}
