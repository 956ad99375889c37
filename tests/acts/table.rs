//! What is to be expected of each act, written down from the kernel's manual and its source, not from ringfence.

use super::place::Zone;
use Zone::*;

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The static program, by the system call's own name.
    C,
    /// Python's `os`.
    Python,
    /// A program that a shell starts, or the shell itself.
    Sh,
}
use Via::*;

/// One form of an act: who does it, by which system call, and with which words. Of the words `P` is a name of the object,
/// `Q` one of the second object, `D` what a name is relative to, `F` a descriptor of the object, `A` an address of the
/// object, `R` the object's absolute path without its first slash. Alternatives are parted by `/`, flags joined by `+`.
pub type Form = (Via, &'static str, &'static str);

/// What is done to an object in a directory, in all forms, and the errno for each kind of directory.
pub struct Deed {
    pub name: &'static str,
    /// The names of the object and of the second one.
    pub objects: (&'static str, &'static str),
    pub forms: &'static [Form],
    pub errno: fn(Zone) -> Option<&'static str>,
    /// Whether it is refused by ordinary permission wherever the object lies.
    pub ordinary: bool,
    /// Whether root would be refused as well.
    pub binds_root: bool,
    /// Whether a last component that is a link to the object will do.
    pub by_link: bool,
    /// The name of what is recorded, where a link leads from the object to it.
    pub leads_to: Option<&'static str>,
}

impl Deed {
    const fn new(
        name: &'static str,
        object: &'static str,
        forms: &'static [Form],
        errno: fn(Zone) -> Option<&'static str>,
    ) -> Deed {
        Deed {
            name,
            objects: (object, ""),
            forms,
            errno,
            ordinary: false,
            binds_root: false,
            by_link: false,
            leads_to: None,
        }
    }

    const fn with(self, second: &'static str) -> Deed {
        Deed { objects: (self.objects.0, second), ..self }
    }

    const fn ordinary(self) -> Deed {
        Deed { ordinary: true, ..self }
    }

    const fn binds_root(self) -> Deed {
        Deed { binds_root: true, ..self }
    }

    const fn leads_to(self, name: &'static str) -> Deed {
        Deed { leads_to: Some(name), ..self }
    }

    const fn by_link(self) -> Deed {
        Deed { by_link: true, ..self }
    }
}

const OK: Option<&str> = Some("ok");
const EROFS: Option<&str> = Some("EROFS");
const EACCES: Option<&str> = Some("EACCES");
const EPERM: Option<&str> = Some("EPERM");

/// What needs the right to write a file that is there.
fn written(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot => EROFS,
        // Its mode is looked at before its mount.
        TreeRoot | Root => EACCES,
        Sticky | Own => OK,
        Immutable | Growing => EPERM,
    }
}

/// The same, where the mount is looked at first.
fn rewritten(zone: Zone) -> Option<&'static str> {
    if zone == TreeRoot { EROFS } else { written(zone) }
}

/// What needs the right to write the directory.
fn made(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot | TreeRoot => EROFS,
        Root => EACCES,
        Sticky | Own | Immutable | Growing => OK,
    }
}

/// What takes away a name that is another's, in a directory where that matters.
fn taken(zone: Zone) -> Option<&'static str> {
    if zone == Sticky { EPERM } else { written_or_made(zone) }
}

fn written_or_made(zone: Zone) -> Option<&'static str> {
    match zone {
        Immutable | Growing => EPERM,
        zone => made(zone),
    }
}

/// What only the owner may do.
fn owned(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot | TreeRoot => EROFS,
        Root | Sticky | Immutable | Growing => EPERM,
        Own => OK,
    }
}

