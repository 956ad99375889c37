//! Hard links: names of a shielded file that lie outside of the shield. They are looked for on all of its file system.

use super::ShieldError;
use crate::install::mountinfo::Mount;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, whatever its name.
pub type File = (u64, u64);

/// No file: none has the number 0.
pub const NONE: File = (0, 0);

/// A name: the directory that holds it, and its last component. Two mounts of one directory show the same name twice.
type Name = (File, Vec<u8>);

/// A file with more than one name.
struct Linked {
    path: PathBuf,
    names: u64,
    found: BTreeSet<Name>,
}

/// Walks everything at and beneath a path, links not followed. `each` says whether a directory is entered.
pub fn walk(
    top: &Path,
    each: &mut impl FnMut(&Path, &Metadata, Option<Name>) -> bool,
    fault: &mut impl FnMut(&Path, io::Error) -> Result<(), ShieldError>,
) -> Result<(), ShieldError> {
    let above = top.parent().and_then(|above| above.symlink_metadata().ok()).map(|meta| (meta.dev(), meta.ino()));
    let last = top.file_name().map(|name| name.as_bytes().to_vec());
    let meta = match top.symlink_metadata() {
        Ok(meta) => meta,
        Err(cause) => return fault(top, cause),
    };
    if !each(top, &meta, above.zip(last)) || !meta.is_dir() {
        return Ok(());
    }
    let mut pending = vec![(top.to_owned(), (meta.dev(), meta.ino()))];
    while let Some((directory, own)) = pending.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(cause) => {
                fault(&directory, cause)?;
                continue;
            }
        };
        for entry in entries {
            let looked = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
            let (path, meta) = match looked {
                Ok(looked) => looked,
                Err(cause) => {
                    fault(&directory, cause)?;
                    continue;
                }
            };
            let name = path.file_name().map(|name| (own, name.as_bytes().to_vec()));
            if each(&path, &meta, name) && meta.is_dir() {
                pending.push((path, (meta.dev(), meta.ino())));
            }
        }
    }
    Ok(())
}

/// The names outside of `known`, which holds the shields and their other names, of files within the shields.
///
/// # Errors
/// A file some of whose names are not found.
pub fn outside(shields: &[PathBuf], known: &[PathBuf], reachable: &[&Mount]) -> Result<Vec<PathBuf>, ShieldError> {
    let mut linked: BTreeMap<File, Linked> = BTreeMap::new();
    let mut devices = BTreeSet::new();
    for shield in shields {
        let mut each = |path: &Path, meta: &Metadata, name: Option<Name>| {
            if !meta.is_dir() && meta.nlink() > 1 {
                devices.extend(name.iter().map(|((device, _), _)| *device));
                let new = || Linked { path: path.to_owned(), names: meta.nlink(), found: BTreeSet::new() };
                linked.entry((meta.dev(), meta.ino())).or_insert_with(new).found.extend(name);
            }
            true
        };
        // What this process may not look at, the command may not either: it is the same user, or root looks.
        walk(shield, &mut each, &mut |path, cause| denied_or(path, cause))?;
    }
    let lacks = |linked: &BTreeMap<File, Linked>| linked.values().any(|one| (one.found.len() as u64) < one.names);
    let mut others = Vec::new();
    if lacks(&linked) {
        for mount in reachable {
            let on_one = mount.point.symlink_metadata().is_ok_and(|meta| devices.contains(&meta.dev()));
            if !on_one || known.iter().any(|path| mount.point.starts_with(path)) {
                continue;
            }
            let mut each = |path: &Path, meta: &Metadata, name: Option<Name>| {
                if known.iter().any(|known| path == known) {
                    return false;
                }
                if meta.is_dir() {
                    return devices.contains(&meta.dev());
                }
                if let Some(one) = linked.get_mut(&(meta.dev(), meta.ino())) {
                    one.found.extend(name);
                    others.push(path.to_owned());
                }
                false
            };
            walk(&mount.point, &mut each, &mut |_, _| Ok(()))?;
        }
    }
    match linked.into_values().find(|one| (one.found.len() as u64) < one.names) {
        Some(one) => Err(ShieldError::Links { path: one.path, names: one.names, found: one.found.len() as u64 }),
        None => Ok(others),
    }
}

fn denied_or(path: &Path, cause: io::Error) -> Result<(), ShieldError> {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(ShieldError::Look { path: path.to_owned(), cause }),
    }
}

/// Whether a file is one of those at or beneath a path.
pub fn has(top: &Path, file: File) -> bool {
    let mut found = false;
    let mut each = |_: &Path, meta: &Metadata, _: Option<Name>| {
        found |= (meta.dev(), meta.ino()) == file;
        !found
    };
    // What cannot be looked at here was not opened by this user either.
    let looked = walk(top, &mut each, &mut |_, _| Ok(()));
    found || looked.is_err()
}
