//! The terminal is shared with the command under working job control, and nothing can be pushed into it.

mod common;
mod console;
mod living;

use common::{Fence, NOBODY, RINGFENCE};
use console::Console;
use living::until;
use std::process::Stdio;
use std::time::Duration;

/// Tells of signals and of lines, until a line says `quit`; its status is the number of interrupts.
const TELLER: &str = r#"use POSIX; $| = 1; my $n = 0;
    # By sigaction handlers run at once; by %SIG one that comes just before a read would wait for its end.
    sub on { my ($signal, $do) = @_; sigaction($signal, POSIX::SigAction->new($do)) }
    on(SIGINT, sub { $n++; syswrite STDOUT, "int $n;\n" }); on(SIGCONT, sub { syswrite STDOUT, "cont;\n" });
    on(28, sub { syswrite STDOUT, "size " . `stty size </dev/tty` . ";\n" }); syswrite STDOUT, "ready;\n";
    while (1) { my $r = sysread(STDIN, my $l, 4096); next if !defined $r; last if !$r; syswrite STDOUT, "line $l;\n"; last if $l eq "quit\n" }
    exit $n"#;

fn fenced(rest: &str) -> String {
    format!("{RINGFENCE} run --policy nist-high --leftovers kill -- {rest}")
}

fn teller(fence: &Fence) -> String {
    fence.world.write("/srv/teller", TELLER, 0o644);
    fenced("perl /srv/teller")
}

#[test]
fn an_interrupt_reaches_the_command_once_and_nobody_else() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    let command = teller(&fence);
    console.type_in(&format!("{command}; echo status=$?.\n"));
    console.see("ready;");
    for n in 1..=3 {
        console.type_in("\x03");
        console.see(&format!("int {n};"));
    }
    console.type_in("quit\n");
    console.see("status=3.");
    // A command that does not catch it ends by it, and the shell has the terminal back.
    console.type_in(&format!("{}; echo status=$?.\n", fenced("bash -c 'echo up; exec sleep 600'")));
    console.see("up");
    console.type_in("\x03");
    console.see("status=130.");
    console.end();
    assert_eq!(fence.world.processes(), Vec::<u32>::new());
}

#[test]
fn a_stop_is_the_shells_to_see_and_to_undo() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    let command = teller(&fence);
    console.type_in(&format!("{command}\n"));
    console.see("ready;");
    console.type_in("\x1a");
    console.see_stopped();
    console.type_in("jobs; echo list''ed\n");
    assert!(console.see("listed").contains("Stopped"));
    console.type_in("fg\n");
    console.see("cont;");
    console.type_in("one\n");
    console.see("line one");
    // Once more, and on in the background: the terminal stays with the shell.
    console.type_in("\x1a");
    console.see_stopped();
    console.type_in("bg\n");
    console.see("cont;");
    // There it reads from the terminal, which is not its own: it is stopped for that, and so is the job.
    console.type_in("until jobs | grep -q Stopped; do sleep 0.05; done; echo the she''ll reads\n");
    console.see("the shell reads");
    console.type_in("fg\n");
    console.see("cont;");
    console.type_in("quit\n");
    console.see("line quit");
    console.type_in("echo status=$?.\n");
    console.see("status=0.");
    console.end();
}

#[test]
fn a_job_of_the_background_leaves_the_terminal_alone_and_can_be_brought_forward() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    let command = teller(&fence);
    console.type_in(&format!("{} &\n", fenced("bash -c 'echo up; sleep 0.5; exit 4'")));
    console.see("up");
    console.type_in("wait %1; echo status=$?. ; read -r line; echo \"the shell reads $line\"\n");
    console.see("status=4.");
    console.type_in("text\n");
    console.see("the shell reads text");
    // Brought forward while it runs, it has the terminal by the time that it reads from it.
    console.type_in(&format!("{} &\n", fenced("bash -c 'echo awake; sleep 2; read -r line; echo \"it reads $line\"'")));
    console.see("awake");
    console.type_in("fg\n");
    console.see("echo awake");
    console.type_in("early\n");
    console.see("it reads early");
    // One that reads in the background is stopped for it. A shell that has not heard of the stop yet takes the job for a
    // running one and lets nothing go on (bash's start_job), so the shell is asked first.
    console.type_in(&format!("{command} &\n"));
    console.see("ready;");
    console.type_in("until jobs | grep -q Stopped; do sleep 0.05; done; fg\n");
    console.see("perl /srv/teller");
    console.see("cont;");
    console.type_in("one\n");
    console.see("line one");
    console.type_in("\x03");
    console.see("int 1;");
    console.type_in("quit\n");
    console.see("line quit");
    console.type_in("echo status=$?.\n");
    console.see("status=1.");
    console.end();
}

