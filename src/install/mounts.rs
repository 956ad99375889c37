//! The private mount namespace: read-only trees, the writable set over them, files and masks mounted over, all read back.
//!
//! Nothing here touches the image: every change is a mount in a namespace that ends with its last process.

use super::covers::Covers;
use super::mountinfo::{self, Mount};
use super::shields::Files;
use crate::mutation;
use crate::sys::{self, MountAttr};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::chdir;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the command's view of the file system must be. Paths are absolute and free of symbolic links.
#[derive(Debug, Clone, Default)]
pub struct MountPlan {
    /// Trees that are read-only with everything mounted beneath them; none lies within another.
    pub read_only: Vec<PathBuf>,
    /// Everything but the writable set is read-only (posture locked).
    pub whole_read_only: bool,
    /// The writable set.
    pub writable: Vec<Writable>,
    /// Read-only again, inside what is writable.
    pub read_only_within: Vec<PathBuf>,
    /// set-id bits and file capabilities are void on every mount.
    pub nosuid: bool,
    /// Files mounted over files of the image.
    pub files: Vec<Overlay>,
    /// Files and directories replaced by an empty one that nobody but root may open.
    pub masks: Vec<PathBuf>,
    /// Files and directories that are masked likewise, whatever else the policy leaves open; their other names among them.
    pub shields: Vec<PathBuf>,
    /// Which files the shields were when they were looked at.
    pub shield_files: Files,
    /// Of the shields, directories of objects that git directories borrow.
    pub borrowed: Vec<PathBuf>,
    /// Git directories that others are mounted over.
    pub git: Vec<GitCover>,
    /// Sockets that stay in reach within a masked directory.
    pub exposed: Vec<PathBuf>,
}

impl MountPlan {
    /// The writable set, less /proc: it stays as it is, and takes no files.
    pub fn writable_set(&self) -> Vec<PathBuf> {
        self.writable.iter().map(|w| w.path.clone()).filter(|path| path != Path::new("/proc")).collect()
    }

    /// Every tree that is read-only.
    pub fn protected_trees(&self) -> Vec<PathBuf> {
        let root = self.whole_read_only.then(|| PathBuf::from("/"));
        root.into_iter().chain(self.read_only.iter().cloned()).chain(self.read_only_within.iter().cloned()).collect()
    }

    /// The masks and the shields that are mounted: what lies in another one could not be mounted over any more.
    pub(super) fn masked(&self) -> Vec<&PathBuf> {
        let masks = self.masks.iter().filter(|_| !mutation::left_out("masks"));
        let shields = self.shields.iter().filter(|_| !mutation::left_out("shields"));
        let all: Vec<&PathBuf> = masks.chain(shields).collect();
        let mut outermost: Vec<&PathBuf> = all.clone();
        outermost.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
        outermost.sort();
        outermost.dedup();
        outermost
    }

    /// Masks one more path, unless it lies in what is masked already.
    pub fn mask(&mut self, path: &Path) {
        if !self.masks.iter().any(|mask| path.starts_with(mask)) {
            self.masks.push(path.into());
        }
    }

    /// Other names by which the mounts show the read-only trees, less those that the policy lets be written.
    fn aliases(&self, reachable: &[&Mount]) -> Vec<PathBuf> {
        let mut aliases = mountinfo::aliases(reachable, &self.read_only);
        aliases.retain(|alias| !self.writable.iter().any(|w| alias.starts_with(&w.path)));
        aliases
    }

    /// The directories on the way to a read-only path or a mask within what is writable: each becomes a mount of its own, which
    /// cannot be renamed (EBUSY). Else the command moves one away with the mount in it, and what it then puts under the
    /// old name is what others find there.
    pub fn pinned(&self) -> Vec<PathBuf> {
        let mounted = |path: &Path| {
            self.writable.iter().any(|w| w.path == path) || self.read_only_within.iter().any(|r| r == path)
        };
        let in_writable = |mask: &&PathBuf| self.writable.iter().any(|w| mask.starts_with(&w.path));
        // Who can move the way to a shield puts another file where a verifier looks for it, wherever that is.
        let masked = self.masks.iter().filter(in_writable).chain(&self.shields);
        let within = self.read_only_within.iter().chain(masked).chain(self.git.iter().map(|git| &git.directory));
        let above = within.flat_map(|path| path.ancestors().skip(1));
        let mut pinned: Vec<PathBuf> = above
            .filter(|path| *path != Path::new("/") && !mounted(path) && !self.protects(path))
            .map(Path::to_owned)
            .collect();
        pinned.sort();
        pinned.dedup();
        pinned
    }

