use super::*;
use crate::ledger::escape::is_hidden;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use proptest::prelude::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A process that says when it is ready.
fn ready(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_thread_is_described_as_it_is() {
    let thread = std::thread::Builder::new().name("one (x) y\n".into());
    let (subject, brief) = thread
        .spawn(|| {
            let tid = gettid().as_raw() as u32;
            (whole(tid, &[]).unwrap(), brief(tid).unwrap())
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(subject.pid, Some(std::process::id()));
    assert_eq!(subject.uid, Some(nix::unistd::getuid().as_raw()));
    assert_eq!(subject.comm.as_deref(), Some("one (x) y\\x0a"));
    let exe = std::env::current_exe().unwrap();
    assert_eq!(subject.exe.as_deref(), exe.to_str());
    assert_eq!(subject.argv.as_ref().map(Vec::len), Some(std::env::args().count()));
    assert!(!subject.ancestors.as_ref().unwrap().is_empty());
    assert_eq!(brief, Subject { argv: None, ancestors: None, ..subject });
}

#[test]
fn ancestors_are_named_up_to_the_one_that_is_given() {
    let script = "sh -c 'sh -c \"echo \\$\\$; read x; exit\"; exit'; exit";
    let (child, pid) = ready(Command::new("sh").args(["-c", script]).stdin(Stdio::piped()));
    let pid = pid.parse().unwrap();
    let subject = whole(pid, &[std::process::id()]).unwrap();
    assert_eq!(subject.ancestors.as_deref(), Some(&["sh".to_owned(), "sh".to_owned()][..]), "{subject:?}");
    let middle = whole(pid, &[child.id()]).unwrap();
    assert_eq!(middle.ancestors.map(|names| names.len()), Some(1));
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    end(child);
}

#[test]
fn who_is_gone_is_nobody_and_who_has_its_number_is_not_taken_for_it() {
    let (child, _) = ready(Command::new("sh").args(["-c", "echo; read x"]).stdin(Stdio::piped()));
    let pid = child.id();
    let mut held = Thread::open(pid).unwrap();
    end(child);
    assert_eq!(whole(pid, &[]), None);
    assert_eq!(held.subject(|_, _| ()), None);
}

#[test]
fn an_exec_in_between_leaves_no_mixture() {
    let execs =
        "import os, sys\nprint('here', flush=True)\nsys.stdin.readline()\nos.execv('/bin/cat', ['cat', 'x', '-'])";
    let (mut child, _) = ready(Command::new("python3").args(["-c", execs]).stdin(Stdio::piped()));
    let mut thread = Thread::open(child.id()).unwrap();
    let process = Process::whole(child.id(), &[]).unwrap();
    assert!(process.is_unchanged());
    let pid = child.id();
    let waited = std::cell::Cell::new(false);
    let mut input = child.stdin.take().unwrap();
    let subject = thread.subject(|thread, subject| {
        subject.argv = thread.arguments();
        if !waited.replace(true) {
            std::io::Write::write_all(&mut input, b"\n").unwrap();
            // The name comes first, and the arguments when the new program's stack stands.
            let arguments = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            while Stat::read(thread.directory.as_fd()).unwrap().name != b"cat" || !arguments().starts_with(b"cat") {
                std::thread::yield_now();
            }
        }
    });
    let subject = subject.unwrap();
    assert!(subject.exe.as_deref().is_some_and(|exe| !exe.contains("python")), "{subject:?}");
    assert_eq!(subject.argv.as_deref(), Some(&["cat", "x", "-"].map(str::to_owned)[..]));
    assert!(!process.is_unchanged());
    end(child);
}

#[test]
fn a_process_whose_threads_have_several_names_has_none() {
    let (say, told) = std::sync::mpsc::channel::<()>();
    let named = |name: &str, told: std::sync::mpsc::Receiver<()>| {
        std::thread::Builder::new().name(name.into()).spawn(move || told.recv().is_ok()).unwrap()
    };
    let other = named("other", told);
    let process = Process::whole(std::process::id(), &[]).unwrap();
    assert_eq!(process.subject.comm, None);
    assert!(process.subject.exe.is_some() && process.subject.argv.is_some());
    drop(say);
    other.join().unwrap();
}

#[test]
fn arguments_are_bounded_in_number_and_length() {
    assert_eq!(arguments(b"", true), None);
    assert_eq!(arguments(b"\0", true).unwrap(), [""]);
    assert_eq!(arguments(b"a\0\0b\n\0", true).unwrap(), ["a", "", "b\\x0a"]);
    assert_eq!(arguments(b"no end", true).unwrap(), ["no end"]);
    let many = arguments(&b"x\0".repeat(100), true).unwrap();
    assert_eq!((many.len(), many[64].as_str()), (65, "\\[+36]"));
    let script = arguments(&[b"bash\0-c\0", &[b'y'; 9000][..], b"\0last\0"].concat(), true).unwrap();
    assert!(script[2].starts_with("yyyy") && script[2].contains("\\[+"), "{script:?}");
    assert_eq!(script[3], "last");
    let torn = arguments(&[b"bash\0-c\0", &[b'y'; 9000][..]].concat(), false).unwrap();
    assert!(torn[2].starts_with("yyyy") && torn[2].ends_with(REST), "{torn:?}");
    assert_eq!(arguments(b"a\0b\0", false).unwrap(), ["a", "b", REST]);
}

#[test]
fn it_is_cheap() {
    let (child, pid) = ready(Command::new("sh").args(["-c", "sh -c 'echo $$; read x'; exit"]).stdin(Stdio::piped()));
    let pid: u32 = pid.parse().unwrap();
    for (what, read) in [
        ("brief", (|pid| brief(pid)) as fn(u32) -> Option<Subject>),
        ("whole", |pid| whole(pid, &[std::process::id()])),
    ] {
        // The best of many: what the machine does beside it is not counted.
        let best = (0..300).map(|_| {
            let begun = Instant::now();
            assert!(read(pid).is_some());
            begun.elapsed()
        });
        let best = best.min().unwrap();
        println!("{what}: {best:?}");
        assert!(best.as_micros() < 500, "{what}: {best:?}");
    }
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    end(child);
}

proptest! {
    #[test]
    fn a_name_cannot_pass_for_fields(name in proptest::collection::vec(any::<u8>(), 0..16), parent in any::<u32>(), start in any::<u64>()) {
        let rest = format!(") S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 {start} 0 0 0 7 8 9");
        let line = [b"41 (", &name[..], rest.as_bytes()].concat();
        let stat = Stat::parse(&line).unwrap();
        prop_assert_eq!((stat.name, stat.parent, stat.threads, stat.image.start), (name, parent, 3, start));
        prop_assert_eq!(stat.image.addresses, [7, 9, 0, 0]);
    }

    #[test]
    fn a_name_cannot_pass_for_a_line(name in "[ -~\n\t]{0,60}", process in any::<u32>(), uid in any::<u32>()) {
        let text = format!("Name:\t{name}\nTgid:\t{process}\nUid:\t{uid}\t2\t3\t4\n");
        let status = Status::parse(text.as_bytes()).unwrap();
        prop_assert_eq!((status.process, status.uid, status.uids[3]), (process, uid, 4));
    }

    #[test]
    fn any_bytes_are_read_within_the_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..9000), entire in any::<bool>()) {
        prop_assert!(Stat::parse(&bytes).is_none_or(|stat| stat.name.len() < bytes.len()));
        prop_assert!(Status::parse(&bytes).is_none_or(|_| bytes.len() >= 15));
        if let Some(shown) = arguments(&bytes, entire) {
            prop_assert!(shown.len() <= ARGUMENT_LIMIT + 1);
            let length: usize = shown.iter().map(String::len).sum();
            prop_assert!(length <= ARGUMENTS_TEXT_LIMIT + 64, "{}", length);
            prop_assert!(!shown.iter().any(|text| text.chars().any(is_hidden)));
        }
    }
}
