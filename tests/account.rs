//! Whom the command runs as, what it sees of the account files, and what becomes of HOME.

mod common;

use common::{Ended, Fence, as_root, own_user};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

fn run_as(fence: &Fence, user: &str, script: &str) -> Ended {
    fence.run(&[&FLAGS[..], &["--user", user]].concat(), script)
}

/// Adds an account of the image with this HOME, and returns its number.
fn account(fence: &Fence, home: &str) -> u32 {
    let uid = own_user();
    let script = format!(
        "echo 'dev:x:{uid}:{uid}::{home}:/bin/sh' >> /etc/passwd; echo 'dev:x:{uid}:' >> /etc/group
         echo 'dev:*:20000::::::' >> /etc/shadow; gpasswd -q -a dev adm >/dev/null 2>&1 || sed -i 's/^adm:x:4:/&dev,/' /etc/group"
    );
    as_root(fence, &script);
    uid
}

#[test]
fn the_account_files_are_mounted_over_and_not_written() {
    let fence = Fence::new();
    as_root(&fence, "echo root:known | chpasswd");
    let digest = "sha256sum /etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/sudoers";
    let before = as_root(&fence, digest);
    let script =
        "id; id -un; getent passwd $(id -u); getent group $(id -g); ls -ld /etc/shadow /etc/sudoers.d | cut -c1-10
        cat /etc/shadow /etc/sudoers /etc/sudoers.d/README 2>&1 | grep -c 'Permission denied'
        sed -i s/x/y/ /etc/passwd 2>&1 | grep -o 'Read-only.*'; echo $HOME $USER $LOGNAME $SHELL";
    let ended = fence.run(&FLAGS, script);
    let (uid, gid) = (ended.start().uid, ended.start().gid);
    // Runs side by side have a HOME each.
    let home = if uid == 10_001 { "/home/agent".to_owned() } else { format!("/home/agent-{uid}") };
    let expected = format!(
        "uid={uid}(agent) gid={gid}(agent) groups={gid}(agent)\nagent\nagent:x:{uid}:{gid}::{home}:/bin/bash\nagent:x:{gid}:\n\
         -rw-r-----\nd---------\n3\nRead-only file system\n{home} agent agent /bin/bash\n"
    );
    assert_eq!(ended.said.out, expected, "{ended}");
    assert_eq!(as_root(&fence, digest), before);
}

#[test]
fn the_user_may_be_a_name_or_numbers() {
    let fence = Fence::new();
    let uid = account(&fence, "/home/dev");
    as_root(&fence, &format!("install -d -o {uid} -g {uid} /home/dev"));
    let script = "echo $(id -u) $(id -g) $(id -G) $HOME";
    for (user, expected) in [
        ("dev".to_owned(), format!("{uid} {uid} {uid} /home/dev\n")),
        (uid.to_string(), format!("{uid} {uid} {uid} /home/dev\n")),
        (format!("{uid}:4242"), format!("{uid} 4242 4242 /home/dev\n")),
        // Numbers need no entry.
        ((uid + 1).to_string(), format!("{0} {0} {0} /home/agent-{0}\n", uid + 1)),
        (format!("{}:77", uid + 1), format!("{0} 77 77 /home/agent-{0}\n", uid + 1)),
        ("4294967294".to_owned(), "4294967294 4294967294 4294967294 /home/agent-4294967294\n".to_owned()),
    ] {
        let ended = run_as(&fence, &user, script);
        assert_eq!((ended.said.out, ended.said.code), (expected, Some(0)), "{user}: {}", ended.said.err);
    }
    for (user, named) in [
        ("0", "uid 0"),
        ("root", "uid 0"),
        ("4242:0", "uid or gid 0"),
        ("-1", "accepted"),
        ("4294967295", "accepted"),
        ("99999999999", "accepted"),
        ("4242:", "accepted"),
        ("4242:4294967295", "accepted"),
        ("no-such-user", "no such entry"),
        ("", "accepted"),
    ] {
        let user = format!("--user={user}");
        let ended = fence.run(&[&FLAGS[..], &[&user]].concat(), "touch /tmp/started");
        assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{user}: {ended}");
        assert!(ended.said.err.contains(named), "{user}: {ended}");
        assert_eq!(fence.world.read("/tmp/started"), None, "{user}");
    }
}

