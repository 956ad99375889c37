//! What the command has given up it does not get back: by no leftover of the launcher's, no file, no namespace, no other entry
//! to the kernel (cases P01, P03, P04, P08); and what `non-root` promises without no_new_privs.

mod attempts;
mod common;

use attempts::{ATTEMPTS, fence, others, outcomes};
use common::{Ended, Fence, RINGFENCE, as_root, own_user};
use ringfence::policy::Axis;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use world::Said;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

/// Holds that every line of `attempts credentials` shows the command's ids and nothing else.
fn powerless(out: &str, uid: u32, gid: u32) {
    let nothing = format!(
        "uid={uid},{uid},{uid} gid={gid},{gid},{gid} groups=0 inh=00 prm=00 eff=00 amb=0 bnd=0 nnp=1 seccomp=2 known=1"
    );
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() >= 3, "{out}");
    for line in lines {
        assert_eq!(line.split_once(' ').map(|(_, rest)| rest), Some(nothing.as_str()), "{out}");
    }
}

#[test]
fn nothing_is_left_of_what_the_launcher_had() {
    let fence = fence();
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} credentials"));
    powerless(&ended.said.out, ended.start().uid, ended.start().gid);
    // The launcher holds everything in every set, and has asked for it to be kept; each by itself and together.
    let all = "--inh-caps=+all,-sys_resource --ambient-caps=+all,-sys_resource";
    for (starter, live) in [
        (format!("setpriv {all}"), "amb=40"),
        // KEEP_CAPS itself does not outlive an exec (capabilities(7)); these do.
        (format!("setpriv {all} --securebits +no_setuid_fixup"), "amb=40"),
        (format!("setpriv {all} --securebits +no_setuid_fixup,+noroot"), "amb=40"),
        ("setpriv --groups 4,27,100".into(), "groups=3"),
        ("setpriv --no-new-privs".into(), "nnp=1"),
    ] {
        let command = |rest: &str| format!("{starter} {rest}");
        let before = as_root(&fence, &command(&format!("{ATTEMPTS} credentials")));
        assert!(before.contains(live), "{starter}: {before}");
        let user = own_user();
        let said = fence
            .as_root(&command(&format!("{RINGFENCE} run --policy nist-high --user {user} -- {ATTEMPTS} credentials")));
        assert_eq!(said.code, Some(0), "{starter}: {said}");
        powerless(&said.out, user, user);
    }
}

#[test]
fn set_id_and_capable_files_give_nothing_to_child_and_grandchild() {
    let fence = fence();
    as_root(
        &fence,
        &format!(
            "mkdir -p /opt/files; cd /opt/files; for name in set-uid set-gid permitted inherited; do cp {ATTEMPTS} $name; done
             chmod 4755 set-uid; chmod 2755 set-gid; setcap cap_net_raw+ep permitted; setcap cap_net_raw+ei inherited"
        ),
    );
    let live = |name: &str| fence.as_nobody(&format!("/opt/files/{name} credentials")).out;
    assert!(live("set-uid").contains("uid=12345,0,0") && live("set-gid").contains("gid=12345,0,0"), "live");
    assert!(live("permitted").contains("eff=02000"), "live: {}", live("permitted"));
    let inherited = as_root(
        &fence,
        "setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps +net_raw /opt/files/inherited credentials",
    );
    assert!(inherited.contains("eff=02000"), "live: {inherited}");
    // In the image, and where the command has put them for itself.
    let script = "for name in set-uid set-gid permitted inherited; do /opt/files/$name credentials; bash -c \"/opt/files/$name credentials; true\"; done
        cp /opt/files/set-uid /tmp/own; chmod 6755 /tmp/own; /tmp/own credentials";
    let ended = fence.run(&FLAGS, script);
    assert_eq!(ended.said.out.lines().count(), 27, "{ended}");
    powerless(&ended.said.out, ended.start().uid, ended.start().gid);
}

