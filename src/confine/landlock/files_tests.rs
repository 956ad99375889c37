use super::*;
use crate::install::mounts::{MountPlan, Writable};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};

/// Trees of a test: `kept` is read-only, with `kept/open` writable in it; `beside` is neither.
struct Trees {
    directory: tempfile::TempDir,
}

impl Trees {
    fn new() -> Trees {
        let directory = tempfile::tempdir().unwrap();
        let trees = Trees { directory };
        for at in ["kept", "kept/open", "beside"] {
            fs::create_dir(trees.at(at)).unwrap();
            fs::write(trees.at(at).join("file"), "as it was").unwrap();
            fs::create_dir(trees.at(at).join("directory")).unwrap();
        }
        symlink(trees.at("kept"), trees.at("beside/link")).unwrap();
        fs::write(trees.at("file"), "as it was").unwrap();
        trees
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn plan(&self) -> MountPlan {
        MountPlan {
            read_only: vec![self.at("kept")],
            writable: vec![Writable { path: self.at("kept/open"), idmapped: false }],
            ..MountPlan::default()
        }
    }
}

/// Does `work` in a thread that is under the ruleset of a plan.
fn under<T: Send + 'static>(plan: &MountPlan, work: impl FnOnce() -> T + Send + 'static) -> T {
    let rules = prepare(&Barrier::beside(plan, &[])).unwrap();
    let thread = std::thread::spawn(move || {
        nix::sys::prctl::set_no_new_privs().unwrap();
        rules.restrict().unwrap();
        work()
    });
    thread.join().unwrap()
}

fn errno<T>(outcome: std::io::Result<T>) -> Option<Errno> {
    outcome.err().map(|error| Errno::from_raw(error.raw_os_error().unwrap()))
}

/// Every act on contents and names in a directory that has `file` and `directory`.
fn acts(at: &Path) -> Vec<(&'static str, Option<Errno>)> {
    let name = |name: &str| at.join(name);
    let c = |name: &str| CString::new(at.join(name).as_os_str().as_bytes()).unwrap();
    let nodes = |kind: SFlag| nix::sys::stat::mknod(name("node").as_path(), kind, Mode::S_IRWXU, 0);
    let node = |kind: SFlag| {
        let made = nodes(kind).err();
        if made.is_none() {
            fs::remove_file(name("node")).unwrap();
        }
        made
    };
    let truncated = |c: CString| nix::unistd::truncate(c.as_c_str(), 3).err();
    vec![
        ("write", errno(fs::OpenOptions::new().write(true).open(name("file")))),
        ("append", errno(fs::OpenOptions::new().append(true).open(name("file")))),
        ("cut at open", errno(fs::OpenOptions::new().write(true).truncate(true).open(name("file")))),
        ("truncate", truncated(c("file"))),
        ("create", errno(fs::File::create_new(name("new")))),
        ("rename", errno(fs::rename(name("file"), name("other")))),
        ("rename into", errno(fs::rename(name("other"), name("directory/file")))),
        ("link", errno(fs::hard_link(name("directory/file"), name("linked")))),
        ("symlink", errno(symlink("x", name("pointer")))),
        ("unlink", errno(fs::remove_file(name("directory/file")))),
        ("unlink link", errno(fs::remove_file(name("linked")))),
        ("mkdir", errno(fs::create_dir(name("made")))),
        ("rename directory", errno(fs::rename(name("directory"), name("moved")))),
        ("rmdir", errno(fs::remove_dir(name("moved")))),
        ("fifo", node(SFlag::S_IFIFO)),
        ("socket", node(SFlag::S_IFSOCK)),
        ("device", node(SFlag::S_IFCHR)),
        ("block", node(SFlag::S_IFBLK)),
        ("temporary", errno(temporary(at))),
    ]
}

fn temporary(at: &Path) -> std::io::Result<fs::File> {
    fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(at)
}

#[test]
fn a_tree_takes_no_contents_and_no_names_and_what_lies_beside_takes_all() {
    let trees = Trees::new();
    let (kept, open, beside) = (trees.at("kept"), trees.at("kept/open"), trees.at("beside"));
    let (kept, open, beside) = under(&trees.plan(), move || (acts(&kept), acts(&open), acts(&beside)));
    for acts in [open, beside] {
        assert!(acts.iter().all(|(_, errno)| errno.is_none()), "{acts:?}");
    }
    // What is missing is missing because it was refused before.
    let refused = [Some(Errno::EACCES), Some(Errno::EXDEV), Some(Errno::ENOENT)];
    assert!(kept.iter().all(|(_, errno)| refused.contains(errno)), "{kept:?}");
    let missing: Vec<&str> = kept.iter().filter(|(_, e)| *e == Some(Errno::ENOENT)).map(|(act, _)| *act).collect();
    assert_eq!(missing, ["rename into", "link", "unlink", "unlink link", "rmdir"], "{kept:?}");
    assert_eq!(fs::read(trees.at("kept/file")).unwrap(), b"as it was");
}

