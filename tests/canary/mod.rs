//! What the tests of canaries share: the command as users call it, and what it says.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// `ringfence canary` with these arguments.
pub fn canary(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence")).arg("canary").args(arguments).output().expect("ringfence starts")
}

/// Its lines of JSON, and its status.
pub fn json(arguments: &[&str]) -> (Vec<Value>, i32) {
    let output = canary(arguments);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    (lines, output.status.code().expect("a status"))
}

/// Plants in a path and gives token and pattern of the one file there.
pub fn plant(path: &Path) -> (String, String) {
    let (lines, status) = json(&["plant", "--json", text(path)]);
    assert_eq!((lines.len(), status), (1, 0));
    let field = |name: &str| lines[0][name].as_str().expect(name).to_owned();
    (field("token"), field("pattern"))
}

/// Runs a script of Python's, which must succeed.
pub fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", script]).args(arguments).output().expect("python3");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A path of the tests' own, as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
