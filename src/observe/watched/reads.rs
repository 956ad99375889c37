//! The calls that only read, which are looked at in a run with shields or watched paths, and in no other.

use super::{Read, Reading, Table};
use crate::observe::decode;
use crate::plan::means::{Reads, Terms};

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
    // By descriptor and an empty path most of the last ones ask for the descriptor's own file: registers do not tell.
    let by_path: [(&'static str, Read); 24] = [
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
        ("newfstatat", decode::look_flags_fourth),
        ("fstatat64", decode::look_flags_fourth),
        ("statx", decode::look_flags_third),
        ("faccessat2", decode::look_flags_fourth),
        ("name_to_handle_at", decode::look_for_handle),
        ("getxattrat", decode::look_flags_third),
        ("listxattrat", decode::look_flags_third),
        ("file_getattr", decode::look_flags_fifth),
        ("fanotify_mark", decode::look_to_mark),
    ];
    for (call, reading) in by_path {
        table.path(call, reading);
    }
}
