//! Sockets that serve in a namespace until they are dropped.

use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use nix::sys::socket::{Shutdown, shutdown};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a server waits for a silent peer before it gives the connection up.
const PEER_PATIENCE: Duration = Duration::from_secs(30);

/// A TCP listener that hands each connection to a thread of its own.
pub(crate) struct Tcp {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Tcp {
    /// Binds in the namespace; port 0 lets the kernel choose.
    pub(crate) fn listen(
        space: &Namespace,
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Result<Tcp, Error> {
        let listener = space.run(move || TcpListener::bind(address)).doing(format!("listen on TCP {address}"))?;
        let (listener, serve) = (Arc::new(listener), Arc::new(serve));
        let address = listener.local_addr().doing("getsockname")?;
        let accepting = listener.clone();
        let thread = thread::Builder::new()
            .name(format!("tcp {address}"))
            .spawn(move || {
                // The shutdown of the listener in `drop` ends `accept` with EINVAL.
                while let Some(stream) = accept(&accepting) {
                    let serve = serve.clone();
                    thread::spawn(move || serve(stream));
                }
            })
            .doing("start a thread")?;
        Ok(Tcp { listener, address, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn accept(listener: &TcpListener) -> Option<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) if stream.set_read_timeout(Some(PEER_PATIENCE)).is_ok() => {
                return Some(stream);
            }
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => return None,
            // A peer that went away before it was accepted.
            _ => {}
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        shutdown(self.listener.as_raw_fd(), Shutdown::Both).expect("a listener can be shut down");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("accepting doesn't panic");
        }
    }
}

/// A UDP socket that answers each datagram with at most one.
pub(crate) struct Udp {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Udp {
    /// Binds in the namespace; port 0 lets the kernel choose.
    pub(crate) fn listen(
        space: &Namespace,
        address: SocketAddr,
        answer: impl Fn(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) -> Result<Udp, Error> {
        let socket = space.run(move || UdpSocket::bind(address)).doing(format!("bind UDP {address}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).doing("setsockopt(SO_RCVTIMEO)")?;
        let address = socket.local_addr().doing("getsockname")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = thread::Builder::new()
            .name(format!("udp {address}"))
            .spawn(move || {
                let mut bytes = vec![0; 65_536];
                while !stopping.load(Ordering::Relaxed) {
                    // A timeout is the moment to look at `stopping`.
                    let Ok((length, peer)) = socket.recv_from(&mut bytes) else {
                        continue;
                    };
                    if let Some(reply) = answer(&bytes[..length], peer)
                        && let Err(cause) = socket.send_to(&reply, peer)
                    {
                        eprintln!("world: answer to {peer}: {cause}");
                    }
                }
            })
            .doing("start a thread")?;
        Ok(Udp { stop, address, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("serving doesn't panic");
        }
    }
}
