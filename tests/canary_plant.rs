//! `ringfence canary plant`: files stay what they were, and all get a token or none does.

#[allow(dead_code, reason = "each user has its own part")]
mod canary;

use canary::*;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const NOBODY: u32 = 65534;

/// Every file beneath a directory with its content.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => contents.extend(self::contents(&entry.path())),
            kind if kind.is_file() => drop(contents.insert(entry.path(), fs::read(entry.path()).unwrap())),
            _ => {}
        }
    }
    contents
}

#[test]
fn each_format_stays_valid_and_has_its_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("a.py", "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\nfrom __future__ import annotations\nprint('ran')\n"),
        ("run", "#!/bin/sh\necho ran\n"),
        ("a.json", "{\"a\": [1, 2]}\n"),
        ("a.toml", "a = 1\n"),
        ("a.xml", "<?xml version=\"1.0\"?>\n<a/>\n"),
        ("a.csv", "a,b\n1,2\n"),
        ("fix.patch", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"),
        ("empty", ""),
        ("deep/notes.md", "# Notes\n"),
    ];
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    }
    fs::write(dir.path().join("binary"), [0, 1, 2, 0xff]).unwrap();
    let (lines, status) = json(&["plant", "--json", text(dir.path())]);
    assert_eq!((lines.len(), status), (files.len() + 1, 0));
    for line in &lines {
        let (path, holder) = (line["path"].as_str().unwrap(), line["holder"].as_str().unwrap());
        let token = line["token"].as_str().unwrap();
        let held = fs::read_to_string(holder).unwrap();
        assert_eq!(held.matches(token).count(), 1, "{holder}");
        let beside = [".json", ".csv", "empty", "binary"].iter().any(|ending| path.ends_with(ending));
        assert_eq!(holder, if beside { format!("{path}.canary") } else { path.to_owned() });
        if let Some((_, content)) = files.iter().find(|(name, _)| path == text(&dir.path().join(name))) {
            let without: String =
                fs::read_to_string(path).unwrap().split_inclusive('\n').filter(|line| !line.contains(token)).collect();
            assert_eq!(without, *content, "{path}");
        }
    }
    for script in ["a.py", "run"] {
        let ran = Command::new(dir.path().join(script)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{script}");
    }
    let parse = "import sys, json, tomllib, xml.dom.minidom as x\nd = sys.argv[1]\njson.load(open(d + '/a.json'))\ntomllib.load(open(d + '/a.toml', 'rb'))\nx.parse(d + '/a.xml')";
    python(parse, &[text(dir.path())]);
    fs::write(dir.path().join("x"), "old\n").unwrap();
    let applied = Command::new("git").args(["apply", "fix.patch"]).current_dir(dir.path()).status().unwrap();
    assert!(applied.success());
    assert_eq!(fs::read_to_string(dir.path().join("x")).unwrap(), "new\n");
}

#[test]
fn a_file_keeps_its_mode_owner_attributes_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sh");
    fs::write(&path, "echo x\n").unwrap();
    chown(&path, Some(NOBODY), Some(7)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let set = "import os, sys\nos.setxattr(sys.argv[1], 'user.kept', b'value')\nos.utime(sys.argv[1], (1000, 2000))";
    python(set, &[text(&path)]);
    plant(&path);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid(), after.mode() & 0o7777), (NOBODY, 7, 0o4751));
    assert_eq!((after.mtime(), after.nlink()), (2000, 1));
    assert_eq!(python("import os, sys\nprint(os.getxattr(sys.argv[1], 'user.kept'))", &[text(&path)]), "b'value'\n");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is left beside it");
}

#[test]
fn a_default_access_list_of_the_directory_gives_nobody_more() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["a.py", "b.json", "c.py"] {
        fs::write(at(name), "x = 1\n").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o660)).unwrap();
    }
    // acl(5) as the kernel stores it: a version, then tag, permissions and id of each entry.
    let lists = r#"
