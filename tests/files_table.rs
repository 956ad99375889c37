//! Files where there are no mounts: act by act, object by object, the rungs `container` and `bare` give the errno that a
//! read-only mount gives on the rung `full`, and the same records; and nothing of what is read-only changes there, contents or metadata.
//!
//! One difference stands: a pipe or a device with a name in a read-only tree can be opened for writing on a read-only mount, and
//! Landlock refuses that (EACCES, recorded), save for the devices in /dev.
//!
//! Each act is made on each object in a tree that is read-only and, where it may change something, in a writable one. `FILES_ONLY`
//! keeps the acts of that name.

#[path = "acts/beside.rs"]
mod beside;
mod common;
#[path = "files/objects.rs"]
mod objects;
#[path = "files/table.rs"]
mod table;

use beside::{PROGRAM, program};
use common::{Ended, Fence, as_root, own_user};
use objects::furnish;
use ringfence::ledger::record::Denial;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use table::{Case, Spelling, cases};
use world::Less;

/// The trees by the rung that is to meet them: read-only, and writable.
const READ_ONLY: &str = "/opt/table";
const WRITABLE: &str = "/tmp/table";

/// The tree of each rung has a name of the same length.
const RUNGS: [(&str, &str); 3] = [("full", "a"), ("container", "b"), ("bare", "c")];

fn scripts(fence: &Fence, cases: &[Case], user: u32) {
    fence.world.write(PROGRAM, program(), 0o755);
    for (_, tree) in RUNGS {
        let lines: Vec<String> = cases.iter().enumerate().map(|(id, case)| case.line(id, tree, user)).collect();
        fence.world.write(&format!("/usr/local/lib/table-{tree}"), lines.join("\n") + "\n", 0o644);
    }
    let objects: Vec<_> =
        cases.iter().enumerate().map(|(id, case)| (case.directory(id), case.object, case.zone.path())).collect();
    fence.world.inside().run(move || {
        for (_, tree) in RUNGS {
            for zone in [READ_ONLY, WRITABLE] {
                furnish::zone(&format!("{zone}/{tree}"), user);
            }
            for (directory, object, zone) in &objects {
                furnish::case(&format!("{zone}/{tree}/{directory}"), object, user);
            }
        }
    });
}

/// What each act gave, by its number.
fn outcomes(ended: &Ended) -> BTreeMap<usize, String> {
    let lines = ended.said.out.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, _, outcome] = fields[..] else { return None };
        Some((id.parse().ok()?, outcome.to_owned()))
    });
    lines.collect()
}

/// A denial in terms that are the same on both rungs.
fn told(denial: &Denial, tree: &str) -> String {
    let plain = |path: &str| path.replace(&format!("/table/{tree}/"), "/table/*/");
    let object = denial.object.path.as_deref().map(plain).unwrap_or_default();
    let to = denial.object.to.as_deref().map(plain).unwrap_or_default();
    let errno = denial.errno.clone().unwrap_or_default();
    let (axis, rule, mechanism) = (denial.axis.name(), &denial.rule, denial.mechanism.name());
    format!("{axis} {mechanism} {} {object} -> {to} {errno} {rule}", denial.operation)
}

fn denials(ended: &Ended, tree: &str) -> BTreeMap<String, u64> {
    let mut told_of = BTreeMap::new();
    for denial in ended.denials() {
        *told_of.entry(told(denial, tree)).or_insert(0) += denial.count;
    }
    told_of
}

/// Everything in a tree, with what is known of it; attributes that are not shown move the time of the last change. Only times
/// of access may be others.
fn everything(fence: &Fence, tree: &str) -> BTreeSet<String> {
    let look = format!(
        "cd {READ_ONLY}/{tree}; find . -printf '%p %y %m %U %G %s %n %T@ %C@ %l\\n'; find . -type f -exec md5sum {{}} +"
    );
    as_root(fence, &look).lines().map(str::to_owned).collect()
}

/// What there is on a rung: all of root's, a container's, a container's for a user.
fn less(rung: &str, user: u32) -> Less {
    match rung {
        "full" => Less::new(),
        "container" => Less::new().container(),
        _ => Less::new().container_user(user, user),
    }
}

