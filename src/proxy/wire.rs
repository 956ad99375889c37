//! One TCP connection, either side of the proxy.

use super::inflow::Inflow;
use super::pump::Pipes;
use super::record::Connection;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout_at};

/// How long a refused client's bytes are still taken, so that its kernel does not throw the answer away unread
/// when ours resets the connection (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);

/// Most bytes taken while lingering.
const LINGER_BYTES: usize = 1024 * 1024;

/// A connection, with what came in and is not used yet.
#[derive(Debug)]
pub struct Wire {
    /// What comes in.
    pub inflow: Inflow<OwnedReadHalf>,
    /// What goes out.
    pub out: OwnedWriteHalf,
    /// For what comes in, where it is bulk.
    pub pipes: Rc<Pipes>,
    /// A client's two ends.
    ends: Option<Rc<Connection>>,
}

impl Wire {
    /// Takes a connection, small segments sent at once.
    pub fn new(stream: TcpStream, pipes: &Rc<Pipes>) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        let (reader, out) = stream.into_split();
        Ok(Wire { inflow: Inflow::new(reader), out, pipes: pipes.clone(), ends: None })
    }

    /// Sends `bytes`, within `limit`.
    pub async fn send(&mut self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        tokio::time::timeout(limit, self.out.write_all(bytes))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// The same, a client's, with the ends that it was accepted with.
    pub fn with_ends(self, ends: Connection) -> Wire {
        Wire { ends: Some(Rc::new(ends)), ..self }
    }

    /// The connection's two ends, for the record; a client's has them.
    pub fn ends(&self) -> Option<Connection> {
        self.ends.as_deref().copied()
    }

    /// Sends the last bytes, within `limit`, and ends the connection.
    pub async fn end_with(mut self, bytes: &[u8], limit: Duration) {
        if self.send(bytes, limit).await.is_ok() {
            self.end().await;
        }
    }

    /// Ends the connection after an answer: says that no more comes, and takes what is still on its way.
    pub async fn end(mut self) {
        if self.out.shutdown().await.is_err() {
            return;
        }
        let deadline = Instant::now() + LINGER;
        let mut taken = self.inflow.unused().len();
        self.inflow.consume(taken);
        while taken < LINGER_BYTES {
            match timeout_at(deadline, self.inflow.more()).await {
                Ok(Ok(count)) if count > 0 => {
                    self.inflow.consume(count);
                    taken += count;
                }
                _ => return,
            }
        }
    }

    /// Ends the connection with a reset, so that what it carried cannot be taken for whole.
    pub fn reset(self) {
        // It fails only on a socket that is gone, which has no peer left to tell.
        self.out.as_ref().set_zero_linger().ok();
        // Dropping the write half would send a proper end before the reset.
        self.out.forget();
    }
}
