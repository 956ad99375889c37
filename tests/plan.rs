//! What `plan` tells of a host before anything runs on it: facts, servers of others on loopback, sockets in reach, and places
//! that stay writable (case N16).

mod common;

use common::{Fence, RINGFENCE, as_root, own_user};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use world::Said;

fn plan(fence: &Fence, flags: &[&str]) -> Value {
    let mut command = fence.world.command(RINGFENCE);
    command.args(["plan", "--json"]).args(flags);
    let said = Said::from(fence.world.output(command));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said}");
    serde_json::from_str(&said.out).expect("JSON")
}

/// Strings of a list.
fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// Brokers behind sockets, listeners of two users on loopback, and one that loopback does not reach.
fn brokers(fence: &Fence) -> Child {
    let script = r#"use Socket; use IO::Socket::UNIX; use IO::Socket::IP; $| = 1;
        mkdir "/run/open"; mkdir "/run/closed", 0700; mkdir "/run/x";
        my %mode = ("/run/open/any.sock", 0666, "/run/open/root.sock", 0600, "/run/closed/any.sock", 0666, "/tmp/agent.sock", 0666, "/run/x/bus", 0666);
        for (sort keys %mode) { push @s, IO::Socket::UNIX->new(Local => $_, Listen => 1) or die "$_: $!"; chmod $mode{$_}, $_ }
        push @s, IO::Socket::UNIX->new(Local => "\0abstract-broker", Listen => 1) or die $!;
        push @s, IO::Socket::IP->new(LocalAddr => $$_[0], LocalPort => $$_[1], Listen => 1) || die "$$_[0] $@"
            for (["127.0.0.1", 4001], ["::1", 4002], ["0.0.0.0", 4003], ["11.22.33.2", 4004]);
        print "ready\n"; <STDIN>;"#;
    let mut command = fence.world.command("perl");
    command.args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = fence.world.spawn(command).expect("perl starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn servers_sockets_and_writable_places_are_listed() {
    let fence = Fence::new();
    as_root(
        &fence,
        "install -d -m 1777 /logs/agent; install -d -m 0755 /logs/closed; install -d -m 0777 /userdata /usr/open",
    );
    let mut brokers = brokers(&fence);
    let found = plan(&fence, &["--policy", "nist-high"]);
    let listeners: Vec<String> = found["loopback_listeners"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|listener| format!("{} {}", listener["address"].as_str().expect("an address"), listener["uid"]))
        .collect();
    for expected in ["127.0.0.1:4001 0", "[::1]:4002 0", "0.0.0.0:4003 0"] {
        assert!(listeners.iter().any(|listener| listener == expected), "{expected}: {listeners:?}");
    }
    assert!(!listeners.iter().any(|listener| listener.contains(":4004")), "{listeners:?}");
    assert_eq!(texts(&found["reachable_sockets"]), ["/run/open/any.sock", "/run/x/bus", "/tmp/agent.sock"]);
    let writable = texts(&found["writable_outside"]);
    assert!(writable.contains(&"/logs/agent") && writable.contains(&"/userdata"), "{writable:?}");
    assert!(!writable.iter().any(|path| ["/usr/open", "/logs/closed", "/tmp", "/app"].contains(path)), "{writable:?}");
    // The text says the same.
    let mut command = fence.world.command(RINGFENCE);
    command.args(["plan", "--policy", "nist-high"]);
    let said = Said::from(fence.world.output(command));
    for line in [
        "loopback listener of uid 0: 127.0.0.1:4001",
        "reachable unix socket: /run/x/bus",
        "writable outside the set: /logs/agent",
    ] {
        assert!(said.out.lines().any(|other| other == line), "{line}: {said}");
    }
    // And what is listed is so: the command reaches those and no others, and writes there.
    let perl = "perl -MIO::Socket::UNIX -e 'for (@ARGV) { print \"$_\\n\" if IO::Socket::UNIX->new(Peer => $_) }'";
    let script = format!(
        "{perl} /run/open/any.sock /run/open/root.sock /run/closed/any.sock /tmp/agent.sock /run/x/bus
         {perl} $'abstract-broker'; touch /logs/agent/x /userdata/x && echo written"
    );
    let ended = fence.run(&["--policy", "nist-high"], &script);
    assert_eq!(ended.said.out, "/run/open/any.sock\n/tmp/agent.sock\n/run/x/bus\nwritten\n", "{ended}");
    drop(brokers.stdin.take());
    brokers.wait().expect("wait");
}

#[test]
fn facts_mechanisms_and_lacks_are_told() {
    let fence = Fence::new();
    fence.world.mount_memory("/workspace").expect("tmpfs");
    let found = plan(&fence, &["--policy", "nist-high"]);
    assert_eq!((found["level"].as_str(), found["rung"].as_str()), (Some("nist-high"), Some("full")));
    for fact in ["mounts", "nftables", "id_mapping"] {
        assert_eq!(found["host"][fact], true, "{fact}: {found:#}");
    }
    assert_eq!(
        (&found["workspaces"]["/app"], &found["workspaces"]["/workspace"]),
        (&"changed".into(), &"idmapped".into())
    );
    let restrictions = found["restrictions"].as_array().expect("a list");
    for axis in ["network", "filesystem", "privilege"] {
        let of_axis = restrictions.iter().filter(|one| one["axis"] == axis);
        assert!(
            of_axis.clone().count() > 1
                && of_axis.clone().all(|one| one["mechanism"].as_str().is_some_and(|m| !m.is_empty())),
            "{axis}: {found:#}"
        );
    }
    assert!(texts(&found["notes"]).iter().any(|note| note.contains("no control-plane port is named")), "{found:#}");
    let found = plan(&fence, &["--policy", "nist-high", "--control-plane-port", "1234"]);
    assert!(!texts(&found["notes"]).iter().any(|note| note.contains("control-plane port")), "{found:#}");
    let found = plan(&fence, &["--policy", "nist-high", "--abi", "i386"]);
    assert!(texts(&found["notes"]).iter().any(|note| note.starts_with("abi i386: ")), "{found:#}");
    let found = plan(&fence, &["--policy", "control"]);
    assert_eq!((&found["user"], &found["restrictions"]), (&Value::Null, &Value::Array(Vec::new())));
}

#[test]
fn planning_changes_nothing() {
    let fence = Fence::new();
    let uid = own_user();
    as_root(
        &fence,
        &format!("echo 'dev:x:{uid}:{uid}::/home/dev:/bin/sh' >> /etc/passwd; install -d -o {uid} /home/dev"),
    );
    let state = "cat /proc/self/mountinfo; nft list ruleset; stat -c '%n %u %g %a' /app /workspace /home /home/*; ls -A /home/dev /var/log";
    let (before, changes) = (as_root(&fence, state), fence.world.changes());
    for flags in [&["--policy", "nist-high"][..], &["--policy", "locked"], &["--policy", "nist-high", "--user", "dev"]]
    {
        plan(&fence, flags);
    }
    assert_eq!((as_root(&fence, state), fence.world.changes()), (before, changes));
    // A plan while a run lives is one for a run beside it.
    let (mut command, _) = fence.command(
        &["--policy", "nist-high", "--read-only", "/app", "--read-only", "/workspace"],
        &["bash", "-c", "echo running; read line; true"],
    );
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut held = fence.world.spawn(command).expect("ringfence starts");
    let mut line = String::new();
    BufReader::new(held.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    plan(&fence, &["--policy", "nist-high"]);
    drop(held.stdin.take());
    assert!(held.wait().expect("wait").success());
}
