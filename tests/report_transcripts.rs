//! What transcripts add to a report: only what tools printed, once for each act, and nothing that was observed.

mod ledgers;

use ledgers::*;
use ringfence::ledger::record::Denial;
use ringfence::policy::Axis;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const HIGH: &str = "nist-high";

/// A ledger with these denials and a transcript with this text: what the report says of them.
fn inferred_at(level: &str, denials: Vec<Denial>, text: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, transcript) = (dir.path().join("run.jsonl"), dir.path().join("t"));
    write(&ledger, run(level, &[], denials));
    fs::write(&transcript, text).unwrap();
    let report = json(&["--transcript", transcript.to_str().unwrap(), ledger.to_str().unwrap()]);
    let of_run = report["runs"][0]["inferred"].clone();
    assert_eq!(report["total"]["inferred"], of_run["denials"], "the total is the run's");
    assert_eq!(report["total"]["echoes"], of_run["echoes"]);
    of_run
}

fn inferred(denials: Vec<Denial>, text: &str) -> Value {
    inferred_at(HIGH, denials, text)
}

/// The acts as axis, answer and object.
fn acts(of: &Value) -> Vec<(String, String, String)> {
    let text = |act: &Value, key: &str| act[key].as_str().unwrap_or_default().to_owned();
    let acts = of["acts"].as_array().unwrap().iter();
    acts.map(|act| {
        assert_eq!(act["evidence"], "transcript-inferred");
        (text(act, "axis"), text(act, "answer"), text(act, "object"))
    })
    .collect()
}

fn act(axis: &str, answer: &str, object: &str) -> (String, String, String) {
    (axis.into(), answer.into(), object.into())
}

const TOUCH: &str = "touch: cannot touch '/usr/x': Read-only file system";
const CURL: &str = "curl: (6) Could not resolve host: a.test";

/// The same session in each form: the model and its calls speak of refusals on `/never`, the tools of one on `/usr/x` and
/// one on `a.test`.
fn session(form: &str) -> String {
    let lines = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let words = "rm: cannot remove '/never': Read-only file system";
    match form {
        "atif" => serde_json::to_string_pretty(&json!({
            "schema_version": "ATIF-v1.6",
            "session_id": "s",
            "agent": {"name": "terminus-2", "version": "1"},
            "steps": [
                {"step_id": 1, "source": "user", "message": words},
                {"step_id": 2, "source": "agent", "message": words, "reasoning_content": words,
                    "tool_calls": [
                        {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": words}},
                        {"tool_call_id": "c2", "function_name": "bash", "arguments": {"command": words}},
                        {"tool_call_id": "c3", "function_name": "Task", "arguments": {}}],
                    "observation": {"results": [
                        {"source_call_id": "c1", "content": TOUCH},
                        {"source_call_id": "c2", "content": [{"type": "text", "text": CURL}, {"type": "image"}]},
                        {"source_call_id": "c3", "content": words}]},
                    "metrics": {"prompt_tokens": 1}},
                {"step_id": 3, "source": "system", "message": "", "observation": {"results": [{"content": words}]}},
            ],
            "extra": {"notes": words},
        }))
        .unwrap(),
        "claude" => lines(&[
            json!({"type": "summary", "summary": words}),
            json!({"type": "user", "message": {"role": "user", "content": words}}),
            json!({"type": "assistant", "message": {"role": "assistant", "content": [
                {"type": "text", "text": words}, {"type": "thinking", "thinking": words},
                {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": words}},
                {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": words}},
                {"type": "tool_use", "id": "c3", "name": "Task", "input": {"prompt": words}},
                {"type": "tool_use", "id": "c4", "name": "Read", "input": {"file_path": "/x"}}]}}),
            json!({"type": "user", "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": TOUCH, "is_error": true}]},
                "toolUseResult": {"stdout": "", "stderr": TOUCH}}),
            json!({"type": "user", "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": CURL}]},
                {"type": "tool_result", "tool_use_id": "c3", "content": words},
                {"type": "tool_result", "tool_use_id": "c4", "content": format!("1\n2\n3\n{words}\n")}]}}),
            json!({"type": "result", "result": words}),
        ]),
        "codex" => lines(&[
            json!({"timestamp": "t", "type": "session_meta", "payload": {"id": "s", "instructions": words}}),
            json!({"timestamp": "t", "type": "response_item", "payload":
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}}),
            json!({"timestamp": "t", "type": "response_item", "payload":
                {"type": "function_call", "name": "shell", "arguments": words, "call_id": "c1"}}),
            json!({"timestamp": "t", "type": "event_msg", "payload":
                {"type": "exec_command_end", "call_id": "c1", "stdout": "", "stderr": TOUCH, "exit_code": 1}}),
            json!({"timestamp": "t", "type": "response_item", "payload":
                {"type": "function_call_output", "call_id": "c1",
                 "output": json!({"output": TOUCH, "metadata": {"exit_code": 1}}).to_string()}}),
            json!({"timestamp": "t", "type": "response_item", "payload":
                {"type": "function_call_output", "call_id": "c2", "output": format!("Exit code: 6\nOutput:\n{CURL}")}}),
            json!({"timestamp": "t", "type": "event_msg", "payload": {"type": "agent_message", "message": words}}),
        ]),
        "codex exec" => lines(&[
            json!({"type": "thread.started", "thread_id": "t"}),
            json!({"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": words}}),
            json!({"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": words,
                "aggregated_output": "", "status": "in_progress"}}),
            json!({"type": "item.completed", "item": {"id": "1", "type": "command_execution", "command": words,
                "aggregated_output": TOUCH, "exit_code": 1, "status": "failed"}}),
            json!({"type": "item.completed", "item": {"id": "2", "type": "mcp_tool_call", "arguments": words,
                "result": {"content": [{"type": "text", "text": CURL}]}, "status": "completed"}}),
            json!({"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": words}}),
        ]),
        "plain" => format!("starting\nroot@box:/app# {words}\n{TOUCH}\n{TOUCH}\n$ curl a.test\n{CURL}\n"),
        other => panic!("{other}"),
    }
}

