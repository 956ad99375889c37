//! Unix sockets as delegated authority (case N16): a broker outside that would open connections for the command is not
//! reached by an abstract name, nor by a path that is masked.

mod common;

use common::{Fence, value};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use world::address::{PUBLIC4, PUBLIC4_B};
use world::{World, internet};

const PORT: u16 = 4444;

/// Asks a broker for a connection to a host and a port, and says what came: `fd`, or the error.
const ASK: &str = r#"
import array, errno, os, socket, sys
for name in sys.argv[1:]:
    where = "\0" + name[1:] if name.startswith("@") else name
    for kind in "stream", "datagram":
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if kind == "stream" else socket.SOCK_DGRAM)
        s.settimeout(10)
        try:
            if kind == "datagram":
                s.sendto(b"hello", where + ".d")
                said = "sent"
            else:
                s.connect(where)
                s.sendall(b"11.22.33.45 4444\n")
                _, control, _, _ = s.recvmsg(1, socket.CMSG_SPACE(4))
                [fd] = array.array("i", control[0][2][:4])
                os.write(fd, b"through the broker")
                said = "fd"
        except OSError as cause:
            said = errno.errorcode.get(cause.errno, str(cause))
        print(f"{name}-{kind}={said}", flush=True)
"#;

/// A service of the outside that opens what it is asked for and hands the socket over, with what it was asked.
struct Broker {
    streams: Arc<AtomicUsize>,
    datagrams: Arc<AtomicUsize>,
}

impl Broker {
    /// Listens at a name, `@` for an abstract one, with streams, and at NAME.d with datagrams.
    fn start(world: &World, name: &'static str) -> Broker {
        let broker = Broker { streams: Arc::default(), datagrams: Arc::default() };
        let (ready, made) = mpsc::channel();
        let (streams, datagrams) = (broker.streams.clone(), broker.datagrams.clone());
        world.inside().run(move || {
            let (listener, datagram) = match name.strip_prefix('@') {
                Some(abstract_name) => {
                    let address = |name: String| SocketAddr::from_abstract_name(name).expect("a name");
                    let listener = UnixListener::bind_addr(&address(abstract_name.to_owned()));
                    (listener, UnixDatagram::bind_addr(&address(format!("{abstract_name}.d"))))
                }
                None => {
                    let parent = std::path::Path::new(name).parent().expect("a directory");
                    std::fs::create_dir_all(parent).expect("mkdir");
                    (UnixListener::bind(name), UnixDatagram::bind(format!("{name}.d")))
                }
            };
            let (listener, datagram) = (listener.expect("bind"), datagram.expect("bind"));
            if !name.starts_with('@') {
                for path in [name.to_owned(), format!("{name}.d")] {
                    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                    std::fs::set_permissions(path, everyone).expect("chmod");
                }
            }
            // A thread of the box's thread has its namespaces.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    streams.fetch_add(1, Ordering::SeqCst);
                    serve(stream);
                }
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 100];
                while datagram.recv(&mut buffer).is_ok() {
                    datagrams.fetch_add(1, Ordering::SeqCst);
                }
            });
            ready.send(()).expect("the test waits");
        });
        made.recv().expect("the broker listens");
        broker
    }

    /// Streams and datagrams that it got.
    fn heard(&self) -> (usize, usize) {
        (self.streams.load(Ordering::SeqCst), self.datagrams.load(Ordering::SeqCst))
    }
}

fn serve(stream: UnixStream) {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let mut line = String::new();
    if BufReader::new(&stream).read_line(&mut line).is_err() {
        return;
    }
    let mut words = line.split_whitespace();
    let (Some(host), Some(port)) = (words.next(), words.next().and_then(|port| port.parse::<u16>().ok())) else {
        return;
    };
    let Ok(opened) = TcpStream::connect((host, port)) else { return };
    let rights = [opened.as_raw_fd()];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &[std::io::IoSlice::new(b"!")],
        &[ControlMessage::ScmRights(&rights)],
        MsgFlags::empty(),
        None,
    );
    if let Err(errno) = sent {
        eprintln!("broker: sendmsg: {errno}");
    }
}

fn ask(names: &[&str]) -> String {
    format!("/usr/bin/python3 /tmp/ask.py {}", names.join(" "))
}

