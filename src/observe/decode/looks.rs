//! Calls that look at what has a name, and change nothing.

use super::{Act, Call, Decoded, follows};
use nix::libc;

/// A path, a link followed.
pub fn look(call: &Call<'_>) -> Decoded {
    Ok(Act::Look(call.path(0, true)?))
}

/// A path, a link not followed.
pub fn look_at_link(call: &Call<'_>) -> Decoded {
    Ok(Act::Look(call.path(0, false)?))
}

/// A path as the second argument.
pub fn look_second(call: &Call<'_>) -> Decoded {
    Ok(Act::Look(call.path(1, true)?))
}

/// A path relative to a descriptor.
pub fn look_at(call: &Call<'_>) -> Decoded {
    Ok(Act::Look(call.path_at(0, 1, true, true)?))
}

/// The same, a link not followed.
pub fn look_at_link_at(call: &Call<'_>) -> Decoded {
    Ok(Act::Look(call.path_at(0, 1, false, true)?))
}

fn with_flags(call: &Call<'_>, argument: usize) -> Decoded {
    Ok(Act::Look(call.path_at(0, 1, follows(call.arguments[argument]), true)?))
}

/// Flags in the third argument: statx(2); getxattrat and listxattrat, Linux 6.13.
pub fn look_flags_third(call: &Call<'_>) -> Decoded {
    with_flags(call, 2)
}

/// Flags in the fourth: fstatat(2), faccessat2(2).
pub fn look_flags_fourth(call: &Call<'_>) -> Decoded {
    with_flags(call, 3)
}

/// Flags in the fifth: file_getattr, Linux 6.17.
pub fn look_flags_fifth(call: &Call<'_>) -> Decoded {
    with_flags(call, 4)
}

/// name_to_handle_at(2): flags in the fifth too, and a link is followed only if that is asked for.
pub fn look_for_handle(call: &Call<'_>) -> Decoded {
    let follow = call.arguments[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0;
    Ok(Act::Look(call.path_at(0, 1, follow, true)?))
}

/// fanotify_mark(2): a path relative to the fourth argument, in the fifth.
pub fn look_to_mark(call: &Call<'_>) -> Decoded {
    let follow = call.arguments[1] & FAN_MARK_DONT_FOLLOW == 0;
    Ok(Act::Look(call.path_at(3, 4, follow, true)?))
}

/// linux/fanotify.h.
const FAN_MARK_DONT_FOLLOW: u64 = 0x4;
