//! Reads of watched paths that stay readable are recorded: who, what and when (issue 7).

mod common;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Ended, Fence, as_root, own_user};
use ringfence::ledger::record::{Body, PathEvent};
use rung::{RUNGS, Rung, WORKSPACE};

const FIXTURE: &str = "/srv/fixtures/check.py";

fn reads(ended: &Ended) -> Vec<&PathEvent> {
    ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Read(event) => Some(event),
            _ => None,
        })
        .collect()
}

#[test]
fn a_read_of_a_watched_path_is_recorded_and_goes_on() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        as_root(
            &fence,
            &format!(
                "mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}; echo x > /srv/fixtures/other; echo y > /srv/beside; chmod 600 /srv/fixtures/other; cp /bin/true /srv/fixtures/run"
            ),
        );
        let script = format!(
            "cat {FIXTURE}; ln -s {FIXTURE} {WORKSPACE}/l; python3 -c 'print(open(\"/proc/self/cwd/l\").read())'; cat /srv/beside; \
             stat {FIXTURE} > /dev/null; cat /srv/fixtures/other; /srv/fixtures/run; true"
        );
        let ended = rung.run(&fence, user, &home, &["--watch-read", "/srv/fixtures"], &["bash", "-c", &script]);
        assert_eq!(ended.said.out.matches("expected=42").count(), 2, "{rung:?}: {ended}");
        let reads = reads(&ended);
        assert_eq!(reads.last().map(|read| read.operation.as_str()), Some("execve"), "{rung:?}: {ended}");
        let reads = &reads[..reads.len() - 1];
        let told: Vec<(Option<&str>, Option<&str>)> =
            reads.iter().map(|read| (read.object.path.as_deref(), read.subject.comm.as_deref())).collect();
        assert_eq!(told, [(Some(FIXTURE), Some("cat")), (Some(FIXTURE), Some("python3"))], "{rung:?}: {ended}");
        assert!(reads.iter().all(|read| read.operation == "openat" && read.subject.pid.is_some()), "{rung:?}: {ended}");
        assert_eq!(ended.seal().reads, 3, "{rung:?}");
        assert!(ended.denials().is_empty() && ended.seal().complete, "{rung:?}: a read is no denial: {ended}");
        assert_eq!(ended.start().tripwires, ["/srv/fixtures"]);
        assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{rung:?}");
        assert_eq!(
            probed(&ended),
            [("adversarial", "all told"), ("direct", "all told"), ("enablement", "ok")],
            "{rung:?}"
        );
    }
}

/// What the pre-flight probes of watched reads saw, by their class.
fn probed(ended: &Ended) -> Vec<(&str, &str)> {
    let mut seen: Vec<_> = ended
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Probe(probe) if probe.id.ends_with("watched-reads") => {
                Some((probe.class.as_str(), probe.seen.as_str()))
            }
            _ => None,
        })
        .collect();
    seen.sort_unstable();
    seen
}

#[test]
fn what_is_closed_to_the_command_is_watched_without_a_fault() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        as_root(&fence, "mkdir -p /srv/closed /srv/fixtures; chmod 700 /srv/closed; mkfifo /srv/fifo");
        let flags = ["--watch-read", "/srv/closed"];
        let ended = rung.run(&fence, user, &home, &flags, &["bash", "-c", "ls /srv/closed; true"]);
        assert_eq!((ended.said.code, ended.seal().reads), (Some(0), 0), "{rung:?}: {ended}");
        // None could be opened, so that there is nothing to be told.
        assert_eq!(probed(&ended), [("enablement", "not to be opened")], "{rung:?}: {ended}");
        as_root(&fence, &format!("rm {}", ended.ledger));
        // A pipe is none that fanotify marks.
        let other = if rung == Rung::Full { "/srv/closed" } else { "/srv/fifo" };
        let flags = [&flags[..], &["--watch-read", other, "--watch-read", "/srv/fixtures"]].concat();
        let ended = rung.run(&fence, user, &home, &flags, &["ls", "/srv/fixtures"]);
        assert_eq!((ended.said.code, ended.seal().reads), (Some(0), 1), "{rung:?}: {ended}");
        let some = [("adversarial", "all told"), ("direct", "all told"), ("enablement", "not to be opened, ok")];
        assert_eq!(probed(&ended), some, "{rung:?}: {ended}");
    }
}

/// Ways to open a watched file by other words, none of them a race.
const SPELLINGS: &str = r#"
import ctypes, os, sys
fixture, program, own = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
EXECVEAT, AT_EMPTY_PATH = 322, 0x1000