    /// Whether a path must be read-only: the innermost of the paths that hold it decides.
    pub fn protects(&self, path: &Path) -> bool {
        let depth = |holding: &Path| path.starts_with(holding).then(|| holding.components().count());
        let writable = self.writable.iter().filter_map(|w| depth(&w.path)).max();
        let trees = self.read_only.iter().chain(&self.read_only_within).filter_map(|t| depth(t)).max();
        let protected = if self.whole_read_only { trees.max(Some(1)) } else { trees };
        protected.is_some() && protected > writable
    }
}

/// A path that the command may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writable {
    /// The path.
    pub path: PathBuf,
    /// Whether it is mounted with root's and the command's ids exchanged (mount_setattr(2), MOUNT_ATTR_IDMAP).
    pub idmapped: bool,
}

/// A git directory with another one mounted over it, which holds a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitCover {
    /// The real one.
    pub directory: PathBuf,
    /// The other one; the run has it made.
    pub store: PathBuf,
    /// Whether it is mounted with root's and the command's ids exchanged, as the path that holds it.
    pub idmapped: bool,
    /// Whether the command may only read it.
    pub read_only: bool,
}

/// A file's content as the command shall see it.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// The file of the image that is covered.
    pub target: PathBuf,
    /// What is seen instead.
    pub content: Vec<u8>,
}

/// Why the view could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A call failed.
    #[error("{call} on {path}: {errno}", path = path.display())]
    Call {
        /// The call.
        call: &'static str,
        /// Its object.
        path: PathBuf,
        /// Its errno.
        errno: Errno,
    },
    /// /proc/self/mountinfo could not be read or understood.
    #[error("read /proc/self/mountinfo: {0}")]
    Mountinfo(String),
    /// What the kernel holds is not what was meant.
    #[error("mount at {path} is not as planned: {fault}", path = path.display())]
    NotAsPlanned {
        /// The mount's point.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
}

pub(super) fn failed(call: &'static str, path: &Path) -> impl FnOnce(Errno) -> MountError {
    let path = path.to_owned();
    move |errno| MountError::Call { call, path, errno }
}

pub(super) fn c_path(path: &Path) -> Result<CString, MountError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("open", path)(Errno::EINVAL))
}

/// The plan's paths have no symbolic link in them; one that is met now was put there since, by who owns a directory above.
pub(super) fn pin(path: &Path) -> Result<OwnedFd, MountError> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, path, how).map_err(failed("openat2", path))
}

pub(super) fn clone_tree(path: &Path, recursive: bool) -> Result<OwnedFd, MountError> {
    sys::clone_tree(pin(path)?.as_fd(), c"", recursive).map_err(failed("open_tree", path))
}

