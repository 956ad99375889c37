//! Confinement of a freshly forked child, in a fixed order, each step read back: the command and every probe take the very same.

pub mod abi;
pub mod exec;
pub mod landlock;
mod listener;
mod observer;
pub mod rules;
pub mod seccomp;

use crate::install::account::Identity;
use crate::mutation;
use crate::plan::means::{FileBarrier, Means};
use crate::policy::Posture;
use crate::sys::{self, CapabilitySets};
pub use listener::Handover;
use listener::Peer;
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid, setfsgid, setfsuid, setgroups, setresgid, setresuid};
use std::sync::Arc;

/// What a child must become before it may run anything.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The posture of the privilege axis.
    pub privilege: Posture,
    /// How the rung works.
    pub means: Means,
    /// Who it becomes; `None` where the privilege axis is open.
    pub identity: Option<Identity>,
    /// The seccomp program that refuses by itself, made ahead by [`seccomp::program`].
    pub filter: Vec<u8>,
    /// The observer's own, made likewise, which leaves it the sockets that it makes for the command.
    pub observers: Vec<u8>,
    /// The one that hands over to a listener, made ahead by [`seccomp::program_with_listener`].
    pub notifying: Vec<u8>,
    /// Whether the kernel has Landlock's scopes (ABI 6, Linux 6.12).
    pub scopes: bool,
    /// The domain that has them, where the children of one process share it; else each has one of its own.
    pub shared: Option<Arc<landlock::Outside>>,
    /// Whether what they refuse is read from the kernel's audit.
    pub audited: bool,
    /// Whether this is a shadow's: the command is held by nothing of it and its calls are shown to the observer, which takes
    /// the whole confinement.
    pub shadow: bool,
    /// The groups that a shadow's command has again: those of the processes that fork it are the run's marks as well.
    pub groups: Option<Vec<u32>>,
}

/// Why a child could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A call failed.
    #[error("confine {step}: {call}: {errno}")]
    Call {
        /// The step of the order.
        step: &'static str,
        /// The call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// A step that said that it was done was not.
    #[error("confine {step}: read back {seen}, wanted {wanted}")]
    ReadBack {
        /// The step of the order.
        step: &'static str,
        /// What the kernel shows.
        seen: String,
        /// What it should show.
        wanted: String,
    },
    /// Landlock refused the ruleset.
    #[error("confine landlock: {0}")]
    Landlock(String),
    /// The process has other threads, which would keep their privilege.
    #[error("confine: the process has {0} threads, not one")]
    Threads(usize),
}

fn failed(step: &'static str, call: &'static str) -> impl FnOnce(Errno) -> ConfineError {
    move |errno| ConfineError::Call { step, call, errno }
}

fn wanted<T: PartialEq + std::fmt::Debug>(step: &'static str, seen: T, wanted: T) -> Result<(), ConfineError> {
    if seen == wanted {
        return Ok(());
    }
    Err(ConfineError::ReadBack { step, seen: format!("{seen:?}"), wanted: format!("{wanted:?}") })
}

