//! The documents are held to the code: what they list is what there is.

use ringfence::ledger::record::*;
use ringfence::policy::Axis;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// The words in back quotes.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The part of a document below the heading that names `title`, up to the next heading.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let mut parts = text.split("\n## ");
    let found = parts.find(|part| quoted(part.lines().next().unwrap_or_default()).contains(title));
    found.unwrap_or_else(|| panic!("no section for {title}"))
}

#[test]
fn the_records_fields_are_all_described() {
    let text = read("docs/record.md");
    let object = Object {
        host: Some("a.test".into()),
        port: Some(1),
        addrs: vec![[1, 2, 3, 4].into()],
        path: Some("/".into()),
        to: Some("/".into()),
        text: Some("x".into()),
    };
    let denial = Denial::observed(Axis::Network, Mechanism::Proxy, "GET", object.clone(), "port", "x");
    let start = json!({"version": "0", "policy_digest": "0", "postures": {}, "rung": "full", "command": [], "uid": 1,
        "gid": 1, "host": {}, "restrictions": {}, "labels": {}, "unobserved": [], "refusal_nonce": "0", "workspaces": {},
        "shadow": {"level": "x", "policy_digest": "x", "postures": {}},
        "shields": [{"path": "/", "digest": "0", "entries": 1}], "tripwires": ["/"]});
    let probe = json!({"id": "x", "axis": "network", "class": "direct", "expected": "x", "seen": "x", "passed": true});
    let bodies = [
        Body::Start(serde_json::from_value(start).expect("a start's fields")),
        Body::Probe(serde_json::from_value(probe).expect("a probe's fields")),
        Body::Denial(denial.clone()),
        Body::WouldDeny(denial),
        Body::Read(PathEvent {
            operation: "open".into(),
            object: object.clone(),
            subject: Subject::default(),
            count: 1,
        }),
        Body::Gap(Gap { axis: None, source: "x".into(), lost: 1, cause: "x".into() }),
        Body::Infrastructure(Infrastructure {
            operation: "x".into(),
            object: object.clone(),
            cause: "x".into(),
            http_status: None,
        }),
        Body::Abort(Abort { cause: "x".into() }),
        Body::Seal(Seal {
            started: true,
            outcome: Outcome::Exited,
            exit_code: None,
            denials: BTreeMap::new(),
            would_deny: BTreeMap::new(),
            reads: 1,
            shields: Some(ShieldsEnd::of(Vec::new())),
            git: vec![GitEnd::default()],
            complete: true,
            complete_by_axis: BTreeMap::new(),
            head: String::new(),
            digest: String::new(),
        }),
    ];
    for body in bodies {
        let described = quoted(section(&text, body.kind()));
        let of_denial = quoted(section(&text, "denial"));
        // A kind whose fields are those of a denial may say so.
        let elsewhere = matches!(body, Body::WouldDeny(_));
        let Value::Object(fields) = serde_json::to_value(&body).expect("JSON") else { panic!("no object") };
        for field in fields.keys().filter(|field| *field != "kind") {
            let known = described.contains(field.as_str()) || (elsewhere && of_denial.contains(field.as_str()));
            assert!(known, "docs/record.md: {} lacks `{field}`", body.kind());
        }
        for (part, value) in [("object", json!(object)), ("subject", json!(Subject::default()))] {
            if fields.contains_key(part) {
                for field in value.as_object().expect("an object").keys() {
                    assert!(of_denial.contains(field.as_str()), "docs/record.md: {part} lacks `{field}`");
                }
            }
        }
    }
    let record = Record {
        v: VERSION,
        seq: 0,
        time: String::new(),
        mono_ns: 0,
        run: String::new(),
        level: String::new(),
        body: Body::Abort(Abort { cause: "x".into() }),
        prev: String::new(),
    };
    let frame = text.split("## What every record has").nth(1).expect("the section");
    let Value::Object(fields) = serde_json::to_value(&record).expect("JSON") else { panic!("no object") };
    for field in fields.keys().filter(|field| *field != "cause") {
        assert!(frame.contains(&format!("| `{field}` |")), "docs/record.md: every record has `{field}`");
    }
}

