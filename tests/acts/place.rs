//! Where acts are done: kinds of directory, what lies in each, and the ways of naming it.

use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// A uid that is neither root's nor the command's.
pub const THIRD: u32 = 54_321;

/// A kind of directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zone {
    /// The command's own, in a tree that the policy makes read-only.
    TreeOwn,
    /// Root's, in such a tree.
    TreeRoot,
    /// The command's own, within a workspace, by `--read-only`.
    Kept,
    /// Root's, on a writable mount.
    Root,
    /// Everyone's and sticky, with a third one's files that everyone may write.
    Sticky,
    /// The command's own.
    Own,
    /// The command's own, on a mount that is read-only in the image.
    Image,
    /// Root's, there.
    ImageRoot,
    /// The command's own, with files that are immutable.
    Immutable,
    /// The command's own, with files that only grow.
    Growing,
}

pub const ZONES: [Zone; 10] = [
    Zone::TreeOwn,
    Zone::TreeRoot,
    Zone::Kept,
    Zone::Root,
    Zone::Sticky,
    Zone::Own,
    Zone::Image,
    Zone::ImageRoot,
    Zone::Immutable,
    Zone::Growing,
];

impl Zone {
    /// The directory that holds those of this kind. There are two trees, `a` and `b`, alike but for that letter.
    pub fn top(self, tree: char) -> String {
        match self {
            Zone::TreeOwn => format!("/usr/local/acts-{tree}/own"),
            Zone::TreeRoot => format!("/srv/acts-{tree}/root"),
            Zone::Kept => format!("/app/kept-{tree}"),
            Zone::Root => format!("/tmp/acts-{tree}/root"),
            Zone::Sticky => format!("/tmp/acts-{tree}/sticky"),
            Zone::Own => format!("/dev/shm/acts-{tree}/own"),
            Zone::Image => format!("/opt/acts-{tree}/image"),
            Zone::ImageRoot => format!("/mnt/acts-{tree}/image"),
            Zone::Immutable => format!("/tmp/acts-{tree}/immutable"),
            Zone::Growing => format!("/tmp/acts-{tree}/growing"),
        }
    }

    /// Whether the policy makes it read-only.
    pub fn is_read_only(self) -> bool {
        matches!(self, Zone::TreeOwn | Zone::TreeRoot | Zone::Kept)
    }

    /// Whether root would be refused as well.
    pub fn binds_root(self, errno: &str) -> bool {
        match self {
            Zone::Image | Zone::ImageRoot => errno == "EROFS",
            Zone::Immutable | Zone::Growing => true,
            _ => false,
        }
    }

    /// Owners of the directory and of what is in it, modes of both and of sockets.
    fn owners(self, user: u32) -> (u32, u32, u32, u32) {
        match self {
            Zone::TreeRoot | Zone::Root | Zone::ImageRoot => (0, 0, 0o755, 0o644),
            Zone::Sticky => (0, THIRD, 0o1777, 0o666),
            _ => (user, user, 0o755, 0o644),
        }
    }
}

/// Makes the tops of a tree, with the mounts that they need. To be called in the box, as root.
pub fn found(tree: char) {
    for zone in ZONES {
        fs::create_dir_all(zone.top(tree)).expect("mkdir");
    }
    fs::create_dir_all(links(tree)).expect("mkdir");
    symlink("/proc/thread-self/cwd", format!("{}/own-cwd", links(tree))).expect("symlink");
    symlink("/proc/self/fd", format!("{}/own-fd", links(tree))).expect("symlink");
    for zone in [Zone::Image, Zone::ImageRoot, Zone::Own] {
        tool("mount", &["-t", "tmpfs", "-o", "mode=755", "acts", &zone.top(tree)]);
    }
}

/// What comes when all is furnished.
pub fn close(tree: char) {
    for zone in [Zone::Image, Zone::ImageRoot] {
        tool("mount", &["-o", "remount,ro", &zone.top(tree)]);
    }
}

/// Where symbolic links to the directories of acts lie.
pub fn links(tree: char) -> String {
    format!("/tmp/acts-{tree}/links")
}