import os, struct, sys
def list(*entries): return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
NONE, user, other = 0xffffffff, 65534, 65533
os.setxattr(sys.argv[1], 'system.posix_acl_default', list((1, 7, NONE), (2, 7, user), (4, 5, NONE), (16, 7, NONE), (32, 5, NONE)))
os.setxattr(sys.argv[1] + '/c.py', 'system.posix_acl_access', list((1, 6, NONE), (2, 4, other), (4, 0, NONE), (16, 6, NONE), (32, 0, NONE)))
open(sys.argv[1] + '/control', 'w').close()
"#;
    python(lists, &[text(dir.path())]);
    let show = "import os, sys\nfor name in sys.argv[2:]:\n  p = sys.argv[1] + '/' + name\n  print(name, oct(os.stat(p).st_mode & 0o7777), [(n, os.getxattr(p, n).hex()) for n in sorted(os.listxattr(p))])";
    let before = python(show, &[text(dir.path()), "a.py", "b.json", "c.py"]);
    assert!(python(show, &[text(dir.path()), "control"]).contains("posix_acl_access"), "nothing is inherited here");
    let tokens = at("tokens");
    let (lines, status) = json(&[
        "plant",
        "--json",
        "--tokens",
        text(&tokens),
        text(&at("a.py")),
        text(&at("b.json")),
        text(&at("c.py")),
    ]);
    assert_eq!((lines.len(), status), (3, 0));
    assert_eq!(python(show, &[text(dir.path()), "a.py", "b.json", "c.py"]), before);
    let new = python(show, &[text(dir.path()), "b.json.canary", "tokens"]);
    assert_eq!(new, "b.json.canary 0o660 []\ntokens 0o600 []\n");
}

#[test]
fn a_name_that_json_cannot_hold_is_refused_before_anything_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"odd\xff.py"));
    fs::write(&odd, "x = 1\n").unwrap();
    fs::write(dir.path().join("a.py"), "x = 1\n").unwrap();
    let before = contents(dir.path());
    let output = canary(&["plant", "--json", text(dir.path())]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("has a name that JSON cannot hold") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(contents(dir.path()), before);
    assert!(canary(&["plant", text(dir.path())]).status.success(), "as text it can be told");
}

#[test]
fn no_link_leads_a_token_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, content) in [("victim", "x = 'theirs'\n"), ("real", "x = 'ours'\n"), ("real/deep", "x = 'deep'\n")] {
        fs::create_dir_all(at(name)).unwrap();
        fs::write(at(name).join("a.py"), content).unwrap();
    }
    fs::create_dir(at("victim/deep")).unwrap();
    fs::write(at("victim/deep/a.py"), "x = 'theirs'\n").unwrap();
    symlink("victim", at("link")).unwrap();
    let theirs = contents(&at("victim"));
    for named in ["link/a.py", "link/deep", "link/deep/a.py"] {
        let output = canary(&["plant", text(&at(named))]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("is reached by a symbolic link") && said.lines().count() == 1, "{named}: {said}");
    }
    let tokens = at("link/tokens");
    assert_eq!(canary(&["plant", "--tokens", text(&tokens), text(&at("real/a.py"))]).status.code(), Some(125));
    assert_eq!(contents(&at("victim")), theirs);

    // While the owner of the directory above swaps the two.
    let held = File::open(at("real")).unwrap();
    let real = |file: &str| format!("/proc/self/fd/{}/{file}", held.as_raw_fd());
    let ended = AtomicBool::new(false);
    let planted = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &at("link"), AT_FDCWD, &at("real"), RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        });
        let all: Vec<bool> = (0..200)
            .map(|_| {
                let planted = canary(&["plant", text(&at("real"))]).status.success();
                for file in ["a.py", "deep/a.py"] {
                    fs::write(real(file), "x = 'ours'\n").unwrap();
                }
                planted
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        all
    });
    assert_eq!(contents(&at("victim")), theirs, "{planted:?}");
    assert!(planted.contains(&false), "the two were never swapped in time");
    let by_proc = canary(&["plant", &real("a.py").replace("self", &std::process::id().to_string())]);
    assert!(String::from_utf8_lossy(&by_proc.stderr).contains("is reached by a symbolic link"), "by way of /proc");
    let still = if at("link").is_symlink() { at("real") } else { at("link") };
    assert!(canary(&["plant", text(&still.join("a.py"))]).status.success(), "in peace");
}

