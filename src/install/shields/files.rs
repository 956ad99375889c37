//! Which file each shield was when it was looked at, so that no other one is put under its mask.

use super::links::File;
use crate::install::mounts::{MountError, MountPlan, failed, pin};
use nix::sys::stat::fstat;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Files by the paths that they had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(pub(super) BTreeMap<PathBuf, File>);

impl Files {
    /// Whether what is held is the file that was at this path, or nothing is known of it.
    ///
    /// # Errors
    /// It is another one.
    pub fn check(&self, path: &Path, held: &OwnedFd) -> Result<(), MountError> {
        let Some(file) = self.0.get(path) else { return Ok(()) };
        let stat = fstat(held).map_err(failed("fstat", path))?;
        if (stat.st_dev, stat.st_ino) == *file {
            return Ok(());
        }
        Err(MountError::NotAsPlanned {
            path: path.to_owned(),
            fault: "the shield there was replaced since it was looked at",
        })
    }
}

impl MountPlan {
    /// Whether each shield is the file that was looked at.
    ///
    /// # Errors
    /// One of them is another, or is not there.
    pub fn check_shields(&self) -> Result<(), MountError> {
        self.shield_files.0.keys().try_for_each(|path| self.shield_files.check(path, &pin(path)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::shields::Manifest;
    use std::fs;

    #[test]
    fn a_shield_that_is_replaced_is_not_the_one_that_was_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let [shield, linked] = ["shield", "linked"].map(|name| top.join(name));
        fs::create_dir(&shield).unwrap();
        fs::write(shield.join("file"), "x").unwrap();
        fs::hard_link(shield.join("file"), &linked).unwrap();
        let manifest = Manifest::of(std::slice::from_ref(&shield)).unwrap();
        let of = |shields: Vec<PathBuf>| {
            let mut view = MountPlan { shields, ..MountPlan::default() };
            manifest.hold(&mut view).unwrap();
            view
        };
        let view = of(vec![shield.clone(), linked.clone()]);
        assert!(view.check_shields().is_ok());
        fs::write(shield.join("new"), "y").unwrap();
        assert!(view.check_shields().is_ok(), "what is in it is for the digest to tell");
        // Both are there at one time, so that neither has the other's number.
        fs::rename(&shield, top.join("away")).unwrap();
        fs::create_dir(&shield).unwrap();
        let fault = view.check_shields().unwrap_err().to_string();
        assert!(fault.contains("/shield is not as planned: the shield there was replaced"), "{fault}");
        // Even one that was replaced before its other names were looked at.
        assert!(of(vec![shield]).check_shields().is_err());
        fs::rename(&linked, top.join("aside")).unwrap();
        fs::write(&linked, "x").unwrap();
        assert!(of(vec![linked]).check_shields().is_err());
    }
}
