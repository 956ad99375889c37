//! A new file given all that is known of another one but its content and its number.

use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use std::collections::BTreeMap;
use std::fs::{File, FileTimes, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The longest list of names, and the longest value, that the kernel gives, in bytes (limits.h: `XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const LONGEST: usize = 1 << 16;

/// The access list (acl(5)), which a file inherits from the default list of its directory.
const ACCESS: &[u8] = b"system.posix_acl_access";

/// Gives `file` the owner, mode, extended attributes and times of another one, and looks whether it has them.
///
/// # Errors
/// Whatever of that can't be had.
pub(super) fn copy(file: &File, from: &File, known: &Metadata) -> io::Result<()> {
    let (uid, gid) = (known.uid(), known.gid());
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (uid, gid) {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    let wanted = of(from)?;
    let inherited = of(file)?;
    for name in inherited.keys().filter(|name| !wanted.contains_key(*name)) {
        fremovexattr(file.as_fd(), name.as_slice())?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| inherited.get(*name) != Some(*value)) {
        fsetxattr(file.as_fd(), name.as_slice(), value, XattrFlags::empty())?;
    }
    // After the owner, whose change clears set-id bits, and after the access list, which is tied to the mode.
    fchmod(file, Mode::from_bits_truncate(known.mode()))?;
    file.set_times(FileTimes::new().set_accessed(known.accessed()?).set_modified(known.modified()?))?;
    let now = file.metadata()?;
    match (now.uid(), now.gid(), now.mode()) == (uid, gid, known.mode()) && of(file)? == wanted {
        true => Ok(()),
        false => Err(io::Error::other("they did not all stay")),
    }
}

/// Takes away the access list that a directory's default list has brought: the mode alone says who may.
pub(super) fn without_access_list(file: &File) -> io::Result<()> {
    match of(file)?.contains_key(ACCESS) {
        true => Ok(fremovexattr(file.as_fd(), ACCESS)?),
        false => Ok(()),
    }
}

/// Extended attributes (xattr(7)): access lists, capabilities, labels, those of users.
fn of(file: &File) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; LONGEST];
    let length = match flistxattr(file.as_fd(), &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(cause) => return Err(cause.into()),
    };
    let mut value = vec![0; LONGEST];
    let mut attributes = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = fgetxattr(file.as_fd(), name, &mut value)?;
        attributes.insert(name.to_owned(), value[..length].to_owned());
    }
    Ok(attributes)
}
