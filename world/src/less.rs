//! A command that starts with less than the test has: fewer capabilities, another user, calls that are refused, no `/proc`.
//!
//! Credentials, filters and mount namespaces are a thread's, and a command is started by one thread: a [`Less`] is put in
//! force on a thread of its own, which starts the command and ends. Nothing else of the process is touched.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::process::Command;
//! use world::Less;
//! let child = Less::new().container().no_landlock().spawn(Command::new("id"))?;
//! # Ok(()) }
//! ```

pub mod container;
mod filter;
mod listener;

use crate::error::{Doing, Error};
use filter::Refusal;
pub use filter::When;
use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;

const SETPCAP: u32 = 8;
/// seccomp(2).
const NEW_LISTENER: u64 = 1 << 3;
/// linux/seccomp.h, SECCOMP_IOCTL_NOTIF_ADDFD.
const NOTIF_ADDFD: u64 = 0x4018_2103;
const NETLINK_NETFILTER: u64 = 12;

/// What a command is to start without.
#[derive(Debug, Clone, Default)]
pub struct Less {
    capabilities: Option<Vec<u32>>,
    without: Vec<u32>,
    ids: Option<(u32, u32)>,
    no_new_privs: bool,
    /// The container's, which come first: a later filter's errno is the one that is seen.
    profile: Vec<Refusal>,
    refusals: Vec<Refusal>,
    busy: bool,
    no_proc: bool,
    yama: Option<u32>,
    read_only_root: bool,
}

impl Less {
    /// Nothing less.
    #[must_use]
    pub fn new() -> Less {
        Less::default()
    }

    /// No capabilities but these: of the bounding, permitted, effective and inheritable sets these are left as far as they
    /// are there, of the ambient set none. A user other than root has none after exec anyway (capabilities(7)).
    #[must_use]
    pub fn capabilities(mut self, kept: &[u32]) -> Less {
        self.capabilities = Some(kept.to_vec());
        self
    }

    /// Without one capability, in any of the sets.
    #[must_use]
    pub fn without_capability(mut self, number: u32) -> Less {
        self.without.push(number);
        self
    }

    /// As this user and group in all of their ids, without supplementary groups.
    #[must_use]
    pub fn uid(mut self, uid: u32, gid: u32) -> Less {
        self.ids = Some((uid, gid));
        self
    }

    /// The uid that the command starts as.
    pub fn user(&self) -> Option<u32> {
        self.ids.map(|(uid, _)| uid)
    }

    /// With no_new_privs (prctl(2)).
    #[must_use]
    pub fn no_new_privs(mut self) -> Less {
        self.no_new_privs = true;
        self
    }

    /// The call gives this errno and is not made.
    #[must_use]
    pub fn refuse(self, call: &str, errno: Errno) -> Less {
        self.refuse_when(call, &[], errno)
    }

    /// The same where all of these hold.
    #[must_use]
    pub fn refuse_when(mut self, call: &str, when: &[When], errno: Errno) -> Less {
        self.refusals.push(Refusal { call: call.to_owned(), when: when.to_vec(), errno });
        self
    }

    /// What a default Docker container leaves to root: 14 capabilities and its filter.
    #[must_use]
    pub fn container(mut self) -> Less {
        self.profile = container::refusals();
        self.capabilities(&container::CAPABILITIES)
    }

    /// What it leaves with `--user UID:GID --cap-drop all --security-opt no-new-privileges`.
    #[must_use]
    pub fn container_user(self, uid: u32, gid: u32) -> Less {
        self.container().capabilities(&[]).uid(uid, gid).no_new_privs()
    }

    /// A kernel without Landlock.
    #[must_use]
    pub fn no_landlock(self) -> Less {
        ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
            .iter()
            .fold(self, |less, call| less.refuse(call, Errno::ENOSYS))
    }

    /// A kernel or an outer filter that gives no notification listener: EINVAL.
    #[must_use]
    pub fn no_notifier(self) -> Less {
        self.refuse_when("seccomp", &[When::Has(1, NEW_LISTENER)], Errno::EINVAL)
    }