#[test]
fn an_account_of_the_image_keeps_its_home_and_loses_its_groups() {
    let fence = Fence::new();
    let uid = account(&fence, "/home/dev");
    as_root(
        &fence,
        &format!("install -d -o {uid} -g {uid} /home/dev; echo mine > /home/dev/file; chown {uid} /home/dev/file"),
    );
    let said = fence.as_root("setpriv --reuid dev --regid dev --init-groups id -G");
    assert_eq!(said.out.trim(), format!("{uid} 4"), "without ringfence it is a member of adm: {said}");
    let script = "id -G; grep -c 'adm.*dev' /etc/group; cat ~/file; (echo x > ~/file) 2>&1 | grep -o 'Read-only.*'
        for place in ~/.cache ~/.config ~/.local/share; do echo kept > $place/file; done; stat -c '%U %a' ~/.cache";
    let ended = run_as(&fence, "dev", script);
    assert_eq!(ended.said.out, format!("{uid}\n0\nmine\nRead-only file system\ndev 755\n"), "{ended}");
    // What it leaves in the state directories is there to be collected; what is empty is gone.
    let left = as_root(&fence, "cd /home/dev; find . -mindepth 1 -printf '%P %u\\n' | sort; cat .cache/file");
    assert_eq!(
        left,
        ".cache dev\n.cache/file dev\n.config dev\n.config/file dev\n.local dev\n.local/share dev\n.local/share/file dev\nfile dev\nkept\n"
    );
}

#[test]
fn a_home_that_is_not_the_accounts_own_is_left_alone() {
    for (home, made) in [
        ("/tmp", "/tmp"),
        ("/nonexistent", ""),
        ("/usr/sbin", "/usr/sbin"),
        ("/", "/"),
        ("/dev/null", ""),
        ("/root", "/root"),
    ] {
        let fence = Fence::new();
        let uid = account(&fence, home);
        // What lies there already stays whose it is.
        let state = "mkdir -p /.cache /usr/sbin/.cache /root/.cache; stat -c '%n %u %a' / /.cache /usr/sbin /usr/sbin/.cache /root/.cache /tmp; ls -A / /usr/sbin /root /tmp";
        let before = as_root(&fence, state);
        let ended = run_as(
            &fence,
            "dev",
            "echo $(id -u) $HOME; (echo x > /usr/sbin/.cache/x) 2>&1 | grep -o 'Read-only.*'; echo x > /tmp/x && rm /tmp/x",
        );
        assert_eq!(ended.said.out, format!("{uid} {home}\nRead-only file system\n"), "{home}: {ended}");
        assert_eq!(as_root(&fence, state), before, "{home} ({made})");
    }
}

#[test]
fn a_home_that_was_made_goes_when_it_is_empty() {
    let fence = Fence::new();
    let user = own_user().to_string();
    let flags = [&FLAGS[..], &["--harness", "claude-code", "--user", &user]].concat();
    let homes = as_root(&fence, "ls -A /home");
    let script = "cd; for place in .cache .config .local .claude; do touch $place/x && rm $place/x; done; ls -A";
    let ended = fence.run(&flags, script);
    assert_eq!(ended.said.out, ".cache\n.claude\n.config\n.local\n", "{ended}");
    assert_eq!(as_root(&fence, "ls -A /home"), homes);
    let ended = fence.run(&flags, "echo transcript > ~/.claude/session");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let left = as_root(&fence, &format!("cd /home/agent-{user}; find . -mindepth 1; cat .claude/session"));
    assert_eq!(left, "./.claude\n./.claude/session\ntranscript\n");
    let ended = fence.run(&flags, "cat ~/.claude/session");
    assert_eq!(ended.said.out, "transcript\n", "{ended}");
    assert_eq!(as_root(&fence, &format!("ls -A /home/agent-{user}")), ".claude\n");
}