/// A command on a rung.
fn command(fence: &Fence, posture: &str, rung: &str, user: u32, arguments: &[&str]) -> (Command, String) {
    let id = format!("{user}:{user}");
    let axes = ["--policy", "control", "--filesystem", posture, "--privilege", "locked"];
    let whom = ["--user", &id];
    // Without root the command's user is the caller.
    let whom = if rung == "bare" { &[] } else { &whom[..] };
    let flags = [&axes[..], &["--rung", rung], whom].concat();
    fence.command(&flags, arguments)
}

fn run(fence: &Fence, posture: &str, rung: &str, tree: &str, user: u32) -> Ended {
    let script = format!("umask 022; {PROGRAM} run /usr/local/lib/table-{tree}");
    let (command, ledger) = command(fence, posture, rung, user, &["bash", "-c", &script]);
    let ended = fence.ended(fence.output(command), ledger);
    assert_eq!(ended.said.code, Some(0), "{rung}: {}", ended.said);
    ended
}

#[test]
fn each_act_on_each_object_is_answered_and_recorded_as_by_a_read_only_mount() {
    hold("restricted", cases());
}

#[test]
fn where_everything_is_read_only_the_same_holds() {
    let plain = |case: &Case| case.spelling == Spelling::Absolute;
    hold("locked", cases().into_iter().filter(plain).collect());
}

