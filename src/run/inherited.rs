//! Descriptors that this program was started with: what the command may not inherit is refused before anything starts.

use crate::cli::{LedgerPlace, RunArgs};
use crate::error::{Error, call};
use crate::install::shields;
use crate::plan::Plan;
use crate::policy::{Policy, Posture};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::getpid;
use rustix::net::{AddressFamily, sockopt};
use std::os::fd::{OwnedFd, RawFd};

/// Takes a descriptor that the caller named, and keeps it from the command.
pub fn adopt(fd: RawFd) -> Result<OwnedFd, Errno> {
    if fd <= 2 {
        return Err(Errno::EBADF);
    }
    let owned = sys::adopt_inherited(fd)?;
    fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Refuses inet sockets, which the firewall matches by the credentials of their opener, and, where the filesystem axis is
/// held, directories on stdio, which lead past every mount. What lies above stdio is closed in the command in any case,
/// and refused all the same: whoever passes it expects it to work. The rest of it is closed here and now: a supervisor
/// that stays would hold the other end of somebody's pipe open.
pub fn settle(policy: &Policy, args: &RunArgs) -> Result<(), Error> {
    let postures = policy.postures();
    // By the numbers in another namespace's /proc we would look at other people's processes.
    let itself = std::fs::read_link("/proc/self").map_err(call("read the link /proc/self"))?;
    if itself.as_os_str() != getpid().to_string().as_str() {
        return Err(call("read the link /proc/self")(std::io::Error::other(
            "/proc is that of another PID namespace; accepted: a procfs of this one (unshare --mount-proc)",
        )));
    }
    let ours = |fd: RawFd| {
        Some(fd) == args.run.json_status_fd
            || matches!(args.policy.ledger_place(), Some(LedgerPlace::Descriptor(n)) if *n == fd)
    };
    let listing = std::fs::read_dir("/proc/self/fd").map_err(call("open /proc/self/fd"))?;
    let numbers: Vec<RawFd> = listing.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let others = || numbers.iter().copied().filter(|fd| !ours(*fd));
    if postures.privilege > Posture::Open {
        for fd in others() {
            // The listing's own descriptor is closed again by now.
            let Ok(held) = sys::duplicate(fd) else { continue };
            if let Some(kind) = unfit(&held, fd <= 2 && postures.filesystem > Posture::Open) {
                return Err(Error::Inherited { fd, kind });
            }
        }
    }
    for fd in others().filter(|fd| *fd > 2) {
        // The listing's own is closed already.
        if let Ok(held) = sys::adopt_inherited(fd) {
            drop(held);
        }
    }
    Ok(())
}

/// Refuses stdin, stdout and stderr that refer into a shield, as what is open is read whatever becomes of its name, and with
/// shields those that [`settle`] refuses where the filesystem axis is held.
pub fn check_stdio(plan: &Plan) -> Result<(), Error> {
    (0..=2).try_for_each(|fd| match sys::duplicate(fd) {
        Ok(held) => check(plan, fd, &held),
        Err(_) => Ok(()),
    })
}

/// Refuses stdin, stdout or stderr of a command that comes later, by the same rules.
pub fn check(plan: &Plan, fd: RawFd, held: &OwnedFd) -> Result<(), Error> {
    let shields = plan.mounts.as_ref().map_or(&[][..], |view| &view.shields);
    if !shields.is_empty() && shields::holds(shields, held) {
        return Err(Error::Inherited { fd, kind: "of a file in a shield" });
    }
    let postures = plan.policy.postures();
    if postures.privilege == Posture::Open {
        return Ok(());
    }
    // A directory leads past the masks too.
    match unfit(held, postures.filesystem > Posture::Open || !shields.is_empty()) {
        Some(kind) => Err(Error::Inherited { fd, kind }),
        None => Ok(()),
    }
}

fn unfit(fd: &OwnedFd, guards_files: bool) -> Option<&'static str> {
    let stat = fstat(fd).ok()?;
    let kind = stat.st_mode & SFlag::S_IFMT.bits();
    if kind == SFlag::S_IFSOCK.bits() {
        // Which family it is of is said even where no address can be told; what leads outside is any but AF_UNIX.
        return match sockopt::socket_domain(fd) {
            Ok(AddressFamily::UNIX) => None,
            Ok(AddressFamily::INET | AddressFamily::INET6) => Some("an inet socket"),
            Ok(AddressFamily::PACKET) => Some("a packet socket"),
            Ok(_) | Err(_) => Some("a socket of another family than AF_UNIX"),
        };
    }
    let flags = fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate).ok()?;
    match kind {
        libc::S_IFDIR if guards_files => Some("a directory"),
        _ if guards_files && flags.contains(OFlag::O_PATH) => Some("a path descriptor"),
        _ => None,
    }
}
