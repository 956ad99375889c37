//! `ringfence probe --external`: a restriction that is missing is named even where no run of ours has a part of it: proxies of
//! others, control sockets, homes, keys. What cannot be judged is no success, and a probe that hangs leaves nothing.

mod common;

use common::{Fence, NOBODY, RINGFENCE, as_root, assert_left_nothing, survey};
use serde_json::Value;
use world::Said;

/// A server on loopback: `open` passes on what it is asked, `list` refuses, `socks` passes on by SOCKS 5, `web` is no proxy,
/// `silent` never answers, and `none` is not there.
const SERVER: &str = r#"
import socket, sys, threading
def serve(c, mode):
    try:
        head = c.recv(4096)
        if mode == 'silent':
            c.recv(1); return
        if mode == 'socks' and head[:1] == b'\x05':
            c.sendall(b'\x05\x00'); asked = c.recv(4096)
            try:
                socket.create_connection((asked[5:-2].decode(), 443), 1); c.sendall(b'\x05\x00\x00\x01' + bytes(6))
            except OSError: c.sendall(b'\x05\x04\x00\x01' + bytes(6))
        elif mode == 'list': c.sendall(b'HTTP/1.1 403 Forbidden\r\n\r\n')
        elif mode == 'open' and head.startswith((b'CONNECT ', b'GET http')):
            target = head.split()[1].decode()
            if target.startswith('http://'): target = target[7:].rstrip('/') + ':80'
            host, port = target.rsplit(':', 1)
            try:
                socket.create_connection((host, int(port)), 1); c.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
            except OSError: c.sendall(b'HTTP/1.1 502 Bad Gateway\r\n\r\n')
        else: c.sendall(b'HTTP/1.1 405 Method Not Allowed\r\n\r\n')
    except OSError: pass
    finally: c.close()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', 3128)); s.listen(64); open('/tmp/listens', 'w').close()
while True:
    c, _ = s.accept(); threading.Thread(target=serve, args=(c, sys.argv[1]), daemon=True).start()
"#;

/// Closes the network by hand for whoever is not root: a namespace with loopback alone, and no datagram there.
const CLOSED: &str = "
set -e
ip link set lo up
nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o meta skuid 12345 meta l4proto udp drop'
rm -f /tmp/listens
if [ $1 != none ]; then
  python3 /srv/server.py $1 >/dev/null 2>&1 & server=$!
  while [ ! -e /tmp/listens ]; do sleep 0.02; done
fi
shift
status=0
setpriv --reuid 12345 --regid 12345 --clear-groups --no-new-privs env \"$@\" || status=$?
[ -z \"$server\" ] || kill $server
exit $status
";

const NETWORK: &str = "--policy control --network restricted";
/// The probes of names and addresses past and by a proxy.
const EGRESS: &str =
    "--only network.direct.tcp network.direct.udp 'network.*.proxy-*' network.adversarial.proxies-in-reach";

fn closed(fence: &Fence, server: &str, environment: &str, flags: &str) -> Said {
    fence.as_root(&format!(
        "unshare --net bash /srv/closed.sh {server} {environment} {RINGFENCE} probe --external {NETWORK} {flags}"
    ))
}

fn fence() -> Fence {
    let fence = Fence::new();
    fence.world.write("/srv/server.py", SERVER, 0o644);
    fence.world.write("/srv/closed.sh", CLOSED, 0o755);
    fence
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|cause| panic!("{cause}: {said}"))
}

/// The standing of a restriction, and by what.
fn standing(said: &Said, restriction: &str) -> (String, String) {
    let value = json(said);
    let all = value["restrictions"].as_array().unwrap_or_else(|| panic!("no restrictions: {said}"));
    let shown = all.iter().find(|shown| shown["restriction"] == restriction);
    let shown = shown.unwrap_or_else(|| panic!("no {restriction}: {said}"));
    let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
    (text("standing"), text("because"))
}

fn row(said: &Said, id: &str) -> (String, String) {
    let value = json(said);
    let row = value["probes"].as_array().and_then(|rows| rows.iter().find(|row| row["id"] == id)).cloned();
    let row = row.unwrap_or_else(|| panic!("no {id}: {said}"));
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("seen"))
}

