//! Connecting to what was judged, and to nothing else.

use super::judge::Permit;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// How long one address is tried before the next is tried beside it (RFC 8305, 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Why none of the judged addresses was reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Each connect failed; this is the last one's cause.
    #[error("connect {addr}: {cause}")]
    Connect {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        cause: io::Error,
    },
    /// No connect was done in time.
    #[error("no address answered within {0:?}")]
    Timeout(Duration),
    /// The connection is to another peer than the one judged.
    #[error("connected to {found} instead of {judged}")]
    WrongPeer {
        /// The address that was dialled.
        judged: SocketAddr,
        /// What getpeername(2) says.
        found: SocketAddr,
    },
}

impl DialError {
    /// The status that the client is given.
    pub fn status(&self) -> u16 {
        match self {
            DialError::Timeout(_) => 504,
            DialError::Connect { cause, .. } if cause.kind() == io::ErrorKind::TimedOut => 504,
            _ => 502,
        }
    }
}

/// Connects to one of the permit's addresses within `limit`.
///
/// They are tried in order; the next one after 250 ms, or at once when none is pending. The first connection wins.
pub async fn dial(permit: &Permit, limit: Duration) -> Result<TcpStream, DialError> {
    let race = race(permit.addresses());
    let (judged, stream) = timeout_at(Instant::now() + limit, race).await.map_err(|_| DialError::Timeout(limit))??;
    let found = stream.peer_addr().map_err(|cause| DialError::Connect { addr: judged, cause })?;
    if found.ip().to_canonical() != judged.ip() || found.port() != judged.port() {
        return Err(DialError::WrongPeer { judged, found });
    }
    Ok(stream)
}

async fn race(addresses: &[SocketAddr]) -> Result<(SocketAddr, TcpStream), DialError> {
    if let [addr] = *addresses {
        let connected = TcpStream::connect(addr).await;
        return connected.map(|stream| (addr, stream)).map_err(|cause| DialError::Connect { addr, cause });
    }
    let mut waiting = addresses.iter().copied();
    let mut pending = JoinSet::new();
    let mut failed = None;
    loop {
        let next = waiting.next();
        if let Some(addr) = next {
            pending.spawn_local(async move { (addr, TcpStream::connect(addr).await) });
        }
        loop {
            let more = waiting.len() > 0;
            let done = tokio::select! {
                done = pending.join_next() => done,
                () = sleep(STAGGER), if more => break,
            };
            match done {
                Some(Ok((addr, Ok(stream)))) => return Ok((addr, stream)),
                Some(Ok((addr, Err(cause)))) => {
                    failed = Some(DialError::Connect { addr, cause });
                    if more {
                        break;
                    }
                }
                Some(Err(join)) => {
                    let addr = addresses[0];
                    let cause = io::Error::other(join);
                    failed = Some(DialError::Connect { addr, cause });
                }
                None => {
                    return Err(failed.unwrap_or(DialError::Timeout(STAGGER)));
                }
            }
        }
    }
}