fn hold(posture: &str, cases: Vec<Case>) {
    let mut fence = Fence::new();
    let user = own_user();
    as_root(&fence, &format!("mkdir -p {READ_ONLY} {WRITABLE}"));
    // Where other homes are not to be read, their modes are all that says so without mounts.
    as_root(&fence, "for home in /home/*; do [ ! -d $home ] || chmod 700 $home; done");
    fence.world.mount_ext4(READ_ONLY).expect("a file system with attributes");
    fence.world.mount_memory(WRITABLE).expect("one without a limit");
    let only = std::env::var("FILES_ONLY").ok();
    let cases: Vec<Case> =
        cases.into_iter().filter(|case| only.as_deref().is_none_or(|only| case.what().contains(only))).collect();
    scripts(&fence, &cases, user);
    let mut met = Vec::new();
    for (rung, tree) in RUNGS {
        fence = fence.less(less(rung, user));
        let before = everything(&fence, tree);
        let ended = run(&fence, posture, rung, tree, user);
        let after = everything(&fence, tree);
        let changed: Vec<_> = before.symmetric_difference(&after).collect();
        assert!(changed.is_empty(), "{rung}: {changed:#?}");
        assert!(ended.seal().complete, "{:?}", ended.seal());
        met.push((rung, outcomes(&ended), denials(&ended, tree)));
    }
    let (_, mount, of_mount) = &met[0];
    let mut faults = Vec::new();
    for (rung, ours, of_ours) in &met[1..] {
        for (id, case) in cases.iter().enumerate() {
            let (mount, ours) = (mount.get(&id), ours.get(&id));
            let landlocks = case.is_special() && ours.is_some_and(|errno| errno == "EACCES");
            if mount.is_none() || mount != ours && !landlocks {
                faults.push(format!("{id} {}: {mount:?} by a mount, {ours:?} on {rung}", case.what()));
            }
        }
        for told in of_mount.keys().chain(of_ours.keys()).filter(|told| !is_special(told)).collect::<BTreeSet<_>>() {
            let (mount, ours) = (of_mount.get(told), of_ours.get(told));
            // What an ordinary user is refused without ringfence too is no denial of ours.
            let users_own = ["/own/own ", "/missing/missing ", "/empty/empty ", "/directory/directory "];
            let is_none = *rung == "bare" && ours < mount && !users_own.iter().any(|own| told.contains(own));
            if mount != ours && !is_none {
                faults.push(format!("recorded {mount:?} by a mount, {ours:?} on {rung}: {told}"));
            }
        }
        if only.is_none() {
            assert!(of_ours.keys().any(|told| is_special(told) && told.contains("EACCES read-only")), "{rung}");
            // Each errno of the table has been met, and what is allowed has been done.
            let met: BTreeSet<&str> = ours.values().map(String::as_str).collect();
            for errno in
                ["ok", "EROFS", "EACCES", "EPERM", "EEXIST", "ENOENT", "ENOTDIR", "EXDEV", "ELOOP", "EISDIR", "EINVAL"]
            {
                assert!(met.contains(errno), "{errno}: {met:?}");
            }
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// Whether it is told of an open of what is neither a file nor a directory.
fn is_special(told: &str) -> bool {
    let opens = [" openat /", " openat2 /", " creat /"].iter().any(|call| told.contains(call));
    opens && (told.contains("/fifo/fifo ") || told.contains("/null/null "))
}

/// What has no name where it is: in memory, taken away meanwhile, of the process itself.
#[test]
fn what_has_no_name_is_changed_as_with_mounts() {
    let mut fence = Fence::new();
    let user = own_user();
    fence.world.write("/usr/local/lib/nameless.py", std::fs::read("tests/files/nameless.py").unwrap(), 0o644);
    let mut met = Vec::new();
    for (rung, tree) in RUNGS {
        fence = fence.less(less(rung, user));
        let (own, kept) = (format!("/tmp/nameless-{tree}"), format!("/opt/nameless-{tree}"));
        let make = "mkdir $0 $1; for name in lost named; do echo x > $1/$name; done; chown -R $2:$2 $0 $1";
        as_root(&fence, &make.replace("$0", &own).replace("$1", &kept).replace("$2", &user.to_string()));
        let arguments = ["/usr/bin/python3", "-IB", "/usr/local/lib/nameless.py", &own, &kept, rung];
        let (mut command, ledger) = command(&fence, "restricted", rung, user, &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = fence.start(command);
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        while !said.ends_with("open\n") && out.read_line(&mut said).expect("text") > 0 {}
        as_root(&fence, &format!("rm {kept}/lost"));
        child.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
        out.read_to_string(&mut said).expect("text");
        let mut err = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        assert!(child.wait().expect("it ends").success(), "{rung}: {said}{err}");
        let ended = fence.ended(fence.as_root("true"), ledger);
        let named = |denial: &Denial| {
            told(denial, tree).replace(&format!("nameless-{tree}"), "nameless").replace(" (deleted)", "")
        };
        let recorded: BTreeSet<String> = ended.denials().into_iter().map(named).collect();
        met.push((rung, said, recorded));
    }
    let (_, mount, of_mount) = &met[0];
    for (rung, ours, of_ours) in &met[1..] {
        let mount: Vec<&str> = mount.lines().filter(|line| *rung != "bare" || !line.contains("proc")).collect();
        let differ: Vec<_> = mount.iter().zip(ours.lines()).filter(|(a, b)| **a != *b).collect();
        assert!(differ.is_empty() && mount.len() == ours.lines().count(), "{rung}: {differ:#?} {ours}");
        for line in [
            "lost-fchmod=EROFS",
            "named-fchmod=EROFS",
            "memory-fchmod=ok",
            "pipe-fchmod=ok",
            "gone-fchmod=ok",
            "far-file=ok",
        ] {
            assert!(ours.lines().any(|said| said == line), "{line}: {ours}");
        }
        // What an ordinary user is refused without ringfence too is no denial of ours.
        let users_own = |told: &&&String| *rung != "bare" || told.contains(" filesystem ");
        let differ: Vec<_> = of_mount.symmetric_difference(of_ours).filter(|told| users_own(&told)).collect();
        assert!(differ.is_empty(), "{rung}: {differ:#?}");
    }
}

/// What a file system of its own changes by a request of its own: a file's generation, by whoever owns it and may read it.
#[test]
fn requests_of_single_file_systems_change_nothing() {
    const SET: &str = "import fcntl, os, struct, sys, errno\n\
        for path in sys.argv[1:]:\n\
        \x20   fd = os.open(path, os.O_RDONLY)\n\
        \x20   for request in (0x40087602, 0x40086604):\n\
        \x20       try: fcntl.ioctl(fd, request, struct.pack('l', 7)); said = 'ok'\n\
        \x20       except OSError as error: said = errno.errorcode[error.errno]\n\
        \x20       print(said, struct.unpack('l', fcntl.ioctl(fd, 0x80087601, bytes(8)))[0] & 0xffffffff)\n";
    let user = own_user();
    let fence = Fence::new().less(less("container", user));
    fence.world.mount_ext4("/opt/loops").expect("loop devices");
    // With checksums of metadata ext4 refuses the request to everyone.
    as_root(&fence, "truncate -s 16M /run/blocks; mkfs.ext4 -q -F -O ^metadata_csum /run/blocks; mkdir /opt/requests");
    as_root(&fence, "mount -o loop /run/blocks /opt/requests");
    let make = format!("cd /opt/requests; touch live kept; chown {user}:{user} live kept");
    as_root(&fence, &make);
    fence.world.write("/usr/local/lib/set.py", SET, 0o644);
    let python = "/usr/bin/python3 -IB /usr/local/lib/set.py";
    let live = fence.as_user(user, &format!("{python} /opt/requests/live"));
    assert_eq!(live.out, "ok 7\nok 7\n", "{live}");
    let script = format!("{python} /opt/requests/kept");
    let (command, ledger) = command(&fence, "restricted", "container", user, &["bash", "-c", &script]);
    let ended = fence.ended(fence.output(command), ledger);
    let said: Vec<&str> = ended.said.out.lines().collect();
    assert!(said.len() == 2 && said.iter().all(|line| line.starts_with("EROFS ")), "{}", ended.said);
    assert!(!ended.said.out.contains(" 7\n"), "{}", ended.said);
    let recorded: Vec<String> = ended.denials().into_iter().map(|denial| told(denial, "-")).collect();
    assert_eq!(recorded, ["filesystem notifier ioctl /opt/requests/kept ->  EROFS read-only"; 2]);
}

/// The observer looks for the command; what only the observer may follow leads the command nowhere.
#[test]
fn the_observers_own_directory_in_the_process_table_is_no_way() {
    let script = "cd /; observer=$(awk '/^PPid/ { print $2 }' /proc/$PPID/status); mkdir /tmp/way; touch /tmp/way/file
        for way in /proc/$$/cwd /proc/self/root /proc/$observer/cwd /proc/$observer/root /proc/$observer/task/$observer/cwd; do
            for act in 'touch -d @1' 'chmod 600' 'truncate -s 0' 'mkdir' 'rm'; do
                case \"$act\" in mkdir) at=$way/tmp/way/new;; rm) at=$way/tmp/way/gone; touch /tmp/way/gone;; *) at=$way/tmp/way/file;; esac
                said=$($act $at 2>&1) && said=ok; rmdir /tmp/way/new 2>&-; echo \"${act%% *} $way ${said##*: }\"
            done; done; chmod 600 /proc/$observer/fd/0 2>&1; cat /proc/$observer/comm";
    let user = own_user();
    let mut fence = Fence::new();
    for rung in ["full", "container"] {
        fence = fence.less(less(rung, user));
        as_root(&fence, "rm -rf /tmp/way");
        let (command, ledger) = command(&fence, "restricted", rung, user, &["bash", "-c", script]);
        let ended = fence.ended(fence.output(command), ledger);
        let (mut own, mut observers) = (0, 0);
        for line in ended.said.out.lines().take(25) {
            let of_itself = line.contains("/proc/self/") || line.split('/').nth(2) == ended.said.out.split('/').nth(2);
            let expected = if of_itself { " ok" } else { " Permission denied" };
            assert!(line.ends_with(expected), "{rung} {line}: {}", ended.said);
            *(if of_itself { &mut own } else { &mut observers }) += 1;
        }
        assert_eq!((own, observers), (10, 15), "{}", ended.said);
        assert!(ended.said.out.contains("fd/0': Permission denied\nringfence"), "{}", ended.said);
    }
}
