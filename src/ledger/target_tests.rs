use super::super::samples::open;
use super::super::{Ledger, UnsafePath};
use super::*;
use nix::unistd::{Gid, Uid, chown};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};

fn attempt(target: LedgerTarget) -> Result<Ledger, LedgerError> {
    Ledger::open(target, &RunId::random().unwrap(), "nist-high")
}

fn at(path: &Path) -> Result<Ledger, LedgerError> {
    attempt(LedgerTarget::Path(path.to_owned()))
}

fn names(dir: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    fs::read_dir(dir).unwrap().map(name).collect()
}

#[test]
fn default_paths() {
    let run: RunId = "0123456789abcdef".parse().unwrap();
    let path = |uid, xdg: Option<&str>, home: Option<&str>| {
        default_path(uid, &run, xdg.map(Into::into), home.map(Into::into))
            .map(|p| p.to_str().unwrap().to_owned())
    };
    assert_eq!(
        path(0, Some("/x"), Some("/root")).unwrap(),
        "/var/log/ringfence/0123456789abcdef.jsonl"
    );
    assert_eq!(
        path(7, Some("/x"), Some("/h")).unwrap(),
        "/x/ringfence/0123456789abcdef.jsonl"
    );
    assert_eq!(
        path(7, Some("x"), Some("/h")).unwrap(),
        "/h/.local/state/ringfence/0123456789abcdef.jsonl"
    );
    assert_eq!(
        path(7, None, Some("/h")).unwrap(),
        "/h/.local/state/ringfence/0123456789abcdef.jsonl"
    );
    assert!(matches!(
        path(7, Some(""), None),
        Err(LedgerError::NoStateDirectory)
    ));
}

#[test]
fn descriptors_are_named_by_number_and_never_the_commands_own() {
    let adopted = |text: &str| {
        LedgerTarget::named(OsStr::new(text), |fd| {
            assert_eq!(fd, 7);
            Ok(fs::File::create("/dev/null").unwrap().into())
        })
    };
    assert!(matches!(adopted("fd:7"), Ok(LedgerTarget::Fd(_))));
    assert!(matches!(adopted("fd.jsonl"), Ok(LedgerTarget::Path(_))));
    for bad in [
        "fd:",
        "fd:0",
        "fd:1",
        "fd:2",
        "fd:-1",
        "fd:+7",
        "fd:x",
        "fd:7 ",
        "fd:99999999999",
    ] {
        assert!(
            matches!(adopted(bad), Err(LedgerError::DescriptorName { .. })),
            "{bad}"
        );
    }
    let closed = LedgerTarget::named(OsStr::new("fd:7"), |_| Err(Errno::EBADF)).unwrap_err();
    assert_eq!(closed.to_string(), "ledger: fd:7: EBADF: Bad file number");
}

#[test]
fn descriptors_that_keep_no_lines_are_refused() {
    let (datagram, _peer) = UnixDatagram::pair().unwrap();
    let read_only = fs::File::open("/dev/null").unwrap();
    for (fd, found) in [
        (OwnedFd::from(datagram), "SOCK_STREAM"),
        (fs::File::open("/").unwrap().into(), "directory"),
        (read_only.into(), "reading only"),
    ] {
        let error = attempt(LedgerTarget::Fd(fd)).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
    let (stream, _peer) = UnixStream::pair().unwrap();
    attempt(LedgerTarget::Fd(stream.into())).unwrap();
}

#[test]
fn an_existing_name_is_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        at(&path),
        Err(LedgerError::Path {
            call: "openat",
            cause: Errno::EEXIST,
            ..
        })
    ));
    let link = dir.path().join("link.jsonl");
    symlink(dir.path().join("elsewhere"), &link).unwrap();
    assert!(matches!(
        at(&link),
        Err(LedgerError::Path {
            call: "openat",
            cause: Errno::EEXIST,
            ..
        })
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert!(matches!(
        at(Path::new("/")),
        Err(LedgerError::NoName { .. })
    ));
    assert!(matches!(
        at(Path::new("..")),
        Err(LedgerError::NoName { .. })
    ));
}

#[test]
fn a_failed_start_takes_back_what_it_made_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    open(&dir.path().join("a/b/run.jsonl"))
        .remove_if_unstarted()
        .unwrap();
    assert!(names(dir.path()).is_empty());

    fs::create_dir(dir.path().join("a")).unwrap();
    open(&dir.path().join("a/b/run.jsonl"))
        .remove_if_unstarted()
        .unwrap();
    assert_eq!(names(dir.path()), ["a"]);

    let first = open(&dir.path().join("a/b/first.jsonl"));
    let second = open(&dir.path().join("a/b/second.jsonl"));
    first.remove_if_unstarted().unwrap();
    assert_eq!(names(&dir.path().join("a/b")), ["second.jsonl"]);
    drop(second);

    let replaced = dir.path().join("replaced.jsonl");
    let ledger = open(&replaced);
    fs::remove_file(&replaced).unwrap();
    fs::write(&replaced, "another's").unwrap();
    ledger.remove_if_unstarted().unwrap();
    assert_eq!(fs::read(&replaced).unwrap(), b"another's");
}

#[test]
fn a_ledger_that_cannot_be_made_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("a/b").join("x".repeat(300));
    assert!(matches!(
        at(&long),
        Err(LedgerError::Path {
            cause: Errno::ENAMETOOLONG,
            ..
        })
    ));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_directory_of_someone_elses_holds_no_ledger() {
    if !Uid::effective().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(
        &theirs,
        Some(Uid::from_raw(10001)),
        Some(Gid::from_raw(10001)),
    )
    .unwrap();
    let found = at(&theirs.join("sub/run.jsonl"));
    assert!(
        matches!(
            found,
            Err(LedgerError::Unsafe(UnsafePath::Owner { uid: 10001, .. }))
        ),
        "{found:?}"
    );
    assert!(names(&theirs).is_empty());
    let open_to_all = dir.path().join("open");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        at(&open_to_all.join("r")),
        Err(LedgerError::Unsafe(UnsafePath::OthersWrite { .. }))
    ));
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o1777)).unwrap();
    at(&open_to_all.join("r")).unwrap();
}
