//! Each form of an outcome, from a row of each kind.
use super::super::standing::Standing;
use super::*;
use crate::plan::rung::Restriction;
use std::process::{Command, Stdio};

fn row(id: &str, axis: &'static str, outcome: Outcome) -> Row {
    Row {
        id: id.into(),
        title: "It's #1 & <holds>".into(),
        axis,
        nist: vec!["SC-7".into()],
        class: "direct".into(),
        outcome,
        why: "Because \"it\" must.".into(),
    }
}

fn report(rows: Vec<Row>) -> Report {
    let text = |text: &str| text.to_owned();
    Report {
        run: text("0a"),
        level: text("nist-high"),
        digest: text("d"),
        rung: text("full"),
        ledger: text("/l"),
        restrictions: Vec::new(),
        rows,
    }
}

fn three() -> Report {
    let (expected, seen) = ("EPERM or <none>".to_owned(), "ok\u{1b}[2J\u{ffff} \"é\"".to_owned());
    report(vec![
        row("network.direct.a", "network", Outcome::Passed { expected: "x".into(), seen: "x".into() }),
        row("privilege.direct.b", "privilege", Outcome::Failed { expected, seen }),
        row("network.direct.c", "network", Outcome::Skipped { cause: "not here: mounts # 1".into() }),
    ])
}

