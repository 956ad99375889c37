//! A process beside the command: in its namespaces, with its ids, and without the notifier. Nothing of ringfence makes it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::Fence;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Where acts.c lies in the box.
pub const PROGRAM: &str = "/usr/local/lib/acts/acts";

/// acts.c, compiled once a process.
pub fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acts/acts.c");
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let binary = scratch.path().join("acts");
        let mut cc = Command::new("cc");
        cc.args(["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&binary).arg(source);
        let said = cc.output().expect("cc is installed (.ci/deps)");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        std::fs::read(&binary).expect("read what cc made")
    })
}

/// The environment of a process.
pub fn environment(pid: &str) -> Vec<(String, String)> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).expect("the process lives");
    let text = String::from_utf8(bytes).expect("an environment of text");
    text.split_terminator('\0').filter_map(|v| v.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// `bash SCRIPT` beside the process `pid` of a command that runs as `user`, with that process's environment.
pub fn bash(fence: &Fence, pid: &str, user: u32, script: &str) -> Command {
    let id = user.to_string();
    let mut command = fence.world.command(PROGRAM);
    command.args(["enter", pid, &id, &id, "/bin/bash", script]);
    command.env_clear().envs(environment(pid));
    command
}
