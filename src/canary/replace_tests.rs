//! What others do to the names between the reading of a file and the end of the commit.
use super::super::place::Directory;
use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::rc::Rc;

struct Tree(tempfile::TempDir);

impl Tree {
    /// `d/a` and `victim/a`.
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("d", "ours"), ("victim", "theirs")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("a"), content).unwrap();
        }
        Tree(dir)
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn directory(&self) -> Rc<Directory> {
        Directory::given(self.0.path()).unwrap().within(OsStr::new("d")).unwrap()
    }

    /// `d/a` read, and its replacement written.
    fn staged(&self) -> Replacement {
        let original = Original::open(&self.directory().place(OsStr::new("a"))).unwrap();
        let mut replacement = Replacement::default();
        replacement.stage(&original, b"planted").unwrap();
        replacement
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn in_peace_a_file_is_replaced_and_nothing_is_left() {
    let tree = Tree::new();
    tree.staged().commit().unwrap();
    assert_eq!(fs::read(tree.at("d/a")).unwrap(), b"planted");
    assert_eq!(names(&tree.at("d")), ["a"]);
}

#[test]
fn another_directory_of_the_same_name_is_left_alone() {
    for linked in [true, false] {
        let tree = Tree::new();
        let replacement = tree.staged();
        fs::rename(tree.at("d"), tree.at("moved")).unwrap();
        match linked {
            true => symlink("victim", tree.at("d")).unwrap(),
            false => fs::rename(tree.at("victim"), tree.at("d")).unwrap(),
        }
        assert!(matches!(replacement.commit(), Err(CanaryError::HalfDone { .. })), "{linked}");
        assert_eq!(names(&tree.at("d")), ["a"]);
        assert_eq!(fs::read(tree.at("d/a")).unwrap(), b"theirs");
        assert_eq!(fs::read(tree.at("moved/a")).unwrap(), b"ours");
    }
}

#[test]
fn a_file_that_was_changed_or_replaced_meanwhile_stays_as_it_is() {
    for replaced in [true, false] {
        let tree = Tree::new();
        let replacement = tree.staged();
        match replaced {
            true => {
                fs::write(tree.at("d/b"), "newer").unwrap();
                fs::rename(tree.at("d/b"), tree.at("d/a")).unwrap();
            }
            false => fs::write(tree.at("d/a"), "newer").unwrap(),
        }
        let said = replacement.commit().unwrap_err().to_string();
        assert!(said.contains("was changed after it was read"), "{said}");
        assert_eq!(fs::read(tree.at("d/a")).unwrap(), b"newer");
        assert_eq!(names(&tree.at("d")), ["a"]);
    }
}

#[test]
fn a_file_that_came_meanwhile_is_not_replaced() {
    let tree = Tree::new();
    let like = Original::open(&tree.directory().place(OsStr::new("a"))).unwrap();
    let stage = || {
        let mut replacement = Replacement::default();
        replacement.stage_new(&tree.directory().place(OsStr::new("a.canary")), b"planted", &like).unwrap();
        replacement
    };
    let replacement = stage();
    fs::write(tree.at("d/a.canary"), "came").unwrap();
    assert!(replacement.commit().unwrap_err().to_string().contains("File exists"));
    assert_eq!(fs::read(tree.at("d/a.canary")).unwrap(), b"came");
    fs::remove_file(tree.at("d/a.canary")).unwrap();
    stage().commit().unwrap();
    assert_eq!(names(&tree.at("d")), ["a", "a.canary"]);
}

#[test]
fn what_was_put_in_place_of_the_new_content_is_not_taken_for_it() {
    let tree = Tree::new();
    let replacement = tree.staged();
    let new = names(&tree.at("d")).into_iter().find(|name| name.starts_with(".canary-new")).unwrap();
    fs::write(tree.at("d/b"), "forged").unwrap();
    fs::rename(tree.at("d/b"), tree.at("d").join(new)).unwrap();
    let said = replacement.commit().unwrap_err().to_string();
    assert!(said.contains("was replaced by another file"), "{said}");
    assert_eq!(fs::read(tree.at("d/a")).unwrap(), b"ours");
    assert_eq!(names(&tree.at("d")), ["a"]);
}