fn tool(program: &str, arguments: &[&str]) {
    let said = Command::new(program).args(arguments).output().unwrap_or_else(|cause| panic!("{program}: {cause}"));
    assert!(said.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
}

/// The directory of one act.
pub fn directory(zone: Zone, tree: char, id: usize) -> String {
    format!("{}/{id}", zone.top(tree))
}

/// What lies in each: regular files, directories, links, sockets, a fifo. To be called in the box, as root.
pub fn furnish(zone: Zone, tree: char, id: usize, user: u32) {
    let directory = directory(zone, tree, id);
    let (owner, others, mode, file_mode) = zone.owners(user);
    let at = |name: &str| Path::new(&directory).join(name);
    fs::create_dir(&directory).expect("mkdir");
    for name in ["dir", "full"] {
        fs::create_dir(at(name)).expect("mkdir");
    }
    for name in ["file", "other", "full/file"] {
        fs::write(at(name), "text\n").expect("write");
        fs::set_permissions(at(name), Permissions::from_mode(file_mode)).expect("chmod");
    }
    symlink("file", at("link")).expect("symlink");
    symlink("nowhere", at("dangling")).expect("symlink");
    symlink("loop", at("loop")).expect("symlink");
    symlink("/file", at("absolute")).expect("symlink");
    // Its name stays when the listener goes; for the addresses of sockets it would be too long with the directory's.
    let handle = File::open(&directory).expect("open");
    drop(UnixListener::bind(format!("/proc/self/fd/{}/socket", handle.as_raw_fd())).expect("bind"));
    fs::set_permissions(at("socket"), Permissions::from_mode(file_mode)).expect("chmod");
    for name in ["dir", "full", "full/file", "file", "other", "socket"] {
        chown(at(name), Some(others), Some(others)).expect("chown");
    }
    fs::set_permissions(&directory, Permissions::from_mode(mode)).expect("chmod");
    chown(&directory, Some(owner), Some(owner)).expect("chown");
    symlink(&directory, format!("{}/{id}-{zone:?}", links(tree))).expect("symlink");
    match zone {
        Zone::Immutable => tool("chattr", &["+i", &format!("{directory}/file")]),
        Zone::Growing => tool("chattr", &["+a", &format!("{directory}/file")]),
        _ => {}
    }
}

/// A way of naming what lies in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    Absolute,
    /// By more slashes and dots than are needed.
    Winding,
    /// From the directory.
    Here,
    /// From the directory above.
    Above,
    /// By a symbolic link to the directory.
    Linked,
    /// By links of the test's own to what /proc has of the process that looks.
    LinkedCwd,
    LinkedFd,
    /// From the directory, by as many dots as a path may hold.
    Long,
    /// By the root of this process.
    OwnRoot,
    /// By the working directory of this thread.
    OwnCwd,
    /// From /proc, by the working directory of this thread.
    FromProc,
    /// By a descriptor of the directory, in three places of /proc and /dev.
    OwnFd,
    OwnThreadsFd,
    DevFd,
    /// By a descriptor of the object itself.
    ObjectsFd,
    /// Relative to a descriptor, for calls that take one.
    AtFd,
}

pub const SPELLINGS: [Spelling; 16] = [
    Spelling::LinkedCwd,
    Spelling::LinkedFd,
    Spelling::Long,
    Spelling::Absolute,
    Spelling::Winding,
    Spelling::Here,
    Spelling::Above,
    Spelling::Linked,
    Spelling::OwnRoot,
    Spelling::OwnCwd,
    Spelling::FromProc,
    Spelling::OwnFd,
    Spelling::OwnThreadsFd,
    Spelling::DevFd,
    Spelling::ObjectsFd,
    Spelling::AtFd,
];

/// An act's surroundings, and what stands before names in the directory.
#[derive(Debug, Clone)]
pub struct Spelled {
    pub cwd: String,
    pub descriptor: String,
    /// The descriptor that *at calls are given.
    pub base: &'static str,
    prefix: String,
    whole: Option<&'static str>,
}

impl Spelled {
    /// A name of the directory's, as the call is given it.
    pub fn name(&self, name: &str) -> String {
        match self.whole {
            Some(whole) => whole.to_owned(),
            None => format!("{}{name}", self.prefix),
        }
    }
}

/// Spells the names of a directory; `object` is what [`Spelling::ObjectsFd`] opens.
pub fn spell(spelling: Spelling, zone: Zone, tree: char, id: usize, object: &str) -> Spelled {
    let directory = directory(zone, tree, id);
    let with = |cwd: &str, descriptor: &str, prefix: String| Spelled {
        cwd: cwd.to_owned(),
        descriptor: descriptor.to_owned(),
        base: "cwd",
        prefix,
        whole: None,
    };
    let opened = format!("d:{directory}");
    match spelling {
        Spelling::Absolute => with("-", "-", format!("{directory}/")),
        Spelling::Winding => with("-", "-", format!("//usr/.{}/.//dir/../", directory.replacen('/', "/../", 1))),
        Spelling::Here => with(&directory, "-", String::new()),
        Spelling::Above => with(&zone.top(tree), "-", format!("{id}/")),
        Spelling::Linked => with("-", "-", format!("{}/{id}-{zone:?}/", links(tree))),
        Spelling::LinkedCwd => with(&directory, "-", format!("{}/own-cwd/", links(tree))),
        Spelling::LinkedFd => with("-", &opened, format!("{}/own-fd/@/", links(tree))),
        Spelling::Long => with(&directory, "-", "./".repeat(2040)),
        Spelling::OwnRoot => with("-", "-", format!("/proc/self/root{directory}/")),
        Spelling::OwnCwd => with(&directory, "-", "/proc/thread-self/cwd/".into()),
        Spelling::FromProc => with("/proc", &opened, "self/fd/@/".into()),
        Spelling::OwnFd => with("-", &opened, "/proc//self/fd/@/".into()),
        Spelling::OwnThreadsFd => with("-", &opened, "/proc/thread-self/fd/@/".into()),
        Spelling::DevFd => with("-", &opened, "/dev/fd/@/".into()),
        Spelling::ObjectsFd => {
            Spelled { whole: Some("/proc/self/fd/@"), ..with("-", &format!("p:{directory}/{object}"), String::new()) }
        }
        Spelling::AtFd => Spelled { base: "@", ..with("-", &opened, String::new()) },
    }
}
