//! The caller's session on a dev box: its sockets are out of reach unless they are named, and a port of the host's loopback
//! leads to a server inside only where it is published.

mod common;
mod dev_box;

use common::value;
use dev_box::Dev;

/// Servers of the user's session outside, at each path of the arguments: they say hello and count.
const SESSION: &str = r#"
import os, socket, sys, threading
def serve(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    def answer():
        while True:
            client, _ = server.accept()
            client.sendall(b"hello")
            client.close()
    threading.Thread(target=answer, daemon=True).start()
for path in sys.argv[1:]:
    serve(path)
print("ready", flush=True)
for line in sys.stdin:
    serve(line.strip())
    print("ready", flush=True)
"#;

/// What a client at each path of the arguments hears, or the error.
const ASK: &str = r#"
python3 - "$@" <<'END'
import errno, socket, sys
for path in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    try:
        s.connect(path)
        said = s.recv(9).decode()
    except OSError as cause:
        said = errno.errorcode[cause.errno]
    print(f"{path}={said}")
END"#;

/// The session's servers, which end with this value.
struct Session {
    server: std::process::Child,
    said: std::io::BufReader<std::process::ChildStdout>,
}

impl Session {
    fn start(dev: &Dev, paths: &[&str]) -> Session {
        use std::os::unix::process::CommandExt;
        use std::process::Stdio;
        let mut command = dev.fence.world.command("python3");
        command.uid(dev_box::UID).gid(dev_box::UID).args(["-c", SESSION]).args(paths);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = dev.fence.world.spawn(command).expect("python starts");
        let said = std::io::BufReader::new(server.stdout.take().expect("piped"));
        let mut session = Session { server, said };
        session.await_ready();
        session
    }

    fn await_ready(&mut self) {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.said, &mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }

    /// One more server, made now.
    fn add(&mut self, path: &str) {
        use std::io::Write;
        writeln!(self.server.stdin.as_mut().expect("piped"), "{path}").expect("it reads");
        self.await_ready();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.kill().and_then(|()| self.server.wait()).expect("it ends");
    }
}

const AGENT: &str = "/run/user/1000/ssh/agent";
const OTHERS: [&str; 5] = [
    "/run/user/1000/bus",
    "/tmp/.X11-unix/X0",
    "/tmp/tmux-1000/default",
    "/home/dev/.gnupg/S.gpg-agent",
    "/tmp/odd/socket",
];

fn ask(paths: &[&str]) -> String {
    format!("set -- {}; {ASK}\necho \"agent=$SSH_AUTH_SOCK\"; echo \"bus=$DBUS_SESSION_BUS_ADDRESS\"", paths.join(" "))
}

const VARIABLES: &str = "export SSH_AUTH_SOCK=/run/user/1000/ssh/agent DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus XDG_RUNTIME_DIR=/run/user/1000;";

#[test]
fn the_sessions_sockets_are_out_of_reach_unless_named() {
    let dev = Dev::new();
    let all = [&[AGENT][..], &OTHERS].concat();
    let _session = Session::start(&dev, &all);
    let live = dev.said(&ask(&all));
    for path in &all {
        assert_eq!(value(&live, path), "hello", "live: {live}");
    }
    let ended = dev.run_after(VARIABLES, &[], &ask(&all));
    for path in &all {
        assert!(["EACCES", "ENOENT", "ECONNREFUSED"].contains(&ended.value(path)), "{path}: {ended}");
    }
    assert_eq!((ended.value("agent"), ended.value("bus")), ("", ""), "{ended}");

    let named = dev.run_after(VARIABLES, &["--socket", AGENT], &ask(&all));
    assert_eq!((named.value(AGENT), named.value("agent"), named.value("bus")), ("hello", AGENT, ""), "{named}");
    for path in OTHERS {
        assert_ne!(named.value(path), "hello", "{path}: {named}");
    }
    let plain = dev.run_after(VARIABLES, &["--socket", "/tmp/odd/socket"], &ask(&all));
    assert_eq!((plain.value("/tmp/odd/socket"), plain.value("agent")), ("hello", ""), "{plain}");
    assert_ne!(plain.value(AGENT), "hello", "{plain}");
}

#[test]
fn a_socket_that_the_session_makes_later_is_out_of_reach_too() {
    let dev = Dev::new();
    let mut session = Session::start(&dev, &["/run/user/1000/first"]);
    let mut run = dev
        .live(&[], &format!("echo started; read -r line; {}", ask(&["/run/user/1000/later", "/tmp/tmux-1000/later"])));
    assert_eq!(run.line(), "started");
    session.add("/run/user/1000/later");
    session.add("/tmp/tmux-1000/later");
    let live = dev.said(&ask(&["/run/user/1000/later"]));
    assert_eq!(value(&live, "/run/user/1000/later"), "hello", "live: {live}");
    run.tell("");
    let said = run.end();
    for path in ["/run/user/1000/later", "/tmp/tmux-1000/later"] {
        assert_eq!(value(&said, path), "EACCES", "{said}");
    }
}

#[test]
fn what_stands_for_a_multiplexers_directory_goes_with_the_run_and_stays_where_it_is_used() {
    let dev = Dev::new();
    let listed = || dev.said("ls -d /tmp/tmux-1000 /tmp/emacs1000 /tmp/tmux-1000/*").out;
    let mut run = dev.live(&[], "echo started; read -r line || :");
    assert_eq!((run.line().as_str(), listed().as_str()), ("started", "/tmp/emacs1000\n/tmp/tmux-1000\n"));
    assert_eq!(dev.must("stat -c %a:%u /tmp/tmux-1000"), "700:1000\n", "as tmux wants it");
    let _session = Session::start(&dev, &["/tmp/tmux-1000/default"]);
    assert_eq!(run.end().code, Some(0));
    assert_eq!(listed(), "/tmp/tmux-1000\n/tmp/tmux-1000/default\n");
}

#[test]
fn what_is_named_as_a_socket_must_be_one() {
    let dev = Dev::new();
    for (path, why) in [("/run/user/1000/none", "No such file"), ("/home/dev/project/file", "it is none")] {
        let ended = dev.run(&["--socket", path], "touch /tmp/started");
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains(path) && ended.said.err.contains(why), "{ended}");
    }
    assert!(dev.fence.world.read("/tmp/started").is_none());
}

