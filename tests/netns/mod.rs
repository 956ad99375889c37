//! A closed network for one test: the test thread's own network namespace ("inside"), a veth pair, and a peer in a
//! namespace of its own ("outside") that counts what reaches it. Needs root.
#![allow(dead_code, reason = "each test binary uses its own part")]

use nix::sched::{CloneFlags, unshare};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringfence::install::firewall::{Egress, Loopback, WallSpec};

/// The uid that the wall judges in these tests.
pub const UID: u32 = 10001;
pub const RUN: &str = "0123456789abcdef";
/// Addresses of this side and of the peer, on one link.
pub const INSIDE4: &str = "11.22.33.1";
pub const INSIDE6: &str = "2a00:1:2:3::1";
pub const OUTSIDE4: &str = "11.22.33.2";
pub const OUTSIDE6: &str = "2a00:1:2:3::2";
/// Where the peer answers TCP with a greeting and takes datagrams.
pub const PORT: u16 = 7777;

/// Runs a program in the calling thread's namespace and insists that it succeeds.
pub fn run(line: &str) -> String {
    let out = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// `nft -f -` with `script`.
pub fn nft(script: &str) {
    let mut child = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "nft: {script}");
}

/// A namespace with only `lo`, up.
pub fn enter() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
    run("ip link set lo up; echo '0 2147483647' > /proc/sys/net/ipv4/ping_group_range");
}

/// What reached the peer: the protocol and the bytes.
pub struct Outside {
    namespace: String,
    arrived: Receiver<(&'static str, Vec<u8>)>,
}

impl Outside {
    /// Makes the link and starts the peer.
    pub fn new() -> Outside {
        enter();
        let (ready, tid) = channel();
        let (go, linked) = channel::<()>();
        let (up, is_up) = channel();
        let (arrive, arrived) = channel();
        std::thread::spawn(move || {
            enter();
            ready.send(nix::unistd::gettid()).unwrap();
            linked.recv().unwrap();
            run(&format!(
                "ip addr add {OUTSIDE4}/24 dev outside; ip addr add {OUTSIDE6}/64 dev outside nodad; ip link set outside up;
                 ip route add default dev outside; ip -6 route add default dev outside"
            ));
            let tcp = TcpListener::bind(("::", PORT)).unwrap();
            let udp = UdpSocket::bind(("::", PORT)).unwrap();
            let arrive_tcp = arrive.clone();
            std::thread::spawn(move || {
                for stream in tcp.incoming() {
                    // Told before it is answered, so that arrivals are told in the order of the acts.
                    if arrive_tcp.send(("tcp", Vec::new())).is_err() {
                        return;
                    }
                    let _ = stream.unwrap().write_all(b"hello");
                }
            });
            up.send(()).unwrap();
            let mut bytes = [0; 2048];
            while let Ok((length, _)) = udp.recv_from(&mut bytes) {
                if arrive.send(("udp", bytes[..length].to_vec())).is_err() {
                    return;
                }
            }
        });
        let tid = tid.recv().unwrap();
        run(&format!(
            "ip link add inside type veth peer name outside; ip link set outside netns {tid};
             ip addr add {INSIDE4}/24 dev inside; ip addr add {INSIDE6}/64 dev inside nodad; ip link set inside up"
        ));
        go.send(()).unwrap();
        is_up.recv().unwrap();
        run("ip route add default dev inside; ip -6 route add default dev inside");
        let outside = Outside { namespace: format!("--net=/proc/{}/task/{tid}/ns/net", std::process::id()), arrived };
        // Neighbour discovery and a link that is still coming up delay the first packets.
        assert_eq!(root(&[&format!("tcp {OUTSIDE4} {PORT}"), &format!("tcp {OUTSIDE6} {PORT}")]), ["ok", "ok"]);
        outside.expect("tcp");
        outside.expect("tcp");
        outside
    }

    /// The next arrival is of this protocol.
    pub fn expect(&self, protocol: &str) {
        let (arrived, _) = self.arrived.recv_timeout(Duration::from_secs(5)).expect("something should have arrived");
        assert_eq!(arrived, protocol);
    }

    /// What `acts` give when root tries them from outside.
    pub fn act(&self, acts: &[&str]) -> Vec<String> {
        outcomes(Command::new("nsenter").arg(&self.namespace), acts)
    }

    /// Nothing has arrived: a datagram that root sends now is the next.
    pub fn expect_silence(&self) {
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"marker", (OUTSIDE4, PORT)).unwrap();
        let arrived = self.arrived.recv_timeout(Duration::from_secs(5)).expect("the marker should have arrived");
        assert_eq!(arrived, ("udp", b"marker".to_vec()));
    }
}

/// What `acts` give when the walled uid tries them: `ok`, or the error's name.
pub fn command(acts: &[&str]) -> Vec<String> {
    act(UID, acts)
}

/// The same by root.
pub fn root(acts: &[&str]) -> Vec<String> {
    act(0, acts)
}

fn act(uid: u32, acts: &[&str]) -> Vec<String> {
    outcomes(&mut as_uid(uid), acts)
}

/// A program run by `uid`, to be named as the next argument.
pub fn as_uid(uid: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]);
    command
}

/// The interpreter with the script of acts.
pub const ACTS: [&str; 3] = ["/usr/bin/python3", "-c", include_str!("acts.py")];

/// The command's own server on every address, which ends with this value.
pub struct Server(Child);

impl Server {
    /// Starts it and waits until it listens.
    pub fn start(port: u16) -> Server {
        let mut command = as_uid(UID);
        let command = command.args(ACTS).arg(format!("serve {port}"));
        let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "serving\n");
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn outcomes(command: &mut Command, acts: &[&str]) -> Vec<String> {
    let out = command.args(ACTS).args(acts).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A wall that refuses everything but loopback.
pub fn spec() -> WallSpec {
    WallSpec {
        shadow: false,
        run: RUN.into(),
        uid: UID,
        proxy: None,
        egress: Egress::Restricted,
        loopback: Loopback::All,
        resolvers: Vec::new(),
        control_plane_ports: Vec::new(),
        nflog_group: 0,
        metadata: ["169.254.169.254/32", "fd00:ec2::254/128"].iter().map(|n| n.parse().unwrap()).collect(),
        private: ["10.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "fc00::/7", "ff00::/8"]
            .iter()
            .map(|n| n.parse().unwrap())
            .collect(),
        caught: None,
    }
}

/// A listener of root's on every address, for TCP and UDP, that stays for the test's life.
pub fn serve(address: &str, port: u16) {
    let address: IpAddr = address.parse().unwrap();
    let tcp = TcpListener::bind((address, port)).unwrap();
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let _ = stream.unwrap().write_all(b"hello");
        }
    });
    let udp = UdpSocket::bind((address, port)).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((length, from)) = udp.recv_from(&mut bytes) {
            let _ = udp.send_to(&bytes[..length], from);
        }
    });
}
