//! Operations on the network that probes try. What would leave the machine if a wall were missing has a hop limit of 1.

use super::Surroundings;
use super::caught;
use super::child::{errno_of, in_daemon, in_grandchild, in_thread, name_of};
use super::proxies;
use crate::sys;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, UnixAddr, connect, getsockopt,
    recv, send, setsockopt, socket, sockopt,
};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a probe tries on the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Opens TCP connections to the addresses.
    Tcp(Vec<SocketAddr>),
    /// Sends a datagram to each of the addresses.
    Udp(Vec<SocketAddr>),
    /// The same TCP connections from a grandchild.
    TcpFromGrandchild(Vec<SocketAddr>),
    /// The same from a daemon, which has no parent of the command's any more.
    TcpFromDaemon(Vec<SocketAddr>),
    /// The same from a thread.
    TcpFromThread(Vec<SocketAddr>),
    /// Connects to each of these unix sockets.
    ConnectUnix(Vec<PathBuf>),
    /// Connects to each masked path as to a unix socket.
    ConnectMasked,
    /// Sends an ICMP echo request by a datagram socket.
    Icmp(IpAddr),
    /// Connects and sends to each control-plane port on loopback, v4 and v6, and outside.
    ControlPlane,
    /// Sends a datagram to each control-plane port on loopback.
    ControlPlaneDatagram,
    /// Sends this request to the proxy and tells the status. `{proxy}` stands for the proxy's own address.
    Proxy(String),
    /// Asks every proxy of the environment and every server of this machine to pass on a request.
    ProxiesInReach,
    /// Looks at the proxy's process, once it has answered.
    ProxyProcess,
    /// Listens on loopback and connects to it.
    LoopbackServer,
    /// Sends a datagram over loopback with an option in its IPv4 header.
    HeaderOption,
    /// Connects to an abstract unix socket of the outside.
    AbstractSocket,
    /// Asks nftables for a change.
    Nftables,
    /// Tells the device that sockets of each kind are bound to.
    SocketDevice,
    /// Frees a socket of its device, by each way there is.
    FreeSocket,
    /// Asks the host's resolver for a name, and tells how it is answered.
    Lookup(String),
    /// Connects to an address that could stand for a name and stands for none.
    NeverHandedOut,
}

/// How long an answer of this machine's own may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a refusal may take: the kernel makes it while the call is made.
const REFUSAL: Duration = Duration::from_millis(250);

/// Tries an operation.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    match operation {
        Operation::Tcp(addresses) => addresses.iter().map(|a| tcp(*a)).collect(),
        Operation::Udp(addresses) => addresses.iter().map(|a| udp(*a)).collect(),
        Operation::TcpFromGrandchild(addresses) => in_grandchild(|| addresses.iter().map(|a| tcp(*a)).collect()),
        Operation::TcpFromDaemon(addresses) => in_daemon(|| addresses.iter().map(|a| tcp(*a)).collect()),
        Operation::TcpFromThread(addresses) => in_thread(|| addresses.iter().map(|a| tcp(*a)).collect()),
        Operation::ConnectUnix(paths) => paths.iter().map(|path| unix_socket(path)).collect(),
        Operation::ConnectMasked => run.masked.iter().map(|path| unix_socket(path)).collect(),
        Operation::Icmp(address) => vec![icmp(*address)],
        Operation::ControlPlane => control_plane(&run.control_plane_ports),
        Operation::ControlPlaneDatagram => {
            run.control_plane_ports.iter().map(|port| udp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)))).collect()
        }
        Operation::Proxy(request) => {
            let own =
                run.proxy.map(|proxy| ask_proxy(SocketAddr::V4(proxy), |at| request.replace("{proxy}", at).into()));
            let http = run.named_proxies.iter().filter(|named| named.http.is_some());
            let named = http
                .map(|named| ask_proxy(named.address, |at| named.with_credentials(&request.replace("{proxy}", at))));
            own.into_iter().chain(named).collect()
        }
        Operation::ProxiesInReach => proxies::in_reach(&run.named_proxies),
        Operation::ProxyProcess => proxy_process(run),
        Operation::LoopbackServer => vec![loopback_server()],
        Operation::HeaderOption => vec![header_option()],
        Operation::AbstractSocket => vec![abstract_socket(&run.outside_socket)],
        Operation::Nftables => vec![nftables_change()],
        Operation::SocketDevice => kinds_of_sockets(device_of),
        Operation::FreeSocket => kinds_of_sockets(freed),
        Operation::Lookup(name) => run.caught.map(|seen| caught::lookup(seen, name)).into_iter().collect(),
        Operation::NeverHandedOut => run.caught.map(caught::never_handed_out).into_iter().collect(),
    }
}

