use super::*;
use nix::unistd::{Gid, Uid, chown};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

const UID: u32 = 10001;
const GID: u32 = 10002;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "x").unwrap();
        Place(dir)
    }

    fn at(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap().join(path)
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn own(&self, path: &str, uid: u32, gid: u32) {
        chown(
            &self.at(path),
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
        )
        .unwrap();
    }

    fn check(&self, path: &str) -> Result<(), UnsafePath> {
        control_path_is_safe(&self.at(path), UID, GID)
    }

    /// The refusal's text without the temporary directory.
    fn refusal(&self, path: &str) -> String {
        let text = self.check(path).unwrap_err().to_string();
        text.replace(
            &format!("{}/", self.at("").to_str().unwrap().trim_end_matches('/')),
            "",
        )
    }
}

fn root() -> bool {
    Uid::effective().is_root()
}

#[test]
fn a_private_path_is_safe_whether_its_end_exists_or_not() {
    let place = Place::new();
    for path in ["d", "d/f", "d/none", "d/none/more", "d/../d/./f"] {
        place.check(path).unwrap();
    }
    assert!(matches!(
        place.check("d/f/x"),
        Err(UnsafePath::NotDirectory { .. })
    ));
    assert!(matches!(
        place.check("d/none/../f"),
        Err(UnsafePath::Call {
            cause: Errno::ENOENT,
            ..
        })
    ));
}

#[test]
fn the_component_that_lets_the_command_in_is_named() {
    if !root() {
        return;
    }
    let place = Place::new();
    place.own("d", UID, 0);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d\" belongs to uid 10001"),
        "{}",
        place.refusal("d/f")
    );
    assert!(
        place
            .refusal("d/none")
            .starts_with("\"d\" belongs to uid 10001")
    );
    place.own("d", 0, 0);
    place.own("d/f", UID, 0);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d/f\" belongs to uid 10001")
    );
    place.own("d/f", 0, 0);
    place.check("d/f").unwrap();
}

#[test]
fn write_permission_of_others_counts_and_stickiness_helps_directories_only() {
    let place = Place::new();
    place.mode("d", 0o777);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d\" is writable by everyone (mode 0777)")
    );
    place.mode("d", 0o1777);
    place.check("d/f").unwrap();
    place.check("d/none").unwrap();
    place.mode("d/f", 0o1646);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d/f\" is writable by everyone (mode 1646)")
    );
}

#[test]
fn write_permission_of_a_group_counts_if_it_is_the_commands() {
    if !root() {
        return;
    }
    let place = Place::new();
    place.mode("d", 0o775);
    place.check("d/f").unwrap();
    place.own("d", 0, GID);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d\" is writable by the command (group 10002)")
    );
    place.mode("d", 0o1775);
    place.check("d/f").unwrap();
    place.own("d/f", 0, GID);
    place.check("d/f").unwrap();
    place.mode("d/f", 0o664);
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d/f\" is writable by the command (group 10002)")
    );
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, permissions, id): &(u16, u16, u32)| {
        [
            &tag.to_le_bytes()[..],
            &permissions.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let mut list = 2u32.to_le_bytes().to_vec();
    list.extend(entries.iter().flat_map(entry));
    list
}

const NONE: u32 = u32::MAX;

#[test]
fn an_access_list_counts_for_the_commands_user_and_group() {
    let base = [
        (0x01, 7, NONE),
        (0x04, 5, NONE),
        (0x10, 7, NONE),
        (0x20, 5, NONE),
    ];
    let with = |entry| acl(&[&base[..1], &[entry], &base[1..]].concat());
    let grants = |list: &[u8]| list_grants(list, UID, GID, 0);
    assert_eq!(grants(&acl(&base)), None);
    assert_eq!(
        grants(&with((0x02, 7, UID))).unwrap(),
        "access list, user 10001"
    );
    assert_eq!(
        grants(&with((0x08, 6, GID))).unwrap(),
        "access list, group 10002"
    );
    assert_eq!(grants(&with((0x02, 5, UID))), None);
    assert_eq!(grants(&with((0x02, 7, UID + 1))), None);
    assert_eq!(
        list_grants(&acl(&[(0x04, 7, NONE)]), UID, GID, GID).unwrap(),
        "group 10002"
    );
    for odd in [&b""[..], b"\x02\0\0", b"\x03\0\0\0", b"\x02\0\0\0\x01"] {
        assert!(grants(odd).is_some(), "{odd:?}");
    }
}

#[test]
fn an_access_list_on_disk_is_read() {
    if !root() {
        return;
    }
    let place = Place::new();
    let list = acl(&[
        (0x01, 7, NONE),
        (0x02, 7, UID),
        (0x04, 5, NONE),
        (0x10, 7, NONE),
        (0x20, 5, NONE),
    ]);
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(place.at("d"), c"system.posix_acl_access", &list, flags) {
        // The file system keeps no access lists, so there is none to miss.
        Err(rustix::io::Errno::OPNOTSUPP) => return,
        other => other.unwrap(),
    }
    assert!(
        place
            .refusal("d/f")
            .starts_with("\"d\" is writable by the command (access list, user 10001)")
    );
}

#[test]
fn links_are_followed_and_judged_with_all_above_their_target() {
    let place = Place::new();
    symlink("d/f", place.at("relative")).unwrap();
    symlink(place.at("d"), place.at("absolute")).unwrap();
    symlink("d/none", place.at("dangling")).unwrap();
    symlink("loop", place.at("loop")).unwrap();
    for path in ["relative", "absolute/f", "dangling", "absolute/../d/f"] {
        place.check(path).unwrap();
    }
    assert!(matches!(
        place.check("loop"),
        Err(UnsafePath::TooManyLinks { .. })
    ));
    place.mode("d", 0o777);
    for path in ["relative", "absolute/f", "dangling"] {
        assert!(
            place
                .refusal(path)
                .starts_with("\"d\" is writable by everyone"),
            "{path}"
        );
    }
    place.mode("d", 0o755);
    if root() {
        nix::unistd::fchownat(
            nix::fcntl::AT_FDCWD,
            &place.at("relative"),
            Some(Uid::from_raw(UID)),
            None,
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .unwrap();
        assert!(
            place
                .refusal("relative")
                .starts_with("\"relative\" belongs to uid 10001")
        );
    }
}
