//! Deeds on names and contents: opening, making, linking, moving, taking away.

use super::place::Zone;
use super::table::*;
use Via::*;
use Zone::*;

pub const NAMES: &[Deed] = &[
    Deed::new(
        "write",
        "file",
        &[
            (C, "open", "P WRONLY/RDWR/WRONLY+NONBLOCK/RDWR+CLOEXEC/WRONLY+NOCTTY 0"),
            (C, "openat", "D P WRONLY/RDWR/WRONLY+DSYNC/RDWR+CLOEXEC 0"),
            (C, "openat2", "D P how:WRONLY/RDWR/RDWR+CLOEXEC:0:0"),
            (Python, "openat", "open P WRONLY/RDWR D"),
            (Python, "openat", "file P r+"),
        ],
        written,
    )
    .by_link(),
    Deed::new(
        "append",
        "file",
        &[
            (C, "open", "P WRONLY+APPEND 0"),
            (C, "openat", "D P WRONLY+APPEND/WRONLY+APPEND+CREAT 0600"),
            (Python, "openat", "file P a"),
            (Sh, "openat", ": >> P"),
        ],
        |zone| if zone == Growing { OK } else { written(zone) },
    )
    .by_link(),
    Deed::new(
        "truncate-by-open",
        "file",
        &[
            (C, "open", "P WRONLY+TRUNC/RDWR+TRUNC/WRONLY+TRUNC+CREAT 0600"),
            (C, "openat", "D P WRONLY+TRUNC/RDONLY+TRUNC/RDWR+CREAT+TRUNC 0600"),
            (C, "creat", "P 0600"),
            (C, "openat2", "D P how:WRONLY+TRUNC:0:0"),
            (Python, "openat", "file P w"),
            (Sh, "openat", ": > P"),
        ],
        rewritten,
    )
    .by_link(),
    Deed::new(
        "write-beneath",
        "file",
        &[(C, "openat2", "D P how:WRONLY/RDWR:0:BENEATH/NO_MAGICLINKS+BENEATH")],
        |zone| {
            // Only names that stay beneath: see `script`.
            written(zone)
        },
    ),
    Deed::new("write-in-root", "file", &[(C, "openat2", "D /file how:WRONLY:0:IN_ROOT")], written),
    Deed::new("write-in-root-by-link", "file", &[(C, "openat2", "D /absolute how:WRONLY:0:IN_ROOT")], written),
    Deed::new(
        "create",
        "new",
        &[
            (C, "open", "P WRONLY+CREAT/RDWR+CREAT+EXCL/RDONLY+CREAT 0644"),
            (C, "openat", "D P WRONLY+CREAT/WRONLY+CREAT+EXCL+CLOEXEC/RDONLY+CREAT+EXCL 0444"),
            (C, "openat2", "D P how:WRONLY+CREAT+EXCL/WRONLY+CREAT:0444:0"),
            (C, "creat", "P 0444"),
            (Python, "openat", "file P x"),
            (Python, "openat", "open P WRONLY+CREAT D"),
            (Sh, "openat", ": > P"),
        ],
        made,
    ),
    Deed::new(
        "create-where-a-link-leads",
        "dangling",
        &[
            (C, "open", "P WRONLY+CREAT 0444/0644"),
            (C, "openat", "D P RDWR+CREAT 0444/0600"),
            (C, "creat", "P 0400"),
            (Python, "openat", "file P w"),
        ],
        made,
    )
    .leads_to("nowhere"),
    Deed::new(
        "create-what-is-there",
        "file",
        &[
            (C, "open", "P WRONLY+CREAT+EXCL 0644"),
            (C, "openat2", "D P how:RDWR+CREAT+EXCL:0600:0"),
            (C, "mkdir", "P 0755"),
            (C, "mkdirat", "D P 0755"),
            (C, "mknodat", "D P 0010644 0"),
            (C, "symlinkat", "text D P"),
            (Python, "mkdir", "mkdir P D"),
            (Python, "openat", "file P x"),
            (Sh, "mkdir", "mkdir P"),
        ],
        |zone| everywhere(Some("EEXIST"), zone),
    ),
    Deed::new("bind-what-is-there", "file", &[(C, "bind", "S A")], |zone| everywhere(Some("EADDRINUSE"), zone)),
    Deed::new(
        "make-directory",
        "new",
        &[(C, "mkdir", "P 0755"), (C, "mkdirat", "D P 0700"), (Python, "mkdir", "mkdir P D"), (Sh, "mkdir", "mkdir P")],
        made,
    ),
    Deed::new(
        "make-node",
        "new",
        &[
            (C, "mknod", "P 0010644/0100644/0140600 0"),
            (C, "mknodat", "D P 0010644/0100600 0"),
            (Python, "mknodat", "mkfifo P D"),
            (Sh, "mknodat", "mkfifo P"),
        ],
        made,
    ),
    Deed::new("make-device", "new", &[(C, "mknod", "P 0020644 0x103"), (C, "mknodat", "D P 0060644 0x700")], |zone| {
        match zone {
            Sticky | Own => EPERM,
            Immutable | Growing => None,
            zone => made(zone),
        }
    }),
    Deed::new(
        "make-temporary",
        ".",
        &[(C, "openat", "D %dir/.. RDWR+TMPFILE/WRONLY+TMPFILE 0600")],
        |zone| match zone {
            Immutable | Growing => None,
            zone => made(zone),
        },
    ),
    Deed::new(
        "make-symlink",
        "new",
        &[
            (C, "symlink", "text P"),
            (C, "symlinkat", "/etc/passwd D P"),
            (Python, "symlink", "symlink text P D"),
            (Sh, "symlinkat", "ln -s text P"),
        ],
        made,
    ),
    Deed::new("make-socket", "new", &[(C, "bind", "S A")], made),
    Deed::new(
        "link",
        "file",
        &[
            (C, "link", "P Q"),
            (C, "linkat", "D P D Q 0/0x400"),
            (Python, "link", "link P Q D"),
            (Sh, "linkat", "ln P Q"),
        ],
        |zone| match zone {
            // proc_sys_fs(5), protected_hardlinks.
            Root => EPERM,
            zone => written_or_made(zone),
        },
    )
    .with("new"),
    Deed::new(
        "link-to-what-is-there",
        "file",
        &[(C, "link", "P Q"), (C, "linkat", "D P D Q 0"), (Sh, "linkat", "ln P Q")],
        |zone| everywhere(Some("EEXIST"), zone),
    )
    .with("other"),
    Deed::new(
        "rename",
        "file",
        &[
            (C, "rename", "P Q"),
            (C, "renameat", "D P D Q"),
            (C, "renameat2", "D P D Q 0/1"),
            (Python, "rename", "rename P Q D"),
        ],
        taken,
    )
    .with("new"),
    Deed::new("rename-directory", "dir", &[(C, "rename", "P Q"), (C, "renameat2", "D P D Q 1")], |zone| match zone {
        Immutable | Growing => None,
        zone => taken(zone),
    })
    .with("new"),
    // From one directory into another: a tree that is read-only, or root's on the same mount.
    Deed::new("link-into-a-tree", "other", &[(C, "link", "P Q"), (C, "linkat", "D P cwd Q 0")], |zone| {
        only(zone, &[Own, Sticky, Root], EROFS)
    })
    .with(INTO_TREE),
    Deed::new("rename-into-a-tree", "other", &[(C, "rename", "P Q"), (Python, "rename", "rename P Q cwd")], |zone| {
        only(zone, &[Own, Sticky, Root], Some("EXDEV"))
    })
    .with(INTO_TREE),
    Deed::new("link-into-roots", "other", &[(C, "link", "P Q"), (Sh, "linkat", "ln P Q")], |zone| {
        only(zone, &[Immutable], EACCES)
    })
    .with(INTO_ROOTS),
    Deed::new(
        "rename-into-roots",
        "other",
        &[(C, "rename", "P Q"), (C, "renameat2", "D P cwd Q 1")],
        |zone| match zone {
            Immutable | Root => EACCES,
            Sticky => EPERM,
            _ => None,
        },
    )
    .with(INTO_ROOTS),
    Deed::new("exchange", "file", &[(C, "renameat2", "D P D Q 2")], taken).with("other"),
    Deed::new("rename-what-is-not-there", "missing", &[(C, "rename", "P Q"), (C, "renameat2", "D P D Q 2")], gone)
        .with("other"),
    Deed::new(
        "unlink",
        "file",
        &[(C, "unlink", "P"), (C, "unlinkat", "D P 0"), (Python, "unlink", "unlink P D"), (Sh, "unlink", "unlink P")],
        taken,
    ),
    Deed::new(
        "unlink-what-is-not-there",
        "missing",
        &[(C, "unlink", "P"), (C, "unlinkat", "D P 0"), (Python, "unlink", "unlink P D"), (Sh, "unlink", "unlink P")],
        gone,
    ),
    Deed::new(
        "remove-directory",
        "dir",
        &[(C, "rmdir", "P"), (C, "unlinkat", "D P 0x200"), (Python, "rmdir", "rmdir P"), (Sh, "rmdir", "rmdir P")],
        |zone| match zone {
            Immutable | Growing => None,
            zone => taken(zone),
        },
    ),
    Deed::new("remove-full-directory", "full", &[(C, "rmdir", "P"), (Sh, "rmdir", "rmdir P")], |zone| {
        if zone == Own { Some("ENOTEMPTY") } else { None }
    }),
    Deed::new("remove-directory-that-is-none", "file", &[(C, "rmdir", "P")], |zone| {
        if zone == Own { Some("ENOTDIR") } else { None }
    }),
];
