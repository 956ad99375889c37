//! The read-only trees hold with every mount beneath them, under every name, for every way of changing a file (cases F01
//! and F03), and a mount that is made outside later does not arrive inside.

mod attempts;
mod common;

use attempts::{ATTEMPTS, fence, others, outcomes};
use common::{Fence, as_root, own_user};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use world::Said;

/// Flags for a run as the user that the live vectors use.
fn flags() -> [String; 4] {
    ["--policy", "nist-high", "--user", &format!("{0}:{0}", own_user())].map(str::to_owned)
}

fn run(fence: &Fence, script: &str) -> common::Ended {
    let flags = flags();
    fence.run(&flags.each_ref().map(String::as_str), script)
}

/// Mounts beneath protected trees, one of each kind, and second names of protected trees elsewhere.
const MOUNTS: &str = "
    mkdir -p /usr/open /usr/local/data /opt/stack /srv/shared /srv/overlay /run/layers /mnt/u /mnt/r /mnt/sub /mnt/all
    mount -t tmpfs -o nosuid,nodev,noexec,mode=755 below /usr/local/data
    mount -t tmpfs -o mode=755 lower /opt/stack; mount -t tmpfs -o mode=755 upper /opt/stack
    mount -t tmpfs -o mode=755 shared /srv/shared; mount --make-shared /srv/shared; mkdir /srv/shared/late
    mount -t tmpfs -o mode=755 layers /run/layers; mkdir /run/layers/lower /run/layers/upper /run/layers/work
    mount -t overlay -o lowerdir=/run/layers/lower,upperdir=/run/layers/upper,workdir=/run/layers/work over /srv/overlay
    mount --bind /usr /mnt/u; mount --rbind /usr /mnt/r; mount --bind /usr/open /mnt/sub; mount --bind / /mnt/all";

/// Directories that an ordinary user may write by their modes, and which only the mounts make read-only.
const PLACES: [&str; 5] =
    ["/usr/open", "/usr/local/data/open", "/opt/stack/open", "/srv/shared/open", "/srv/overlay/open"];

/// Second names of those.
const ALIASES: [&str; 9] = [
    "/mnt/u/open",
    "/mnt/r/open",
    "/mnt/r/local/data/open",
    "/mnt/sub",
    "/mnt/all/usr/open",
    "/proc/self/root/usr/open",
    "/proc/thread-self/root/srv/shared/open",
    "/proc/self/root/mnt/u/open",
    "/tmp/link/open",
];

fn furnish(fence: &Fence) {
    let fill = PLACES.map(|place| {
        let user = own_user();
        format!("rm -rf {place}/*; mkdir -p {place}; touch {place}/file {place}/other; chown -R {user}:{user} {place}")
    });
    as_root(fence, &format!("{}; ln -sfn /usr /tmp/link", fill.join("; ")));
}

#[test]
fn every_mount_beneath_a_tree_is_read_only_under_every_name() {
    let fence = fence();
    as_root(&fence, MOUNTS);
    let all: Vec<&str> = PLACES.into_iter().chain(ALIASES).collect();
    for place in &all {
        furnish(&fence);
        let said = fence.as_user(own_user(), &format!("{ATTEMPTS} change {place}"));
        assert_eq!(others(&said.out, "ok"), [("mmap-of-read-only", "EACCES")], "live in {place}: {said}");
    }
    furnish(&fence);
    let digest =
        format!("stat -c '%n %a %u %g %Y %s' {0} {1}; sha256sum {1}", PLACES.join(" "), PLACES.join("/* ") + "/*");
    let before = as_root(&fence, &digest);
    let script: String = all.iter().map(|place| format!("echo at {place}; {ATTEMPTS} change {place}\n")).collect();
    let ended = run(&fence, &script);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    let mut seen = 0;
    for part in ended.said.out.split("at /").skip(1) {
        let (place, lines) = part.split_once('\n').expect("a place and its lines");
        assert_eq!(outcomes(lines).len(), 22, "{place}: {lines}");
        // The mode of the descriptor is looked at before the mount (mmap(2)).
        assert_eq!(others(lines, "EROFS"), [("mmap-of-read-only", "EACCES")], "in /{place}");
        seen += 1;
    }
    assert_eq!(seen, all.len(), "{ended}");
    assert_eq!(as_root(&fence, &digest), before);
}

#[test]
fn flags_of_a_mount_are_kept() {
    let fence = fence();
    as_root(&fence, MOUNTS);
    let ended = run(&fence, "grep -E ' /(usr/local/data|srv/shared|tmp) ' /proc/self/mountinfo");
    let options = |point: &str| -> Vec<String> {
        let mut lines = ended.said.out.lines().filter(|line| line.split(' ').nth(4) == Some(point));
        lines
            .next_back()
            .map(|line| line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect())
            .unwrap_or_default()
    };
    for flag in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(options("/usr/local/data").iter().any(|o| o == flag), "{flag}: {ended}");
    }
    assert!(!options("/srv/shared").iter().any(|o| o == "noexec"), "{ended}");
    assert!(options("/tmp").iter().any(|o| o == "rw"), "{ended}");
    assert!(!ended.said.out.contains("shared:"), "{ended}");
}