#[test]
fn every_task_of_every_descendant_is_powerless() {
    let fence = fence();
    let script = format!(
        "coproc one {{ setsid {ATTEMPTS} threads; }}; read -u ${{one[0]}} line; echo $line
         (coproc two {{ {ATTEMPTS} threads; }}; read -u ${{two[0]}} line; echo $line
          # The observer has the effective uid too, and another real and saved one.
          me=$(id -u); for status in /proc/[0-9]*/task/[0-9]*/status; do
            awk -v me=$me '/^Uid:/ {{ mine = $2 == me || $4 == me }}
                /^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):/ {{ name = $1; $1 = \"\"; line = line name $0 \";\" }} END {{ if (mine) print line }}' $status 2>/dev/null
          done)"
    );
    let ended = fence.run(&FLAGS, &script);
    let lines: Vec<&str> = ended.said.out.lines().filter(|line| *line != "ready").collect();
    assert!(lines.len() >= 10, "two programs of four threads, and two shells: {ended}");
    let (uid, gid, none) = (ended.start().uid, ended.start().gid, "0000000000000000");
    let expected = format!(
        "Uid: {uid} {uid} {uid} {uid};Gid: {gid} {gid} {gid} {gid};Groups:;CapInh: {none};CapPrm: {none};CapEff: {none};\
         CapBnd: {none};CapAmb: {none};NoNewPrivs: 1;Seccomp: 2;"
    );
    for line in lines {
        assert_eq!(line.trim(), expected, "{ended}");
    }
}

/// Holds each attempt of a run against what it must answer, and that the same attempt is live as root.
fn each(fence: &Fence, attempt: &str, live: &[&str], ended: &Ended, expected: &dyn Fn(&str) -> &'static str) {
    // In namespaces of its own, so that the box stays as it is.
    let root = fence.as_root(&format!("unshare -mn {ATTEMPTS} {attempt}"));
    for what in live {
        assert!(outcomes(&root.out).contains(&(*what, "ok")), "{what} is live as root: {root}");
    }
    let seen = outcomes(&ended.said.out);
    assert_eq!(seen.len(), outcomes(&root.out).len(), "{ended}");
    for (what, outcome) in seen {
        assert_eq!(outcome, expected(what), "{what}: {ended}");
    }
}

#[test]
fn no_namespace_is_to_be_had() {
    let fence = fence();
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} namespaces"));
    let live = [
        "unshare-user",
        "unshare-mnt",
        "unshare-net",
        "unshare-pid",
        "unshare-ipc",
        "unshare-uts",
        "unshare-cgroup",
        "clone-user",
        "clone-net",
    ];
    // clone3(2) hides its flags behind a pointer; C libraries take clone(2) upon ENOSYS.
    each(&fence, "namespaces", &live, &ended, &|what| if what == "clone3" { "ENOSYS" } else { "EPERM" });
}

#[test]
fn the_mount_table_is_not_changed() {
    let fence = fence();
    let attempt = "mounts /usr/share /tmp";
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} {attempt}"));
    let live = [
        "bind-over",
        "tmpfs",
        "proc",
        "overlay",
        "move",
        "propagation",
        "umount",
        "open_tree",
        "move_mount",
        "fsopen",
        "fspick",
        "mount_setattr",
        "chroot",
    ];
    each(&fence, attempt, &live, &ended, &|_| "EPERM");
    // What is read-only for the command is not for those outside.
    as_root(&fence, "touch /usr/share/outside && rm /usr/share/outside");
}

#[test]
fn no_namespace_is_joined() {
    let fence = fence();
    // Its own ones are refused by the filter, those of others cannot even be opened.
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} join $$; echo; {ATTEMPTS} join $PPID; {ATTEMPTS} join 1"));
    let (own, of_others) = ended.said.out.split_once("\n\n").expect("two parts");
    assert_eq!(others(own, "EPERM"), [], "{ended}");
    assert_eq!(others(of_others, "EACCES"), [], "{ended}");
    let said = fence.as_root(&format!("{ATTEMPTS} join $$"));
    assert!(
        outcomes(&said.out).contains(&("setns-mnt", "ok")) && outcomes(&said.out).contains(&("setns-net", "ok")),
        "live: {said}"
    );
}

#[test]
fn sockets_that_pass_the_firewall_by_are_refused() {
    let fence = fence();
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} sockets"));
    let works = ["netlink", "unix", "tcp"];
    each(&fence, "sockets", &["raw", "raw6", "packet", "packet-datagram"], &ended, &|what| {
        if works.contains(&what) { "ok" } else { "EPERM" }
    });
}

#[test]
fn other_entries_to_the_kernel_are_closed() {
    let fence = fence();
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} entries"));
    each(&fence, "entries", &["io_uring_setup"], &ended, &|_| "ENOSYS");
}

#[test]
fn ids_and_capabilities_are_not_taken_back() {
    let fence = fence();
    let ended = fence.run(&FLAGS, &format!("{ATTEMPTS} regain"));
    each(&fence, "regain", &["setresuid", "setgroups", "capset", "mknod"], &ended, &|_| "EPERM");
}

