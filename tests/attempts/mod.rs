//! Single system calls made in the box, by a static program of the suite's own that needs nothing of the image.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::Fence;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use world::World;

/// Where the program lies in the box.
pub const ATTEMPTS: &str = "/usr/local/bin/attempts";

/// Puts the program into a world's box.
pub fn install(world: &World) {
    world.write(ATTEMPTS, program(), 0o755);
}

/// A closed world whose box has ringfence and the program.
pub fn fence() -> Fence {
    let fence = Fence::new();
    install(&fence.world);
    fence
}

/// The program, compiled once a process.
pub fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("tests/attempts/attempts.c"))
}

/// A static program from a source file of the suite's, named from the package's root.
pub fn compile(source: &str) -> Vec<u8> {
    compile_with(&["-pthread"], source)
}

/// The same with these further arguments of the compiler's.
pub fn compile_with(arguments: &[&str], source: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let directory = tempfile::tempdir().expect("a scratch directory");
    let binary = directory.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-static", "-O1", "-Wall", "-Wextra", "-Werror"]).args(arguments).arg("-o").arg(&binary).arg(source);
    let said = cc.output().expect("cc is installed (.ci/deps)");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    std::fs::read(&binary).expect("read what cc made")
}

/// Lines `WHAT OUTCOME`, in order.
pub fn outcomes(text: &str) -> Vec<(&str, &str)> {
    text.lines().map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("no outcome in {line:?}"))).collect()
}

/// The outcomes that are not the expected one.
pub fn others<'a>(text: &'a str, expected: &str) -> Vec<(&'a str, &'a str)> {
    outcomes(text).into_iter().filter(|(_, outcome)| *outcome != expected).collect()
}
