//! A dev box in the closed world: an ordinary user with a home, a project under git and no capability.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{Ended, Fence, RINGFENCE, as_root};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use world::Said;

/// The user's uid and gid.
pub const UID: u32 = 1000;
/// Where the user works.
pub const PROJECT: &str = "/home/dev/project";
const STATE: &str = "/home/dev/.local/state/ringfence";

/// The box.
pub struct Dev {
    pub fence: Fence,
}

impl Dev {
    /// A box whose user has a home with a git identity and a project with one commit.
    pub fn new() -> Dev {
        let dev = Dev { fence: Fence::new() };
        let passwd = String::from_utf8(dev.fence.world.read("/etc/passwd").unwrap_or_default()).expect("text");
        let others: String = passwd.lines().filter(|l| !l.contains(":1000:")).map(|l| format!("{l}\n")).collect();
        dev.fence.world.write("/etc/passwd", others + "dev:x:1000:1000::/home/dev:/bin/bash\n", 0o644);
        as_root(&dev.fence, "mkdir -p /home/dev/project /run/user/1000; chown -R 1000:1000 /home/dev /run/user/1000");
        dev.must(
            "git config --global user.name Dev; git config --global user.email dev@box.test
             git init -q; echo one > file; git add file; git commit -qm one",
        );
        dev
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.fence.world.command(program);
        command.uid(UID).gid(UID).env("HOME", "/home/dev").current_dir("/");
        command
    }

    /// What a script of the user's says, without ringfence.
    pub fn said(&self, script: &str) -> Said {
        let mut command = self.command("bash");
        command.args(["-c", &format!("cd {PROJECT} && {{ {script}\n}}")]);
        Said::from(self.fence.world.output(command))
    }

    /// The same, which must succeed line by line; what it says.
    pub fn must(&self, script: &str) -> String {
        let said = self.said(&format!("set -e; {script}"));
        assert_eq!(said.code, Some(0), "{script}: {said}");
        said.out
    }

    /// The command `ringfence run FLAGS -- bash -c SCRIPT` of the user's, in the project unless `before` changes that.
    pub fn ringfence(&self, before: &str, flags: &[&str], script: &str) -> Command {
        let mut command = self.command("bash");
        let start = format!("cd {PROJECT} && {before} exec \"$@\"");
        command.args(["-c", &start, "bash", RINGFENCE, "run"]).args(flags).args(["--", "bash", "-c", script]);
        command
    }

    /// Runs a script under ringfence in the project.
    pub fn run(&self, flags: &[&str], script: &str) -> Ended {
        self.run_after("", flags, script)
    }

    /// The same after a script of the user's in the same shell, which ends in `;` or sets variables.
    pub fn run_after(&self, before: &str, flags: &[&str], script: &str) -> Ended {
        let said = Said::from(self.fence.world.output(self.ringfence(before, flags, script)));
        self.fence.ended(said, self.ledger())
    }

    /// The newest ledger at the user's default place.
    pub fn ledger(&self) -> String {
        self.fence.as_root(&format!("ls -t {STATE}/*.jsonl | head -1")).out.trim().to_owned()
    }

    /// A run that lives while the test looks.
    pub fn live(&self, flags: &[&str], script: &str) -> Live {
        let mut command = self.ringfence("", flags, script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.fence.world.spawn(command).expect("ringfence starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Live { child, input: Some(input), output: BufReader::new(output) }
    }

    /// Every path below the home and what it is, less git's own files and the ledgers.
    pub fn home(&self) -> Vec<String> {
        let find =
            "find /home/dev -path '*/.git/*' -prune -o -name '*.jsonl' -prune -o -printf '%y %m %s %p\\n' | sort";
        as_root(&self.fence, find).lines().map(str::to_owned).collect()
    }

    /// The processes of ours that a run has: the supervisor, the proxy, the observer, the stage.
    pub fn ours(&self, run: &Live) -> Vec<String> {
        let script = "below() { for child in $(pgrep -P $1 -x ringfence); do echo $child; below $child; done; }";
        let supervisor = run.child.id();
        self.must(&format!("{script}; echo {supervisor}; below {supervisor}")).lines().map(str::to_owned).collect()
    }

    /// Waits, by looking, until a condition of the box holds.
    pub fn await_true(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !holds() {
            assert!(std::time::Instant::now() < deadline, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A run that is under way.
pub struct Live {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Live {
    /// The next line that the command says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        if line.is_empty() {
            let mut err = String::new();
            self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("readable");
            panic!("the output has ended: {err}");
        }
        line.trim_end().to_owned()
    }

    /// Says a line to the command.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("open"), "{line}").expect("the command reads");
    }

    /// Lets the command's input end, and waits for its end.
    pub fn end(mut self) -> Said {
        drop(self.input.take());
        let mut out = String::new();
        self.output.read_to_string(&mut out).expect("the output ends");
        let mut err = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("readable");
        Said { code: self.child.wait().expect("ringfence ends").code(), out, err }
    }
}
