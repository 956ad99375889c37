//! A Git repository that any file server can serve (the "dumb" HTTP protocol, gitprotocol-http(5)).

use crate::error::{Doing, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes `project.git` below a directory of the machine: one commit with a README. The answer is its path; with
/// [`origin::directory`](crate::origin::directory) over `below`, it is cloned from `https://HOST/project.git`.
///
/// # Errors
/// `git` is missing or failed.
pub fn repository(below: &Path) -> Result<PathBuf, Error> {
    let (tree, bare) = (below.join("tree"), below.join("project.git"));
    std::fs::create_dir_all(&tree).doing(format!("mkdir {}", tree.display()))?;
    std::fs::write(tree.join("README"), "a project of the closed world\n").doing("write README")?;
    git(&tree, &["init", "-q", "-b", "main"])?;
    git(&tree, &["add", "README"])?;
    git(&tree, &["-c", "user.name=World", "-c", "user.email=world@localhost", "commit", "-q", "-m", "Begin"])?;
    git(below, &["clone", "-q", "--bare", "tree", "project.git"])?;
    git(&bare, &["update-server-info"])?;
    Ok(bare)
}

fn git(directory: &Path, arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        // What the machine's user has set must not decide what a test serves.
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .doing("run git")?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Tool {
        tool: format!("git {}", arguments.join(" ")),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
