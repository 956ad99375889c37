//! The index, versions 2 to 4 (gitformat-index(5)), without its extensions: they repeat what the entries say, or what they said
//! earlier.

use super::{Algorithm, GitError, Oid, form};
use std::path::Path;

/// Most bytes of an index.
pub const LIMIT: u64 = 512 << 20;
/// Most bytes of a path in it: a longer one names no file (PATH_MAX).
const PATH_LIMIT: usize = 4096;
/// An entry says how long its path is in these bits, which are all set for whatever is longer.
const LONG: u16 = 0xfff;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it names.
    pub oid: Oid,
    /// Its type and permissions.
    pub mode: u32,
    /// Whether a work tree could have such a file: what git's own fsck takes for an attack is not.
    pub is_sound: bool,
}

impl Entry {
    /// Whether it is a file of this repository.
    pub fn is_blob(&self) -> bool {
        !self.is_tree() && self.mode & 0o170_000 != 0o160_000
    }

    /// Whether it stands for a directory that is not checked out.
    pub fn is_tree(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// Whether a work tree could have a file of that path, or a directory where it ends in a slash.
fn is_sound(path: &[u8], tree: bool) -> bool {
    let path = if tree { path.strip_suffix(b"/").unwrap_or(path) } else { path };
    let bad = |part: &[u8]| [&b""[..], b".", b".."].contains(&part) || part.eq_ignore_ascii_case(b".git");
    !path.split(|byte| *byte == b'/').any(bad)
}

/// An index.
#[derive(Debug)]
pub struct Index {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Its head and entries as they are, without what follows.
    bytes: Vec<u8>,
    sparse: bool,
    algorithm: Algorithm,
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// How much of the path before does not count: as offsets in packs have it.
fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let mut next = || {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(byte)
    };
    let mut byte = next()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = next()?;
        value = value.checked_add(1).filter(|value| *value < 1 << 40)? << 7 | usize::from(byte & 0x7f);
    }
    Some(value)
}

impl Index {
    /// Reads an index; `path` is named in errors.
    pub fn parse(path: &Path, bytes: &[u8], algorithm: Algorithm) -> Result<Index, GitError> {
        let fault =
            "it is no index of version 2 to 4 (gitformat-index(5)) whose paths are in order and of at most 4096 bytes";
        let (entries, end) = entries(bytes, algorithm).ok_or_else(|| form(path, fault))?;
        let trailer = bytes.len().checked_sub(algorithm.length()).filter(|trailer| *trailer >= end);
        let trailer = trailer.ok_or_else(|| form(path, "it is torn"))?;
        let mut rest = &bytes[end..trailer];
        let mut sparse = false;
        while !rest.is_empty() {
            let (signature, length) = rest.get(..4).zip(number(rest, 4)).ok_or_else(|| form(path, "it is torn"))?;
            match signature {
                b"sdir" => sparse = true,
                b"link" => {
                    return Err(form(
                        path,
                        "it is split in two; accepted: a whole one (git update-index --no-split-index)",
                    ));
                }
                [b'A'..=b'Z', ..] => {}
                _ => return Err(form(path, "it has an extension that is not known")),
            }
            rest = rest.get(8 + length as usize..).ok_or_else(|| form(path, "it is torn"))?;
        }
        Ok(Index { entries, bytes: bytes[..end].to_vec(), sparse, algorithm })
    }

    /// The index without extensions but the one that says that it has directories for entries.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.bytes.clone();
        if self.sparse {
            out.extend(b"sdir\0\0\0\0");
        }
        let mut hasher = self.algorithm.start();
        hasher.update(&out);
        out.extend(hasher.finish().as_bytes());
        out
    }
}

