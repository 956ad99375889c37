//! What is too large for a message between our processes: one JSON value in a file in memory, whose descriptor is passed.

use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{SFlag, fstat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// The largest document in bytes: more than execve(2) takes of arguments and environment, written out.
const LARGEST: u64 = 64 << 20;

/// Writes a value to a new file in memory (memfd_create(2)), which closes on exec.
pub fn write<T: Serialize>(value: &T) -> Result<OwnedFd> {
    let bytes = serde_json::to_vec(value).map_err(Error::other)?;
    let mut file = File::from(memfd_create(c"document", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads such a file from its beginning.
///
/// # Errors
/// Where it is no regular file, too large, or holds something else.
pub fn read<T: DeserializeOwned>(document: OwnedFd) -> Result<T> {
    let stat = fstat(&document)?;
    // Anything else may have its reader wait.
    if stat.st_mode & SFlag::S_IFMT.bits() != libc::S_IFREG {
        return Err(Errno::EINVAL.into());
    }
    let length = u64::try_from(stat.st_size).ok().filter(|length| *length <= LARGEST).ok_or(Errno::EFBIG)?;
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Errno::EFBIG)?];
    File::from(document).read_exact_at(&mut bytes, 0)?;
    serde_json::from_slice(&bytes).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_is_read_is_what_was_written() {
        let texts: Vec<OsString> = vec![OsStr::from_bytes(b"\xff\n").into(), OsString::from("a".repeat(1 << 20))];
        assert_eq!(read::<Vec<OsString>>(write(&texts).unwrap()).unwrap(), texts);
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let (pipe, _write) = nix::unistd::pipe().unwrap();
        assert!(read::<Vec<OsString>>(pipe).is_err(), "it would be waited for");
        assert!(read::<Vec<OsString>>(write(&1).unwrap()).is_err());
        let huge = File::from(memfd_create(c"huge", MFdFlags::empty()).unwrap());
        huge.set_len(LARGEST + 1).unwrap();
        assert!(read::<Vec<OsString>>(huge.into()).is_err());
    }
}
