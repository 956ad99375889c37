//! Operations on the network that probes try. What would leave the machine if a wall were missing has a hop limit of 1.

use super::Surroundings;
use super::attempt::errno_of;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, UnixAddr, connect, getsockopt,
    recv, send, setsockopt, socket, sockopt,
};
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// What a probe tries on the network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Opens TCP connections to the addresses.
    Tcp(Vec<SocketAddr>),
    /// Sends a datagram to each of the addresses.
    Udp(Vec<SocketAddr>),
    /// The same TCP connections from a grandchild.
    TcpFromGrandchild(Vec<SocketAddr>),
    /// Sends an ICMP echo request by a datagram socket.
    Icmp(IpAddr),
    /// Connects and sends to each control-plane port on loopback, v4 and v6, and outside.
    ControlPlane,
    /// Sends a datagram to each control-plane port on loopback.
    ControlPlaneDatagram,
    /// Sends this request to the proxy and tells the status.
    Proxy(String),
    /// Listens on loopback and connects to it.
    LoopbackServer,
}

const PATIENCE: Duration = Duration::from_millis(1500);

/// Tries an operation.
pub fn make(operation: &Operation, run: &Surroundings) -> Vec<String> {
    match operation {
        Operation::Tcp(addresses) => addresses.iter().map(|a| tcp(*a)).collect(),
        Operation::Udp(addresses) => addresses.iter().map(|a| udp(*a)).collect(),
        Operation::TcpFromGrandchild(addresses) => {
            super::attempt::in_grandchild(|| addresses.iter().map(|a| tcp(*a)).collect())
        }
        Operation::Icmp(address) => vec![icmp(*address)],
        Operation::ControlPlane => control_plane(&run.control_plane_ports),
        Operation::ControlPlaneDatagram => {
            run.control_plane_ports.iter().map(|port| udp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)))).collect()
        }
        Operation::Proxy(request) => run.proxy.map(|p| ask_proxy(SocketAddr::V4(p), request)).into_iter().collect(),
        Operation::LoopbackServer => vec![loopback_server()],
    }
}

fn open(address: SocketAddr, kind: SockType, protocol: Option<SockProtocol>) -> Result<std::os::fd::OwnedFd, Errno> {
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

fn tcp(address: SocketAddr) -> String {
    let outcome = (|| {
        let fd = open(address, SockType::Stream, None)?;
        match connect_to(&fd, address) {
            Err(Errno::EINPROGRESS) => {}
            outcome => return outcome,
        }
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
        let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
        if poll(&mut fds, patience)? == 0 {
            return Err(Errno::ETIMEDOUT);
        }
        match getsockopt(&fd, sockopt::SocketError)? {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    })();
    errno_of(outcome)
}

fn udp(address: SocketAddr) -> String {
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

fn ask_proxy(proxy: SocketAddr, request: &str) -> String {
    let outcome = (|| -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut head = [0; 512];
        let length = stream.read(&mut head)?;
        let line = String::from_utf8_lossy(&head[..length]);
        Ok(line.split(' ').nth(1).unwrap_or("no status").to_owned())
    })();
    outcome.unwrap_or_else(|e| e.to_string())
}

fn loopback_server() -> String {
    let outcome = (|| -> std::io::Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut client = TcpStream::connect_timeout(&server.local_addr()?, PATIENCE)?;
        let (mut accepted, _) = server.accept()?;
        client.write_all(b"x")?;
        accepted.set_read_timeout(Some(PATIENCE))?;
        accepted.read_exact(&mut [0])
    })();
    outcome.map_or_else(|e| e.to_string(), |()| "ok".into())
}

/// Connects to the abstract socket that the stage has put up.
pub fn abstract_socket(name: &str) -> String {
    let outcome = (|| {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)
    })();
    errno_of(outcome)
}

/// Opens a batch of nftables changes: the kernel answers EPERM to it already without NET_ADMIN, and a batch that is never
/// closed changes nothing.
pub fn nftables_change() -> String {
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