#[test]
fn a_link_that_an_earlier_run_left_in_home_is_not_followed() {
    let fence = Fence::new();
    let uid = account(&fence, "/home/dev");
    as_root(&fence, &format!("install -d -o {uid} -g {uid} /home/dev; install -d -m 700 /data/secret"));
    // What the policy makes writable is not for the command of an earlier run to choose; what lies in it is no reason to
    // refuse every run after it.
    for (plant, name, code) in [
        ("ln -s /data/secret /home/dev/.cache", "/home/dev/.cache", 125),
        ("ln -s /data/secret /home/dev/.local/share", "", 0),
    ] {
        as_root(
            &fence,
            &format!(
                "rm -rf /home/dev/.* 2>/dev/null || true; mkdir -p /home/dev/.local; {plant}; chown -hR {uid}:{uid} /home/dev"
            ),
        );
        let ended = run_as(&fence, "dev", "touch /tmp/started");
        assert_eq!(
            (ended.said.code, ended.said.err.lines().count()),
            (Some(code), code.min(1) as usize),
            "{plant}: {ended}"
        );
        assert!(ended.said.err.contains(name), "{plant}: {ended}");
        assert_eq!(as_root(&fence, "stat -c '%u %a' /data/secret; ls -A /data/secret"), "0 700\n", "{plant}");
    }
    as_root(&fence, "rm /home/dev/.local/share");
    let ended = run_as(&fence, "dev", "true");
    assert_eq!(ended.said.code, Some(0), "{ended}");
}

#[test]
fn account_files_of_any_form_are_read_or_refused() {
    let broken = "printf 'root:x:0:0:root:/root:/bin/bash\\n\\n:::\\nbroken\\n\\377\\376:x:q:q::/:/\\ndev:x:notanumber:1::/home/dev:/bin/sh\\n' > /etc/passwd";
    let long = "{ echo root:x:0:0:root:/root:/bin/bash; printf 'long:x:4321:4321:'; head -c 10485760 /dev/zero | tr '\\0' a; echo ':/:/bin/sh'; } > /etc/passwd";
    for (what, prepare, name) in [
        ("absent", "rm -f /etc/passwd /etc/group /etc/shadow /etc/gshadow", "agent"),
        ("empty", ": > /etc/passwd; : > /etc/group; : > /etc/shadow; : > /etc/gshadow", "agent"),
        ("malformed", broken, "agent"),
        ("a line of 10 MiB", long, "agent"),
        ("without a last line feed", "printf 'root:x:0:0:root:/root:/bin/bash' > /etc/passwd", "agent"),
        ("a name that is taken", "echo 'agent:x:4321:4321::/srv:/bin/sh' >> /etc/passwd", "agent-"),
    ] {
        let fence = Fence::new();
        as_root(&fence, prepare);
        let ended = fence.run(&FLAGS, "id -u; id -G; echo $USER; (echo x > /usr/x) 2>&1 | grep -o 'Read-only.*'");
        assert!(ended.said.code == Some(0), "{what}: {ended}");
        let lines: Vec<&str> = ended.said.out.lines().collect();
        let uid = ended.start().uid.to_string();
        assert_eq!(lines[..2], [uid.as_str(), uid.as_str()], "{what}: {ended}");
        assert!(lines[2].starts_with(name) && lines[3] == "Read-only file system", "{what}: {ended}");
    }
    let fence = Fence::new();
    as_root(&fence, "rm /etc/passwd; mkdir /etc/passwd");
    let ended = fence.run(&FLAGS, "touch /tmp/started");
    assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{ended}");
    assert!(ended.said.err.contains("/etc/passwd"), "{ended}");
}
