//! The objects that acts are made on: each kind of file, each owner and mode that the kernel tells apart, each fault of a
//! way to one.

/// Names in a case's directory. The first is what most acts are about.
pub const OBJECTS: &[&str] = &[
    "missing",
    "own",
    "other",
    "shared",
    "closed",
    "unreadable",
    "directory",
    "empty",
    "others",
    "everyones",
    "link",
    "dirlink",
    "otherlink",
    "dangling",
    "far",
    "loop",
    "fifo",
    "otherfifo",
    "socket",
    "null",
    "sticky/own",
    "sticky/other",
    "sticky/shared",
    "stickygroup/shared",
    "hidden/file",
    "own/below",
    "gone/below",
    "directory/file",
    "LONG",
    "bound",
    "plain",
];

pub mod furnish {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    use nix::unistd::{Gid, Uid, chown};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    /// A whole zone, which anyone may search.
    pub fn zone(zone: &str, user: u32) {
        fs::create_dir_all(zone).unwrap();
        fs::set_permissions(zone, fs::Permissions::from_mode(0o755)).unwrap();
        give(Path::new(zone), user);
    }

    fn give(path: &Path, user: u32) {
        nix::unistd::fchownat(
            nix::fcntl::AT_FDCWD,
            path,
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(user)),
            nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .unwrap();
    }

    fn file(path: PathBuf, mode: u32, owner: u32) {
        fs::write(&path, "as it was").unwrap();
        chown(&path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn directory(path: PathBuf, mode: u32, owner: u32) -> PathBuf {
        fs::create_dir(&path).unwrap();
        chown(&path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn node(path: PathBuf, kind: SFlag, mode: u32, owner: u32) {
        let device = if kind == SFlag::S_IFCHR { makedev(1, 3) } else { 0 };
        mknod(&path, kind, Mode::empty(), device).unwrap();
        chown(&path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The directory of a case: what its object needs, a file to give and a file to be named by links.
    pub fn case(at: &str, object: &str, user: u32) {
        if Path::new(at).exists() {
            return;
        }
        let at = directory(PathBuf::from(at), 0o755, user);
        file(at.join("donor"), 0o644, user);
        let path = at.join(object);
        match object.split('/').next().unwrap() {
            "missing" | "gone" | "LONG" | "bound" => {}
            "own" | "plain" => file(at.join(object.split('/').next().unwrap()), 0o644, user),
            "other" => file(path, 0o644, 0),
            "shared" => file(path, 0o666, 0),
            "closed" => file(path, 0, user),
            "unreadable" => file(path, 0o200, user),
            "directory" => file(directory(at.join("directory"), 0o755, user).join("file"), 0o644, user),
            "empty" => drop(directory(path, 0o755, user)),
            "others" => drop(directory(path, 0o755, 0)),
            "everyones" => drop(directory(path, 0o777, 0)),
            "link" => {
                symlink("donor", &path).unwrap();
                give(&path, user);
            }
            "dirlink" => {
                directory(at.join("to"), 0o755, user);
                symlink("to", &path).unwrap();
            }
            "otherlink" => {
                file(at.join("to"), 0o644, 0);
                symlink("to", &path).unwrap();
            }
            "dangling" => symlink("nothing", &path).unwrap(),
            "far" => symlink("nowhere/nothing", &path).unwrap(),
            "loop" => symlink("loop", &path).unwrap(),
            "fifo" => node(path, SFlag::S_IFIFO, 0o600, user),
            "otherfifo" => node(path, SFlag::S_IFIFO, 0o644, 0),
            "socket" => node(path, SFlag::S_IFSOCK, 0o755, user),
            "null" => node(path, SFlag::S_IFCHR, 0o666, 0),
            "sticky" | "stickygroup" => {
                let group = object.starts_with("stickygroup");
                let sticky = directory(at.join(if group { "stickygroup" } else { "sticky" }), 0o1777, 12_321);
                match object.rsplit('/').next().unwrap() {
                    "own" => file(path, 0o644, user),
                    "other" => file(path, 0o644, 0),
                    _ => file(path, 0o666, 0),
                }
                if group {
                    chown(&sticky, None, Some(Gid::from_raw(user))).unwrap();
                    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1775)).unwrap();
                }
            }
            "hidden" => file(directory(at.join("hidden"), 0o700, 0).join("file"), 0o644, user),
            other => panic!("no object {other}"),
        }
    }
}
