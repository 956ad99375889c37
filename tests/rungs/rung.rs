//! The four rungs, each as a box that leaves ringfence no more than that rung takes.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{Ended, Fence, RINGFENCE};
use std::process::Command;
use world::{Less, Said};

/// A rung, with what starts ringfence there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    Full,
    Container,
    Rootless,
    Bare,
}

pub const RUNGS: [Rung; 4] = [Rung::Full, Rung::Container, Rung::Rootless, Rung::Bare];

impl Rung {
    /// As `--rung` takes it and the start record has it.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Full => "full",
            Rung::Container => "container",
            Rung::Rootless => "rootless",
            Rung::Bare => "bare",
        }
    }

    /// Whether sockets are made for the command, and metadata calls by the worker: there is no firewall and no mount.
    pub fn is_without_namespaces(self) -> bool {
        matches!(self, Rung::Container | Rung::Bare)
    }

    /// Whether the caller is an ordinary user, and so the command's identity his own.
    pub fn is_ordinary_user(self) -> bool {
        matches!(self, Rung::Rootless | Rung::Bare)
    }

    /// What ringfence starts with there.
    pub fn less(self, user: u32) -> Less {
        match self {
            Rung::Full => Less::new(),
            Rung::Container => Less::new().container(),
            Rung::Rootless => Less::new().uid(user, user),
            Rung::Bare => Less::new().uid(user, user).no_userns(),
        }
    }

    /// `ringfence run … -- ARGUMENTS` by this rung as `user`, whose home is `home`, and its ledger.
    pub fn command(
        self,
        fence: &Fence,
        user: u32,
        home: &str,
        flags: &[&str],
        arguments: &[&str],
    ) -> (Command, String) {
        // A ledger's directory is root's or the caller's.
        let ledger = match self.is_ordinary_user() {
            true => format!("{LEDGERS}-{user}/{}.jsonl", self.name()),
            false => format!("{LEDGERS}/{}.jsonl", self.name()),
        };
        let identity = format!("{user}:{user}");
        let mut command = fence.world.command(RINGFENCE);
        command.current_dir(WORKSPACE).env("HOME", home);
        command.args(["run", "--policy", "nist-high", "--rung", self.name(), "--workspace", WORKSPACE]);
        if !self.is_ordinary_user() {
            command.args(["--user", &identity]);
        }
        // On `bare` nothing within the workspace can be kept read-only, which is refused by name.
        if self.is_ordinary_user() {
            command.arg("--protect");
        }
        if !flags.contains(&"--leftovers") {
            command.args(["--leftovers", "kill"]);
        }
        command.args(flags).args(["--ledger", &ledger, "--"]).args(arguments);
        (command, ledger)
    }

    /// Runs it to its end.
    pub fn run(self, fence: &Fence, user: u32, home: &str, flags: &[&str], arguments: &[&str]) -> Ended {
        let (command, ledger) = self.command(fence, user, home, flags, arguments);
        let said = Said::from(fence.world.output_with(&self.less(user), command));
        fence.ended(said, ledger)
    }
}

/// Where root's ledgers are; with `-UID` a user's.
const LEDGERS: &str = "/var/log/rungs";
/// The command's working directory.
pub const WORKSPACE: &str = "/workspace";

/// Makes the user's home, workspace and the directory of ledgers.
pub fn prepare(fence: &Fence, user: u32, home: &str) {
    let mut passwd = fence.world.read("/etc/passwd").unwrap_or_default();
    passwd.extend_from_slice(format!("dev{user}:x:{user}:{user}::{home}:/bin/bash\n").as_bytes());
    fence.world.write("/etc/passwd", passwd, 0o644);
    let mut group = fence.world.read("/etc/group").unwrap_or_default();
    group.extend_from_slice(format!("dev{user}:x:{user}:\n").as_bytes());
    fence.world.write("/etc/group", group, 0o644);
    let own = format!("install -d -m 0700 -o {user} -g {user} {home} {LEDGERS}-{user}");
    crate::common::as_root(fence, &format!("install -d {LEDGERS}; {own}; install -d -o {user} -g {user} {WORKSPACE}"));
}
