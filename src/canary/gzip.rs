//! Gzip files (RFC 1952): one member after another.

use super::unpack::damaged;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// The content of all members of a gzip file, as logs that are compressed piece by piece have them.
pub(super) struct Gzip<R: BufRead> {
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// Of a source that begins with a member.
    pub(super) fn of(source: R) -> Gzip<R> {
        Gzip { decoder: Some(GzDecoder::new(source)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = self.decoder.as_mut().filter(|_| !buffer.is_empty()) {
            let count = decoder.read(buffer).map_err(|cause| damaged("gzip", cause))?;
            if count > 0 {
                return Ok(count);
            }
            let mut source = self.decoder.take().map(GzDecoder::into_inner);
            // What follows and is no member is the file's own (gzip(1) passes over it).
            let goes_on = source
                .as_mut()
                .map_or(Ok(false), |source| source.fill_buf().map(|next| next.first() == Some(&0x1f)))?;
            self.decoder = source.filter(|_| goes_on).map(GzDecoder::new);
        }
        Ok(0)
    }
}
