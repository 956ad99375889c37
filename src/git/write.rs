//! A new pack with its index (gitformat-pack(5)), of objects of another repository: entries are copied as they are deflated
//! where what they build on is copied too.

use super::objects::{Held, Objects, Reader};
use super::pack::{Base, Pack};
use super::sink::{self, Sink};
use super::{GitError, Oid, form, io};
use crc32fast::Hasher as Crc;
use flate2::{Compress, Compression, FlushCompress, Status};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Most bytes that are made to write what a command has made (see [`Reader::with_at_most`]).
pub const VERIFIED_MOST: u64 = 16 << 30;
/// Numbers of an entry that is a delta, by the distance of its base and by its name (gitformat-pack(5)).
const BY_DISTANCE: u8 = 6;
const BY_NAME: u8 = 7;

/// Writes objects of a repository that is trusted into packs of a directory: a pack all of whose objects are among them as it
/// is, the others into one. Returns what it has written.
///
/// `numbers` are those that [`Objects::find`] gives, each once.
pub fn packs(directory: &Path, objects: &Objects, numbers: &[u32], limit: u64) -> Result<Vec<PathBuf>, GitError> {
    let mut within = marked(objects, numbers);
    let mut written = Vec::new();
    for (pack, first) in objects.packs() {
        let own = &mut within[first as usize..][..pack.len()];
        let whole = pack.copyable().filter(|_| !own.is_empty() && own.iter().all(|reached| *reached));
        if let Some(hash) = whole {
            let path = directory.join(format!("pack-{hash}.pack"));
            pack.copy(&path)?;
            written.push(path);
            own.fill(false);
        }
    }
    let mut rest: Vec<u32> = numbers.iter().copied().filter(|number| within[*number as usize]).collect();
    if !rest.is_empty() {
        objects.sort_by_name(&mut rest);
        let mut hasher = objects.algorithm.start();
        rest.iter().for_each(|number| hasher.update(objects.name_bytes(*number)));
        let path = directory.join(format!("pack-{}.pack", hasher.finish()));
        pack(&path, objects, &rest, false, limit)?;
        written.push(path);
    }
    let indexes: Vec<PathBuf> = written.iter().map(|path| path.with_extension("idx")).collect();
    Ok([written, indexes].concat())
}

/// Which of all objects are meant.
fn marked(objects: &Objects, numbers: &[u32]) -> Vec<bool> {
    let mut within = vec![false; objects.len()];
    numbers.iter().for_each(|number| within[*number as usize] = true);
    within
}

/// A pack that is being written.
struct Packing<'a> {
    objects: &'a Objects,
    /// Which objects it is to have.
    within: &'a [bool],
    /// Where each object that it has begins, and the CRC-32 of its entry.
    written: Vec<(u64, u32)>,
    limit: u64,
}

/// Writes objects into a pack at `path` and its index beside it. Where `verified`, each is made anew of its content, which is
/// held against its name.
pub fn pack(path: &Path, objects: &Objects, numbers: &[u32], verified: bool, limit: u64) -> Result<(), GitError> {
    let count = u32::try_from(numbers.len()).map_err(|_| form(path, "there are too many objects"))?;
    let within = marked(objects, numbers);
    let expected = objects.in_order(&within).map(|number| objects.stored(number)).sum();
    let mut packing = Packing { objects, within: &within, written: vec![(0, 0); objects.len()], limit };
    let hash = sink::write(path, objects.algorithm, expected, |sink| {
        sink.put(b"PACK\0\0\0\x02")?;
        sink.put(&count.to_be_bytes())?;
        let mut reader = Reader::new(objects, limit).with_at_most(if verified { VERIFIED_MOST } else { u64::MAX });
        let mut scratch = Vec::new();
        let mut deflate = Compress::new(Compression::fast(), true);
        for number in objects.in_order(&within) {
            let copied = match objects.held(number) {
                Held::Packed(pack, place) if !verified => packing.copy(number, (pack, place), &mut scratch, sink)?,
                _ => false,
            };
            if !copied {
                let (kind, content) = if verified { reader.read_verified(number)? } else { reader.read(number)? };
                let data = deflated(&mut deflate, &content).map_err(io(path))?;
                packing.entry(number, &[&head(kind.number(), content.len() as u64), &data], sink)?;
            }
        }
        Ok(())
    })?;
    let mut by_name = numbers.to_vec();
    objects.sort_by_name(&mut by_name);
    let index = path.with_extension("idx");
    let content = index_of(objects, &by_name, &packing.written, &hash);
    let mut file = File::options().write(true).create_new(true).open(&index).map_err(io(&index))?;
    file.write_all(&content).map_err(io(&index))
}