#[test]
fn a_pipeline_and_a_script_keep_the_terminal_for_all_of_them() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    teller(&fence);
    // Both ends read from the terminal, in turn.
    let reader = "perl -e '$| = 1; while (<STDIN>) { last if /asked/ } open T, \"</dev/tty\"; print \"typed \", scalar <T>; print <STDIN>'";
    let asker = "perl -e '$| = 1; print \"asked\\n\"; close STDOUT; sleep 1; open T, \"</dev/tty\" or die; print STDERR \"command \", scalar <T>'";
    console.type_in(&format!("{} | {reader}; echo status=${{PIPESTATUS[0]}}.\n", fenced(asker)));
    std::thread::sleep(Duration::from_millis(100));
    console.type_in("first\n");
    console.see("first");
    console.type_in("second\n");
    console.see("second");
    console.see("status=0.");
    // An interrupt reaches each of them, and the command once.
    console.type_in(&format!(
        "{} | perl -e '$SIG{{INT}} = sub {{ print STDERR \"other;\\n\" }}; while (<STDIN>) {{ print }}'; echo over.\n",
        fenced("perl /srv/teller")
    ));
    console.see("ready;");
    console.type_in("\x03");
    console.see("other;");
    console.type_in("one\nquit\n");
    let shown = console.see("over.");
    let all = console.screen.0.lock().expect("no panic").clone();
    let since_ready = all.rsplit("ready;").next().unwrap_or_default();
    assert_eq!(since_ready.matches("int 1;").count(), 1, "{shown}");
    assert!(!since_ready.contains("int 2;"), "{shown}");
    // In a script everything stops and goes on together.
    fence.world.write("/srv/script", format!("{}\necho script=$?.\n", fenced("perl /srv/teller")), 0o644);
    console.type_in("bash /srv/script\n");
    console.see("ready;");
    // The shell sees the script stop, and lets all go on before some of them have noticed.
    for _ in 0..4 {
        console.type_in("\x1a");
        console.see_stopped();
        console.type_in("fg\n");
        console.see("cont;");
    }
    console.type_in("quit\n");
    console.see("script=0.");
    console.end();
}

#[test]
fn the_foreground_is_given_back() {
    let fence = Fence::new();
    // A parent with job control of its own that does not take the terminal back by itself.
    let parent = format!(
        r#"use POSIX; $| = 1; $SIG{{TTOU}} = q(IGNORE);
        for my $command ('true', 'exit 3', 'kill -9 $$', 'sleep 600') {{
            my $pid = fork // die;
            if (!$pid) {{ setpgid(0, 0); tcsetpgrp(0, $$); exec qw({RINGFENCE} run --policy nist-high --leftovers kill -- bash -c), "echo up; touch /dev/shm/up; $command" }}
            if ($command =~ /sleep/) {{ select undef, undef, undef, 0.02 until -e "/dev/shm/up"; kill TERM => $pid }}
            waitpid $pid, 0; print $command, " ", tcgetpgrp(0) == $pid ? "given back" : "kept", ";\n"; unlink "/dev/shm/up";
        }}"#
    );
    let mut perl = fence.world.command("perl");
    perl.args(["-e", &parent]);
    let mut console = Console::of(&fence, perl);
    for command in ["true", "exit 3", "kill -9 $$", "sleep 600"] {
        console.see("up");
        console.see(&format!("{command} given back;"));
    }
}

#[test]
fn without_a_shell_above_nothing_is_stopped_for_good() {
    let fence = Fence::new();
    teller(&fence);
    let mut command = fence.world.command(RINGFENCE);
    command.args(["run", "--policy", "nist-high", "--", "perl", "/srv/teller"]);
    let mut console = Console::of(&fence, command);
    console.see("ready;");
    console.type_in("\x1a");
    console.see("cont;");
    console.type_in("quit\n");
    console.see("line quit");
    until("the end", || console.child.try_wait().expect("wait").is_some());
}