fn open(address: SocketAddr, kind: SockType, protocol: Option<SockProtocol>) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, protocol)?;
    match address {
        SocketAddr::V4(_) => setsockopt(&fd, sockopt::Ipv4Ttl, &1)?,
        SocketAddr::V6(_) => setsockopt(&fd, sockopt::Ipv6Ttl, &1)?,
    }
    Ok(fd)
}

fn connect_to(fd: &impl AsRawFd, address: SocketAddr) -> Result<(), Errno> {
    match address {
        SocketAddr::V4(v4) => connect(fd.as_raw_fd(), &SockaddrIn::from(v4)),
        SocketAddr::V6(v6) => connect(fd.as_raw_fd(), &SockaddrIn6::from(v6)),
    }
}

/// The wall's own answer is a reset. Any other errno that comes after the call itself was sent by someone whom the packet
/// reached, "no route" from the next hop included.
fn tcp(address: SocketAddr) -> String {
    let outcome = (|| {
        let fd = open(address, SockType::Stream, None)?;
        match connect_to(&fd, address) {
            Err(Errno::EINPROGRESS) => {}
            outcome => return Ok(errno_of(outcome)),
        }
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
        let patience = PollTimeout::try_from(REFUSAL).unwrap_or(PollTimeout::ZERO);
        if poll(&mut fds, patience)? == 0 {
            return Err(Errno::ETIMEDOUT);
        }
        Ok(match getsockopt(&fd, sockopt::SocketError)? {
            0 => "ok".into(),
            libc::ECONNREFUSED => name_of(Errno::ECONNREFUSED),
            errno => format!("{:?} from outside", Errno::from_raw(errno)),
        })
    })();
    outcome.unwrap_or_else(name_of)
}

/// Sends a datagram; the kernel refuses it while the call is made, or it has got out.
pub fn udp(address: SocketAddr) -> String {
    let outcome = (|| {
        let fd = open(address, SockType::Datagram, None)?;
        connect_to(&fd, address)?;
        send(fd.as_raw_fd(), b"\0", MsgFlags::empty())
    })();
    errno_of(outcome)
}

fn icmp(address: IpAddr) -> String {
    const ECHO: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 1];
    let outcome = (|| {
        let address = SocketAddr::new(address, 0);
        let fd = open(address, SockType::Datagram, Some(SockProtocol::Icmp))?;
        connect_to(&fd, address)?;
        send(fd.as_raw_fd(), &ECHO, MsgFlags::empty())
    })();
    errno_of(outcome)
}

fn control_plane(ports: &[u16]) -> Vec<String> {
    let hosts = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST), OUTSIDE];
    let pairs = ports.iter().flat_map(|port| hosts.map(|host| SocketAddr::new(host, *port)));
    pairs.flat_map(|address| [tcp(address), udp(address)]).collect()
}

/// A globally routed address; with a hop limit of 1 nothing gets there.
const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(1, 2, 3, 4));

/// The status that a proxy gives to the request which is made of its own address.
fn ask_proxy(proxy: SocketAddr, request: impl FnOnce(&str) -> Vec<u8>) -> String {
    let outcome = (|| -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&request(&proxy.to_string()))?;
        let mut head = [0; 512];
        let length = stream.read(&mut head)?;
        let line = String::from_utf8_lossy(&head[..length]);
        Ok(line.split(' ').nth(1).unwrap_or("no status").to_owned())
    })();
    outcome.unwrap_or_else(|e| said(&e))
}

/// The errno's name; the text of an error that has none.
pub(super) fn said(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| format!("{:?}", Errno::from_raw(errno)))
}

/// The proxy reads what hostile processes send: its process must have nothing that they could take over. By the time it
/// answers, it has given up what it gives up.
fn proxy_process(run: &Surroundings) -> Vec<String> {
    let (Some(proxy), Some(pid)) = (run.proxy, run.proxy_process) else { return Vec::new() };
    let answered = ask_proxy(SocketAddr::V4(proxy), |_| NO_REQUEST.into());
    let status = match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        // Where /proc is mounted with hidepid, other users' processes are not to be seen.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM | libc::EACCES)) => {
            return vec![format!("{answered} by a hidden process")];
        }
        Err(error) => return vec![said(&error)],
    };
    let field = |name: &str| -> Vec<&str> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().split_ascii_whitespace().collect()
    };
    let shared = run.means.is_some_and(|means| means.one_uid);
    let own = |name: &str, id: &&str| {
        id.parse().is_ok_and(|id: u32| match run.ids {
            // The caller's, of which the group may be root's: a container gives it to a user who has no account.
            Some((uid, gid)) if shared => id == if name == "Uid" { uid } else { gid },
            Some((uid, gid)) => id != 0 && id != uid && id != gid,
            None => id != 0,
        })
    };
    let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
    let fault =
        if !["Uid", "Gid"].iter().all(|name| field(name).len() == 4 && field(name).iter().all(|id| own(name, id))) {
            format!("uid {:?} gid {:?}", field("Uid"), field("Gid"))
        } else if !shared && !field("Groups").is_empty() {
            format!("groups {:?}", field("Groups"))
        } else if let Some(set) = sets.iter().find(|set| field(set).concat().bytes().any(|digit| digit != b'0')) {
            format!("{set} {:?}", field(set))
        } else if field("NoNewPrivs") != ["1"] || field("Seccomp") != ["2"] {
            format!("no_new_privs {:?} seccomp {:?}", field("NoNewPrivs"), field("Seccomp"))
        } else {
            format!("{answered} by a confined process")
        };
    vec![fault]
}

