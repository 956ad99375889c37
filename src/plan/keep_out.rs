//! Keeping one path out of what may be written, where no mask can be mounted over it.

use crate::install::mounts::{MountPlan, Writable};
use std::path::{Path, PathBuf};

/// Takes a directory, and the directories above it within what may be written, out of that: what else is in them stays
/// writable, and gets no new names beside. The directory need not exist yet.
pub fn keep_out(view: &mut MountPlan, directory: &Path) {
    if view.protects(directory) {
        return;
    }
    let Some(at) = view.writable.iter().position(|writable| directory.starts_with(&writable.path)) else {
        view.read_only.push(directory.to_owned());
        return;
    };
    let top = view.writable.remove(at).path;
    view.read_only.retain(|tree| !tree.starts_with(&top));
    let mut above: Vec<&Path> = directory.ancestors().skip(1).take_while(|above| above.starts_with(&top)).collect();
    // The directory may be what is writable itself.
    above.retain(|above| *above != directory);
    for holding in above {
        for beside in entries(holding).into_iter().filter(|path| !directory.starts_with(path)) {
            view.writable.push(Writable { path: beside, idmapped: false });
        }
    }
    // Where no tree of the policy holds it, it is one of its own.
    if !view.protects(&top) {
        view.read_only.push(top);
    }
    view.writable.sort_by_key(|writable| writable.path.components().count());
}

/// What is in a directory, links left out: they lead where they lead.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let no_link = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_symlink());
    let mut paths: Vec<PathBuf> = entries.filter(no_link).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_stays_writable() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        for path in ["local/bin", "local/state/tool", "local/state/record", "work"] {
            std::fs::create_dir_all(home.join(path)).unwrap();
        }
        let writable = |path: &str| Writable { path: home.join(path), idmapped: false };
        let mut view = MountPlan {
            read_only: vec![home.to_owned()],
            writable: vec![writable("local"), writable("work")],
            ..MountPlan::default()
        };
        keep_out(&mut view, &home.join("local/state/record"));
        for (path, protected) in [
            ("local/state/record/x", true),
            ("local/state/new", true),
            ("local/new", true),
            ("local/bin/new", false),
            ("local/state/tool/new", false),
            ("work/new", false),
        ] {
            assert_eq!(view.protects(&home.join(path)), protected, "{path}");
        }
    }

    #[test]
    fn what_no_tree_holds_becomes_one() {
        let mut view = MountPlan::default();
        keep_out(&mut view, Path::new("/logs/run"));
        assert!(view.protects(Path::new("/logs/run/x")) && !view.protects(Path::new("/logs/y")));
        let mut view =
            MountPlan { writable: vec![Writable { path: "/logs".into(), idmapped: false }], ..MountPlan::default() };
        keep_out(&mut view, Path::new("/logs"));
        assert!(view.protects(Path::new("/logs/x")));
    }
}
