//! The calls that only read, which are looked at in a run with shields or watched paths, and in no other.

use super::{PERMISSION, Read, Reading, Table};
use crate::confine::rules::Condition;
use crate::observe::decode;
use crate::plan::means::{Reads, Terms};
use nix::libc;

/// Adds those that the terms ask for.
pub(super) fn reads(table: &mut Table, terms: &Terms) {
    if terms.reads == Reads::Unseen {
        return;
    }
    table.path("open", decode::open);
    table.path("openat", decode::openat);
    for entry in table.0.iter_mut().filter(|entry| entry.call == "openat2") {
        entry.reading = Reading::Act(decode::openat2_whole);
    }
    if terms.reads == Reads::Opens {
        return;
    }
    let by_path: [(&'static str, Read); 15] = [
        ("stat", decode::look),
        ("lstat", decode::look_at_link),
        // By these names 32-bit programs have the first two.
        ("stat64", decode::look),
        ("lstat64", decode::look_at_link),
        ("access", decode::look),
        ("faccessat", decode::look_at),
        ("readlink", decode::look_at_link),
        ("readlinkat", decode::look_at_link_at),
        ("chdir", decode::look),
        ("statfs", decode::look),
        ("getxattr", decode::look),
        ("lgetxattr", decode::look_at_link),
        ("listxattr", decode::look),
        ("llistxattr", decode::look_at_link),
        ("inotify_add_watch", decode::look_second),
    ];
    for (call, reading) in by_path {
        table.path(call, reading);
    }
    // With this flag most ask for a descriptor's own file. Where a mask is mounted it holds without anyone looking.
    let of_path = |argument| {
        let unset = Condition::Is { argument, mask: libc::AT_EMPTY_PATH as u64, value: 0 };
        if terms.by_landlock() { Vec::new() } else { vec![vec![unset]] }
    };
    for (call, flags, reading) in [
        ("newfstatat", 3, decode::look_flags_fourth as Read),
        ("fstatat64", 3, decode::look_flags_fourth),
        ("statx", 2, decode::look_flags_third),
        ("faccessat2", 3, decode::look_flags_fourth),
        ("name_to_handle_at", 4, decode::look_flags_fifth),
    ] {
        table.act(call, of_path(flags), reading, None, PERMISSION);
    }
}