/// What a program says of a text on its standard input.
fn read_by(program: &str, arguments: &[&str], text: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|cause| panic!("{program}: {cause}"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success(), "{program}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn a_table_shows_what_was_tried_and_counts_the_rest() {
    let text = render(&three(), Form::Table);
    assert!(text.starts_with("run 0a  level nist-high  rung full\npolicy: d\nrecord: /l\n\n"), "{text}");
    let failed = text.lines().find(|line| line.starts_with("FAILED")).unwrap();
    assert!(failed.contains("privilege.direct.b") && failed.contains("\\x1b[2J"), "{failed}");
    assert!(failed.ends_with("expected EPERM or <none>") && !text.contains('\u{1b}'), "{failed}");
    assert!(
        text.contains("\nprivilege.direct.b: Because \"it\" must.\n") && !text.contains("network.direct.c"),
        "{text}"
    );
    assert!(text.ends_with("1 passed, 1 failed, 0 not judged, 1 do not apply\n"), "{text}");
}

#[test]
fn json_has_every_row_and_the_counts() {
    let value: serde_json::Value = serde_json::from_str(&render(&three(), Form::Json)).unwrap();
    assert_eq!((&value["passed"], &value["failed"], &value["skipped"]), (&json!(1), &json!(1), &json!(1)));
    let probes = value["probes"].as_array().unwrap();
    assert_eq!(
        probes.iter().map(|p| p["outcome"].as_str().unwrap()).collect::<Vec<_>>(),
        ["passed", "failed", "skipped"]
    );
    assert_eq!(probes[1]["seen"], "ok\u{1b}[2J\u{ffff} \"é\"");
    assert_eq!((&value["run"], &value["rung"], &value["ledger"]), (&json!("0a"), &json!("full"), &json!("/l")));
}

/// TAP::Parser is the reader that `prove` is made of.
#[test]
fn tap_is_read_by_its_usual_reader() {
    const READER: &str = r#"use TAP::Parser; local $/; my $parser = TAP::Parser->new({tap => <STDIN>});
        while (my $r = $parser->next) {
            print join("|", $r->number, $r->is_ok ? "ok" : "not", $r->has_skip ? "skip " . $r->explanation : "", $r->description), "\n" if $r->is_test;
            print "yaml|", $r->data->{seen}, "\n" if $r->is_yaml;
        }
        print "version ", $parser->version, " plan ", $parser->plan, " problems ", scalar($parser->parse_errors), "\n";
        print "failed ", join(",", $parser->failed), " skipped ", join(",", $parser->skipped), "\n";"#;
    let said = read_by("perl", &["-CS", "-e", READER], &render(&three(), Form::Tap));
    assert!(said.contains("version 13 plan 1..3 problems 0\nfailed 2 skipped 3\n"), "{said}");
    assert!(said.contains("3|ok|skip not here: mounts"), "{said}");
    assert!(said.contains("yaml|ok\\x1b[2J"), "{said}");
    assert!(said.contains("1|ok||- network.direct.a: It's "), "{said}");
}

#[test]
fn junit_is_read_by_an_xml_parser() {
    const READER: &str = "
import sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
assert root.tag == 'testsuites', root.tag
for element in [root] + list(root):
    cases = element.findall('.//testcase')
    assert int(element.get('tests')) == len(cases)
    assert int(element.get('failures')) == len([c for c in cases if c.find('failure') is not None])
    assert int(element.get('skipped')) == len([c for c in cases if c.find('skipped') is not None])
    assert int(element.get('errors')) == len([c for c in cases if c.find('error') is not None])
for suite in root:
    assert suite.tag == 'testsuite' and {p.get('name') for p in suite.find('properties')} >= {'run', 'policy', 'rung', 'nist'}
    for case in suite.findall('testcase'):
        print(suite.get('name'), case.get('classname'), case.get('name'), [(e.tag, e.get('message'), e.text) for e in case])
";
    let said = read_by("python3", &["-c", READER], &render(&three(), Form::Junit));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "network ringfence.network.direct network.direct.a []");
    assert_eq!(
        lines[1],
        "network ringfence.network.direct network.direct.c [('skipped', 'not here: mounts # 1', None)]"
    );
    assert!(lines[2].contains(r#"'expected EPERM or <none>, saw ok\\x1b[2J"#), "{said}");
    assert!(lines[2].contains(r#"It\'s #1 & <holds>. Because "it" must."#), "{said}");
}

/// One that could not be tried, of a restriction of which nothing is known.
fn not_judged() -> Report {
    let cause = "not here: <no> proxy".to_owned();
    let restrictions = vec![
        Shown {
            restriction: Restriction::EgressAllowlist,
            standing: Standing::NotJudged,
            because: "a: not here: \u{1b}x".into(),
        },
        Shown { restriction: Restriction::Keyring, standing: Standing::Held, because: "2 probes".into() },
    ];
    let passed = Outcome::Passed { expected: "x".into(), seen: "x".into() };
    let rows = vec![
        row("network.direct.a", "network", passed),
        row("network.direct.b", "network", Outcome::NotJudged { cause }),
    ];
    Report { restrictions, ..report(rows) }
}

#[test]
fn what_is_not_judged_is_a_success_in_no_form() {
    let report = not_judged();
    assert_eq!(report.status(), 1);
    let text = render(&report, Form::Table);
    assert!(text.contains("\nnot judged: egress by allowlist (a: not here: \\x1bx)\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("own session keyring  held")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("NOT JUDGED  network.direct.b")), "{text}");
    assert!(text.ends_with("1 passed, 0 failed, 1 not judged, 0 do not apply\n"), "{text}");

    let value: serde_json::Value = serde_json::from_str(&render(&report, Form::Json)).unwrap();
    assert_eq!((&value["not_judged"], &value["failed"]), (&json!(1), &json!(0)));
    assert_eq!(value["probes"][1]["outcome"], "not-judged");
    assert_eq!(value["restrictions"][0]["restriction"], "egress-allowlist");
    assert_eq!(value["restrictions"][0]["standing"], "not-judged");

    const TAP: &str = "use TAP::Parser; local $/; my $p = TAP::Parser->new({tap => <STDIN>}); $p->run; \
                       print scalar($p->parse_errors), ' failed ', join(',', $p->failed), ' skipped ', scalar($p->skipped)";
    let tap = render(&report, Form::Tap);
    assert_eq!(read_by("perl", &["-CS", "-e", TAP], &tap), "0 failed 2 skipped 0");
    assert!(tap.contains("# not judged: egress by allowlist"), "{tap}");

    const JUNIT: &str = "
import sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
print(root.get('failures'), root.get('errors'), root.get('skipped'), [s.get('errors') for s in root])
print([(c.get('name'), e.tag, e.get('message')) for c in root.iter('testcase') for e in c])
";
    let said = read_by("python3", &["-c", JUNIT], &render(&report, Form::Junit));
    assert_eq!(said, "0 1 0 ['1', '0', '0']\n[('network.direct.b', 'error', 'not here: <no> proxy')]\n");
}

#[test]
fn nothing_to_try_is_said() {
    let rows = vec![row("network.direct.c", "network", Outcome::Skipped { cause: "not in force: x".into() })];
    assert!(render(&report(rows.clone()), Form::Table).contains("nothing to try"));
    assert!(render(&report(rows), Form::Tap).contains("# nothing to try"));
    assert!(!render(&three(), Form::Table).contains("nothing to try"));
}
