//! Reads of watched paths as fanotify tells of them on `full`: by the file and not by its name, each one, and only those of the
//! sandbox (issue 7).

mod common;
#[path = "common/live.rs"]
mod live;

use common::{Ended, Fence, as_root};
use live::{Live, PRELUDE};
use nix::errno::Errno;
use ringfence::ledger::record::{Body, Gap, PathEvent};
use std::time::{Duration, Instant};
use world::Less;

const DIRECTORY: &str = "/srv/fixtures";
const FIXTURE: &str = "/srv/fixtures/check.py";
const WATCH: [&str; 2] = ["--watch-read", DIRECTORY];

fn fence() -> Fence {
    let fence = Fence::new();
    as_root(&fence, &format!("mkdir -p {DIRECTORY}/deep; echo expected=42 > {FIXTURE}; echo y > /srv/beside"));
    fence
}

fn reads(ended: &Ended) -> Vec<&PathEvent> {
    let bodies = ended.records.iter().map(|record| &record.body);
    bodies.filter_map(|body| if let Body::Read(event) = body { Some(event) } else { None }).collect()
}

/// How many reads they stand for.
fn counted(ended: &Ended) -> u64 {
    reads(ended).iter().map(|read| read.count).sum()
}

fn gaps(ended: &Ended) -> Vec<&Gap> {
    let bodies = ended.records.iter().map(|record| &record.body);
    bodies.filter_map(|body| if let Body::Gap(gap) = body { Some(gap) } else { None }).collect()
}

/// Operation, watched path, other name, who.
type Told<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

fn told(ended: &Ended) -> Vec<Told<'_>> {
    reads(ended)
        .into_iter()
        .map(|read| {
            let object = &read.object;
            let who = read.subject.comm.as_deref().unwrap_or("nobody");
            (read.operation.as_str(), object.path.as_deref().unwrap_or("nowhere"), object.to.as_deref(), who)
        })
        .collect()
}

/// The run went to its end, and its record holds.
#[track_caller]
fn assert_whole(fence: &Fence, ended: &Ended) {
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(ended.start().reads_seen_by.as_deref(), Some("fanotify"), "{ended}");
    assert_eq!(ended.seal().reads, counted(ended), "{ended}");
    assert!(ended.seal().complete && ended.denials().is_empty(), "{ended}");
    assert_eq!(fence.verify(&ended.ledger).code, Some(0), "{ended}");
}

