//! Repositories of git, read and written without git: objects loose and packed, references, the index, the configuration
//! (gitrepository-layout(5), gitformat-pack(5), gitformat-index(5), git-config(1)).
//!
//! What is read may have been written by a hostile command. So nothing is mapped (a file that is cut short under a mapping is
//! a SIGBUS for who reads it), sizes are bounded before they are believed, and links are followed only where the caller says so.

pub mod config;
mod delta;
pub mod index;
mod inflate;
mod loose;
pub mod objects;
mod pack;
mod parse;
mod pieces;
pub mod place;
mod pool;
pub mod refs;
mod sink;
pub mod walk;
pub mod write;

use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a repository cannot be read or written. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// A call failed.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file has not the form that it should have.
    #[error("{path}: {fault}", path = path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is accepted.
        fault: String,
    },
    /// An object is named and not there.
    #[error("object {0} is named and not there; accepted: a repository that is whole (git fsck), no partial clone")]
    Missing(Oid),
    /// An object is not what it should be.
    #[error("object {oid}: {fault}")]
    Object {
        /// Its name.
        oid: Oid,
        /// What is wrong.
        fault: &'static str,
    },
}

/// A call on a path failed.
pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> GitError {
    let path = path.to_owned();
    move |cause| GitError::Io { path, cause }
}

/// A file has not its form.
pub(crate) fn form(path: &Path, fault: impl Into<String>) -> GitError {
    GitError::Form { path: path.to_owned(), fault: fault.into() }
}

/// The hash by which a repository names its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The usual one.
    Sha1,
    /// `extensions.objectFormat = sha256`.
    Sha256,
}

impl Algorithm {
    /// How many bytes a name has.
    pub fn length(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    /// Starts a hash.
    pub fn start(self) -> Hasher {
        match self {
            Algorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
        }
    }

    /// The name of an object.
    pub fn name_of(self, kind: Kind, content: &[u8]) -> Oid {
        let mut hasher = self.start();
        hasher.update(format!("{} {}\0", kind.name(), content.len()).as_bytes());
        hasher.update(content);
        hasher.finish()
    }
}

/// A hash that is being made.
pub enum Hasher {
    /// SHA-1.
    Sha1(Sha1),
    /// SHA-256.
    Sha256(Sha256),
}

impl Hasher {
    /// Takes in more.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha1(hash) => hash.update(bytes),
            Hasher::Sha256(hash) => hash.update(bytes),
        }
    }

    /// The hash of all that was taken in.
    pub fn finish(self) -> Oid {
        match self {
            Hasher::Sha1(hash) => Oid::of(&hash.finalize()),
            Hasher::Sha256(hash) => Oid::of(&hash.finalize()),
        }
    }
}

/// An object's name: 20 or 32 bytes, zeros after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    bytes: [u8; 32],
    length: u8,
}

impl Oid {
    /// A name of at most 32 bytes.
    pub(crate) fn of(bytes: &[u8]) -> Oid {
        let length = bytes.len().min(32);
        let mut all = [0; 32];
        all[..length].copy_from_slice(&bytes[..length]);
        Oid { bytes: all, length: length as u8 }
    }

    /// The name in hexadecimal that has the length of this hash.
    pub fn from_hex(text: &[u8], algorithm: Algorithm) -> Option<Oid> {
        if text.len() != 2 * algorithm.length() {
            return None;
        }
        let mut bytes = [0; 32];
        data_encoding::HEXLOWER.decode_mut(text, &mut bytes[..algorithm.length()]).ok()?;
        Some(Oid { bytes, length: algorithm.length() as u8 })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Whether it stands for no object.
    pub fn is_zero(&self) -> bool {
        self.bytes == [0; 32]
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(self.as_bytes()))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A commit.
    Commit,
    /// A directory.
    Tree,
    /// A file's content.
    Blob,
    /// An annotated tag.
    Tag,
}

impl Kind {
    /// Its name in loose objects.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Tree => "tree",
            Kind::Blob => "blob",
            Kind::Tag => "tag",
        }
    }

    fn named(name: &[u8]) -> Option<Kind> {
        [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag].into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// Its number in packs (gitformat-pack(5)).
    fn number(self) -> u8 {
        match self {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        }
    }

    fn numbered(number: u8) -> Option<Kind> {
        [Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag].into_iter().find(|kind| kind.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_gits_names() {
        let name = |algorithm: Algorithm| algorithm.name_of(Kind::Blob, b"").to_string();
        assert_eq!(name(Algorithm::Sha1), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(name(Algorithm::Sha256), "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813");
        assert_eq!(Oid::from_hex(name(Algorithm::Sha1).as_bytes(), Algorithm::Sha1).unwrap().to_string().len(), 40);
        assert!(Oid::from_hex(name(Algorithm::Sha1).as_bytes(), Algorithm::Sha256).is_none());
    }
}
