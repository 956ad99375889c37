//! Calls on extended attributes and on the attributes of inodes.

use super::{AGAIN_MAX, AT_FLAGS, Call, Decoded, changed, known};
use crate::observe::act::{Act, Change, Place};
use crate::observe::caller::Unread;
use crate::observe::calls::Structures;
use nix::errno::Errno;

/// The longest value of an extended attribute (xattr(7)), and the longest name.
const XATTR_SIZE_MAX: usize = 65_536;
const XATTR_NAME_MAX: usize = 256;

fn set_xattr(call: &Call<'_>, at: Place) -> Decoded {
    let name = call.string(1, XATTR_NAME_MAX, Errno::ERANGE)?;
    let size = call.arguments[3] as usize;
    if size > XATTR_SIZE_MAX {
        return Err(Unread::Fails(Errno::E2BIG));
    }
    let value = if size == 0 { Vec::new() } else { call.caller.bytes(call.arguments[2], size)? };
    changed(at, Change::SetXattr(name, value, call.int(4)))
}

/// setxattr(2).
pub fn setxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.path(0, true)?)
}

/// lsetxattr(2).
pub fn lsetxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.path(0, false)?)
}

/// fsetxattr(2).
pub fn fsetxattr(call: &Call<'_>) -> Decoded {
    set_xattr(call, call.descriptor(0))
}

/// setxattrat, Linux 6.13: value, size and flags stand in a structure.
pub fn setxattrat(call: &Call<'_>) -> Decoded {
    const SIZE: usize = 16;
    let flags = known(call.arguments[2], AT_FLAGS)?;
    let at = call.path_or_file(0, 1, flags)?;
    let name = call.string(3, XATTR_NAME_MAX, Errno::ERANGE)?;
    if (call.arguments[5] as usize) < SIZE {
        return Err(Unread::Fails(Errno::EINVAL));
    }
    let how = call.caller.bytes(call.arguments[4], SIZE)?;
    let (value, rest) = how.split_at(8);
    let address = value.try_into().map_or(0, u64::from_ne_bytes);
    let size = rest[..4].try_into().map_or(0, u32::from_ne_bytes) as usize;
    let how = rest[4..].try_into().map_or(0, i32::from_ne_bytes);
    if size > XATTR_SIZE_MAX {
        return Err(Unread::Fails(Errno::E2BIG));
    }
    let value = if size == 0 { Vec::new() } else { call.caller.bytes(address, size)? };
    changed(at, Change::SetXattr(name, value, how))
}

fn remove_xattr(call: &Call<'_>, at: Place, name: usize) -> Decoded {
    changed(at, Change::RemoveXattr(call.string(name, XATTR_NAME_MAX, Errno::ERANGE)?))
}

/// removexattr(2).
pub fn removexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.path(0, true)?, 1)
}

/// lremovexattr(2).
pub fn lremovexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.path(0, false)?, 1)
}

/// fremovexattr(2).
pub fn fremovexattr(call: &Call<'_>) -> Decoded {
    remove_xattr(call, call.descriptor(0), 1)
}

/// removexattrat, Linux 6.13.
pub fn removexattrat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[2], AT_FLAGS)?;
    remove_xattr(call, call.path_or_file(0, 1, flags)?, 3)
}

/// FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS and FS_IOC_FSSETXATTR (linux/fs.h).
pub const INODE_REQUESTS: [(u64, usize); 3] = [(0x4008_6602, 4), (0x4004_6602, 4), (0x401c_5820, 28)];

/// Requests of single file systems that change a file, its names or what is known of it through a descriptor that may be open
/// to read alone: FS_IOC_SETVERSION, EXT4_IOC_SETVERSION and those of 32-bit programs, EXT4_IOC_MIGRATE,
/// FS_IOC_SET_ENCRYPTION_POLICY, FS_IOC_ENABLE_VERITY, F2FS_IOC_SET_PIN_FILE, FAT_IOCTL_SET_ATTRIBUTES; of btrfs
/// SNAP_CREATE, DEFRAG, SUBVOL_CREATE, SNAP_DESTROY, DEFRAG_RANGE, SNAP_CREATE_V2, SUBVOL_CREATE_V2, SUBVOL_SETFLAGS,
/// SET_RECEIVED_SUBVOL and SNAP_DESTROY_V2 (linux/fs.h, linux/fscrypt.h, linux/fsverity.h, linux/f2fs.h,
/// linux/msdos_fs.h, linux/btrfs.h, fs/ext4/ext4.h).
pub const FILE_SYSTEM_REQUESTS: [u64; 19] = [
    0x4008_7602,
    0x4008_6604,
    0x4004_7602,
    0x4004_6604,
    0x6609,
    0x800c_6613,
    0x4080_6685,
    0x4004_f50d,
    0x4004_7211,
    0x5000_9401,
    0x5000_9402,
    0x5000_940e,
    0x5000_940f,
    0x4030_9410,
    0x5000_9417,
    0x5000_9418,
    0x4008_941a,
    0xc0c8_9425,
    0x5000_943f,
];

/// ioctl(2) with one of [`FILE_SYSTEM_REQUESTS`].
pub fn ioctl_of_file_system(call: &Call<'_>) -> Decoded {
    changed(call.descriptor(0), Change::OfFileSystem)
}

/// ioctl(2) with one of [`INODE_REQUESTS`].
pub fn ioctl(call: &Call<'_>) -> Decoded {
    let request = u64::from(call.word(1));
    match INODE_REQUESTS.iter().find(|(known, _)| *known == request) {
        Some((request, size)) => {
            let bytes = call.caller.bytes(call.arguments[2], *size)?;
            // A 32-bit program's request has another number for the same.
            let narrow = call.structures != Structures::Native && *request == INODE_REQUESTS[1].0;
            let request = if narrow { INODE_REQUESTS[0].0 } else { *request };
            changed(call.descriptor(0), Change::Inode(request, bytes))
        }
        None => Ok(Act::Plain),
    }
}

/// file_setattr, Linux 6.17.
pub fn file_setattr(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], AT_FLAGS)?;
    let at = call.path_or_file(0, 1, flags)?;
    match call.arguments[3] as usize {
        size @ 1..=AGAIN_MAX => changed(at, Change::FileAttributes(call.caller.bytes(call.arguments[2], size)?)),
        0 => Err(Unread::Fails(Errno::EINVAL)),
        _ => Err(Unread::Fails(Errno::E2BIG)),
    }
}
