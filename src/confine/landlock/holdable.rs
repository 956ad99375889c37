//! What of a view of the file system cannot be held without mounts, found before anything is put in force.

use super::Barrier;
use crate::install::mounts::MountPlan;
use crate::observe::watched::Ids;
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, lstat};
use nix::unistd::{geteuid, getgroups};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether Landlock and the observer can hold a plan's read-only trees, its writable set and its masks for a command of these
/// ids. Files to be mounted over others are not looked at: whoever makes the plan leaves them out.
///
/// # Errors
/// What takes a mount, with its path: a tree within what may be written, a mask of what its mode leaves open, a workspace
/// that is to be mounted with other ids, a directory that the command may write beside a tree in it.
pub fn holdable(plan: &MountPlan, ids: Ids) -> Result<(), String> {
    let barrier = Barrier::of(plan).map_err(|error| error.to_string())?;
    let who = Who::of(ids).map_err(|errno| format!("getgroups: {errno}"))?;
    if let Some(workspace) = plan.writable.iter().find(|writable| writable.idmapped) {
        return Err(format!(
            "{}: it can be mounted with the command's ids only where mounts are",
            workspace.path.display()
        ));
    }
    for writable in barrier.writable() {
        if let Some(tree) = barrier.protected_beneath(writable) {
            let (tree, writable) = (tree.display(), writable.display());
            return Err(format!("{tree}: read-only within {writable}, which takes a mount"));
        }
    }
    if let Some(tree) = barrier.protected_beneath(Path::new("/proc")) {
        return Err(format!("{}: processes come and go beside it, so that it takes a mount", tree.display()));
    }
    for mask in &plan.masks {
        if who.may_open(mask) {
            return Err(format!(
                "{}: its mode leaves it open to uid {}, and a mask takes a mount",
                mask.display(),
                ids.uid
            ));
        }
    }
    // Landlock gives no names to a directory above a tree: where the command could have made some, that would be a denial
    // that no policy asks for.
    for tree in barrier.trees() {
        for above in tree.ancestors().skip(1).filter(|above| !barrier.protects(above)) {
            if who.may(above, Mode::S_IWOTH.bits() | Mode::S_IXOTH.bits()) {
                let (above, tree) = (above.display(), tree.display());
                return Err(format!("{tree}: uid {} may write {above} around it, so that it takes a mount", ids.uid));
            }
        }
    }
    Ok(())
}

/// Whom modes are held against.
struct Who {
    uid: u32,
    groups: Vec<u32>,
}

impl Who {
    /// The command has its own group alone, or the groups of this process where it keeps its uid.
    fn of(ids: Ids) -> Result<Who, Errno> {
        let mut groups = vec![ids.gid];
        if geteuid().as_raw() == ids.uid {
            groups.extend(getgroups()?.into_iter().map(nix::unistd::Gid::as_raw));
        }
        Ok(Who { uid: ids.uid, groups })
    }

    /// The permission bits, as those for others, that a mode gives; all of them where an access list may give more, and to
    /// the owner, who may give them to itself.
    fn bits(&self, path: &Path, stat: &FileStat) -> u32 {
        const ALL: u32 = 0o7;
        match () {
            () if stat.st_uid == self.uid || has_access_list(path) => ALL,
            () if self.groups.contains(&stat.st_gid) => stat.st_mode >> 3 & ALL,
            () => stat.st_mode & ALL,
        }
    }

    /// Whether all of `bits` are given at a path that can be reached; what cannot be looked at is closed, if it is there.
    fn may(&self, path: &Path, bits: u32) -> bool {
        let search = Mode::S_IXOTH.bits();
        let reached = path.ancestors().skip(1).all(|above| match lstat(above) {
            Ok(stat) => self.bits(above, &stat) & search != 0,
            Err(_) => false,
        });
        reached && lstat(path).is_ok_and(|stat| self.bits(path, &stat) & bits == bits)
    }

    fn may_open(&self, path: &Path) -> bool {
        let link = lstat(path).is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits());
        !link && [0o1, 0o2, 0o4].into_iter().any(|bit| self.may(path, bit))
    }
}

