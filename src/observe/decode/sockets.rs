//! Calls on sockets that have an address.

use super::messages::{self, Layout};
use super::{ADDRESS_MAX, Call, Decoded, place};
use crate::observe::act::{Act, Address, Base, Made, Place};
use crate::observe::caller::Unread;
use crate::observe::calls::Structures;
use nix::libc;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// bind(2).
pub fn bind(call: &Call<'_>) -> Decoded {
    let bytes = call.address(1, 2)?;
    Ok(match address(&bytes) {
        Address::Unix(at) => Act::Make(Place { follow: false, ..at }, Made::Socket(call.int(0))),
        Address::Inet(to) => Act::BindPort { socket: call.int(0), port: to.port(), address: bytes },
        Address::Other => Act::Plain,
    })
}

/// connect(2).
pub fn connect(call: &Call<'_>) -> Decoded {
    Ok(Act::Reach { socket: call.int(0), address: address(&call.address(1, 2)?) })
}

/// sendto(2) with an address.
pub fn sendto(call: &Call<'_>) -> Decoded {
    if call.arguments[4] == 0 {
        return Ok(Act::Plain);
    }
    Ok(Act::Reach { socket: call.int(0), address: address(&call.address(4, 5)?) })
}

/// sendmsg(2) with MSG_FASTOPEN, which connects: the first two fields of `struct msghdr` are the address and its length.
pub fn sendmsg(call: &Call<'_>) -> Decoded {
    let layout = Layout::new(call.structures != Structures::Native);
    let (name, length) = messages::name(call.caller, call.arguments[1], layout)?;
    let length = length as usize;
    if name == 0 || !(2..=ADDRESS_MAX).contains(&length) {
        return Ok(Act::Plain);
    }
    Ok(Act::Reach { socket: call.int(0), address: address(&call.caller.bytes(name, length)?) })
}

/// Calls on sockets that are made for their caller, whole.
pub mod made {
    use super::{ADDRESS_MAX, Call, Decoded};
    use crate::observe::act::{Act, Received, Sent, SocketCall};

    /// socket(2).
    pub fn socket(call: &Call<'_>) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Make { family: call.int(0), kind: call.int(1), protocol: call.int(2) }))
    }

    /// bind(2).
    pub fn bind(call: &Call<'_>) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Bind { socket: call.int(0), address: address(call, 1, 2)? }))
    }

    /// connect(2).
    pub fn connect(call: &Call<'_>) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Connect { socket: call.int(0), address: address(call, 1, 2)? }))
    }

    /// listen(2).
    pub fn listen(call: &Call<'_>) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Listen { socket: call.int(0), backlog: call.int(1) }))
    }

    /// sendto(2).
    pub fn sendto(call: &Call<'_>) -> Decoded {
        let [_, data, length, ..] = call.arguments;
        let address = if call.arguments[4] == 0 { Vec::new() } else { address(call, 4, 5)? };
        sent(call, 3, Sent::Piece { data, length, address })
    }

    /// sendmsg(2).
    pub fn sendmsg(call: &Call<'_>) -> Decoded {
        sent(call, 2, Sent::Message { at: call.arguments[1] })
    }

    /// sendmmsg(2).
    pub fn sendmmsg(call: &Call<'_>) -> Decoded {
        sent(call, 3, Sent::Messages { at: call.arguments[1], count: call.word(2) })
    }

    /// recvfrom(2).
    pub fn recvfrom(call: &Call<'_>) -> Decoded {
        let [_, data, length, _, address, address_length] = call.arguments;
        received(call, 3, Received::Piece { data, length, address, address_length })
    }

    /// recvmsg(2).
    pub fn recvmsg(call: &Call<'_>) -> Decoded {
        received(call, 2, Received::Message { at: call.arguments[1] })
    }

    fn received(call: &Call<'_>, flags: usize, into: Received) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Receive { socket: call.int(0), flags: call.int(flags), into }))
    }

    fn sent(call: &Call<'_>, flags: usize, sent: Sent) -> Decoded {
        Ok(Act::OnSocket(SocketCall::Send { socket: call.int(0), flags: call.int(flags), sent }))
    }

    /// The address, or nothing where the length is none that the kernel takes.
    fn address(call: &Call<'_>, pointer: usize, length: usize) -> Result<Vec<u8>, super::Unread> {
        match call.word(length) as usize {
            length @ 1..=ADDRESS_MAX => call.caller.bytes(call.arguments[pointer], length),
            _ => Ok(Vec::new()),
        }
    }
}

/// A socket address as the kernel reads it (ip(7), ipv6(7), unix(7)).
pub fn address(bytes: &[u8]) -> Address {
    let port = || bytes.get(2..4).map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
    let family = bytes.first_chunk().map_or(0, |family| i32::from(u16::from_ne_bytes(*family)));
    match family {
        libc::AF_INET => match bytes.get(4..8) {
            Some(&[a, b, c, d]) => Address::Inet(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port())),
            _ => Address::Other,
        },
        libc::AF_INET6 => match bytes.get(8..24).and_then(|ip| <[u8; 16]>::try_from(ip).ok()) {
            Some(ip) => Address::Inet(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port())),
            None => Address::Other,
        },
        libc::AF_UNIX => {
            let name = bytes[2..].split(|byte| *byte == 0).next().unwrap_or_default();
            match place(Base::Cwd, name.to_vec(), true) {
                Ok(at) => Address::Unix(at),
                // An abstract one, or one that asks the kernel for a name.
                Err(_) => Address::Other,
            }
        }
        _ => Address::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_some_address(family in prop::sample::select(vec![0u16, 1, 2, 10, 16, 40]), rest in prop::collection::vec(any::<u8>(), 0..126)) {
            let bytes = [&family.to_ne_bytes()[..], &rest].concat();
            match address(&bytes) {
                Address::Inet(to) => {
                    prop_assert_eq!(to.port().to_be_bytes(), [rest[0], rest[1]]);
                    prop_assert!(family == 2 && to.is_ipv4() || family == 10);
                }
                Address::Unix(at) => {
                    prop_assert!(family == 1 && rest.starts_with(&at.given) && !at.given.is_empty() && !at.given.contains(&0));
                    prop_assert_eq!(at.base == Base::Root, at.given.starts_with(b"/"));
                }
                Address::Other => prop_assert!(family != 2 || rest.len() < 6),
            }
        }

        #[test]
        fn an_address_is_read_as_the_standard_library_writes_it(ip: std::net::IpAddr, port: u16) {
            let bytes = match ip {
                std::net::IpAddr::V4(ip) => [&2u16.to_ne_bytes()[..], &port.to_be_bytes(), &ip.octets(), &[0; 8]].concat(),
                std::net::IpAddr::V6(ip) => {
                    [&10u16.to_ne_bytes()[..], &port.to_be_bytes(), &[0; 4], &ip.octets(), &[0; 4]].concat()
                }
            };
            prop_assert_eq!(address(&bytes), Address::Inet(SocketAddr::new(ip.to_canonical(), port)));
        }
    }
}