    /// An outer filter that has the one listener which a chain may have: EBUSY.
    #[must_use]
    pub fn busy_notifier(mut self) -> Less {
        self.busy = true;
        self
    }

    /// A kernel before 5.9, whose listeners cannot give a descriptor away.
    #[must_use]
    pub fn no_addfd(self) -> Less {
        self.refuse_when("ioctl", &[When::Is(1, NOTIF_ADDFD)], Errno::EINVAL)
    }

    /// No user namespace can be made.
    #[must_use]
    pub fn no_userns(self) -> Less {
        let new_user = libc::CLONE_NEWUSER as u64;
        self.refuse_when("clone", &[When::Has(0, new_user)], Errno::EPERM)
            .refuse_when("unshare", &[When::Has(0, new_user)], Errno::EPERM)
            .refuse("clone3", Errno::ENOSYS)
    }

    /// A user namespace can be made and gives no capabilities, as where AppArmor restricts them: nothing can be mounted, no
    /// other namespace be made. For a user other than root, as the refusals hold outside the namespace too.
    #[must_use]
    pub fn userns_without_capabilities(self) -> Less {
        let others = container::NEW_NAMESPACES.iter().filter(|bit| **bit != libc::CLONE_NEWUSER as u64);
        let less = others.fold(self, |less, bit| {
            less.refuse_when("unshare", &[When::Has(0, *bit)], Errno::EPERM).refuse_when(
                "clone",
                &[When::Has(0, *bit)],
                Errno::EPERM,
            )
        });
        let calls =
            ["mount", "umount2", "open_tree", "fsopen", "move_mount", "mount_setattr", "pivot_root", "sethostname"];
        calls.iter().fold(less, |less, call| less.refuse(call, Errno::EPERM)).refuse("clone3", Errno::ENOSYS)
    }

    /// The bounding set cannot be changed.
    #[must_use]
    pub fn no_setpcap(self) -> Less {
        self.without_capability(SETPCAP)
    }

    /// Nothing is mounted on `/proc`.
    #[must_use]
    pub fn no_proc(mut self) -> Less {
        self.no_proc = true;
        self
    }

    /// Yama with this ptrace_scope, as far as it refuses to whoever looks at a descendant: from 2 on memory is not read. The
    /// file that tells of it is there, and no other one of `/proc/sys/kernel`.
    #[must_use]
    pub fn yama(mut self, scope: u32) -> Less {
        /// Set in the addresses of programs, stacks and libraries, and in no offset of a file.
        const ADDRESS: u64 = 1 << 46;
        self.yama = Some(scope);
        if scope < 2 {
            return self;
        }
        self.refuse_when("pread64", &[When::Has(3, ADDRESS)], Errno::EPERM)
            .refuse("process_vm_readv", Errno::EPERM)
            .refuse("ptrace", Errno::EPERM)
    }

    /// The root's file system is read-only; other mounts are as they are.
    #[must_use]
    pub fn read_only_root(mut self) -> Less {
        self.read_only_root = true;
        self
    }

    /// A kernel without netfilter's netlink, so without nftables and NFLOG.
    #[must_use]
    pub fn no_nft(self) -> Less {
        let netfilter = [When::Is(0, libc::AF_NETLINK as u64), When::Is(2, NETLINK_NETFILTER)];
        self.refuse_when("socket", &netfilter, Errno::EPROTONOSUPPORT)
    }

    /// A kernel without IPv6.
    #[must_use]
    pub fn no_inet6(self) -> Less {
        self.refuse_when("socket", &[When::Is(0, libc::AF_INET6 as u64)], Errno::EAFNOSUPPORT)
    }

    /// A kernel before 5.12.
    #[must_use]
    pub fn no_mount_setattr(self) -> Less {
        self.refuse("mount_setattr", Errno::ENOSYS)
    }

    /// A kernel before 5.3.
    #[must_use]
    pub fn no_pidfd(self) -> Less {
        self.refuse("pidfd_open", Errno::ENOSYS).refuse("pidfd_getfd", Errno::ENOSYS)
    }

