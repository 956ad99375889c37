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

/// Flags in the third argument: statx(2).
pub fn look_flags_third(call: &Call<'_>) -> Decoded {
    with_flags(call, 2)
}

/// Flags in the fourth: fstatat(2), faccessat2(2).
pub fn look_flags_fourth(call: &Call<'_>) -> Decoded {
    with_flags(call, 3)
}

/// Flags in the fifth: name_to_handle_at(2), which follows a link only if asked to.
pub fn look_flags_fifth(call: &Call<'_>) -> Decoded {
    let follow = call.arguments[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0;
    Ok(Act::Look(call.path_at(0, 1, follow, true)?))
}
