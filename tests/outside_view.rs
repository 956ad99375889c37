//! What root outside the sandbox sees while a command runs under `nist-high`, and after it.

mod common;

use common::Fence;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use world::Said;

#[test]
fn root_is_not_held_while_the_command_is() {
    let fence = Fence::new();
    // A server of the command's own on loopback, and a line to say that it listens.
    let server = "perl -MIO::Socket::INET -e '$| = 1; \
        my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die; print $s->sockport, \"\\n\"; \
        my $c = $s->accept or die; my $line = <$c>; print $c \"heard $line\"; close $c; <STDIN>; print \"end\\n\"'";
    let (mut command, ledger) = fence.command(&["--policy", "nist-high"], &["bash", "-c", server]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("the server's port");
    let port: u16 = line.trim().parse().unwrap_or_else(|_| {
        let mut err = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut err)
            .expect("stderr");
        panic!("no port but {line:?}: {err}")
    });

    let heard = fence
        .world
        .inside()
        .run(move || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.write_all(b"a verifier\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
    assert_eq!(
        heard.expect("root reaches the command's server"),
        "heard a verifier\n"
    );
    let said = fence.as_root(
        "echo x > /usr/verifier && rm /usr/verifier && curl -sS -m 5 https://stranger.example.org/ && \
         curl -sS -m 5 http://169.254.169.254/ && getent hosts pypi.org >/dev/null && echo resolved",
    );
    assert_eq!(
        said.out, "hello from stranger.example.org\nhello from 169.254.169.254\nresolved\n",
        "root outside is not held: {said}"
    );

    drop(child.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    let status = child.wait().expect("wait");
    let ended = fence.ended(
        Said {
            code: status.code(),
            out: rest,
            err: String::new(),
        },
        ledger,
    );
    assert_eq!(
        (ended.said.out.as_str(), ended.said.code),
        ("end\n", Some(0)),
        "{ended}"
    );
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn a_run_leaves_nothing_behind() {
    let fence = Fence::new();
    let survey = "cat /proc/self/mountinfo; nft list tables; ip rule; ip route; cat /etc/passwd /etc/group; stat -c '%n %A %u %g' /* /etc/*";
    let (before, processes, files) = (
        fence.as_root(survey),
        fence.world.processes(),
        fence.world.changes(),
    );
    let ended = fence.run(&["--policy", "nist-high"], "true");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(ended.start().rung, "full", "{ended}");
    let after = fence.as_root(survey);
    let new: Vec<&str> = after
        .out
        .lines()
        .filter(|line| !before.out.lines().any(|old| old == *line))
        .collect();
    let gone: Vec<&str> = before
        .out
        .lines()
        .filter(|line| !after.out.lines().any(|now| now == *line))
        .collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:#?}, gone: {gone:#?}"
    );
    assert_eq!(fence.world.processes(), processes);
    let new: Vec<_> = fence
        .world
        .changes()
        .into_iter()
        .filter(|path| !files.contains(path))
        .collect();
    // HOME, the state directories and the ledger are real and stay (design, promise 6).
    let home = |path: &std::path::Path| {
        path.starts_with("/var/log")
            || path.starts_with("/home")
            || path.starts_with("/root")
            || path == "/var"
    };
    let strays: Vec<_> = new.iter().filter(|path| !home(path)).collect();
    assert!(strays.is_empty(), "{strays:?}");
}