    /// Starts the command in the calling thread's namespaces with all of this in force.
    ///
    /// # Errors
    /// What could not be taken away, or the command's start.
    pub fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        let holder = self.busy.then(listener::hold).transpose()?;
        thread::scope(|scope| {
            let starter = scope.spawn(move || {
                self.enter(holder)?;
                let child = command.spawn().doing(format!("start {command:?}"))?;
                // A change of credentials has closed the whole process's memory to others (prctl(2)).
                set_dumpable_behavior(DumpableBehavior::Dumpable).doing("prctl PR_SET_DUMPABLE")?;
                Ok(child)
            });
            starter.join().expect("the starting thread ends without a panic")
        })
    }

    fn enter(&self, holder: Option<Sender<OwnedFd>>) -> Result<(), Error> {
        self.change_mounts()?;
        let held = capabilities(None).doing("capget")?;
        let kept = held_back(self.capabilities.as_deref(), &self.without);
        // While SETPCAP and SETUID are there.
        limit_bounding_set(kept)?;
        clear_ambient_capability_set().doing("empty the ambient set")?;
        if let Some((uid, gid)) = self.ids {
            set_keep_capabilities(true).doing("prctl PR_SET_KEEPCAPS")?;
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            set_thread_groups(&[]).doing("setgroups")?;
            set_thread_res_gid(gid, gid, gid).doing("setresgid")?;
            set_thread_res_uid(uid, uid, uid).doing("setresuid")?;
        }
        // Without no_new_privs a filter takes SYS_ADMIN, which the change of ids has made ineffective.
        set_capabilities(None, CapabilitySets { effective: held.permitted, ..held }).doing("capset")?;
        if self.no_new_privs {
            set_no_new_privs(true).doing("prctl PR_SET_NO_NEW_PRIVS")?;
        }
        if let Some(holder) = holder {
            holder.send(listener::load()?).expect("the holder waits for its listener");
        }
        filter::load(&self.profile)?;
        filter::load(&self.refusals)?;
        let left = held.permitted.intersection(kept);
        let sets =
            CapabilitySets { effective: left, permitted: left, inheritable: held.inheritable.intersection(kept) };
        set_capabilities(None, sets).doing("capset")
    }

    fn change_mounts(&self) -> Result<(), Error> {
        if !self.no_proc && !self.read_only_root && self.yama.is_none() {
            return Ok(());
        }
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).doing("unshare(CLONE_NEWNS)")?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).doing("make / private")?;
        if self.no_proc {
            umount2("/proc", MntFlags::MNT_DETACH).doing("umount /proc")?;
        }
        if let Some(scope) = self.yama {
            let sysctls = Path::new("/proc/sys/kernel");
            mount(Some("tmpfs"), sysctls, Some("tmpfs"), MsFlags::empty(), none).doing("mount a tmpfs")?;
            let yama = sysctls.join("yama");
            fs::create_dir(&yama).doing("mkdir yama")?;
            fs::write(yama.join("ptrace_scope"), format!("{scope}\n")).doing("write ptrace_scope")?;
        }
        if self.read_only_root {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
            mount(none, "/", none, flags, none).doing("make / read-only")?;
        }
        Ok(())
    }
}

/// The capabilities that are not taken away.
fn held_back(kept: Option<&[u32]>, without: &[u32]) -> CapabilitySet {
    let bits = |numbers: &[u32]| numbers.iter().fold(0u64, |bits, number| bits | 1 << number);
    CapabilitySet::from_bits_retain(kept.map_or(u64::MAX, bits) & !bits(without))
}

fn limit_bounding_set(kept: CapabilitySet) -> Result<(), Error> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => {
                remove_capability_from_bounding_set(one).doing("prctl PR_CAPBSET_DROP")?;
            }
            Ok(_) => {}
            // Beyond the kernel's last one.
            Err(rustix::io::Errno::INVAL) => break,
            Err(cause) => return Err(cause).doing("prctl PR_CAPBSET_READ"),
        }
    }
    Ok(())
}
