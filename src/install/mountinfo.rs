//! Reading /proc/self/mountinfo (proc(5)): what the kernel says is mounted, to compare with what was meant.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount as mountinfo shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount's id.
    pub id: u32,
    /// The id of the mount that it is attached to.
    pub parent: u32,
    /// The file system's device, `major:minor`.
    pub device: String,
    /// The directory of that file system that is mounted, octal escapes decoded.
    pub root: PathBuf,
    /// Where it is attached, octal escapes decoded.
    pub point: PathBuf,
    /// The per-mount options, of which `ro` is the mount's own and not the file system's.
    pub options: Vec<String>,
    /// `shared:N`, `master:N` and the like; empty for a private mount.
    pub propagation: Vec<String>,
    /// The file system's type.
    pub fs_type: String,
}

impl Mount {
    /// Whether the mount itself is read-only.
    pub fn read_only(&self) -> bool {
        self.has("ro")
    }

    /// Whether a per-mount option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}

/// Parses one line; `None` where it has not the form of proc(5).
pub fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let parent = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.next()?)?.to_owned();
    let root = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let options = text(fields.next()?)?.split(',').map(str::to_owned).collect();
    let mut propagation = Vec::new();
    loop {
        match text(fields.next()?)? {
            "-" => break,
            optional => propagation.push(optional.to_owned()),
        }
    }
    let fs_type = text(fields.next()?)?.to_owned();
    Some(Mount { id, parent, device, root, point, options, propagation, fs_type })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Decodes the `\ooo` by which the kernel writes blank, tab, line feed and backslash.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|d| first == b'\\' && d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match octal {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |value, c| value.wrapping_mul(8).wrapping_add(c - b'0')));
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// Parses a whole mountinfo; `None` when any line has not the form of proc(5), for a mount unseen is a mount unjudged.
pub fn parse(content: &[u8]) -> Option<Vec<Mount>> {
    content.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(parse_line).collect()
}

/// The mounts that are reachable by a path: those that another mount hides are left out.
///
/// From each mount a path goes on into the first of its child mounts that it meets. So a mount is hidden when, on the way to
/// it, a mount comes first that is none of its ancestors; and when another mount covers its root.
pub fn reachable(mounts: &[Mount]) -> Vec<&Mount> {
    let by_id: HashMap<u32, &Mount> = mounts.iter().map(|m| (m.id, m)).collect();
    // What is mounted on the process's own root directory is on no path's way.
    let children = |of: u32| {
        let root = Path::new("/");
        mounts.iter().filter(move |m| m.parent == of && m.id != of && m.point != root)
    };
    let hidden = |mount: &Mount| {
        if children(mount.id).any(|child| child.point == mount.point) {
            return true;
        }
        let (mut at, mut seen) = (mount, vec![mount.id]);
        // The table is no tree to rely on: an id that comes again would be followed for ever.
        while let Some(parent) = by_id.get(&at.parent).filter(|parent| !seen.contains(&parent.id)) {
            let first = |sibling: &Mount| sibling.point != at.point && under(&at.point, &sibling.point);
            if children(parent.id).any(first) {
                return true;
            }
            seen.push(parent.id);
            at = parent;
        }
        false
    };
    mounts.iter().filter(|mount| !hidden(mount)).collect()
}

/// Whether `path` is `tree` or lies below it.
pub fn under(path: &Path, tree: &Path) -> bool {
    path.starts_with(tree)
}

/// The reachable mount that holds `path`.
pub fn holding<'a>(reachable: &[&'a Mount], path: &Path) -> Option<&'a Mount> {
    // Of two at the same point the later one is on top.
    reachable.iter().copied().filter(|m| under(path, &m.point)).max_by_key(|m| m.point.as_os_str().as_bytes().len())
}

