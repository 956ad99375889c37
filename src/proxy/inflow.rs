//! Bytes that came in and are not used yet. An inflow that waits holds no buffer, so that thousands of silent
//! connections cost nothing but their sockets.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes taken from a socket at once.
pub const PIECE: usize = 32 * 1024;

/// A reader and what was read from it but not used.
#[derive(Debug)]
pub struct Inflow<R> {
    reader: R,
    buffer: Vec<u8>,
    used: usize,
}

impl<R: AsyncRead + Unpin> Inflow<R> {
    /// An inflow with nothing read yet.
    pub fn new(reader: R) -> Inflow<R> {
        Inflow { reader, buffer: Vec::new(), used: 0 }
    }

    /// What is there and not used.
    pub fn unused(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// Marks the first `count` bytes of [`Inflow::unused`] as used.
    pub fn consume(&mut self, count: usize) {
        self.used = (self.used + count).min(self.buffer.len());
        if self.used == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
        }
    }

    /// The reader, for whoever takes bytes past this inflow: only where nothing is there that comes before them. Holds no
    /// buffer after it.
    pub fn bare(&mut self) -> Option<&R> {
        if !self.unused().is_empty() {
            return None;
        }
        self.buffer = Vec::new();
        Some(&self.reader)
    }

    /// Reads once, at most 32 KiB, behind what is there already. Gives the number of bytes, 0 at the end.
    pub async fn more(&mut self) -> io::Result<usize> {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        let Inflow { reader, buffer, .. } = self;
        poll_fn(|cx| {
            let mut piece = [const { MaybeUninit::uninit() }; PIECE];
            let mut piece = ReadBuf::uninit(&mut piece);
            match Pin::new(&mut *reader).poll_read(cx, &mut piece) {
                Poll::Pending => {
                    if buffer.is_empty() {
                        *buffer = Vec::new();
                    }
                    Poll::Pending
                }
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Ready(Ok(())) => {
                    buffer.extend_from_slice(piece.filled());
                    Poll::Ready(Ok(piece.filled().len()))
                }
            }
        })
        .await
    }

    /// What is there, after a read where there is nothing; empty only at the end.
    pub async fn some(&mut self) -> io::Result<&[u8]> {
        if self.unused().is_empty() {
            self.more().await?;
        }
        Ok(self.unused())
    }
}
