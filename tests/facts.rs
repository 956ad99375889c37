//! What a host offers is found by trying it: each fact is true here, and where it is taken away it is told by its cause, by
//! `plan --json` too that ends in a refusal.

mod common;

use common::{Fence, RINGFENCE};
use nix::errno::Errno;
use serde_json::{Map, Value, json};
use std::process::Command;
use world::less::When;
use world::{Less, Said, World};

const USER: u32 = 1000;

fn plan(world: &World, less: &Less, flags: &[&str]) -> Said {
    let mut command = world.command(RINGFENCE);
    command.arg("plan").args(flags);
    Said::from(world.output_with(less, command))
}

/// The facts that `plan --json` tells, whether a rung carries the policy or none does.
#[track_caller]
fn facts(world: &World, less: &Less) -> Map<String, Value> {
    let said = plan(world, less, &["--json", "--policy", "nist-high"]);
    let told: Value = serde_json::from_str(&said.out).unwrap_or_else(|cause| panic!("{cause}: {said}"));
    let refused = told.get("refused").is_some();
    assert_eq!((said.code, said.err.as_str()), (Some(if refused { 125 } else { 0 }), ""), "{said}");
    told["host"].as_object().expect("facts").clone()
}

/// Every fact that something is tried for, where nothing is taken away.
const TRIED: [&str; 19] = [
    "addfd",
    "bind_to_lo",
    "fanotify",
    "idmapped_mounts",
    "landlock",
    "landlock_scopes",
    "mount_setattr",
    "mounts",
    "nflog",
    "nftables",
    "nftables_in_user_namespace",
    "no_new_privs",
    "notification",
    "pidfd",
    "pidfd_getfd",
    "proc",
    "reads_callers",
    "setpcap",
    "user_namespaces",
];
/// Those that are told besides.
const TOLD: [&str; 10] = [
    "capabilities",
    "id_mapping",
    "kernel",
    "landlock_abi",
    "landlock_audit",
    "outer_filter",
    "pid_1",
    "stand_ins_routed",
    "uid",
    "yama",
];

/// Everything but what is named is true, and each of those tells its cause, or is `false`.
#[track_caller]
fn assert_lacks(found: &Map<String, Value>, lacks: &[(&str, &str)]) {
    for fact in TRIED {
        let value = &found[fact];
        match lacks.iter().find(|(name, _)| *name == fact) {
            None => assert_eq!(*value, true, "{fact} of {found:#?}"),
            Some((_, "false")) => assert_eq!(*value, false, "{fact} of {found:#?}"),
            Some((_, cause)) => {
                assert!(value.as_str().is_some_and(|text| text.contains(cause)), "{fact}: {value}, not {cause:?}");
            }
        }
    }
}

/// What is taken away, and the facts that it takes, with their causes.
type Row<'a> = (&'a str, Less, Vec<(&'a str, &'a str)>);

/// What holds where nothing is taken away, and no fact goes by another name than these.
#[test]
fn all_is_there_for_root() {
    let fence = Fence::new();
    fence.world.mount_memory("/workspace").expect("tmpfs");
    let found = facts(&fence.world, &Less::new());
    assert_lacks(&found, &[]);
    assert_eq!(found["id_mapping"], true, "{found:#?}");
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let mut expected: Vec<&str> = TRIED.into_iter().chain(TOLD).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let page = include_str!("../docs/record.md");
    assert!(names.iter().all(|name| page.contains(&format!("| `{name}` |"))), "docs/record.md lacks one of {names:?}");
    let abi = Command::new("/usr/bin/python3")
        .args(["-c", "import ctypes; print(ctypes.CDLL(None).syscall(444, 0, 0, 1), end='')"])
        .output()
        .expect("python");
    assert_eq!((found["landlock_abi"].to_string().into_bytes(), &found["uid"]), (abi.stdout, &json!(0)));
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    assert_eq!(found["yama"], yama.map_or(Value::Null, |text| text.trim().parse::<u32>().expect("a number").into()));
}