#[test]
fn every_flag_and_key_is_described() {
    use clap::CommandFactory;
    let (policy, readme) = (read("docs/policy.md"), read("README.md"));
    let cli = ringfence::cli::Cli::command();
    let run = cli.find_subcommand("run").expect("run");
    for flag in run.get_arguments().filter_map(|argument| argument.get_long()).filter(|flag| *flag != "help") {
        let of_run = ["label", "rung", "json-status-fd"].contains(&flag);
        let found =
            if of_run { readme.contains(&format!("`--{flag}")) } else { policy.contains(&format!("| `{flag}`")) };
        assert!(found || flag == "policy", "--{flag} is described nowhere");
    }
    let probe = cli.find_subcommand("probe").expect("probe");
    let known: BTreeSet<&str> = run.get_arguments().filter_map(|argument| argument.get_long()).collect();
    let (probes, own) = (read("docs/probes.md"), probe.get_arguments().filter_map(|argument| argument.get_long()));
    for flag in own.filter(|flag| !known.contains(flag)) {
        assert!(probes.contains(&format!("| `--{flag}")), "docs/probes.md lacks --{flag}");
    }
    let canaries = read("docs/canaries.md");
    for command in cli.find_subcommand("canary").expect("canary").get_subcommands() {
        for flag in command.get_arguments().filter_map(|argument| argument.get_long()).filter(|flag| *flag != "help") {
            assert!(canaries.contains(&format!("| `--{flag}")), "docs/canaries.md lacks --{flag}");
        }
    }
    for command in cli.get_subcommands() {
        assert!(readme.contains(&format!("ringfence {}", command.get_name())), "{}", command.get_name());
    }
}

#[test]
fn the_suites_data_is_described() {
    let text = read("docs/probes.md");
    let described = quoted(&text);
    for operation in ringfence::probe::spec::Operation::names() {
        assert!(text.contains(&format!("| `{operation}`")), "docs/probes.md lacks the operation {operation}");
    }
    for restriction in ringfence::plan::rung::Restriction::ALL {
        let name = ringfence::probe::spec::word(&restriction);
        assert!(described.contains(name.as_str()), "docs/probes.md lacks the restriction {name}");
    }
    for spec in ringfence::probe::suite_file::built_in().expect("the built-in suite") {
        for need in &spec.needs {
            let name = ringfence::probe::spec::word(need);
            assert!(described.contains(name.as_str()), "docs/probes.md lacks the need {name}");
        }
    }
    for trace in ringfence::probe::trace::TRACES {
        assert!(text.contains(&format!("| `{}` |", trace.id)), "docs/probes.md lacks {}", trace.id);
    }
}

#[test]
fn levels_and_harnesses_are_described() {
    let text = read("docs/policy.md");
    let levels = ringfence::policy::Level::ALL;
    assert!(levels.iter().all(|level| text.contains(&format!("`{level}`"))));
    for harness in ringfence::policy::harness::all() {
        assert!(text.contains(&format!("`{}`", harness.name)), "docs/policy.md lacks {}", harness.name);
    }
}

