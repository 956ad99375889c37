//! Terminals (ioctl_tty(2)), and the pipes in their place.

use super::Result;
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd, BorrowedFd};

/// TIOCSCTTY: makes a terminal the controlling one of the calling process, which leads a session and has none.
pub fn take_terminal(terminal: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: all arguments are integers; 0 steals nothing.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }).map(|_| ())
}

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// TIOCGWINSZ; ENOTTY for what is no terminal.
pub fn window_size(terminal: BorrowedFd<'_>) -> Result<WindowSize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one structure, which outlives the call.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &mut size) })?;
    Ok(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

/// FIONREAD: how many bytes of a pipe can be read now (pipe(7)).
pub fn readable_now(pipe: BorrowedFd<'_>) -> Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which outlives the call.
    Errno::result(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut count) })?;
    usize::try_from(count).map_err(|_| Errno::EOVERFLOW)
}

/// TIOCSWINSZ: what has the terminal's foreground is told by SIGWINCH.
pub fn set_window_size(terminal: BorrowedFd<'_>, size: WindowSize) -> Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one structure, which outlives the call.
    Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) }).map(|_| ())
}
