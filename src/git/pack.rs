//! One pack with its index, versions 1 and 2 (gitformat-pack(5)). Other files beside it (reverse indexes, bitmaps, an index of
//! many packs) say nothing that these two do not.

use super::place::Place;
use super::{Algorithm, GitError, Kind, Oid, form, io};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most bytes of an index.
const INDEX_LIMIT: u64 = 4 << 30;
const V2: &[u8] = &[0xff, b't', b'O', b'c', 0, 0, 0, 2];

/// A pack whose index has been read.
#[derive(Debug)]
pub(super) struct Pack {
    path: PathBuf,
    file: File,
    algorithm: Algorithm,
    /// The objects' names, sorted, one behind the other.
    names: Vec<u8>,
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
    pub fn open(place: &Place, index: &str, algorithm: Algorithm) -> Result<Pack, GitError> {
        let index_path = place.path.join(index);
        let bad = |fault: &str| form(&index_path, fault);
        let bytes = place.read(index, INDEX_LIMIT)?.ok_or_else(|| bad("it is gone"))?;
        let name = format!("{}.pack", index.strip_suffix(".idx").unwrap_or(index));
        let file = place.open(&name)?;
        let path = place.path.join(&name);
        let (names, offsets) =
            read_index(&bytes, algorithm).ok_or_else(|| bad("it is no pack index of version 1 or 2"))?;
        let length = algorithm.length();
        if names.chunks(length).zip(names.chunks(length).skip(1)).any(|(one, next)| one >= next) {
            return Err(bad("its names are not in order"));
        }
        let file_end = file.metadata().map_err(io(&path))?.len();
        let end = file_end.checked_sub(length as u64).ok_or_else(|| form(&path, "it is torn"))?;
        let mut head = [0; 8];
        file.read_exact_at(&mut head, 0).map_err(io(&path))?;
        if !matches!(head, [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3]) {
            return Err(form(&path, "it is no pack of version 2 or 3"));
        }
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
        let buckets = buckets(&names, length);
        Ok(Pack { path, file, algorithm, names, buckets, spans, by_offset })
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The name at a place.
    pub fn name(&self, place: u32) -> Oid {
        let length = self.algorithm.length();
        Oid::of(&self.names[place as usize * length..][..length])
    }

    /// The place of a name.
    pub fn find(&self, oid: &Oid) -> Option<u32> {
        let (starts, bits) = &self.buckets;
        let bucket = prefix(oid.as_bytes(), *bits);
        let length = self.algorithm.length();
        let (from, to) = (*starts.get(bucket)?, *starts.get(bucket + 1)?);
        let within = self.names.get(from as usize * length..to as usize * length)?;
        (from..).zip(within.chunks_exact(length)).find(|(_, name)| *name == oid.as_bytes()).map(|(place, _)| place)
    }

    /// Where an entry begins.
    pub fn offset(&self, place: u32) -> u64 {
        self.spans[place as usize].0
    }

    /// An entry as it is in the pack, of at most `limit` bytes.
    pub fn entry(&self, place: u32, limit: u64) -> Result<Vec<u8>, GitError> {
        let (start, end) = self.spans[place as usize];
        if end - start > limit.saturating_add(64) {
            return Err(GitError::Object { oid: self.name(place), fault: "it is too large" });
        }
        let length = usize::try_from(end - start).map_err(|_| form(&self.path, "an entry is too large"))?;
        let mut entry = vec![0; length];
        self.file.read_exact_at(&mut entry, start).map_err(io(&self.path))?;
        Ok(entry)
    }

    /// Reads the head of an entry.
    pub fn head(&self, place: u32, entry: &[u8]) -> Result<Head, GitError> {
        self.parse_head(place, entry)
            .ok_or_else(|| GitError::Object { oid: self.name(place), fault: "its entry in the pack has no head" })
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

/// The names and the offsets of an index.
fn read_index(bytes: &[u8], algorithm: Algorithm) -> Option<(Vec<u8>, Vec<u64>)> {
    let length = algorithm.length();
    let second = bytes.starts_with(V2);
    let fanout = if second { 8 } else { 0 };
    let count = u32_at(bytes, fanout + 255 * 4)? as usize;
    let table = fanout + 256 * 4;
    let rest = bytes.get(table..bytes.len().checked_sub(2 * length)?)?;
    if !second {
        let each = rest.get(..count.checked_mul(4 + length)?).filter(|each| each.len() == rest.len())?;
        let names = each.chunks_exact(4 + length).flat_map(|one| one[4..].iter().copied()).collect();
        let offsets = each.chunks_exact(4 + length).map(|one| u32_at(one, 0).map(u64::from)).collect::<Option<_>>()?;
        return Some((names, offsets));
    }
    let names = rest.get(..count.checked_mul(length)?)?;
    let small = rest.get(count * (length + 4)..)?.get(..count * 4)?;
    let large = &rest[count * (length + 8)..];
    let offset = |at: usize| {
        let offset = u32_at(small, at * 4)?;
        if offset & 0x8000_0000 == 0 {
            return Some(u64::from(offset));
        }
        let at = (offset & 0x7fff_ffff) as usize * 8;
        Some(u64::from_be_bytes(large.get(at..at + 8)?.try_into().ok()?))
    };
    Some((names.to_vec(), (0..count).map(offset).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_index_or_none(bytes: Vec<u8>, second: bool) {
            let bytes = if second { [V2, &bytes].concat() } else { bytes };
            let _ = read_index(&bytes, Algorithm::Sha1).is_some();
        }
    }
}