impl Packing<'_> {
    /// Copies an entry, if it is whole or what it builds on is in the new pack too.
    fn copy(
        &mut self,
        number: u32,
        (pack, place): (&Pack, u32),
        scratch: &mut Vec<u8>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, GitError> {
        let entry = pack.entry(place, self.limit, scratch)?;
        let of = pack.head(place, entry)?;
        let Some(base) = of.base else {
            self.as_it_is(number, entry, pack.check(place), sink)?;
            return Ok(true);
        };
        let data = &entry[of.data..];
        let Some(found) = self.base(number, base) else { return Ok(false) };
        let (at, _) = self.written[found as usize];
        if at == 0 {
            self.entry(number, &[&head(BY_NAME, of.size), self.objects.name_bytes(found), data], sink)?;
            return Ok(true);
        }
        let far = sink.offset() - at;
        let same = matches!(base, Base::Place(base) if pack.offset(place) - pack.offset(base) == far);
        match same {
            true => self.as_it_is(number, entry, pack.check(place), sink)?,
            false => self.entry(number, &[&head(BY_DISTANCE, of.size), &distance(far), data], sink)?,
        }
        Ok(true)
    }

    /// The object that an entry builds on, if the new pack is to have it: by its first number, that has its name alone. An entry
    /// may build on a later copy of it.
    fn base(&self, of: u32, base: Base) -> Option<u32> {
        let base = self.objects.base(of, base)?;
        let is_meant = |number: &u32| self.within[*number as usize];
        Some(base).filter(is_meant).or_else(|| self.objects.find_name(self.objects.name_bytes(base)).filter(is_meant))
    }

    fn as_it_is(&mut self, number: u32, entry: &[u8], check: Option<u32>, sink: &mut Sink<'_>) -> Result<(), GitError> {
        self.written[number as usize] = (sink.offset(), check.unwrap_or_else(|| crc32fast::hash(entry)));
        sink.put(entry)
    }

    fn entry(&mut self, number: u32, parts: &[&[u8]], sink: &mut Sink<'_>) -> Result<(), GitError> {
        let mut crc = Crc::new();
        let at = sink.offset();
        for part in parts {
            crc.update(part);
            sink.put(part)?;
        }
        self.written[number as usize] = (at, crc.finalize());
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

/// How far back a delta's base begins (gitformat-pack(5), "offset encoding").
fn distance(mut far: u64) -> Vec<u8> {
    let mut bytes = vec![(far & 0x7f) as u8];
    far >>= 7;
    while far > 0 {
        far -= 1;
        bytes.push(0x80 | (far & 0x7f) as u8);
        far >>= 7;
    }
    bytes.reverse();
    bytes
}

/// What zlib makes of some bytes. The state is kept from one to the next, for it is large.
fn deflated(state: &mut Compress, content: &[u8]) -> Result<Vec<u8>, std::io::Error> {
    state.reset();
    let mut out = Vec::with_capacity(content.len() / 2 + 64);
    loop {
        let rest = &content[state.total_in() as usize..];
        match state.compress_vec(rest, &mut out, FlushCompress::Finish)? {
            Status::StreamEnd => return Ok(out),
            _ => out.reserve(out.len()),
        }
    }
}

/// The index, version 2.
fn index_of(objects: &Objects, by_name: &[u32], written: &[(u64, u32)], pack: &Oid) -> Vec<u8> {
    let length = objects.algorithm.length();
    let mut out = Vec::with_capacity(8 + 1024 + by_name.len() * (length + 8) + 2 * length);
    out.extend([0xff, b't', b'O', b'c', 0, 0, 0, 2]);
    let mut counts = [0u32; 256];
    for number in by_name {
        counts[usize::from(objects.name_bytes(*number)[0])] += 1;
    }
    let mut total = 0;
    for count in counts {
        total += count;
        out.extend(total.to_be_bytes());
    }
    by_name.iter().for_each(|number| out.extend_from_slice(objects.name_bytes(*number)));
    by_name.iter().for_each(|number| out.extend(written[*number as usize].1.to_be_bytes()));
    let mut large = Vec::new();
    for number in by_name {
        let offset = written[*number as usize].0;
        match u32::try_from(offset).ok().filter(|offset| offset & 0x8000_0000 == 0) {
            Some(offset) => out.extend(offset.to_be_bytes()),
            None => {
                out.extend((0x8000_0000 | large.len() as u32).to_be_bytes());
                large.push(offset);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deflated_is_had_back() {
        let mut state = Compress::new(Compression::fast(), true);
        for length in [0u64, 1, 100, 70_000, 1_000_000] {
            // Bytes that cannot be made shorter.
            let random = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as u8;
            for content in [vec![7; length as usize], (0..length).map(|at| random(at * at)).collect::<Vec<u8>>()] {
                let stream = deflated(&mut state, &content).unwrap();
                let back = crate::git::inflate::Inflater::new().inflate(&stream, length);
                assert!(back.is_some_and(|back| back == content), "{length}");
            }
        }
    }

    #[test]
    fn distances_are_written_as_they_are_read() {
        for far in [1u64, 127, 128, 129, 16_511, 16_512, 1 << 31, 1 << 40] {
            let mut bytes = distance(far).into_iter();
            let mut byte = bytes.next().unwrap();
            let mut read = u64::from(byte & 0x7f);
            while byte & 0x80 != 0 {
                byte = bytes.next().unwrap();
                read = (read + 1) << 7 | u64::from(byte & 0x7f);
            }
            assert_eq!((read, bytes.next()), (far, None), "{far}");
        }
    }
}