impl Confinement {
    /// Confines the calling process, which must have one thread. Descriptors from `first_closed` up are closed. The
    /// filter's listener goes to the observer at the other end of `handover`.
    pub fn enter(&self, first_closed: u32, handover: Option<Handover>) -> Result<(), ConfineError> {
        one_thread()?;
        // Descriptors first: one that leads outside would undo everything that follows.
        if !mutation::left_out("descriptors") {
            sys::close_from(first_closed, false).map_err(failed("descriptors", "close_range"))?;
        }
        if self.shadow {
            // Without an observer nothing would be told, and the record would pass for whole.
            let Some(handover) = handover else { return wanted("shadow", "no observer", "one") };
            let peer = Peer::fork(&handover)?;
            self.take_callers_groups()?;
            return self.load_filter(Some(peer));
        }
        let Some(identity) = &self.identity else {
            return Ok(());
        };
        let locked = self.privilege == Posture::Locked;
        let no_new_privs = locked || self.means.implies_no_new_privs();
        let handover = handover.filter(|_| !mutation::left_out("notifier") && !mutation::left_out("seccomp"));
        let mut peer = handover.as_ref().map(Peer::fork).transpose()?;
        // Keys while the caller's session keyring is still the one to be left (case P08).
        if !mutation::left_out("keyring") {
            keyring()?;
        }
        // The bounding set needs SETPCAP, which the next steps give up.
        if locked && self.means.empties_bounding && !mutation::left_out("bounding") {
            empty_bounding_set()?;
        }
        // Without no_new_privs a filter is loaded while SYS_ADMIN is held, so that set-id programs still work.
        if !no_new_privs && !mutation::left_out("seccomp") {
            self.load_filter(peer.take())?;
        }
        self.give_up(identity)?;
        if no_new_privs {
            // Before Landlock and seccomp, which an unprivileged process may only load under it.
            if !mutation::left_out("no-new-privs") {
                no_new_privs_set()?;
            }
            match &self.shared {
                // Audit would tell of the trial as of a refusal of the command's: it is left at the one of who shares the domain.
                Some(_) if self.audited => {}
                Some(outside) => outside.is_refused()?,
                None if self.scopes && !mutation::left_out("landlock") => {
                    landlock::restrict_scopes(self.audited, self.by_rules())?;
                }
                None => {}
            }
            // Last: the filter refuses calls that the steps above make.
            if !mutation::left_out("seccomp") {
                self.load_filter(peer.take())?;
            }
        }
        Ok(())
    }

    /// Has the calling process enter the domain that all it confines from here on share: what one of them leaves behind is the
    /// next one's to signal and to reach. Where they have one uid with this process, which the domain would then give into
    /// their hands, each keeps its own.
    pub fn share_domain(&mut self) -> Result<(), ConfineError> {
        let no_new_privs = self.privilege == Posture::Locked || self.means.implies_no_new_privs();
        let held =
            self.identity.is_some() && !self.shadow && no_new_privs && self.scopes && !mutation::left_out("landlock");
        if held && !self.means.one_uid {
            self.shared = Some(Arc::new(landlock::share_scopes(self.audited, self.by_rules())?));
        }
        Ok(())
    }

    fn by_rules(&self) -> bool {
        self.means.files == FileBarrier::Landlock
    }

    /// Where no number was marked, for want of SETGID, the groups are the caller's still.
    fn take_callers_groups(&self) -> Result<(), ConfineError> {
        let mut groups: Vec<Gid> = self.groups.iter().flatten().copied().map(Gid::from_raw).collect();
        groups.sort_by_key(|group| group.as_raw());
        let now = getgroups().map_err(failed("groups", "getgroups"))?;
        if now == groups { Ok(()) } else { take_groups(groups) }
    }

    /// Groups, ids, capabilities.
    fn give_up(&self, identity: &Identity) -> Result<(), ConfineError> {
        // Who keeps its uid has no SETGID either, by which groups are left (setgroups(2)).
        if !self.means.one_uid && !mutation::left_out("groups") {
            take_groups(Vec::new())?;
        }
        // After the groups: setgroups needs SETGID, which leaves with the uid.
        if !mutation::left_out("ids") {
            become_identity(identity.uid, identity.gid)?;
        }
        // A change of uid clears neither the inheritable set nor, under KEEP_CAPS, the permitted one (case P01).
        if !mutation::left_out("capabilities") {
            empty_capability_sets()?;
        }
        Ok(())
    }

    fn load_filter(&self, peer: Option<Peer>) -> Result<(), ConfineError> {
        match peer {
            Some(peer) => peer.load(&self.notifying)?,
            None => sys::load_seccomp(&self.filter).map_err(failed("seccomp", "seccomp"))?,
        }
        wanted("seccomp", sys::seccomp_mode().map_err(failed("seccomp", "prctl"))?, 2)
    }
}