#[test]
fn each_way_to_read_is_one_record_with_who() {
    let fence = fence();
    as_root(
        &fence,
        &format!(
            "ln {FIXTURE} /srv/link; ln -s {FIXTURE} /srv/symbolic; cp /bin/true {DIRECTORY}/run; mkdir /mnt/f; \
             mount --bind {DIRECTORY} /mnt/f; echo z > {DIRECTORY}/deep/file; \
             echo closed > {DIRECTORY}/closed; chmod 600 {DIRECTORY}/closed; \
             printf '#!/bin/true\\n' > {DIRECTORY}/script; chmod 755 {DIRECTORY}/script"
        ),
    );
    let mapped = format!(
        "python3 -c 'import mmap, os; f = os.open(\"{FIXTURE}\", os.O_RDONLY); print(mmap.mmap(f, 0, prot=mmap.PROT_READ)[:8])'"
    );
    let (opened, ran) = ("openat", "execve");
    let rows: [(&str, &[Told<'_>]); 12] = [
        (&format!("cat {FIXTURE}"), &[(opened, FIXTURE, None, "cat")]),
        (&format!("cat {DIRECTORY}/deep/../check.py"), &[(opened, FIXTURE, None, "cat")]),
        ("cat /srv/link", &[(opened, FIXTURE, Some("/srv/link"), "cat")]),
        ("cat /srv/symbolic", &[(opened, FIXTURE, None, "cat")]),
        ("cat /mnt/f/check.py", &[(opened, "/mnt/f/check.py", None, "cat")]),
        ("cat /proc/self/root/srv/link", &[(opened, FIXTURE, Some("/srv/link"), "cat")]),
        (
            "cat /proc/self/fd/3 3< /srv/link",
            &[(opened, FIXTURE, Some("/srv/link"), "bash"), (opened, FIXTURE, Some("/srv/link"), "cat")],
        ),
        (&mapped, &[(opened, FIXTURE, None, "python3")]),
        (&format!("{DIRECTORY}/run"), &[(ran, "/srv/fixtures/run", None, "bash")]),
        (&format!("{DIRECTORY}/script"), &[(ran, "/srv/fixtures/script", None, "bash")]),
        (&format!("ls {DIRECTORY}"), &[(opened, DIRECTORY, None, "ls")]),
        (&format!("cat {DIRECTORY}/deep/file"), &[(opened, "/srv/fixtures/deep/file", None, "cat")]),
    ];
    for (script, expected) in rows {
        let ended = fence.run(&WATCH, script);
        assert_eq!(told(&ended), expected, "{script}: {ended}");
        let named = |read: &&PathEvent| {
            let subject = &read.subject;
            subject.pid.is_some() && subject.uid == Some(ended.start().uid) && subject.argv.is_some()
        };
        assert!(reads(&ended).iter().all(named), "{script}: {ended}");
        assert_whole(&fence, &ended);
    }
    // Neither looks, nor places, nor what is refused, nor what lies beside.
    let none = format!(
        "stat {FIXTURE} > /dev/null; test -r {FIXTURE}; cd {DIRECTORY}; cat /srv/beside; ! cat {DIRECTORY}/closed 2> /dev/null; \
         python3 -c 'import os; os.open(\"{FIXTURE}\", os.O_PATH)'"
    );
    let ended = fence.run(&WATCH, &none);
    assert!(told(&ended).is_empty(), "{ended}");
    assert_whole(&fence, &ended);
}

#[test]
fn what_the_command_may_write_is_told_where_it_could_be_read() {
    let fence = fence();
    fence.world.mount_memory("/app").expect("a workspace");
    as_root(&fence, "mkdir /app/watched; echo x > /app/watched/file; chmod -R a+rwX /app/watched");
    let script = "cd /app/watched; echo y > file; echo z >> file; : > new; exec 3<> file; exec 3>&-; \
                  mv file ../moved; cat ../moved; rm ../moved; cat new; mkdir sub; sleep 0.3; echo w > sub/f; cat sub/f";
    let ended = fence.run(&["--watch-read", "/app/watched"], script);
    let expected = [
        ("/app/watched/file", None, "bash"),
        ("/app/watched/file", Some("/app/moved"), "cat"),
        ("/app/watched/new", None, "cat"),
        ("/app/watched/sub/f", None, "cat"),
    ];
    let found: Vec<_> = told(&ended).into_iter().map(|(_, path, other, who)| (path, other, who)).collect();
    assert_eq!(found, expected, "{ended}");
    assert_whole(&fence, &ended);
}

/// Opens a path that another thread keeps changing in memory, and counts how often it was the watched file.
const RACE: &str = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None)
paths = [b"/srv/fixtures/check.py\0", b"/srv/fixturez/check.py\0"]
name = ctypes.create_string_buffer(paths[0])
address = ctypes.addressof(name) + 12
on = True
def swap():
    while on:
        ctypes.memset(address, ord("z"), 1)
        ctypes.memset(address, ord("s"), 1)
thread = threading.Thread(target=swap)
thread.start()
watched = os.stat("/srv/fixtures/check.py").st_ino
got = 0
for _ in range(3000):
    fd = libc.open(name, os.O_RDONLY)
    assert fd >= 0
    got += os.fstat(fd).st_ino == watched
    libc.close(fd)
on = False
thread.join()
print(f"got={got}")
"#;

fn race(fence: &Fence, flags: &[&str]) -> (u64, Ended) {
    as_root(fence, "mkdir -p /srv/fixturez; echo other > /srv/fixturez/check.py");
    fence.world.write("/srv/race.py", RACE, 0o644);
    let ended = fence.run(&[&WATCH[..], flags].concat(), "python3 /srv/race.py");
    (ended.value("got").parse().expect("a number"), ended)
}

#[test]
fn a_race_that_the_notifier_loses_is_seen_to_the_last_read() {
    let fence = fence();
    let (got, ended) = race(&fence, &[]);
    assert!((1..3000).contains(&got), "the race was none: {got}");
    assert_eq!(counted(&ended), got, "{}", ended.said);
    assert_whole(&fence, &ended);
    // Live: the same is not told one to one by the notifier.
    let fence = fence.less(Less::new().refuse("fanotify_init", Errno::EPERM));
    let lost = (0..5).any(|_| {
        let (got, ended) = race(&fence, &[]);
        assert_eq!(ended.start().reads_seen_by.as_deref(), Some("notifier"), "{}", ended.said);
        counted(&ended) != got
    });
    assert!(lost, "the notifier has seen every one of them");
}

#[test]
fn of_thousands_of_reads_by_many_at_once_each_is_counted() {
    let fence = fence();
    let script =
        format!("for i in 1 2 3 4; do python3 -c 'for _ in range(1000): open(\"{FIXTURE}\").read()' & done; wait");
    let ended = fence.run(&WATCH, &script);
    assert_eq!(ended.seal().reads, 4000, "{}", ended.said);
    assert_eq!(counted(&ended), 4000);
    assert_whole(&fence, &ended);
}

#[test]
fn who_is_outside_reads_unrecorded_and_waits_for_no_stopped_supervisor() {
    let fence = fence();
    let script = format!("{PRELUDE}\npoint('a')\nopen('{FIXTURE}').read()\nsay('read')\n");
    let mut run = Live::start(&fence, &[], &WATCH, &script);
    assert_eq!(run.line(), "a");
    let pid = nix::unistd::Pid::from_raw(run.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("kill");
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(
            as_root(&fence, &format!("cat {FIXTURE} {DIRECTORY}/check.py; ls {DIRECTORY} > /dev/null")).lines().count(),
            2
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("kill");
    run.go_on();
    assert_eq!(run.line(), "read");
    let (_, ended) = run.end(&fence);
    assert_eq!(told(&ended), [("openat", FIXTURE, None, "python3")], "{ended}");
    assert_whole(&fence, &ended);
}

#[test]
fn what_appears_during_the_run_is_watched_too() {
    let fence = fence();
    as_root(&fence, "echo a > /srv/alone");
    let wait = "import time; time.sleep(0.5)";
    let script = format!(
        "{PRELUDE}\npoint('a')\n{wait}\nfor path in '{DIRECTORY}/late', '{DIRECTORY}/new/deep/file', '/srv/alone', '/srv/later': open(path).read()\n"
    );
    let mut run = Live::start(&fence, &[], &["--watch-read", DIRECTORY, "--watch-read", "/srv/alone"], &script);
    assert_eq!(run.line(), "a");
    as_root(
        &fence,
        &format!(
            "echo x > {DIRECTORY}/late; mkdir -p {DIRECTORY}/new/deep; echo x > {DIRECTORY}/new/deep/file; \
             echo b > /srv/next; mv /srv/next /srv/alone; sleep 0.3; ln {DIRECTORY}/late /srv/later"
        ),
    );
    run.go_on();
    let (_, ended) = run.end(&fence);
    let found: Vec<_> = told(&ended).into_iter().map(|(_, path, other, _)| (path, other)).collect();
    let late = "/srv/fixtures/late";
    let expected =
        [(late, None), ("/srv/fixtures/new/deep/file", None), ("/srv/alone", None), (late, Some("/srv/later"))];
    assert_eq!(found, expected, "{ended}");
    assert_whole(&fence, &ended);
}

#[test]
fn what_appears_in_a_directory_that_was_renamed_is_watched_too() {
    let fence = fence();
    let wait = "import time; time.sleep(0.3)";
    let script = format!(
        "{PRELUDE}\npoint('a')\n{wait}\nfor path in 'b/new/file', 'c/d/new/file': open('{DIRECTORY}/' + path).read()\n"
    );
    as_root(&fence, &format!("mkdir -p {DIRECTORY}/a {DIRECTORY}/top/d"));
    let mut run = Live::start(&fence, &[], &WATCH, &script);
    assert_eq!(run.line(), "a");
    as_root(
        &fence,
        &format!(
            "cd {DIRECTORY}; mv a b; mv top c; sleep 0.2; for d in b c/d; do mkdir $d/new; echo x > $d/new/file; done"
        ),
    );
    run.go_on();
    let (_, ended) = run.end(&fence);
    let found: Vec<_> = told(&ended).into_iter().map(|(_, path, other, _)| (path, other)).collect();
    assert_eq!(found, [("/srv/fixtures/b/new/file", None), ("/srv/fixtures/c/d/new/file", None)], "{ended}");
    assert_whole(&fence, &ended);
}

/// Where there are no mounts the observer opens some files for the command.
#[test]
fn on_container_what_the_observer_opens_for_the_command_is_told_of_as_well() {
    let fence = fence();
    as_root(
        &fence,
        "mkdir -p /srv/ref; touch /srv/ref/a; mkdir /app/own; echo own > /app/own/file; chmod -R a+rwX /app/own",
    );
    let script = "import os\nfor path in '/srv/fixtures/check.py', '/app/own/file':\n  for _ in range(2):\n    fd = os.open(path, os.O_RDONLY | os.O_CREAT); os.read(fd, 9); os.close(fd)\nos.listdir('/srv')";
    let flags = ["--rung", "container", "--watch-read", "/srv", "--watch-read", "/app/own", "--shield", "/srv/ref"];
    let ended = fence.run(&flags, &format!("python3 -c \"$(printf \"{}\")\"", script.replace('\n', "\\n")));
    let own = ("openat", "/app/own/file", None, "python3");
    let fixture = ("openat", FIXTURE, None, "python3");
    assert_eq!(told(&ended), [fixture, fixture, own, own, ("openat", "/srv", None, "python3")], "{ended}");
    assert_whole(&fence, &ended);
}

#[test]
fn a_descriptor_from_outside_is_told_at_its_first_read() {
    // What the pre-flight probes have opened, the file itself too, is as if nobody had.
    for watched in [DIRECTORY, FIXTURE] {
        first_read_is_told(watched);
    }
}

fn first_read_is_told(watched: &str) {
    let fence = fence();
    let flags = ["--watch-read", watched];
    let (command, ledger) = fence.command(&flags, &["bash", "-c", "read x; read y; echo got=$x; sleep 0.5"]);
    let mut from = fence.world.command("bash");
    from.args(["-c", &format!("exec < {FIXTURE}; exec \"$@\""), "bash"]);
    from.arg(command.get_program()).args(command.get_args());
    let ended = fence.ended(fence.output(from), ledger);
    assert_eq!(ended.said.code, Some(0), "{ended}");
    assert_eq!(ended.value("got"), "expected=42");
    // It is told when it has gone on: who it is may be another program then.
    assert_eq!(told(&ended), [("read", FIXTURE, None, "nobody")], "{ended}");
    let subject = &reads(&ended)[0].subject;
    assert!(subject.pid.is_some() && subject.uid == Some(ended.start().uid) && subject.argv.is_none(), "{ended}");
    assert_whole(&fence, &ended);
}

#[test]
fn without_fanotify_the_notifier_tells_and_the_plan_says_why() {
    let fence = fence();
    let plan = |fence: &Fence| {
        let said = fence.output(fence.ringfence(&["plan", "--policy", "nist-high", "--watch-read", DIRECTORY]));
        assert_eq!(said.code, Some(0), "{said}");
        said.out
    };
    assert!(plan(&fence).contains("note: watched reads are seen by fanotify\n"), "{}", plan(&fence));
    let fence = fence.less(Less::new().refuse("fanotify_init", Errno::ENOSYS));
    let said = plan(&fence);
    assert!(
        said.contains("note: watched reads are seen by the notifier") && said.contains("fanotify_init: ENOSYS"),
        "{said}"
    );
    let ended = fence.run(&WATCH, &format!("cat {FIXTURE}"));
    assert_eq!(ended.start().reads_seen_by.as_deref(), Some("notifier"), "{ended}");
    assert_eq!(told(&ended), [("openat", FIXTURE, None, "cat")], "{ended}");
}

#[test]
fn a_mark_that_cannot_be_made_is_an_error() {
    let fence = fence();
    as_root(&fence, "mkfifo /srv/fifo");
    for (path, what) in [
        ("/proc/version", "/proc/version: to be watched, but fanotify_mark: EINVAL"),
        ("/srv/fifo", "/srv/fifo: to be watched, but it is neither a file nor a directory"),
    ] {
        let ended = fence.run(&["--watch-read", path], "true");
        assert_eq!(ended.said.code, Some(125), "{ended}");
        assert!(ended.said.err.contains(what), "{ended}");
    }
    let fence = fence.less(Less::new().refuse("fanotify_mark", Errno::ENOSPC));
    let ended = fence.run(&WATCH, "true");
    assert_eq!(ended.start().reads_seen_by.as_deref(), Some("notifier"), "it is found when it is tried: {ended}");
}

#[test]
fn without_the_witness_the_run_ends_and_says_so() {
    let fence = fence();
    let mut run = Live::start(&fence, &[], &WATCH, &format!("{PRELUDE}\npoint('a')\npoint('b')\n"));
    assert_eq!(run.line(), "a");
    let supervisor = run.child.id();
    let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).expect("children");
    let follows = |pid: &&str| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        links
            .into_iter()
            .any(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.ends_with("anon_inode:[fanotify]")))
    };
    let witness = children.split_whitespace().find(follows).expect("the witness").parse().expect("a number");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(witness), nix::sys::signal::Signal::SIGKILL).expect("kill");
    let status = run.child.wait().expect("ringfence ends");
    assert_eq!(status.code(), Some(125));
    let ended = fence.ended(world::Said { code: status.code(), out: String::new(), err: String::new() }, run.ledger);
    assert!(!ended.seal().complete, "{ended}");
    assert!(gaps(&ended).iter().any(|gap| gap.source == "fanotify"), "{ended}");
    assert!(
        ended
            .records
            .iter()
            .any(|record| matches!(&record.body, Body::Abort(abort) if abort.cause.contains("witness"))),
        "{ended}"
    );
}

