//! What the tests of canaries share: the command as users call it, and what it says.

#[path = "../tested/mod.rs"]
pub mod tested;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `ringfence canary` with these arguments.
pub fn canary(arguments: &[&str]) -> Output {
    Command::new(tested::binary()).arg("canary").args(arguments).output().expect("ringfence starts")
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

/// What a run has left, and a token that it should not have read.
pub struct Run {
    pub dir: tempfile::TempDir,
    pub token: String,
    pub pattern: String,
}

impl Run {
    pub fn new() -> Run {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("run")).unwrap();
        let reference = dir.path().join("reference.py");
        fs::write(&reference, "x = 1\n").unwrap();
        let (token, pattern) = plant(&reference);
        Run { dir, token, pattern }
    }

    /// A path beneath it, with its directory.
    pub fn at(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("run").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.at(name), content).unwrap();
    }

    /// A search of it for the token.
    pub fn scan(&self, more: &[&str]) -> (Vec<Value>, i32) {
        let run = self.dir.path().join("run");
        let arguments = ["scan", "--json", "--token", &self.token, text(&run)];
        json(&[&arguments, more].concat())
    }
}

/// The lines of one kind.
pub fn of_kind<'l>(lines: &'l [Value], kind: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// The name of the file that a line is about.
pub fn name(line: &Value) -> &str {
    Path::new(line["path"].as_str().unwrap()).file_name().unwrap().to_str().unwrap()
}
