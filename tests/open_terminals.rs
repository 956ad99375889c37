//! The caller's terminal stays the caller's: neither a command of a session nor what it leaves behind has it, and yet what is
//! typed and shown gets through.

mod common;
mod console;
mod living;
mod open;
#[path = "rungs/rung.rs"]
mod rung;

use common::{Fence, RINGFENCE};
use console::Console;
use living::until;
use open::Place;
use rung::Rung;
use std::time::{Duration, Instant};

/// Leaves a process behind that takes what it can get, and sets what it can, by one descriptor of its stdio, and writes to a
/// file what it got.
const THIEF: &str = r#"file=$1; eval "exec 9<&$2"
(trap "" HUP; exec 0</dev/null; echo up >$file
while :; do
    stty kill undef <&9 2>/dev/null && echo set >>$file
    if read -r line <&9; then echo "took $line" >>$file; else sleep 0.05; fi
done) >/dev/null 2>&1 &
echo $! >$file.pid; until test -e $file; do sleep 0.05; done; exit 0"#;

/// Types while the shell waits for something else: whoever reads the terminal meanwhile gets it. Returns what the thief wrote.
fn typed_in_front_of(console: &mut Console, file: &str) -> String {
    console.type_in("echo stands; sleep 1.5; echo awa''ke\n");
    console.see("stands");
    for n in 1..=6 {
        console.type_in(&format!("echo of''shell {n}\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
    console.see("awake");
    console.type_in("\n\n\n\n\n\n\n");
    console.type_in(&format!("cat {file}; stty -a | grep -o ' kill = [^;]*;'; echo ca''t\n"));
    console.see("cat")
}

#[test]
fn what_is_left_behind_gets_nothing_of_what_is_typed_afterwards() {
    let fence = Fence::new();
    fence.world.write("/srv/thief", THIEF, 0o755);
    for descriptor in 0..=2 {
        // The vector is live: by the terminal itself, out of the reach of its job control, it is all taken.
        let mut console = Console::shell(&fence);
        let file = format!("/tmp/plain{descriptor}");
        console.type_in(&format!("setsid sh /srv/thief {file} {descriptor}; echo st''arted\n"));
        console.see("started");
        let shown = typed_in_front_of(&mut console, &file);
        assert!(shown.contains("took echo of''shell 1") && shown.contains("kill = <undef>"), "{descriptor}: {shown}");
        // It would take the shell's `exit` too.
        until("its end", || fence.as_root(&format!("kill -KILL $(cat {file}.pid) 2>/dev/null")).code != Some(0));
        console.end();
    }
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    for descriptor in 0..=2 {
        let mut console = Console::shell(&fence);
        let file = format!("/tmp/held{descriptor}");
        console.type_in(&format!("{RINGFENCE} exec -- sh /srv/thief {file} {descriptor}; echo status=$?.\n"));
        console.see("status=0.");
        let shown = typed_in_front_of(&mut console, &file);
        for n in 1..=6 {
            assert!(shown.contains(&format!("ofshell {n}")), "the shell got it: {descriptor}: {shown}");
        }
        assert!(shown.contains("up\r\n") && !shown.contains("took") && !shown.contains("set\r"), "{shown}");
        assert!(!shown.contains("kill = <undef>"), "{shown}");
        let lives = session.bash(&format!("kill -0 $(cat {file}.pid) && echo lives"));
        assert_eq!(lives.out, "lives\n", "{lives}");
        console.end();
    }
    assert!(session.down().seal().complete);
}

#[test]
fn what_is_left_behind_by_one_that_was_killed_gets_nothing_either() {
    let fence = Fence::new();
    fence.world.write("/srv/thief", THIEF.replace("exit 0", "sleep 600"), 0o755);
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let mut console = Console::shell(&fence);
    console.type_in(&format!("{RINGFENCE} exec -- setsid --wait sh /srv/thief /tmp/held 0\n"));
    until("the thief", || fence.as_root("test -e /tmp/held").code == Some(0));
    // While the client lives, what is typed is the command's.
    console.type_in("to the command\n");
    until("the line", || fence.as_root("grep -q 'took to the command' /tmp/held").code == Some(0));
    assert_eq!(fence.as_root("pkill -KILL -f 'exec -- [s]etsid'").code, Some(0));
    console.see("Killed");
    let shown = typed_in_front_of(&mut console, "/tmp/held");
    assert!(shown.contains("ofshell 1") && shown.contains("ofshell 6") && !shown.contains("took echo"), "{shown}");
    console.end();
    assert!(session.down().seal().complete);
}

#[test]
fn typed_and_shown_gets_through_without_a_terminal_of_the_commands() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let mut console = Console::shell(&fence);
    let exec = format!("{RINGFENCE} exec --");
    // Shown at once, both in their order; read line by line; the command sees no terminal.
    let script =
        "echo one; echo two >&2; echo three; read -r x; echo got $x; test -t 0 || test -t 1 || test -t 2 || exit 7";
    console.type_in(&format!("{exec} bash -c '{script}'; echo status=$?.\n"));
    console.see("one\r\ntwo\r\nthree\r\n");
    console.type_in("a line\n");
    console.see("got a line\r\n");
    console.see("status=7.");
    // One of them alone.
    console.type_in(&format!("{exec} bash -c 'echo kept; echo shown >&2' >/tmp/out; cat /tmp/out; echo ov''er\n"));
    console.see("shown\r\nkept\r\nover");
    // The end of input.
    console.type_in(&format!("{exec} cat; echo status=$?.\n"));
    for line in ["first", "second"] {
        console.type_in(&format!("{line}\n"));
        console.see(&format!("{line}\r\n"));
    }
    console.type_in("no newline\x04");
    console.see("no newline");
    console.type_in("\x04");
    console.see("status=0.");
    // A long line, and many that are typed ahead.
    console.type_in(&format!(
        "{exec} bash -c 'sleep 0.5; while read -r x; do echo ${{#x}} ${{x: -1}}; done'; echo status=$?.\n"
    ));
    std::thread::sleep(Duration::from_millis(300));
    console.type_in(&format!("{}1\n", "x".repeat(3000)));
    (2..=9).for_each(|n| console.type_in(&format!("y{n}\n")));
    console.see("3001 1\r\n");
    (2..=9).for_each(|n| drop(console.see(&format!("2 {n}\r\n"))));
    console.type_in("\x04");
    console.see("status=0.");
    // Nothing of a lot is lost at the end, by either, nor when something is left behind that goes on writing.
    for rest in [
        "exit 5",
        "exec >&2; seq 100001 200000; exit 5",
        "(trap \"\" HUP; while :; do echo left || sleep 0.1; done) & exit 5",
    ] {
        console.type_in(&format!("{exec} bash -c 'seq 1 300000; {rest}'; echo status=$?.\n"));
        let shown = console.see("status=5.");
        let numbers: Vec<u32> = shown.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let (first, second) = numbers.split_at(300_000);
        assert!(first.iter().copied().eq(1..=300_000), "{rest}: {} lines", numbers.len());
        let expected = if rest.starts_with("exec") { 100_001..200_001 } else { 0..0 };
        assert!(second.iter().copied().eq(expected), "{rest}: {} lines", numbers.len());
    }
    console.end();
    assert!(session.down().seal().complete);
}

#[test]
fn keys_and_jobs_work_without_a_terminal_of_the_commands() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    let mut console = Console::shell(&fence);
    let exec = format!("{RINGFENCE} exec --");
    let traps = "trap \"echo int; exit 4\" INT; trap \"echo cont\" CONT; echo ready; while :; do sleep 0.05; done";
    console.type_in(&format!("{exec} bash -c '{traps}'; echo status=$?.\n"));
    console.see("ready");
    console.type_in("\x03");
    console.see("int\r\nstatus=4.");
    // Stopped by its key, and on again.
    console.type_in(&format!("{exec} bash -c '{traps}'\n"));
    console.see("ready");
    console.type_in("\x1a");
    console.see_stopped();
    console.type_in("fg; echo status=$?.\n");
    console.see("cont\r\n");
    console.type_in("\x03");
    console.see("int\r\nstatus=4.");
    // In the background what is typed is the shell's, and in the foreground it is the command's again.
    console.type_in(&format!("{exec} bash -c 'echo read''y; while read -r x; do echo got $x; done' &\n"));
    console.see("ready");
    for n in 1..=3 {
        console.type_in(&format!("echo of''shell {n}\n"));
        console.see(&format!("ofshell {n}"));
    }
    console.type_in("fg\n");
    std::thread::sleep(Duration::from_millis(500));
    console.type_in("a line\n");
    console.see("got a line");
    console.type_in("\x04");
    // A pager of the same job reads keys.
    let pager =
        "stty -icanon </dev/tty; echo ra''w; sleep 0.5; read -r -n 5 x </dev/tty; stty icanon </dev/tty; echo keys=$x.";
    console.type_in(&format!("{exec} sleep 2 | bash -c '{pager}'; echo ov''er\n"));
    console.see("raw");
    for key in ["a", "b", "c", "d", "e"] {
        console.type_in(key);
        std::thread::sleep(Duration::from_millis(50));
    }
    console.see("keys=abcde.");
    console.see("over");
    // A client that is stopped holds the command back.
    let writes = "n=0; while echo $((++n)); do echo $n >/tmp/count; done";
    console.type_in(&format!("{exec} bash -c '{writes}' >/dev/tty; echo status=$?.\n"));
    let count = || fence.as_root("cat /tmp/count").out.trim().parse::<u64>().unwrap_or_default();
    until("its beginning", || count() > 1000);
    assert_eq!(fence.as_root("pkill -STOP -f 'exec -- [b]ash -c n=0'").code, Some(0));
    let held_at = || {
        let before = count();
        std::thread::sleep(Duration::from_millis(500));
        count() == before
    };
    until("the command to wait", held_at);
    let held = count();
    assert_eq!(fence.as_root("pkill -CONT -f 'exec -- [b]ash -c n=0'").code, Some(0));
    until("it goes on", || count() > held + 1000);
    console.type_in("fg\n");
    std::thread::sleep(Duration::from_millis(300));
    console.type_in("\x03");
    console.type_in("\necho en''ded\n");
    console.see("ended");
    console.end();
    assert!(session.down().seal().complete);
}

#[test]
fn a_terminal_of_its_own_ends_with_the_command_whatever_still_writes_there() {
    let fence = Fence::new();
    let place = Place::new(&fence, Rung::Full);
    let session = place.up(&[]);
    // A flood, and a trickle without a pause of 50 ms.
    for (writer, pause) in [("flood", ""), ("trickle", "sleep 0.01;")] {
        let writes = format!("while :; do echo left || sleep 0.02; echo tick >>/tmp/{writer}; {pause} done");
        let script = format!(
            "trap \"\" HUP; seq 1 100000; ({writes}) & until test -s /tmp/{writer}; do :; done; echo last; exit 3"
        );
        let began = Instant::now();
        let said = session.exec(&["-t"], &["bash", "-c", &script]);
        assert!(began.elapsed() < Duration::from_secs(15), "{writer}: {:?}", began.elapsed());
        assert_eq!(said.code, Some(3), "{writer}: {}", said.err);
        let numbers = said.out.lines().filter_map(|line| line.trim().parse::<u32>().ok());
        assert!(numbers.eq(1..=100_000) && said.out.contains("last\r\n"), "{writer}: {} bytes", said.out.len());
        // The vector is live: the writer is still there.
        let size = || fence.as_root(&format!("stat -c %s /tmp/{writer}")).out;
        let before = size();
        until("the writer writes", || size() != before);
        session.bash(&format!("pkill -KILL -f {writer}; true"));
    }
    // What holds the terminal and is silent takes nothing away, and does not hold anyone up.
    let said = session.exec(&["-t"], &["bash", "-c", "trap '' HUP; sleep 600 & seq 1 300000; exit 5"]);
    assert_eq!(said.code, Some(5));
    assert!(said.out.lines().filter_map(|line| line.trim().parse::<u32>().ok()).eq(1..=300_000), "{}", said.out.len());
    assert!(session.down().seal().complete);
}
