//! The inside of a network namespace without a way out: `lo`, and default routes over it, so that whatever the command sends
//! meets the firewall and gets its answer, where without a route it would get another errno (rtnetlink(7)).

use super::firewall::rules::LO;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

const NETLINK_HEADER: usize = 16;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16 | libc::NLM_F_ACK as u16;
const CREATE: u16 = libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16;

/// Why the inside could not be furnished.
#[derive(Debug, thiserror::Error)]
#[error("network namespace: {what}: {source}")]
pub struct NetnsError {
    what: &'static str,
    source: io::Error,
}

/// Brings `lo` up in the calling thread's network namespace and routes everything over it.
///
/// The route of IPv6 is one to this machine: the kernel makes any other over `lo` an unreachable one, which would answer
/// before the firewall is asked. Without IPv6 in the kernel there is none, and no address that it could lead to.
pub fn furnish() -> Result<(), NetnsError> {
    let failed = |what| move |source| NetnsError { what, source };
    let socket = Socket::new(NETLINK_ROUTE).map_err(failed("socket(AF_NETLINK, NETLINK_ROUTE)"))?;
    request(&socket, libc::RTM_NEWLINK, REQUEST, &lo_up()).map_err(failed("lo up"))?;
    let v4 = route(libc::AF_INET, libc::RTN_UNICAST, libc::RT_SCOPE_LINK, &Ipv4Addr::LOCALHOST.octets());
    request(&socket, libc::RTM_NEWROUTE, REQUEST | CREATE, &v4).map_err(failed("default route over lo"))?;
    if has_ipv6() {
        let v6 = route(libc::AF_INET6, libc::RTN_LOCAL, libc::RT_SCOPE_UNIVERSE, &Ipv6Addr::LOCALHOST.octets());
        request(&socket, libc::RTM_NEWROUTE, REQUEST | CREATE, &v6).map_err(failed("IPv6 default route over lo"))?;
    }
    Ok(())
}

/// What the host's network namespace leaves to a user without capabilities (ip-sysctl), who is to find it in a new one too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    gid: u32,
    /// Whether the group may send echo requests (icmp(7)).
    echo: bool,
    /// The lowest port that it may bind, where one is told.
    lowest_port: Option<u16>,
}

const ECHO_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";
const LOWEST_PORT: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

impl Left {
    /// Of the calling thread's network namespace, to a user of this group.
    pub fn to(gid: u32) -> Left {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let groups: Vec<u32> = read(ECHO_GROUPS).split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let echo = matches!(groups[..], [first, last] if (first..=last).contains(&gid));
        Left { gid, echo, lowest_port: read(LOWEST_PORT).trim().parse().ok() }
    }

    /// Leaves as much of the calling thread's network namespace. Where its settings cannot be written it is less, and the
    /// kernel says EACCES to who asks for it.
    pub fn leave(&self) {
        let echo = self.echo.then(|| (ECHO_GROUPS, format!("{0} {0}", self.gid)));
        let port = self.lowest_port.map(|port| (LOWEST_PORT, port.to_string()));
        for (path, text) in echo.into_iter().chain(port) {
            match std::fs::write(path, text) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Whether `lo` has got its address, which it gets when it comes up unless IPv6 is off.
fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// `struct ifinfomsg` that sets IFF_UP of `lo`.
fn lo_up() -> Vec<u8> {
    let up = libc::IFF_UP as u32;
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    [LO, up, up].iter().for_each(|word| body.extend_from_slice(&word.to_ne_bytes()));
    body
}

/// `struct rtmsg` of a route to everywhere over `lo`, with the address that is put into packets as their source.
fn route(family: i32, kind: u8, scope: u8, source: &[u8]) -> Vec<u8> {
    let to_all = 0;
    let [any_source, any_service] = [0, 0];
    let (table, protocol) = (libc::RT_TABLE_MAIN, libc::RTPROT_BOOT);
    let mut body = vec![family as u8, to_all, any_source, any_service, table, protocol, scope, kind];
    body.extend_from_slice(&0u32.to_ne_bytes());
    for (attribute, value) in [(libc::RTA_OIF, &LO.to_ne_bytes()[..]), (libc::RTA_PREFSRC, source)] {
        // Both values are multiples of four, the alignment of attributes.
        body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        body.extend_from_slice(&attribute.to_ne_bytes());
        body.extend_from_slice(value);
    }
    body
}

/// Sends one request and reads what the kernel answers it.
fn request(socket: &Socket, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(NETLINK_HEADER + body.len());
    message.extend_from_slice(&((NETLINK_HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    let [sequence, to_kernel] = [1u32, 0];
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&to_kernel.to_ne_bytes());
    message.extend_from_slice(body);
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let is_answer = answer.get(4..6) == Some(&(libc::NLMSG_ERROR as u16).to_ne_bytes()[..]);
    let code =
        answer.get(NETLINK_HEADER..).and_then(|rest| rest.first_chunk::<4>()).map(|bytes| i32::from_ne_bytes(*bytes));
    match code.filter(|_| is_answer) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno.wrapping_neg())),
        None => Err(io::Error::from_raw_os_error(libc::EPROTO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::net::{SocketAddr, TcpStream, UdpSocket};

    #[test]
    fn without_ipv6_there_is_no_route_for_it() {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
        for scope in ["all", "default", "lo"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1").unwrap();
        }
        furnish().unwrap();
        assert!(!has_ipv6());
        UdpSocket::bind("127.0.0.1:0").unwrap().connect("11.22.33.44:443").unwrap();
    }

    #[test]
    fn whatever_is_sent_stays_on_lo() {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root");
        let outside: [SocketAddr; 2] = ["11.22.33.44:443".parse().unwrap(), "[2a00:1:2:3::10]:443".parse().unwrap()];
        for address in outside {
            let unfurnished = TcpStream::connect(address).unwrap_err().raw_os_error();
            let no_route = [Some(libc::ENETUNREACH), Some(libc::EADDRNOTAVAIL)];
            assert!(no_route.contains(&unfurnished), "live: without a route {unfurnished:?}");
        }
        furnish().unwrap();
        for (address, own) in outside.into_iter().zip(["127.0.0.1:0", "[::1]:0"]) {
            let socket = UdpSocket::bind(own).unwrap();
            socket.connect(address).unwrap_or_else(|cause| panic!("{address}: {cause}"));
        }
        let again = furnish().unwrap_err().to_string();
        assert_eq!(again, "network namespace: default route over lo: File exists (os error 17)");
    }
}
