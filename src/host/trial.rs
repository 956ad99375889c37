//! What can only be known by doing it: each call that the stage and the confinement will make is made in a child that ends
//! with it.

use super::finding::{Finding, proc};
use super::{HostError, failed};
use crate::confine::{ConfineError, landlock};
use crate::install::mounts;
use crate::observe::landlock_audit::{AuditError, Reader, await_domain_of};
use crate::sys::{self, Fork, MountAttr};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2, read, write};
use std::os::fd::{AsFd, OwnedFd};

/// What a child could do.
pub(super) struct Tried {
    /// Whether a mount namespace can be made and its mounts changed; else which call was refused, and how.
    pub mounts: Finding,
    /// Whether mount_setattr(2) is there; `None` where it did not come to it.
    pub mount_setattr: Option<Finding>,
    /// Whether Landlock's scopes could be put in force.
    pub scopes: bool,
    /// Whether the kernel's audit has told of a refusal of theirs, or why not; `None` where that was not asked.
    pub audit: Option<Result<(), String>>,
}

/// The trial of what the stage and the confinement will do, in a child that ends with it. It takes its time beside its parent,
/// who has other things to look at.
pub(super) enum Trial {
    /// It runs.
    Begun {
        child: Pid,
        report: OwnedFd,
        /// The log of what Landlock refuses there, if it is asked for.
        log: Result<Option<Reader>, AuditError>,
    },
    /// No child can be had, and why.
    Impossible(String),
}

impl Trial {
    /// Starts it; with `audit`, whether what Landlock refuses there is to be read.
    pub(super) fn begin(audit: bool) -> Result<Trial, HostError> {
        if let Err(cause) = proc() {
            return Ok(Trial::Impossible(cause));
        }
        let log = match audit.then(Reader::open).transpose() {
            Err(error @ AuditError::Astray(_)) => return Err(error.into()),
            opened => opened.map(|log| log.map(|(reader, _)| reader)),
        };
        let (report, answer) = pipe2(OFlag::O_CLOEXEC).map_err(failed("pipe2"))?;
        match sys::fork_single_threaded().map_err(failed("fork"))? {
            Fork::Child => {
                let (step, errno) = try_mounts().err().unwrap_or((0, Errno::UnknownErrno));
                let told = write(&answer, &[step, errno as i32 as u8, try_scopes()]);
                sys::exit_now(i32::from(told != Ok(3)));
            }
            Fork::Parent(child) => Ok(Trial::Begun { child, report, log }),
        }
    }

    /// What it has come to.
    pub(super) fn end(self) -> Result<Tried, HostError> {
        let (child, report, log) = match self {
            Trial::Begun { child, report, log } => (child, report, log),
            Trial::Impossible(cause) => {
                return Ok(Tried { mounts: Err(cause), mount_setattr: None, scopes: false, audit: None });
            }
        };
        let mut told = [0; 3];
        let length = read(&report, &mut told).map_err(failed("read"))?;
        waitpid(child, None).map_err(failed("waitpid"))?;
        let step = STEPS.get(usize::from(told[0]));
        let mounts = match (length, told[0], step) {
            (3, 0, _) => Ok(()),
            (3, _, Some(step)) => Err(cause(step, Errno::from_raw(i32::from(told[1])))),
            _ => Err("the child that tried ended early".into()),
        };
        let mount_setattr = match (length, told[0]) {
            (3, 0 | AFTER_SETATTR..) => Some(Ok(())),
            (3, SETATTR) => Some(mounts.clone()),
            _ => None,
        };
        let scopes = if length == 3 { told[2] } else { NONE };
        let audit = log.map_err(|error| error.to_string()).and_then(|log| match log {
            Some(_) if scopes != AUDITED => Err("Landlock: it tells audit nothing of programs executed later".into()),
            Some(log) => await_domain_of(&log, child).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        });
        Ok(Tried { mounts, mount_setattr, scopes: scopes != NONE, audit: audit.transpose() })
    }
}

// What of Landlock's scopes there is.
const NONE: u8 = 0;
const SILENT: u8 = 1;
const AUDITED: u8 = 2;

fn try_scopes() -> u8 {
    if nix::sys::prctl::set_no_new_privs().is_err() {
        return NONE;
    }
    // One that says that it holds and does not is none to go without: it stops the confinement.
    let offered =
        |audited| matches!(landlock::restrict_scopes(audited, false), Ok(()) | Err(ConfineError::ReadBack { .. }));
    // On a kernel that lacks the first form nothing is in force after it has failed.
    if offered(true) {
        AUDITED
    } else if offered(false) {
        SILENT
    } else {
        NONE
    }
}

fn cause(step: &str, errno: Errno) -> String {
    match (step, errno) {
        // Only a mount's own root takes a change of propagation: after chroot(2) alone, / is none.
        ("mount", Errno::EINVAL) => "the root directory is no mount point".into(),
        _ => format!("{step}: {errno}"),
    }
}

const STEPS: [&str; 9] =
    ["", "unshare", "mount", "open_tree", "mount_setattr", "fsmount", "open /proc", "move_mount", "umount2"];

// Steps by their places above.
const SETATTR: u8 = 4;
const AFTER_SETATTR: u8 = SETATTR + 1;

fn try_mounts() -> Result<(), (u8, Errno)> {
    let at = |step: u8| move |errno| (step, errno);
    mounts::unshare_mounts().map_err(at(1))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).map_err(at(2))?;
    let tree = sys::clone_tree(AT_FDCWD, c"/", false).map_err(at(3))?;
    let attr = MountAttr { set: sys::ATTR_RDONLY | sys::ATTR_NOSUID, ..MountAttr::default() };
    sys::mount_setattr(tree.as_fd(), false, &attr).map_err(at(SETATTR))?;
    let scratch = sys::new_tmpfs(0o700, 0).map_err(at(5))?;
    let point = open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(at(6))?;
    sys::move_mount(scratch.as_fd(), point.as_fd()).map_err(at(7))?;
    umount2("/proc", MntFlags::MNT_DETACH).map_err(at(8))
}
