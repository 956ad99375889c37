//! A session that is up, on any rung, and what is asked of it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{self, Ended, Fence, RINGFENCE};
use crate::rung::{self, Rung, WORKSPACE};
use std::process::{Command, Stdio};
use world::Said;

/// The rung's user, home and workspace, and a directory for the sessions of an ordinary user.
pub struct Place<'a> {
    pub fence: &'a Fence,
    pub rung: Rung,
    pub user: u32,
    pub home: String,
}

impl<'a> Place<'a> {
    pub fn new(fence: &'a Fence, rung: Rung) -> Place<'a> {
        let user = common::own_user();
        let home = format!("/home/dev{user}");
        rung::prepare(fence, user, &home);
        common::as_root(fence, &format!("install -d -m 0700 -o {user} -g {user} /run/user-{user}"));
        Place { fence, rung, user, home }
    }

    /// `ringfence ARGUMENTS` as who has the session.
    pub fn ringfence(&self, arguments: &[&str]) -> Command {
        let mut command = self.fence.world.command(RINGFENCE);
        command.current_dir(WORKSPACE).env("HOME", &self.home).args(arguments);
        if self.rung.is_ordinary_user() {
            command.env("XDG_RUNTIME_DIR", format!("/run/user-{}", self.user));
        }
        command
    }

    /// Runs it to its end.
    pub fn said(&self, arguments: &[&str]) -> Said {
        self.output(self.ringfence(arguments))
    }

    pub fn output(&self, command: Command) -> Said {
        Said::from(self.fence.world.output_with(&self.rung.less(self.user), command))
    }

    /// The directory of the sockets.
    pub fn sockets(&self) -> String {
        match self.rung.is_ordinary_user() {
            true => format!("/run/user-{}/ringfence", self.user),
            false => "/run/ringfence".into(),
        }
    }

    /// The command that opens a session, and its ledger.
    pub fn up_command(&self, flags: &[&str]) -> (Command, String) {
        let (run, ledger) = self.rung.command(self.fence, self.user, &self.home, &[], &["true"]);
        // A run's flags, without the word that makes it one, and without a command.
        let arguments: Vec<String> = run.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let of_run: Vec<&str> =
            arguments[1..].iter().map(String::as_str).take_while(|argument| *argument != "--").collect();
        let leftovers = of_run.iter().position(|argument| *argument == "--leftovers").expect("a run has it");
        let (before, after) = (&of_run[..leftovers], &of_run[leftovers + 2..]);
        (self.ringfence(&[&["up"], before, after, flags].concat()), ledger)
    }

    /// Opens one.
    pub fn up(&self, flags: &[&str]) -> Session<'_> {
        let (command, ledger) = self.up_command(flags);
        let said = self.output(command);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said}");
        let line: Vec<&str> = said.out.split(['\n', ' ']).collect();
        let [name, run, ""] = line[..] else { panic!("one line with a name and a run: {said}") };
        Session { place: self, name: name.to_owned(), run: run.to_owned(), ledger }
    }
}

/// A session.
pub struct Session<'a> {
    pub place: &'a Place<'a>,
    pub name: String,
    pub run: String,
    pub ledger: String,
}

impl Session<'_> {
    /// `ringfence exec FLAGS -- ARGUMENTS`.
    pub fn command(&self, flags: &[&str], arguments: &[&str]) -> Command {
        self.place.ringfence(&[&["exec", "--name", &self.name], flags, &["--"], arguments].concat())
    }

    /// The same, to its end.
    pub fn exec(&self, flags: &[&str], arguments: &[&str]) -> Said {
        self.place.output(self.command(flags, arguments))
    }

    /// A script of bash.
    pub fn bash(&self, script: &str) -> Said {
        self.exec(&[], &["bash", "-c", script])
    }

    /// The same, started.
    pub fn start(&self, mut command: Command) -> std::process::Child {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let place = self.place;
        place.fence.world.spawn_with(&place.rung.less(place.user), command).expect("ringfence starts")
    }

    /// `ringfence status --json`.
    pub fn status(&self) -> serde_json::Value {
        let said = self.place.said(&["status", "--name", &self.name, "--json"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said}");
        serde_json::from_str(&said.out).expect("JSON")
    }

    /// A process of ours, by what it is.
    pub fn supervisor(&self) -> i32 {
        self.status()["supervisor"].as_i64().expect("a number") as i32
    }

    /// Ends it; its record is whole.
    pub fn down(self) -> Ended {
        let said = self.place.said(&["down", "--name", &self.name]);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{said}");
        self.record(said)
    }

    /// The record as it is.
    pub fn record(&self, said: Said) -> Ended {
        self.place.fence.ended(said, self.ledger.clone())
    }
}