#[test]
fn a_sandbox_within_is_refused() {
    let fence = fence();
    let nested = "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all true";
    assert_eq!(fence.as_root(nested).code, Some(0), "live as root");
    let ended =
        fence.run(&FLAGS, &format!("{nested}; echo bwrap=$?; unshare -Ur true; echo unshare=$?; echo still here"));
    assert_ne!(ended.value("bwrap"), "0", "{ended}");
    assert_ne!(ended.value("unshare"), "0", "{ended}");
    assert!(ended.said.out.ends_with("still here\n"), "{ended}");
}

#[test]
fn the_launchers_keys_are_neither_found_nor_altered() {
    let fence = fence();
    // Live: an ordinary process of another user that keeps the session finds and spoils them.
    let said = fence.as_root(&format!("{ATTEMPTS} with-keys {ATTEMPTS} keys ID"));
    for what in ["search", "read", "update", "clear-own"] {
        assert!(
            outcomes(said.out.lines().find(|l| l.starts_with(&format!("{what} "))).unwrap_or("none none"))
                .contains(&(what, "ok")),
            "{what}: {said}"
        );
    }
    assert!(said.out.contains("afterwards \n"), "{said}");
    for level in ["nist-high", "non-root", "locked"] {
        let said = fence.as_root(&format!("{ATTEMPTS} with-keys {RINGFENCE} run --policy {level} -- bash -c '{ATTEMPTS} keys $0; grep -v keyring /proc/keys | grep -c launcher' ID"));
        let answer = |what: &str| {
            let line = said.out.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{what}: {said}")).to_owned()
        };
        // Where privilege is locked nobody is asked for keys: those of a uid are shared by all containers of the machine.
        let locked = |otherwise| if level == "non-root" { otherwise } else { "ENOSYS" };
        for what in ["search", "search-logon", "search-joined"] {
            assert_eq!(answer(what), locked("ENOKEY"), "{level} {what}: {said}");
        }
        for what in ["read", "describe", "link", "update", "revoke"] {
            assert_eq!(answer(what), locked("EACCES"), "{level} {what}: {said}");
        }
        // Its own session keyring is its own to clear.
        assert_eq!(answer("clear-own"), locked("ok"), "{level}: {said}");
        assert!(said.out.contains("\n0\n"), "{level}: nothing of the launcher's in /proc/keys: {said}");
        assert_eq!(
            (answer("afterwards").as_str(), answer("afterwards-search").as_str()),
            ("secret", "ok"),
            "{level}: {said}"
        );
    }
}

#[test]
fn nothing_is_pushed_into_a_terminal() {
    let fence = fence();
    let said = fence.as_nobody(&format!("{ATTEMPTS} terminal"));
    assert!(outcomes(&said.out).contains(&("controlling", "ok")), "{said}");
    // Where the kernel has legacy_tiocsti off, root shows that the attempt itself is sound.
    let said = fence.as_root(&format!("{ATTEMPTS} terminal"));
    assert!(
        outcomes(&said.out).contains(&("TIOCSTI", "ok")) && outcomes(&said.out).contains(&("TIOCSTI-high-bits", "ok")),
        "{said}"
    );
    for level in ["nist-high", "non-root", "locked"] {
        let ended = fence.run(&["--policy", level], &format!("{ATTEMPTS} terminal"));
        let expected =
            [("controlling", "ok"), ("TIOCSTI", "EPERM"), ("TIOCSTI-high-bits", "EPERM"), ("TIOCLINUX", "EPERM")];
        assert_eq!(outcomes(&ended.said.out), expected, "{level}: {ended}");
    }
}

#[test]
fn non_root_is_an_ordinary_user_and_set_id_programs_work() {
    let fence = fence();
    as_root(
        &fence,
        &format!(
            "cp {ATTEMPTS} /usr/local/bin/set-uid; chmod 4755 /usr/local/bin/set-uid; install -d -m 0777 /usr/open"
        ),
    );
    let script = format!(
        "{ATTEMPTS} credentials; set-uid credentials; echo x > /usr/open/file && cat /usr/open/file; echo x > /app/file; curl -s -m 5 https://stranger.example.org/"
    );
    let ended = fence.run(&["--policy", "non-root"], &script);
    let (uid, gid) = (ended.start().uid, ended.start().gid);
    let lines: Vec<&str> = ended.said.out.lines().collect();
    for line in &lines[..3] {
        assert!(
            line.contains(&format!("uid={uid},{uid},{uid} gid={gid},{gid},{gid} groups=0 inh=00 prm=00 eff=00 amb=0")),
            "{ended}"
        );
        assert!(line.contains("nnp=0 seccomp=2"), "{ended}");
    }
    assert!(lines[3].contains(&format!("uid={uid},0,0")), "set-id programs work: {ended}");
    assert_eq!(lines[6..], ["x", "hello from stranger.example.org"], "file system and network are open: {ended}");
    assert_eq!(as_root(&fence, "cat /app/file"), "x\n");
}

