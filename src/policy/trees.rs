//! The trees that the filesystem axis holds, and the set that stays writable.

use super::axis::Posture;
use super::effective::Policy;
use std::path::{Path, PathBuf};

/// The trees that are read-only at posture `restricted`, with everything mounted beneath them.
pub const PROTECTED: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/boot", "/srv", "/root", "/var", "/home"];

/// What stays writable outside the home at every posture.
pub const WRITABLE: [&str; 4] = ["/app", "/workspace", "/tmp", "/dev/shm"];

/// What stays writable in the command's home at every posture.
pub const WRITABLE_IN_HOME: [&str; 3] = [".cache", ".config", ".local"];

/// Paths that the policy decides about, the innermost deciding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trees {
    /// Read-only trees: [`PROTECTED`] and the home at `restricted`, `/` at `locked`.
    pub read_only: Vec<PathBuf>,
    /// Writable: the default set, the harness's directories, the workspace and what the policy names.
    pub writable: Vec<PathBuf>,
    /// Read-only inside what is writable: what the policy names.
    pub read_only_within: Vec<PathBuf>,
}

impl Trees {
    /// The trees of a policy for a command with this home. With the filesystem open all three lists are empty.
    ///
    /// The lists are lexical and sorted; whether a path exists, or is a link, is the plan's to find out.
    pub fn of(policy: &Policy, home: &Path) -> Trees {
        let asked = &policy.filesystem;
        let mut writable: Vec<PathBuf> = WRITABLE.iter().map(PathBuf::from).collect();
        writable.extend(asked.writable.iter().chain(&asked.workspace).map(|path| path.resolve(home)));
        let mut read_only: Vec<PathBuf> = match asked.posture {
            Posture::Open => {
                return Trees { read_only: vec![], writable: vec![], read_only_within: vec![] };
            }
            // A home elsewhere than in /root and /home is one of "the homes" all the same, unless it lies in what is the
            // command's to write (/tmp, a workspace). / is nobody's home, but what accounts without one have in their entry.
            Posture::Restricted => {
                let apart = home != Path::new("/") && !writable.iter().any(|place| home.starts_with(place));
                PROTECTED.iter().map(PathBuf::from).chain(apart.then(|| home.to_owned())).collect()
            }
            Posture::Locked => vec![PathBuf::from("/")],
        };
        writable.extend(WRITABLE_IN_HOME.map(|name| home.join(name)));
        writable.extend(policy.harness().state.iter().map(|state| state.path.resolve(home)));
        let mut read_only_within: Vec<PathBuf> = asked.read_only.iter().map(|path| path.resolve(home)).collect();
        // What is asked to be read-only wins over a default that says otherwise.
        writable.retain(|path| !read_only_within.contains(path));
        for list in [&mut read_only, &mut writable, &mut read_only_within] {
            list.sort();
            list.dedup();
        }
        Trees { read_only, writable, read_only_within }
    }

    /// Whether the policy lets the command write at a path, which is absolute and lexically normal.
    pub fn admit_write(&self, path: &Path) -> bool {
        let depth = |list: &[PathBuf]| {
            let holding = list.iter().filter(|tree| path.starts_with(tree));
            holding.map(|tree| tree.components().count()).max()
        };
        let read_only = depth(&self.read_only).max(depth(&self.read_only_within));
        // Where a path stands in both lists it was named writable.
        read_only.is_none() || depth(&self.writable) >= read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::values::PolicyArg;
    use crate::policy::{Layer, Level};

    fn trees(level: Level, change: impl FnOnce(&mut Layer)) -> Trees {
        let mut flags = Layer::default();
        change(&mut flags);
        let policy = Policy::load(&PolicyArg::Level(level), &flags).unwrap();
        Trees::of(&policy, Path::new("/home/agent"))
    }

    #[test]
    fn restricted_protects_twelve_trees_and_the_home() {
        let trees = trees(Level::NistHigh, |flags| {
            flags.harness = Some("claude-code".parse().unwrap());
            flags.writable = vec!["/var/data".parse().unwrap(), "~/notes".parse().unwrap()];
            flags.read_only = vec!["/app/.git".parse().unwrap()];
            flags.workspace = Some("/srv/work".parse().unwrap());
        });
        for tree in PROTECTED {
            assert!(!trees.admit_write(&Path::new(tree).join("x")), "{tree}");
        }
        for (path, expected) in [
            ("/home/agent/x", false),
            ("/home/agent/.cache/x", true),
            ("/home/agent/.claude/x", true),
            ("/home/agent/.claudex", false),
            ("/home/agent/notes", true),
            ("/home/other/.cache", false),
            ("/var/tmp/x", false),
            ("/var/data/x", true),
            ("/srv/work", true),
            ("/app/x", true),
            ("/app/.git/config", false),
            ("/app/.gitignore", true),
            ("/tmp/x", true),
            ("/dev/shm/x", true),
            ("/userdata", true),
        ] {
            assert_eq!(trees.admit_write(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_home_in_what_is_writable_is_writable() {
        let policy = Policy::load(&PolicyArg::Level(Level::NistHigh), &Layer::default()).unwrap();
        for (home, path, expected) in [
            ("/tmp", "/tmp/x", true),
            ("/workspace/dev", "/workspace/dev/x", true),
            ("/", "/userdata", true),
            ("/", "/usr/x", false),
            ("/data/dev", "/data/dev/x", false),
            ("/data/dev", "/data/dev/.cache/x", true),
        ] {
            assert_eq!(Trees::of(&policy, Path::new(home)).admit_write(Path::new(path)), expected, "{home} {path}");
        }
    }

    #[test]
    fn locked_leaves_only_the_writable_set() {
        let trees = trees(Level::Locked, |_| {});
        for (path, expected) in [("/userdata", false), ("/", false), ("/app/x", true), ("/proc/self/comm", false)] {
            assert_eq!(trees.admit_write(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn open_holds_nothing() {
        let trees = trees(Level::NonRoot, |flags| flags.read_only = vec!["/app".parse().unwrap()]);
        assert!(trees.read_only.is_empty() && trees.admit_write(Path::new("/usr/bin/x")));
    }

    #[test]
    fn a_default_can_be_made_read_only() {
        let trees = trees(Level::NistHigh, |flags| flags.read_only = vec!["/app".parse().unwrap()]);
        assert!(!trees.admit_write(Path::new("/app/x")));
        assert!(!trees.writable.contains(&PathBuf::from("/app")));
    }
}
