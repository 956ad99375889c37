//! Listeners that only take note: the proof that an attack arrived, or that nothing did.

use crate::error::Error;
use crate::listening::{Tcp, Udp};
use crate::namespace::Namespace;
use crate::seen::Seen;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long a sink waits for a connection's first bytes.
const FIRST_BYTES: Duration = Duration::from_millis(500);

/// One accepted connection, or one datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub peer: SocketAddr,
    /// Where it was sent to; the sink's own address for a datagram.
    pub local: SocketAddr,
    /// The connection's first bytes, or the datagram.
    pub bytes: Vec<u8>,
}

/// A TCP or UDP listener that keeps what arrives and answers nothing.
pub struct Sink {
    seen: Arc<Seen<Arrival>>,
    address: SocketAddr,
    _socket: Socket,
}

/// Keeps the socket open.
enum Socket {
    Tcp { _held: Tcp },
    Udp { _held: Udp },
}

impl Sink {
    /// Accepts every connection, keeps its first bytes, and closes it. The wildcard address takes connections to any
    /// address of the namespace; in the outside that is any address at all.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn tcp(space: &Namespace, address: impl Into<IpAddr>, port: u16) -> Result<Sink, Error> {
        let seen = Arc::new(Seen::new());
        let noting = seen.clone();
        let socket = Tcp::listen(space, SocketAddr::new(address.into(), port), move |mut stream| {
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
                return;
            };
            let mut bytes = vec![0; 4096];
            let length = match stream.set_read_timeout(Some(FIRST_BYTES)) {
                Ok(()) => stream.read(&mut bytes).unwrap_or(0),
                Err(_) => 0,
            };
            bytes.truncate(length);
            noting.push(Arrival { peer: canonical(peer), local: canonical(local), bytes });
        })?;
        Ok(Sink { seen, address: socket.address(), _socket: Socket::Tcp { _held: socket } })
    }

    /// Accepts every connection and keeps all of its bytes, up to its end or ten seconds of silence; `answer` is sent once
    /// something has come.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn whole(
        space: &Namespace,
        address: impl Into<IpAddr>,
        port: u16,
        answer: &'static [u8],
    ) -> Result<Sink, Error> {
        let seen = Arc::new(Seen::new());
        let noting = seen.clone();
        let socket = Tcp::listen(space, SocketAddr::new(address.into(), port), move |mut stream| {
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
                return;
            };
            let (mut bytes, mut piece) = (Vec::new(), vec![0; 65536]);
            let mut answer = Some(answer);
            stream.set_read_timeout(Some(Duration::from_secs(10))).ok();
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                bytes.extend_from_slice(&piece[..count]);
                if answer.take().is_some_and(|answer| stream.write_all(answer).is_err()) {
                    break;
                }
            }
            noting.push(Arrival { peer: canonical(peer), local: canonical(local), bytes });
        })?;
        Ok(Sink { seen, address: socket.address(), _socket: Socket::Tcp { _held: socket } })
    }

    /// Keeps every datagram.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn udp(space: &Namespace, address: impl Into<IpAddr>, port: u16) -> Result<Sink, Error> {
        let seen = Arc::new(Seen::new());
        let noting = seen.clone();
        let local = SocketAddr::new(address.into(), port);
        let socket = Udp::listen(space, local, move |bytes, peer| {
            noting.push(Arrival { peer: canonical(peer), local, bytes: bytes.to_vec() });
            None
        })?;
        Ok(Sink { seen, address: socket.address(), _socket: Socket::Udp { _held: socket } })
    }

    /// What has arrived so far. For "nothing arrived", ask [`World::packets_to`](crate::World::packets_to) too: it
    /// waits for what is under way.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.seen.all()
    }

    /// Waits until `count` arrivals are there, at most ten seconds.
    pub fn wait_for(&self, count: usize) -> Vec<Arrival> {
        self.seen.wait_for(count, Duration::from_secs(10))
    }

    /// What has arrived once nothing more has for half a second: for a count that later arrivals are compared with.
    pub fn settled(&self) -> Vec<Arrival> {
        self.seen.settled(Duration::from_millis(500))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A dual-stack listener sees IPv4 peers as mapped addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
