//! A parent proxy outside, see parent.py.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use world::World;

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
