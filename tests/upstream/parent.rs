//! A parent proxy outside, see parent.py, and runs by it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{Ended, Fence};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use world::address::PRIVATE4;
use world::{Said, World};

pub const PORT: u16 = 3128;
/// The password as a URL has it, and as it is.
pub const WRITTEN: &str = "robot:tr%40ffic-pw";
pub const PAIR: &str = "robot:tr@ffic-pw";
/// The pair by the Basic scheme.
pub const BASIC: &str = "cm9ib3Q6dHJAZmZpYy1wdw==";

pub fn url() -> String {
    format!("http://{WRITTEN}@{PRIVATE4}:{PORT}/")
}

pub fn run_with(fence: &Fence, environment: &[(&str, &str)], flags: &[&str], script: &str) -> Ended {
    let (mut command, ledger) = fence.command(flags, &["bash", "-c", script]);
    command.envs(environment.iter().copied());
    fence.ended(fence.output(command), ledger)
}

pub fn said_with(fence: &Fence, environment: &[(&str, &str)], arguments: &[&str]) -> Said {
    let mut command = fence.ringfence(arguments);
    command.envs(environment.iter().copied());
    fence.output(command)
}

#[track_caller]
pub fn without_credentials(text: &str) {
    for part in [WRITTEN, PAIR, BASIC, "tr%40ffic", "tr@ffic"] {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

pub struct Parent {
    child: Child,
    heard: TempDir,
}

impl Parent {
    /// Listens at an address of the outside. `pair` is `USER:PASSWORD`, or empty where none are demanded.
    pub fn start(world: &World, address: IpAddr, port: u16, pair: &str, table: serde_json::Value) -> Parent {
        let heard = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("python3");
        command
            .args(["-c", include_str!("parent.py"), &address.to_string(), &port.to_string(), pair])
            .arg(heard.path().join("heads"))
            .arg(table.to_string())
            .stdout(Stdio::piped());
        let mut child = world.outside().run(move || command.spawn()).expect("python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Parent { child, heard }
    }

    /// The heads that it got, in their order.
    pub fn heads(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.heard.path().join("heads")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}
