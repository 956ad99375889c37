//! What a run could leave of mounts and files, told apart from what others mount and make meanwhile: by the places where a run
//! mounts, and by the names that it gives.

use super::arena::MOUNT_POINT;
use super::filesystem::SCRATCH;
use crate::install::mountinfo::Mount;
use crate::install::mounts::{MountPlan, read_mountinfo};
use crate::plan::Plan;
use crate::policy::protect;
use nix::sys::stat::lstat;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The caller's mounts before a run.
#[derive(Debug)]
pub struct Mounts {
    before: Result<Vec<Mount>, String>,
    targets: BTreeSet<PathBuf>,
}

impl Mounts {
    /// Looks at them; `plan` says where the run mounts.
    pub fn look(plan: &Plan) -> Mounts {
        let view = plan.mounts.as_ref();
        let of_view = view.into_iter().flat_map(|view| {
            let writable = view.writable.iter().map(|writable| writable.path.clone());
            let files = view.files.iter().map(|file| file.target.clone());
            let trees = [&view.read_only, &view.read_only_within, &view.masks, &view.exposed].into_iter().flatten();
            writable.chain(files).chain(trees.cloned()).chain(view.pinned()).collect::<Vec<_>>()
        });
        let others = plan.workspaces.keys().cloned().chain([PathBuf::from(MOUNT_POINT)]);
        Mounts { before: read(), targets: of_view.chain(others).collect() }
    }

    /// What is of the run's doing.
    pub fn left(&self) -> Option<String> {
        match (&self.before, read()) {
            (Ok(before), Ok(after)) => difference(before, &after, &self.targets),
            (Err(cause), _) => Some(cause.clone()),
            (_, Err(cause)) => Some(cause),
        }
    }
}

fn read() -> Result<Vec<Mount>, String> {
    read_mountinfo().map_err(|cause| cause.to_string())
}

/// The first mount that is new where a run mounts, or again what lies under it there, as a copy of the whole tree would be;
/// that is changed as a run changes its own; or that is gone from where one mounts.
fn difference(before: &[Mount], after: &[Mount], targets: &BTreeSet<PathBuf>) -> Option<String> {
    let same =
        |one: &Mount, other: &Mount| (&one.point, &one.device, &one.root) == (&other.point, &other.device, &other.root);
    let find = |mounts: &'_ [Mount], of: &Mount| mounts.iter().position(|mount| mount.id == of.id && same(mount, of));
    let told =
        |what: &str, mount: &Mount| format!("{what}: {} {} at {}", mount.fs_type, mount.device, mount.point.display());
    for mount in after {
        match find(before, mount).map(|at| &before[at]) {
            None if targets.contains(&mount.point) || before.iter().any(|old| same(old, mount)) => {
                return Some(told("new", mount));
            }
            Some(old) => {
                let gained = ["ro", "nosuid"].iter().any(|option| mount.has(option) && !old.has(option));
                if gained || (mount.propagation.is_empty() && !old.propagation.is_empty()) {
                    return Some(told("changed", mount));
                }
            }
            None => {}
        }
    }
    let gone = before.iter().find(|mount| targets.contains(&mount.point) && find(after, mount).is_none());
    gone.map(|mount| told("gone", mount))
}

/// What a run makes or changes the owner of, as it was before.
#[derive(Debug)]
pub struct Files {
    /// Directories in which something is made.
    places: Vec<PathBuf>,
    /// What a run makes where it is missing, and gives away, and gives back.
    own: BTreeSet<PathBuf>,
    before: BTreeMap<PathBuf, String>,
}

/// How long a name of the probes' may be seen that is another run's: each is removed as soon as it is made.
const PASSING: Duration = Duration::from_secs(1);

impl Files {
    /// Looks at them; `plan` says where they are.
    pub fn look(plan: &Plan) -> Files {
        let (places, own) = (places(plan), own(plan));
        let before = seen(&places, &own);
        Files { places, own, before }
    }

