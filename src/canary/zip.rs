//! Zip archives (APPNOTE.TXT 6.3), front to back by their local headers, so that no seeking is needed.

use super::unpack::{Members, Tee, damaged};
use crate::report::Frames;
use flate2::bufread::DeflateDecoder;
use std::io::{self, BufRead, Read};

/// A local header, 4.3.7, after its signature.
struct Local {
    name: String,
    method: u16,
    encrypted: bool,
    /// Of the content as it is stored; none where it follows the content.
    size: Option<u64>,
    zip64: bool,
}

/// Gives every file's content to `members`.
pub(super) fn walk<R: Read>(tee: &mut Tee<'_, '_, R>, members: &mut dyn Members) -> io::Result<()> {
    loop {
        let signature: [u8; 4] = read(tee)?;
        match signature {
            [b'P', b'K', 3, 4] => {}
            // The central directory and what may stand before it: there are no more files.
            [b'P', b'K', 1, 2] | [b'P', b'K', 5, 6] | [b'P', b'K', 6, 6] | [b'P', b'K', 6, 8] => return Ok(()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the zip archive is damaged")),
        }
        let local = local(tee)?;
        let read = content(tee, &local, members);
        tee.muted = false;
        read?;
        if local.size.is_none() {
            descriptor(tee, local.zip64)?;
        }
    }
}

fn content<R: Read>(tee: &mut Tee<'_, '_, R>, local: &Local, members: &mut dyn Members) -> io::Result<()> {
    let name = &local.name;
    let unsized_stored = local.method == 0 && local.size.is_none();
    let why = match local.method {
        _ if local.encrypted => Some("it is encrypted".to_owned()),
        _ if unsized_stored => Some("its size is only told after it".to_owned()),
        0 | 8 | 93 => None,
        other => Some(format!("compression method {other} is not unpacked")),
    };
    if let Some(why) = why {
        let Some(size) = local.size else { return Err(io::Error::other(format!("{name}: {why}"))) };
        members.unread(name, &why);
        return passed(&mut tee.by_ref().take(size));
    }
    tee.muted = local.method == 0;
    match local.size {
        Some(size) => {
            let mut source = tee.by_ref().take(size);
            decoded(&mut source, local, members)?;
            passed(&mut source)
        }
        None => decoded(tee, local, members),
    }
}

fn decoded(mut source: impl BufRead, local: &Local, members: &mut dyn Members) -> io::Result<()> {
    let read = match local.method {
        8 => {
            let mut decoder = DeflateDecoder::new(&mut source);
            // To the end of the deflated data, so that what follows begins where it should.
            members.member(&local.name, &mut decoder).and_then(|()| passed(&mut decoder))
        }
        93 => members.member(&local.name, &mut Frames::of(&mut source)),
        _ => members.stored(&local.name, &mut source),
    };
    read.map_err(|cause| damaged("zip", cause))
}

fn passed(source: &mut dyn Read) -> io::Result<()> {
    io::copy(source, &mut io::sink()).map(drop)
}

fn local(source: &mut dyn Read) -> io::Result<Local> {
    let head: [u8; 26] = read(source)?;
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (flags, method) = (half(2), half(4));
    let mut name = vec![0; half(22).into()];
    source.read_exact(&mut name)?;
    let mut extra = vec![0; half(24).into()];
    source.read_exact(&mut extra)?;
    let zip64 = extended(&extra);
    let size = match (word(14), zip64) {
        (u32::MAX, Some(fields)) => fields.get(8..16).and_then(|size| size.try_into().ok()).map(u64::from_le_bytes),
        (size, _) => Some(size.into()),
    };
    // Bit 3: sizes are told after the content. Some writers fill them in all the same.
    let size = if flags & 8 != 0 { size.filter(|size| *size != 0) } else { size };
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(Local { name, method, encrypted: flags & 1 != 0, size, zip64: zip64.is_some() })
}

/// The extra field that holds sizes of 64 bits, 4.5.3.
fn extended(mut extra: &[u8]) -> Option<&[u8]> {
    while let [a, b, c, d, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*c, *d])).min(rest.len());
        if u16::from_le_bytes([*a, *b]) == 1 {
            return Some(&rest[..length]);
        }
        extra = &rest[length..];
    }
    None
}

/// The data descriptor, 4.3.9: a sum and two sizes, with a signature before them or without.
fn descriptor(source: &mut dyn Read, zip64: bool) -> io::Result<()> {
    let first: [u8; 4] = read(source)?;
    let sizes = if zip64 { 16 } else { 8 };
    let rest = if &first == b"PK\x07\x08" { sizes + 4 } else { sizes };
    passed(&mut source.take(rest))
}

fn read<const N: usize>(source: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).map_err(|cause| damaged("zip", cause))?;
    Ok(bytes)
}