const FORMS: [&str; 5] = ["atif", "claude", "codex", "codex exec", "plain"];

#[test]
fn only_what_tools_printed_is_read_in_every_form() {
    for form in FORMS {
        let of = inferred(vec![], &session(form));
        assert_eq!(acts(&of), [act("filesystem", "EROFS", "/usr/x"), act("network", "DNS", "a.test")], "{form}");
        assert_eq!(of["denials"], json!({"network": 1, "filesystem": 1, "privilege": 0}), "{form}");
    }
}

#[test]
fn what_was_observed_is_not_counted_again() {
    for form in FORMS {
        let observed = vec![path(Axis::Filesystem, "/usr/x", "EROFS"), host("a.test")];
        let of = inferred(observed, &session(form));
        assert_eq!((of["acts"].as_array().unwrap().len(), &of["echoes"]), (0, &json!(2)), "{form}");
    }
    // Another object on the same axis is another act.
    let others = vec![path(Axis::Filesystem, "/usr/y", "EROFS"), host("b.test")];
    assert_eq!(inferred(others, &session("plain"))["echoes"], 0);
    // A question that the firewall refused has no name, and the text has no path: the axis must do.
    let of =
        inferred(vec![packet("127.0.0.11", 53, None)], &format!("{CURL}\nOSError: [Errno 30] Read-only file system\n"));
    assert_eq!((&of["echoes"], acts(&of)), (&json!(1), vec![act("filesystem", "EROFS", "")]));
    // The text does not tell which axis refused with EACCES.
    let denied = "mkdir: cannot create directory '/usr/z': Permission denied\n";
    assert_eq!(inferred(vec![path(Axis::Filesystem, "/usr/z", "EACCES")], denied)["echoes"], 1);
    assert_eq!(inferred(vec![path(Axis::Privilege, "/usr/z", "EACCES")], denied)["echoes"], 1);
    assert_eq!(inferred(vec![host("z.test")], denied)["echoes"], 0);
    let relative = "touch: cannot touch 'y': Read-only file system\n";
    assert_eq!(inferred(vec![path(Axis::Filesystem, "/usr/y", "EROFS")], relative)["echoes"], 1);
}

#[test]
fn an_axis_that_was_open_has_no_denials() {
    for form in FORMS {
        let of = inferred_at("control", vec![], &session(form));
        assert_eq!((of["acts"].as_array().unwrap().len(), &of["open_axes"]), (0, &json!(2)), "{form}");
    }
    let of = inferred_at("non-root", vec![], "chown: changing ownership of 'x': Operation not permitted\n");
    assert_eq!(acts(&of), [act("privilege", "EPERM", "x")]);
}

