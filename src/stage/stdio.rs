//! Letting go of the stdio that a process of ours was started with.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::os::fd::OwnedFd;

/// Puts /dev/null in the place of this process's stdio, or an empty file in memory where the image has no /dev/null.
pub fn release_stdio() -> Result<(), Errno> {
    let null = release_input_and_output()?;
    nix::unistd::dup2_stderr(&null)
}

/// The same for stdin and stdout alone. Returns the descriptor of /dev/null.
pub fn release_input_and_output() -> Result<OwnedFd, Errno> {
    let opened = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty());
    let null = opened.or_else(|_| nix::sys::memfd::memfd_create(c"null", nix::sys::memfd::MFdFlags::MFD_CLOEXEC))?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(null)
}
