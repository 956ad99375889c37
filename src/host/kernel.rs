//! What this kernel gives to the rungs: which facts are tried when, and all of them for the record.

use super::finding::{Finding, NOT_TRIED, Tried, in_child, proc};
use super::{Depth, Facts, Landlock, landlock, namespaces, stopped};
use crate::install::firewall;
use crate::install::workspace::IdMapping;
use crate::observe::nflog::NfLog;
use crate::proxy::transparent::stand_ins::STAND_INS;
use crate::sys::call::{Argument, call_for_fd};
use crate::sys::capability::{CHOWN, KILL, NET_ADMIN, SETGID, SETPCAP, SETUID, SYS_ADMIN};
use nix::libc;
use nix::unistd::{Gid, Uid, getpid};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

impl Landlock {
    /// Its version; whether it holds is not tried.
    pub(super) fn version() -> Landlock {
        match landlock::abi() {
            Ok(abi) => Landlock { abi, usable: Err(NOT_TRIED.into()) },
            Err(cause) => Landlock { abi: 0, usable: Err(cause) },
        }
    }
}

impl Facts {
    /// Whether what is known so far stands against nothing of the strongest rung.
    pub(super) fn strongest_in_reach(&self) -> bool {
        let capable = [SYS_ADMIN, NET_ADMIN, SETUID, SETGID, SETPCAP, CHOWN, KILL].iter().all(|one| self.has(*one));
        self.uid == 0 && capable && matches!(self.mounts, Some(Ok(()))) && !matches!(self.firewall, Some(Err(_)))
    }

    /// Tries what the other rungs stand on, in children that end with it.
    pub(super) fn try_for_other_rungs(&mut self) {
        let stopped = in_child(stopped::try_it);
        self.setpcap = stopped.of(Tried::SetPcap);
        self.no_new_privs = stopped.of(Tried::NoNewPrivs);
        self.bind_to_lo = stopped.of(Tried::BindToLo);
        self.notification = stopped.of(Tried::Notification);
        self.addfd = stopped.of(Tried::AddFd);
        self.reads_callers = self.with_yama(stopped.of(Tried::ReadsCallers));
        if self.landlock.abi > 0 {
            self.landlock.usable = stopped.of(Tried::LandlockFiles);
        }
        let namespaces = in_child(namespaces::try_it);
        self.user_namespaces = namespaces.of(Tried::UserNamespaces);
        self.firewall_inside = namespaces.of(Tried::FirewallInside);
        // What was told of this process's own mounts comes first.
        if self.mount_setattr == Err(NOT_TRIED.into()) {
            self.mount_setattr = namespaces.of(Tried::MountSetattr);
        }
    }

    /// A memory that was not to be read, with what keeps it where that is known.
    fn with_yama(&self, found: Finding) -> Finding {
        found.map_err(|cause| match self.yama {
            Some(scope @ 2..) => format!("{cause} (Yama's ptrace_scope is {scope}; accepted: 0, 1)"),
            _ => cause,
        })
    }

