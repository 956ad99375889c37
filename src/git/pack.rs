//! One pack with its index, versions 1 and 2 (gitformat-pack(5)). Other files beside it (reverse indexes, bitmaps, an index of
//! many packs) say nothing that these two do not.

use super::pieces::{Pieces, Room};
use super::place::Place;
use super::{Algorithm, GitError, Kind, Oid, form, io};
use std::io::{Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most bytes of an index.
const INDEX_LIMIT: u64 = 4 << 30;
const V2: &[u8] = &[0xff, b't', b'O', b'c', 0, 0, 0, 2];

/// A pack whose index has been read.
#[derive(Debug)]
pub(super) struct Pack {
    path: PathBuf,
    pieces: Pieces,
    algorithm: Algorithm,
    index: Index,
    /// How many objects the pack itself says that it has.
    said: u32,
    /// Where the names begin whose first bits are a number, and the number of bits.
    buckets: (Vec<u32>, u32),
    /// Where each object's entry begins and ends, in the order of names.
    spans: Vec<(u64, u64)>,
    /// Where each entry begins, with the place of its name; sorted.
    by_offset: Vec<(u64, u32)>,
}

/// One entry's head.
#[derive(Debug)]
pub(super) struct Head {
    /// The kind of an object that is whole; `None` for a delta.
    pub kind: Option<Kind>,
    /// How many bytes are deflated.
    pub size: u64,
    /// The place of a delta's base in the same pack, or its name.
    pub base: Option<Base>,
    /// Where the deflated bytes begin in the entry.
    pub data: usize,
}

/// What a delta applies to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Base {
    /// An object of the same pack, by the place of its name.
    Place(u32),
    /// An object by its name.
    Named(Oid),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Pack {
    /// Opens the pack of an index `NAME.idx`.
    pub fn open(place: &Place, index: &str, algorithm: Algorithm, room: &Room) -> Result<Pack, GitError> {
        let index_path = place.path.join(index);
        let bad = |fault: &str| form(&index_path, fault);
        let bytes = place.read(index, INDEX_LIMIT)?.ok_or_else(|| bad("it is gone"))?;
        let name = format!("{}.pack", index.strip_suffix(".idx").unwrap_or(index));
        let file = place.open(&name)?;
        let path = place.path.join(&name);
        let (index, offsets) =
            read_index(bytes, algorithm).ok_or_else(|| bad("it is no pack index of version 1 or 2"))?;
        let length = algorithm.length();
        let names = index.names();
        if names.chunks(length).zip(names.chunks(length).skip(1)).any(|(one, next)| one >= next) {
            return Err(bad("its names are not in order"));
        }
        let pieces = Pieces::new(file, room).map_err(io(&path))?;
        let end = pieces.length().checked_sub(length as u64).ok_or_else(|| form(&path, "it is torn"))?;
        let mut scratch = Vec::new();
        let head = pieces.read(0, 12, &mut scratch).map_err(io(&path))?;
        if !matches!(head, [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, ..]) {
            return Err(form(&path, "it is no pack of version 2 or 3"));
        }
        let said = u32_at(head, 8).unwrap_or_default();
        let mut by_offset: Vec<(u64, u32)> = (0..).zip(&offsets).map(|(place, offset)| (*offset, place)).collect();
        by_offset.sort_unstable();
        let mut spans = vec![(0, 0); offsets.len()];
        let ends = by_offset.iter().skip(1).map(|(offset, _)| *offset).chain([end]);
        for (&(start, place), end) in by_offset.iter().zip(ends) {
            if start < 12 || start >= end {
                return Err(bad("an entry of it lies outside of its pack"));
            }
            spans[place as usize] = (start, end);
        }
        let buckets = buckets(names, length);
        Ok(Pack { path, pieces, algorithm, index, said, buckets, spans, by_offset })
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The name at a place.
    pub fn name(&self, place: u32) -> &[u8] {
        let length = self.algorithm.length();
        &self.index.names()[place as usize * length..][..length]
    }

    fn oid(&self, place: u32) -> Oid {
        Oid::of(self.name(place))
    }

    /// The place of a name.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let (starts, bits) = &self.buckets;
        let bucket = prefix(name, *bits);
        let length = self.algorithm.length();
        let (from, to) = (*starts.get(bucket)?, *starts.get(bucket + 1)?);
        let within = self.index.names().get(from as usize * length..to as usize * length)?;
        (from..).zip(within.chunks_exact(length)).find(|(_, known)| *known == name).map(|(place, _)| place)
    }

    /// Where an entry begins.
    pub fn offset(&self, place: u32) -> u64 {
        self.spans[place as usize].0
    }

    /// How many bytes an entry has.
    pub fn stored(&self, place: u32) -> u64 {
        let (start, end) = self.spans[place as usize];
        end - start
    }

    /// The places in the order of their entries.
    pub fn in_order(&self) -> impl Iterator<Item = u32> {
        self.by_offset.iter().map(|(_, place)| *place)
    }

    /// CRC-32 of an entry as it is in the pack; `None` where the index does not say.
    pub fn check(&self, place: u32) -> Option<u32> {
        u32_at(self.index.bytes.get(self.index.checks.clone()?)?, place as usize * 4)
    }

    /// An entry as it is in the pack, of at most `limit` bytes; `scratch` is room for it.
    pub fn entry<'a>(&'a self, place: u32, limit: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], GitError> {
        let (start, end) = self.spans[place as usize];
        if end - start > limit.saturating_add(64) {
            return Err(GitError::Object { oid: self.oid(place), fault: "it is too large" });
        }
        self.pieces.read(start, end, scratch).map_err(io(&self.path))
    }

    /// The hash of the pack, if its index can be used for a copy of it: if it says all that there is in the pack, and nothing
    /// else.
    pub fn copyable(&self) -> Option<Oid> {
        let length = self.algorithm.length();
        let trailer = self.index.bytes.len().checked_sub(2 * length)?;
        let exact = self.index.whole && self.said as usize == self.len();
        exact.then(|| Oid::of(&self.index.bytes[trailer..][..length]))
    }

    /// Writes pack and index, as they are, into new files: `to`, and beside it.
    pub fn copy(&self, to: &Path) -> Result<(), GitError> {
        let create = |path: &Path| std::fs::File::options().write(true).create_new(true).open(path);
        let (mut from, mut out) = (self.pieces.file(), create(to).map_err(io(to))?);
        // By copy_file_range(2): where the file system can, the blocks are shared until one of the files is written to.
        let copied = from.rewind().and_then(|()| std::io::copy(&mut from, &mut out)).map_err(io(to))?;
        if copied != self.pieces.length() {
            return Err(form(&self.path, "its length has changed"));
        }
        let index = to.with_extension("idx");
        let mut out = create(&index).map_err(io(&index))?;
        out.write_all(&self.index.bytes).map_err(io(&index))
    }

    /// Reads the head of an entry.
    pub fn head(&self, place: u32, entry: &[u8]) -> Result<Head, GitError> {
        self.parse_head(place, entry)
            .ok_or_else(|| GitError::Object { oid: self.oid(place), fault: "its entry in the pack has no head" })
    }

    fn parse_head(&self, place: u32, entry: &[u8]) -> Option<Head> {
        let mut at = 0;
        let mut next = || {
            let byte = *entry.get(at)?;
            at += 1;
            Some(byte)
        };
        let mut byte = next()?;
        let number = byte >> 4 & 7;
        let (mut size, mut shift) = (u64::from(byte & 0x0f), 4);
        while byte & 0x80 != 0 {
            byte = next()?;
            if shift > 56 {
                return None;
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        match number {
            6 => {
                byte = next()?;
                let mut back = u64::from(byte & 0x7f);
                while byte & 0x80 != 0 {
                    byte = next()?;
                    back = (back.checked_add(1)? & (u64::MAX >> 7)) << 7 | u64::from(byte & 0x7f);
                }
                let base = self.offset(place).checked_sub(back).filter(|_| back > 0)?;
                let found = self.by_offset.binary_search_by_key(&base, |(offset, _)| *offset).ok()?;
                let base = Some(Base::Place(self.by_offset[found].1));
                Some(Head { kind: None, size, base, data: at })
            }
            7 => {
                let name = entry.get(at..at + self.algorithm.length())?;
                let base = Some(Base::Named(Oid::of(name)));
                Some(Head { kind: None, size, base, data: at + name.len() })
            }
            number => Some(Head { kind: Some(Kind::numbered(number)?), size, base: None, data: at }),
        }
    }
}

/// The first bits of a name.
fn prefix(name: &[u8], bits: u32) -> usize {
    let first = u32_at(name, 0).unwrap_or_default();
    (u64::from(first) >> (32 - bits)) as usize
}

/// A finer fanout than the index's own: a name is looked for among a few.
fn buckets(names: &[u8], length: usize) -> (Vec<u32>, u32) {
    let count = names.len() / length;
    let bits = (count / 4).checked_ilog2().unwrap_or(0).min(24);
    let mut starts = vec![0u32; (1 << bits) + 1];
    for name in names.chunks_exact(length) {
        starts[prefix(name, bits) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    (starts, bits)
}

/// An index as it was read.
#[derive(Debug)]
struct Index {
    bytes: Vec<u8>,
    /// Where the objects' names are, sorted, one behind the other.
    names: Range<usize>,
    /// Where the CRC-32 of each entry is.
    checks: Option<Range<usize>>,
    /// Whether it is an index of version 2, and has nothing beside what one has.
    whole: bool,
}

impl Index {
    fn names(&self) -> &[u8] {
        &self.bytes[self.names.clone()]
    }
}

/// An index, and the offsets that it says.
fn read_index(bytes: Vec<u8>, algorithm: Algorithm) -> Option<(Index, Vec<u64>)> {
    let length = algorithm.length();
    let second = bytes.starts_with(V2);
    let fanout = if second { 8 } else { 0 };
    let count = u32_at(&bytes, fanout + 255 * 4)? as usize;
    let table = fanout + 256 * 4;
    let end = bytes.len().checked_sub(2 * length)?;
    let rest = bytes.get(table..end)?;
    if !second {
        let each = rest.get(..count.checked_mul(4 + length)?).filter(|each| each.len() == rest.len())?;
        let names: Vec<u8> = each.chunks_exact(4 + length).flat_map(|one| one[4..].iter().copied()).collect();
        let offsets = each.chunks_exact(4 + length).map(|one| u32_at(one, 0).map(u64::from)).collect::<Option<_>>()?;
        return Some((Index { names: 0..names.len(), bytes: names, checks: None, whole: false }, offsets));
    }
    let names = table..table + rest.get(..count.checked_mul(length)?)?.len();
    let checks = names.end..names.end + count * 4;
    let small = bytes.get(checks.end..end)?.get(..count * 4)?;
    let large = &bytes[checks.end + count * 4..end];
    let mut larger = 0;
    let mut offset = |small: &[u8]| {
        let offset = u32_at(small, 0)?;
        if offset & 0x8000_0000 == 0 {
            return Some(u64::from(offset));
        }
        larger += 1;
        let at = (offset & 0x7fff_ffff) as usize * 8;
        Some(u64::from_be_bytes(large.get(at..at + 8)?.try_into().ok()?))
    };
    let offsets = small.chunks_exact(4).map(&mut offset).collect::<Option<_>>()?;
    let whole = large.len() == larger * 8;
    Some((Index { bytes, names, checks: Some(checks), whole }, offsets))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_index_or_none(bytes: Vec<u8>, second: bool) {
            let bytes = if second { [V2, &bytes].concat() } else { bytes };
            let _ = read_index(bytes, Algorithm::Sha1).is_some();
        }
    }
}
