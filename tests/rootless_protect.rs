//! What the host would run later is read-only on a dev box, and cannot be made where it is missing; nothing of ours stays.

mod common;
mod dev_box;

use common::value;
use dev_box::{Dev, PROJECT};
use std::collections::BTreeSet;

/// What the table protects that is there, and what is missing.
const PRESENT: [&str; 5] =
    [".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".envrc", "/home/dev/.config/autostart/a.desktop"];
const MISSING: [&str; 7] = [
    ".git/hooks/post-checkout",
    ".git/commondir",
    ".git/config.worktree",
    ".idea/workspace.xml",
    ".bashrc",
    ".mcp.json",
    "/home/dev/.config/systemd/user/x.service",
];

/// Every way by which each path of the arguments could get another content; the error of each, or `ok`.
const ATTACK: &str = r#"
python3 - "$@" <<'END'
import errno, os, sys
def tried(path, how, act):
    try:
        act()
        said = "ok"
    except OSError as cause:
        said = errno.errorcode[cause.errno]
    print(f"{path}-{how}={said}")
def moved_away(path):
    for above in [path, os.path.dirname(path)]:
        os.rename(above, above + ".away")
for path in sys.argv[1:]:
    with open("evil", "w") as f:
        f.write("evil")
    tried(path, "write", lambda: open(path, "w").write("evil"))
    tried(path, "make", lambda: (os.makedirs(os.path.dirname(path) or ".", exist_ok=True), open(path, "x").write("evil")))
    tried(path, "replace", lambda: os.rename("evil", path))
    tried(path, "link", lambda: os.link("file", path))
    tried(path, "unlink", lambda: os.unlink(path))
    tried(path, "move", lambda: moved_away(path))
    tried(path, "chmod", lambda: os.chmod(path, 0o777))
END"#;

fn attack(paths: &[&str]) -> String {
    format!("set -- {}; {ATTACK}", paths.join(" "))
}

fn prepared() -> Dev {
    let dev = Dev::new();
    dev.must(
        "mkdir -p .vscode ~/.config/autostart; echo kept > .envrc; echo kept > .vscode/tasks.json
         echo kept > .git/hooks/pre-commit; echo kept > ~/.config/autostart/a.desktop",
    );
    dev
}

/// The content of each protected path, as the host sees it.
fn seen(dev: &Dev) -> String {
    let all = [&PRESENT[..], &MISSING[..]].concat().join(" ");
    dev.must(&format!("for path in {all}; do echo \"$path $(stat -c %a $path 2>&1) $(cat $path 2>&1)\"; done"))
}

#[test]
fn no_way_leads_to_another_content_of_what_is_protected() {
    let dev = prepared();
    let (before, home) = (seen(&dev), dev.home());
    let paths = [&PRESENT[..], &MISSING[..]].concat();
    let ended = dev.run(&[], &attack(&paths));
    assert_eq!(ended.start().rung, "rootless", "{ended}");
    for path in &paths {
        for how in ["write", "make", "replace", "link", "unlink", "move", "chmod"] {
            let outcome = ended.value(&format!("{path}-{how}"));
            assert!(outcome != "ok", "{path}-{how}: {ended}");
        }
        // Where the directory itself is missing, making that is what is refused.
        let refused = [ended.value(&format!("{path}-write")), ended.value(&format!("{path}-make"))];
        assert!(refused.contains(&"EROFS"), "{path}: {ended}");
    }
    assert_eq!(ended.value(".envrc-write"), "EROFS", "{ended}");
    // However the kernel calls it: each of these would have gone through without the mounts.
    for path in [".envrc", ".git/config", ".bashrc"] {
        let path = format!("{PROJECT}/{path}");
        let of_path = |operation: &str, errno: &str| {
            ended.denials().into_iter().any(|d| {
                let named = d.object.path.as_deref() == Some(&path) || d.object.to.as_deref() == Some(&path);
                named && d.operation == operation && d.errno.as_deref() == Some(errno)
            })
        };
        let replaced = if path.contains(".git") { "EXDEV" } else { "EBUSY" };
        assert!(of_path("rename", replaced) && of_path("unlink", "EBUSY"), "{path}: {ended}");
    }
    let told = |path: &str| {
        let path = format!("{PROJECT}/{path}");
        ended
            .denials()
            .into_iter()
            .any(|d| d.object.path.as_deref() == Some(&path) && d.errno.as_deref() == Some("EROFS"))
    };
    assert!(told(".envrc") && told(".git/config") && told(".vscode/tasks.json"), "{ended}");
    assert_eq!(seen(&dev), before);
    let extra: BTreeSet<String> = dev.home().into_iter().filter(|line| !home.contains(line)).collect();
    let left: Vec<&String> = extra.iter().filter(|line| !line.contains("/evil") && !line.contains(" d ")).collect();
    let left: Vec<_> = left.into_iter().filter(|line| !line.starts_with("d ")).collect();
    assert!(left.is_empty(), "nothing of ours is left: {left:?}");
}

#[test]
fn without_protection_each_of_these_ways_is_open() {
    let dev = prepared();
    let paths = [&PRESENT[..4], &MISSING[..6]].concat();
    let ended = dev.run(&["--protect"], &attack(&paths));
    for path in &paths {
        assert_eq!(
            ended.value(&format!("{path}-write")),
            if path.contains('/') && path.contains(".idea") { "ENOENT" } else { "ok" },
            "{path}: {ended}"
        );
        assert_eq!(ended.value(&format!("{path}-replace")), "ok", "{path}: {ended}");
    }
    let listed = dev.run(
        &["--protect", "only/this"],
        "echo x > .envrc; echo envrc=$?; mkdir -p only; echo x > only/this; echo this=$?",
    );
    assert_eq!((listed.value("envrc"), listed.value("this")), ("0", "1"), "{listed}");
}

#[test]
fn git_works_but_for_its_configuration() {
    let dev = Dev::new();
    let script =
        "set -e; echo two > two; git add --all; git commit -qm two; git status --short; git branch b; git switch -q b
        git stash list; git tag t; git gc -q; git worktree list; git log --oneline | wc -l
        ! git config core.fsmonitor ./evil || exit 9; ! git config core.hooksPath . || exit 9; echo done";
    let ended = dev.run(&[], script);
    assert_eq!((ended.said.code, ended.said.out.lines().last()), (Some(0), Some("done")), "{ended}");
    // Git has left a process behind that keeps house, and with it the run stays.
    dev.await_true("the run is over", || placeholders(&dev) == 0);
    assert_eq!(
        dev.must("git config --get-regexp 'core.(fsmonitor|hookspath)' | wc -l; git ls-files; git status --short"),
        "0\nfile\ntwo\n"
    );
}

#[test]
fn nested_and_linked_repositories_are_protected_too() {
    let dev = Dev::new();
    dev.must(
        "git init -q sub/deep; git -C sub/deep commit -q --allow-empty -m x; git init -q --separate-git-dir=apart linked
         git -c protocol.file.allow=always submodule --quiet add ./sub/deep mod",
    );
    let paths = [
        "sub/deep/.git/config",
        "sub/deep/.git/hooks/post-checkout",
        "apart/config",
        "apart/commondir",
        ".git/modules/mod/config",
        ".git/modules/mod/hooks/x",
    ];
    let ended = dev.run(&[], &attack(&paths));
    for path in &paths {
        for how in ["write", "make", "replace", "link", "unlink", "move", "chmod"] {
            assert!(ended.value(&format!("{path}-{how}")) != "ok", "{path}-{how}: {ended}");
        }
    }
}

#[test]
fn another_mount_of_the_project_is_no_way_around() {
    let dev = Dev::new();
    common::as_root(
        &dev.fence,
        "mkdir -p /tmp/again /mnt/home; mount --bind /home/dev/project /tmp/again; mount --bind /home /mnt/home",
    );
    dev.must("echo kept > .envrc");
    let paths = [
        "/tmp/again/.git/config",
        "/tmp/again/.git/hooks/x",
        "/tmp/again/.envrc",
        "/tmp/again/.git/commondir",
        "/tmp/again/.vscode/x",
        "/mnt/home/dev/project/.envrc",
    ];
    let script = format!(
        "set -- {}; {}",
        paths.join(" "),
        "for path; do echo evil 2>/dev/null > $path; echo $path=$?; rm -f $path 2>/dev/null; done; echo live > /tmp/again/live; cat /tmp/again/live"
    );
    let ended = dev.run(&[], &script);
    for path in paths {
        assert_eq!(ended.value(path), "1", "{path}: {ended}");
    }
    assert!(ended.said.out.ends_with("live\n"), "the rest of it is the command's: {ended}");
    assert_eq!(dev.must("cat .envrc; git status --short; git config --get-regexp evil || :; ls .git/hooks/x .git/commondir 2>/dev/null || :"), "kept\n?? .envrc\n?? live\n");
    let open = dev.run(&["--protect"], "echo evil > /tmp/again/.envrc");
    assert_eq!(open.said.code, Some(0), "live: {open}");
}

#[test]
fn where_there_is_no_repository_none_can_be_made() {
    let dev = Dev::new();
    dev.must("rm -rf .git");
    let ended = dev.run(&[], "git init . ; mkdir .git/x; echo x > .git/config; rmdir .git; mv .git y; echo end");
    assert_eq!(ended.said.out, "end\n", "{ended}");
    assert_eq!(dev.must("ls -A"), "file\n", "{ended}");
    let live = dev.run(&["--protect"], "git init -q .");
    assert_eq!(live.said.code, Some(0), "{live}");
}

#[test]
fn a_race_for_a_missing_path_is_never_won() {
    let dev = Dev::new();
    let script = r#"
python3 - <<'END'
import os, threading
won, tries = [], 0
over = threading.Event()
def make():
    global tries
    for n in range(10000):
        tries += 1
        try:
            os.close(os.open(".envrc", os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
            won.append(n)
        except OSError:
            pass
    over.set()
def disturb(act):
    while not over.is_set():
        try:
            act()
        except OSError:
            pass
acts = [lambda: os.unlink(".envrc"), lambda: os.rename("file", ".envrc"), lambda: os.rename(".envrc", "away"),
        lambda: os.rename(".git", "git-away"), lambda: os.symlink("file", ".envrc")]
threads = [threading.Thread(target=disturb, args=(act,)) for act in acts] + [threading.Thread(target=make)]
[t.start() for t in threads]; [t.join() for t in threads]
print(f"tries={tries}\nwon={len(won)}")
END"#;
    let ended = dev.run(&[], script);
    assert_eq!((ended.value("tries"), ended.value("won")), ("10000", "0"), "{ended}");
    assert_eq!(dev.must("ls -A"), ".git\nfile\n", "{ended}");
}

fn placeholders(dev: &Dev) -> usize {
    dev.said("ls -Ad .envrc .vscode .git/commondir ~/.config/autostart ~/.local/state/ringfence/*.placeholders")
        .out
        .lines()
        .count()
}

#[test]
fn what_a_run_has_put_there_goes_when_it_is_killed() {
    let dev = Dev::new();
    let before = dev.home();
    // The supervisor alone: the stage removes it.
    let mut run = dev.live(&[], "echo ready; read || :");
    assert_eq!((run.line().as_str(), placeholders(&dev)), ("ready", 5));
    run.child.kill().expect("it lives");
    run.child.wait().expect("it has ended");
    dev.await_true("the stage removes it", || placeholders(&dev) == 0);
    // All of ours at once: the next run does.
    let mut run = dev.live(&[], "echo ready; read || :");
    assert_eq!((run.line().as_str(), placeholders(&dev)), ("ready", 5));
    let ours = dev.ours(&run).join(" ");
    dev.must(&format!("kill -STOP {ours}; kill -KILL {ours}"));
    run.child.wait().expect("it has ended");
    assert_eq!(placeholders(&dev), 5, "live: nobody was left to remove it");
    let ended = dev.run(&[], "true");
    assert_eq!((ended.said.code, placeholders(&dev)), (Some(0), 0), "{ended}");
    let files = |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with('d')).collect::<Vec<_>>();
    assert_eq!(files(dev.home()), files(before));
}

#[test]
fn two_runs_at_once_share_them_until_the_last_has_ended() {
    let dev = Dev::new();
    let mut first = dev.live(&[], "echo ready; read || :");
    assert_eq!(first.line(), "ready");
    let mut second = dev.live(
        &[],
        "echo ready; read || :; echo x > .envrc; echo status=$?; echo evil > .git/commondir; echo status=$?",
    );
    assert_eq!(second.line(), "ready");
    assert_eq!(first.end().code, Some(0));
    assert_eq!(dev.must("ls .envrc .git/commondir"), ".envrc\n.git/commondir\n", "the second run still needs them");
    second.tell("");
    let said = second.end();
    assert_eq!(said.out, "status=1\nstatus=1\n", "{said}");
    assert_eq!(placeholders(&dev), 0);
}

#[test]
fn what_the_user_writes_meanwhile_stays() {
    let dev = Dev::new();
    let mut run = dev.live(&[], "echo ready; read || :");
    assert_eq!(run.line(), "ready");
    dev.must("echo '{}' > .vscode/settings.json");
    assert_eq!(run.end().code, Some(0));
    assert_eq!(dev.must("ls -A .vscode"), "settings.json\n");
}

#[test]
fn a_link_in_the_place_of_a_protected_path_is_refused_by_name() {
    let dev = Dev::new();
    dev.must("mkdir real; ln -s real .vscode");
    let ended = dev.run(&[], "touch /tmp/started");
    assert_eq!(ended.said.code, Some(125), "{ended}");
    assert!(ended.said.err.contains(".vscode is a symbolic link that the command could replace"), "{ended}");
    assert!(dev.fence.world.read("/tmp/started").is_none());
    let ended = dev.run(&["--protect", ".envrc"], "touch /tmp/started; echo made=yes");
    assert_eq!(value(&ended.said, "made"), "yes", "live: {ended}");
}