def got(name, path):
    fd = os.open(path, os.O_RDONLY)
    print(f"{name}={'GOT' if b'expected=42' in os.read(fd, 100) else 'nothing'}", flush=True)
    os.close(fd)


place = os.open(fixture, os.O_PATH)
got("place", f"/proc/self/fd/{place}")
got("thread-place", f"/proc/thread-self/fd/{place}")
got("dev-place", f"/dev/fd/{place}")
# A number that no other process has: what the link leads to is missing for everyone else.
far = os.dup2(place, 777)
os.symlink("/proc/self/fd/777", own + "/far")
got("link", own + "/far")
os.symlink("far", own + "/further")
got("links", own + "/further")
os.chdir(own)
got("relative", "further")
if os.fork() == 0:
    program = os.open(program, os.O_PATH)
    name = (ctypes.c_char_p * 2)(b"by-descriptor", None)
    libc.syscall(EXECVEAT, program, b"", name, None, AT_EMPTY_PATH)
    os._exit(9)
print("executed=" + str(os.waitstatus_to_exitcode(os.wait()[1])))
"#;

#[test]
fn no_other_spelling_passes_by() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        fence.world.write("/usr/local/lib/spellings.py", SPELLINGS, 0o644);
        as_root(
            &fence,
            &format!("mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}; cp /bin/true /srv/fixtures/run"),
        );
        let command = ["python3", "/usr/local/lib/spellings.py", FIXTURE, "/srv/fixtures/run", WORKSPACE];
        let ended = rung.run(&fence, user, &home, &["--watch-read", "/srv/fixtures"], &command);
        let spellings = ["place", "thread-place", "dev-place", "link", "links", "relative"];
        for name in spellings {
            assert_eq!(ended.value(name), "GOT", "{rung:?}: {name}: {ended}");
        }
        assert_eq!(ended.value("executed"), "0", "{rung:?}: {ended}");
        let told: Vec<(&str, Option<&str>)> =
            reads(&ended).iter().map(|read| (read.operation.as_str(), read.object.path.as_deref())).collect();
        let mut expected = vec![("openat", Some(FIXTURE)); spellings.len()];
        expected.push(("execveat", Some("/srv/fixtures/run")));
        assert_eq!(told, expected, "{rung:?}: {ended}");
    }
}

/// Opens by which what is there is read or not, each by a line of its own: `GOT` where it has been.
const OPENS: &str = r#"
import ctypes, errno, os, sys
fixture, own = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)


def tried(name, path, flags, by=os.open):
    try:
        fd = by(path, flags)
        got = b"expected=42" in os.read(fd, 100)
    except OSError as error:
        got = errno.errorcode[error.errno]
    print(f"{name}={'GOT' if got is True else got}", flush=True)


def openat2(path, flags):
    how = (ctypes.c_uint64 * 3)(flags, 0, 0)
    fd = libc.syscall(437, -100, path.encode(), how, 24)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return fd


O = os
tried("made", fixture, O.O_RDONLY | O.O_CREAT)
tried("both", own, O.O_RDWR)
tried("both-made", own, O.O_RDWR | O.O_CREAT | O.O_NOFOLLOW)
tried("no-atime", own, O.O_RDONLY | O.O_NOATIME)
tried("openat2", own, O.O_RDWR | O.O_APPEND, openat2)
tried("write", own, O.O_WRONLY | O.O_APPEND)
tried("write-made", own, O.O_WRONLY | O.O_CREAT)
tried("exclusive", own, O.O_RDWR | O.O_CREAT | O.O_EXCL)
tried("place", own, O.O_PATH | O.O_NOATIME)
tried("directory", os.path.dirname(own), O.O_RDWR)
tried("nameless", os.path.dirname(own), O.O_RDWR | O.O_TMPFILE)
tried("new", own + "-new", O.O_RDWR | O.O_CREAT)
tried("refused", fixture, O.O_RDWR)
tried("cut", own, O.O_RDONLY | O.O_TRUNC)
"#;

