//! `ringfence exec`: a command in a session, with this program's stdio, signals and status. A terminal stays the caller's.

use super::apart::from_terminals;
use super::client::{connect, gone, unexpected, unheard};
use super::pty::Pty;
use super::relay::Relay;
use super::wire::{Answer, Ask};
use super::{Name, SessionError, call};
use crate::channel::{Channel, ChannelError};
use crate::cli::ExecArgs;
use crate::confine::exec::{ExecFailure, SignalState};
use crate::document;
use crate::error::Error;
use crate::install::Invocation;
use crate::supervise::terminal::{Terminal, is_orphaned};
use crate::supervise::{asks_to_end, forwarded};
use crate::sys;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpid;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};

/// What a terminal is where the caller does not say.
const TERM: &str = "xterm";

/// Runs a command in a session. Returns its status.
pub fn exec(args: &ExecArgs, signals: SignalState) -> Result<i32, Error> {
    if let Some(user) = &args.user {
        return Err(SessionError::User(user.clone()).into());
    }
    let invocation = invocation(args, signals)?;
    let document = document::write(&invocation).map_err(call("memfd_create"))?;
    let channel = connect(&args.name.name)?;
    let ask = Ask::Exec { terminal: args.terminal };
    let send = |stdio: [BorrowedFd<'_>; 3]| {
        let [input, output, error] = stdio;
        channel.send_with(&ask, &[document.as_fd(), input, output, error]).map_err(|e| unheard(&args.name.name, e))
    };
    let mut relay = Relay::default();
    let pty = if args.terminal {
        let (pty, theirs) = Pty::open(&mut relay).map_err(call("openpty"))?;
        send([theirs.as_fd(), theirs.as_fd(), theirs.as_fd()])?;
        Some(pty)
    } else {
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let [typed, shown, told] = from_terminals(&mut relay).map_err(call("join the terminal"))?;
        let input = typed.as_ref().map_or(input.as_fd(), AsFd::as_fd);
        let output = shown.as_ref().map_or(output.as_fd(), AsFd::as_fd);
        let error = told.as_ref().map_or(error.as_fd(), AsFd::as_fd);
        send([input, output, error])?;
        None
    };
    let signals = SignalFd::with_flags(&forwarded(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let signals = signals.map_err(call("signalfd"))?;
    Attached { name: &args.name.name, channel, signals, relay, pty, heard: false }.attend()
}

fn invocation(args: &ExecArgs, signals: SignalState) -> Result<Invocation, SessionError> {
    let directory = match &args.cwd {
        Some(named) => std::path::absolute(named),
        None => std::env::current_dir(),
    };
    let mut added: Vec<(OsString, OsString)> =
        args.env.iter().map(|variable| ((&variable.name).into(), (&variable.value).into())).collect();
    if args.terminal && !added.iter().any(|(name, _)| name == "TERM") {
        added.push(("TERM".into(), std::env::var_os("TERM").unwrap_or_else(|| TERM.into())));
    }
    Ok(Invocation {
        argv: args.command.clone(),
        directory: directory.map_err(call("getcwd"))?,
        directory_first: args.cwd.is_some(),
        environment: Vec::new(),
        added,
        groups: Vec::new(),
        signals,
        closed: if args.terminal { Vec::new() } else { sys::stdio_closed_at_start().collect() },
    })
}

/// A command that was asked for, from here to its end.
struct Attached<'a> {
    name: &'a Name,
    channel: Channel,
    signals: SignalFd,
    relay: Relay,
    pty: Option<Pty>,
    /// Whether the supervisor has said anything.
    heard: bool,
}

impl Attached<'_> {
    fn attend(mut self) -> Result<i32, Error> {
        loop {
            let ready = self.relay.step(&[self.channel.as_fd(), self.signals.as_fd()]).map_err(call("pass on"))?;
            if ready[1] {
                self.forward()?;
            }
            if ready[0]
                && let Some(outcome) = self.hear().transpose()
            {
                let shown = self.show_last();
                return outcome.and_then(|status| Ok(shown.map(|()| status)?));
            }
        }
    }

    /// The command has ended: shows what it has written, unless somebody asks this program to end meanwhile.
    fn show_last(&mut self) -> Result<(), SessionError> {
        self.relay.end().map_err(call("ioctl FIONREAD"))?;
        let ending = asks_to_end();
        while !self.relay.is_done() {
            let ready = self.relay.step(&[self.signals.as_fd()]).map_err(call("pass on"))?;
            while ready[0]
                && let Some(info) = self.signals.read_signal().map_err(call("read"))?
            {
                if Signal::try_from(info.ssi_signo as i32).is_ok_and(|signal| ending.contains(signal)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes in what the supervisor says. Returns the status when the command has ended.
    fn hear(&mut self) -> Result<Option<i32>, Error> {
        let answer = self.channel.receive::<Answer>().map_err(|error| match self.heard {
            true => gone(self.name, error).into(),
            false => unheard(self.name, error),
        })?;
        self.heard = true;
        match answer {
            Answer::Started => {
                self.pty.as_mut().map_or(Ok(()), Pty::begin).map_err(call("tcsetattr"))?;
                self.relay.begin();
                Ok(None)
            }
            Answer::Stopped => {
                // A shell with job control is to see it, and to let both go on. Where nobody could, this program stays.
                if self.pty.is_none() && Terminal::of_caller().is_some() && !is_orphaned() {
                    kill(getpid(), Signal::SIGSTOP).map_err(call("kill"))?;
                }
                Ok(None)
            }
            Answer::Ended(status) => Ok(Some(status)),
            Answer::Failed { status, message } => Err(Error::Exec(ExecFailure { status, message })),
            other => Err(unexpected(other).into()),
        }
    }

    /// Passes on each signal, once. What a terminal or a shell sends is for all of a process group.
    fn forward(&mut self) -> Result<(), SessionError> {
        while let Some(info) = self.signals.read_signal().map_err(call("read"))? {
            let number = info.ssi_signo as i32;
            if let Some(pty) = self.pty.as_ref().filter(|_| number == Signal::SIGWINCH as i32) {
                pty.resize().map_err(call("ioctl TIOCSWINSZ"))?;
                continue;
            }
            let of_job = [Signal::SIGCONT, Signal::SIGTSTP].iter().any(|signal| *signal as i32 == number);
            let group = of_job || info.ssi_code == libc::SI_KERNEL;
            match self.channel.send(&Ask::Signal { number, group }) {
                // What the supervisor has said before it closed is still to be heard.
                Ok(()) | Err(ChannelError::Closed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