#[test]
fn at_non_root_neither_su_nor_sudo_helps() {
    let fence = fence();
    let uid = own_user();
    as_root(
        &fence,
        &format!(
            "echo root:known | chpasswd; echo 'dev:x:{uid}:{uid}::/home/dev:/bin/sh' >> /etc/passwd; echo 'dev:*:20000::::::' >> /etc/shadow
             sed -i 's/^sudo:x:27:/&dev/' /etc/group; install -d -o {uid} /home/dev
             echo 'dev ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers; echo '#{uid} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/test"
        ),
    );
    let attempts = ["sudo -n id -u", "echo known | sudo -S -p '' id -u", "echo known | su -c 'id -u' root"];
    for attempt in [attempts[0], attempts[2]] {
        let said = fence.as_user(uid, &format!("{attempt} 2>/dev/null"));
        assert_eq!(said.out, "0\n", "{attempt} is live: {said}");
    }
    for level in ["non-root", "nist-high"] {
        for attempt in attempts {
            let ended = fence.run(&["--policy", level, "--user", "dev"], &format!("({attempt}); echo status=$?"));
            assert_ne!(ended.value("status"), "0", "{level} {attempt}: {ended}");
            assert!(!ended.said.out.lines().any(|line| line == "0"), "{level} {attempt}: {ended}");
        }
    }
}

#[test]
fn control_plane_ports_are_refused_from_non_root_on() {
    let fence = fence();
    let origin = world::address::PUBLIC4;
    let origin6 = world::address::PUBLIC6;
    // Connected to by address: an origin outside, and servers on loopback over both families.
    let servers = "perl -MIO::Socket::IP -e 'for (\"127.0.0.1\", \"::1\") { push @s, IO::Socket::IP->new(Listen => 5, LocalAddr => $_, LocalPort => 80) or die \"$_: $@\" } \
        open F, \">/run/ready\"; sleep 1000' & while [ ! -e /run/ready ]; do :; done";
    let mut command = fence.world.command("bash");
    command.args(["-c", &format!("{servers}; echo ready; wait")]).stdout(std::process::Stdio::piped());
    let mut child = fence.world.spawn(command).expect("bash starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().expect("piped")), &mut line)
        .expect("ready");
    let hosts = [origin.to_string(), format!("[{origin6}]"), "127.0.0.1".into(), "[::1]".into()];
    let attempt = |port: u16| {
        hosts.iter().map(|host| format!("curl -s -o /dev/null --noproxy '*' --connect-timeout 5 -m 1 http://{host}:{port}/; echo {host} $?\n")).collect::<String>()
    };
    let said = fence.as_nobody(&attempt(80));
    assert!(said.out.lines().all(|line| !line.ends_with(" 7")), "all four answer without ringfence: {said}");
    for level in ["non-root", "nist-high"] {
        let ended = fence.run(&["--policy", level, "--control-plane-port", "80"], &attempt(80));
        assert!(
            ended.said.out.lines().count() == 4 && ended.said.out.lines().all(|line| line.ends_with(" 7")),
            "{level}: {ended}"
        );
        let denials: Vec<_> = ended.denials().into_iter().filter(|denial| denial.axis == Axis::Privilege).collect();
        let loopback = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        for address in [origin.into(), origin6.into(), loopback.0.into(), IpAddr::from(loopback.1)] {
            let of_it = denials.iter().filter(|denial| denial.object.addrs.contains(&address)).count();
            assert!(of_it > 0, "{level} {address}: {ended}");
        }
        assert_eq!(ended.seal().denials["privilege"], 4, "{level}: {ended}");
        if level == "non-root" {
            let other = fence.run(&["--policy", level, "--control-plane-port", "81"], &attempt(80));
            assert!(other.said.out.lines().all(|line| !line.ends_with(" 7")), "{other}");
        }
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGKILL)
        .expect("kill");
    child.wait().expect("wait");
}

#[test]
fn root_outside_is_root() {
    let fence = fence();
    let said: Said = fence.as_root(&format!("{RINGFENCE} run --policy nist-high -- true; {ATTEMPTS} credentials"));
    assert!(said.out.contains("uid=0,0,0") && said.out.contains("nnp=0 seccomp=0"), "{said}");
}
