//! A child that has this process's memory while this process waits for it, as posix_spawn(3) starts one: a copy of the
//! memory's map, and of each page that is written to, takes longer than what such a child does.

use super::Result;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::ffi::c_void;

/// The child's stack, in bytes; only what it touches is ever there.
const STACK: usize = 512 << 10;

/// clone(2) with CLONE_VM and CLONE_VFORK: `work` is done by a process of its own, with descriptors, directory and
/// credentials of its own, in this one's memory. Returns when that process has ended or executed another program; it is to be
/// waited for by the id returned, and has ended with status 0 if `work` has returned. A panic in it is SIGABRT.
///
/// EDEADLK when this process has more than one thread, for only the calling one waits.
pub fn fork_in_same_memory(mut work: impl FnMut()) -> Result<Pid> {
    if super::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    extern "C" fn begin(work: *mut c_void) -> libc::c_int {
        // SAFETY: it is what `fork_in_same_memory` has passed, which waits and so touches it no more meanwhile.
        let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
        work();
        0
    }
    // Not filled: to clear it would take longer than all else here.
    let mut stack = Vec::<u8>::with_capacity(STACK);
    let mut work: &mut dyn FnMut() = &mut work;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is memory of that length and nothing else's, grows down from its end, which `clone` aligns, and outlives
    // the child's use of this memory, as does `work`: the call returns when that use is over. No other thread sees what the
    // child does to the memory.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK).cast::<c_void>();
        Errno::result(libc::clone(begin, top, flags, (&raw mut work).cast::<c_void>()))?
    };
    Ok(Pid::from_raw(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Fork, exit_now, fork_single_threaded};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{chdir, getpid};

    /// The test's own process has several threads.
    fn alone(test: impl FnOnce() -> bool) {
        // SAFETY: as the tests of fork do: the child uses nothing that another thread could hold.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => exit_now(i32::from(!test())),
            nix::unistd::ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
    }

    #[test]
    fn what_the_child_has_written_is_here_and_what_is_its_own_is_not() {
        alone(|| {
            let (own, mut seen) = (getpid(), None);
            let child = fork_in_same_memory(|| {
                if chdir("/proc").is_ok() {
                    seen = Some(getpid());
                }
            });
            let Ok(child) = child else { return false };
            let ended = waitpid(child, None) == Ok(WaitStatus::Exited(child, 0));
            let here = std::env::current_dir().is_ok_and(|here| here != std::path::Path::new("/proc"));
            ended && here && seen == Some(child) && child != own
        });
    }

    #[test]
    fn a_child_forks_and_borrows_in_its_turn() {
        alone(|| {
            let mut deepest = false;
            let child = fork_in_same_memory(|| {
                let forked = match fork_single_threaded() {
                    Ok(Fork::Child) => exit_now(7),
                    Ok(Fork::Parent(pid)) => waitpid(pid, None) == Ok(WaitStatus::Exited(pid, 7)),
                    Err(_) => false,
                };
                let further = fork_in_same_memory(|| deepest = forked);
                deepest &= further.is_ok_and(|pid| waitpid(pid, None) == Ok(WaitStatus::Exited(pid, 0)));
            });
            child.is_ok_and(|pid| waitpid(pid, None) == Ok(WaitStatus::Exited(pid, 0))) && deepest
        });
    }
}
