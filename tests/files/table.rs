//! The acts, each on each object: a call and its arguments, in which `P` is the object, `N` a name that is free beside it,
//! `D` a file beside it, `Y` a name that is free in the other zone and `Z` a file there.

use crate::objects::OBJECTS;
use crate::{READ_ONLY, WRITABLE};
use nix::libc;

/// Where a case's object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    ReadOnly,
    Writable,
}

impl Zone {
    pub fn path(self) -> &'static str {
        match self {
            Zone::ReadOnly => READ_ONLY,
            Zone::Writable => WRITABLE,
        }
    }

    fn other(self) -> Zone {
        match self {
            Zone::ReadOnly => Zone::Writable,
            Zone::Writable => Zone::ReadOnly,
        }
    }
}

/// How an object's path is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    Absolute,
    Slash,
    Dot,
    DotDot,
    /// Relative to the working directory.
    Relative,
    /// By the caller's own /proc entry.
    Self_,
}

/// One act on one object.
#[derive(Debug, Clone)]
pub struct Case {
    pub zone: Zone,
    pub object: &'static str,
    pub spelling: Spelling,
    /// The call and its arguments, parted by blanks.
    pub act: String,
    /// How the object is opened for `@`.
    descriptor: Option<char>,
}

impl Case {
    /// What it is, for people.
    pub fn what(&self) -> String {
        format!(
            "{} on {} {} as {:?}, open {:?}",
            self.act,
            self.object,
            self.zone.path(),
            self.spelling,
            self.descriptor
        )
    }

    /// Whether it opens what is neither a file nor a directory in a read-only tree.
    pub fn is_special(&self) -> bool {
        let opens = ["openat ", "openat2 ", "creat "].iter().any(|call| self.act.starts_with(call));
        self.zone == Zone::ReadOnly && opens && ["fifo", "null"].contains(&self.object)
    }

    /// The directory of its object in the zone: where nothing can be changed all acts on an object share one.
    pub fn directory(&self, id: usize) -> String {
        match self.zone {
            Zone::ReadOnly => self.object.replace('/', "-"),
            Zone::Writable => id.to_string(),
        }
    }