#[test]
fn an_abstract_name_of_the_outside_is_refused_and_no_open_connection_comes_through_it() {
    let fence = Fence::new();
    fence.world.write("/tmp/ask.py", ASK, 0o644);
    let (tcp, _udp) = internet::everywhere(&fence.world, PORT).expect("sinks");
    let broker = Broker::start(&fence.world, "@broker");
    let said = fence.as_nobody(&ask(&["@broker"]));
    assert_eq!((value(&said, "@broker-stream"), value(&said, "@broker-datagram")), ("fd", "sent"), "live: {said}");
    assert_eq!(tcp.wait_for(1)[0].bytes, b"through the broker", "{said}");
    while broker.heard() != (1, 1) {
        std::thread::yield_now();
    }

    // Two processes of the command reach each other by such a name all the same.
    let own = "import socket\n\
               a = socket.socket(socket.AF_UNIX); a.bind('\\0own'); a.listen()\n\
               b = socket.socket(socket.AF_UNIX); b.connect('\\0own'); print('own=ok')\n";
    fence.world.write("/tmp/own.py", own, 0o644);
    for policy in [&["--policy", "nist-high"][..], &["--policy", "nist-high", "--filesystem", "locked"]] {
        let ended = fence.run(policy, &format!("{}; /usr/bin/python3 /tmp/own.py", ask(&["@broker"])));
        assert_eq!((ended.value("@broker-stream"), ended.value("@broker-datagram")), ("EPERM", "EPERM"), "{ended}");
        assert_eq!(ended.value("own"), "ok", "{ended}");
    }
    assert_eq!(broker.heard(), (1, 1), "the broker heard nothing");
    assert_eq!(tcp.arrivals().len(), 1);
}

/// A socket behind a path is reached under `restricted`, which leaves reads open: a stated limit. Under `locked` the control
/// sockets are masked.
#[test]
fn a_control_sockets_path_is_masked_where_the_filesystem_is_locked() {
    let fence = Fence::new();
    fence.world.write("/tmp/ask.py", ASK, 0o644);
    let (tcp, _udp) = internet::everywhere(&fence.world, PORT).expect("sinks");
    let path = "/run/docker.sock";
    let broker = Broker::start(&fence.world, path);
    let said = fence.as_nobody(&ask(&[path]));
    assert_eq!(value(&said, &format!("{path}-stream")), "fd", "live: {said}");
    assert_eq!(tcp.wait_for(1)[0].local.ip(), PUBLIC4_B);

    let locked = ["--policy", "nist-high", "--filesystem", "locked"];
    let ended = fence.run(&locked, &ask(&[path]));
    assert_eq!(ended.value(&format!("{path}-stream")), "EACCES", "{ended}");
    assert_eq!((broker.heard().0, tcp.arrivals().len()), (1, 1), "{ended}");
}

/// What `restricted` leaves in reach is named before the run: a name service's socket carries names outside, too.
#[test]
fn the_plan_names_every_socket_that_the_command_could_reach() {
    let fence = Fence::new();
    let paths = ["/run/names/socket", "/run/x/bus", "/tmp/agent.sock"];
    let brokers = paths.map(|path| Broker::start(&fence.world, path));
    let closed = "/run/closed/socket";
    let _closed = Broker::start(&fence.world, closed);
    let said = fence.as_root("chmod 700 /run/closed; ringfence plan --policy nist-high; ringfence plan --json");
    assert_eq!(said.code, Some(0), "{said}");
    for path in paths {
        assert!(said.out.contains(&format!("reachable unix socket: {path}\n")), "{path}: {said}");
    }
    assert!(!said.out.contains(closed), "{said}");
    assert!(brokers.iter().all(|broker| broker.heard() == (0, 0)), "looking is not asking");
}

/// An inet socket that is already open is nobody's but its opener's: none is let in by stdio.
#[test]
fn an_open_connection_on_stdio_is_refused_before_anything_starts() {
    let fence = Fence::new();
    let (tcp, _udp) = internet::everywhere(&fence.world, PORT).expect("sinks");
    for connected in [true, false] {
        let (mut command, ledger) =
            fence.command(&["--policy", "nist-high"], &["bash", "-c", "echo out >&0; touch /tmp/ran"]);
        let socket: std::os::fd::OwnedFd = fence.world.inside().run(move || match connected {
            true => TcpStream::connect((PUBLIC4, PORT)).expect("connect").into(),
            false => std::net::UdpSocket::bind("0.0.0.0:0").expect("bind").into(),
        });
        command.stdin(socket);
        let said = world::Said::from(fence.world.output(command));
        assert_eq!(said.code, Some(125), "{said}");
        assert!(said.err.contains("an inet socket"), "{said}");
        assert!(fence.ended(said, ledger).records.is_empty());
    }
    assert_eq!(fence.world.read("/tmp/ran"), None);
    assert!(tcp.wait_for(1)[0].bytes.is_empty());
}
