//! What is kept from being written where there are no mounts, as a question about paths: the ruleset is made from it, and
//! the observer's verdicts.

use crate::install::mountinfo;
use crate::install::mounts::{MountError, MountPlan, read_mountinfo};
use std::path::{Path, PathBuf};

/// A view of the file system that nothing is mounted for. Its paths are absolute and free of symbolic links.
#[derive(Debug, Clone)]
pub struct Barrier {
    /// The plan; other names by which mounts show its read-only trees are trees of their own.
    plan: MountPlan,
}

impl Barrier {
    /// The barrier of a plan in the calling process's mount namespace.
    ///
    /// # Errors
    /// /proc/self/mountinfo that cannot be read.
    pub fn of(plan: &MountPlan) -> Result<Barrier, MountError> {
        let mounts = read_mountinfo()?;
        Ok(Barrier::beside(plan, &mountinfo::reachable(&mounts)))
    }

    /// The barrier of a plan where these mounts are reachable.
    pub fn beside(plan: &MountPlan, reachable: &[&mountinfo::Mount]) -> Barrier {
        let mut plan = plan.clone();
        let aliases = mountinfo::aliases(reachable, &plan.read_only);
        let writable = |path: &PathBuf| plan.writable.iter().any(|writable| path.starts_with(&writable.path));
        let aliases: Vec<PathBuf> = aliases.into_iter().filter(|alias| !writable(alias)).collect();
        plan.read_only.extend(aliases);
        Barrier { plan }
    }

    /// Whether nothing at this path may be written: the innermost of the plan's paths that hold it decides.
    pub fn protects(&self, path: &Path) -> bool {
        self.plan.protects(path)
    }

    /// The path of the plan by which this one would be on a mount of its own: where two differ, nothing is renamed or linked
    /// from one to the other (rename(2), EXDEV).
    pub fn mount_of(&self, path: &Path) -> &Path {
        let trees = self.plan.read_only.iter().filter(|_| !self.plan.whole_read_only);
        let writable = self.plan.writable.iter().map(|writable| &writable.path);
        let all = trees.chain(&self.plan.read_only_within).chain(writable);
        let holding = all.filter(|held| path.starts_with(held));
        holding.max_by_key(|held| held.components().count()).map_or(Path::new("/"), PathBuf::as_path)
    }

    /// What is not to be read either.
    pub fn shields(&self) -> &[PathBuf] {
        &self.plan.shields
    }

    /// The paths that may be written although they may lie within what may not.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        self.plan.writable.iter().map(|writable| writable.path.as_path())
    }

    /// Whether something that may not be written lies beneath a path.
    pub fn protects_beneath(&self, path: &Path) -> bool {
        self.protected_beneath(path).is_some()
    }

    /// A path beneath the given one at which what may not be written begins.
    pub fn protected_beneath(&self, path: &Path) -> Option<&Path> {
        let trees = self.plan.read_only.iter().chain(&self.plan.read_only_within);
        let mut trees = trees.filter(|tree| *tree != path && tree.starts_with(path) && self.protects(tree));
        trees.next().map(PathBuf::as_path)
    }

    /// The paths at which what may not be written begins.
    pub fn trees(&self) -> Vec<PathBuf> {
        self.plan.protected_trees().into_iter().filter(|tree| self.protects(tree)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::mounts::Writable;

    fn plan(read_only: &[&str], writable: &[&str]) -> MountPlan {
        MountPlan {
            read_only: read_only.iter().map(PathBuf::from).collect(),
            writable: writable.iter().map(|path| Writable { path: path.into(), idmapped: false }).collect(),
            ..MountPlan::default()
        }
    }

    #[test]
    fn another_name_of_a_tree_is_a_tree_unless_it_may_be_written() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:1 /usr /mnt/u rw - ext4 d rw\n\
            3 1 0:1 /usr/share /work/share rw - ext4 d rw\n";
        let mounts = mountinfo::parse(text).unwrap();
        let barrier = Barrier::beside(&plan(&["/usr"], &["/work"]), &mountinfo::reachable(&mounts));
        assert!(barrier.protects(Path::new("/mnt/u/bin")));
        assert!(!barrier.protects(Path::new("/work/share/x")));
        assert!(barrier.protects_beneath(Path::new("/mnt")));
        assert!(!barrier.protects_beneath(Path::new("/mnt/u")));
        assert!(!barrier.protects_beneath(Path::new("/work")));
    }

    #[test]
    fn two_paths_are_on_one_mount_where_the_same_path_of_the_plan_holds_them() {
        let barrier = Barrier::beside(&plan(&["/usr", "/home"], &["/tmp", "/home/a/.cache"]), &[]);
        let mount = |path: &str| barrier.mount_of(Path::new(path)).to_owned();
        assert_eq!(mount("/usr/bin/x"), Path::new("/usr"));
        assert_eq!(mount("/usrx"), Path::new("/"));
        assert_eq!(mount("/home/a/.cache/x"), Path::new("/home/a/.cache"));
        assert_eq!(mount("/home/a/x"), Path::new("/home"));
        assert_ne!(mount("/tmp/x"), mount("/mnt/x"));
        let whole = MountPlan { whole_read_only: true, ..plan(&["/usr"], &["/tmp"]) };
        let barrier = Barrier::beside(&whole, &[]);
        assert_eq!(barrier.mount_of(Path::new("/usr/x")), Path::new("/"));
        assert_eq!(barrier.mount_of(Path::new("/tmp/x")), Path::new("/tmp"));
    }
}