#[test]
fn what_outlives_the_command_and_each_command_of_a_session_are_told_of() {
    let fence = fence();
    let script = format!("setsid bash -c 'sleep 1; cat {FIXTURE}' > /dev/null 2>&1 & sleep 0.2");
    let (command, ledger) = fence.command(&[&WATCH[..], &["--leftovers", "keep"]].concat(), &["bash", "-c", &script]);
    let said = fence.output(command);
    assert_eq!(said.code, Some(0), "{said}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !String::from_utf8_lossy(&fence.world.read(&ledger).unwrap_or_default()).contains("\"kind\":\"seal\"") {
        assert!(Instant::now() < deadline, "no seal");
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = fence.ended(said, ledger);
    assert_eq!(told(&ended), [("openat", FIXTURE, None, "cat")], "{ended}");
    assert_whole(&fence, &ended);

    let ringfence = common::RINGFENCE;
    let said = fence.as_root(&format!(
        "{ringfence} up --watch-read {DIRECTORY} --ledger /var/log/s.jsonl; {ringfence} exec -- cat {FIXTURE}; cat {FIXTURE}; \
         {ringfence} exec -- {DIRECTORY}/../fixtures/check.py; {ringfence} exec -- head -n1 {FIXTURE}; {ringfence} down"
    ));
    let ended = fence.ended(said, "/var/log/s.jsonl".into());
    assert_eq!(told(&ended), [("openat", FIXTURE, None, "cat"), ("openat", FIXTURE, None, "head")], "{ended}");
    assert!(ended.seal().complete, "{ended}");
}
