//! A new pack with its index (gitformat-pack(5)), of objects of another repository: entries are copied as they are deflated
//! where what they build on is copied too.

use super::objects::{Held, Objects, Reader};
use super::{GitError, Hasher, Kind, Oid, io};
use crc32fast::Hasher as Crc;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Most bytes that are made to write what a command has made (see [`Reader::with_at_most`]).
pub const VERIFIED_MOST: u64 = 16 << 30;

/// What is written of a pack and is still in memory.
struct Packing<'a> {
    path: &'a Path,
    out: BufWriter<File>,
    hasher: Hasher,
    offset: u64,
    entries: Vec<(Oid, u32, u64)>,
}

impl Packing<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), GitError> {
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes).map_err(io(self.path))
    }

    fn entry(&mut self, oid: Oid, parts: &[&[u8]]) -> Result<(), GitError> {
        let mut crc = Crc::new();
        let at = self.offset;
        for part in parts {
            crc.update(part);
            self.put(part)?;
        }
        self.entries.push((oid, crc.finalize(), at));
        Ok(())
    }
}

/// An entry's kind and size (gitformat-pack(5)).
fn head(number: u8, mut size: u64) -> Vec<u8> {
    let mut bytes = vec![number << 4 | (size & 0x0f) as u8];
    size >>= 4;
    while size > 0 {
        if let Some(last) = bytes.last_mut() {
            *last |= 0x80;
        }
        bytes.push((size & 0x7f) as u8);
        size >>= 7;
    }
    bytes
}

fn deflated(content: &[u8]) -> Result<Vec<u8>, std::io::Error> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()
}

/// Writes objects into a pack at `path` and its index beside it. Where `verified`, each is made anew of its content, which is
/// held against its name.
pub fn pack(path: &Path, objects: &Objects, numbers: &[u32], verified: bool, limit: u64) -> Result<(), GitError> {
    let file = File::options().write(true).create_new(true).open(path).map_err(io(path))?;
    let out = BufWriter::with_capacity(1 << 18, file);
    let mut packing =
        Packing { path, out, hasher: objects.algorithm.start(), offset: 0, entries: Vec::with_capacity(numbers.len()) };
    let count = u32::try_from(numbers.len()).map_err(|_| super::form(path, "there are too many objects"))?;
    packing.put(b"PACK\0\0\0\x02")?;
    packing.put(&count.to_be_bytes())?;
    let within: HashSet<u32> = numbers.iter().copied().collect();
    let mut sorted = numbers.to_vec();
    sorted.sort_by_cached_key(|number| objects.order(*number));
    let mut reader = Reader::new(objects, limit).with_at_most(if verified { VERIFIED_MOST } else { u64::MAX });
    for number in sorted {
        let oid = objects.name(number);
        if let (Held::Packed(pack, place), false) = (objects.held(number), verified) {
            let entry = pack.entry(place, limit)?;
            let of = pack.head(place, &entry)?;
            let data = &entry[of.data..];
            if let Some(kind) = of.kind {
                packing.entry(oid, &[&head(kind.number(), of.size), data])?;
                continue;
            }
            let base = of.base.and_then(|base| objects.base(number, base));
            // By the name of a base there is always one number, the first; an entry may build on a later copy of it.
            let base = base
                .map(|base| objects.name(base))
                .filter(|name| objects.find(name).is_some_and(|first| within.contains(&first)));
            if let Some(base) = base {
                packing.entry(oid, &[&head(7, of.size), base.as_bytes(), data])?;
                continue;
            }
        }
        let (kind, content): (Kind, _) = if verified { reader.read_verified(number)? } else { reader.read(number)? };
        let data = deflated(&content).map_err(io(path))?;
        packing.entry(oid, &[&head(kind.number(), content.len() as u64), &data])?;
    }
    let Packing { mut out, hasher, entries, .. } = packing;
    let checksum = hasher.finish();
    out.write_all(checksum.as_bytes()).and_then(|()| out.flush()).map_err(io(path))?;
    let index = path.with_extension("idx");
    let content = index_of(entries, &checksum, objects);
    let mut file = File::options().write(true).create_new(true).open(&index).map_err(io(&index))?;
    file.write_all(&content).map_err(io(&index))
}

/// The index, version 2.
fn index_of(mut entries: Vec<(Oid, u32, u64)>, pack: &Oid, objects: &Objects) -> Vec<u8> {
    entries.sort_unstable();
    let mut out = vec![0xff, b't', b'O', b'c', 0, 0, 0, 2];
    let mut counts = [0u32; 256];
    for (oid, ..) in &entries {
        counts[usize::from(oid.as_bytes()[0])] += 1;
    }
    let mut total = 0;
    for count in counts {
        total += count;
        out.extend(total.to_be_bytes());
    }
    entries.iter().for_each(|(oid, ..)| out.extend(oid.as_bytes()));
    entries.iter().for_each(|(_, crc, _)| out.extend(crc.to_be_bytes()));
    let mut large = Vec::new();
    for (.., offset) in &entries {
        match u32::try_from(*offset).ok().filter(|offset| offset & 0x8000_0000 == 0) {
            Some(offset) => out.extend(offset.to_be_bytes()),
            None => {
                out.extend((0x8000_0000 | large.len() as u32).to_be_bytes());
                large.push(*offset);
            }
        }
    }
    large.iter().for_each(|offset| out.extend(offset.to_be_bytes()));
    out.extend(pack.as_bytes());
    let mut hasher = objects.algorithm.start();
    hasher.update(&out);
    out.extend(hasher.finish().as_bytes());
    out
}
