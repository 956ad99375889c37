//! Loose objects: one file each, `kind SIZE NUL content` in one zlib stream.

use super::place::Place;
use super::{GitError, Kind, Oid};
use flate2::read::ZlibDecoder;
use std::io::{BufReader, Read};
use std::path::PathBuf;

/// Where an object's file is beneath the objects' directory.
pub(super) fn path_of(oid: &Oid) -> PathBuf {
    let hex = oid.to_string();
    PathBuf::from(&hex[..2]).join(&hex[2..])
}

/// Reads an object of at most `limit` bytes. Its name is not held against its content.
pub(super) fn read(place: &Place, oid: &Oid, limit: u64) -> Result<(Kind, Vec<u8>), GitError> {
    let file = place.open(path_of(oid))?;
    let bad = |fault| GitError::Object { oid: *oid, fault };
    let mut stream = ZlibDecoder::new(BufReader::new(file));
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(|_| bad("it ends in its head"))?;
        match byte[0] {
            0 => break,
            byte if head.len() < 32 => head.push(byte),
            _ => return Err(bad("it has no head")),
        }
    }
    let head = String::from_utf8(head).map_err(|_| bad("it has no head"))?;
    let parsed =
        head.split_once(' ').and_then(|(kind, size)| Some((Kind::named(kind.as_bytes())?, size.parse().ok()?)));
    let (kind, size): (Kind, u64) = parsed.ok_or_else(|| bad("it has no head"))?;
    if size > limit {
        return Err(bad("it is too large"));
    }
    let mut content = Vec::new();
    stream.take(size + 1).read_to_end(&mut content).map_err(|_| bad("it cannot be inflated"))?;
    if content.len() as u64 == size { Ok((kind, content)) } else { Err(bad("it has not the length that it says")) }
}
