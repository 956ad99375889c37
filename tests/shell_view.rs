//! What a shell sees of itself and of the file system under `nist-high`. Each refusal has its counterpart: the same
//! attempt without ringfence comes through.

mod common;

use common::{Fence, value};
use ringfence::ledger::record::Outcome;

const TREES: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/boot", "/srv", "/root", "/var", "/home"];
const FLAGS: [&str; 2] = ["--policy", "nist-high"];

#[test]
fn it_is_an_ordinary_user_without_any_privilege() {
    let script = r#"
        echo "ids=$(awk '/^Uid:/ { print $2, $3, $4, $5 }' /proc/self/status)"
        echo "gids=$(awk '/^Gid:/ { print $2, $3, $4, $5 }' /proc/self/status)"
        echo "groups=$(awk '/^Groups:/ { $1 = ""; print }' /proc/self/status | tr -d ' ')"
        echo "nnp=$(awk '/^NoNewPrivs:/ { print $2 }' /proc/self/status)"
        echo "seccomp=$(awk '/^Seccomp:/ { print $2 }' /proc/self/status)"
        for set in CapInh CapPrm CapEff CapBnd CapAmb; do
            echo "$set=$(awk -v set="$set:" '$1 == set { print $2 }' /proc/self/status)"
        done"#;
    let fence = Fence::new();
    let before = fence.as_root(script);
    assert_eq!((value(&before, "nnp"), value(&before, "ids")), ("0", "0 0 0 0"), "{before}");
    assert_ne!(value(&before, "CapBnd"), "0000000000000000", "{before}");

    let ended = fence.run(&FLAGS, script);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let start = ended.start();
    for (key, id) in [("ids", start.uid), ("gids", start.gid)] {
        assert_ne!(id, 0, "{ended}");
        assert_eq!(ended.value(key), [id.to_string().as_str(); 4].join(" "), "{ended}");
    }
    assert_eq!(ended.value("groups"), "", "{ended}");
    assert_eq!((ended.value("nnp"), ended.value("seccomp")), ("1", "2"), "{ended}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(ended.value(set), "0000000000000000", "{set}: {ended}");
    }
}

#[test]
fn a_file_in_each_protected_tree_is_refused_with_erofs() {
    let fence = Fence::new();
    // Mode bits refuse nothing here: what is refused below is refused by the mount alone.
    for tree in TREES {
        let said = fence.as_root(&format!("mkdir -p {tree}/open && chmod 0777 {tree}/open && chmod o+rx {tree}"));
        assert_eq!(said.code, Some(0), "{said}");
    }
    for tree in TREES {
        let attempt = format!("echo x > {tree}/open/new-file && rm {tree}/open/new-file && echo written");
        let said = fence.as_nobody(&attempt);
        assert_eq!(said.out, "written\n", "the attempt is live in {tree}: {said}");
    }
    let attempts = TREES.map(|tree| {
        format!(
            "for path in {tree}/new-file {tree}/open/new-file; do (echo x > $path) 2>&1 && echo \"written $path\"; done"
        )
    });
    let ended = fence.run(&FLAGS, &format!("{}; true", attempts.join("\n")));
    let lines: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(lines.len(), 2 * TREES.len(), "{ended}");
    assert!(lines.iter().all(|line| line.ends_with(": Read-only file system")), "{ended}");
}

#[test]
fn changes_and_removals_in_the_trees_are_refused_with_erofs() {
    let fence = Fence::new();
    let prepare = "install -d -m 0777 /srv/open && install -m 0666 /dev/null /srv/open/file && \
                   chown -R NOBODY:NOBODY /srv/open"
        .replace("NOBODY", &common::own_user().to_string());
    assert_eq!(fence.as_root(&prepare).code, Some(0));
    let attempts = [
        "echo x >> /srv/open/file",
        "chmod 0600 /srv/open/file",
        "touch /srv/open/file",
        "mv /srv/open/file /srv/open/other",
        "ln /srv/open/file /srv/open/other",
        "ln -s file /srv/open/link",
        "mkdir /srv/open/directory",
        "rm /srv/open/file",
    ];
    let user = format!("{0}:{0}", common::own_user());
    let flags = [&FLAGS[..], &["--user", &user]].concat();
    let script = attempts.map(|attempt| format!("({attempt}) 2>&1 && echo 'came through: {attempt}'")).join("\n");
    let ended = fence.run(&flags, &format!("{script}; true"));
    let lines: Vec<&str> = ended.said.out.lines().collect();
    assert_eq!(lines.len(), attempts.len(), "{ended}");
    assert!(lines.iter().all(|line| line.ends_with(": Read-only file system")), "{ended}");
    // Afterwards, and without ringfence, the same user does all of it.
    for attempt in attempts {
        let attempt = format!("{attempt}; code=$?; mv /srv/open/other /srv/open/file 2>&-; exit $code");
        let said = fence.as_user(common::own_user(), &attempt);
        assert_eq!(said.code, Some(0), "{attempt}: {said}");
    }
}

