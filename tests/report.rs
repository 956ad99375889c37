//! `ringfence report` over many runs: what is counted, what is not and why.

mod ledgers;

use ledgers::*;
use ringfence::policy::Axis;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const PIP: Option<(&str, &str)> = Some(("pip", "/usr/bin/python3"));

/// Two counted runs of task a, one of b, one of c under control; and one of each kind that is not counted.
fn cohort(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let high = "nist-high";
    let denials = vec![
        host("x.test"),
        times(host("x.test"), 4),
        host("y.test"),
        packet("10.0.0.9", 53, PIP),
        path(Axis::Filesystem, "/usr/x", "EROFS"),
    ];
    write(&at("a/1.jsonl"), run(high, &[("task", "a"), ("trial", "1")], denials));
    write(
        &at("a/2.jsonl"),
        run(high, &[("task", "a"), ("trial", "2")], vec![host("x.test"), packet("10.0.0.9", 80, None)]),
    );
    write(&at("b/1.jsonl"), run(high, &[("task", "b")], vec![path(Axis::Privilege, "/etc/shadow", "EACCES")]));
    write(&at("c/1.jsonl"), run("control", &[("task", "c")], vec![]));
    let left_out = |name: &str, end| {
        let denials = vec![times(host("never.test"), 100)];
        write(&at(name), Run { end, ..run(high, &[("task", "a")], denials) });
    };
    left_out("z/unsealed.jsonl", End::Unsealed);
    left_out("z/gap.jsonl", End::Gap(Some(Axis::Filesystem)));
    left_out("z/gap-all.jsonl", End::Gap(None));
    left_out("z/not-started.jsonl", End::NotStarted);
    left_out("z/aborted.jsonl", End::Aborted);
    left_out("z/altered.jsonl", End::Sealed);
    let altered = fs::read_to_string(at("z/altered.jsonl")).unwrap().replace("never.test", "other.test");
    fs::write(at("z/altered.jsonl"), altered).unwrap();
    fs::copy(at("a/1.jsonl"), at("z/copy.jsonl")).unwrap();
    let whole = fs::read(at("a/2.jsonl")).unwrap();
    // Taken while the run went on.
    fs::write(at("0-early.jsonl"), &whole[..whole.len() / 2]).unwrap();
    fs::write(at("z/damaged.jsonl.zst"), [0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff]).unwrap();
    fs::write(at("z/session.jsonl"), "{\"type\":\"summary\"}\n").unwrap();
}

fn axis<'a>(of: &'a Value, axis: &str) -> &'a Value {
    of["axes"].as_array().unwrap().iter().find(|row| row["axis"] == axis).unwrap()
}