#[test]
fn a_proxy_that_no_list_holds_is_found_whether_it_is_named_or_not() {
    let fence = fence();
    let flags = format!("--format json {EGRESS}");
    let judged = |server: &str, environment: &str| closed(&fence, server, environment, &flags);
    const NAMED: &str = "https_proxy=http://127.0.0.1:3128";
    const IN_REACH: &str = "network.adversarial.proxies-in-reach";

    // No way out at all: the allowlist counts as held, and that is said.
    let none = judged("none", "");
    assert_eq!(none.code, Some(0), "{none}");
    let (held, because) = standing(&none, "egress-allowlist");
    assert!(held == "held" && because.contains("nothing gets out at all"), "{because}: {none}");
    assert_eq!(row(&none, IN_REACH), ("passed".into(), "no server".into()));
    let web = judged("web", "");
    assert_eq!((web.code, row(&web, IN_REACH).1.as_str()), (Some(0), "no proxy"), "{web}");

    // Named nowhere, it is found all the same.
    for (server, how) in [("open", "CONNECT was answered 502"), ("socks", "SOCKS was answered 4")] {
        let hidden = judged(server, "");
        assert_eq!(hidden.code, Some(1), "{server}: {hidden}");
        assert_eq!(standing(&hidden, "egress-allowlist"), ("missing".into(), IN_REACH.into()), "{server}: {hidden}");
        assert_eq!(row(&hidden, IN_REACH).1, format!("127.0.0.1:3128 passes on: {how}"));
        assert_eq!(standing(&hidden, "direct-egress").0, "held", "{server}: {hidden}");
    }
    let silent = judged("silent", "");
    assert_eq!(row(&silent, IN_REACH), ("failed".into(), "127.0.0.1:3128 gives no answer".into()), "{silent}");

    // Named, it is asked by each probe of a proxy.
    let open = judged("open", NAMED);
    assert_eq!((open.code, standing(&open, "egress-allowlist").0.as_str()), (Some(1), "missing"), "{open}");
    for id in ["network.direct.proxy-refusal", "network.adversarial.proxy-literal"] {
        assert_eq!(row(&open, id), ("failed".into(), "502".into()), "{id}: {open}");
    }
    let itself = row(&open, "network.adversarial.proxy-itself");
    assert_eq!(itself, ("failed".into(), "200".into()), "{open}");
    let list = judged("list", NAMED);
    assert_eq!((list.code, standing(&list, "egress-allowlist").0.as_str()), (Some(0), "held"), "{list}");
    for id in ["network.direct.proxy-refusal", "network.adversarial.proxy-literal", IN_REACH] {
        assert_eq!(row(&list, id).0, "passed", "{id}: {list}");
    }
}

#[test]
fn what_cannot_be_judged_is_no_success_in_any_form() {
    let fence = fence();
    let judged = |form: &str| {
        closed(&fence, "none", "all_proxy=https://u:hidden@127.0.0.1:3128", &format!("--format {form} {EGRESS}"))
    };
    let said = judged("json");
    assert_eq!((said.code, &json(&said)["failed"]), (Some(1), &Value::from(0)), "{said}");
    let (standing, because) = standing(&said, "egress-allowlist");
    assert!(standing == "not-judged" && because.starts_with("all_proxy: https is no scheme"), "{because}: {said}");
    assert_eq!(row(&said, "network.direct.proxy-refusal").0, "not-judged", "{said}");
    assert_eq!(row(&said, "network.direct.tcp").0, "passed", "{said}");
    let table = judged("table");
    assert!(table.code == Some(1) && table.out.contains("\nnot judged: egress by allowlist (all_proxy: "), "{table}");
    let tap = judged("tap");
    assert!(tap.code == Some(1) && tap.out.lines().any(|line| line.starts_with("not ok ")), "{tap}");
    assert!(tap.out.contains("# not judged: egress by allowlist"), "{tap}");
    let junit = judged("junit");
    assert!(junit.code == Some(1) && junit.out.contains("<error type=\"not-judged\""), "{junit}");
    assert!([said, table, tap, junit].iter().all(|said| !said.out.contains("hidden")), "credentials are shown");
    // Who asks for something else is told of that alone.
    let only = closed(&fence, "none", "all_proxy=https://127.0.0.1:1", "--format json --only network.direct.tcp");
    assert!(only.code == Some(0) && !only.out.contains("egress-allowlist\""), "{only}");
}

