//! socket(2), made for the command.

use super::Sockets;
use super::held::{Held, Kind};
use super::rules::Transport;
use super::waiting::{Later, Outcome};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::sync::Arc;
use std::time::Duration;

/// Why no socket is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Not {
    /// No kernel makes one of these.
    Such(Errno),
    /// It carries what is not judged here. The answer is that of a kernel without it.
    Judged(Errno),
}

/// Protocols that sockets are made for, by their numbers (IANA).
const SERVED: [i32; 5] = [0, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6];
/// `SOCK_MAX` (linux/net.h).
const KINDS: i32 = 11;
/// The bits of the kind; the others are flags.
const KIND: i32 = 0xf;
/// How long a datagram socket may have to wait for messages that have yet to find theirs.
const PATIENCE: Duration = Duration::from_secs(1);

/// What socket(2) asks for.
pub fn kind(family: i32, kind: i32, protocol: i32) -> Result<Kind, Not> {
    let is_v6 = match family {
        libc::AF_UNIX => return Ok(Kind::Unix),
        libc::AF_NETLINK => return Ok(Kind::Netlink),
        libc::AF_INET6 => true,
        _ => false,
    };
    let transport = match (kind & KIND, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Transport::Tcp,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Transport::Udp,
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMP) if !is_v6 => Transport::Icmp,
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6) if is_v6 => Transport::IcmpV6,
        (kind, _) if kind >= KINDS => return Err(Not::Such(Errno::EINVAL)),
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, protocol) if SERVED.contains(&protocol) => {
            return Err(Not::Such(Errno::EPROTONOSUPPORT));
        }
        // UDP-Lite, SCTP.
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Not::Judged(Errno::EPROTONOSUPPORT)),
        // SCTP and DCCP.
        (libc::SOCK_SEQPACKET | libc::SOCK_DCCP, _) => return Err(Not::Judged(Errno::ESOCKTNOSUPPORT)),
        _ => return Err(Not::Such(Errno::ESOCKTNOSUPPORT)),
    };
    Ok(Kind::Inet(transport, is_v6))
}

/// While it lives no message gets a way.
struct Making(Arc<Sockets>);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.table.made();
    }
}

/// Makes it.
pub fn make(sockets: &Arc<Sockets>, tid: Pid, what: Kind, [family, flags, protocol]: [i32; 3]) -> Later {
    let sockets = sockets.clone();
    let mut making = what.is_inet_datagram().then(|| {
        sockets.table.begin_making();
        Making(sockets.clone())
    });
    let attempt = move || {
        if making.is_some() && !sockets.table.is_quiet() {
            return Outcome::Blocked;
        }
        sockets.make_room();
        match Held::open(family, flags, protocol, what) {
            Ok(held) => {
                let held = Arc::new(held);
                sockets.table.insert(&held);
                drop(making.take());
                Outcome::Made(held, flags & libc::SOCK_CLOEXEC != 0)
            }
            Err(errno) => Outcome::Failed(errno),
        }
    };
    Later { deadline: Some((PATIENCE, Errno::ENOBUFS)), ..Later::once(tid, attempt) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_judged_is_not_made() {
        let [v4, v6] = [libc::AF_INET, libc::AF_INET6];
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        for (family, asked, protocol, made) in [
            (v4, libc::SOCK_STREAM, 0, Ok(Kind::Inet(Transport::Tcp, false))),
            (v6, libc::SOCK_STREAM | flags, 6, Ok(Kind::Inet(Transport::Tcp, true))),
            (v4, libc::SOCK_DGRAM | flags, 0, Ok(Kind::Inet(Transport::Udp, false))),
            (v4, libc::SOCK_DGRAM, 1, Ok(Kind::Inet(Transport::Icmp, false))),
            (v6, libc::SOCK_DGRAM, 58, Ok(Kind::Inet(Transport::IcmpV6, true))),
            (v6, libc::SOCK_DGRAM, 1, Err(Not::Such(Errno::EPROTONOSUPPORT))),
            (v4, libc::SOCK_STREAM, 17, Err(Not::Such(Errno::EPROTONOSUPPORT))),
            (v4, libc::SOCK_STREAM, 132, Err(Not::Judged(Errno::EPROTONOSUPPORT))),
            (v4, libc::SOCK_STREAM, 262, Err(Not::Judged(Errno::EPROTONOSUPPORT))),
            (v4, libc::SOCK_DGRAM, 136, Err(Not::Judged(Errno::EPROTONOSUPPORT))),
            (v4, libc::SOCK_SEQPACKET, 0, Err(Not::Judged(Errno::ESOCKTNOSUPPORT))),
            (v6, libc::SOCK_DCCP, 33, Err(Not::Judged(Errno::ESOCKTNOSUPPORT))),
            (v6, libc::SOCK_RDM, 0, Err(Not::Such(Errno::ESOCKTNOSUPPORT))),
            (v6, 12, 0, Err(Not::Such(Errno::EINVAL))),
            (libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, Ok(Kind::Unix)),
            (libc::AF_NETLINK, libc::SOCK_RAW, 0, Ok(Kind::Netlink)),
        ] {
            assert_eq!(kind(family, asked, protocol), made, "{family} {asked:#x} {protocol}");
        }
    }
}
