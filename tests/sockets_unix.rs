//! Unix sockets as delegated authority where there are no mounts (cases N13, N16): a resolver's socket is not reached by its
//! path, nor by another name of the same, nor is an abstract one of the outside; what the command makes itself is.

mod common;
mod sockets;

use common::{as_root, value};
use ringfence::policy::Axis;
use sockets::{RUNGS, fence_on, run_on};

const RESOLVER: &str = "/run/systemd/resolve/io.systemd.Resolve";
const ALIAS: &str = "/run/alias";
/// One that is in nobody's list.
const OTHER: &str = "/run/other";

/// A daemon of root's that counts its clients, and another one.
const SERVE: &str = r#"
import os, select, socket
sockets = []
for name in "/run/systemd/resolve/io.systemd.Resolve", "/run/other", "\0outside":
    s = socket.socket(socket.AF_UNIX)
    if name[0] == "/":
        os.makedirs(os.path.dirname(name), exist_ok=True)
    s.bind(name)
    if name[0] == "/":
        os.chmod(name, 0o666)
    s.listen(9)
    sockets.append(s)
os.link("/run/systemd/resolve/io.systemd.Resolve", "/run/alias")
open("/run/ready", "w").close()
while True:
    for s in select.select(sockets, [], [])[0]:
        s.accept()[0].close()
        with open("/run/clients", "a") as counts:
            counts.write(f"{s.getsockname()}\n")
"#;

const ASK: &str = r#"
import errno, os, socket, sys, threading
if "threads" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
os.chdir("/run")
for name, path in [("resolver", "/run/systemd/resolve/io.systemd.Resolve"), ("relative", "systemd/resolve/io.systemd.Resolve"),
                   ("alias", "/run/alias"), ("other", "/run/other"), ("abstract", "\0outside")]:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    try:
        s.connect(path)
        said = "ok" if s.recv(1) == b"" else "?"
    except OSError as cause:
        said = errno.errorcode.get(cause.errno, str(cause))
    print(f"{name}={said}", flush=True)
os._exit(0)
"#;

#[test]
fn a_socket_that_a_mask_would_cover_is_not_reached() {
    for rung in RUNGS {
        let fence = fence_on(rung);
        fence.world.write("/usr/local/lib/serve.py", SERVE, 0o644);
        fence.world.write("/usr/local/lib/ask.py", ASK, 0o644);
        let mut serve = fence.world.command("python3");
        serve.arg("/usr/local/lib/serve.py");
        let mut server = fence.world.spawn(serve).expect("a daemon");
        as_root(&fence, "for try in $(seq 100); do [ -e /run/ready ] && exit 0; sleep 0.1; done; exit 1");
        let clients = || fence.world.read("/run/clients").unwrap_or_default().split(|byte| *byte == b'\n').count();
        for threads in ["", "threads"] {
            let script = format!("python3 /usr/local/lib/ask.py {threads}");
            let live = fence.as_nobody(&script);
            for name in ["resolver", "relative", "alias", "other", "abstract"] {
                assert_eq!(value(&live, name), "ok", "without ringfence: {live}");
            }
            let before = clients();
            let ended = run_on(&fence, rung, &[], &script);
            for (name, said) in [
                ("resolver", "EACCES"),
                ("relative", "EACCES"),
                ("alias", "EACCES"),
                ("other", "ok"),
                ("abstract", "EPERM"),
            ] {
                assert_eq!(ended.value(name), said, "{rung} {threads} {name}: {ended}");
            }
            assert_eq!(clients(), before + 1, "only the one that is nobody's to mask: {ended}");
            let refused = |what: &dyn Fn(&ringfence::ledger::record::Denial) -> bool| -> u64 {
                let same = ended.denials().into_iter().filter(|one| one.operation == "connect" && what(one));
                same.filter(|one| one.axis == Axis::Privilege).map(|one| one.count).sum()
            };
            assert_eq!(refused(&|one| one.object.path.as_deref() == Some(RESOLVER)), 2, "{ended}");
            assert_eq!(refused(&|one| one.object.path.as_deref() == Some(ALIAS)), 1, "{ended}");
            assert_eq!(refused(&|one| one.object.path.as_deref() == Some(OTHER)), 0, "{ended}");
            assert_eq!(
                refused(&|one| one.rule == "scope" && one.object.text.as_deref() == Some("outside")),
                1,
                "{ended}"
            );
        }
        server.kill().expect("the daemon lives");
        server.wait().expect("the daemon ends");
    }
}