#[test]
fn two_transcripts_of_one_run_tell_of_each_call_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("run.jsonl"), run(HIGH, &[], vec![]));
    fs::write(at("trajectory.json"), session("atif")).unwrap();
    fs::write(at("session.jsonl"), session("claude")).unwrap();
    let name = |name: &str| at(name).to_str().unwrap().to_owned();
    let (ledger, atif, claude) = (name("run.jsonl"), name("trajectory.json"), name("session.jsonl"));
    let report = json(&["--transcript", &atif, "--transcript", &claude, &ledger]);
    assert_eq!(report["total"]["inferred"], json!({"network": 1, "filesystem": 1, "privilege": 0}));
    let text = printed(&["--transcript", &claude, &ledger]);
    assert!(text.contains("record: complete"), "{text}");
    assert!(text.contains("inferred from transcripts, not observed: network 1, filesystem 1, privilege 0"), "{text}");
    assert!(text.contains(TOUCH), "{text}");
    assert!(!printed(&[&ledger]).contains("inferred"), "without a transcript nothing is said of them");
}

#[test]
fn a_screen_that_is_shown_again_tells_nothing_new() {
    let screen = |text: &str| json!({"source": "agent", "observation": {"results": [{"content": text}]}});
    let first = format!("New Terminal Output:\n\nroot@box:/# touch /usr/x\n{TOUCH}\nroot@box:/# ");
    let second =
        format!("Current Terminal Screen:\nroot@box:/# touch /usr/x\n{TOUCH}\nroot@box:/# ls\nbin\nroot@box:/# ");
    let again = format!("Current Terminal Screen:\nbin\nroot@box:/# touch /usr/x\n{TOUCH}\nroot@box:/# ");
    let steps = [screen(&first), screen(&second), screen(&again)];
    let of = inferred(vec![], &json!({"schema_version": "ATIF-v1.4", "steps": steps}).to_string());
    assert_eq!(of["denials"]["filesystem"], 2, "made twice, shown three times: {of}");
}

#[test]
fn a_transcript_belongs_to_the_ledger_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for trial in ["1", "2"] {
        write(&at(&format!("trial-{trial}/logs/run.jsonl")), run(HIGH, &[("trial", trial)], vec![]));
        write(&at(&format!("flat/{trial}.jsonl")), run(HIGH, &[("trial", trial), ("flat", "1")], vec![]));
    }
    fs::create_dir_all(at("trial-2/agent")).unwrap();
    fs::create_dir_all(at("else")).unwrap();
    let place = |name: &str| {
        fs::write(at(name), session("claude")).unwrap();
        at(name)
    };
    let of = |transcript: &Path| -> Vec<PathBuf> {
        let report = json(&["--transcript", transcript.to_str().unwrap(), dir.path().to_str().unwrap()]);
        let runs = report["runs"].as_array().unwrap().iter().filter(|run| !run["inferred"].is_null());
        runs.map(|run| Path::new(run["path"].as_str().unwrap()).strip_prefix(dir.path()).unwrap().to_owned()).collect()
    };
    assert_eq!(of(&place("trial-2/agent/session.jsonl")), [Path::new("trial-2/logs/run.jsonl")]);
    assert_eq!(of(&place("flat/1.trajectory.json")), [Path::new("flat/1.jsonl")]);
    for ambiguous in ["flat/session.txt", "else/session.txt"] {
        let path = place(ambiguous);
        let output = report(&["--transcript", path.to_str().unwrap(), dir.path().to_str().unwrap()]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && errors.contains("ledgers lie in or beneath"), "{errors}");
    }
}

#[test]
fn what_is_in_no_known_form_is_an_error_that_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, transcript) = (dir.path().join("run.jsonl"), dir.path().join("t.json"));
    write(&ledger, run(HIGH, &[], vec![]));
    for (text, expected) in [
        ("{\"steps\": [\n{\"source\": 7}\n]}", "line 2: is no ATIF trajectory"),
        ("{\"steps\": [", "line 1: is no ATIF trajectory"),
        ("{\n\"other\": 1\n}", "missing field `steps`"),
        ("{\"a\":1}\n{\"b\":2}\n", "line 1: no line has a known form"),
        ("[{\"type\": \"user\"}]", "line 1: a JSON array is no known form"),
    ] {
        fs::write(&transcript, text).unwrap();
        let output = report(&["--transcript", transcript.to_str().unwrap(), ledger.to_str().unwrap()]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{text}: {errors}");
        assert!(
            errors.contains("t.json") && errors.contains(expected) && errors.lines().count() == 1,
            "{text}: {errors}"
        );
    }
    // A session that was cut short, and lines of others in it, are read as far as they go.
    let mixed = format!("{}npm warn something\n{{\"type\":\"user\",\"mess", session("claude"));
    assert_eq!(inferred(vec![], &mixed)["lines_unread"], 2);
    assert_eq!(inferred(vec![], "")["denials"]["network"], 0);
}