    /// Its line for acts.c, in this tree.
    pub fn line(&self, id: usize, tree: &str, user: u32) -> String {
        let at = format!("{}/{tree}/{}", self.zone.path(), self.directory(id));
        let beside = format!("{}/{tree}", self.zone.other().path());
        let object = self.object.replace("LONG", &"n".repeat(256));
        let path = match self.spelling {
            Spelling::Absolute => format!("{at}/{object}"),
            Spelling::Slash => format!("{at}/{object}/"),
            Spelling::Dot => format!("{at}/{object}/."),
            Spelling::DotDot => format!("{at}/{object}/.."),
            Spelling::Relative => object.clone(),
            Spelling::Self_ => format!("/proc/self/cwd/{object}"),
        };
        let words = self.act.split(' ').map(|word| match word {
            "P" => path.clone(),
            "N" => format!("{at}/free"),
            "D" => format!("{at}/donor"),
            "Y" => format!("{beside}/free{id}"),
            "Z" => format!("{beside}/given{id}"),
            "A" => format!("unix:{path}"),
            "UID" | "GID" => user.to_string(),
            "EMPTY" => String::new(),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        let descriptor = self.descriptor.map_or("-".to_owned(), |how| match how {
            's' => "s:unix:stream".to_owned(),
            how => format!("{how}:{at}/{object}"),
        });
        format!("{id}\tdirect\t{at}\t{descriptor}\t{}", words.join("\t"))
    }
}

fn flags(all: &[libc::c_int]) -> i32 {
    all.iter().fold(libc::O_NONBLOCK, |all, flag| all | flag)
}

/// The acts by path.
fn by_path() -> Vec<String> {
    use libc::{
        O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC,
        O_WRONLY,
    };
    let opens: [&[i32]; 22] = [
        &[O_WRONLY],
        &[O_RDWR],
        &[O_WRONLY, O_APPEND],
        &[O_WRONLY, O_TRUNC],
        &[O_RDONLY, O_TRUNC],
        &[O_WRONLY, O_CREAT],
        &[O_RDWR, O_CREAT],
        &[O_RDONLY, O_CREAT],
        &[O_WRONLY, O_CREAT, O_EXCL],
        &[O_RDONLY, O_CREAT, O_EXCL],
        &[O_WRONLY, O_CREAT, O_TRUNC],
        &[O_WRONLY, O_NOFOLLOW],
        &[O_WRONLY, O_CREAT, O_NOFOLLOW],
        &[O_WRONLY, O_TMPFILE],
        &[O_RDWR, O_TMPFILE, O_EXCL],
        &[O_RDONLY, O_NOATIME],
        &[O_WRONLY, O_NOATIME],
        &[O_WRONLY, O_DIRECTORY],
        &[O_PATH, O_WRONLY],
        &[3],
        &[3, O_TRUNC],
        &[O_WRONLY, O_CREAT, O_DIRECTORY],
    ];
    let mut acts: Vec<String> = opens.iter().map(|all| format!("openat cwd P {} 420", flags(all))).collect();
    for (all, resolve) in [(&[O_WRONLY][..], 4), (&[O_WRONLY], 2), (&[O_WRONLY, O_CREAT], 2), (&[O_WRONLY, O_CREAT], 4)]
    {
        let mode = if all.contains(&O_CREAT) { 420 } else { 0 };
        acts.push(format!("openat2 cwd P {}:{mode}:{resolve}", flags(all)));
    }
    let fifo = libc::S_IFIFO | 0o644;
    let (regular, device, whiteout) = (libc::S_IFREG | 0o644, libc::S_IFCHR | 0o644, libc::S_IFCHR);
    let (directory, wrong) = (libc::S_IFDIR | 0o755, 0o130_644);
    acts.extend([
        format!("creat P {}", 0o644),
        format!("mkdir P {}", 0o755),
        format!("mknod P {fifo} 0"),
        format!("mknod P {regular} 0"),
        format!("mknod P {device} 259"),
        format!("mknod P {whiteout} 0"),
        format!("mknod P {directory} 0"),
        format!("mknod P {wrong} 0"),
        format!("chmod P {}", 0o600),
        format!("fchmodat2 cwd P {} 256", 0o600),
        format!("fchmodat2 cwd P {} 1", 0o600),
    ]);
    let rest = [
        "symlink somewhere P",
        "symlink EMPTY P",
        "link P N",
        "link D P",
        "link Z P",
        "link P Y",
        "linkat cwd P cwd N 1024",
        "linkat cwd P cwd N 1",
        "rename P N",
        "rename D P",
        "rename Z P",
        "rename P Y",
        "renameat2 cwd D cwd P 1",
        "renameat2 cwd D cwd P 2",
        "renameat2 cwd D cwd P 3",
        "renameat2 cwd P cwd N 4",
        "renameat2 cwd P cwd N 16",
        "unlink P",
        "rmdir P",
        "unlinkat cwd P 1",
        "chown P UID GID",
        "chown P 4294967295 4294967295",
        "chown P 0 0",
        "lchown P UID GID",
        "fchownat cwd P UID GID 256",
        "fchownat cwd P UID GID 2",
        "utimensat cwd P null 0",
        "utimensat cwd P fixed 0",
        "utimensat cwd P fixed 256",
        "utimensat cwd P now 0",
        "utimensat cwd P omit 0",
        "utimensat cwd P wrong 0",
        "utime P null",
        "utime P fixed",
        "utimes P null",
        "utimes P fixed",
        "futimesat cwd P fixed",
        "setxattr P user.note new 0",
        "setxattr P user.note new 2",
        "setxattr P user.note new 8",
        "setxattr P EMPTY new 0",
        "setxattr P trusted.note new 0",
        "setxattr P security.note new 0",
        "setxattr P nothing.note new 0",
        "lsetxattr P user.note new 0",
        "removexattr P user.note",
        "lremovexattr P user.note",
        "setxattrat cwd P 0 user.note new",
        "removexattrat cwd P 256 user.note",
        "file_setattr cwd P 16 28 0",
        "truncate P 3",
        "truncate P 18446744073709551615",
        "access P 2",
        "access P 7",
        "access P 6",
        "access P 10",
        "faccessat cwd P 2",
        "faccessat2 cwd P 2 256",
        "faccessat2 cwd P 2 512",
        "faccessat2 cwd P 2 1",
    ];
    acts.extend(rest.map(str::to_owned));
    acts
}

/// The acts on a descriptor.
const BY_DESCRIPTOR: &[&str] = &[
    "fchmod @ 384",
    "fchmodat2 @ EMPTY 384 4096",
    "fchmodat2 @ EMPTY 384 0",
    "fchown @ UID GID",
    "fchown @ 0 0",
    "fchownat @ EMPTY UID GID 4096",
    "utimensat @ null fixed 0",
    "utimensat @ null null 0",
    "utimensat @ EMPTY fixed 4096",
    "futimesat @ null fixed",
    "fsetxattr @ user.note new 0",
    "fsetxattr @ trusted.note new 0",
    "fremovexattr @ user.note",
    "setxattrat @ EMPTY 4096 user.note new",
    "ioctl @ 1074292226 64",
    "fssetxattr @ 1075599392 64",
    "faccessat2 @ EMPTY 2 4096",
    "linkat @ EMPTY cwd N 4096",
    "linkat @ EMPTY cwd D 4096",
    "openat cwd /proc/self/fd/@ 2049 0",
    "chmod /proc/self/fd/@ 384",
    "chmod /proc/self/fd/@/. 384",
    "truncate /proc/self/fd/@ 3",
];

/// Objects that the user may open to read; of any one its place can be held.
const READABLE: &[&str] =
    &["own", "other", "shared", "directory", "empty", "others", "link", "fifo", "null", "sticky/own"];
const PLACES: &[&str] = &["own", "other", "closed", "unreadable", "directory", "socket", "fifo", "null"];

/// Acts on every object in both zones by the plain spelling, and some on some by the others.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let by_path = by_path();
    for zone in [Zone::ReadOnly, Zone::Writable] {
        for object in OBJECTS.iter().filter(|object| **object != "plain") {
            if *object == "bound" {
                for object in ["own", "missing", "directory", "dangling", "hidden/file"] {
                    let act = "bind @ A".to_owned();
                    let spelling = Spelling::Relative;
                    cases.push(Case { zone, object, spelling, act, descriptor: Some('s') });
                }
                continue;
            }
            // To open a pipe without O_NONBLOCK is to wait for its other end.
            for act in by_path.iter().filter(|act| !(act.starts_with("creat ") && object.ends_with("fifo"))) {
                cases.push(Case { zone, object, spelling: Spelling::Absolute, act: act.clone(), descriptor: None });
            }
        }
        for object in ["missing", "own", "directory", "dirlink", "link", "dangling", "hidden/file", "other"] {
            for spelling in [Spelling::Slash, Spelling::Dot, Spelling::DotDot, Spelling::Relative, Spelling::Self_] {
                for act in &by_path {
                    cases.push(Case { zone, object, spelling, act: act.clone(), descriptor: None });
                }
            }
        }
        for act in BY_DESCRIPTOR {
            for (objects, how) in [(READABLE, 'r'), (PLACES, 'p')] {
                for object in objects {
                    let (spelling, act) = (Spelling::Absolute, (*act).to_owned());
                    cases.push(Case { zone, object, spelling, act, descriptor: Some(how) });
                }
            }
        }
    }
    cases
}
