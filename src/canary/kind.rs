//! Containers by their first bytes.

use super::tar;

/// Whether a file of that name and beginning is a container.
pub(super) fn is_container(head: &[u8], name: &str) -> bool {
    Kind::of(head, name).is_some()
}

/// What a stream is by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Zlib,
    Tar,
    Zip,
    GitPack,
    /// A compression that is known and not read.
    Unknown(&'static str),
}

impl Kind {
    /// What begins so, in a file of that name; none where it is no container.
    pub(super) fn of(head: &[u8], name: &str) -> Option<Kind> {
        Some(match head {
            [0x1f, 0x8b, 8, ..] => Kind::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Kind::Zstd,
            [b'P', b'K', 3, 4, ..] => Kind::Zip,
            [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, ..] => Kind::GitPack,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Kind::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => Kind::Bzip2,
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Kind::Unknown("7z"),
            [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => Kind::Unknown("rar"),
            [4, 0x22, 0x4d, 0x18, ..] => Kind::Unknown("lz4"),
            [b'L', b'Z', b'I', b'P', 1, ..] => Kind::Unknown("lzip"),
            [0x1f, 0x9d, ..] => Kind::Unknown("compress"),
            _ if tar::is_header(head) => Kind::Tar,
            // RFC 1950 with the usual window, no dictionary, and the check of the two bytes.
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Kind::Zlib,
            _ if name.ends_with(".lzma") => Kind::Unknown("lzma"),
            _ => return None,
        })
    }
}

/// Whether a name is that of a loose object of git: all its digits but the first two.
pub(super) fn is_git_object(name: &str) -> bool {
    matches!(name.len(), 38 | 62) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether bytes are text: UTF-8, perhaps cut off, without control characters.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(cause) if cause.error_len().is_none() => {
            std::str::from_utf8(&bytes[..cause.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    whole.chars().all(|character| !character.is_control() || character.is_whitespace())
}