/// Sets no_new_privs (prctl(2)), and reads it back.
pub fn no_new_privs_set() -> Result<(), ConfineError> {
    nix::sys::prctl::set_no_new_privs().map_err(failed("no_new_privs", "prctl"))?;
    wanted("no_new_privs", nix::sys::prctl::get_no_new_privs().map_err(failed("no_new_privs", "prctl"))?, true)
}

fn one_thread() -> Result<(), ConfineError> {
    match sys::thread_count().map_err(failed("threads", "read"))? {
        1 => Ok(()),
        threads => Err(ConfineError::Threads(threads)),
    }
}

fn keyring() -> Result<(), ConfineError> {
    let before = match sys::session_keyring() {
        Ok(serial) => serial,
        // A kernel without keyrings, or a container whose filter refuses them, has none to leave.
        Err(Errno::ENOSYS | Errno::EPERM) => return Ok(()),
        Err(Errno::ENOKEY) => 0,
        Err(errno) => return Err(failed("session keyring", "keyctl")(errno)),
    };
    sys::join_new_session_keyring().map_err(failed("session keyring", "keyctl"))?;
    let after = sys::session_keyring().map_err(failed("session keyring", "keyctl"))?;
    if after == before {
        return wanted("session keyring", "the caller's", "a new one");
    }
    Ok(())
}

/// The numbers of all capabilities that the running kernel knows, found by asking until it says EINVAL.
pub fn known_capabilities() -> Result<std::ops::Range<u32>, Errno> {
    for number in 0..u64::BITS {
        match sys::bounding_has(number) {
            Ok(_) => {}
            Err(Errno::EINVAL) => return Ok(0..number),
            Err(errno) => return Err(errno),
        }
    }
    Ok(0..u64::BITS)
}

fn empty_bounding_set() -> Result<(), ConfineError> {
    let step = "bounding set";
    let all = known_capabilities().map_err(failed(step, "prctl"))?;
    // SETPCAP last would do too: the drop looks at the effective set, not at the bounding set.
    for number in all.clone() {
        sys::bounding_drop(number).map_err(failed(step, "prctl"))?;
    }
    for number in all {
        wanted(step, sys::bounding_has(number).map_err(failed(step, "prctl"))?, false)?;
    }
    Ok(())
}

/// Takes these groups, which are in order, as the kernel keeps them.
fn take_groups(groups: Vec<Gid>) -> Result<(), ConfineError> {
    setgroups(&groups).map_err(failed("groups", "setgroups"))?;
    wanted("groups", getgroups().map_err(failed("groups", "getgroups"))?, groups)
}

fn become_identity(uid: Uid, gid: Gid) -> Result<(), ConfineError> {
    setresgid(gid, gid, gid).map_err(failed("gid", "setresgid"))?;
    setresuid(uid, uid, uid).map_err(failed("uid", "setresuid"))?;
    let gids = getresgid().map_err(failed("gid", "getresgid"))?;
    let uids = getresuid().map_err(failed("uid", "getresuid"))?;
    // setfsuid with an id that cannot be set returns the one in force (setfsuid(2)).
    let fs = (setfsuid(Uid::from_raw(u32::MAX)), setfsgid(Gid::from_raw(u32::MAX)));
    wanted("gid", [gids.real, gids.effective, gids.saved, fs.1], [gid; 4])?;
    wanted("uid", [uids.real, uids.effective, uids.saved, fs.0], [uid; 4])
}

fn empty_capability_sets() -> Result<(), ConfineError> {
    let step = "capability sets";
    sys::ambient_clear().map_err(failed(step, "prctl"))?;
    sys::capset(CapabilitySets::default()).map_err(failed(step, "capset"))?;
    wanted(step, sys::capget().map_err(failed(step, "capget"))?, CapabilitySets::default())?;
    for number in known_capabilities().map_err(failed(step, "prctl"))? {
        wanted("ambient set", sys::ambient_has(number).map_err(failed(step, "prctl"))?, false)?;
    }
    Ok(())
}
