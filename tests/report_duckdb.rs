//! The queries of docs/report.md, run by DuckDB on the ledgers as they are, give what the report gives.

mod ledgers;

use ledgers::*;
use ringfence::policy::Axis;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers without a pattern, the same in each run of the test (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Two hundred runs of twelve tasks on three levels, every fifth compressed, every ninth not to be counted.
fn generate(dir: &Path) {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for n in 0..200 {
        let task = format!("task-{}", numbers.below(12));
        let labels = [("task", task.as_str())];
        // Quotes, commas and line ends are for the CSV to carry.
        let labels = if n % 7 == 0 { vec![labels[0], ("note", "a \"b\", c\nd")] } else { labels.to_vec() };
        let level = ["nist-high", "non-root", "control"][n % 3];
        let mut denials = Vec::new();
        for _ in 0..numbers.below(12) * numbers.below(4) {
            let which = numbers.below(5);
            let denial = match which {
                0 | 1 => host(&format!("h{}.test", numbers.below(9))),
                2 => packet(["10.0.0.9", "fd00::9"][numbers.below(2) as usize], 53, Some(("dig", "/usr/bin/dig"))),
                3 if numbers.below(2) == 0 => {
                    let mut link = path(Axis::Filesystem, "/tmp/a", "EROFS");
                    link.object.to = Some("/usr/a".into());
                    link
                }
                // One to this machine itself is none that a proxy would have served.
                3 => packet(["10.0.0.8", "127.0.0.1", "::1"][numbers.below(3) as usize], 80, None),
                _ => path(Axis::Filesystem, &format!("/usr/share/{}", numbers.below(5)), "EROFS"),
            };
            let denial = if level == "non-root" { path(Axis::Privilege, "/etc/shadow", "EACCES") } else { denial };
            denials.push(times(denial, 1 + numbers.below(3) * numbers.below(30)));
        }
        if level == "control" {
            denials.clear();
        }
        let end = match n % 9 {
            0 => [End::Unsealed, End::Gap(None), End::NotStarted, End::Aborted][n / 9 % 4],
            _ => End::Sealed,
        };
        let plain = dir.join(format!("{}/{n}.jsonl", n % 13));
        write(&plain, Run { level, labels: &labels, denials, end });
        if n % 5 == 0 {
            let bytes = fs::read(&plain).expect("the ledger");
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            fs::write(
                dir.join(format!("{}/{n}.jsonl.zst", n % 13)),
                ruzstd::encoding::compress_to_vec(&bytes[..], level),
            )
            .expect("compressed");
            fs::remove_file(&plain).expect("the plain one");
        }
        if n % 50 == 1 {
            // A copy counts once; a line cut short is no record.
            fs::copy(&plain, dir.join(format!("copy-{n}.jsonl"))).expect("a copy");
            let whole = fs::read(&plain).expect("the ledger");
            fs::write(dir.join(format!("cut-{n}.jsonl")), &whole[..whole.len() - 20]).expect("a cut copy");
        }
    }
}

fn queried(dir: &Path, runs: &Path) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .env("PYTHONPATH", root.join("target/duckdb"))
        .arg(root.join("tests/fixtures/duckdb_queries.py"))
        .args([&root.join("docs/report.md"), dir, runs])
        .output()
        .expect("python3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "DuckDB (.ci/deps test installs it): {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Rows of only these fields, in an order of their own.
fn rows(value: &Value, fields: &[&str]) -> Vec<Value> {
    let cell = |row: &Value, field: &&str| match &row[*field] {
        // Means are the same number whichever way it was rounded.
        Value::Number(number) if number.is_f64() => json!(format!("{:.9}", number.as_f64().expect("a number"))),
        other => other.clone(),
    };
    let row = |row: &Value| Value::Array(fields.iter().map(|field| cell(row, field)).collect());
    let mut rows: Vec<Value> = value.as_array().expect("rows").iter().map(row).collect();
    rows.sort_by_key(Value::to_string);
    rows
}

#[test]
fn duckdb_and_the_report_agree() {
    let dir = tempfile::tempdir().expect("a directory");
    let logs = dir.path().join("logs");
    generate(&logs);
    let runs = dir.path().join("runs.csv");
    let at = logs.to_str().expect("UTF-8");
    fs::write(&runs, printed(&["--csv", at])).expect("runs.csv");
    let report = json(&["--by", "task", at]);
    let found = queried(&logs, &runs);

    let total = &report["total"];
    assert!(total["runs"].as_u64() > Some(150) && total["excluded"].as_u64() > Some(20), "{total}");
    let axes = ["axis", "denials", "runs", "mean", "most_in_one_run", "reattempts"];
    // The report has a row for an axis without denials, too.
    assert!(total["axes"].as_array().expect("axes").iter().all(|row| row["denials"].as_u64() > Some(0)), "{total}");
    assert_eq!(rows(&found["axes"], &axes), rows(&total["axes"], &axes));

    let any = |of: &Value| of["axes"].as_array().and_then(|axes| axes.last().cloned()).expect("the row of all");
    let summed = |groups: &Value, key: &str| -> Value {
        let row = |of: &Value| {
            json!({key: of[key], "runs": of["runs"], "excluded": of["excluded"], "with_any": any(of)["runs"],
                "denials": any(of)["denials"]})
        };
        groups.as_array().expect("groups").iter().map(row).collect()
    };
    let fields = ["level", "runs", "excluded", "with_any", "denials"];
    assert_eq!(rows(&found["levels"], &fields), rows(&summed(&report["levels"], "level"), &fields));
    let control = found["levels"].as_array().expect("levels").iter().find(|of| of["level"] == "control");
    assert_eq!(control.expect("control")["denials"], 0);
    let fields = ["group", "runs", "with_any", "denials"];
    assert_eq!(rows(&found["groups"], &fields), rows(&summed(&report["groups"], "group"), &fields));

    let fields = ["axis", "object", "denials", "reattempts", "runs"];
    assert_eq!(rows(&found["persistence"], &fields), rows(&report["persistence"]["objects"], &fields));
    assert_eq!(found["largest"][0]["reattempts"], report["persistence"]["largest"]["reattempts"]);

    let objects = &report["concentration"]["objects"];
    let fields = ["axis", "object", "denials", "runs"];
    assert_eq!(rows(&found["objects"], &fields), rows(&objects["largest"], &fields));
    assert_eq!(found["half"][0]["half"], objects["half"]);
    let buckets = report["concentration"]["buckets"].as_array().expect("buckets").clone();
    let buckets: Value = buckets.into_iter().filter(|bucket| bucket["count"] != 0).collect();
    let fields = ["denials", "count", "volume"];
    assert_eq!(rows(&found["buckets"], &fields), rows(&buckets, &fields));

    let fields = ["comm", "exe", "denials", "lookups", "destinations", "runs"];
    assert_eq!(rows(&found["tools"], &fields), rows(&report["tools"], &fields));
    let excluded = report["excluded"].as_object().expect("reasons").iter();
    let excluded: Value = excluded.map(|(reason, runs)| json!({"reason": reason, "runs": runs})).collect();
    let fields = ["reason", "runs"];
    assert_eq!(rows(&found["excluded"], &fields), rows(&excluded, &fields));
    assert_eq!(found.as_object().expect("queries").len(), 10, "every query of the document is compared");
}
