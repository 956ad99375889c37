//! The command's stdio is the caller's: no byte of ours on stdout, nothing closed, opened or held.

mod common;
mod living;

use common::{Fence, RINGFENCE};
use living::Run;
use std::io::Read;
use std::time::{Duration, Instant};
use world::internet::STRANGER;

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

#[test]
fn output_is_the_commands_to_the_byte() {
    let fence = Fence::new();
    let bytes = "head -c 3000000 /usr/bin/perl; printf '\\0\\xff\\xfe{}'; head -c 70000 /usr/bin/perl >&2";
    let count = |prefix: &str| {
        let said = fence.as_root(&format!(
            "{{ {prefix} bash -c \"{bytes}\" | sha256sum; }} 2>&1 >/root/out | sha256sum; cat /root/out",
            bytes = bytes.replace('\\', "\\\\")
        ));
        assert_eq!((said.code, said.out.lines().count()), (Some(0), 2), "{said}");
        said.out
    };
    assert_eq!(count(&format!("{RINGFENCE} run --policy nist-high --")), count(""));
}

#[test]
fn input_is_the_callers() {
    let fence = Fence::new();
    let said = fence.as_root(&format!(
        "head -c 1000000 /usr/bin/perl | {RINGFENCE} run -- sha256sum; head -c 1000000 /usr/bin/perl | sha256sum
         printf 'one\\ntwo\\n' | (read first; {RINGFENCE} run -- cat)"
    ));
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, lines[1], "two"), "{said}");
}

#[test]
fn an_endless_producer_ends_with_its_reader() {
    let fence = Fence::new();
    let said = fence.as_root(&format!(
        "{RINGFENCE} run -- yes | head -1; echo status=${{PIPESTATUS[0]}}
         (trap '' PIPE; {RINGFENCE} run -- yes 2>/dev/null | head -1; echo ignored=${{PIPESTATUS[0]}})"
    ));
    assert_eq!(said.out, "y\nstatus=141\ny\nignored=1\n", "{said}");
}

#[test]
fn what_the_caller_has_closed_is_closed() {
    let fence = Fence::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let look = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n open >>/dev/shm/seen || echo $n closed >>/dev/shm/seen; done";
        let seen = |prefix: &str| {
            let said =
                fence.as_root(&format!("rm -f /dev/shm/seen; {prefix} sh -c '{look}' {closed}; cat /dev/shm/seen"));
            assert_eq!(said.code, Some(0), "{said}");
            said.out
        };
        let direct = seen("");
        assert!(direct.contains("closed"), "{direct}");
        assert_eq!(seen(&format!("{RINGFENCE} run --")), direct, "{closed}");
    }
    let said = fence.as_root(&format!("{RINGFENCE} run -- echo text >&-; echo $?"));
    assert_eq!(said.out, "1\n", "a write to a closed stdout fails: {said}");
}

#[test]
fn a_full_stderr_that_nobody_reads_holds_up_nothing() {
    let fence = Fence::new();
    // Fills stderr, shows that it is full, and goes on to be refused and to end.
    let script = format!(
        "perl -e 'use Fcntl; open E, \">&=2\"; fcntl(E, F_SETFL, O_WRONLY | O_NONBLOCK); 1 while syswrite E, \"x\" x 4096; \
            1 while syswrite E, \"x\"; fcntl(E, F_SETFL, O_WRONLY)'
         curl -s -o /dev/null -m 5 https://{STRANGER}/ 2>/dev/null; echo refused=$?; exit 9"
    );
    let mut run = Run::start(&fence, &FLAGS, &script);
    assert!(run.line().starts_with("refused="));
    assert_eq!(run.status().code(), Some(9));
    let ended = run.finish(&fence);
    assert_eq!(ended.denials_of(STRANGER).len(), 1, "{}", ended.ledger);
    // A run that fails has a message to give: it gives it up.
    let since = Instant::now();
    let script = "perl -e 'use Fcntl; fcntl(STDERR, F_SETFL, O_WRONLY | O_NONBLOCK); 1 while syswrite STDERR, \"x\" x 4096; \
        1 while syswrite STDERR, \"x\"; fcntl(STDERR, F_SETFL, O_WRONLY); exec @ARGV' --";
    let mut command = fence.world.command("bash");
    command.args(["-c", &format!("{script} {RINGFENCE} run --policy nist-higher -- true")]);
    let mut run = Run::of(&fence, command, String::new());
    assert_eq!(run.status().code(), Some(125));
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
}

#[test]
fn nobody_but_the_command_holds_the_callers_pipes() {
    let fence = Fence::new();
    // The command closes its own ends and lives on: the caller sees the end of each of them at once.
    let script = "exec </dev/null >/dev/null 2>/dev/null; touch /workspace/closed; sleep 600";
    let mut run = Run::start(&fence, &[&FLAGS[..], &["--leftovers", "kill"]].concat(), script);
    let mut rest = String::new();
    run.out.read_to_string(&mut rest).expect("stdout ends");
    assert_eq!(rest, "");
    assert_eq!(run.child.try_wait().expect("wait"), None, "the command still runs");
    // stderr is where the supervisor itself may have something to say, and so it stays open there.
    living::send(run.pid(), nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.status().code(), Some(143));
}

#[test]
fn inherited_descriptors_go_no_further() {
    let fence = Fence::new();
    let said = fence.as_root(&format!(
        "echo secret > /root/secret; exec 7</root/secret 8>/root/other 200</dev/null
         {RINGFENCE} run -- bash -c 'ls /proc/self/fd | tr \"\\n\" \" \"'
         {RINGFENCE} run --policy control -- bash -c 'ls /proc/self/fd | tr \"\\n\" \" \"'"
    ));
    assert_eq!(said.out, "0 1 2 3 0 1 2 3 ", "{said}");
    // Nor do our own processes keep them: the stage has its channels and nothing else.
    let (command, ledger) = fence.command(&FLAGS, &["bash", "-c", "echo ready; read line"]);
    let mut outer = fence.world.command("bash");
    outer.args(["-c", "exec 7</etc/passwd 8</etc/group; exec \"$@\"", "bash"]);
    outer.arg(command.get_program()).args(command.get_args());
    let mut run = Run::of(&fence, outer, ledger);
    assert_eq!(run.line(), "ready");
    let open = |pid: i32| -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
        entries.filter_map(|e| Some(std::fs::read_link(e.path()).ok()?.to_string_lossy().into_owned())).collect()
    };
    let (supervisor, stage, proxy) = (run.pid(), run.stage(), run.proxy());
    for pid in [supervisor, stage, proxy] {
        let open = open(pid);
        assert!(!open.iter().any(|path| path.starts_with("/etc/")), "{pid}: {open:?}");
        let ledger = open.iter().any(|path| path.ends_with(&run.ledger));
        assert_eq!(ledger, pid == supervisor, "{pid}: {open:?}");
    }
    let of_stage: Vec<String> = open(stage).into_iter().filter(|path| !path.starts_with("/dev/")).collect();
    let sockets = of_stage.iter().filter(|path| path.starts_with("socket:")).count();
    assert_eq!(sockets, 2, "the channel to the supervisor, and the way to the observer: {of_stage:?}");
    assert!(
        of_stage
            .iter()
            .all(|p| ["socket:", "anon_inode:[signalfd]", "/proc/", "user:"].iter().any(|k| p.starts_with(k))),
        "{of_stage:?}"
    );
    let ended = run.finish(&fence);
    assert_eq!(ended.said.code, Some(0).filter(|_| false).or(Some(1)), "the read met its end: {ended}");
}