#[test]
fn credentials_are_readable_at_restricted_and_not_at_locked() {
    let dev = Dev::new();
    dev.must("mkdir -p ~/.ssh ~/.aws; echo key > ~/.ssh/id; echo key > ~/.aws/credentials; echo key > ~/.netrc");
    let read = "cat ~/.ssh/id ~/.aws/credentials ~/.netrc 2>/dev/null | wc -l";
    assert_eq!(dev.run(&[], read).said.out, "3\n");
    let locked = dev.run(&["--policy", "locked"], read);
    assert_eq!((locked.said.code, locked.said.out.as_str()), (Some(0), "0\n"), "{locked}");
}

/// A server inside on two ports and both families' loopback, which says how it was reached.
const SERVER: &str = r#"
import socket, sys, threading
def serve(port, family, host):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen()
    def answer():
        while True:
            client, _ = server.accept()
            text = b""
            while piece := client.recv(4096):
                text += piece
            client.sendall(b"%d bytes at %d" % (len(text), port))
            client.close()
    threading.Thread(target=answer, daemon=True).start()
serve(3000, socket.AF_INET, "127.0.0.1")
serve(3001, socket.AF_INET6, "::1")
serve(3002, socket.AF_INET, "127.0.0.1")
print("ready", flush=True)
sys.stdin.read()
"#;

/// Sends a million bytes to each port of the host's loopback, ends its own side, and says what comes back.
const CLIENT: &str = r#"
python3 - <<'END'
import errno, socket
for port in 3000, 3001, 3002:
    try:
        s = socket.create_connection(("127.0.0.1", port), 10)
        s.sendall(b"x" * 1000000)
        s.shutdown(socket.SHUT_WR)
        said = ""
        while piece := s.recv(100):
            said += piece.decode()
    except OSError as cause:
        said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{port}={said}")
END"#;

#[test]
fn a_published_port_leads_inside_and_no_other_does() {
    let dev = Dev::new();
    dev.fence.world.write("/home/dev/project/server.py", SERVER, 0o644);
    for flags in [
        &["--publish", "3000", "--publish", "127.0.0.1:3001"][..],
        &["--policy", "locked", "--publish", "3000", "--publish", "3001"],
    ] {
        let mut run = dev.live(flags, "exec python3 server.py");
        assert_eq!(run.line(), "ready");
        let said = dev.said(CLIENT);
        assert_eq!(value(&said, "3000"), "1000000 bytes at 3000", "{flags:?}: {said}");
        assert_eq!(value(&said, "3001"), "1000000 bytes at 3001", "the other family: {flags:?}: {said}");
        assert_eq!(value(&said, "3002"), "ECONNREFUSED", "not published: {flags:?}: {said}");
        let outside =
            dev.fence.world.inside().run(|| std::net::TcpStream::connect((world::address::BOX4, 3000)).is_err());
        assert!(outside, "it is published on loopback only");
        assert_eq!(run.end().code, Some(0));
        assert_eq!(value(&dev.said(CLIENT), "3000"), "ECONNREFUSED", "it goes with the run");
    }
}

#[test]
fn a_port_that_is_taken_is_no_port_to_publish() {
    let dev = Dev::new();
    let _taken = dev.fence.world.inside().run(|| std::net::TcpListener::bind("127.0.0.1:3000").expect("free"));
    let ended = dev.run(&["--publish", "3000"], "touch /tmp/started");
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains("publish 127.0.0.1:3000: Address already in use"), "{ended}");
    assert!(dev.fence.world.read("/tmp/started").is_none());
}

#[test]
fn a_server_that_is_left_behind_stays_published_until_it_ends() {
    let dev = Dev::new();
    dev.fence.world.write(
        "/home/dev/project/server.py",
        SERVER.replace("sys.stdin.read()", "server_ends = open('/tmp/ends').read()"),
        0o644,
    );
    dev.must("mkfifo /tmp/ends");
    let script = "setsid python3 server.py > /tmp/said 2>&1 < /dev/null & until grep -q ready /tmp/said; do :; done";
    let ended = dev.run(&["--publish", "3000", "--leftovers", "keep"], script);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(value(&dev.said(CLIENT), "3000"), "1000000 bytes at 3000");
    dev.must("echo > /tmp/ends");
    dev.await_true("it goes with the last process", || value(&dev.said(CLIENT), "3000") == "ECONNREFUSED");
    dev.await_true("the record is sealed", || dev.fence.verify(&dev.ledger()).code == Some(0));
}