#[test]
fn a_mount_made_in_mid_run_does_not_arrive_inside() {
    let fence = fence();
    as_root(&fence, MOUNTS);
    let flags = flags();
    let script = "echo running; read line; ls /srv/shared/late; grep -c late /proc/self/mountinfo; echo end";
    let (mut command, ledger) = fence.command(&flags.each_ref().map(String::as_str), &["bash", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = fence.world.spawn(command).expect("ringfence starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "running\n");
    as_root(&fence, "mount -t tmpfs -o mode=1777 arrives /srv/shared/late; echo x > /srv/shared/late/file");
    let said = fence.as_user(own_user(), "ls /srv/shared/late; grep -c late /proc/self/mountinfo");
    assert_eq!(said.out, "file\n1\n", "outside it is there: {said}");
    child.stdin.take().expect("piped").write_all(b"\n").expect("the command reads");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    let status = child.wait().expect("wait");
    let ended = fence.ended(Said { code: status.code(), out: rest, err: String::new() }, ledger);
    assert_eq!(ended.said.out, "0\nend\n", "{ended}");
}

#[test]
fn other_processes_lead_nowhere_by_proc() {
    let fence = fence();
    let script = format!(
        "me=$(id -u); for status in /proc/[0-9]*/status; do
            pid=${{status#/proc/}}; pid=${{pid%/status}}
            set -- $(grep ^Uid: $status 2>/dev/null); [ -n \"$2\" ] && [ \"$2\" != $me ] || continue
            {ATTEMPTS} open /proc/$pid/root /proc/$pid/cwd /proc/$pid/fd /proc/$pid/map_files /proc/$pid/environ /proc/$pid/mem
        done; echo; mkdir /tmp/$me; {ATTEMPTS} open /proc/self/root/tmp/$me; cd /tmp/$me; {ATTEMPTS} open /proc/self/cwd"
    );
    // Root reaches it, so that what is refused below is there to be reached. The others are not tried: processes of the
    // whole machine are among them, in whose roots root would make files.
    let mut sleeper = spawn_sleeper(&fence, 33);
    let only_it = format!("/proc/{}/status", sleeper.id());
    let said = fence.as_root(&script.replace("me=$(id -u)", "me=0").replace("/proc/[0-9]*/status", &only_it));
    let of_sleeper = format!("read /proc/{}/root ok", sleeper.id());
    assert!(said.out.lines().any(|line| line == of_sleeper), "{said}");
    let ended = run(&fence, &script);
    sleeper.kill().and_then(|()| sleeper.wait()).expect("the sleeper ends");
    let (of_others, own) = ended.said.out.split_once("\n\n").expect("two parts");
    let seen = outcomes(of_others);
    assert!(seen.len() >= 12 * 3, "the supervisor, the stage and the proxy are among them: {ended}");
    for (what, outcome) in seen {
        // /environ and /mem are files, in which nothing can be made. One that has ended meanwhile is nowhere.
        assert!(["EACCES", "EPERM", "ENOTDIR", "ENOENT", "ESRCH"].contains(&outcome), "{what}: {outcome}\n{ended}");
    }
    for (what, outcome) in outcomes(own) {
        assert_eq!(outcome, "ok", "{what}: {ended}");
    }
}

fn spawn_sleeper(fence: &Fence, uid: u32) -> std::process::Child {
    let mut sleeper = fence.world.command("setpriv");
    sleeper.args(["--reuid", &uid.to_string(), "--regid", &uid.to_string(), "--clear-groups", "sleep", "1000"]);
    let mut child = fence.world.spawn(sleeper).expect("setpriv starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let status = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&status).is_ok_and(|name| name != "sleep\n") {
        assert!(std::time::Instant::now() < deadline, "setpriv does not become sleep: {:?}", child.try_wait());
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_user_who_has_processes_already_is_refused() {
    let fence = fence();
    let mut sleeper = spawn_sleeper(&fence, own_user());
    let ended = run(&fence, "touch /tmp/started");
    assert_eq!((ended.said.code, ended.said.err.lines().count()), (Some(125), 1), "{ended}");
    assert!(ended.said.err.contains(&format!("already has a process (pid {})", sleeper.id())), "{ended}");
    assert_eq!(fence.world.read("/tmp/started"), None);
    sleeper.kill().and_then(|()| sleeper.wait()).expect("the sleeper ends");
    let ended = run(&fence, "touch /tmp/started");
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(fence.world.read("/tmp/started"), Some(Vec::new()));
}