/// Every test that SECURITY.md names is there, in the file that it names.
#[test]
fn what_shows_a_promise_exists() {
    let text = read("SECURITY.md");
    let named: Vec<&str> = quoted(&text).into_iter().filter(|word| word.contains("::")).collect();
    assert!(named.len() >= 10, "it names few tests: {named:?}");
    for word in named {
        let (file, test) = word.rsplit_once("::").expect("a file and a test");
        let source = read(file);
        assert!(source.contains(&format!("fn {test}(")), "SECURITY.md: {word} is no test");
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn names(value: &Value) -> String {
    let names: Vec<String> =
        value.as_array().expect("names").iter().map(|name| format!("`{}`", name.as_str().expect("text"))).collect();
    names.join(", ")
}

/// docs/environment.md, from the data that it tells of.
fn environment() -> String {
    let data = |name: &str| -> Value { toml::from_str(&read(&format!("harnesses/{name}.toml"))).expect(name) };
    let mut out = String::from(ENVIRONMENT_HEAD);
    let rows = |out: &mut String, value: &Value, when: Option<&str>| {
        let variables = value["variable"].as_array().cloned().unwrap_or_default();
        for variable in variables.iter().filter(|v| when.is_none_or(|when| v["when"] == when)) {
            let text = |key: &str| cell(variable[key].as_str().expect(key));
            writeln!(out, "| `{}` | `{}` | {} | {} |", text("name"), text("value"), text("merge"), text("reason"))
                .unwrap();
        }
    };
    const TABLE: &str = "| variable | value | caller's | why |\n|---|---|---|---|\n";
    let tools = data("tools");
    write!(out, "\n## Where egress goes through the proxy\n\n{TABLE}").unwrap();
    rows(&mut out, &tools, Some("proxy"));
    write!(out, "\n## Where the proxy admits port 22 for some host\n\n{TABLE}").unwrap();
    rows(&mut out, &tools, Some("ssh"));
    write!(out, "\n## Where the filesystem axis is above open\n\n{TABLE}").unwrap();
    rows(&mut out, &tools, Some("read-only-home"));
    out += "\n## Files\n\nMounted over the image's own in the command's view: its text, with ours after it.\n\n";
    out += "| files | text | why |\n|---|---|---|\n";
    for file in tools["file"].as_array().expect("files") {
        let text: Vec<String> =
            file["append"].as_str().expect("text").trim().lines().map(|line| format!("`{line}`")).collect();
        let reason = cell(file["reason"].as_str().expect("reason"));
        writeln!(out, "| {} | {} | {reason} |", names(&file["paths"]), text.join("<br>")).unwrap();
    }
    out += "\n## Harnesses\n";
    for harness in ringfence::policy::harness::all() {
        let value = data(harness.name);
        writeln!(out, "\n### `{}`\n", harness.name).unwrap();
        if harness.endpoints.is_empty() && harness.state.is_empty() && harness.variables.is_empty() {
            out += "Nothing of its own.\n";
            continue;
        }
        out += "| what | | why |\n|---|---|---|\n";
        for (what, key, field) in [("endpoint", "endpoint", "entry"), ("directory", "state", "path")] {
            for item in value[key].as_array().cloned().unwrap_or_default() {
                let text = |key: &str| cell(item[key].as_str().expect(key));
                writeln!(out, "| {what} | `{}` | {} |", text(field), text("reason")).unwrap();
            }
        }
        for variable in value["variable"].as_array().cloned().unwrap_or_default() {
            let text = |key: &str| cell(variable[key].as_str().expect(key));
            writeln!(out, "| variable | `{}={}` | {} |", text("name"), text("value"), text("reason")).unwrap();
        }
    }
    out += "\n## Dropped\n\nVariables of the caller's that a restricted command does not get. `*` stands for any text.\n\n";
    out += "| variables | why |\n|---|---|\n";
    for dropped in data("dropped")["dropped"].as_array().expect("dropped") {
        let any_case = if dropped["any-case"] == true { " (in any case)" } else { "" };
        let reason = cell(dropped["reason"].as_str().expect("reason"));
        writeln!(out, "| {}{any_case} | {reason} |", names(&dropped["names"])).unwrap();
    }
    out
}

const ENVIRONMENT_HEAD: &str = "\
# The command's environment

The command gets the caller's environment, less the variables under \"Dropped\", with `HOME`, `USER` and `LOGNAME` of its
own account, and with what tools need behind a proxy on loopback and in a home that is read-only but for `~/.cache`,
`~/.config`, `~/.local` and the harness's own directory. `--clear-env` starts empty; `--env-drop NAME` drops one more;
`--env-pass NAME` passes the caller's value, whatever stands here. Where no axis is above open, nothing is changed but
what the policy says.

`{proxy_url}`, `{proxy_host}`, `{proxy_port}`, `{home}` and `{program}` (ringfence's own file) are filled in. What
becomes of a value of the caller's: `replace`: ours stands in its place; `keep`: it stays; `append`: ours follows it;
`path`: it stays where the command may write there.

This page is made of `harnesses/*.toml`, by `UPDATE_DOCS=1 cargo nextest run --test docs`.
";

#[test]
fn the_environment_is_described_as_it_is() {
    let made = environment();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/environment.md");
        std::fs::write(path, &made).expect("write docs/environment.md");
    }
    assert!(read("docs/environment.md") == made, "docs/environment.md is out of date: UPDATE_DOCS=1");
}