#[test]
fn what_is_taken_from_root_is_told_with_its_cause() {
    let world = &Fence::new().world;
    let prctl = |option: u64| [When::Is(0, option)];
    const SET_NO_NEW_PRIVS: u64 = 38;
    const BIND_TO_DEVICE: [When; 2] = [When::Is(1, 1), When::Is(2, 25)];
    const SYS_ADMIN: u32 = 21;
    let unreadable = "read /proc/TID/mem: EPERM: Operation not permitted";
    let no_listener = |cause| [("notification", cause), ("addfd", cause), ("reads_callers", cause)];
    let no_landlock = "landlock_create_ruleset: ENOSYS";
    let rows: Vec<Row<'_>> = vec![
        ("nothing", Less::new(), vec![]),
        ("Landlock", Less::new().no_landlock(), vec![("landlock", no_landlock), ("landlock_scopes", "false")]),
        (
            "the enforcement of Landlock",
            Less::new().refuse("landlock_restrict_self", Errno::EPERM),
            vec![("landlock", "Landlock: "), ("landlock_scopes", "false")],
        ),
        ("the notifier", Less::new().no_notifier(), no_listener("seccomp with a listener: EINVAL").to_vec()),
        (
            "the notifier's place in the chain",
            Less::new().busy_notifier(),
            no_listener("EBUSY: another listener is in this process's filter chain").to_vec(),
        ),
        ("ADDFD", Less::new().no_addfd(), vec![("addfd", "NOTIF_ADDFD: EINVAL")]),
        ("Yama's opinion", Less::new().yama(1), vec![]),
        ("a caller's memory", Less::new().yama(3), vec![("reads_callers", unreadable)]),
        (
            "no_new_privs",
            Less::new().refuse_when("prctl", &prctl(SET_NO_NEW_PRIVS), Errno::EPERM),
            ["no_new_privs", "landlock", "bind_to_lo", "notification", "addfd", "reads_callers"]
                .map(|fact| (fact, "prctl PR_SET_NO_NEW_PRIVS: EPERM"))
                .into_iter()
                .chain([("landlock_scopes", "false")])
                .collect(),
        ),
        ("SETPCAP", Less::new().no_setpcap(), vec![("setpcap", "prctl PR_CAPBSET_DROP: EPERM")]),
        (
            "lo",
            Less::new().refuse_when("setsockopt", &BIND_TO_DEVICE, Errno::EPERM),
            vec![("bind_to_lo", "setsockopt SO_BINDTODEVICE: EPERM")],
        ),
        (
            "user namespaces",
            Less::new().no_userns(),
            vec![
                ("user_namespaces", "unshare CLONE_NEWUSER: EPERM"),
                ("nftables_in_user_namespace", "unshare CLONE_NEWUSER: EPERM"),
                ("nftables_in_user_namespace", "unshare CLONE_NEWUSER: EPERM"),
                ("idmapped_mounts", "user namespace of the workspace's id mapping: EPERM"),
            ],
        ),
        (
            "mount_setattr",
            Less::new().no_mount_setattr(),
            vec![
                ("mount_setattr", "mount_setattr: ENOSYS"),
                ("mounts", "mount_setattr: ENOSYS"),
                ("idmapped_mounts", "/tmp: ENOSYS"),
            ],
        ),
        // In a user namespace of its own it has the capability again.
        (
            "SYS_ADMIN",
            Less::new().without_capability(SYS_ADMIN),
            vec![("mounts", "unshare: EPERM"), ("idmapped_mounts", "EPERM"), ("fanotify", "fanotify_init: EPERM")],
        ),
        (
            "nftables",
            Less::new().no_nft(),
            ["nftables", "nflog", "nftables_in_user_namespace"].map(|fact| (fact, "Protocol not supported")).to_vec(),
        ),
        (
            "pidfds",
            Less::new().no_pidfd(),
            vec![("pidfd", "pidfd_open: ENOSYS"), ("pidfd_getfd", "pidfd_open: ENOSYS")],
        ),
        ("pidfd_getfd", Less::new().refuse("pidfd_getfd", Errno::EPERM), vec![("pidfd_getfd", "pidfd_getfd: EPERM")]),
    ];
    for (what, less, lacks) in rows {
        eprintln!("without {what}");
        let found = facts(world, &less);
        assert_lacks(&found, &lacks);
        assert_eq!(found["landlock_abi"] == 0, what == "Landlock", "{what}");
    }
    let found = facts(world, &Less::new().yama(2));
    assert_eq!(
        (&found["yama"], &found["reads_callers"]),
        (&json!(2), &json!(format!("{unreadable} (Yama's ptrace_scope is 2; accepted: 0, 1)")))
    );
}

