//! Chunked message bodies, passed from one connection to the other as they come.

use super::head;
use super::inflow::Inflow;
use super::malformed::Malformed;
use super::pulse::Pulse;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Most bytes of a line in a chunked body: a chunk's size with its extensions, or a trailer field.
const LINE_LIMIT: usize = 8 * 1024;

/// Most trailer fields.
const TRAILER_LIMIT: usize = 64;

/// Why a body did not get through whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The sender's connection failed.
    #[error("read: {0}")]
    Read(io::Error),
    /// The sender's connection ended within the body.
    #[error("the sender closed within the body")]
    Truncated,
    /// The chunked coding is broken.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The receiver's connection failed.
    #[error("write: {0}")]
    Write(io::Error),
}

/// What becomes of the chunked coding on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recode {
    /// Chunked again, with our own chunk lines, without extensions and trailers.
    Chunked,
    /// The data alone, for an HTTP/1.0 receiver: the connection's end delimits it.
    Plain,
}

/// Passes a chunked body up to the end of its trailer section (RFC 9112, 7.1).
///
/// Chunk extensions and trailer fields are checked and dropped, as a recipient may: nothing that a receiver could
/// read as something else is passed on.
pub async fn pass_chunked<R, W>(
    from: &mut Inflow<R>,
    to: &mut W,
    recode: Recode,
    pulse: &Pulse,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let mut left = chunk_size(&line(from).await?)?;
        pulse.beat();
        if left == 0 {
            break;
        }
        while left > 0 {
            let bytes = from.some().await.map_err(BodyError::Read)?;
            if bytes.is_empty() {
                return Err(BodyError::Truncated);
            }
            let count = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let chunk = match recode {
                Recode::Chunked => {
                    let mut chunk = format!("{count:x}\r\n").into_bytes();
                    chunk.extend_from_slice(&bytes[..count]);
                    chunk.extend_from_slice(b"\r\n");
                    chunk
                }
                Recode::Plain => bytes[..count].to_vec(),
            };
            from.consume(count);
            to.write_all(&chunk).await.map_err(BodyError::Write)?;
            left -= count as u64;
            pulse.beat();
        }
        if !line(from).await?.is_empty() {
            return Err(Malformed::Chunk.into());
        }
    }
    for _ in 0..=TRAILER_LIMIT {
        let trailer = line(from).await?;
        if trailer.is_empty() {
            if recode == Recode::Chunked {
                to.write_all(b"0\r\n\r\n").await.map_err(BodyError::Write)?;
            }
            return Ok(());
        }
        head::field(&trailer)?;
    }
    Err(Malformed::Chunk.into())
}

/// A line without its CRLF.
async fn line<R: AsyncRead + Unpin>(from: &mut Inflow<R>) -> Result<Vec<u8>, BodyError> {
    loop {
        let bytes = from.unused();
        let shown = &bytes[..bytes.len().min(LINE_LIMIT)];
        if let Some(end) = shown.iter().position(|&b| b == b'\n') {
            let line = shown[..end].strip_suffix(b"\r").ok_or(Malformed::Chunk)?.to_vec();
            from.consume(end + 1);
            return Ok(line);
        }
        if bytes.len() >= LINE_LIMIT {
            return Err(Malformed::Chunk.into());
        }
        if from.more().await.map_err(BodyError::Read)? == 0 {
            return Err(BodyError::Truncated);
        }
    }
}

/// A chunk's size: 1 to 16 hexadecimal digits, then nothing or extensions.
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let (size, extension) = line.split_at(digits);
    if !(1..=16).contains(&size.len()) {
        return Err(Malformed::Chunk);
    }
    let extended =
        extension.first() == Some(&b';') && extension.iter().all(|&b| b == b'\t' || b == b' ' || b.is_ascii_graphic());
    if !extension.is_empty() && !extended {
        return Err(Malformed::Chunk);
    }
    std::str::from_utf8(size).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Malformed::Chunk)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
