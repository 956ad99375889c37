//! What root outside the sandbox sees while a command runs under `nist-high`, and after it.

mod common;

use common::Fence;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use world::Said;

#[test]
fn root_is_not_held_while_the_command_is() {
    let fence = Fence::new();
    // A server of the command's own on loopback, and a line to say that it listens.
    let server = "perl -MIO::Socket::INET -e '$| = 1; \
        my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die; print $s->sockport, \"\\n\"; \
        my $c = $s->accept or die; my $line = <$c>; print $c \"heard $line\"; close $c; <STDIN>; print \"end\\n\"'";
    let (mut command, ledger) = fence.command(&["--policy", "nist-high"], &["bash", "-c", server]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("the server's port");
    let port: u16 = line.trim().parse().unwrap_or_else(|_| {
        let mut err = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut err).expect("stderr");
        panic!("no port but {line:?}: {err}")
    });

    let heard = fence.world.inside().run(move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"a verifier\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    assert_eq!(heard.expect("root reaches the command's server"), "heard a verifier\n");
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
    let ended = fence.ended(Said { code: status.code(), out: rest, err: String::new() }, ledger);
    assert_eq!((ended.said.out.as_str(), ended.said.code), ("end\n", Some(0)), "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}

/// What a run could leave in the box besides processes and files: mounts, rules, routes, accounts, modes and owners.
const SURVEY: &str = "cat /proc/self/mountinfo; nft list ruleset; ip rule; ip route; ip -o link | cut -d: -f2; \
    cat /etc/passwd /etc/group /etc/shadow; stat -c '%n %A %u %g' /* /etc/*; \
    for one in /proc/[0-9]*/status; do \
        awk '/^Name:/ { name = $2 } /^State:.Z/ && name ~ /^(ringfence|true)$/ { print \"zombie\", name }' $one 2>/dev/null; \
    done; true";

/// Runs `script` and holds the box afterwards against what it was before; the ledgers and HOME are real and stay
/// (design, promise 6).
fn leaves_nothing(fence: &Fence, run: impl FnOnce()) {
    let (before, processes, files) = (fence.as_root(SURVEY), fence.world.processes(), fence.world.changes());
    run();
    let before: Vec<&str> = before.out.lines().collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let after = fence.as_root(SURVEY);
        let after: Vec<&str> = after.out.lines().collect();
        // Of zombies it is not told whose they are: those of other tests go, and one that a run has left would stay.
        let is_zombie = |line: &&&str| line.starts_with("zombie ");
        let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
        let gone: Vec<_> = before.iter().filter(|line| !after.contains(line) && !is_zombie(line)).collect();
        if new.is_empty() && gone.is_empty() {
            break;
        }
        let only_zombies = gone.is_empty() && new.iter().all(|line| line.starts_with("zombie "));
        assert!(only_zombies && Instant::now() < deadline, "new: {new:#?}, gone: {gone:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(fence.world.processes(), processes);
    let stays =
        |path: &Path| path == "/var" || ["/var/log", "/home", "/root"].iter().any(|place| path.starts_with(place));
    let strays: Vec<_> =
        fence.world.changes().into_iter().filter(|path| !files.contains(path) && !stays(path)).collect();
    assert!(strays.is_empty(), "{strays:?}");
}

#[test]
fn a_run_leaves_nothing_behind() {
    let fence = Fence::new();
    leaves_nothing(&fence, || {
        let ended = fence.run(&["--policy", "nist-high"], "touch /workspace/made && rm /workspace/made");
        assert_eq!(ended.said.code, Some(0), "{ended}");
        assert_eq!(ended.start().rung, "full", "{ended}");
    });
}

#[test]
fn a_thousand_runs_leave_nothing_behind() {
    let fence = Fence::new();
    leaves_nothing(&fence, || {
        let said = fence.as_root(&format!(
            "for run in $(seq 1000); do {} run --policy nist-high -- true || exit; done; ls /var/log/ringfence | wc -l",
            common::RINGFENCE
        ));
        assert_eq!((said.code, said.out.trim()), (Some(0), "1000"), "{said}");
    });
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let fence = Fence::new();
    leaves_nothing(&fence, || {
        for flags in [
            ["--policy", "nist-higher"],
            ["--allow-host", "*"],
            ["--trust-range", "10.0.0.1/8"],
            ["--user", "no-such-user"],
            ["--harness", "no-such-harness"],
            ["--network", "shut"],
        ] {
            let ended = fence.run(&flags, "touch /workspace/started");
            assert_eq!(ended.said.code, Some(125), "{flags:?}: {ended}");
            assert_eq!((ended.said.err.lines().count(), ended.said.out.as_str()), (1, ""), "{flags:?}: {ended}");
            assert_eq!(fence.world.read("/workspace/started"), None, "{flags:?}");
        }
    });
}