#[test]
fn planting_again_changes_nothing_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.py"), "x = 1\n").unwrap();
    fs::write(dir.path().join("a.json"), "{}\n").unwrap();
    let tokens = dir.path().join("tokens");
    let plant = || {
        let (mut lines, status) = json(&["plant", "--json", "--tokens", text(&tokens), text(dir.path())]);
        assert_eq!(status, 0);
        let already: Vec<bool> = lines.iter_mut().map(|line| line["already"].take().as_bool().unwrap()).collect();
        (lines, already)
    };
    let (first, already) = plant();
    assert_eq!(already, [false, false]);
    let before = contents(dir.path());
    assert_eq!(plant(), (first, vec![true, true]));
    assert_eq!(contents(dir.path()), before);
    assert_eq!(fs::metadata(&tokens).unwrap().mode() & 0o7777, 0o600);

    // A further file adds its token to those that are there.
    fs::write(dir.path().join("b.py"), "").unwrap();
    assert_eq!(plant().1, [true, true, false]);
    assert_eq!(fs::read_to_string(&tokens).unwrap().lines().count(), 1 + 3);
}

#[test]
fn what_cannot_have_a_token_is_named_and_then_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("a.py"), "x = 1\n").unwrap();
    fs::write(at("z.py"), "x = 1\n").unwrap();
    fs::hard_link(at("z.py"), at("z2.py")).unwrap();
    symlink("a.py", at("link")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(at("b.json"), "{}").unwrap();
    fs::write(at("b.json.canary"), "something else\n").unwrap();
    let before = contents(dir.path());
    for (name, expected) in [
        ("z.py", "has 2 hard links"),
        ("link", "is a symbolic link"),
        ("pipe", "is no regular file"),
        ("b.json", "is in the way of a canary"),
        ("missing", "cannot be found"),
    ] {
        let output = canary(&["plant", text(&at("a.py")), text(&at(name))]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected) && said.lines().count() == 1, "{name}: {said}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{name}");
        assert_eq!(contents(dir.path()), before, "{name}");
    }
    // The same beneath a directory, where links and pipes are no files to be planted.
    let output = canary(&["plant", text(dir.path())]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(contents(dir.path()), before);
    for name in ["z2.py", "b.json.canary"] {
        fs::remove_file(at(name)).unwrap();
    }
    let (lines, status) = json(&["plant", "--json", text(dir.path())]);
    assert_eq!((lines.len(), status), (3, 0), "{lines:?}");
}

#[test]
fn a_directory_that_takes_no_file_leaves_all_others_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, owner) in [("a", NOBODY), ("b", 0)] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("x.py"), "x = 1\n").unwrap();
        chown(dir.path().join(name).join("x.py"), Some(NOBODY), Some(NOBODY)).unwrap();
        chown(dir.path().join(name), Some(owner), None).unwrap();
    }
    let before = contents(dir.path());
    let program = dir.path().join("ringfence");
    fs::copy(canary::tested::binary(), &program).unwrap();
    let plant = |names: &[&str]| {
        let paths = names.iter().map(|name| dir.path().join(name));
        Command::new(&program).args(["canary", "plant"]).args(paths).uid(NOBODY).gid(NOBODY).output().unwrap()
    };
    let output = plant(&["a", "b"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("b/x.py") && said.contains("Permission denied"), "{said}");
    let mut after = contents(dir.path());
    after.remove(&program);
    assert_eq!(after, before);
    assert!(plant(&["a"]).status.success(), "the first alone");
}

#[test]
fn the_pattern_matches_the_token_and_not_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.py");
    fs::write(&path, "x = 1\n").unwrap();
    let (token, pattern) = plant(&path);
    let grep = |text: &str| {
        let file = dir.path().join("text");
        fs::write(&file, text).unwrap();
        Command::new("grep").args(["-qE", &pattern]).arg(&file).status().unwrap().success()
    };
    assert!(grep(&format!("x {token} y")));
    assert!(!grep(&pattern));
    let search =
        "import re, sys\nprint(bool(re.search(sys.argv[1], sys.argv[2])), bool(re.search(sys.argv[1], sys.argv[1])))";
    assert_eq!(python(search, &[&pattern, &token]), "True False\n");
}