/// Whether a file has an access list beside its mode (acl(5)).
fn has_access_list(path: &Path) -> bool {
    use crate::sys::call::{Argument, call};
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return true };
    let name = Argument::Text(c"system.posix_acl_access");
    // The size is asked for, and nothing is written.
    match call(libc::SYS_lgetxattr, [Argument::Text(&path), name, Argument::Number(0), Argument::Number(0)]) {
        Ok(_) => true,
        Err(Errno::ENODATA | Errno::EOPNOTSUPP | Errno::ENOENT) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::mounts::Writable;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::PathBuf;
    use std::slice;

    const IDS: Ids = Ids { uid: 54_321, gid: 54_322 };

    /// A directory of root's, of which everyone may pass through.
    fn directory() -> tempfile::TempDir {
        let directory =
            tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir_in("/var").unwrap();
        fs::create_dir(directory.path().join("tree")).unwrap();
        directory
    }

    fn plan(read_only: &[PathBuf], writable: &[PathBuf], masks: &[PathBuf]) -> MountPlan {
        let writable = writable.iter().map(|path| Writable { path: path.clone(), idmapped: false }).collect();
        MountPlan { read_only: read_only.to_vec(), writable, masks: masks.to_vec(), ..MountPlan::default() }
    }

    fn fault(plan: &MountPlan) -> String {
        holdable(plan, IDS).unwrap_err()
    }

    #[test]
    fn trees_and_what_may_be_written_in_them_are_held() {
        let at = directory();
        let (tree, open) = (at.path().join("tree"), at.path().join("tree/open"));
        assert_eq!(holdable(&plan(slice::from_ref(&tree), slice::from_ref(&open), &[]), IDS), Ok(()));
        let within = MountPlan { read_only_within: vec![open.join("kept")], ..plan(&[tree], &[open], &[]) };
        assert!(fault(&within).contains("tree/open/kept: read-only within "), "{}", fault(&within));
    }

    #[test]
    fn a_tree_in_a_directory_that_the_command_may_write_takes_a_mount() {
        let at = directory();
        let plan = plan(&[at.path().join("tree")], &[], &[]);
        assert_eq!(holdable(&plan, IDS), Ok(()));
        fs::set_permissions(at.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(fault(&plan).contains("may write /var/"), "{}", fault(&plan));
    }

    #[test]
    fn a_tree_among_the_processes_takes_a_mount() {
        assert!(fault(&plan(&["/proc/sys".into()], &[], &[])).starts_with("/proc/sys: "));
    }

    #[test]
    fn other_ids_take_a_mount() {
        let plan =
            MountPlan { writable: vec![Writable { path: "/srv".into(), idmapped: true }], ..MountPlan::default() };
        assert!(fault(&plan).starts_with("/srv: "));
    }

    #[test]
    fn a_mask_is_held_by_the_mode_of_what_it_would_cover_and_of_the_way_there() {
        let at = directory();
        let secret = at.path().join("tree/secret");
        fs::write(&secret, "").unwrap();
        let held = |mode: u32, above: u32, owner: u32, group: u32| {
            chown(&secret, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(at.path().join("tree"), fs::Permissions::from_mode(above)).unwrap();
            holdable(&plan(&[], &[], slice::from_ref(&secret)), IDS).is_ok()
        };
        assert!(held(0o600, 0o755, 0, 0));
        assert!(held(0o660, 0o755, 0, 0));
        assert!(held(0o644, 0o700, 0, 0), "nobody gets there");
        for (what, (mode, above, owner, group)) in [
            ("others may read it", (0o604, 0o755, 0, 0)),
            ("others may write it", (0o602, 0o755, 0, 0)),
            ("others may execute it", (0o711, 0o755, 0, 0)),
            ("its group may", (0o640, 0o755, 0, IDS.gid)),
            ("its owner may give itself the right", (0o000, 0o755, IDS.uid, 0)),
        ] {
            assert!(!held(mode, above, owner, group), "{what}");
        }
        assert_eq!(holdable(&plan(&[], &[], &[at.path().join("missing")]), IDS), Ok(()));
        assert!(fault(&plan(&[], &[], &[secret])).contains("tree/secret: its mode leaves it open to uid 54321"));
    }
}