#[test]
fn only_runs_that_are_known_to_be_whole_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let report = json(&["--by", "task", dir.path().to_str().unwrap()]);
    assert_eq!((&report["total"]["runs"], &report["total"]["excluded"]), (&json!(4), &json!(9)));
    let reasons =
        json!({"unreadable": 1, "altered": 1, "unsealed": 1, "not_started": 1, "aborted": 1, "gap": 2, "duplicate": 2});
    assert_eq!(report["excluded"], reasons);
    assert_eq!(report["no_ledgers"].as_array().unwrap().len(), 1);

    let row = |axis, denials, runs, mean, most, again| json!({"axis": axis, "denials": denials, "runs": runs, "mean": mean, "most_in_one_run": most, "reattempts": again});
    let rows = json!([
        row("network", 9, 2, json!(4.5), 7, 4),
        row("filesystem", 1, 1, json!(1.0), 1, 0),
        row("privilege", 1, 1, json!(1.0), 1, 0),
        row("any", 11, 3, json!(11.0 / 3.0), 8, 4),
    ]);
    assert_eq!(report["total"]["axes"], rows);
    let levels = report["levels"].as_array().unwrap();
    let control = levels.iter().find(|of| of["level"] == "control").unwrap();
    assert_eq!((&control["runs"], &axis(control, "any")["denials"]), (&json!(1), &json!(0)));

    let groups = report["groups"].as_array().unwrap();
    let a = groups.iter().find(|of| of["group"] == "a").unwrap();
    assert_eq!((&a["runs"], &a["excluded"], &axis(a, "any")["denials"]), (&json!(2), &json!(8), &json!(10)));
    assert!(groups.iter().any(|of| of["group"].is_null() && of["runs"] == 0), "the damaged one has no label");

    let persistence = &report["persistence"];
    assert_eq!(persistence["reattempts"], json!({"network": 4, "filesystem": 0, "privilege": 0}));
    assert_eq!(persistence["largest"]["object"], "x.test:443");
    assert_eq!(persistence["largest"]["reattempts"], 4);
    let objects = persistence["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 1);
    let x = json!({"axis": "network", "object": "x.test:443", "denials": 6, "reattempts": 4, "runs": 2});
    assert_eq!(objects[0], x);

    let concentration = &report["concentration"];
    assert_eq!(concentration["objects"]["half"], 1, "six of eleven lie on one");
    assert_eq!(concentration["objects"]["distinct"], 6);
    assert_eq!((&concentration["units"], &concentration["count"]), (&json!("groups"), &json!(3)));
    let buckets = concentration["buckets"].as_array().unwrap().iter();
    let counts: Vec<_> = buckets.map(|bucket| bucket["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 1, 1, 0, 0, 0]);
    assert_eq!(concentration["touched_by_axis"], json!({"network": 1, "filesystem": 1, "privilege": 1}));
    assert_eq!(concentration["denied_in_every_run"], 2);

    let tools = json!([
        {"comm": null, "exe": null, "denials": 1, "lookups": 0, "destinations": 1, "first": "10.0.0.9:80",
            "ports": [80], "runs": 1},
        {"comm": "pip", "exe": "/usr/bin/python3", "denials": 1, "lookups": 1, "destinations": 1,
            "first": "10.0.0.9:53", "ports": [53], "runs": 1},
    ]);
    assert_eq!((&report["tools"], &report["total"]["direct"], &a["direct"]), (&tools, &json!(2), &json!(2)));
    let gap = |path: &str| {
        let runs = report["runs"].as_array().unwrap().iter();
        runs.clone().find(|run| run["path"].as_str().unwrap().ends_with(path)).unwrap()["gap_axes"].clone()
    };
    assert_eq!(gap("gap.jsonl"), json!(["filesystem"]));
    assert_eq!(gap("gap-all.jsonl"), json!(["network", "filesystem", "privilege"]));
    assert!(!report.to_string().contains("never.test"), "what is not counted names no objects");
}

#[test]
fn labels_and_levels_select() {
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let dir = dir.path().to_str().unwrap();
    let counted = |flags: &[&str]| {
        let report = json(&[flags, &[dir]].concat());
        (report["total"]["runs"].as_u64().unwrap(), axis(&report["total"], "any")["denials"].as_u64().unwrap())
    };
    assert_eq!(counted(&[]), (4, 11));
    assert_eq!(counted(&["--label", "task=a"]), (2, 10));
    assert_eq!(counted(&["--label", "task=a", "--label", "task=b"]), (3, 11));
    assert_eq!(counted(&["--label", "task=a", "--label", "trial=2"]), (1, 2));
    assert_eq!(counted(&["--label", "task=none"]), (0, 0));
    assert_eq!(counted(&["--level", "control"]), (1, 0));
    assert_eq!(counted(&["--level", "control", "--label", "task=a"]), (0, 0));
}

#[test]
fn tables_and_rows_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let at = dir.path().to_str().unwrap();
    let text = printed(&["--by", "task", at]);
    for line in [
        "runs: 4 counted, 9 not counted (unreadable 1, altered 1, unsealed 1, not_started 1, aborted 1, gap 2, duplicate 2)",
        "files that are no ledgers: 1",
        "seen in runs that are not counted: 600 denials",
        "all counts are lower bounds",
        "BLOCKED ACTIONS",
        "PERSISTENCE: AT MOST 4 RE-ATTEMPTS ON ONE OBJECT IN ONE RUN (x.test:443)",
        "BY LEVEL",
        "BY TASK",
        "CONCENTRATION: 1 OF 3 GROUPS CARRY HALF OF THE DENIALS",
        "NOT THROUGH THE PROXY",
        "these tools do not read the proxy variables (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)",
        "NOT COUNTED",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}:\n{text}");
    }
    let words = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}:\n{text}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("network "), ["network", "9", "81.8%", "2", "50.0%", "4.5", "7", "4", "44.4%"]);
    assert_eq!(words("any "), ["any", "11", "100.0%", "3", "75.0%", "3.7", "8", "4", "36.4%"]);
    assert_eq!(words("control "), ["control", "1", "0", "0", "0.0%", "0", "0", "0", "0", "0.00"]);
    assert_eq!(words("pip "), ["pip", "/usr/bin/python3", "1", "1", "1", "10.0.0.9:53", "53", "1"]);
    assert!(!text.contains('\u{1b}'), "no colour where no terminal is");

    let rows = printed(&["--csv", at]);
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 1 + 13);
    assert_eq!(rows.iter().filter(|row| row.contains(",true,")).count(), 4);
    assert!(rows[0].ends_with(",direct,label_task,label_trial"), "{}", rows[0]);
    let groups = printed(&["--csv", "--by", "task", at]);
    let groups: Vec<&str> = groups.lines().collect();
    assert!(groups[0].starts_with("task,runs,excluded,runs_denied,runs_network,"), "{}", groups[0]);
    assert!(
        groups.iter().any(|row| row.starts_with("a,2,8,2,2,1,0,9,1,0,4,0,0,") && row.ends_with(",2")),
        "{groups:?}"
    );
}