/// Puts the calling, single-threaded process into a mount namespace of its own in which the plan holds.
///
/// `userns` carries the id mapping of idmapped workspaces; it is needed when any writable path is idmapped.
pub fn enter(plan: &MountPlan, userns: Option<BorrowedFd<'_>>) -> Result<(), MountError> {
    unshare_mounts().map_err(failed("unshare", Path::new("mount namespace")))?;
    if !mutation::left_out("propagation") {
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .map_err(failed("mount", Path::new("/")))?;
    }
    let covers = Covers::make(plan)?;
    let mounts = read_mountinfo()?;
    let reachable = mountinfo::reachable(&mounts);
    // The same file by another mount is the same file, wherever the policy lets that one be written.
    let elsewhere = mountinfo::aliases(&reachable, &plan.read_only_within);
    // The writable set is copied before the trees are covered, so that the copies are of the originals.
    let mut writable = Vec::new();
    // Without the step that makes HOME, what is missing there is missing here.
    for entry in plan.writable.iter().filter(|w| !mutation::left_out("home") || w.path.exists()) {
        writable.push((entry.path.as_path(), Layer::Writable(writable_tree(entry, userns)?)));
    }
    let mut git = Vec::new();
    for cover in plan.git.iter().filter(|_| !mutation::left_out("shield-git")) {
        git.push((cover.directory.as_path(), Layer::Git(git_tree(cover, userns)?)));
    }
    if plan.whole_read_only {
        if !mutation::left_out("read-only") {
            set_recursively(Path::new("/"), sys::ATTR_RDONLY)?;
        }
    } else {
        let aliases = plan.aliases(&reachable);
        let trees = plan.read_only.iter().filter(|_| !mutation::left_out("read-only"));
        for path in trees.chain(aliases.iter().filter(|_| !mutation::left_out("aliases"))) {
            cover_read_only(path)?;
        }
    }
    // Outer ones first, so that of two that lie within each other the inner one decides.
    let pinned = plan.pinned();
    let read_only = plan.read_only_within.iter().map(|path| (path.as_path(), Layer::ReadOnly));
    let pins = pinned.iter().map(|path| (path.as_path(), Layer::Pinned));
    let mut within: Vec<(&Path, Layer)> = read_only.chain(pins).chain(writable).chain(git).collect();
    within.sort_by_key(|(path, _)| path.components().count());
    for (path, layer) in within {
        match layer {
            Layer::Writable(tree) if !mutation::left_out("writable") => attach(&tree, path)?,
            Layer::Git(tree) => attach(&tree, path)?,
            Layer::ReadOnly if !mutation::left_out("read-only-within") => cover_read_only(path)?,
            Layer::Pinned if !mutation::left_out("read-only-within") => attach(&clone_tree(path, true)?, path)?,
            _ => {}
        }
    }
    for alias in elsewhere.iter().filter(|_| !mutation::left_out("aliases")) {
        cover_read_only(alias)?;
    }
    covers.attach()?;
    if plan.nosuid && !mutation::left_out("nosuid") {
        set_recursively(Path::new("/"), sys::ATTR_NOSUID)?;
    }
    chdir("/").map_err(failed("chdir", Path::new("/")))?;
    compare(plan, &read_mountinfo()?)
}

/// What is mounted at a path of the plan, one within the other.
enum Layer {
    Writable(OwnedFd),
    Git(OwnedFd),
    ReadOnly,
    /// The same as before, as a mount of its own.
    Pinned,
}

/// Moves the calling process into a mount namespace of its own. Where the call only says so, every mount that follows would
/// be the caller's: then it is EPERM.
pub fn unshare_mounts() -> Result<(), Errno> {
    let own =
        || std::fs::read_link("/proc/self/ns/mnt").map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)));
    let before = own()?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    if own()? == before { Err(Errno::EPERM) } else { Ok(()) }
}

pub(super) fn attach(tree: &OwnedFd, path: &Path) -> Result<(), MountError> {
    sys::move_mount(tree.as_fd(), pin(path)?.as_fd()).map_err(failed("move_mount", path))
}

/// Mounts a tree over itself, read-only with everything beneath it.
pub(super) fn cover_read_only(path: &Path) -> Result<(), MountError> {
    let tree = clone_tree(path, true)?;
    let read_only = MountAttr { set: sys::ATTR_RDONLY, ..MountAttr::default() };
    sys::mount_setattr(tree.as_fd(), true, &read_only).map_err(failed("mount_setattr", path))?;
    attach(&tree, path)
}

fn set_recursively(path: &Path, attribute: u64) -> Result<(), MountError> {
    let attr = MountAttr { set: attribute, ..MountAttr::default() };
    sys::mount_setattr(pin(path)?.as_fd(), true, &attr).map_err(failed("mount_setattr", path))
}

fn git_tree(cover: &GitCover, userns: Option<BorrowedFd<'_>>) -> Result<OwnedFd, MountError> {
    let tree = writable_tree(&Writable { path: cover.store.clone(), idmapped: cover.idmapped }, userns)?;
    if cover.read_only {
        let read_only = MountAttr { set: sys::ATTR_RDONLY, ..MountAttr::default() };
        sys::mount_setattr(tree.as_fd(), true, &read_only).map_err(failed("mount_setattr", &cover.store))?;
    }
    Ok(tree)
}