/// The entries, and where they end.
fn entries(bytes: &[u8], algorithm: Algorithm) -> Option<(Vec<Entry>, usize)> {
    let version = number(bytes, 4).filter(|version| bytes.starts_with(b"DIRC") && (2..=4).contains(version))?;
    let count = number(bytes, 8)? as usize;
    let mut entries: Vec<Entry> = Vec::with_capacity(count.min(bytes.len() / 64));
    let mut at = 12;
    // Version 4 says of a path how it differs from the one before, so that all of them may be far longer than the index.
    let (mut path, mut before, mut stage_before) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let start = at;
        let mode = number(bytes, start + 24)?;
        let oid = Oid::of(bytes.get(start + 40..start + 40 + algorithm.length())?);
        at = start + 40 + algorithm.length();
        let flags = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        let (extended, stage, said) = (flags & 0x4000 != 0, flags >> 12 & 3, usize::from(flags & LONG));
        at += if extended { 4 } else { 2 };
        if extended && version == 2 {
            return None;
        }
        let mut rest = bytes.get(at..)?;
        std::mem::swap(&mut path, &mut before);
        path.clear();
        if version == 4 {
            let length = rest.len();
            let less = varint(&mut rest)?;
            at += length - rest.len();
            path.extend_from_slice(before.get(..before.len().checked_sub(less)?)?);
        }
        let end = memchr::memchr(0, rest)?;
        path.extend_from_slice(&rest[..end]);
        let in_order = entries.is_empty() || (&before, stage_before) < (&path, stage);
        // Git goes by the length that is said, where that is one: it is to read the path that has been looked at.
        if path.len() > PATH_LIMIT || !in_order || said != path.len().min(LONG.into()) {
            return None;
        }
        stage_before = stage;
        at += end + 1;
        if version < 4 {
            // One to eight zeros, so that the whole is a multiple of eight.
            at = start + (at - start).div_ceil(8) * 8;
        }
        if at > bytes.len() {
            return None;
        }
        let is_sound = is_sound(&path, mode & 0o170_000 == 0o040_000);
        entries.push(Entry { oid, mode, is_sound });
    }
    Some((entries, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Vec<u8> {
        staged(path, 0)
    }

    fn staged(path: &str, stage: u16) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[24..28].copy_from_slice(&0o100_644u32.to_be_bytes());
        bytes.extend([7; 20]);
        bytes.extend((path.len() as u16 | stage << 12).to_be_bytes());
        bytes.extend(path.as_bytes());
        let end = (bytes.len() + 1).div_ceil(8) * 8;
        bytes.resize(end, 0);
        bytes
    }

    #[test]
    fn entries_are_kept_and_extensions_are_not() {
        let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x02".to_vec();
        bytes.extend(entry("a"));
        bytes.extend(entry("dir/file.txt"));
        let end = bytes.len();
        bytes.extend(b"TREE\0\0\0\x03abc");
        bytes.extend([0; 20]);
        let index = Index::parse(Path::new("index"), &bytes, Algorithm::Sha1).unwrap();
        assert_eq!(index.entries.iter().filter(|entry| entry.is_sound).count(), 2);
        let out = index.to_bytes();
        assert_eq!((out.len(), &out[..end]), (end + 20, &bytes[..end]));
        assert!(Index::parse(Path::new("index"), &out, Algorithm::Sha1).is_ok());
        bytes[end..end + 4].copy_from_slice(b"link");
        assert!(Index::parse(Path::new("index"), &bytes, Algorithm::Sha1).unwrap_err().to_string().contains("split"));
    }

    #[test]
    fn what_leads_out_of_the_work_tree_is_not_sound() {
        let sound = |path: &str| is_sound(path.as_bytes(), false);
        assert!(sound("a/b") && sound(".gitignore") && is_sound(b"a/", true));
        for bad in ["../a", "/a", "a//b", "a/.GIT/hooks/x", ".", "", "a/"] {
            assert!(!sound(bad), "{bad}");
        }
    }

    #[test]
    fn what_git_would_not_read_is_no_index() {
        let index = |entries: &[Vec<u8>]| {
            let mut bytes = b"DIRC\0\0\0\x02".to_vec();
            bytes.extend((entries.len() as u32).to_be_bytes());
            bytes.extend(entries.concat());
            bytes.extend([0; 20]);
            Index::parse(Path::new("index"), &bytes, Algorithm::Sha1)
        };
        assert!(index(&[entry("a"), entry("b")]).is_ok());
        assert!(index(&[staged("a", 1), staged("a", 2), staged("a", 3)]).is_ok());
        assert!(index(&[entry("b"), entry("a")]).is_err());
        assert!(index(&[entry("a"), entry("a")]).is_err());
        assert!(index(&[staged("a", 2), staged("a", 1)]).is_err());
        // It says that its path goes on behind the zero.
        let mut longer = entry("a");
        longer[61] = 9;
        assert!(index(&[longer]).is_err());
    }

    #[test]
    fn paths_that_grow_from_one_to_the_next_take_no_memory() {
        // Version 4: each path is the one before and a byte more.
        let bomb = |count: u32| {
            let mut bytes = b"DIRC\0\0\0\x04".to_vec();
            bytes.extend(count.to_be_bytes());
            for length in 1..=count {
                let mut one = vec![0; 60];
                one[24..28].copy_from_slice(&0o100_644u32.to_be_bytes());
                one.extend((length.min(0xfff) as u16).to_be_bytes());
                one.extend(b"\0a\0");
                bytes.extend(one);
            }
            bytes.extend([0; 20]);
            Index::parse(Path::new("index"), &bytes, Algorithm::Sha1)
        };
        assert_eq!(bomb(4096).unwrap().entries.len(), 4096);
        assert!(bomb(4097).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(rest: Vec<u8>, version in 2u8..5) {
            let bytes = [&b"DIRC\0\0\0"[..], &[version], &rest].concat();
            let _ = Index::parse(Path::new("index"), &bytes, Algorithm::Sha1).is_ok();
        }
    }
}
