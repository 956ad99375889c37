//! Deflated data (RFC 1950, RFC 1951), of which what comes out before damage is not lost.

use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, BufRead, Read};

/// What deflated data holds. The source is left right after its end.
pub(super) struct Inflate<R: BufRead> {
    source: R,
    decoder: Decompress,
    /// Why it does not go on, to be told after the bytes that came out before.
    ended: Option<Result<(), io::Error>>,
}

impl<R: BufRead> Inflate<R> {
    /// Data without a header.
    pub(super) fn raw(source: R) -> Inflate<R> {
        Inflate { source, decoder: Decompress::new(false), ended: None }
    }

    /// Data with zlib's header and sum.
    pub(super) fn zlib(source: R) -> Inflate<R> {
        Inflate { source, decoder: Decompress::new(true), ended: None }
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ended.is_none() && !buffer.is_empty() {
            let input = self.source.fill_buf()?;
            let at_end = input.is_empty();
            let (taken, given) = (self.decoder.total_in(), self.decoder.total_out());
            let done = self.decoder.decompress(input, buffer, FlushDecompress::None);
            let consumed = usize::try_from(self.decoder.total_in() - taken).unwrap_or(usize::MAX);
            let produced = usize::try_from(self.decoder.total_out() - given).unwrap_or(usize::MAX);
            self.source.consume(consumed);
            match done {
                Ok(Status::StreamEnd) => self.ended = Some(Ok(())),
                Ok(_) if produced == 0 && at_end => self.ended = Some(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(cause) => self.ended = Some(Err(io::Error::new(io::ErrorKind::InvalidData, cause))),
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
        match self.ended.as_mut() {
            Some(ended) => std::mem::replace(ended, Ok(())).map(|()| 0),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    #[test]
    fn what_came_out_before_damage_is_given_and_the_damage_told() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|number| format!("{} ", number * 7919).into_bytes()).collect();
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&text).unwrap();
        let whole = encoder.finish().unwrap();
        let read = |bytes: &[u8]| {
            let mut rest = bytes;
            let mut out = Vec::new();
            let read = Inflate::zlib(&mut rest).read_to_end(&mut out);
            (out, read.is_ok(), rest.len())
        };
        assert_eq!(read(&[&whole[..], b"after"].concat()), (text.clone(), true, 5));
        let (out, fine, _) = read(&whole[..whole.len() / 2]);
        assert!(!fine && out.len() > 1000 && text.starts_with(&out), "cut short: {}", out.len());
        let mut damaged = whole.clone();
        let sum = damaged.len() - 1;
        damaged[sum] ^= 1;
        let (out, fine, _) = read(&damaged);
        assert!(!fine && out == text, "a wrong sum: {}", out.len());
    }
}
