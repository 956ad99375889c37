//! `status` and `down`, and how every client finds its session.

use super::place::{Place, Reached, State};
use super::wire::{Answer, Ask, Status};
use super::{Name, SessionError};
use crate::channel::{Channel, ChannelError};
use crate::document;
use crate::error::Error;
use crate::install::dev_box;
use crate::install::reserve::{self, Busy};
use crate::install::undo;
use crate::run::{complain, tell_of_git};
use nix::unistd::geteuid;
use std::io::Write;
use std::time::{Duration, Instant};

pub use super::exec::exec;

/// Connects to a session.
///
/// # Errors
/// Where there is none; where there was one whose supervisor has died, what that left is removed.
pub fn connect(name: &Name) -> Result<Channel, Error> {
    let place = Place::of(name.clone())?;
    match place.reach()? {
        Reached::Living(socket) => Ok(Channel::over(socket)),
        Reached::Nobody => {
            let known = place.names();
            let known = match known.is_empty() {
                true => "`ringfence up` before".to_owned(),
                false => known.join(", "),
            };
            Err(SessionError::None { name: name.clone(), known }.into())
        }
        Reached::Dead(state) => {
            put_back()?;
            Err(SessionError::Died { name: name.clone(), what: epitaph(&state) }.into())
        }
    }
}

/// What is to be said of a session whose supervisor has died.
pub fn epitaph(state: &State) -> String {
    let State { run, supervisor, ledger } = state;
    match run.is_empty() {
        true => "its supervisor has died; its socket is removed".to_owned(),
        false => format!(
            "its supervisor, process {supervisor}, has died; its socket and state are removed, and the record of run {run} \
             in {ledger} has no seal"
        ),
    }
}

/// What else a run that was killed leaves, as the start of the next one would put it back.
fn put_back() -> Result<(), Error> {
    if !geteuid().is_root() {
        return Ok(dev_box::put_back_for_the_dead()?);
    }
    let mut busy = Busy::default();
    reserve::clear_stale_walls(&mut busy)?;
    tell_of_git(&undo::put_back_for_the_dead(&mut busy)?);
    Ok(())
}

/// `ringfence status`: 0 where the session is up, 1 where there is none.
pub fn status(name: &Name, json: bool, out: &mut impl Write) -> Result<i32, Error> {
    let asked = connect(name).and_then(|channel| {
        let answer = channel.send(&Ask::Status).and_then(|()| channel.receive_with());
        answer.map_err(|error| unheard(name, error))
    });
    let (answer, descriptors) = match asked {
        Ok(answer) => answer,
        Err(Error::Session(none @ (SessionError::None { .. } | SessionError::Died { .. }))) => {
            complain(&none.to_string());
            return Ok(1);
        }
        Err(error) => return Err(error),
    };
    let (Answer::Status, Some(status)) = (&answer, descriptors.into_iter().next()) else {
        return Err(unexpected(answer).into());
    };
    let status: Status = document::read(status).map_err(super::call("read"))?;
    let written = match json {
        true => serde_json::to_string_pretty(&status).map_err(Into::into).and_then(|text| writeln!(out, "{text}")),
        false => write_text(&status, out),
    };
    written.map_err(super::call("write"))?;
    Ok(0)
}

fn write_text(status: &Status, out: &mut impl Write) -> std::io::Result<()> {
    let Status { name, run, level, rung, ledger, supervisor, uid, started, commands } = status;
    let ledger = ledger.as_deref().unwrap_or("a descriptor");
    writeln!(out, "session {name}: run {run}, level {level}, rung {rung}, commands as uid {uid}")?;
    writeln!(out, "supervisor {supervisor}, record {ledger}")?;
    writeln!(out, "commands: {started} started, {} running", commands.len())?;
    commands.iter().try_for_each(|command| writeln!(out, "  {} {}", command.pid, command.argv.join(" ")))
}

/// `ringfence down`: returns when the record is sealed.
pub fn down(name: &Name) -> Result<i32, Error> {
    let channel = connect(name)?;
    let answer = channel.send(&Ask::Down).and_then(|()| channel.receive());
    match answer.map_err(|error| unheard(name, error))? {
        Answer::Down { complete: Some(_) } => Ok(0),
        Answer::Down { complete: None } => {
            Err(SessionError::Told(format!("session {name} is down, but its record could not be sealed")).into())
        }
        other => Err(unexpected(other).into()),
    }
}

/// What a connection that fails before any answer means: a supervisor that dies closes its socket last of all, and is found dead
/// a moment later.
pub(super) fn unheard(name: &Name, error: ChannelError) -> Error {
    let deadline = Instant::now() + DYING;
    while let ChannelError::Closed = error
        && Instant::now() < deadline
    {
        match connect(name) {
            Ok(_) => std::thread::sleep(DYING / 100),
            Err(found) => return found,
        }
    }
    gone(name, error).into()
}

/// How long the end of a killed process may take.
const DYING: Duration = Duration::from_secs(1);

/// What a connection that fails means.
pub(super) fn gone(name: &Name, error: ChannelError) -> SessionError {
    match error {
        ChannelError::Closed => SessionError::Gone { name: name.clone() },
        error => error.into(),
    }
}

pub(super) fn unexpected(answer: Answer) -> SessionError {
    match answer {
        Answer::Failed { message, .. } => SessionError::Told(message),
        other => SessionError::Told(format!("the supervisor has answered {other:?}")),
    }
}
