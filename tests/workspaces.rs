//! A workspace that root owns in the image is the command's for the run and root's afterwards: by an idmapped mount where the
//! file system can, by a change of ownership that is put back where it can't, after a crash as well.

mod attempts;
mod common;

use common::{Ended, Fence, RINGFENCE, as_root, own_user};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

/// Root's files in /app, and one of another user of the image.
const FILL: &str = "mkdir -p /app/sub; echo of root > /app/file; echo of root > /app/sub/file; echo of another > /app/other; \
     chown 33:33 /app/other; chmod 755 /app; chown 0:0 /app /app/sub /app/file";
const OWNERS: &str = "find /app -printf '%P %u:%g %m\\n' | sort";
/// What a command does in a workspace: changes what is root's, makes files, and leaves set-id programs.
const WORK: &str = "cd /app && echo changed > file && echo new > new && mkdir made && echo new > made/new && mv sub/file made/moved && \
     ln file made/hard && ln -s /etc/passwd made/link && cp /bin/true set-id && chmod 6755 set-id && stat -c %a set-id && \
     cat other && ! (echo x > other) 2>&-";

fn idmapped(fence: &Fence) {
    as_root(fence, FILL);
    assert_ne!(fence.as_nobody("echo x > /app/new").code, Some(0), "without ringfence /app is root's alone");
    let ended = fence.run(&FLAGS, WORK);
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "6755\nof another\n"), "{ended}");
    assert_eq!(ended.start().workspaces["/app"], "idmapped", "{ended}");
    let after = as_root(fence, OWNERS);
    let lines: Vec<&str> = after.lines().filter(|line| !line.starts_with("lost+found")).collect();
    let expected = [
        " root:root 755",
        "file root:root 644",
        "made root:root 755",
        "made/hard root:root 644",
        "made/link root:root 777",
        "made/moved root:root 644",
        "made/new root:root 644",
        "new root:root 644",
        "other www-data:www-data 644",
        "set-id root:root 755",
        "sub root:root 755",
    ];
    assert_eq!(lines, expected, "{ended}");
    assert_eq!(
        as_root(fence, "cat /app/file; find /var/log/ringfence -name '*.owners'"),
        "changed\n",
        "nothing is left to undo"
    );
}

#[test]
fn ext4_is_idmapped_and_new_files_are_roots() {
    let fence = Fence::new();
    fence.world.mount_ext4("/app").expect("ext4");
    idmapped(&fence);
}

#[test]
fn tmpfs_is_idmapped_and_new_files_are_roots() {
    let fence = Fence::new();
    fence.world.mount_memory("/app").expect("tmpfs");
    idmapped(&fence);
}

#[test]
fn overlayfs_changes_hands_and_is_put_back() {
    let fence = Fence::new();
    as_root(&fence, FILL);
    // What must not change hands: behind a symbolic link, on another mount, and under another name outside.
    as_root(
        &fence,
        "mkdir -p /data /app/mount; echo kept > /data/linked; ln -s /data/linked /app/symbolic; ln /data/linked /app/hard
         echo pair > /app/pair; ln /app/pair /app/sub/pair
         mount -t tmpfs -o mode=755 below /app/mount; echo kept > /app/mount/file; chown 7:8 /app/sub",
    );
    let owners = format!("{OWNERS}; stat -c '%n %u:%g' /data /data/linked");
    let before = as_root(&fence, &owners);
    let script = format!(
        "{} && stat -c '%n %U' hard mount/file pair && (echo x > hard) 2>&1 | grep -o 'Permission denied'
         (echo x > mount/file) 2>&1 | grep -o 'Permission denied'",
        // Here the other user's file changes hands as well, so that the command may write it.
        WORK.replace("! (echo x > other) 2>&-", "echo more >> other")
    );
    let ended = fence.run(&FLAGS, &script);
    let seen = "6755\nof another\nhard root\nmount/file root\npair agent\nPermission denied\nPermission denied\n";
    assert_eq!(ended.said.out, seen, "{ended}");
    assert_eq!(ended.start().workspaces["/app"], "changed", "{ended}");
    let after = as_root(&fence, &owners);
    let made = ["made", "made/hard", "made/link", "made/new", "new", "set-id"];
    for name in made {
        let line = after
            .lines()
            .find(|line| line.split(' ').next() == Some(name))
            .unwrap_or_else(|| panic!("{name}: {after}"));
        assert_eq!(line.split(' ').nth(1), Some("root:root"), "{after}");
    }
    assert!(after.contains("set-id root:root 755\n"), "{after}");
    for line in before.lines().filter(|line| !line.starts_with("sub/file")) {
        assert!(after.lines().any(|other| other == line), "{line} is gone: {after}");
    }
    assert!(!after.contains("agent"), "{after}");
}

