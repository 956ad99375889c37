//! A run that lives while the test looks at it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::{Ended, Fence};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A run whose command says when it has come to a point, and goes on when it is told to.
pub struct Live {
    pub child: Child,
    pub input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub ledger: String,
}

impl Live {
    /// Starts a Python script under `before… ringfence run FLAGS`.
    pub fn start(fence: &Fence, before: &[&str], flags: &[&str], script: &str) -> Live {
        fence.world.write("/tmp/script.py", script, 0o644);
        let (command, ledger) = fence.command(flags, &["/usr/bin/python3", "/tmp/script.py"]);
        Live::spawn(fence, before, command, ledger)
    }

    /// The same with its ledger at a path of the test's.
    pub fn at(fence: &Fence, flags: &[&str], ledger: &str, script: &str) -> Live {
        fence.world.write("/tmp/script.py", script, 0o644);
        let mut command = fence.ringfence(&["run"]);
        command.args(flags).args(["--ledger", ledger, "--", "/usr/bin/python3", "/tmp/script.py"]);
        Live::spawn(fence, &[], command, ledger.to_owned())
    }

    fn spawn(fence: &Fence, before: &[&str], command: Command, ledger: String) -> Live {
        let mut command = match before {
            [] => command,
            [program, arguments @ ..] => {
                let mut wrapped = fence.world.command(program);
                wrapped.args(arguments).arg(command.get_program()).args(command.get_args());
                wrapped
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = fence.start(command);
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Live { child, input, output: BufReader::new(output), ledger }
    }

    /// The next line that the command says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Lets the command go on from its point.
    pub fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("the command reads");
    }

    /// Waits for the end; the rest of the output.
    pub fn end(mut self, fence: &Fence) -> (String, Ended) {
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the output ends");
        let status = self.child.wait().expect("ringfence ends");
        assert_eq!(status.code(), Some(0), "{rest}");
        let said = world::Said { code: status.code(), out: rest.clone(), err: String::new() };
        (rest, fence.ended(said, self.ledger))
    }
}

/// What the scripts begin with: connections to the proxy, tunnels, and points to wait at.
pub const PRELUDE: &str = r#"
import os, socket, sys, time
host, port = os.environ["http_proxy"].removeprefix("http://").rstrip("/").split(":")
def proxy():
    s = socket.create_connection((host, int(port)), 60)
    return s
def tunnel(to):
    s = proxy()
    s.sendall(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = s.recv(1)
        assert piece, answer
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return s
def say(text):
    print(text, flush=True)
def point(text):
    say(text)
    sys.stdin.readline()
"#;