#[test]
fn the_window_size_reaches_the_command() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    let command = teller(&fence);
    console.type_in(&format!("{command}\n"));
    console.see("ready;");
    for (rows, columns) in [(33, 77), (51, 132)] {
        let mut stty = fence.world.command("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        stty.stdin(Stdio::from(console.terminal.try_clone().expect("dup")));
        assert!(fence.world.spawn(stty).expect("stty(1) starts").wait().expect("wait").success());
        console.see(&format!("size {rows} {columns}"));
    }
    console.type_in("quit\n");
    console.see("line quit");
    console.end();
}

#[test]
fn nothing_can_be_pushed_into_the_terminal() {
    let fence = Fence::new();
    // TIOCSTI on each descriptor and on /dev/tty, with the request as it is and with bits that the kernel does not look at;
    // the others are to be refused as well, whatever terminal this is.
    let push = r#"open T, "+</dev/tty"; $| = 1;
        for my $fd (0, 1, 2, fileno T) { for my $high (0, 1 << 32, 0xffff << 40) { for my $byte (split //, "echo pushed\n") {
            my $c = $byte; my $r = syscall(16, $fd, 0x5412 + $high, $c); $seen{$r < 0 ? "$!" : "pushed"}++ } } }
        my $b = "\3"; for my $high (0, 1 << 32) { $linux{syscall(16, 0, 0x541c + $high, $b) < 0 ? "$!" : "taken"}++ }
        print "push=", join("+", sort keys %seen), ".\nlinux=", join("+", sort keys %linux), ".\n";"#;
    fence.world.write("/srv/push", push, 0o644);
    let legacy = fence.as_root("cat /proc/sys/dev/tty/legacy_tiocsti 2>/dev/null || echo 1").out;
    assert_eq!(legacy.trim(), "1", "the vector is live on this kernel (sysctl dev.tty.legacy_tiocsti)");
    let mut console = Console::shell(&fence);
    console.type_in(&format!(
        "chmod 666 /dev/tty; setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups perl /srv/push; echo over.\n"
    ));
    assert!(console.see("over.").contains("push=pushed."));
    // What was pushed runs in the shell.
    console.see("\npushed\r\n");
    console.type_in("echo set''tled\n");
    console.see("settled");
    console.type_in(&format!("{}; echo over.\n", fenced("perl /srv/push")));
    let shown = console.see("over.");
    assert!(
        shown.contains("push=Operation not permitted.") && shown.contains("linux=Operation not permitted."),
        "{shown}"
    );
    console.type_in("echo set''tled\n");
    assert!(!console.see("settled").contains("pushed"));
    console.end();
}

#[test]
fn what_is_left_behind_keeps_it_and_a_plan_says_so() {
    let fence = Fence::new();
    let mut console = Console::shell(&fence);
    // The limit is there: from a process session of its own it reads, without the terminal's job control.
    let left = "exec 9<&0; setsid bash -c \"read -r line <&9; echo \\\"took \\$line\\\" >/tmp/took\" & sleep 0.3";
    let said =
        |leftovers: &str| format!("{RINGFENCE} plan --policy nist-high {leftovers} | grep -c 'note: stdio is a term'");
    for (leftovers, notes, took) in [("--leftovers keep", 1, true), ("", 1, true), ("--leftovers kill", 0, false)] {
        console.type_in(&format!("rm -f /tmp/took; {}; echo plan''ned\n", said(leftovers)));
        assert_eq!(console.see("planned").trim(), notes.to_string(), "{leftovers}");
        console.type_in(&format!(
            "{RINGFENCE} run --policy nist-high {leftovers} -- bash -c '{left}'; echo ra''n; sleep 1; echo ov''er\n"
        ));
        console.see("ran");
        console.type_in("typed\n");
        console.see("over");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(fence.as_root("cat /tmp/took").out == "took typed\n", took, "{leftovers}");
    }
    // Without a terminal there is none to be kept.
    let elsewhere = said("--leftovers keep").replace(" plan ", " plan </dev/null 2>/dev/null ");
    console.type_in(&format!("{elsewhere}; echo plan''ned\n"));
    assert!(console.see("planned").trim().ends_with('0'));
    console.end();
}
