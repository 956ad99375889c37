//! Whatever of a host is taken away, a run is held as everywhere, or refused with the name of what is missing. There is no
//! third outcome.

mod common;

use common::{Fence, as_root, own_user};
use nix::errno::Errno;
use std::net::IpAddr;
use world::address::{PUBLIC4_B, PUBLIC6};
use world::less::When;
use world::{Less, Sink, internet};

const PORT: u16 = 4444;

/// What is tried, one line each: by the command, and by a user of its kind without ringfence.
fn acts() -> String {
    let connect = |name: &str, address: IpAddr| {
        format!(
            "(exec 3<>/dev/tcp/{address}/{PORT}) 2>/dev/null && echo {name}=arrived || echo {name}=refused
             echo datagram 2>/dev/null >/dev/udp/{address}/{PORT}\n"
        )
    };
    format!(
        "{}{}
         echo admitted=$(curl -s -o /dev/null -w '%{{http_code}}' https://pypi.org/)
         echo inside=$(touch /tmp/inside 2>&1 && echo written)
         echo outside=$(touch /var/tmp/outside 2>&1 && echo written)
         unshare -U true 2>/dev/null; echo namespace=$?
         grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status | tr -d '\\t' | tr : =",
        connect("v4", PUBLIC4_B.into()),
        connect("v6", PUBLIC6.into()),
    )
}

/// What the command sees wherever it runs at all.
const HELD: [(&str, &str); 6] = [
    ("v4", "refused"),
    ("v6", "refused"),
    ("admitted", "200"),
    ("inside", "written"),
    ("CapEff", "0000000000000000"),
    ("NoNewPrivs", "1"),
];
const READ_ONLY: &str = "touch: cannot touch '/var/tmp/outside': Read-only file system";

/// A box in which ringfence's user has a project, and everything that would arrive outside is seen.
struct Site {
    fence: Fence,
    tcp: Sink,
    _udp: Sink,
    user: u32,
}

/// How a run has to end.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// The policy is carried by this rung.
    Held(&'static str),
    /// Nothing starts, and this is named.
    Refused(&'static str),
}
use Outcome::{Held, Refused};

impl Site {
    fn new() -> Site {
        let fence = Fence::new();
        let (tcp, udp) = internet::everywhere(&fence.world, PORT).expect("sinks");
        let user = own_user();
        as_root(&fence, &format!("install -d -m 0755 -o {user} -g {user} /home/{user}/project"));
        let here = Site { fence, tcp, _udp: udp, user };
        here.assert_live();
        here
    }

    /// The same with what must be written in memory, so that nothing on the root's file system has to be.
    fn in_memory() -> Site {
        let site = Site::new();
        for directory in ["/home", "/var/log", "/app", "/workspace"] {
            site.fence.world.mount_memory(directory).expect("tmpfs");
        }
        let user = site.user;
        as_root(&site.fence, &format!("install -d -m 0755 -o {user} -g {user} /home/{user} /home/{user}/project"));
        site
    }

    /// Every act does something where nothing is in force.
    fn assert_live(&self) {
        let said = self.fence.as_user(self.user, &acts());
        for (key, expected) in [
            ("v4", "arrived"),
            ("v6", "arrived"),
            ("inside", "written"),
            ("outside", "written"),
            ("namespace", "0"),
            ("NoNewPrivs", "0"),
        ] {
            assert_eq!(common::value(&said, key), expected, "{key}: {said}");
        }
        self.tcp.wait_for(2);
        assert!(self.packets() >= 4, "{:?}", self.fence.world.packets());
        as_root(&self.fence, "rm /tmp/inside /var/tmp/outside");
    }

    /// What has left the box for where only the acts lead.
    fn packets(&self) -> usize {
        self.fence.world.packets().iter().filter(|packet| packet.destination_port == Some(PORT)).count()
    }

    #[track_caller]
    fn assert_outcome(self, what: &str, less: Less, outcome: Outcome) -> Site {
        eprintln!("{what}");
        let before = self.packets();
        let directory = less.user().map_or("/app".into(), |user| format!("/home/{user}/project"));
        let fence = self.fence.less(less);
        let (mut command, ledger) = fence.command(&["--policy", "nist-high"], &["bash", "-c", &acts()]);
        command.current_dir(directory);
        let ended = fence.ended(fence.output(command), ledger);
        match outcome {
            Held(rung) => {
                assert_eq!((ended.said.code, ended.start().rung.as_str()), (Some(0), rung), "{what}: {ended}");
                for (key, expected) in HELD {
                    assert_eq!(ended.value(key), expected, "{what}: {key} in {ended}");
                }
                assert_eq!(ended.value("outside"), READ_ONLY, "{what}: {ended}");
                assert_ne!(ended.value("namespace"), "0", "{what}: {ended}");
                assert!(ended.seal().complete, "{what}: {ended}");
            }
            Refused(named) => {
                assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{what}: {ended}");
                assert!(ended.said.err.contains(named), "{what}: {named} is not named in {ended}");
            }
        }
        let user = Site { fence, ..self };
        assert_eq!(user.packets(), before, "{what}: {:?}", user.fence.world.packets());
        as_root(&user.fence, "rm -f /tmp/inside; test ! -e /var/tmp/outside");
        user
    }

    fn assert_outcomes(mut self, rows: Vec<(&str, Less, Outcome)>) {
        for (what, less, outcome) in rows {
            self = self.assert_outcome(what, less, outcome);
        }
    }
}

/// Facts that no rung can do without, each with its name in the refusal.
fn indispensable(base: impl Fn() -> Less) -> Vec<(&'static str, Less, Outcome)> {
    vec![
        ("a refused notifier", base().no_notifier(), Refused("EINVAL")),
        ("another's notifier", base().busy_notifier(), Refused("another listener is in this process's filter chain")),
        ("no /proc", base().no_proc(), Refused("/proc")),
        ("no place to write", base().read_only_root(), Refused("EROFS")),
        (
            "no no_new_privs",
            base().refuse_when("prctl", &[When::Is(0, 38)], Errno::EPERM),
            Refused("PR_SET_NO_NEW_PRIVS"),
        ),
    ]
}

#[test]
fn root_with_less_is_held_or_refused_by_name() {
    let mut rows = vec![
        ("nothing", Less::new(), Held("full")),
        ("no user namespaces", Less::new().no_userns(), Held("full")),
        ("no Landlock", Less::new().no_landlock(), Held("full")),
        ("no IPv6", Less::new().no_inet6(), Held("full")),
        ("no pidfds", Less::new().no_pidfd(), Held("full")),
        ("no nftables", Less::new().no_nft(), Held("container")),
        ("no mount_setattr", Less::new().no_mount_setattr(), Held("container")),
        ("no SYS_ADMIN", Less::new().without_capability(21), Held("container")),
        ("no NET_ADMIN", Less::new().without_capability(12), Held("container")),
        ("no SETPCAP", Less::new().no_setpcap(), Refused("CAP_SETPCAP is missing")),
        ("nftables and Landlock", Less::new().no_nft().no_landlock(), Refused("Landlock")),
    ];
    rows.extend(indispensable(Less::new));
    Site::new().assert_outcomes(rows);
}

#[test]
fn root_of_a_container_with_less_is_held_or_refused_by_name() {
    let base = || Less::new().container();
    let mut rows = vec![
        ("nothing", base(), Held("container")),
        ("no IPv6", base().no_inet6(), Held("container")),
        ("no pidfds", base().no_pidfd(), Held("container")),
        ("Yama among strangers", base().yama(1), Held("container")),
        ("no Landlock", base().no_landlock(), Refused("Landlock")),
        ("no ADDFD", base().no_addfd(), Refused("NOTIF_ADDFD")),
        ("Yama's strictness", base().yama(2), Refused("Yama's ptrace_scope is 2")),
        ("no SETPCAP", base().no_setpcap(), Refused("CAP_SETPCAP is missing")),
    ];
    rows.extend(indispensable(base));
    Site::new().assert_outcomes(rows);
}

#[test]
fn a_user_with_less_is_held_or_refused_by_name() {
    let base = || Less::new().uid(own_user(), own_user());
    let mut rows = vec![
        ("nothing", base(), Held("rootless")),
        ("no IPv6", base().no_inet6(), Held("rootless")),
        ("no user namespaces", base().no_userns(), Held("bare")),
        ("no capabilities in them", base().userns_without_capabilities(), Held("bare")),
        ("no nftables", base().no_nft(), Held("bare")),
        ("no mount_setattr", base().no_mount_setattr(), Held("bare")),
        ("no Landlock", base().no_landlock(), Refused("Landlock")),
    ];
    rows.extend(indispensable(base));
    Site::new().assert_outcomes(rows);
}

#[test]
fn a_user_of_a_container_with_less_is_held_or_refused_by_name() {
    let base = || Less::new().container_user(own_user(), own_user());
    let mut rows = vec![
        ("nothing", base(), Held("bare")),
        ("no IPv6", base().no_inet6(), Held("bare")),
        ("no Landlock", base().no_landlock(), Refused("Landlock")),
        ("no ADDFD", base().no_addfd(), Refused("NOTIF_ADDFD")),
        ("Yama's strictness", base().yama(2), Refused("Yama's ptrace_scope is 2")),
    ];
    rows.extend(indispensable(base));
    Site::new().assert_outcomes(rows);
}

#[test]
fn a_read_only_root_is_held_where_home_and_record_can_be_written() {
    let user = own_user();
    let on = |less: Less, rung: &'static str| ("a read-only root", less.read_only_root(), Held(rung));
    Site::in_memory().assert_outcomes(vec![
        on(Less::new(), "full"),
        on(Less::new().container(), "container"),
        on(Less::new().uid(user, user), "rootless"),
        on(Less::new().container_user(user, user), "bare"),
    ]);
}

#[test]
fn a_workspace_on_a_read_only_root_is_as_it_is_and_refused_where_it_is_named() {
    let fence = Fence::new();
    for directory in ["/home", "/var/log"] {
        fence.world.mount_memory(directory).expect("tmpfs");
    }
    assert_eq!(as_root(&fence, "stat -c %U /app").trim(), "root");
    let fence = fence.less(Less::new().container().read_only_root());
    let run = |flags: &[&str]| {
        let flags: Vec<&str> = ["--policy", "nist-high"].iter().chain(flags).copied().collect();
        let (mut command, ledger) = fence.command(&flags, &["sh", "-c", "touch /app/made || touch /tmp/made"]);
        command.current_dir("/app");
        fence.ended(fence.output(command), ledger)
    };
    let ended = run(&[]);
    assert_eq!((ended.said.code, ended.start().rung.as_str()), (Some(0), "container"), "{ended}");
    assert!(ended.said.err.contains("'/app/made': Read-only file system"), "{ended}");
    let ended = run(&["--workspace", "/app"]);
    assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{ended}");
    assert!(ended.said.err.contains("/app: ") && ended.said.err.contains("read-only file system"), "{ended}");
}