/// What is no request of any proxy: the answer is 400, without a look at any list.
const NO_REQUEST: &str = "\r\n\r\nHELLO\r\n\r\n";

fn loopback_server() -> String {
    let outcome = (|| -> std::io::Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut client = TcpStream::connect_timeout(&server.local_addr()?, PATIENCE)?;
        let (mut accepted, _) = server.accept()?;
        client.write_all(b"x")?;
        accepted.set_read_timeout(Some(PATIENCE))?;
        accepted.read_exact(&mut [0])
    })();
    outcome.map_or_else(|e| said(&e), |()| "ok".into())
}

/// Four octets of "no operation" (RFC 791): the mildest option, and as long a header as any.
fn header_option() -> String {
    const NO_OPERATION: [u8; 4] = [1; 4];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, DISCARD));
    let outcome = (|| {
        let fd = open(address, SockType::Datagram, None)?;
        sys::set_ip_options(fd.as_fd(), &NO_OPERATION)?;
        connect_to(&fd, address)?;
        send(fd.as_raw_fd(), b"\0", MsgFlags::empty())
    })();
    errno_of(outcome)
}

/// The discard service (RFC 863).
const DISCARD: u16 = 9;

fn kinds_of_sockets(tried: impl Fn(&OwnedFd) -> Result<String, Errno>) -> Vec<String> {
    let hosts = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let kinds = hosts.iter().flat_map(|host| [SockType::Stream, SockType::Datagram].map(|kind| (*host, kind)));
    kinds
        .map(|(host, kind)| match open(SocketAddr::new(host, 0), kind, None) {
            Ok(socket) => tried(&socket).unwrap_or_else(name_of),
            Err(errno) => name_of(errno),
        })
        .collect()
}

fn device_of(socket: &OwnedFd) -> Result<String, Errno> {
    let device = getsockopt(socket, sockopt::BindToDevice)?;
    Ok(device.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// Without a device's name a socket is freed of it; connect(2) with AF_UNSPEC frees one of datagrams by the way.
fn freed(socket: &OwnedFd) -> Result<String, Errno> {
    let outcome = setsockopt(socket, sockopt::BindToDevice, &std::ffi::OsString::new());
    let address =
        sys::attempt(libc::SYS_connect, [socket.as_raw_fd() as u64, UNSPECIFIED.as_ptr() as u64, 16, 0, 0, 0]);
    match (outcome, address, device_of(socket)?.as_str()) {
        (Err(Errno::EPERM), Ok(_) | Err(_), "lo") => Ok("stays on lo".into()),
        (outcome, address, device) => Ok(format!("{} {} on {device:?}", errno_of(outcome), errno_of(address))),
    }
}

/// `struct sockaddr` of AF_UNSPEC.
static UNSPECIFIED: [u8; 16] = [0; 16];

fn unix_socket(path: &Path) -> String {
    let outcome = (|| {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)
    })();
    errno_of(outcome)
}

/// The stage has put the socket up.
fn abstract_socket(name: &str) -> String {
    let outcome = (|| {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)
    })();
    errno_of(outcome)
}

/// Opens a batch of nftables changes: the kernel answers EPERM to it already without NET_ADMIN, and a batch that is never
/// closed changes nothing.
fn nftables_change() -> String {
    const BATCH_BEGIN: u16 = 0x10;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 0x5;
    const SUBSYSTEM_NFTABLES: u16 = 10;
    let outcome = (|| {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)?;
        let mut message = Vec::new();
        message.extend_from_slice(&20u32.to_ne_bytes());
        message.extend_from_slice(&BATCH_BEGIN.to_ne_bytes());
        message.extend_from_slice(&REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[0, 0]);
        message.extend_from_slice(&SUBSYSTEM_NFTABLES.to_be_bytes());
        send(fd.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut reply = [0; 64];
        let length = recv(fd.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        let errno = reply.get(16..20).filter(|_| length >= 20).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        match errno {
            Some(0) => Ok(()),
            Some(errno) => Err(Errno::from_raw(-errno)),
            None => Err(Errno::EPROTO),
        }
    })();
    errno_of(outcome)
}