#[test]
fn control_sockets_and_homes_of_others_are_tried() {
    let fence = Fence::new();
    let judged = || {
        let flags = "--policy control --filesystem locked --format json --only 'filesystem.adversarial.*masked*'";
        fence.as_user(NOBODY, &format!("HOME=/tmp {RINGFENCE} probe --external {flags}"))
    };
    as_root(&fence, "mkdir -p /run; chmod 700 /root; echo 'other:x:7777:7777::/home/other:/bin/sh' >>/etc/passwd");
    as_root(&fence, "mkdir -m 700 /home/other; chmod 700 /home/*");
    let held = judged();
    assert_eq!((held.code, standing(&held, "private-paths").0.as_str()), (Some(0), "held"), "{held}");

    as_root(&fence, "chmod 755 /home/other");
    let home = judged();
    assert_eq!((home.code, standing(&home, "private-paths").0.as_str()), (Some(1), "missing"), "{home}");
    as_root(&fence, "chmod 700 /home/other");

    let listens = "import socket, os, time; s = socket.socket(socket.AF_UNIX); s.bind('/run/docker.sock'); \
                   os.chmod('/run/docker.sock', 0o666); s.listen(); time.sleep(60)";
    let mut command = fence.world.command("python3");
    command.args(["-c", listens]);
    let mut server = fence.world.spawn(command).expect("python3");
    while fence.as_root("test $(stat -c %a /run/docker.sock) = 666 2>/dev/null").code != Some(0) {}
    let open = judged();
    let sockets = row(&open, "filesystem.adversarial.masked-sockets");
    assert_eq!((open.code, sockets), (Some(1), ("failed".into(), "ok".into())), "{open}");
    as_root(&fence, "chmod 660 /run/docker.sock");
    let closed = judged();
    server.kill().expect("kill");
    server.wait().expect("wait");
    assert_eq!((closed.code, standing(&closed, "private-paths").0.as_str()), (Some(0), "held"), "{closed}");
}

#[test]
fn keys_of_the_session_are_found() {
    let fence = Fence::new();
    let judge = format!(
        "{RINGFENCE} probe --external --policy control --privilege restricted --format json --only '*.keyring'"
    );
    let with = |key: &str| {
        fence.as_user(
            NOBODY,
            &format!(
                "exec python3 -c \"import ctypes, os; c = ctypes.CDLL(None); r = c.syscall({}, 1, 0); assert r > 0, r; {key}
os.execvp('bash', ['bash', '-c', os.environ['JUDGE']])\"",
                libc::SYS_keyctl
            )
            .replacen("exec", &format!("JUDGE=\"{judge}\" exec"), 1),
        )
    };
    let empty = with("pass");
    assert_eq!((empty.code, standing(&empty, "keyring").0.as_str()), (Some(0), "held"), "{empty}");
    assert_eq!(row(&empty, "privilege.direct.keyring").1, "its own", "{empty}");
    let key = format!("r = c.syscall({}, b'user', b'token', b'secret', 6, -3); assert r > 0, r", libc::SYS_add_key);
    let held = with(&key);
    assert_eq!((held.code, standing(&held, "keyring").0.as_str()), (Some(1), "missing"), "{held}");
    assert_eq!(row(&held, "privilege.direct.keyring").1, "one that holds 1 keys", "{held}");
}

#[test]
fn what_hangs_is_ended_with_all_that_it_has_started() {
    let fence = fence();
    let mut command = fence.world.command("python3");
    command.args(["/srv/server.py", "silent"]);
    let mut server = fence.world.spawn(command).expect("python3");
    while fence.as_root("test -e /tmp/listens").code != Some(0) {}
    let before = survey(&fence);
    // Every probe has a child of its own, which waits five seconds for the proxy.
    let flags = format!("{NETWORK} --only network.direct.proxy-refusal --timeout 1");
    // What is left would hold the output open, and be waited for.
    let said = fence.as_root(&format!(
        "http_proxy=127.0.0.1:3128 {RINGFENCE} probe --external {flags} >/tmp/out 2>/tmp/err
         status=$?; cat /tmp/out; cat /tmp/err >&2; rm /tmp/out /tmp/err; exit $status"
    ));
    assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said}");
    assert!(said.err.contains("network.direct.proxy-refusal was under way when the 1s of --timeout"), "{said}");
    assert_left_nothing(&fence, &before, "a probe that hangs");
    server.kill().expect("kill");
    server.wait().expect("wait");
}
