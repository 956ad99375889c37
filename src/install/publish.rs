//! `publish`: a process in the sandbox's network namespace that takes connections from the host's loopback and passes them
//! on to the command's server on the same port. It is confined as the proxy is, and like the proxy out of the command's reach.

use super::proxy::{self, SpawnError, failed};
use super::rootless::Namespaces;
use crate::confine::seccomp;
use crate::policy::Publish;
use crate::stage::release_stdio;
use crate::sys::{self, Fork};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2, setpgid};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, tcp};
use tokio::sync::Semaphore;

/// Connections at once over all ports; more wait in the listeners' queues.
const CONNECTIONS: usize = 512;

/// The listeners, opened before anything else is done: a port that is taken stops the run.
#[derive(Debug)]
pub struct Published(Vec<(SocketAddr, TcpListener)>);

/// The process.
#[derive(Debug)]
pub struct Forwarder {
    /// Its process id.
    pub pid: Pid,
    /// It ends when the last copy of this is closed.
    _alive: OwnedFd,
    /// Closes without a word when it has given up what it gives up.
    stripped: OwnedFd,
}

/// A port could not be had.
#[derive(Debug, thiserror::Error)]
#[error("publish {address}: {cause}; accepted: a port of this machine's loopback that is free")]
pub struct Taken {
    address: SocketAddr,
    cause: io::Error,
}

impl Published {
    /// Binds the ports on the host's loopback.
    pub fn bind(asked: &[Publish]) -> Result<Published, Taken> {
        let bind = |publish: &Publish| {
            let address = publish.0;
            TcpListener::bind(address).map(|listener| (address, listener)).map_err(|cause| Taken { address, cause })
        };
        asked.iter().map(bind).collect::<Result<_, _>>().map(Published)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts the process that serves them, from a process that has one thread.
    pub fn serve(self, inside: &Namespaces) -> Result<Forwarder, SpawnError> {
        let filter = seccomp::proxy_program()?;
        let (alive, held) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed("pipe2"))?;
        let (stripped, told) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
        match sys::fork_single_threaded().map_err(failed("fork"))? {
            Fork::Child => {
                drop((held, stripped));
                match self.strip(inside, &alive, &told, &filter) {
                    Ok(()) => {
                        drop(told);
                        sys::exit_now(i32::from(self.forward(alive).is_err()));
                    }
                    Err(error) => {
                        // Where even this cannot be told, the supervisor reads an end and looks at the process.
                        nix::unistd::write(&told, error.to_string().as_bytes()).ok();
                        sys::exit_now(1);
                    }
                }
            }
            Fork::Parent(pid) => Ok(Forwarder { pid, _alive: held, stripped }),
        }
    }

    fn strip(&self, inside: &Namespaces, alive: &OwnedFd, told: &OwnedFd, filter: &[u8]) -> Result<(), SpawnError> {
        setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(failed("setpgid"))?;
        release_stdio().map_err(failed("dup2"))?;
        inside.join().map_err(|e| SpawnError::Confine(e.to_string()))?;
        let own = [alive.as_raw_fd(), told.as_raw_fd()];
        let kept: Vec<RawFd> = self.0.iter().map(|(_, listener)| listener.as_raw_fd()).chain(own).collect();
        sys::close_all_but(&kept).map_err(failed("close_range"))?;
        // A connection has two, a listener one, and the rest is the runtime's.
        proxy::strip_as_caller(filter, 2 * CONNECTIONS as u64 + kept.len() as u64 + 16)
    }

    fn forward(self, alive: OwnedFd) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let room = Arc::new(Semaphore::new(CONNECTIONS));
            for (address, listener) in self.0 {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(accept(listener, address.port(), room.clone()));
            }
            // Nothing is ever written to it.
            let mut alive = pipe::Receiver::from_owned_fd_unchecked(alive)?;
            alive.read_u8().await.map(drop)
        })
    }
}

impl Forwarder {
    /// Waits until the process is confined, or says why it isn't.
    pub fn await_confined(&self) -> Result<(), SpawnError> {
        let mut text = [0; 512];
        match nix::unistd::read(&self.stripped, &mut text).map_err(failed("read"))? {
            0 => Ok(()),
            length => Err(SpawnError::Confine(format!("publish: {}", String::from_utf8_lossy(&text[..length])))),
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, port: u16, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(async move {
                    // What either end breaks off is broken off for the other, and that is all that there is to tell.
                    pass(client, port).await.ok();
                    drop(place);
                });
            }
            // The client has gone again; or descriptors are short, until one is closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

async fn pass(client: TcpStream, port: u16) -> io::Result<()> {
    let server = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        // It may listen on the other family alone.
        Err(cause) if cause.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await?
        }
        connected => connected?,
    };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(one_way(from_client, to_server), one_way(from_server, to_client)).map(drop)
}

/// Passes one direction on to its end, which is the end of that direction only.
async fn one_way(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    tokio::io::AsyncWriteExt::shutdown(&mut to).await
}