    /// The facts for the start record and for `plan --json`: true, or why not.
    pub fn to_json(&self) -> BTreeMap<String, Value> {
        let shown = |found: &Finding| found.as_ref().map_or_else(|cause| json!(cause), |()| json!(true));
        let outcome = |tried: &Option<Finding>| tried.as_ref().map_or_else(|| json!(NOT_TRIED), shown);
        let wall = self.firewall.as_ref().map(|tried| match tried {
            Ok(support) if support.complete() => Ok(()),
            Ok(support) => Err(support.missing.join("; ")),
            Err(cause) => Err(cause.clone()),
        });
        let facts = [
            ("kernel", json!(release())),
            ("uid", json!(self.uid)),
            ("pid_1", json!(self.is_init)),
            ("capabilities", json!(format!("{:x}", self.capabilities))),
            ("proc", shown(&self.proc)),
            ("nftables", outcome(&wall)),
            ("nflog", shown(&self.nflog)),
            ("mounts", outcome(&self.mounts)),
            ("mount_setattr", shown(&self.mount_setattr)),
            ("idmapped_mounts", shown(&self.idmapped_mounts)),
            ("fanotify", shown(&self.fanotify)),
            ("id_mapping", json!(self.id_mapping.is_some())),
            ("user_namespaces", shown(&self.user_namespaces)),
            ("nftables_in_user_namespace", shown(&self.firewall_inside)),
            ("landlock_abi", json!(self.landlock.abi)),
            ("landlock", shown(&self.landlock.usable)),
            ("landlock_scopes", json!(self.scopes)),
            ("landlock_audit", outcome(&self.audit)),
            ("notification", shown(&self.notification)),
            ("addfd", shown(&self.addfd)),
            ("reads_callers", shown(&self.reads_callers)),
            ("outer_filter", json!(self.outer_filter)),
            ("yama", json!(self.yama)),
            ("setpcap", shown(&self.setpcap)),
            ("no_new_privs", shown(&self.no_new_privs)),
            ("pidfd", shown(&self.pidfd)),
            ("pidfd_getfd", shown(&self.pidfd_getfd)),
            ("bind_to_lo", shown(&self.bind_to_lo)),
            ("stand_ins_routed", shown(&self.stand_ins)),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The firewall, as far as the depth asks for it.
pub(super) fn firewall(depth: Depth) -> Option<Result<firewall::Support, String>> {
    if depth == Depth::Everything {
        return Some(firewall::probe_support().map_err(|error| error.to_string()));
    }
    // Whoever cannot list what is there can put up nothing.
    firewall::stale_tables().err().map(|error| Err(error.to_string()))
}

pub(super) fn nflog() -> Finding {
    /// Stands for a run's identifier where there is none.
    const NO_RUN: &str = "0000000000000000";
    NfLog::bind(NO_RUN).map(drop).map_err(|error| error.to_string())
}

/// Whether there is a route to the addresses that stand for names. Nothing is sent.
pub(super) fn stand_ins() -> Finding {
    let somewhere = (STAND_INS.network(), 443);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| format!("bind: {error}"))?;
    socket.connect(somewhere).map_err(|error| format!("connect: {error}"))
}

/// Whether any of the places where workspaces are kept can be mounted with exchanged ids.
pub(super) fn idmapped_mounts() -> Finding {
    proc()?;
    let id = Uid::from_raw(1);
    let mapping = IdMapping::new(id, Gid::from_raw(id.as_raw())).map_err(|error| error.to_string())?;
    let mut refused = Vec::new();
    for place in ["/", "/tmp", "/home", "/dev/shm"] {
        match mapping.fits(Path::new(place)) {
            Ok(()) => return Ok(()),
            Err(errno) => refused.push(format!("{place}: {errno}")),
        }
    }
    Err(refused.join("; "))
}

fn own_pidfd() -> Result<OwnedFd, String> {
    let [pid, no_flags] = [Argument::Number(u64::from(getpid().as_raw().unsigned_abs())), Argument::Number(0)];
    call_for_fd(libc::SYS_pidfd_open, [pid, no_flags]).map_err(|errno| format!("pidfd_open: {errno}"))
}

pub(super) fn pidfd() -> Finding {
    own_pidfd().map(drop)
}

pub(super) fn pidfd_getfd() -> Finding {
    use std::os::fd::AsRawFd;
    let process = own_pidfd()?;
    let [own, no_flags] = [Argument::Number(process.as_raw_fd() as u64), Argument::Number(0)];
    call_for_fd(libc::SYS_pidfd_getfd, [Argument::Fd(process.as_fd()), own, no_flags])
        .map(drop)
        .map_err(|errno| format!("pidfd_getfd: {errno}"))
}

/// Yama's ptrace_scope; `None` where there is no Yama.
pub(super) fn yama() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// The kernel's release, for records only: nothing is decided by it.
fn release() -> String {
    nix::sys::utsname::uname().map_or_else(|e| e.to_string(), |u| u.release().to_string_lossy().into_owned())
}
