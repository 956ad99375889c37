//! Files of the image that tools read their proxy from, with the proxy's lines after their own, for the command only.

use super::mounts::Overlay;
use crate::policy::environment::tool_files;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read {path}: {cause}", path = path.display())]
pub struct ToolFileError {
    path: PathBuf,
    cause: std::io::Error,
}

/// What is to be mounted over the files of this image.
pub fn overlays(proxy: SocketAddr) -> Result<Vec<Overlay>, ToolFileError> {
    let mut overlays: Vec<Overlay> = Vec::new();
    for (file, text) in tool_files(proxy) {
        for target in file.paths.iter().flat_map(|pattern| matching(pattern)) {
            if overlays.iter().any(|known| known.target == target) {
                continue;
            }
            let mut content = std::fs::read(&target).map_err(|cause| ToolFileError { path: target.clone(), cause })?;
            content.extend_from_slice(b"\n");
            content.extend_from_slice(text.as_bytes());
            overlays.push(Overlay { target, content });
        }
    }
    Ok(overlays)
}

/// The regular files that a pattern names, without symbolic links; a `*` stands for one component.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in pattern.split('/').filter(|c| !c.is_empty()) {
        found = found.iter().flat_map(|base| step(base, component)).collect();
    }
    found.into_iter().filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_file()).collect()
}

fn step(base: &Path, component: &str) -> Vec<PathBuf> {
    if component != "*" {
        return vec![base.join(component)];
    }
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_component() {
        let top = tempfile::tempdir().unwrap();
        for name in ["a/conf/x", "b/conf/x", "b/c/conf/x"] {
            let path = top.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = matching(&format!("{}/*/conf/x", top.path().display()));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