#[test]
fn what_the_command_makes_goes_to_the_tops_owner() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /app/sub; chown -R 7:8 /app; chown 0:0 /app/sub");
    let ended = fence.run(&FLAGS, "touch /app/new /app/sub/new");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let owners = as_root(&fence, "stat -c '%n %u:%g' /app /app/new /app/sub /app/sub/new");
    assert_eq!(owners, "/app 7:8\n/app/new 7:8\n/app/sub 0:0\n/app/sub/new 7:8\n");
}

#[test]
fn what_others_make_meanwhile_stays_theirs() {
    let fence = Fence::new();
    let mut held = hold(&fence, &FLAGS, "echo running; read line; true");
    as_root(&fence, "touch /app/of-another; chown 33:33 /app/of-another");
    drop(held.stdin.take());
    assert!(held.wait().expect("wait").success());
    assert_eq!(as_root(&fence, "stat -c %u:%g /app/of-another"), "33:33\n");
}

/// Starts a run whose command says `running`, and waits for that.
fn hold(fence: &Fence, flags: &[&str], script: &str) -> Child {
    let (mut command, _) = fence.command(flags, &["bash", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    child
}

#[test]
fn two_runs_do_not_change_the_owner_of_one_tree() {
    let fence = Fence::new();
    let mut held = hold(&fence, &FLAGS, "echo running; read line; true");
    let ended = fence.run(&FLAGS, "touch /tmp/started");
    assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{ended}");
    assert!(ended.said.err.contains("another run has changed its owner"), "{ended}");
    assert_eq!(fence.world.read("/tmp/started"), None);
    drop(held.stdin.take());
    assert!(held.wait().expect("wait").success());
    let ended = fence.run(&FLAGS, "touch /tmp/started");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(as_root(&fence, "stat -c %u:%g /app /workspace"), "0:0\n0:0\n");
}

/// Kills a run with all its processes but the command's, which then end by themselves.
fn crash(fence: &Fence, mut held: Child) {
    kill(Pid::from_raw(held.id() as i32), Signal::SIGKILL).expect("kill -9");
    held.wait().expect("wait");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !fence.world.processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", fence.world.processes());
        std::thread::yield_now();
    }
}

#[test]
fn owners_survive_a_crash_and_the_next_run_puts_them_back() {
    let fence = Fence::new();
    as_root(&fence, FILL);
    let before = as_root(&fence, OWNERS);
    let script =
        "echo new > /app/new; cat /var/log/ringfence/*.owners /var/log/ringfence 2>&1; echo running; read line; true";
    let user = own_user().to_string();
    let (mut command, _) = fence.command(&[&FLAGS[..], &["--user", &user]].concat(), &["bash", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut held = fence.world.spawn(command).expect("ringfence starts");
    let mut lines = BufReader::new(held.stdout.take().expect("piped")).lines();
    let said: Vec<String> =
        lines.by_ref().map(|line| line.expect("a line")).take_while(|line| line != "running").collect();
    assert!(
        !said.is_empty() && said.iter().all(|line| !line.contains("/app")),
        "the command reads none of it: {said:?}"
    );
    let files =
        as_root(&fence, "stat -c '%a %u' /var/log/ringfence/*.owners; grep -ac /app /var/log/ringfence/*.owners");
    assert_eq!(files, "600 0\n1\n");
    crash(&fence, held);
    let crashed = as_root(&fence, OWNERS);
    assert!(!crashed.contains("file root:root"), "a crash leaves the command's ids: {crashed}");
    let ended = fence.run(&FLAGS, "stat -c %U /app/other");
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(0), "agent\n"), "{ended}");
    let after = as_root(&fence, OWNERS);
    assert_eq!(after.replace("new root:root 644\n", ""), before);
    assert_eq!(as_root(&fence, "find /var/log/ringfence -name '*.owners'"), "");
}

#[test]
fn set_id_programs_left_by_a_crash_are_cleared() {
    let fence = Fence::new();
    fence.world.mount_memory("/app").expect("tmpfs");
    let user = own_user().to_string();
    let flags = [&FLAGS[..], &["--user", &user]].concat();
    let held = hold(&fence, &flags, "cp /bin/bash /app/shell; chmod 6755 /app/shell; echo running; read line; true");
    assert_eq!(
        as_root(&fence, "stat -c '%a %u' /app/shell"),
        "6755 0\n",
        "the attack is live: a set-id shell of root's"
    );
    crash(&fence, held);
    assert_eq!(as_root(&fence, "stat -c '%a %u' /app/shell"), "6755 0\n");
    let ended = fence.run(&FLAGS, "true");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(as_root(&fence, "stat -c '%a %u' /app/shell"), "755 0\n");
}

#[test]
fn a_living_run_and_a_planted_file_are_left_alone() {
    let fence = Fence::new();
    let mut held = hold(
        &fence,
        &[&FLAGS[..], &["--read-only", "/workspace"]].concat(),
        "echo running; read line; echo x > /app/still",
    );
    // Another's file of that form, and a torn one.
    as_root(
        &fence,
        "printf 'ringfence owners 1 0 0\\0top 33 33 /etc\\0end\\0' > /var/log/ringfence/ffffffffffffffff.owners
         chown 33 /var/log/ringfence/ffffffffffffffff.owners
         printf 'ringfence owners 1 0 0\\0top 33 33 /et' > /var/log/ringfence/eeeeeeeeeeeeeeee.owners",
    );
    let ended = fence.run(&[&FLAGS[..], &["--read-only", "/app"]].concat(), "echo x > /workspace/x");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(as_root(&fence, "stat -c %u /etc/passwd"), "0\n");
    let left = as_root(&fence, "cd /var/log/ringfence; ls *.owners | wc -l; ls ffffffffffffffff.owners");
    assert_eq!(left, "2\nffffffffffffffff.owners\n", "the living run's and the planted one");
    drop(held.stdin.take());
    assert!(held.wait().expect("wait").success());
    assert_eq!(fence.world.read("/app/still"), Some(b"x\n".to_vec()));
}

#[test]
fn the_workspace_is_the_working_directory() {
    let fence = Fence::new();
    as_root(&fence, "mkdir -p /srv/project/deep; echo of root > /srv/project/file; chmod -R go-w /srv");
    let flags = [&FLAGS[..], &["--workspace", "/srv/project"]].concat();
    let ended = fence.run(
        &flags,
        "pwd; echo changed > file; echo new > deep/new; (echo x > ../outside) 2>&1 | grep -o 'Read-only.*'",
    );
    assert_eq!(ended.said.out, "/srv/project\nRead-only file system\n", "{ended}");
    assert_eq!(as_root(&fence, "cat /srv/project/file; stat -c %u:%g /srv/project/deep/new"), "changed\n0:0\n");
    let ended = fence.run(&[&flags[..], &["--workdir", "/tmp"]].concat(), "pwd");
    assert_eq!(ended.said.out, "/tmp\n", "{ended}");
}

fn tries(places: &[&str]) -> String {
    let tries = places
        .iter()
        .map(|place| format!("(echo x > {place}/new) 2>/dev/null && echo {place} written || echo {place} refused"));
    tries.collect::<Vec<_>>().join("\n")
}

fn nested(fence: &Fence) -> Ended {
    let flags = [
        "--writable",
        "/var/data",
        "--read-only",
        "/app/.git",
        "--writable",
        "/app/.git/objects",
        "--read-only",
        "/var/data/fixed",
    ];
    let places = [
        "/app",
        "/app/.git",
        "/app/.git/objects",
        "/app/.git/objects/deep",
        "/app/.git/hooks",
        "/var/data",
        "/var/data/fixed",
        "/var",
    ];
    fence.run(&[&FLAGS[..], &flags].concat(), &tries(&places))
}

#[test]
fn of_paths_within_each_other_the_inner_one_decides() {
    for memory in [false, true] {
        let fence = Fence::new();
        if memory {
            fence.world.mount_memory("/app").expect("tmpfs");
        }
        as_root(
            &fence,
            "mkdir -p /app/.git/objects/deep /app/.git/hooks /var/data/fixed; chmod 0777 /app/.git /app/.git/hooks /var/data/fixed",
        );
        let before = as_root(&fence, "find /app /var/data -printf '%p %u:%g %m\\n' | sort");
        let ended = nested(&fence);
        let expected = "/app written\n/app/.git refused\n/app/.git/objects written\n/app/.git/objects/deep written\n\
                        /app/.git/hooks refused\n/var/data written\n/var/data/fixed refused\n/var refused\n";
        assert_eq!(ended.said.out, expected, "memory {memory}: {ended}");
        let after = as_root(&fence, "find /app /var/data ! -name new -printf '%p %u:%g %m\\n' | sort");
        assert_eq!(after, before, "memory {memory}");
        assert_eq!(as_root(&fence, "find /app /var/data -name new -printf '%u:%g\\n' | sort -u"), "root:root\n");
    }
}

#[test]
fn a_path_that_is_named_must_be_there() {
    let fence = Fence::new();
    for flags in [
        ["--writable", "/srv/missing"],
        ["--read-only", "/srv/missing"],
        ["--workspace", "/srv/missing"],
        ["--writable", "/etc/passwd"],
    ] {
        let ended = fence.run(&[&FLAGS[..], &flags].concat(), "touch /tmp/started");
        assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{flags:?}: {ended}");
        assert!(ended.said.err.contains(flags[1]), "{ended}");
        assert_eq!(fence.world.read("/tmp/started"), None);
    }
    let mut shell = fence.world.command(RINGFENCE);
    shell.args(["plan", "--writable", "/srv/missing"]);
    let said = world::Said::from(fence.world.output(shell));
    assert_eq!((said.code, said.err.contains("/srv/missing")), (Some(125), true), "{said}");
}
