//! The observer's confinement: the command's, as far as the kernel's verdict on a path depends on it, and no listener.

use super::{
    ConfineError, Confinement, empty_bounding_set, failed, keyring, no_new_privs_set, one_thread, take_groups, wanted,
};
use crate::plan::means::EgressBarrier;
use crate::sys::{self, CapabilitySets, capability};
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, getresgid, getresuid, setfsuid, setresgid, setresuid};

const SYS_PTRACE: u64 = 1 << capability::SYS_PTRACE;
const SETUID: u64 = 1 << capability::SETUID;

/// The caller's limits are the command's to meet: threads and descriptors of this process are bounded by its own code.
fn free_of_limits() -> Result<(), ConfineError> {
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed("observer", "getrlimit"))?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).map_err(failed("observer", "setrlimit"))?;
    match setrlimit(Resource::RLIMIT_NPROC, RLIM_INFINITY, RLIM_INFINITY) {
        // Without SYS_RESOURCE the limit stays; a thread that cannot be had is told of.
        Ok(()) | Err(Errno::EPERM) => Ok(()),
        Err(errno) => Err(failed("observer", "setrlimit")(errno)),
    }
}

impl Confinement {
    /// Confines the calling process, which must have one thread, so that the kernel judges its access to files as the
    /// command's: its file system ids, no groups, no capabilities. Its other uids are `own`, by which it is nobody's to
    /// signal, trace or reschedule. Returns whether SYS_PTRACE could be kept, in the permitted set.
    pub fn enter_as_observer(&self, own: u32) -> Result<bool, ConfineError> {
        one_thread()?;
        let Some(identity) = &self.identity else {
            return wanted("observer", "privilege open", "an identity").map(|()| false);
        };
        let (uid, gid, own) = (identity.uid, identity.gid, Uid::from_raw(own));
        free_of_limits()?;
        keyring()?;
        let kept = if self.means.one_uid { self.keep_ids(uid)? } else { self.take_ids(uid, gid, own)? };
        no_new_privs_set()?;
        // It reads what the command may not: its memory is closed to all of the command's user.
        nix::sys::prctl::set_dumpable(false).map_err(failed("observer", "prctl"))?;
        sys::load_seccomp(&self.observers).map_err(failed("observer", "seccomp"))?;
        wanted(
            "observer",
            sys::seccomp_mode().map_err(failed("observer", "prctl"))?,
            libc::SECCOMP_MODE_FILTER as i32,
        )?;
        Ok(kept != 0)
    }
    /// Takes the ids of the observer. Returns the capability that it keeps in its permitted set.
    fn take_ids(&self, uid: Uid, gid: Gid, own: Uid) -> Result<u64, ConfineError> {
        let kept = sys::capget().map_err(failed("observer", "capget"))?.permitted & SYS_PTRACE;
        empty_bounding_set()?;
        take_groups(Vec::new())?;
        sys::keep_capabilities(true).map_err(failed("observer", "prctl"))?;
        setresgid(gid, gid, gid).map_err(failed("observer", "setresgid"))?;
        // Where it connects for the command, whom it connects to sees the effective uid (unix(7), SO_PEERCRED).
        let effective = if self.means.egress == EgressBarrier::MadeSockets || self.shadow { uid } else { own };
        // A shadow asks about what the command has made as who made it, root, and without a capability.
        let real = if self.shadow { Uid::from_raw(0) } else { own };
        setresuid(real, effective, own).map_err(failed("observer", "setresuid"))?;
        sys::keep_capabilities(false).map_err(failed("observer", "prctl"))?;
        // The ids for files alone are another user's, which takes SETUID once more.
        let raised = CapabilitySets { effective: SETUID, permitted: SETUID | kept, inheritable: 0 };
        sys::capset(raised).map_err(failed("observer", "capset"))?;
        setfsuid(uid);
        let sets = CapabilitySets { permitted: kept, ..CapabilitySets::default() };
        sys::ambient_clear().map_err(failed("observer", "prctl"))?;
        sys::capset(sets).map_err(failed("observer", "capset"))?;
        wanted("observer", sys::capget().map_err(failed("observer", "capget"))?, sets)?;
        let gids = getresgid().map_err(failed("observer", "getresgid"))?;
        let uids = getresuid().map_err(failed("observer", "getresuid"))?;
        wanted("observer", [gids.real, gids.effective, gids.saved], [gid; 3])?;
        wanted("observer", [uids.real, uids.effective, uids.saved], [real, effective, own])?;
        // An id that cannot be set returns the one in force (setfsuid(2)).
        wanted("observer", setfsuid(Uid::from_raw(u32::MAX)), uid)?;
        Ok(kept)
    }

    /// Where there is one uid only: Landlock keeps the command from this process. In a user namespace of the sandbox's own
    /// SYS_PTRACE is there to be kept.
    fn keep_ids(&self, uid: Uid) -> Result<u64, ConfineError> {
        let kept = sys::capget().map_err(failed("observer", "capget"))?.permitted & SYS_PTRACE;
        if self.means.empties_bounding {
            empty_bounding_set()?;
        }
        let sets = CapabilitySets { permitted: kept, ..CapabilitySets::default() };
        sys::ambient_clear().map_err(failed("observer", "prctl"))?;
        sys::capset(sets).map_err(failed("observer", "capset"))?;
        wanted("observer", sys::capget().map_err(failed("observer", "capget"))?, sets)?;
        let uids = getresuid().map_err(failed("observer", "getresuid"))?;
        wanted("observer", [uids.real, uids.effective, uids.saved], [uid; 3])?;
        Ok(kept)
    }
}
