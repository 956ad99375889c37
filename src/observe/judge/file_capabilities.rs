//! The capabilities that a program's file gives (capabilities(7), linux/capability.h `struct vfs_ns_cap_data`), and what the
//! kernel makes of them where the bounding set does not have them.

use super::Looked;
use crate::procfs;
use crate::sys::call::{Argument, call};
use nix::errno::Errno;
use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

/// `VFS_CAP_FLAGS_EFFECTIVE`.
const EFFECTIVE: u32 = 1;

/// What a file gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileCapabilities {
    permitted: u64,
    /// Whether a program that does not know of them is to have them from its start.
    effective: bool,
}

impl FileCapabilities {
    /// Those of a file that is held; `None` where there are none.
    pub fn of(object: &OwnedFd) -> Option<FileCapabilities> {
        let path = CString::new(format!("/proc/self/fd/{}", object.as_raw_fd())).ok()?;
        let mut bytes = [0; 24];
        let size = Argument::Number(bytes.len() as u64);
        let attribute = Argument::Text(c"security.capability");
        let words = [Argument::Text(&path), attribute, Argument::Memory(&mut bytes), size];
        let read = call(libc::SYS_getxattr, words).ok()?;
        FileCapabilities::parse(bytes.get(..usize::try_from(read).ok()?)?)
    }

    fn parse(bytes: &[u8]) -> Option<FileCapabilities> {
        let word = |at: usize| bytes.get(at * 4..at * 4 + 4)?.try_into().ok().map(u32::from_le_bytes);
        // The second half is not in the oldest revision.
        let permitted = u64::from(word(1)?) | u64::from(word(3).unwrap_or(0)) << 32;
        Some(FileCapabilities { permitted, effective: word(0)? & EFFECTIVE != 0 })
    }

    /// Whether execve(2) fails: a program that does not know of them would not know that they are missing.
    fn fail_within(self, bounding: u64) -> bool {
        self.effective && self.permitted & !bounding != 0
    }
}

impl Looked<'_> {
    /// The errno by which the kernel refuses a program for what its file gives; `None` where it starts without.
    pub(super) fn refusal_of_program(&self, object: &OwnedFd) -> Option<Errno> {
        let found = FileCapabilities::of(object)?;
        let mount = fstatvfs(object).map_or(FsFlags::empty(), |mount| mount.flags());
        let status = procfs::read(&format!("/proc/{}/status", self.caller.tid)).unwrap_or_default();
        let bounding = match &self.judge.shadow {
            // Where programs gain nothing by being executed, it is empty.
            Some(_) => 0,
            None => u64::from_str_radix(procfs::field(&status, "CapBnd:")?, 16).ok()?,
        };
        (!mount.contains(FsFlags::ST_NOSUID) && found.fail_within(bounding)).then_some(Errno::EPERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_each_revision_is_read() {
        const NET_RAW: u64 = 1 << 13;
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        for bytes in [
            words(&[0x0100_0001, 1 << 13, 0]),
            words(&[0x0200_0001, 1 << 13, 0, 0, 0]),
            words(&[0x0300_0001, 1 << 13, 0, 0, 0, 7]),
        ] {
            let found = FileCapabilities::parse(&bytes).unwrap();
            assert_eq!(found, FileCapabilities { permitted: NET_RAW, effective: true });
            assert!(found.fail_within(0) && found.fail_within(1) && !found.fail_within(NET_RAW));
        }
        let high = FileCapabilities::parse(&words(&[0x0200_0000, 0, 0, 1, 0])).unwrap();
        assert_eq!(high, FileCapabilities { permitted: 1 << 32, effective: false });
        assert!(!high.fail_within(0), "it starts without");
        assert_eq!(FileCapabilities::parse(b"odd"), None);
    }
}