    /// What is of the run's doing; `bait` is what the directory of its probes' programs is known by.
    pub fn left(&self, bait: &str) -> Option<String> {
        let deadline = Instant::now() + PASSING;
        loop {
            let found = self.difference(&seen(&self.places, &self.own), bait)?;
            if Instant::now() > deadline {
                return Some(found);
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn difference(&self, after: &BTreeMap<PathBuf, String>, bait: &str) -> Option<String> {
        let of_run = |path: &Path| self.own.contains(path) || is_scratch(path, bait);
        for (path, now) in after.iter().filter(|(path, _)| of_run(path)) {
            match self.before.get(path) {
                None => return Some(format!("new: {} {now}", path.display())),
                Some(then) if then != now => return Some(format!("changed: {} {now}, was {then}", path.display())),
                Some(_) => {}
            }
        }
        let gone = self.before.keys().find(|path| self.own.contains(*path) && !after.contains_key(*path));
        gone.map(|path| format!("gone: {}", path.display()))
    }
}

/// Whether a name is one that this run's probes give: with the number of a process, or with the bait's own id, which
/// another run's has not.
fn is_scratch(path: &Path, bait: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(SCRATCH));
    name.is_some_and(|rest| {
        let number = rest.strip_suffix("-moved").unwrap_or(rest);
        rest == bait || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Every directory in which the set-up or a probe makes something.
fn places(plan: &Plan) -> Vec<PathBuf> {
    let view = plan.mounts.as_ref();
    let writable = view.map(MountPlan::writable_set).unwrap_or_default();
    let protected = view.map(MountPlan::protected_trees).unwrap_or_default();
    let home = plan.home.iter().map(|home| home.path.clone());
    let shared = ["/tmp", "/dev/shm"].map(PathBuf::from);
    let mut places: Vec<PathBuf> = home.chain(plan.workspaces.keys().cloned()).collect();
    places.extend(writable.into_iter().chain(protected).chain(shared));
    places.sort();
    places.dedup();
    places
}

/// HOME and what is made in it, the workspaces, and what stands for what is protected and missing, with every directory that
/// is made for one of them.
fn own(plan: &Plan) -> BTreeSet<PathBuf> {
    let mut own: BTreeSet<PathBuf> = plan.workspaces.keys().cloned().collect();
    let mut with_those_above = |path: &Path, below: &Path| {
        let above = path.ancestors().take_while(|above| *above != below && *above != Path::new("/"));
        own.extend(above.map(Path::to_owned));
    };
    if let Some(home) = &plan.home {
        // What lies above HOME is made with it.
        with_those_above(&home.path, Path::new("/"));
        home.state.iter().for_each(|state| with_those_above(state, &home.path));
    }
    let identity = plan.identity.as_ref().filter(|_| plan.rung.means().own_namespaces);
    if let Some(home) = identity.map(|identity| &identity.home) {
        let workspace = plan.policy.filesystem.workspace.as_ref().map(|path| path.resolve(home));
        for path in protect::effective(plan.policy.filesystem.protect.as_deref()) {
            let of_git = path.in_repository().map(|part| Path::new(".git").join(part));
            match (of_git, &workspace) {
                (Some(part), Some(workspace)) => with_those_above(&workspace.join(part), workspace),
                (None, None) if path.is_of_workspace() => {}
                (None, workspace) => {
                    let base = workspace.as_ref().unwrap_or(home);
                    let path = path.resolve(base, home);
                    with_those_above(&path, if path.starts_with(base) { base } else { home });
                }
                (Some(_), None) => {}
            }
        }
    }
    own
}

/// The owner and mode of what a run makes or gives away, and of every name of the probes' in a place.
fn seen(places: &[PathBuf], own: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, String> {
    let of_probes = places
        .iter()
        .flat_map(|place| super::trace::names(place))
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(SCRATCH.as_bytes())));
    let looked = own.iter().cloned().chain(of_probes).filter_map(|path| {
        let stat = lstat(&path).ok()?;
        let told = format!("mode {:o} owner {}:{}", stat.st_mode, stat.st_uid, stat.st_gid);
        Some((path, told))
    });
    looked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::mountinfo::parse_line;

    fn mounts(lines: &[&str]) -> Vec<Mount> {
        lines.iter().map(|line| parse_line(line.as_bytes()).unwrap()).collect()
    }

    const ROOT: &str = "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw";
    const HOME: &str = "21 20 8:2 / /home rw,relatime shared:2 - ext4 /dev/sda2 rw";

    #[test]
    fn a_mount_of_another_is_none_of_the_runs() {
        let targets = BTreeSet::from([PathBuf::from("/workspace")]);
        let left = |after: &[&str]| difference(&mounts(&[ROOT, HOME]), &mounts(after), &targets);
        assert_eq!(left(&[ROOT, HOME]), None);
        // A container that starts and one that ends, and a remount that no run makes.
        assert_eq!(left(&[ROOT, HOME, "30 20 0:50 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw"]), None);
        assert_eq!(left(&[ROOT]), None);
        assert_eq!(left(&[ROOT, &HOME.replace("relatime", "noatime")]), None);
        for (after, told) in [
            ("30 20 8:1 /workspace /workspace rw - ext4 /dev/sda1 rw", "new: ext4 8:1 at /workspace"),
            ("30 20 0:9 / /workspace rw - tmpfs tmpfs rw", "new: tmpfs 0:9 at /workspace"),
            ("30 21 8:2 / /home ro,nosuid - ext4 /dev/sda2 rw", "new: ext4 8:2 at /home"),
        ] {
            assert_eq!(left(&[ROOT, HOME, after]).as_deref(), Some(told));
        }
        assert_eq!(left(&[ROOT, &HOME.replace("rw,relatime", "ro,relatime")]).unwrap(), "changed: ext4 8:2 at /home");
        assert_eq!(left(&[ROOT, &HOME.replace("shared:2 ", "")]).unwrap(), "changed: ext4 8:2 at /home");
        let before = mounts(&[ROOT, "22 20 8:3 / /workspace rw - ext4 /dev/sda3 rw"]);
        assert_eq!(difference(&before, &mounts(&[ROOT]), &targets).unwrap(), "gone: ext4 8:3 at /workspace");
    }

    #[test]
    fn a_name_of_another_is_none_of_the_runs() {
        let own = |name: &str| is_scratch(Path::new("/tmp").join(name).as_path(), "0a1b");
        assert!(own(".preflight-17") && own(".preflight-17-moved") && own(".preflight-0a1b"));
        assert!(!own(".preflight-0a1c") && !own(".X11-unix") && !own(".preflight-") && !own("preflight-17"));
    }
}
