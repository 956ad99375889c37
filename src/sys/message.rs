//! Messages on sockets whose parts are bytes that were read elsewhere, and signals to single threads.

use super::Result;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::os::fd::{AsRawFd, BorrowedFd};

/// sendmsg(2) of one piece of data, to `name` where that is not empty, with control messages (cmsg(3)) that are laid out as
/// this architecture has them. Returns the bytes that were taken.
pub fn send_message(
    socket: BorrowedFd<'_>,
    name: &[u8],
    data: &[u8],
    control: &[u8],
    flags: libc::c_int,
) -> Result<usize> {
    let pointer = |bytes: &[u8]| {
        if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast::<libc::c_void>() }
    };
    let mut part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: zeros are a valid value of the structure, whose padding has no name.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = pointer(name);
    message.msg_namelen = libc::socklen_t::try_from(name.len()).map_err(|_| Errno::EINVAL)?;
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = pointer(control);
    message.msg_controllen = control.len() as _;
    // SAFETY: every pointer is to memory of the length beside it that outlives the call, which only reads it.
    let sent = Errno::result(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) })?;
    usize::try_from(sent).map_err(|_| Errno::EOVERFLOW)
}

/// tgkill(2): a signal to one thread of a process.
pub fn signal_thread(process: Pid, thread: Pid, signal: nix::sys::signal::Signal) -> Result<()> {
    // SAFETY: all arguments are integers.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, process.as_raw(), thread.as_raw(), signal as libc::c_int) };
    Errno::result(done).map(|_| ())
}
