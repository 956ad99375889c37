//! Calls that change what is known of a file, or ask whether it may be changed.

use super::{AT_FLAGS, Call, Decoded, follows, known, slashed};
use crate::observe::act::{Act, Change, Place};
use crate::observe::caller::{Unread, asks_for_base};
use nix::errno::Errno;
use nix::libc;

pub(super) fn changed(at: Place, change: Change) -> Decoded {
    Ok(Act::Change(slashed(at), change))
}

/// chmod(2).
pub fn chmod(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Mode(call.word(1)))
}

/// fchmod(2).
pub fn fchmod(call: &Call<'_>) -> Decoded {
    changed(call.descriptor(0), Change::Mode(call.word(1)))
}

/// fchmodat(2), whose system call has no flags.
pub fn fchmodat(call: &Call<'_>) -> Decoded {
    changed(call.path_at(0, 1, true, false)?, Change::Mode(call.word(2)))
}

/// fchmodat2, Linux 6.6.
pub fn fchmodat2(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[3], AT_FLAGS)?;
    changed(call.path_at(0, 1, follows(flags), asks_for_base(flags))?, Change::Mode(call.word(2)))
}

/// chown(2).
pub fn chown(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Owner(call.word(1), call.word(2)))
}

/// lchown(2).
pub fn lchown(call: &Call<'_>) -> Decoded {
    changed(call.path(0, false)?, Change::Owner(call.word(1), call.word(2)))
}

/// fchown(2).
pub fn fchown(call: &Call<'_>) -> Decoded {
    changed(call.descriptor(0), Change::Owner(call.word(1), call.word(2)))
}

/// fchownat(2).
pub fn fchownat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[4], AT_FLAGS)?;
    let at = call.path_at(0, 1, follows(flags), asks_for_base(flags))?;
    changed(at, Change::Owner(call.word(2), call.word(3)))
}

/// access(2).
pub fn access(call: &Call<'_>) -> Decoded {
    accessed(call.path(0, true)?, call.int(1))
}

/// faccessat(2), whose system call has no flags.
pub fn faccessat(call: &Call<'_>) -> Decoded {
    accessed(call.path_at(0, 1, true, false)?, call.int(2))
}

/// faccessat2, Linux 5.8.
pub fn faccessat2(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[3], AT_FLAGS | libc::AT_EACCESS)?;
    accessed(call.path_at(0, 1, follows(flags), asks_for_base(flags))?, call.int(2))
}

fn accessed(at: Place, mode: i32) -> Decoded {
    let all = libc::R_OK | libc::W_OK | libc::X_OK;
    if mode & !all == 0 { Ok(Act::Access(at, mode)) } else { Err(Unread::Fails(Errno::EINVAL)) }
}

/// truncate(2).
pub fn truncate(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, Change::Length(call.arguments[1]))
}

/// utime(2): whole seconds.
pub fn utime(call: &Call<'_>) -> Decoded {
    let at = call.path(0, true)?;
    if call.arguments[1] == 0 {
        return changed(at, Change::Times(None));
    }
    let [access, modification] = call.longs(1)?;
    changed(at, Change::Times(Some([(access, 0), (modification, 0)])))
}

fn microseconds(times: Option<[(i64, i64); 2]>) -> Change {
    Change::Times(times.map(|times| times.map(|(seconds, fraction)| (seconds, fraction.saturating_mul(1000)))))
}

/// utimes(2): microseconds.
pub fn utimes(call: &Call<'_>) -> Decoded {
    changed(call.path(0, true)?, microseconds(call.two_times(1)?))
}

/// futimesat(2): microseconds.
pub fn futimesat(call: &Call<'_>) -> Decoded {
    let at = match call.arguments[1] {
        0 => call.descriptor(0),
        _ => call.path_at(0, 1, true, false)?,
    };
    changed(at, microseconds(call.two_times(2)?))
}

/// utimensat(2): nanoseconds; without a path the descriptor's own file.
pub fn utimensat(call: &Call<'_>) -> Decoded {
    let flags = known(call.arguments[3], AT_FLAGS)?;
    let is_base = call.arguments[1] == 0 && flags == 0 && call.int(0) != libc::AT_FDCWD;
    let at = match is_base {
        true => call.descriptor(0),
        false => call.path_at(0, 1, follows(flags), asks_for_base(flags))?,
    };
    changed(at, Change::Times(call.two_times(2)?))
}