#[test]
fn no_open_that_can_read_passes_by() {
    let user = own_user();
    let home = format!("/home/dev{user}");
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, &home);
        fence.world.write("/usr/local/lib/opens.py", OPENS, 0o644);
        let kept = format!("{WORKSPACE}/kept");
        let own = format!("{kept}/own");
        as_root(
            &fence,
            &format!(
                "mkdir -p /srv/fixtures {kept}; echo expected=42 | tee {FIXTURE} > {own}; chown -R {user}:{user} {kept}"
            ),
        );
        let command = ["python3", "/usr/local/lib/opens.py", FIXTURE, &own];
        let flags = ["--watch-read", "/srv/fixtures", "--watch-read", &kept];
        let ended = rung.run(&fence, user, &home, &flags, &command);
        for (open, got) in [
            ("made", "GOT"),
            ("both", "GOT"),
            ("both-made", "GOT"),
            ("no-atime", "GOT"),
            ("openat2", "GOT"),
            ("write", "EBADF"),
            ("write-made", "EBADF"),
            ("exclusive", "EEXIST"),
            ("place", "EBADF"),
            ("directory", "EISDIR"),
            ("new", "False"),
            ("cut", "False"),
        ] {
            assert_eq!(ended.value(open), got, "{rung:?}: {open}: {ended}");
        }
        assert!(["EROFS", "EACCES"].contains(&ended.value("refused")), "{rung:?}: {ended}");
        let mut told: Vec<(&str, Option<&str>)> =
            reads(&ended).iter().map(|read| (read.operation.as_str(), read.object.path.as_deref())).collect();
        // fanotify tells of what is made in a watched directory as well (tests/tripwires_kernel.rs).
        let all = told.len();
        told.retain(|(_, path)| rung != Rung::Full || [Some(FIXTURE), Some(own.as_str())].contains(path));
        let of_own = |call| (call, Some(own.as_str()));
        let expected = [
            ("openat", Some(FIXTURE)),
            of_own("openat"),
            of_own("openat"),
            of_own("openat"),
            of_own("openat2"),
            of_own("openat"),
        ];
        assert_eq!(told, expected, "{rung:?}: {ended}");
        assert!(ended.seal().complete && ended.seal().reads as usize == all, "{rung:?}: {ended}");
    }
}

#[test]
fn many_reads_of_the_same_are_few_records_and_counted_in_full() {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}; cp {FIXTURE} /srv/fixtures/other"));
    let script = format!("for n in range(1000): open('{FIXTURE}').close()\nopen('/srv/fixtures/other').close()");
    let ended = fence.run(&["--watch-read", "/srv/fixtures"], &format!("python3 -c \"$(printf \"{script}\")\""));
    assert_eq!((ended.said.code, ended.seal().reads), (Some(0), 1001), "{}", ended.said);
    let reads = reads(&ended);
    assert_eq!(reads.iter().map(|read| read.count).sum::<u64>(), 1001);
    assert!(reads.len() < 200, "{} records", reads.len());
    let other = |read: &&&PathEvent| read.object.path.as_deref() == Some("/srv/fixtures/other");
    assert_eq!(reads.iter().filter(other).map(|read| read.count).collect::<Vec<_>>(), [1]);
    assert_eq!(fence.verify(&ended.ledger).code, Some(0));
    let report = fence.output(fence.ringfence(&["report", &ended.ledger]));
    assert!(report.out.contains("watched reads: 1001") && report.out.contains(" x"), "{report}");
}

#[test]
fn what_is_not_watched_and_what_others_read_is_not_recorded() {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p /srv/fixtures; echo expected=42 > {FIXTURE}"));
    let ended = fence.run(&["--watch-read", "/srv/fixtures"], "cat /etc/passwd > /dev/null; sleep 0.1");
    assert!(reads(&ended).is_empty() && ended.seal().reads == 0, "{ended}");
    let unwatched = fence.run(&[], &format!("cat {FIXTURE}"));
    assert!(reads(&unwatched).is_empty() && unwatched.said.out.contains("expected"), "{unwatched}");
    // Another mount of the same.
    as_root(&fence, "mkdir /mnt/f; mount --bind /srv/fixtures /mnt/f");
    let alias = fence.run(&["--watch-read", "/srv/fixtures"], "cat /mnt/f/check.py");
    assert_eq!(reads(&alias).len(), 1, "{alias}");
}

#[test]
fn a_path_that_cannot_be_watched_is_an_error() {
    let fence = Fence::new();
    for (flags, what) in [
        (&["--watch-read", "/srv/missing"][..], "/srv/missing: to be watched, but it does not exist"),
        (&["--policy", "control", "--watch-read", "/srv"], "reads can't be watched with privilege open"),
    ] {
        let ended = fence.run(flags, "true");
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains(what), "{ended}");
    }
}