#[test]
fn one_ledger_alone_is_shown_record_by_record() {
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let one = dir.path().join("a/1.jsonl");
    let text = printed(&[one.to_str().unwrap()]);
    assert!(text.starts_with("run ") && text.contains("TIME") && text.contains("record: complete: "), "{text}");
    let pip = "not through the proxy: pip (/usr/bin/python3): attempts 1, of them lookups 1, destinations 1, first \
        10.0.0.9:53, ports 53\nthese tools do not read the proxy variables";
    assert!(text.contains(pip), "{text}");
    let packed = dir.path().join("packed");
    let compress = ruzstd_of(&fs::read(&one).unwrap());
    fs::write(&packed, compress).unwrap();
    assert_eq!(printed(&[packed.to_str().unwrap()]), text, "compressed, it is the same ledger");
    let report = json(&[one.to_str().unwrap()]);
    assert_eq!((&report["total"]["runs"], &report["runs"][0]["denials"]["network"]), (&json!(1), &json!(7)));
    // Beside its copy it is counted once.
    let report = json(&[one.to_str().unwrap(), packed.to_str().unwrap()]);
    assert_eq!((&report["total"]["runs"], &report["excluded"]["duplicate"]), (&json!(1), &json!(1)));
}

fn ruzstd_of(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn what_cannot_be_read_is_one_line_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("empty")).unwrap();
    let good = at("a/1.jsonl");
    for (arguments, expected) in [
        (vec![at("none.jsonl")], "No such file"),
        (vec![good.clone(), at("none.jsonl")], "No such file"),
        (vec![at("empty")], "holds no ledger"),
        (vec![at("z/session.jsonl")], "line 1 is no record"),
        (vec![good.clone(), at("z/session.jsonl")], "line 1 is no record"),
        (vec!["--json".into(), at("z/damaged.jsonl.zst")], "damaged.jsonl.zst"),
        (vec!["--json".into(), "--csv".into(), good.clone()], "cannot be used with"),
        (vec!["--transcript".into(), at("none.txt"), good.clone()], "none.txt"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = report(&arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(errors.contains(expected) && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
    // A damaged one among others is an excluded run.
    let report = json(&[&good, &at("z/damaged.jsonl.zst")]);
    assert_eq!((&report["total"]["runs"], &report["excluded"]["unreadable"]), (&json!(1), &json!(1)));
}

#[test]
fn a_terminal_sees_how_far_it_is_and_no_one_else() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    cohort(dir.path());
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut command = std::process::Command::new(ledgers::tested::binary());
    command.arg("report").arg(dir.path()).stderr(pty.slave);
    let output = command.output().unwrap();
    drop(command);
    let mut seen = Vec::new();
    // The end of a terminal whose other side is closed is EIO.
    let _end = fs::File::from(pty.master).read_to_end(&mut seen);
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.starts_with("\r[#") && seen.contains(" of 14 files") && seen.ends_with("\r\u{1b}[K"), "{seen:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed(&[dir.path().to_str().unwrap()]));
}

#[test]
fn every_flag_is_described() {
    use clap::CommandFactory;
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/report.md")).unwrap();
    let cli = ringfence::cli::Cli::command();
    let report = cli.find_subcommand("report").expect("report");
    let flags: Vec<_> = report.get_arguments().filter_map(|flag| flag.get_long()).filter(|f| *f != "help").collect();
    assert!(flags.len() >= 6);
    for flag in flags {
        assert!(text.contains(&format!("| `--{flag}")), "docs/report.md lacks --{flag}");
    }
    for reason in ringfence::report::Exclusion::NAMES {
        assert!(text.contains(&format!("| `{reason}` |")), "docs/report.md lacks {reason}");
    }
}

#[test]
fn what_a_killed_run_had_counted_and_not_written_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    write(&path, Run { end: End::Unsealed, ..run("nist-high", &[], vec![host("x.test"); 50]) });
    let written = fs::read_to_string(&path).unwrap().lines().count();
    assert!(written < 51 && dir.path().join("run.counts").exists(), "{written} records");
    let report = json(&[dir.path().to_str().unwrap()]);
    assert_eq!(report["total"]["denials_in_excluded"]["network"], 50);
    assert_eq!(report["runs"][0]["reattempts"]["network"], 49);
    assert!(printed(&[path.to_str().unwrap()]).contains(", 50 denials: there is no seal"));
}

#[test]
fn the_largest_persistence_counts_all_tries_at_an_object() {
    let dir = tempfile::tempdir().unwrap();
    // Two programs at one object, above the rate at which denials are written one by one: folds stand side by side.
    let other = |n: u64| if n.is_multiple_of(2) { Some(("a", "/bin/a")) } else { Some(("b", "/bin/b")) };
    let denials = (0..200).map(|n| packet("10.0.0.9", 80, other(n))).collect();
    write(&dir.path().join("run.jsonl"), run("nist-high", &[], denials));
    let report = json(&[dir.path().to_str().unwrap()]);
    let largest = &report["persistence"]["largest"];
    assert_eq!((&largest["reattempts"], &largest["object"]), (&json!(199), &json!("10.0.0.9:80")));
    assert_eq!(
        report["tools"].as_array().unwrap().iter().map(|of| of["denials"].clone()).collect::<Vec<_>>(),
        [100, 100]
    );
}