fn only(zone: Zone, zones: &[Zone], errno: Option<&'static str>) -> Option<&'static str> {
    zones.contains(&zone).then_some(errno).flatten()
}

/// Every errno that is no refusal, wherever the act is done.
fn everywhere(errno: Option<&'static str>, zone: Zone) -> Option<&'static str> {
    if matches!(zone, Immutable | Growing) { None } else { errno }
}

/// Second objects elsewhere: a name that is free in a directory of another kind.
pub const INTO_TREE: &str = "(tree)";
pub const INTO_ROOTS: &str = "(root)";

/// What takes a file's contents for writing, without making it.
const WRITE: Deed = Deed::new(
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
.by_link();

pub const DEEDS: &[Deed] = &[
    WRITE,
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
    Deed::new(
        "chmod",
        "file",
        &[
            (C, "chmod", "P 0600"),
            (C, "fchmodat", "D P 0640"),
            (C, "fchmodat2", "D P 0600 0"),
            (C, "fchmod", "F 0600"),
            (Python, "chmod", "chmod P D"),
            (Python, "fchmod", "chmod F cwd"),
            (Sh, "fchmodat", "chmod 0600 P"),
        ],
        owned,
    )
    .by_link(),
    Deed::new(
        "chmod-directory",
        "dir",
        &[(C, "chmod", "P 0700"), (Sh, "fchmodat", "chmod 0700 P")],
        |zone| match zone {
            Immutable | Growing => None,
            zone => owned(zone),
        },
    ),
    Deed::new(
        "chown-to-own",
        "file",
        &[
            (C, "chown", "P -1 GID"),
            (C, "lchown", "P -1 GID"),
            (C, "fchownat", "D P UID -1 0/0x100"),
            (C, "fchown", "F -1 GID"),
            (Python, "chown", "chown P GID cwd"),
            (Sh, "fchownat", "chown :GID P"),
        ],
        owned,
    ),
    Deed::new(
        "chown-to-another",
        "file",
        &[
            (C, "chown", "P 1 -1"),
            (C, "fchownat", "D P -1 1 0"),
            (C, "fchown", "F 1 1"),
            (Python, "fchown", "chown F 1 cwd"),
            (Sh, "fchownat", "chown 1 P"),
        ],
        |zone| if zone == Own { EPERM } else { owned(zone) },
    ),
    Deed::new("chown-nothing", "file", &[(C, "chown", "P -1 -1"), (C, "fchown", "F -1 -1")], |zone| match zone {
        Immutable | Growing => None,
        Root | Sticky => OK,
        zone => owned(zone),
    }),
    Deed::new("truncate", "file", &[(C, "truncate", "P 0/3"), (Python, "truncate", "truncate P")], written).by_link(),
    Deed::new(
        "set-times",
        "file",
        &[
            (C, "utime", "P set"),
            (C, "utimes", "P set"),
            (C, "futimesat", "D P set"),
            (C, "utimensat", "D P set 0"),
            (C, "utimensat", "F null set 0"),
            (Python, "utimensat", "utime P set D"),
            (Python, "utimensat", "utime F set cwd"),
            (Sh, "utimensat", "touch -c -d @1 P"),
        ],
        owned,
    )
    .by_link(),
    Deed::new(
        "touch",
        "file",
        &[
            (C, "utime", "P null"),
            (C, "utimes", "P null"),
            (C, "utimensat", "D P now/null 0"),
            (C, "utimensat", "F null null 0"),
            (Python, "utimensat", "utime P now D"),
            (Sh, "utimensat", "touch -c P"),
        ],
        |zone| match zone {
            Growing => OK,
            Immutable => EPERM,
            zone => rewritten(zone),
        },
    )
    .by_link(),
    Deed::new("set-no-times", "file", &[(C, "utimensat", "D P omit 0"), (C, "utimensat", "F null omit 0")], |_| OK),
    Deed::new(
        "set-attribute",
        "file",
        &[
            (C, "setxattr", "P user.x y 0"),
            (C, "lsetxattr", "P user.x y 0"),
            (C, "fsetxattr", "F user.x y 0"),
            (C, "setxattrat", "D P 0 user.x y"),
            (Python, "setxattr", "setxattr P user.x"),
        ],
        rewritten,
    ),
    Deed::new(
        "remove-attribute",
        "file",
        &[
            (C, "removexattr", "P user.x"),
            (C, "lremovexattr", "P user.x"),
            (C, "fremovexattr", "F user.x"),
            (C, "removexattrat", "D P 0 user.x"),
            (Python, "removexattr", "removexattr P user.x"),
        ],
        |zone| match rewritten(zone) {
            Some("ok") => Some("ENODATA"),
            errno => errno,
        },
    ),
    Deed::new(
        "set-attribute-of-root",
        "file",
        &[(C, "setxattr", "P trusted.x/security.test y 0"), (Python, "setxattr", "setxattr P trusted.x")],
        |zone| if zone == Own || zone == Sticky { EPERM } else { owned(zone) },
    ),
    Deed::new(
        "set-attribute-of-socket",
        "socket",
        &[(C, "setxattr", "P user.x y 0"), (C, "removexattr", "P user.x")],
        |zone| only(zone, &[Own, Root, Sticky], EPERM),
    )
    .binds_root(),
    // A directory that is sticky takes attributes from its owner only; a link takes none from anyone (xattr(7)).
    Deed::new("set-attribute-of-sticky", ".", &[(C, "setxattr", "%dir/.. user.x y 0")], |zone| {
        only(zone, &[Sticky], EPERM)
    }),
    Deed::new("set-attribute-of-link", "link", &[(C, "lsetxattr", "P user.x y 0")], |zone| only(zone, &[Own], EPERM))
        .binds_root(),
    // FS_IOC_SETFLAGS with FS_IMMUTABLE_FL, FS_IOC_FSSETXATTR with FS_XFLAG_IMMUTABLE.
    Deed::new("set-flags", "file", &[(C, "ioctl", "F 0x40086602 0x10"), (C, "fssetxattr", "F 0x401c5820 8")], |zone| {
        if zone == Own {
            EPERM
        } else {
            only(zone, &[TreeOwn, TreeRoot, Kept, Image, ImageRoot, Root, Sticky], owned(zone))
        }
    }),
    Deed::new(
        "leave-no-time",
        "file",
        &[(C, "open", "P RDONLY+NOATIME 0"), (C, "openat", "D P RDONLY+NOATIME 0")],
        |zone| match zone {
            TreeRoot | Root | ImageRoot | Sticky => EPERM,
            _ => OK,
        },
    )
    .ordinary(),
    Deed::new(
        "read",
        "file",
        &[
            (C, "openat", "D P RDONLY 0"),
            (C, "openat", "D P RDONLY+NOFOLLOW+CLOEXEC 0"),
            (C, "openat", "D P WRONLY+PATH 0"),
            (C, "openat2", "D P how:RDONLY:0:0"),
            (Python, "openat", "file P r"),
            (Sh, "openat", ": < P"),
        ],
        |_| OK,
    ),
    Deed::new(
        "reach",
        "socket",
        &[(C, "connect", "S A"), (C, "sendto", "G x 0 A"), (Python, "connect", "connect P")],
        |zone| match zone {
            TreeRoot | Root | ImageRoot => EACCES,
            _ => Some("ECONNREFUSED"),
        },
    )
    .ordinary(),
    // Refused for what they are before anyone looks at the object.
    Deed::new(
        "no-such-name",
        "missing",
        &[
            (C, "open", "P WRONLY 0"),
            (C, "openat", "D P RDWR+TRUNC 0"),
            (C, "chmod", "P 0600"),
            (C, "truncate", "P 0"),
            (C, "fchownat", "D P 0 0 0"),
            (C, "setxattr", "P user.x y 0"),
            (C, "link", "P %new"),
            (C, "mkdirat", "D %missing/new 0755"),
            (C, "open", "%missing/new WRONLY+CREAT 0600"),
            (C, "unlink", "%missing/new"),
            (Python, "chmod", "chmod P D"),
            (Python, "openat", "file P r+"),
            (Sh, "mkdir", "mkdir %missing/new"),
        ],
        |zone| everywhere(Some("ENOENT"), zone),
    ),
    Deed::new(
        "no-directory",
        "file",
        &[
            (C, "mkdirat", "D %file/new 0755"),
            (C, "open", "%file/new WRONLY+CREAT 0600"),
            (C, "unlinkat", "D %file/new 0"),
            (C, "chmod", "%file/new 0600"),
            (C, "open", "P WRONLY+DIRECTORY 0"),
        ],
        |zone| everywhere(Some("ENOTDIR"), zone),
    ),
    Deed::new(
        "a-circle-of-links",
        "loop",
        &[
            (C, "open", "P WRONLY 0"),
            (C, "openat", "D P RDWR+CREAT 0600"),
            (C, "chmod", "P 0600"),
            (C, "truncate", "P 0"),
            (C, "openat", "D %link WRONLY+NOFOLLOW 0"),
            (C, "openat2", "D %link how:WRONLY:0:NO_SYMLINKS"),
        ],
        |zone| everywhere(Some("ELOOP"), zone),
    ),
    Deed::new(
        "a-name-too-long",
        "LONG",
        &[(C, "open", "P WRONLY+CREAT 0600"), (C, "mkdirat", "D P 0755"), (C, "unlink", "P"), (C, "chmod", "P 0600")],
        |zone| if zone == Own || zone == Root { Some("ENAMETOOLONG") } else { None },
    ),
    // Recorded as it is spelled: see `script`.
    Deed::new("change-root", "dir", &[(C, "chroot", "P")], |zone| everywhere(EPERM, zone)).ordinary(),
    Deed::new("write-a-directory", "dir", &[(C, "open", "P WRONLY 0"), (C, "openat", "D P RDWR+CREAT 0600")], |zone| {
        everywhere(Some("EISDIR"), zone)
    }),
    Deed::new(
        "by-a-descriptor-that-is-only-a-place",
        "file",
        &[
            (C, "fchmod", "O 0600"),
            (C, "fchown", "O 0 0"),
            (C, "fsetxattr", "O user.x y 0"),
            (C, "utimensat", "O null set 0"),
        ],
        |zone| everywhere(Some("EBADF"), zone),
    ),
    Deed::new(
        "by-no-descriptor",
        "file",
        &[
            (C, "fchmod", "77 0600"),
            (C, "mkdirat", "77 new 0755"),
            (C, "openat", "77 file WRONLY 0"),
            (C, "connect", "77 A"),
            (C, "bind", "77 A"),
            (C, "utimensat", "77 null set 0"),
        ],
        |zone| everywhere(Some("EBADF"), zone),
    ),
    Deed::new("reach-by-a-file", "socket", &[(C, "connect", "F A"), (C, "bind", "F A")], |zone| {
        everywhere(Some("ENOTSOCK"), zone)
    }),
    Deed::new("reach-by-another-family", "socket", &[(C, "connect", "N A")], |zone| {
        everywhere(Some("EAFNOSUPPORT"), zone)
    }),
    Deed::new("bind-by-another-family", "new", &[(C, "bind", "N A")], |zone| everywhere(Some("EAFNOSUPPORT"), zone)),
];

/// A name that is not there, in a call that looks at the mount first.
fn gone(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | TreeRoot | Kept | Image | ImageRoot => EROFS,
        _ => Some("ENOENT"),
    }
}

/// What needs privilege, wherever it is done: the call, its words, the errno, the object's text or none, the rule.
///
/// A kernel may be built without some; then they are ENOSYS for everyone.
pub struct Privileged(pub &'static str, pub &'static str, pub &'static str, pub Option<&'static str>, pub &'static str);

/// The axis of these is privilege. Each is made so that it does nothing even where it is allowed.
pub const PRIVILEGED: &[Privileged] = &[
    Privileged("mount", "none /nowhere acts 0 0", "EPERM", Some("mount"), "mount"),
    Privileged("umount2", "/nowhere 2", "EPERM", Some("umount2"), "mount"),
    Privileged("pivot_root", "/nowhere /nowhere", "EPERM", Some("pivot_root"), "mount"),
    Privileged("open_tree", "-1 /nowhere 1", "EPERM", Some("open_tree"), "mount"),
    Privileged("move_mount", "-1 a -1 b 0", "EPERM", Some("move_mount"), "mount"),
    Privileged("fsopen", "nothing 0", "EPERM", Some("fsopen"), "mount"),
    Privileged("fspick", "-1 nothing 0", "EPERM", Some("fspick"), "mount"),
    Privileged("mount_setattr", "-1 nothing 0 z 0", "EPERM", Some("mount_setattr"), "mount"),
    Privileged("setns", "-1 0", "EPERM", Some("type 0x0"), "mount"),
    Privileged("unshare", "0x10000000", "EPERM", Some("flags 0x10000000"), "namespaces"),
    Privileged("unshare", "0x20000", "EPERM", Some("flags 0x20000"), "namespaces"),
    Privileged("unshare", "0x40000000", "EPERM", Some("flags 0x40000000"), "namespaces"),
    Privileged("clone", "0x10000011 0 0 0 0", "EPERM", Some("flags 0x10000000"), "namespaces"),
    Privileged("clone", "0x8000011 0 0 0 0", "EPERM", Some("flags 0x8000000"), "namespaces"),
    Privileged("setuid", "0", "EPERM", Some("uid 0"), "identity"),
    Privileged("setreuid", "0 -1", "EPERM", Some("uid 0"), "identity"),
    Privileged("setresuid", "-1 0 -1", "EPERM", Some("uid 0"), "identity"),
    Privileged("setgid", "0", "EPERM", Some("gid 0"), "identity"),
    Privileged("setregid", "-1 1", "EPERM", Some("gid 1"), "identity"),
    Privileged("setresgid", "-1 -1 0", "EPERM", Some("gid 0"), "identity"),
    Privileged("setgroups", "0 0", "EPERM", Some("setgroups"), "capability"),
    Privileged("capset", "21", "EPERM", None, "capability"),
    Privileged("bpf", "5 z 128", "EPERM", Some("command 5"), "capability"),
    Privileged("perf_event_open", "p 0 -1 -1 0", "EACCES", Some("perf_event_open"), "capability"),
    Privileged("init_module", "z 0 x", "EPERM", Some("init_module"), "capability"),
    Privileged("finit_module", "-1 x 0", "EPERM", Some("finit_module"), "capability"),
    Privileged("delete_module", "nothing 0", "EPERM", Some("nothing"), "capability"),
    Privileged("kexec_load", "0 99 z 0", "EPERM", Some("kexec_load"), "capability"),
    Privileged("reboot", "1 2 3 0", "EPERM", Some("reboot"), "capability"),
    Privileged("swapon", "/nowhere 0", "EPERM", Some("/nowhere"), "capability"),
    Privileged("swapoff", "/nowhere", "EPERM", Some("/nowhere"), "capability"),
    Privileged("settimeofday", "0 z", "EPERM", Some("settimeofday"), "capability"),
    Privileged("adjtimex", "m", "EPERM", Some("adjtimex"), "capability"),
    Privileged("keyctl", "1 0", "ENOSYS", Some("operation 1"), "keyring"),
    Privileged("add_key", "user x y -2", "ENOSYS", Some("add_key"), "keyring"),
    Privileged("request_key", "user x null -2", "ENOSYS", Some("request_key"), "keyring"),
    Privileged("open_by_handle_at", "cwd h 0", "EPERM", Some("open_by_handle_at"), "capability"),
    Privileged("open_by_handle_at", "@ h 0", "EPERM", Some("open_by_handle_at"), "capability"),
    Privileged("ptrace", "16 1 0 0", "EPERM", Some("pid 1"), "trace"),
    Privileged("ptrace", "0x4206 1 0 0", "EPERM", Some("pid 1"), "trace"),
    Privileged("acct", "/nowhere", "EPERM", Some("/nowhere"), "capability"),
    Privileged("chroot", "/tmp", "EPERM", Some("/tmp"), "capability"),
    Privileged("chroot", ".", "EPERM", Some("."), "capability"),
    Privileged("sethostname", "x -1", "EPERM", Some("sethostname"), "capability"),
    Privileged("setdomainname", "x -1", "EPERM", Some("setdomainname"), "capability"),
    Privileged("syslog", "3 0 -1", "EPERM", Some("syslog"), "capability"),
    Privileged("fanotify_init", "0 0", "EPERM", Some("fanotify_init"), "capability"),
    Privileged("userfaultfd", "0", "EPERM", Some("userfaultfd"), "capability"),
    Privileged("iopl", "3", "EPERM", Some("iopl"), "capability"),
    Privileged("ioperm", "1 1 1", "EPERM", Some("ioperm"), "capability"),
    Privileged("vhangup", "", "EPERM", Some("vhangup"), "capability"),
    Privileged("socket", "2 3 1", "EPERM", Some("family 2 type 3 protocol 1"), "capability"),
    Privileged("socket", "10 0x80003 58", "EPERM", Some("family 10 type 3 protocol 58"), "capability"),
    Privileged("socket", "17 3 0", "EPERM", Some("family 17 type 3 protocol 0"), "socket-family"),
    Privileged("ioctl", "0 0x5412 65", "EPERM", Some("request 0x5412"), "terminal-input"),
    Privileged("i386", "", "ENOSYS", Some("call 20 of 0x40000003"), "abi"),
    Privileged("x32", "", "ENOSYS", Some("call 1073741863 of 0xc000003e"), "abi"),
    Privileged("bind", "N inet:127.0.0.1:22", "EACCES", Some("port 22"), "permission"),
    Privileged("bind", "M inet6:::1:1023", "EACCES", Some("port 1023"), "permission"),
];

/// Of the network, refused by the filter.
pub const SOCKETS: &[Privileged] = &[
    Privileged("socket", "40 1 0", "EPERM", Some("family 40 type 1 protocol 0"), "socket-family"),
    Privileged("socket", "38 5 0", "EPERM", Some("family 38 type 5 protocol 0"), "socket-family"),
    Privileged("socket", "2 1 262", "EPROTONOSUPPORT", Some("family 2 type 1 protocol 262"), "socket-protocol"),
];

/// Allowed, or refused to everyone: no denials.
pub const ORDINARY: &[(&str, &str, &str)] = &[
    ("setuid", "UID", "ok"),
    ("setresuid", "-1 UID -1", "ok"),
    ("setresgid", "GID GID GID", "ok"),
    ("setuid", "-1", "EINVAL"),
    ("unshare", "0x200", "ok"),
    ("socket", "2 1 0", "ok"),
    ("socket", "1 2 0", "ok"),
    ("socket", "16 3 0", "ok"),
    ("socket", "10 2 17", "ok"),
    ("io_uring_setup", "8 z", "ENOSYS"),
    ("ptrace", "16 2147483647 0 0", "ESRCH"),
    ("ptrace", "16 pid 0 0", "EPERM"),
    ("chroot", "/nowhere", "ENOENT"),
    ("bind", "N inet:127.0.0.1:0", "ok"),
    ("bind", "N inet:10.99.99.99:22", "EADDRNOTAVAIL"),
    ("connect", "N inet:127.0.0.1:1", "ECONNREFUSED"),
    ("connect", "M inet6:::1:1", "ECONNREFUSED"),
    ("open", "/dev/null WRONLY 0", "ok"),
    ("open", "/dev/null WRONLY+CREAT+TRUNC 0666", "ok"),
    ("openat", "cwd /dev/full RDWR 0", "ok"),
    ("open", "/proc/self/oom_score_adj WRONLY 0", "ok"),
    ("open", "/proc/self/comm WRONLY+TRUNC 0", "ok"),
    ("open", "/proc/thread-self/comm RDWR 0", "ok"),
    ("open", "/proc/sys/kernel/ostype RDONLY 0", "ok"),
    ("open", "/sys/kernel/uevent_seqnum WRONLY 0", "EACCES"),
    ("fsetxattr", "0 user.x y 0", "EPERM"),
    ("clone", "0x11 0 0 0 0", "ok"),
];