fn writable_tree(entry: &Writable, userns: Option<BorrowedFd<'_>>) -> Result<OwnedFd, MountError> {
    use std::os::fd::AsRawFd;
    let tree = clone_tree(&entry.path, true)?;
    // A writable path may lie on a tree that is covered read-only; its own mount starts writable unless the image says otherwise.
    if entry.idmapped && !mutation::left_out("workspace") {
        let userns = userns.ok_or_else(|| failed("mount_setattr", &entry.path)(Errno::EBADF))?;
        let attr = MountAttr { set: sys::ATTR_IDMAP, userns_fd: userns.as_raw_fd() as u64, ..MountAttr::default() };
        sys::mount_setattr(tree.as_fd(), false, &attr).map_err(failed("mount_setattr", &entry.path))?;
    }
    Ok(tree)
}

/// Reads this process's mountinfo.
pub fn read_mountinfo() -> Result<Vec<Mount>, MountError> {
    let content = std::fs::read("/proc/self/mountinfo").map_err(|e| MountError::Mountinfo(e.to_string()))?;
    mountinfo::parse(&content).ok_or_else(|| MountError::Mountinfo("a line has an unknown form".into()))
}

/// Holds what the kernel shows against the plan.
pub fn compare(plan: &MountPlan, mounts: &[Mount]) -> Result<(), MountError> {
    let reachable = mountinfo::reachable(mounts);
    compare_options(plan, &reachable)?;
    compare_guards(plan, &reachable)?;
    let writable = plan.writable.iter().map(|w| &w.path).filter(|_| !mutation::left_out("writable"));
    let writable = writable.filter(|path| !mutation::left_out("home") || path.exists());
    compare_points(writable.cloned(), &reachable)
}

/// Whether something is mounted wherever the plan keeps the command from what is below.
pub fn compare_guards(plan: &MountPlan, reachable: &[&Mount]) -> Result<(), MountError> {
    compare_points(guarded(plan).into_iter(), reachable)
}

fn compare_points(mut points: impl Iterator<Item = PathBuf>, reachable: &[&Mount]) -> Result<(), MountError> {
    match points.find(|point| !reachable.iter().any(|mount| mount.point == *point)) {
        Some(path) => Err(MountError::NotAsPlanned { path, fault: "nothing is mounted there" }),
        None => Ok(()),
    }
}

/// Whether every mount that is reached has the options that the plan wants there.
pub fn compare_options(plan: &MountPlan, reachable: &[&Mount]) -> Result<(), MountError> {
    let not_as_planned = |mount: &Mount, fault| Err(MountError::NotAsPlanned { path: mount.point.clone(), fault });
    for mount in reachable {
        if !mutation::left_out("propagation") && !mount.propagation.is_empty() {
            return not_as_planned(mount, "it still takes part in propagation");
        }
        if plan.nosuid && !mutation::left_out("nosuid") && !mount.has("nosuid") {
            return not_as_planned(mount, "set-id bits still count");
        }
        let trees = mutation::left_out("read-only") || mutation::left_out("read-only-within");
        if plan.protects(&mount.point) && !trees && !mount.read_only() {
            return not_as_planned(mount, "it is writable");
        }
    }
    let trees = plan.aliases(reachable).into_iter().filter(|_| !plan.whole_read_only);
    let elsewhere = mountinfo::aliases(reachable, &plan.read_only_within);
    for alias in trees.chain(elsewhere).filter(|_| !mutation::left_out("aliases")) {
        match mountinfo::holding(reachable, &alias) {
            Some(mount) if !mount.read_only() => {
                return not_as_planned(mount, "it shows a read-only tree under another name and is writable");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where the plan has something mounted that keeps the command from what is below it.
pub fn guarded(plan: &MountPlan) -> Vec<PathBuf> {
    let covered = plan.files.iter().map(|f| &f.target).filter(|_| !mutation::left_out("account"));
    let masked = plan.masked();
    let trees = plan.read_only.iter().filter(|_| !plan.whole_read_only && !mutation::left_out("read-only"));
    let pinned = plan.pinned();
    let within = plan.read_only_within.iter().chain(&pinned).filter(|_| !mutation::left_out("read-only-within"));
    let git = plan.git.iter().map(|git| &git.directory).filter(|_| !mutation::left_out("shield-git"));
    covered.chain(masked).chain(trees).chain(within).chain(git).cloned().collect()
}
