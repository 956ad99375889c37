//! What commits, trees and tags name.

use super::{Algorithm, Kind, Oid};

/// What a commit names.
pub(super) struct Commit {
    pub tree: Oid,
    pub parents: Vec<Oid>,
}

/// One line `key VALUE` off the front.
fn line<'a>(rest: &mut &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(b'\n', rest)?;
    let value = rest[..end].strip_prefix(key)?.strip_prefix(b" ")?;
    *rest = &rest[end + 1..];
    Some(value)
}

/// The tree and the parents of a commit.
pub(super) fn commit(mut content: &[u8], algorithm: Algorithm) -> Option<Commit> {
    let tree = Oid::from_hex(line(&mut content, b"tree")?, algorithm)?;
    let mut parents = Vec::new();
    while let Some(parent) = line(&mut content, b"parent") {
        parents.push(Oid::from_hex(parent, algorithm)?);
    }
    Some(Commit { tree, parents })
}

/// What a tag points to.
pub(super) fn tag(mut content: &[u8], algorithm: Algorithm) -> Option<(Oid, Kind)> {
    let object = Oid::from_hex(line(&mut content, b"object")?, algorithm)?;
    Some((object, Kind::named(line(&mut content, b"type")?)?))
}

/// One entry of a tree.
pub(super) struct TreeEntry<'a> {
    pub mode: u32,
    pub name: &'a [u8],
    /// The bytes of what it names.
    pub object: &'a [u8],
}

impl TreeEntry<'_> {
    /// What it names: nothing of this repository where it is a submodule's commit.
    pub fn kind(&self) -> Option<Kind> {
        match self.mode & 0o170_000 {
            0o040_000 => Some(Kind::Tree),
            0o160_000 => None,
            _ => Some(Kind::Blob),
        }
    }

    /// Whether a work tree could have such a file: what git's own fsck takes for an attack is refused.
    pub fn is_sound(&self) -> bool {
        let reserved = [&b"."[..], b"..", b""].contains(&self.name) || self.name.eq_ignore_ascii_case(b".git");
        !reserved && !self.name.contains(&b'/')
    }
}

/// The entries of a tree; the last one is `None` where it has not the form of one.
pub(super) fn tree(content: &[u8], algorithm: Algorithm) -> impl Iterator<Item = Option<TreeEntry<'_>>> {
    let mut rest = content;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut entry = || {
            let nul = memchr::memchr(0, rest)?;
            let blank = memchr::memchr(b' ', &rest[..nul])?;
            let mode = rest[..blank].iter().try_fold(0u32, |mode, digit| match digit {
                b'0'..=b'7' if mode < 1 << 20 => Some(mode * 8 + u32::from(digit - b'0')),
                _ => None,
            })?;
            let name = &rest[blank + 1..nul];
            let object = rest.get(nul + 1..nul + 1 + algorithm.length())?;
            rest = &rest[nul + 1 + algorithm.length()..];
            Some(TreeEntry { mode, name, object })
        };
        let entry = entry();
        if entry.is_none() {
            rest = &[];
        }
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_tree_says_so() {
        let mut content = b"100644 a\0".to_vec();
        content.extend([7; 20]);
        assert!(tree(&content, Algorithm::Sha1).all(|entry| entry.is_some_and(|e| e.name == b"a" && e.is_sound())));
        content.extend(b"40000 .Git\0");
        content.extend([8; 20]);
        assert!(tree(&content, Algorithm::Sha1).any(|entry| entry.is_some_and(|e| !e.is_sound())));
        content.pop();
        assert!(tree(&content, Algorithm::Sha1).last().unwrap().is_none());
    }

    #[test]
    fn a_commit_names_its_tree_and_parents() {
        let oid = "1".repeat(40);
        let text = format!("tree {oid}\nparent {oid}\nparent {oid}\nauthor a\n\nparent {oid}\n");
        let parsed = commit(text.as_bytes(), Algorithm::Sha1).unwrap();
        assert_eq!((parsed.tree.to_string(), parsed.parents.len()), (oid, 2));
        assert!(commit(b"parent x\n", Algorithm::Sha1).is_none());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = (commit(&bytes, Algorithm::Sha1).is_some(), tag(&bytes, Algorithm::Sha256).is_some());
            proptest::prop_assert!(tree(&bytes, Algorithm::Sha1).count() <= bytes.len() + 1);
        }
    }
}
