//! Deeds on what a file is, on sockets, and what is refused for its form before anyone looks at the object.

use super::place::Zone;
use super::table::*;
use Via::*;
use Zone::*;

pub const CHANGES: &[Deed] = &[
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