#[test]
fn environments_are_told_apart() {
    let world = &Fence::new().world;
    let unshare = "unshare CLONE_NEWUSER: EPERM";
    let container = [
        ("mounts", "unshare: EPERM"),
        ("mount_setattr", unshare),
        ("idmapped_mounts", "EPERM"),
        ("fanotify", "fanotify_init: EPERM"),
        ("nftables", "Operation not permitted"),
        ("nflog", "Operation not permitted"),
        ("user_namespaces", unshare),
        ("nftables_in_user_namespace", unshare),
        ("nftables_in_user_namespace", unshare),
        ("pidfd_getfd", "pidfd_getfd: EPERM"),
    ];
    let user = [
        ("mounts", "unshare: EPERM"),
        ("idmapped_mounts", "EPERM"),
        ("nftables", "Operation not permitted"),
        ("nflog", "Operation not permitted"),
        ("setpcap", "prctl PR_CAPBSET_DROP: EPERM"),
        ("fanotify", "fanotify_init: EPERM"),
    ];
    let no_capabilities = ["user_namespaces", "nftables_in_user_namespace", "mount_setattr"]
        .map(|fact| (fact, "in a user namespace: EPERM"));
    let setpcap = [user[4]];
    for (what, less, lacks) in [
        ("container", Less::new().container(), container.to_vec()),
        ("container's user", Less::new().container_user(USER, USER), [&container[..], &setpcap].concat()),
        ("user", Less::new().uid(USER, USER), user.to_vec()),
        (
            "user of a hardened host",
            Less::new().uid(USER, USER).userns_without_capabilities(),
            [&user[..], &no_capabilities].concat(),
        ),
    ] {
        eprintln!("{what}");
        let found = facts(world, &less);
        assert_lacks(&found, &lacks);
        assert_eq!(found["outer_filter"], what != "user", "{what}");
    }
}

#[test]
fn without_proc_nothing_can_be_tried_and_all_say_so() {
    let world = &Fence::new().world;
    let found = facts(world, &Less::new().no_proc());
    let cause = "read /proc/self/stat: No such file or directory";
    let proc = |fact: &&str| !["landlock_scopes", "pidfd", "pidfd_getfd", "nftables", "nflog"].contains(fact);
    let lacks: Vec<(&str, &str)> = TRIED.into_iter().filter(proc).map(|fact| (fact, cause)).collect();
    assert_lacks(&found, &[&lacks[..], &[("landlock_scopes", "false")]].concat());
}

#[test]
fn a_refused_plan_tells_the_facts_that_it_was_made_from() {
    let world = &Fence::new().world;
    let flags = ["--policy", "nist-high"];
    assert_eq!(plan(world, &Less::new(), &flags).code, Some(0));
    let nothing = Less::new().uid(USER, USER).no_landlock().no_userns();
    let text = plan(world, &nothing, &flags);
    assert_eq!((text.code, text.out.as_str()), (Some(125), ""), "{text}");
    assert!(text.err.contains("no rung carries this policy here: ") && text.err.lines().count() == 1, "{text}");
    let said = plan(world, &nothing, &["--json", "--policy", "nist-high"]);
    assert_eq!((said.code, said.err.as_str()), (Some(125), ""), "{said}");
    let told: Value = serde_json::from_str(&said.out).expect("JSON");
    let keys: Vec<&String> = told.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["host", "refused"], "{said}");
    let refused = told["refused"].as_str().expect("a text");
    assert!(text.err.trim_end().ends_with(refused), "{text}{said}");
    assert_eq!(told["host"]["landlock"], "landlock_create_ruleset: ENOSYS: Function not implemented");
}

#[test]
fn a_run_on_the_strongest_rung_tries_no_more_than_it_needs() {
    let fence = Fence::new();
    let ended = fence.run(&["--policy", "nist-high"], "true");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let host = &ended.start().host;
    let tried = ["mounts", "landlock_scopes", "mount_setattr", "pidfd", "pidfd_getfd", "proc"];
    let not = ["notification", "addfd", "reads_callers", "landlock", "user_namespaces", "nftables", "nflog", "setpcap"];
    assert!(tried.iter().all(|fact| host[*fact] == true), "{ended}");
    assert!(not.iter().all(|fact| host[*fact] == "not tried"), "{ended}");
}
