//! The sockets at which tools arrive that ask no proxy, and which way leads to each.

use super::firewall::Ways;
use super::firewall::rules::PROXIES;
use crate::observe::sockets::held::bind_to_lo;
use crate::plan::transparent::CatchPlan;
use crate::proxy::transparent::{Caught, Told};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What is bound, and the ways to it.
#[derive(Debug)]
pub struct Bound {
    /// For the proxy.
    pub caught: Caught,
    /// For whoever leads clients there.
    pub ways: Ways,
}

/// How often a port is looked for that is free for UDP and for TCP.
const TRIES: usize = 64;

/// Binds the sockets that a plan takes: in the order in which [`Bound::of`] takes them.
///
/// # Errors
/// The kernel's; EADDRINUSE where no port is free for both protocols.
pub fn sockets(plan: &CatchPlan, told: &Told) -> io::Result<Vec<OwnedFd>> {
    let avoided = &plan.refused_ports[..];
    let mut all: Vec<OwnedFd> = Vec::new();
    for ip in stubs(plan, told) {
        let (udp, tcp) = resolver(ip, avoided)?;
        all.extend([udp.into(), tcp.into()]);
    }
    for _ in &plan.ports {
        all.push(match told {
            Told::ByTranslation => avoiding(avoided, || TcpListener::bind((PROXIES, 0)))?.into(),
            Told::ByDestination => avoiding(avoided, anywhere_on_loopback)?.into(),
        });
    }
    Ok(all)
}

/// Where questions are answered, of either family that resolvers are of. Where no wall keeps others from it there is none on
/// `::1`, and sockets of IPv6 are led to the one of IPv4.
fn stubs(plan: &CatchPlan, told: &Told) -> Vec<IpAddr> {
    if *told == Told::ByDestination {
        return vec![IpAddr::V4(PROXIES)];
    }
    let is_v6 = |resolver: &SocketAddr| resolver.ip().to_canonical().is_ipv6();
    let v4 = plan.resolvers.iter().any(|one| !is_v6(one)).then_some(IpAddr::V4(PROXIES));
    // Without IPv6 here no question gets that far.
    let has_v6 = || UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let v6 = (plan.resolvers.iter().any(is_v6) && has_v6()).then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    v4.into_iter().chain(v6).collect()
}

fn resolver(ip: IpAddr, avoided: &[u16]) -> io::Result<(UdpSocket, TcpListener)> {
    let mut refused = None;
    for _ in 0..TRIES {
        let tcp = avoiding(avoided, || TcpListener::bind((ip, 0)))?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// A listener whose port is none of those that are refused wherever they are.
fn avoiding(avoided: &[u16], bind: impl Fn() -> io::Result<TcpListener>) -> io::Result<TcpListener> {
    for _ in 0..TRIES {
        let listener = bind()?;
        if !avoided.contains(&listener.local_addr()?.port()) {
            return Ok(listener);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// A listener on every address of loopback and on no other device: by the one that a client has connected to, it tells which name
/// it means.
fn anywhere_on_loopback() -> io::Result<TcpListener> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // First, so that no other device ever has it.
    bind_to_lo(socket.as_fd())?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(socket.into())
}

impl Bound {
    /// What [`sockets`] has bound, here or elsewhere.
    ///
    /// # Errors
    /// getsockname(2)'s; EBADF where there are fewer than the plan takes.
    pub fn of(plan: &CatchPlan, told: Told, sockets: Vec<OwnedFd>) -> io::Result<Bound> {
        let pairs = sockets.len().checked_sub(plan.ports.len()).filter(|left| left % 2 == 0);
        let pairs = pairs.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))? / 2;
        let mut rest = sockets.into_iter();
        let mut next = || rest.next().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF));
        let (mut resolvers, mut stubs) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (udp, tcp) = (UdpSocket::from(next()?), TcpListener::from(next()?));
            stubs.push(tcp.local_addr()?);
            resolvers.push((udp, tcp));
        }
        let (mut ports, mut arrivals) = (Vec::new(), Vec::new());
        for port in &plan.ports {
            let listener = TcpListener::from(next()?);
            arrivals.push((*port, listener.local_addr()?));
            ports.push((*port, listener));
        }
        let stub_of = |asked: &SocketAddr| {
            let is_v4 = asked.ip().to_canonical().is_ipv4();
            let any = told == Told::ByDestination;
            stubs.iter().find(|stub| any || stub.is_ipv4() == is_v4).copied()
        };
        let led = plan.resolvers.iter().filter_map(|asked| Some((*asked, stub_of(asked)?)));
        let ways = Ways {
            resolvers: led.collect(),
            ports: arrivals,
            listed: plan.listed.iter().map(|(address, _)| *address).collect(),
        };
        Ok(Bound { caught: Caught { resolvers, ports, told, listed: plan.listed.clone() }, ways })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn plan() -> CatchPlan {
        CatchPlan {
            ports: vec![80, 443],
            resolvers: ["11.22.33.53:53", "127.0.0.53:53", "[2a00:1:2:3::53]:53"].map(|a| a.parse().unwrap()).into(),
            listed: Vec::new(),
            refused_ports: Vec::new(),
        }
    }

    #[test]
    fn each_way_leads_to_its_socket() {
        let Bound { caught, ways } =
            Bound::of(&plan(), Told::ByTranslation, sockets(&plan(), &Told::ByTranslation).unwrap()).unwrap();
        assert_eq!((caught.resolvers.len(), caught.ports.len(), ways.resolvers.len()), (2, 2, 3));
        for ((udp, tcp), (_, stub)) in caught.resolvers.iter().zip([&ways.resolvers[0], &ways.resolvers[2]]) {
            assert_eq!((udp.local_addr().unwrap(), tcp.local_addr().unwrap()), (*stub, *stub));
        }
        assert_eq!(ways.resolvers[1].1, ways.resolvers[0].1);
        for ((port, listener), (asked, at)) in caught.ports.iter().zip(&ways.ports) {
            assert_eq!((port, listener.local_addr().unwrap()), (asked, *at));
            assert_eq!(at.ip(), IpAddr::V4(PROXIES));
        }
        let few = sockets(&plan(), &Told::ByTranslation).unwrap().into_iter().take(3).collect();
        assert!(Bound::of(&plan(), Told::ByTranslation, few).is_err());
    }

    #[test]
    fn a_listener_of_loopback_hears_every_address_of_it_and_tells_which() {
        let sockets = sockets(&plan(), &Told::ByDestination).unwrap();
        let Bound { caught, ways } = Bound::of(&plan(), Told::ByDestination, sockets).unwrap();
        let (listener, port) = (&caught.ports[0].1, ways.ports[0].1.port());
        nix::sys::socket::listen(listener, nix::sys::socket::Backlog::new(8).unwrap()).unwrap();
        for there in ["127.18.0.1", "127.19.255.254", "127.20.0.0"] {
            let client = TcpStream::connect((there, port)).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(accepted.local_addr().unwrap(), client.peer_addr().unwrap());
        }
    }
}
