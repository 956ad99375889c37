//! Landlock's scopes (landlock(7), ABI 6): no signal to a process outside, no abstract unix socket made outside. Where
//! there are no mounts its rules for files are the barrier of the read-only trees ([`files`]).

mod barrier;
pub mod files;
mod holdable;
mod reads;

pub use barrier::Barrier;
pub use holdable::holdable;

use super::{ConfineError, failed, wanted};
use ::landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, getsockname, socket};
use nix::sys::stat::Mode;
use std::os::fd::{AsRawFd, OwnedFd};

const STEP: &str = "landlock";

/// Restricts the calling thread to its own Landlock domain for signals and abstract unix sockets, and sees one refused.
///
/// With `audited`, what the domain refuses to programs executed in it goes to the kernel's audit (ABI 7): without being
/// asked the kernel would tell of this very program only. The refusal that is seen here is the domain's first, so that an
/// audit that is listened to has told of the domain before anything else runs in it.
///
/// Where rules for files are in force, by [`files`] or by this very domain, every domain beneath refuses to move a file to
/// another directory unless a rule of its own allows it (landlock(7), LANDLOCK_ACCESS_FS_REFER): `beside_files` has one that
/// allows it everywhere, so that the rules for files alone decide.
///
/// # Errors
/// A kernel without the scopes, or without such audit where it is asked for; a socket of the outside that is not refused.
pub fn restrict_scopes(audited: bool, beside_files: bool) -> Result<(), ConfineError> {
    share_scopes(audited, beside_files).map(drop)
}

/// The same for a process whose children are to share the domain. Each sees for itself, by what this returns, that it is in it.
///
/// # Errors
/// As [`restrict_scopes`].
pub fn share_scopes(audited: bool, beside_files: bool) -> Result<Outside, ConfineError> {
    let fail = |e: RulesetError| ConfineError::Landlock(e.to_string());
    let outside = Outside::bind()?;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let scoped = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal);
    let created = match beside_files {
        false => scoped.and_then(|ruleset| ruleset.create()),
        true => {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let root = open("/", flags, Mode::empty()).map_err(failed(STEP, "open"))?;
            let everywhere = PathBeneath::new(root, AccessFs::Refer);
            scoped
                .and_then(|ruleset| ruleset.handle_access(AccessFs::Refer))
                .and_then(|ruleset| ruleset.create())
                .and_then(|created| created.add_rule(everywhere))
        }
    };
    let created = created.map_err(fail)?;
    let created = if audited { created.log_new_exec(true).map_err(fail)? } else { created };
    // no_new_privs is a step of its own in the order; the library must not set it behind our back.
    let status = created.no_new_privs(false).restrict_self().map_err(fail)?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(ConfineError::Landlock(format!("the ruleset is {:?}", status.ruleset)));
    }
    outside.is_refused().map(|()| outside)
}

/// An abstract socket that belongs to no domain, as it was made before there was one.
#[derive(Debug)]
pub struct Outside {
    _socket: OwnedFd,
    name: UnixAddr,
}

impl Outside {
    fn bind() -> Result<Outside, ConfineError> {
        let socket = datagram()?;
        // The kernel chooses the name (unix(7), autobind).
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).map_err(failed(STEP, "bind"))?;
        let name = getsockname(socket.as_raw_fd()).map_err(failed(STEP, "getsockname"))?;
        Ok(Outside { _socket: socket, name })
    }

    /// Whether the calling process is in a domain that keeps it from the socket.
    ///
    /// # Errors
    /// Where it is not.
    pub fn is_refused(&self) -> Result<(), ConfineError> {
        wanted(STEP, connect(datagram()?.as_raw_fd(), &self.name), Err(Errno::EPERM))
    }
}

fn datagram() -> Result<OwnedFd, ConfineError> {
    socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).map_err(failed(STEP, "socket"))
}
