//! The root file system of the box: a private view that is thrown away with the world.
//!
//! The machine's own root lies below an overlay whose upper layer is in memory. So tests run the machine's real
//! programs, every write stays in the upper layer, and that layer shows afterwards what a run left in the image.

use crate::address::RESOLVER4;
use crate::error::{Doing, Error};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, pivot_root};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What the box's root holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// The machine's own root below an overlay, as a container's root is.
    Machine,
    /// Nothing but `/dev`, `/proc`, `/sys`, `/tmp` and what a test puts in.
    Empty,
}

/// Who resolves the names of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// The world's resolver alone.
    World,
    /// The machine's resolvers and its hosts file.
    Machine,
}

/// Where the layers are put together; any directory that every machine has does.
const BENCH: &str = "/mnt";
/// The directories that the box has besides the machine's own.
const TREES: [&str; 17] = [
    "usr",
    "etc",
    "opt",
    "boot",
    "srv",
    "root",
    "home",
    "var/log",
    "var/tmp",
    "app",
    "workspace",
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "mnt",
];

/// Gives the calling thread a mount namespace of its own with the image as its root. `expose` is the machine's
/// directory that must be there under its own path (the repository), whatever file system it is on. The answer is the
/// in-memory directory that holds the layers: it is mounted nowhere in the box, where it would be a way past
/// read-only mounts.
pub(crate) fn enter(image: Image, expose: &Path, names: Names) -> Result<File, Error> {
    unshare(CloneFlags::CLONE_NEWNS).doing("unshare(CLONE_NEWNS)")?;
    attach("none", "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    attach("tmpfs", BENCH, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
    let bench = Path::new(BENCH);
    let root = bench.join("root");
    for layer in ["root", "upper", "work"] {
        let path = bench.join(layer);
        fs::create_dir(&path).doing(format!("mkdir {}", path.display()))?;
    }
    match image {
        Image::Machine => {
            let layers = format!("lowerdir=/,upperdir={BENCH}/upper,workdir={BENCH}/work");
            attach("overlay", &root, Some("overlay"), MsFlags::empty(), Some(&layers))?;
        }
        Image::Empty => attach(bench.join("upper"), &root, None, MsFlags::MS_BIND, None)?,
    }
    let trees: &[&str] = if image == Image::Machine { &TREES } else { &["proc", "sys", "dev", "run", "tmp"] };
    for tree in trees {
        make_directory(&root.join(tree))?;
    }
    furnish(&root)?;
    if image == Image::Machine {
        name_service(&root, names)?;
        expose_directory(&root, expose)?;
    }
    let layers = File::open(bench).doing("open the layers")?;
    chdir(&root).doing("chdir to the new root")?;
    pivot_root(".", ".").doing("pivot_root")?;
    // The old root now lies over the new one, and so does what it had mounted.
    umount2(".", MntFlags::MNT_DETACH).doing("umount of the old root")?;
    chdir("/").doing("chdir /")?;
    Ok(layers)
}

/// Kernel file systems and in-memory directories, as a container runtime sets them up.
fn furnish(root: &Path) -> Result<(), Error> {
    let none = MsFlags::empty();
    attach("proc", root.join("proc"), Some("proc"), none, None)?;
    attach("sysfs", root.join("sys"), Some("sysfs"), none, None)?;
    let groups = Path::new("sys/fs/cgroup");
    if root.join(groups).is_dir() && Path::new("/").join(groups).is_dir() {
        attach(Path::new("/").join(groups), root.join(groups), None, MsFlags::MS_BIND | MsFlags::MS_REC, None)?;
    }
    attach("tmpfs", root.join("run"), Some("tmpfs"), none, Some("mode=0755"))?;
    attach("tmpfs", root.join("tmp"), Some("tmpfs"), none, Some("mode=1777"))?;
    let dev = root.join("dev");
    attach("tmpfs", &dev, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=0755"))?;
    for node in ["null", "zero", "full", "random", "urandom", "tty", "loop-control"] {
        let (theirs, ours) = (Path::new("/dev").join(node), dev.join(node));
        if theirs.exists() {
            fs::write(&ours, "").doing(format!("create {}", ours.display()))?;
            attach(theirs, &ours, None, MsFlags::MS_BIND, None)?;
        }
    }
    for (directory, kind, flags, data) in [
        // Terminals are devices.
        ("pts", "devpts", MsFlags::MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"),
        ("shm", "tmpfs", MsFlags::MS_NODEV, "mode=1777"),
    ] {
        make_directory(&dev.join(directory))?;
        attach(kind, dev.join(directory), Some(kind), MsFlags::MS_NOSUID | flags, Some(data))?;
    }
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, dev.join(name)).doing(format!("symlink /dev/{name}"))?;
    }
    Ok(())
}

fn name_service(root: &Path, names: Names) -> Result<(), Error> {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").doing("read the host's name")?;
    let texts = match names {
        Names::World => [
            format!("nameserver {RESOLVER4}\noptions timeout:2 attempts:1\n"),
            format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {own}"),
        ],
        Names::Machine => [
            fs::read_to_string("/etc/resolv.conf").doing("read /etc/resolv.conf")?,
            fs::read_to_string("/etc/hosts").doing("read /etc/hosts")?,
        ],
    };
    for (file, text) in ["etc/resolv.conf", "etc/hosts"].into_iter().zip(texts) {
        let path = root.join(file);
        // On many machines the file is a link into /run.
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(cause),
            _ => fs::write(&path, text),
        }
        .doing(format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The overlay shows the root's file system alone; a directory on another one is bound in.
fn expose_directory(root: &Path, directory: &Path) -> Result<(), Error> {
    let inside: PathBuf = root.join(directory.strip_prefix("/").unwrap_or(directory));
    if fs::read_dir(&inside).is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(());
    }
    make_directory(&inside)?;
    attach(directory, &inside, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)
}

fn make_directory(path: &Path) -> Result<(), Error> {
    let made = !path.exists();
    fs::create_dir_all(path).doing(format!("mkdir -p {}", path.display()))?;
    if made {
        // The process's umask is the caller's affair and must not show in the image.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).doing(format!("chmod {}", path.display()))?;
    }
    Ok(())
}

fn attach(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> Result<(), Error> {
    let (source, target) = (source.as_ref(), target.as_ref());
    mount(Some(source), target, kind, flags, data).doing(format!("mount {kind:?} on {} ({data:?})", target.display()))
}

/// Mounts a fresh in-memory file system, whose mounts can be idmapped (Linux 6.3), on a directory of the box.
pub(crate) fn mount_memory(directory: &Path) -> Result<(), Error> {
    make_directory(directory)?;
    attach("tmpfs", directory, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
}

/// Mounts a fresh ext4 file system of 64 MiB on a directory of the box; its blocks lie in `layers`, in memory.
pub(crate) fn mount_ext4(layers: &Path, directory: &Path) -> Result<(), Error> {
    make_directory(directory)?;
    let target = directory.to_string_lossy().into_owned();
    let blocks = layers.join(format!("ext4{}", target.replace('/', "-")));
    let file = File::create_new(&blocks).doing(format!("create {}", blocks.display()))?;
    file.set_len(64 << 20).doing(format!("ftruncate {}", blocks.display()))?;
    loop_nodes()?;
    let blocks = blocks.to_string_lossy();
    tool("mkfs.ext4", &["-q", "-F", &blocks])?;
    // The loop device clears itself when the mount goes, and the mount goes with the world.
    tool("mount", &["-o", "loop", &blocks, &target])
}

/// The kernel hands out the first free loop device; its node may not be there yet.
fn loop_nodes() -> Result<(), Error> {
    use nix::sys::stat::{SFlag, makedev, mknod};
    for minor in 0..16 {
        let path = format!("/dev/loop{minor}");
        if !Path::new(&path).exists() {
            mknod(path.as_str(), SFlag::S_IFBLK, Mode::from_bits_truncate(0o600), makedev(7, minor))
                .doing(format!("mknod {path}"))?;
        }
    }
    Ok(())
}

fn tool(program: &str, arguments: &[&str]) -> Result<(), Error> {
    let output = std::process::Command::new(program).args(arguments).output().doing(format!("run {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Tool {
        tool: format!("{program} {}", arguments.join(" ")),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