#[test]
fn nothing_comes_in_or_goes_out_and_no_other_way_there_is_open() {
    let trees = Trees::new();
    let at = trees.directory.path().to_owned();
    let [within, from, link, descriptor, up] = under(&trees.plan(), move || {
        let read = fs::File::open(at.join("kept/file")).unwrap();
        let again = format!("/proc/self/fd/{}", read.as_raw_fd());
        [
            errno(fs::rename(at.join("beside/file"), at.join("kept/file"))),
            errno(fs::rename(at.join("kept/file"), at.join("beside/new"))),
            errno(fs::write(at.join("beside/link/file"), "new")),
            errno(fs::OpenOptions::new().write(true).open(again)),
            errno(fs::hard_link(at.join("kept/file"), at.join("beside/linked"))),
        ]
    });
    assert_eq!([within, from, up], [Errno::EACCES, Errno::EACCES, Errno::EXDEV].map(Some));
    assert_eq!([link, descriptor], [Some(Errno::EACCES); 2]);
    assert_eq!(fs::read(trees.at("kept/file")).unwrap(), b"as it was");
}

#[test]
fn a_file_beside_a_tree_takes_contents_and_its_directory_no_names() {
    let trees = Trees::new();
    let at = trees.directory.path().to_owned();
    let (file, name) =
        under(&trees.plan(), move || (errno(fs::write(at.join("file"), "new")), errno(fs::write(at.join("name"), ""))));
    assert_eq!((file, name), (None, Some(Errno::EACCES)));
}

#[test]
fn where_everything_is_read_only_devices_and_the_process_table_are_not() {
    let trees = Trees::new();
    let plan = MountPlan { whole_read_only: true, ..trees.plan() };
    let plan = MountPlan {
        writable: [plan.writable, vec![Writable { path: "/proc".into(), idmapped: false }]].concat(),
        ..plan
    };
    let at = trees.directory.path().to_owned();
    let seen = under(&plan, move || {
        [
            errno(fs::write("/dev/null", "x")),
            errno(fs::write("/proc/thread-self/comm", "renamed")),
            errno(fs::write(at.join("kept/open/file"), "new")),
            errno(fs::write(at.join("beside/file"), "new")),
            errno(fs::create_dir("/dev/made")),
        ]
    });
    assert_eq!(seen, [None, None, None, Some(Errno::EACCES), Some(Errno::EACCES)]);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn a_tree_within_what_is_writable_is_refused_by_name() {
    let trees = Trees::new();
    let plan = MountPlan { read_only_within: vec![trees.at("kept/open/directory")], ..trees.plan() };
    let fault = prepare(&Barrier::beside(&plan, &[])).unwrap_err().to_string();
    assert!(fault.contains("kept/open/directory is read-only within"), "{fault}");
}

#[test]
fn a_write_that_is_not_refused_is_seen() {
    let trees = Trees::new();
    let mut rules = prepare(&Barrier::beside(&trees.plan(), &[])).unwrap();
    assert_eq!(rules.witness, Some(trees.at("kept")), "root can make a name there");
    rules.witness = Some(trees.at("beside"));
    let fault = std::thread::spawn(move || {
        nix::sys::prctl::set_no_new_privs().unwrap();
        rules.restrict().unwrap_err().to_string()
    });
    assert!(fault.join().unwrap().contains("a name can be made in"));
    assert_eq!(fs::read_dir(trees.at("beside")).unwrap().count(), 3, "and is gone again");
}

#[test]
fn a_domain_of_scopes_beneath_takes_no_right_away() {
    for beside_files in [true, false] {
        let trees = Trees::new();
        let at = trees.directory.path().to_owned();
        let outcomes = under(&trees.plan(), move || {
            crate::confine::landlock::restrict_scopes(false, beside_files).unwrap();
            [
                errno(fs::rename(at.join("beside/file"), at.join("beside/directory/file"))),
                errno(fs::hard_link(at.join("kept/file"), at.join("beside/linked"))),
                errno(fs::write(at.join("kept/file"), "new")),
            ]
        });
        let moved = if beside_files { None } else { Some(Errno::EXDEV) };
        assert_eq!(outcomes, [moved, Some(Errno::EXDEV), Some(Errno::EACCES)], "{beside_files}");
    }
}
