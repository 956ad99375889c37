//! Zip archives (APPNOTE.TXT 6.3), front to back by their local headers, so that no seeking is needed.

use super::inflate::Inflate;
use super::unpack::{Members, Tee, damaged};
use crate::report::Frames;
use std::io::{self, BufRead, Read};

/// A local header, 4.3.7, after its signature.
struct Local {
    name: String,
    method: u16,
    encrypted: bool,
    /// Of the content as it is stored; none where it only follows the content.
    size: Option<u64>,
    /// Whether sum and sizes follow the content.
    described: bool,
    zip64: bool,
}

const FILE: &[u8; 4] = b"PK\x03\x04";
const DESCRIPTOR: &[u8; 4] = b"PK\x07\x08";

/// The central directory and what may stand before it: a signature, an index, and the end itself.
const DIRECTORY: [&[u8; 4]; 4] = [b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x08"];

/// Gives every file's content to `members`.
pub(super) fn walk<R: Read>(tee: &mut Tee<'_, '_, R>, members: &mut dyn Members) -> io::Result<()> {
    let mut signature: [u8; 4] = read(tee)?;
    loop {
        if &signature == FILE {
            signature = file(tee, members)?;
        } else if DIRECTORY.contains(&&signature) {
            // Who reads an archive from its last end backwards may find more files after what looks like one.
            if !next_file(tee)? {
                return Ok(());
            }
            signature = *FILE;
        } else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the zip archive is damaged"));
        }
    }
}

/// One file, after its signature; the signature of what follows it.
fn file<R: Read>(tee: &mut Tee<'_, '_, R>, members: &mut dyn Members) -> io::Result<[u8; 4]> {
    let local = local(tee)?;
    let read_whole = content(tee, &local, members);
    tee.muted = false;
    read_whole?;
    let next: [u8; 4] = read(tee)?;
    // Some writers say that a descriptor follows and leave it out where they know the sizes.
    let left_out = local.size.is_some() && (&next == FILE || DIRECTORY.contains(&&next));
    if !local.described || left_out {
        return Ok(next);
    }
    // 4.3.9: a sum and two sizes, with a signature before them or without.
    let sizes = if local.zip64 { 16 } else { 8 };
    let rest = if &next == DESCRIPTOR { sizes + 4 } else { sizes };
    passed(&mut tee.by_ref().take(rest))?;
    read(tee)
}

/// Passes all up to the next file's signature, and that; false where there is none.
fn next_file<R: Read>(tee: &mut Tee<'_, '_, R>) -> io::Result<bool> {
    // How many bytes of the signature have just been passed. Its first one is nowhere else in it.
    let mut matched = 0;
    loop {
        let ready = tee.fill_buf()?;
        if ready.is_empty() {
            return Ok(false);
        }
        if matched == 0 {
            let at = memchr::memchr(FILE[0], ready);
            let count = at.map_or(ready.len(), |at| at + 1);
            matched = usize::from(at.is_some());
            tee.consume(count);
            continue;
        }
        let byte = ready[0];
        tee.consume(1);
        matched = match byte {
            byte if byte == FILE[matched] => matched + 1,
            byte => usize::from(byte == FILE[0]),
        };
        if matched == FILE.len() {
            return Ok(true);
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
            let mut decoder = Inflate::raw(&mut source);
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
    let described = flags & 8 != 0;
    let size = size.filter(|size| !described || *size != 0);
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(Local { name, method, encrypted: flags & 1 != 0, size, described, zip64: zip64.is_some() })
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

fn read<const N: usize>(source: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).map_err(|cause| damaged("zip", cause))?;
    Ok(bytes)
}
