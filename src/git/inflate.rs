//! Deflated bytes of a known length (RFC 1950), many of them and most of them small: all at once, without the window that a
//! stream takes.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

/// What the decoder may write beyond the end: with room it copies in steps of more than a byte.
const SLACK: usize = 320;
/// What is longer has memory of its own from the start.
const SMALL: usize = 1 << 16;

/// A decoder, with room for what it makes.
pub(super) struct Inflater {
    state: Box<DecompressorOxide>,
    room: Vec<u8>,
}

impl Inflater {
    pub fn new() -> Inflater {
        Inflater { state: Box::default(), room: vec![0; SMALL + SLACK] }
    }

    /// What a zlib stream holds, if that is exactly so many bytes.
    pub fn inflate(&mut self, stream: &[u8], size: u64) -> Option<Vec<u8>> {
        let size = usize::try_from(size).ok()?;
        // Deflate makes at most 1032 bytes of one: what claims more is not believed.
        if size as u64 > (stream.len() as u64).saturating_mul(1040) {
            return None;
        }
        let mut own = Vec::new();
        let room = match size <= SMALL {
            true => &mut self.room[..size + SLACK],
            false => {
                own.resize(size + SLACK, 0);
                &mut own[..]
            }
        };
        let flags =
            inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        self.state.init();
        let (status, read, written) = decompress(&mut self.state, stream, room, 0, flags);
        // An entry ends with its stream: what stood behind would be read again and again, and counted nowhere.
        if status != TINFLStatus::Done || written != size || read != stream.len() {
            return None;
        }
        if own.is_empty() {
            return Some(self.room[..size].to_vec());
        }
        own.truncate(size);
        Some(own)
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    /// What zlib makes of some bytes.
    pub fn deflated(content: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_stream_has_the_length_that_it_is_said_to_have() {
        let mut inflater = Inflater::new();
        for length in [0, 1, 300, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL] {
            let content: Vec<u8> = (0..length).map(|at| (at * at % 251) as u8).collect();
            let mut stream = deflated(&content);
            assert!(inflater.inflate(&stream, length as u64).is_some_and(|made| made == content), "{length}");
            assert!(inflater.inflate(&stream, length as u64 + 1).is_none(), "{length}");
            assert!(length == 0 || inflater.inflate(&stream, length as u64 - 1).is_none(), "{length}");
            assert!(inflater.inflate(&stream[..stream.len() - 1], length as u64).is_none(), "{length}: torn");
            stream.push(0);
            assert!(inflater.inflate(&stream, length as u64).is_none(), "{length}: more behind it");
            stream.pop();
            *stream.last_mut().unwrap() ^= 1;
            assert!(inflater.inflate(&stream, length as u64).is_none(), "{length}: another checksum");
        }
        assert!(inflater.inflate(&deflated(&[0; 100]), 1 << 40).is_none());
    }
}