#[test]
fn the_writable_set_is_writable() {
    let fence = Fence::new();
    let script = r#"
        for place in /app /workspace /tmp /dev/shm ~/.cache ~/.config ~/.local; do
            mkdir -p "$place/made/here" && echo text > "$place/made/here/file" && mv "$place/made" "$place/moved" &&
            cat "$place/moved/here/file" && rm -r "$place/moved" || echo "failed in $place"
        done"#;
    let ended = fence.run(&FLAGS, script);
    assert_eq!((ended.said.out.as_str(), ended.said.err.as_str()), ("text\n".repeat(7).as_str(), ""), "{ended}");
    assert_eq!(ended.denials(), Vec::<&ringfence::ledger::record::Denial>::new(), "{ended}");
}

#[test]
fn privilege_is_not_regained() {
    let fence = Fence::new();
    // Root's password is known in this image, and a set-id shell lies about: both are ways up without ringfence.
    let prepare = "echo root:known | chpasswd && install -m 4755 /bin/bash /usr/local/bin/set-id-bash && \
                   install -m 0755 /usr/bin/perl /usr/local/bin/capable-perl && \
                   setcap cap_net_raw+ep /usr/local/bin/capable-perl";
    assert_eq!(fence.as_root(prepare).code, Some(0));
    let raw = "-MSocket -e 'socket(my $s, AF_INET, SOCK_RAW, 1) and print \"raw socket\\n\" or print \"$!\\n\"'";
    let attempts = [
        ("set-id", "set-id-bash -p -c 'id -u'".to_owned()),
        ("su", "echo known | su -c 'id -u' root 2>/dev/null".to_owned()),
        ("file-capability", format!("capable-perl {raw}")),
    ];
    for ((name, attempt), through) in attempts.iter().zip(["0\n", "0\n", "raw socket\n"]) {
        let said = fence.as_nobody(attempt);
        assert!(said.out.ends_with(through), "{name} is live without ringfence: {said}");
    }
    let attempts_of_root = [
        ("mount", "mount -t tmpfs none /mnt".to_owned()),
        ("remount", "mount -o remount,bind,rw /usr".to_owned()),
        ("nft", "nft list ruleset".to_owned()),
        ("raw-perl", format!("perl {raw} | grep 'raw socket'")),
        ("setpriv", "setpriv --reuid 0 id -u".to_owned()),
        ("user-namespace", "unshare -Ur true".to_owned()),
    ];
    for (name, attempt) in &attempts_of_root {
        // In a mount namespace of its own, so that the box stays as it is.
        let said = fence.as_root(&format!("unshare -m bash -c {}", quoted(attempt)));
        // What root may remount depends on the image's mounts; that it may mount is shown by the line before.
        assert!(said.code == Some(0) || *name == "remount", "{name} is live as root: {said}");
    }
    let all = attempts.iter().chain(&attempts_of_root);
    let script: String =
        all.map(|(name, attempt)| format!("out=$({attempt} 2>&1); echo \"{name}=$? $(echo $out)\"\n")).collect();
    let ended = fence.run(&FLAGS, &format!("{script}echo \"uid=$(id -u)\""));
    let uid = ended.start().uid.to_string();
    assert_eq!(ended.value("uid"), uid, "{ended}");
    // A set-id bit without effect leaves a shell that is nobody special.
    assert_eq!(ended.value("set-id"), format!("0 {uid}"), "{ended}");
    assert!(!ended.value("su").starts_with("0 "), "{ended}");
    assert!(ended.value("file-capability").ends_with("Operation not permitted"), "{ended}");
    for (name, _) in &attempts_of_root {
        assert!(!ended.value(name).starts_with("0 "), "{name}: {ended}");
    }
}

#[test]
fn sudo_does_not_help() {
    let fence = Fence::new();
    let grant = "command -v sudo >/dev/null && echo '#UID ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/test && \
                 echo 'agent:x:UID:UID::/tmp:/bin/sh' >> /etc/passwd && \
                 echo 'agent:*:20000::::::' >> /etc/shadow"
        .replace("UID", &common::own_user().to_string());
    let said = fence.as_root(&grant);
    assert_eq!(said.code, Some(0), "sudo is installed (.ci/deps): {said}");
    let said = fence.as_user(common::own_user(), "sudo -n id -u");
    assert_eq!(said.out, "0\n", "sudo is live without ringfence: {said}");
    let ended = fence.run(&["--policy", "nist-high", "--user", "agent"], "sudo -n id -u; echo status=$?");
    assert_ne!(ended.value("status"), "0", "{ended}");
    assert!(!ended.said.out.lines().any(|line| line == "0"), "{ended}");
}

#[test]
fn output_and_status_are_the_commands_own() {
    let fence = Fence::new();
    let ended = fence.run(&FLAGS, "echo out; echo err >&2; exit 7");
    assert_eq!((ended.said.out.as_str(), ended.said.err.as_str(), ended.said.code), ("out\n", "err\n", Some(7)));
    let seal = ended.seal();
    assert_eq!((seal.outcome, seal.exit_code, seal.complete), (Outcome::Exited, Some(7), true), "{ended}");
    let said = fence.verify(&ended.ledger);
    assert_eq!(said.code, Some(0), "{said}");
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
