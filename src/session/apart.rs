//! A command without a terminal of its own gets pipes where the caller has a terminal. It is in another process session, so
//! the terminal's job control would not keep it, nor what it leaves behind, from reading what is typed for others.

use super::relay::{CHUNK, Relay};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, fstat, major};
use nix::unistd::pipe2;
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The device number of /dev/tty, /dev/console and /dev/ptmx, each of which opens as something else (devices.txt).
const ALTERNATES: u64 = 5;

/// Joins each of the caller's stdio that is a terminal with a pipe. Returns the command's ends.
pub fn from_terminals(relay: &mut Relay) -> Result<[Option<OwnedFd>; 3], Errno> {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let typed = match input.is_terminal() {
        true => Some(line_pipe(relay, input.as_fd())?),
        false => None,
    };
    let shown = match output.is_terminal() {
        true => Some(output_pipe(relay, output.as_fd())?),
        false => None,
    };
    let told = match (&shown, error.is_terminal()) {
        // By one pipe, in the order in which it is written.
        (Some(shown), true) if is_one(output.as_fd(), error.as_fd())? => Some(duplicate(shown.as_fd())?),
        (_, true) => Some(output_pipe(relay, error.as_fd())?),
        (_, false) => None,
    };
    Ok([typed, shown, told])
}

fn line_pipe(relay: &mut Relay, terminal: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETPIPE_SZ(CHUNK as i32))?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    relay.lines(own_opening(terminal, OFlag::O_RDONLY)?, ours);
    Ok(theirs)
}

fn output_pipe(relay: &mut Relay, terminal: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    relay.output(ours, own_opening(terminal, OFlag::O_WRONLY)?);
    Ok(theirs)
}

fn is_one(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev))
}

/// The terminal, opened once more: O_NONBLOCK on the caller's own descriptor would be for all who share it. Where that is not
/// to be had, as for a user who has changed with su(1), a duplicate.
fn own_opening(terminal: BorrowedFd<'_>, how: OFlag) -> Result<OwnedFd, Errno> {
    let flags = how | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let again = match major(fstat(terminal)?.st_rdev) {
        ALTERNATES => Err(Errno::ENXIO),
        _ => open(format!("/proc/self/fd/{}", terminal.as_raw_fd()).as_str(), flags, Mode::empty()),
    };
    again.or_else(|_| duplicate(terminal))
}

/// A duplicate that no other program gets.
pub fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fd.try_clone_to_owned().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}