/// Other names of the trees: paths outside of them by which another mount shows the same directory of the same file
/// system, or a part of it.
pub fn aliases(reachable: &[&Mount], trees: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for tree in trees {
        let Some(home) = holding(reachable, tree) else { continue };
        let Ok(below) = tree.strip_prefix(&home.point) else { continue };
        let content = home.root.join(below);
        for mount in reachable.iter().filter(|m| m.device == home.device) {
            let alias = match (content.strip_prefix(&mount.root), mount.root.starts_with(&content)) {
                (_, true) => mount.point.clone(),
                (Ok(rest), false) => mount.point.join(rest),
                (Err(_), false) => continue,
            };
            // What another mount covers there is not this file system's.
            let shown = holding(reachable, &alias).is_some_and(|m| m.id == mount.id);
            if shown && !trees.iter().any(|t| under(&alias, t)) && !found.contains(&alias) {
                found.push(alias);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mount_of_a_tree_is_another_name_of_it() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:1 /usr /mnt/u rw - ext4 d rw\n\
            3 1 0:1 /usr/lib/x /data/x rw - ext4 d rw\n\
            4 1 0:1 / /mnt/all rw - ext4 d rw\n\
            5 1 0:2 /usr /mnt/other rw - ext4 e rw\n\
            6 1 0:1 /srv /mnt/srv rw - ext4 d rw\n\
            7 6 0:3 / /mnt/all/usr rw - tmpfs t rw\n";
        let mounts = parse(text).unwrap();
        let shown = reachable(&mounts);
        let found = aliases(&shown, &["/usr".into(), "/etc".into()]);
        assert_eq!(found, ["/mnt/u", "/data/x", "/mnt/all/etc"].map(PathBuf::from));
    }

    const SAMPLE: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        40 27 0:9 / /usr/local/a\\040b ro,nosuid master:3 propagate_from:2 - tmpfs t rw\n";

    #[test]
    fn a_line_is_read_whole() {
        let mounts = parse(SAMPLE).unwrap();
        assert_eq!(mounts[1].propagation, ["shared:1"]);
        assert_eq!(mounts[2].point, Path::new("/usr/local/a b"));
        assert!(mounts[2].read_only() && mounts[2].has("nosuid"));
        assert_eq!(mounts[2].fs_type, "tmpfs");
    }

    #[test]
    fn a_torn_line_is_no_mountinfo() {
        assert!(parse(b"22 27 0:21 / /proc rw,relatime").is_none());
    }

    #[test]
    fn a_mount_below_a_covering_mount_is_hidden() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:2 / /usr/data rw - tmpfs d rw\n\
            3 1 0:1 /usr /usr ro - ext4 d rw\n\
            4 3 0:2 / /usr/data ro - tmpfs d rw\n\
            5 3 0:2 / /usr/data rw - tmpfs d rw\n";
        let mounts = parse(text).unwrap();
        let ids: Vec<u32> = reachable(&mounts).iter().map(|m| m.id).collect();
        // 2 lies below the /usr that 3 covers. 4 and 5 share one point of 3, and nothing says which is on top.
        assert_eq!(ids, [1, 3, 4, 5]);
    }

    #[test]
    fn a_mount_over_a_copy_is_not_hidden_by_what_was_copied() {
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:2 / /home/a/.cache rw - tmpfs d rw\n\
            3 1 0:1 /home /home ro - ext4 d rw\n\
            4 3 0:2 / /home/a/.cache ro - tmpfs d rw\n\
            5 4 0:2 / /home/a/.cache rw - tmpfs d rw\n\
            6 5 0:3 / /home/a/.cache/deep rw - tmpfs d rw\n";
        let mounts = parse(text).unwrap();
        let ids: Vec<u32> = reachable(&mounts).iter().map(|m| m.id).collect();
        assert_eq!(ids, [1, 3, 5, 6]);
    }

    #[test]
    fn a_mount_that_a_covering_mount_hides_hides_nothing() {
        // 3 covers /srv, 2 with it; 5 lies on the copy of 2 that came with 3.
        let text = b"1 0 0:1 / / rw - ext4 d rw\n\
            2 1 0:2 / /srv/data rw - tmpfs d rw\n\
            3 1 0:1 /srv /srv ro - ext4 d rw\n\
            4 3 0:2 / /srv/data ro - tmpfs d rw\n\
            5 4 0:3 /mask /srv/data/file ro - tmpfs d rw\n";
        let mounts = parse(text).unwrap();
        let ids: Vec<u32> = reachable(&mounts).iter().map(|m| m.id).collect();
        assert_eq!(ids, [1, 3, 4, 5]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _outcome = parse(&bytes);
        }

        #[test]
        fn what_the_kernel_escapes_comes_back(name in "[a-z \\\\\t\n]{1,20}") {
            let escaped: String = name.chars().map(|c| match c {
                ' ' => "\\040".into(), '\t' => "\\011".into(), '\n' => "\\012".into(), '\\' => "\\134".into(), c => c.to_string(),
            }).collect();
            proptest::prop_assert_eq!(unescape(escaped.as_bytes()), name.into_bytes());
        }
    }
}
