//! Someone at a terminal of the box.
#![allow(dead_code, reason = "each test binary uses its own part")]

use crate::common::Fence;
use crate::living::{PATIENCE, until};
use nix::pty::openpty;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Someone at a terminal: what they see, and what they type.
pub struct Console {
    pub child: Child,
    pub keyboard: File,
    pub screen: Arc<(Mutex<String>, Condvar)>,
    /// How much of the screen has been read.
    pub read: usize,
    pub terminal: OwnedFd,
}

impl Console {
    /// Starts a command as the leader of a session on a terminal of the box.
    pub fn of(fence: &Fence, command: Command) -> Console {
        let pty = fence.world.inside().run(|| openpty(None, None)).expect("a pseudoterminal");
        let mut session = fence.world.command("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        let stdio = || Stdio::from(pty.slave.try_clone().expect("dup"));
        session.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = fence.world.spawn(session).expect("setsid(1) starts");
        let screen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (shown, mut output) = (screen.clone(), File::from(pty.master.try_clone().expect("dup")));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.0.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..length]));
                shown.1.notify_all();
            }
        });
        Console { child, keyboard: File::from(pty.master), screen, read: 0, terminal: pty.slave }
    }

    /// An interactive shell that echoes nothing and prompts with `$ `.
    pub fn shell(fence: &Fence) -> Console {
        let mut bash = fence.world.command("bash");
        bash.args(["--norc", "--noediting", "-i"]);
        let mut console = Console::of(fence, bash);
        console.type_in("stty -echo; PS1=; PS2=; bind 2>/dev/null; echo sh''ell\n");
        console.see("shell");
        console
    }

    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// Waits for a text after all that was waited for before.
    pub fn see(&mut self, text: &str) -> String {
        let (screen, deadline) = (self.screen.clone(), Instant::now() + PATIENCE);
        let mut shown = screen.0.lock().expect("no panic");
        loop {
            if let Some(at) = shown[self.read..].find(text) {
                let before = shown[self.read..self.read + at].to_owned();
                self.read += at + text.len();
                return before;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {text:?} after {:?} in {:?}", &shown[..self.read], &shown[self.read..]);
            shown = screen.1.wait_timeout(shown, left).expect("no panic").0;
        }
    }

    /// Waits for the shell to have the terminal again after a stop. What is typed while the kernel still flushes its input for
    /// the key that stopped the job (termios(3), NOFLSH) may be lost, so it is asked until it answers.
    pub fn see_stopped(&mut self) {
        self.see("Stopped");
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.type_in("echo at''hand\n");
            let shown = self.screen.0.lock().expect("no panic");
            let (shown, _) = self
                .screen
                .1
                .wait_timeout_while(shown, Duration::from_millis(300), |shown| !shown[self.read..].contains("athand"))
                .expect("no panic");
            if shown[self.read..].contains("athand") {
                return;
            }
            assert!(Instant::now() < deadline, "the shell does not answer: {:?}", &shown[self.read..]);
        }
    }

    pub fn end(mut self) {
        self.type_in("exit\n");
        until("the shell's end", || self.child.try_wait().expect("wait").is_some());
    }
}
