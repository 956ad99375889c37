//! What an ordinary user may do in a user namespace of their own, tried as the rung `rootless` will do it: where a security
//! module restricts them the namespace can be made and gives no capabilities.

use super::finding::{Finding, Teller, Tried};
use crate::install::{firewall, netns};
use crate::sys::{self, MountAttr};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid};
use std::os::fd::AsFd;

/// Tries it, in a child that ends with it.
pub(super) fn try_it(tell: &Teller) {
    let made = enter();
    tell.tell(Tried::UserNamespaces, made.clone());
    tell.tell(Tried::MountSetattr, made.clone().and_then(|()| change_mounts()));
    let inside = made.and_then(|()| match firewall::probe_support() {
        Ok(support) if support.complete() => Ok(()),
        Ok(support) => Err(support.missing.join("; ")),
        Err(error) => Err(error.to_string()),
    });
    tell.tell(Tried::FirewallInside, inside);
}

fn failed(call: &str) -> impl FnOnce(Errno) -> String {
    let call = call.to_owned();
    move |errno| format!("{call}: {errno}")
}

fn enter() -> Finding {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(failed("unshare CLONE_NEWUSER"))?;
    let write = |file: &str, text: String| {
        let path = format!("/proc/self/{file}");
        std::fs::write(&path, text).map_err(|error| format!("write {path}: {error}"))
    };
    // Who has no SETGID outside may map a group only where none can be given up (user_namespaces(7)).
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))?;
    let both = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    unshare(both).map_err(failed("unshare CLONE_NEWNS|CLONE_NEWNET in a user namespace"))?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(failed("mount in a user namespace"))?;
    let scratch = sys::new_tmpfs(0o700, 0).map_err(failed("fsmount in a user namespace"))?;
    let point = open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed("open /proc"))?;
    sys::move_mount(scratch.as_fd(), point.as_fd()).map_err(failed("move_mount in a user namespace"))?;
    umount2("/proc", MntFlags::MNT_DETACH).map_err(failed("umount2 in a user namespace"))?;
    netns::furnish().map_err(|error| format!("{error} in a user namespace"))
}

fn change_mounts() -> Finding {
    // The mounts of the namespace that this one came from are one whole (mount_namespaces(7)).
    let tree = sys::clone_tree(AT_FDCWD, c"/", true).map_err(failed("open_tree"))?;
    let attr = MountAttr { set: sys::ATTR_RDONLY | sys::ATTR_NOSUID, ..MountAttr::default() };
    sys::mount_setattr(tree.as_fd(), true, &attr).map_err(failed("mount_setattr"))
}
